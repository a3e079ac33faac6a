"""A shared ledger: join it, look at it, follow a key through its history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from cpstore.errors import CorruptError, InvalidStateError, NotFoundError
from cpstore.ledger.desk import Desk, LineageHandle, Read
from cpstore.ledger.peer import Peer
from cpstore.model.entry import Kind, StreamId, StreamKind
from cpstore.model.ledger import member_id
from cpstore.model.names import check_count, check_name
from cpstore.rules import ledger as rules
from cpstore.streams import look
from cpstore.streams.act import Plan, Step, carry_out
from cpstore.streams.board import Board, joined, lock_of
from cpstore.streams.opened import OpenStream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cpstore.journal import Journal, Reading
    from cpstore.model.ledger import Event, Member
    from cpstore.streams.opened import OpenStreams


@attrs.frozen
class KeyVersion:
    """One value that a key had: its revision, who gave it, and where. ``value`` is a fresh copy."""

    key: str
    revision: int
    digest: str
    position: int
    peer: str
    actor: str
    time: int
    value: Any = attrs.field(eq=False)


class SharedLedger:
    """Keyed values that several agents read and write, each with its own revision. Make it with ``Store.ledger``."""

    def __init__(self, journal: Journal, streams: OpenStreams, name: str, namespace: str) -> None:
        self._desk = Desk(journal, streams, name, namespace)

    def __repr__(self) -> str:
        return f"<SharedLedger {self.namespace}/{self.id}>"

    @property
    def id(self) -> str:
        """The ledger's name."""
        return self._desk.id

    @property
    def namespace(self) -> str:
        """The namespace it belongs to."""
        return self._desk.namespace

    @property
    def exists(self) -> bool:
        """Whether anybody has joined it."""
        with self._desk.looking() as reading:
            return reading.last(self._desk.opened.stream) is not None

    def join(self, name: str, *, lineage: LineageHandle | None = None) -> Peer:
        """Become a peer, or take a membership up again; the first peer makes the ledger.

        ``lineage`` is the handle of the lineage whose context this peer has, in the ledger's namespace: its compactions
        and restores make the peer read-only, and its locked definitions must agree with those of the others. What a
        membership has to read again is not cleared by leaving, another name or another process.

        Raises ConflictError if another peer has the name, SemanticDriftError, NotFoundError if the lineage has no
        checkpoint, InvalidStateError, BusyError, StorageError.
        """
        desk = self._desk
        if lineage is not None and not isinstance(lineage, LineageHandle):
            raise InvalidStateError(f"lineage is a handle of a lineage, not {type(lineage).__name__}")
        if lineage is not None and lineage.namespace != self.namespace:
            raise InvalidStateError(
                f"lineage {lineage.id!r} is in namespace {lineage.namespace!r}, the ledger in {self.namespace!r}"
            )
        found: list[Member] = []

        def decide(reading: Reading) -> Plan:
            board = Board(desk.opened, reading)
            other = None if lineage is None else _lineage(reading, lineage)
            known = board.member(member_id(check_name(name, "peer name"), lineage.id if lineage else None))
            after = rules.join(
                self.id,
                known,
                peer=name,
                lineage=None if lineage is None else lineage.id,
                lock=() if other is None else _lock(reading, other),
                compacted=other is not None and _compacted(reading, other),
                position=board.position,
                present=[member for member in board.members() if member.present],
            )
            found[:] = [after]
            steps = []
            if after != known:
                steps.append(board.member_step(after, "join", cursor=board.position + 1 if known is None else None))
            if other is not None and other.last is not None and self.id not in joined(other.last):
                steps.append(_joining(other, self.id, board.position + 1, name))
            return Plan(tuple(steps))

        with desk.opened.lock:
            carry_out(desk.journal, desk.opened, decide)
        desk.streams.used(desk.opened)
        return Peer(desk, found[0], lineage)

    def peers(self) -> list[Member]:
        """Return the memberships, those of peers that have left included, sorted by id."""
        with self._desk.opened.lock, self._desk.looking() as reading:
            return list(self._desk.board(reading).members())

    def keys(self) -> list[str]:
        """Return the keys, sorted."""
        with self._desk.opened.lock, self._desk.looking() as reading:
            return self._desk.board(reading).keys()

    def read(self, key: str) -> Read:
        """Look at a value without being a peer. Raises NotFoundError."""
        return self._desk.read(rules.check_key(key))

    def history(self, key: str) -> Iterator[KeyVersion]:
        """Yield the values that a key has had, newest first. Each names the one before it, in signed bytes.

        Raises NotFoundError, CorruptError.
        """
        return self._history(key, self._newest(rules.check_key(key)))

    def _history(self, key: str, seq: int) -> Iterator[KeyVersion]:
        while seq:
            with self._desk.looking() as reading:
                version, seq = self._version(reading, key, seq)
            yield version

    def events(self, *, after: int = 0) -> list[Event]:
        """Return what the ledger has told its peers since a position, oldest first."""
        check_count(after, "after", 0)
        return self._desk.events(after or 0)

    def _newest(self, key: str) -> int:
        with self._desk.opened.lock, self._desk.looking() as reading:
            held = self._desk.board(reading).held(key)
        if held is None:
            raise NotFoundError(f"ledger {self.id!r} has no key {key!r}")
        return held.seq

    def _version(self, reading: Reading, key: str, seq: int) -> tuple[KeyVersion, int]:
        found = reading.last(self._desk.opened.stream)
        if found is None:
            raise NotFoundError(f"ledger {self.id!r} does not exist any more")
        entry = reading.entry(found[0], seq)
        rows = [row for row in (entry.detail or {}).get("writes", []) if row[0] == key]
        if len(rows) != 1 or entry.kind is not Kind.LEDGER or rows[0][3] >= seq:
            raise CorruptError(f"{entry.stream}: entry {seq} is said to write key {key!r}, but does not; run verify")
        _, revision, named, before = rows[0]
        states = reading.states(self._desk.opened.stream)
        value = states.value_at(states.tree(seq), ("keys", key))["value"]
        peer = (entry.detail or {}).get("peer", "")
        return KeyVersion(key, revision, named, seq, peer, entry.actor, entry.time, value), before


def _lineage(reading: Reading, lineage: LineageHandle) -> OpenStream:
    opened = OpenStream(StreamId(lineage.namespace, StreamKind.LINEAGE, lineage.id))
    opened.refresh(reading)
    if opened.last is None:
        raise NotFoundError(f"lineage {lineage.id!r} has no checkpoint yet; commit to it first, then join")
    return opened


def _compacted(reading: Reading, opened: OpenStream) -> bool:
    if opened.number is None or opened.last is None:
        return False
    return any(entry.kind is Kind.COMPACTION for entry in look.epochs(reading, opened.number, opened.last))


def _lock(reading: Reading, opened: OpenStream) -> tuple[tuple[str, str], ...]:
    if opened.number is None or opened.last is None:
        return ()
    return lock_of(look.glossary_at(reading, opened.number, opened.last))


def _joining(opened: OpenStream, ledger: str, position: int, peer: str) -> Step:
    """Return the lineage's own entry about its membership; every later entry of it carries the ledgers on."""
    assert opened.last is not None  # noqa: S101
    last = opened.last
    detail = {"act": "join", "ledgers": {**joined(last), ledger: position}, "peer": peer}
    return Step(opened, Kind.PEER, lambda writer: writer.bare(), last.revision, last.step, detail)
