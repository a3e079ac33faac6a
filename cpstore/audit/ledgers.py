"""Shared ledgers: what their entries say they wrote, compared with the state that their bytes make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cpstore.errors import CorruptError
from cpstore.model.entry import EPOCHS, Entry, Kind, StreamId, StreamKind
from cpstore.model.ledger import Event, Member
from cpstore.snapshot.lookup import MISSING
from cpstore.streams.board import joined, value_digest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cpstore.audit.report import Findings
    from cpstore.backends.port import Reader
    from cpstore.snapshot.state import States
    from cpstore.snapshot.tree import Tree

EPOCH_EVENTS = {Kind.COMPACTION: "compacted", Kind.RESTORE: "restored"}
"""What a ledger calls the acts that void the reads of a lineage."""


class LedgerEntries:
    """Follows one ledger's stream beside its replay."""

    def __init__(self, stream: StreamId, states: States) -> None:
        self._stream = stream
        self._states = states
        self._keys: dict[str, tuple[int, int]] = {}
        self.members: dict[str, Member] = {}

    def see(self, entry: Entry, tree: Tree) -> None:
        """Compare an entry with the state after it. Raises CorruptError that names the entry."""
        detail: Any = entry.detail or {}
        if entry.kind is Kind.LEDGER:
            for row in detail.get("writes", [[]]):
                self._write(entry, tree, row)
        elif entry.kind not in (Kind.PEER, Kind.BROADCAST):
            raise CorruptError(f"{self._stream}: entry {entry.seq} has no place in a ledger")
        if entry.kind is Kind.BROADCAST:
            Event.from_value(
                {"ledger": self._stream.name, "position": entry.seq, "time": entry.time, **detail["event"]}
            )
        self._member(entry, tree, detail)

    def _write(self, entry: Entry, tree: Tree, row: Any) -> None:
        key, revision, digest, before = row
        had, at = self._keys.get(key, (0, 0))
        found = self._states.value_at(tree, ("keys", key))
        stored = {"revision": revision, "seq": entry.seq}
        same = found is not MISSING and {name: found.get(name) for name in stored} == stored
        if not same or value_digest(found["value"]) != digest or (revision, before) != (had + 1, at):
            raise CorruptError(f"{self._stream}: entry {entry.seq} does not write key {key!r} as it says")
        self._keys[key] = revision, entry.seq

    def _member(self, entry: Entry, tree: Tree, detail: Any) -> None:
        found = self._states.value_at(tree, ("members", detail.get("member")))
        if found is MISSING:
            raise CorruptError(f"{self._stream}: entry {entry.seq} is about a member that is not there")
        member = Member.from_value(found)
        if entry.kind is not Kind.LEDGER and member.status.value != detail.get("status"):
            raise CorruptError(f"{self._stream}: entry {entry.seq} gives its member another status than it says")
        self.members[member.id] = member

    def finish(self, tree: Tree) -> None:
        """Compare what all entries wrote with the newest state. Raises CorruptError."""
        for part, known in (("keys", self._keys), ("members", self.members)):
            found = self._states.value_at(tree, (part,))
            if found is MISSING or set(found) != set(known):
                raise CorruptError(f"{self._stream}: its {part} are not those that its entries made")


def check_memberships(tx: Reader, stream: StreamId, members: dict[str, Member], findings: Findings) -> None:
    """Compare a ledger's members with what their lineages say of themselves."""
    told = _told(tx, stream)
    for member in members.values():
        if member.lineage is None:
            continue
        lineage = StreamId(stream.namespace, StreamKind.LINEAGE, member.lineage)
        number = tx.stream(lineage)
        last = None if number is None else tx.last(number)
        acts = set() if number is None or last is None else _acts(tx, number, last, stream.name)
        heard = {(kind, revision) for kind, name, revision in told if name == member.lineage}
        for kind, revision in sorted(acts ^ heard):
            happened = (kind, revision) in acts
            findings.add(
                "broadcasts",
                f"{lineage}@{revision} was {kind}, which {stream} has not told its peers"
                if happened
                else f"{stream} tells that {lineage}@{revision} was {kind}, which is not there",
                "entries were removed: peers may rely on what is void; restore from a backup",
                lineage,
                (revision,),
            )
        if stream.name not in joined(last):
            findings.add(
                "membership",
                f"{stream}: lineage {member.lineage!r} is a member, but does not know it",
                "its compactions are not told to the ledger; the file was altered",
                stream,
            )


def _told(tx: Reader, stream: StreamId) -> set[tuple[str, str, int]]:
    """Return what a ledger has told of compactions and restores: what it was, of which lineage, its revision."""
    found = set()
    for entry in _chain(tx, tx.stream(stream), "term", "previousTerm"):
        event: Any = (entry.detail or {}).get("event", {})
        if event.get("kind") in EPOCH_EVENTS.values() and event.get("lineage") is not None:
            found.add((event["kind"], event["lineage"], event["revision"]))
    return found


def _acts(tx: Reader, number: int, last: Entry, ledger: str) -> set[tuple[str, int]]:
    """Return the compactions and restores of a lineage while it belonged to a ledger."""
    entries = _chain(tx, number, "epoch", "previousEpoch") if last.epoch else ()
    return {(EPOCH_EVENTS[one.kind], one.revision) for one in entries if one.kind in EPOCHS and ledger in joined(one)}


def _chain(tx: Reader, number: int | None, newest: str, before: str) -> Iterator[Entry]:
    """Follow a chain through a stream's entries, newest first, as far as it falls; where it is broken, others say."""
    entry = None if number is None else tx.last(number)
    seq = 0 if entry is None else getattr(entry, newest)
    top = seq + 1
    while number is not None and 0 < seq < top:
        entry = tx.entry(number, seq)
        if entry is None:
            return
        yield entry
        top, seq = seq, (entry.detail or {}).get(before, 0)
