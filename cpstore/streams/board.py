"""A shared ledger as an act sees it: its keys and members, and the entries that change them.

The ledger's stream has a state like a lineage has: ``{"keys": {key: {"revision", "seq", "value"}}, "members": {id:
member}}``. So what it holds is stored, compressed, signed, verified and read by the code that does it for lineages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cpstore import canonical
from cpstore.digest import digest
from cpstore.errors import CorruptError
from cpstore.model.entry import Kind, StreamId, StreamKind
from cpstore.model.ledger import Held, Member
from cpstore.snapshot import values
from cpstore.snapshot.edits import Change
from cpstore.snapshot.lookup import MISSING
from cpstore.streams.act import Step
from cpstore.streams.opened import OpenStream

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cpstore.backends.port import Writer
    from cpstore.journal import Reading
    from cpstore.model.entry import Entry
    from cpstore.model.glossary import Glossary

MEANING = b"cpstore/meaning/v1\n"
KNOWN = 256
"""Memberships that a process keeps as they were read last: one of thousands of keys takes milliseconds to check."""

_known: dict[str, tuple[Any, Member]] = {}


class Board:
    """One ledger in one transaction."""

    def __init__(self, opened: OpenStream, reading: Reading) -> None:
        self.opened = opened
        self._reading = reading

    @classmethod
    def of(cls, reading: Reading, namespace: str, name: str) -> Board:
        """Look at a ledger from an act on another stream: read anew, so that no other lock is needed."""
        opened = OpenStream(StreamId(namespace, StreamKind.LEDGER, name))
        opened.refresh(reading)
        return cls(opened, reading)

    @property
    def name(self) -> str:
        """The ledger's name."""
        return self.opened.stream.name

    @property
    def position(self) -> int:
        """The seq of its newest entry, 0 if there is none."""
        return 0 if self.opened.last is None else self.opened.last.seq

    # --- what it holds ---------------------------------------------------------------------------------------

    def held(self, key: str) -> Held | None:
        """Return what the ledger has under a key."""
        found = self.value(key)
        return None if found is None else found[0]

    def value(self, key: str) -> tuple[Held, Any] | None:
        """Return what the ledger has under a key, with a fresh copy of the value."""
        found = self._at("keys", key)
        if found is MISSING:
            return None
        try:
            value = found["value"]
            return Held(found["revision"], value_digest(value), found["seq"]), value
        except (TypeError, KeyError) as error:
            raise CorruptError(f"{self.opened.stream}: key {key!r} cannot be read; run verify") from error

    def keys(self) -> list[str]:
        """Return the keys, sorted."""
        return sorted(self._keys("keys"))

    def member(self, identity: str) -> Member | None:
        """Return a membership."""
        found = self._at("members", identity)
        return None if found is MISSING else _member(identity, found)

    def members(self) -> Iterator[Member]:
        """Yield all memberships, those that have left included."""
        for identity in sorted(self._keys("members")):
            found = self.member(identity)
            if found is not None:
                yield found

    def _at(self, *tokens: str) -> Any:
        return MISSING if self.opened.last is None else self.opened.writing(self._reading).value_at(tokens)

    def _keys(self, part: str) -> list[str]:
        return [] if self.opened.last is None else self.opened.writing(self._reading).keys_at((part,))

    # --- what changes it -------------------------------------------------------------------------------------

    def member_step(
        self, member: Member, act: str, *, event: Mapping[str, Any] | None = None, cursor: int | None = None
    ) -> Step:
        """Return the entry that changes a membership, and with ``event`` tells every peer.

        ``cursor`` sets how far the member has acknowledged.
        """
        changes = [] if self.opened.last else [_set(("keys",), {}), _set(("members",), {})]
        changes.append(_set(("members", member.id), member.to_value()))
        number = self.opened.number

        def file(tx: Writer, stream: int, entry: Entry) -> None:
            del entry
            if cursor is not None:
                tx.set_cursor(stream if number is None else number, member.id, cursor)

        detail: dict[str, Any] = {"act": act, "member": member.id, "status": member.status.value}
        if event is not None:
            detail["event"] = dict(event)
        kind = Kind.PEER if event is None else Kind.BROADCAST
        return Step(
            self.opened, kind, lambda writer: writer.changes(changes), 0, 0, detail, term=event is not None, file=file
        )

    def write_step(
        self, before: Member, member: Member, puts: Mapping[str, tuple[int, Any]], known: Mapping[str, Held]
    ) -> Step:
        """Return the entry that gives keys new revisions and values; ``before`` is the writer as it is stored."""
        seq = self.position + 1
        changes = [
            _set(("keys", key), {"revision": revision, "seq": seq, "value": value})
            for key, (revision, value) in sorted(puts.items())
        ]
        if before != member:
            changes.append(_set(("members", member.id), member.to_value()))
        rows = [
            [key, revision, value_digest(value), known[key].seq if key in known else 0]
            for key, (revision, value) in sorted(puts.items())
        ]
        detail = {"member": member.id, "peer": member.peer, "writes": rows}
        return Step(self.opened, Kind.LEDGER, lambda writer: writer.changes(changes), 0, 0, detail)


def _member(identity: str, value: Any) -> Member:
    found = _known.get(identity)
    if found is not None and found[0] == value:
        return found[1]
    member = Member.from_value(value)
    if len(_known) >= KNOWN:
        _known.clear()
    _known[identity] = value, member
    return member


def joined(entry: Entry | None) -> dict[str, int]:
    """Return the ledgers that a lineage belongs to or belonged to, each with the position it had acknowledged."""
    found = ((entry.detail or {}) if entry is not None else {}).get("ledgers", {})
    if type(found) is not dict or any(type(position) is not int for position in found.values()):
        raise CorruptError("an entry's list of ledgers cannot be read; run verify")
    return dict(found)


def acked(reading: Reading, entry: Entry | None, namespace: str, member: str) -> dict[str, int]:
    """Return a lineage's ledgers with the positions that it has acknowledged by now."""
    found = joined(entry)
    for ledger in found:
        number = reading.tx.stream(StreamId(namespace, StreamKind.LEDGER, ledger))
        found[ledger] = 0 if number is None else reading.tx.cursor(number, member)
    return found


def value_digest(value: Any) -> str:
    """Return the SHA-256 (hex) of a value, whatever the order of keys in its mappings."""
    return digest(values.canonical(value)).hex()


def lock_of(glossary: Glossary) -> tuple[tuple[str, str], ...]:
    """Return (symbol, SHA-256 of the meaning in hex) of each locked binding, sorted.

    Who settled it and when is no part of the meaning.
    """
    return tuple(
        sorted(
            (
                binding.symbol,
                digest(MEANING + canonical.encode([binding.definition, binding.constraint, binding.verbatim])).hex(),
            )
            for binding in glossary.task_wide
        )
    )


def _set(tokens: Iterable[str], value: Any) -> Change:
    return Change("set", tuple(tokens), (values.encode(value),))
