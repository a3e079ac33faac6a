"""Where a process keeps a ledger, and how its peers read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import attrs

from cpstore.errors import CorruptError, NotFoundError
from cpstore.journal import Reading
from cpstore.model.ledger import Event, Seen
from cpstore.model.names import check_name
from cpstore.streams.board import Board
from cpstore.streams.telling import ledger_stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cpstore.journal import Journal
    from cpstore.model.entry import Entry
    from cpstore.model.ledger import Held
    from cpstore.streams.opened import OpenStreams


@runtime_checkable
class LineageHandle(Protocol):
    """What a membership needs of a lineage: its names, and how far its handle has looked."""

    @property
    def id(self) -> str:
        """The lineage's name."""
        ...

    @property
    def namespace(self) -> str:
        """Its namespace."""
        ...

    @property
    def seen(self) -> int | None:
        """The newest revision that the handle has looked at or made, None if it has not looked."""
        ...


@attrs.frozen
class Read:
    """A value as it was read: what a write cites. ``value`` is a copy of its own.

    ``revision`` counts the key's values from 1, ``digest`` is the value's SHA-256 in hex, ``position`` the ledger's
    newest entry at that moment.
    """

    ledger: str
    key: str
    revision: int
    digest: str
    position: int
    value: Any = attrs.field(eq=False)

    @property
    def seen(self) -> Seen:
        """The citation alone."""
        return Seen(self.ledger, self.key, self.revision, self.digest, self.position)

    @classmethod
    def of(cls, board: Board, key: str, held: Held, value: Any) -> Read:
        """Return what a board has under a key."""
        return cls(board.name, key, held.revision, held.digest, board.position, value)


class Desk:
    """One ledger in one process."""

    def __init__(self, journal: Journal, streams: OpenStreams, name: str, namespace: str) -> None:
        self.id = check_name(name, "ledger")
        self.namespace = check_name(namespace, "namespace")
        self.journal = journal
        self.streams = streams
        self.opened = streams.get(ledger_stream(self.namespace, self.id))

    def looking(self) -> Reading:
        """Open a read transaction, begun when it is first asked."""
        return Reading(self.journal, self.namespace)

    def board(self, reading: Reading) -> Board:
        """Return the ledger as it is now. The caller holds ``opened.lock``."""
        self.opened.refresh(reading)
        return Board(self.opened, reading)

    def read(self, key: str) -> Read:
        """Return what the ledger has under a key. Raises NotFoundError."""
        with self.opened.lock, self.looking() as reading:
            board = self.board(reading)
            found = board.value(key)
            if found is None:
                raise NotFoundError(f"ledger {self.id!r} has no key {key!r}")
            return Read.of(board, key, *found)

    def events(self, after: int) -> list[Event]:
        """Return what the ledger has told its peers since position ``after``, oldest first."""
        with self.looking() as reading:
            return self.told(reading, after)

    def told(self, reading: Reading, after: int) -> list[Event]:
        """Return what the ledger has told its peers since position ``after``, oldest first."""
        return list(self._told(reading, after))[::-1]

    def told_since(self, reading: Reading, after: int) -> bool:
        """Whether there is anything that was told since position ``after``."""
        found = reading.last(self.opened.stream)
        return found is not None and found[1].term > after

    def _told(self, reading: Reading, after: int) -> Iterator[Event]:
        """Yield the broadcasts since ``after``, newest first: each names the one before it, in signed bytes."""
        found = reading.last(self.opened.stream)
        if found is None:
            return
        number, entry = found
        seq = entry.term
        while seq > after:
            told = entry if entry.seq == seq else reading.entry(number, seq)
            yield _event(self.id, told)
            before = (told.detail or {}).get("previousTerm", 0)
            if type(before) is not int or before >= seq:
                raise CorruptError(f"{told.stream}: entry {seq} names a later broadcast as the one before; run verify")
            seq = before


def _event(ledger: str, entry: Entry) -> Event:
    said = (entry.detail or {}).get("event")
    if not isinstance(said, dict):
        raise CorruptError(f"{entry.stream}: entry {entry.seq} is said to be a broadcast, but is not; run verify")
    return Event.from_value({"ledger": ledger, "position": entry.seq, "time": entry.time, **said})
