"""What the store asks of a database. A backend keeps and finds; it decides nothing.

A read transaction has no method that writes: read-only is a type. All methods of one transaction see one
snapshot. Streams are addressed by the number that the database gave them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from cpstore.model.entry import Entry, StreamId, StreamKind
    from cpstore.snapshot.records import Segment, SegmentHead


@attrs.frozen
class StoreFacts:
    """What the database says about itself: its signed name, its format, the zero of its stored times (µs UTC)."""

    origin: str
    format: int
    epoch: int


@attrs.frozen
class Position:
    """Where a stream and the log stand: what a write compares with what it was prepared against.

    ``seq`` is 0 and ``signature`` empty for a stream without entries. ``size`` and ``frontier`` are the log's
    number of leaves and its packed Merkle frontier.
    """

    seq: int
    signature: bytes
    size: int
    frontier: bytes


@attrs.frozen
class Kin:
    """Where a forked lineage comes from: numbers of its parent's and its family's first stream; ``leaf`` is the place
    of the fork's first entry in the log.
    """

    parent: int
    root: int
    leaf: int


@attrs.frozen
class EffectRow:
    """An effect in the index. ``stream`` and ``seq`` are those of the newest entry about it; ``kind`` is the class by
    which a restore judges it, ``policy`` its place in the order of policies.
    """

    identity: bytes
    root: int
    name: str
    policy: int
    kind: int
    settled: bool
    stream: int
    seq: int
    keyed: bool = True


class Reader(Protocol):
    """One read transaction."""

    def facts(self) -> StoreFacts:
        """Return what the database says about itself."""
        ...

    def stream(self, stream: StreamId) -> int | None:
        """Return the number of a stream, None if there is no such stream."""
        ...

    def name(self, stream: int) -> StreamId:
        """Return the name of a stream by its number. Raises CorruptError if there is none."""
        ...

    def streams(self, kind: StreamKind, namespace: str | None = None) -> Iterator[tuple[int, StreamId]]:
        """Yield number and name of the streams of a kind, by namespace and name."""
        ...

    def last(self, stream: int) -> Entry | None:
        """Return the newest entry of a stream."""
        ...

    def some_entry(self, at: int, of: int) -> tuple[int, Entry] | None:
        """Return an entry from about ``at / of`` of the way through the store (0: the first, ``of``: the last one) with
        the number of its stream; None if the store has no entries.
        """
        ...

    def entry(self, stream: int, seq: int) -> Entry | None:
        """Return one entry."""
        ...

    def entries(self, stream: int, first: int, last: int, *, newest_first: bool = False) -> Iterator[Entry]:
        """Yield the entries with first <= seq <= last, lazily, a page of rows at a time."""
        ...

    def revision(self, stream: int, revision: int) -> Entry | None:
        """Return the entry that made a revision, in O(log n) look-ups by primary key."""
        ...

    def segments(self, stream: int, since: int = 0) -> list[SegmentHead]:
        """Return the sealed segments that end at or after the seq ``since``, oldest first, without frames."""
        ...

    def end(self, stream: int) -> int:
        """Return the seq of the last entry that bytes are stored for, sealed or not; 0 if there are none."""
        ...

    def last_segment(self, stream: int) -> SegmentHead | None:
        """Return the newest sealed segment, without frames."""
        ...

    def segment(self, stream: int, first: int) -> Segment | None:
        """Return the sealed segment that begins with an entry."""
        ...

    def tail(self, stream: int) -> list[tuple[int, bytes]]:
        """Return (seq, block) of all entries that are not in a sealed segment, in order."""
        ...

    def blobs(self, namespace: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield (content digest, frame) of all shared values of a namespace."""
        ...

    def keys(self, stream: int) -> Iterator[tuple[str, int]]:
        """Yield (idempotency key, seq) of a stream."""
        ...

    def strays(self, streams: set[int]) -> Iterator[str]:
        """Describe stored bytes that belong to no entry of the given streams."""
        ...

    def schema(self) -> list[str]:
        """Say which tables, indexes or triggers are not as this release makes them, one text each; empty if none."""
        ...

    def integrity(self) -> list[str]:
        """Return what the database engine itself finds wrong, empty if nothing."""
        ...

    def blob(self, namespace: str, content: bytes) -> bytes | None:
        """Return the frame stored for a content digest."""
        ...

    def landed(self, stream: int, key: str) -> int | None:
        """Return the seq of the entry that was written under an idempotency key."""
        ...

    # --- families and effects: projections, which verify compares with the entries

    def kin(self, stream: int) -> Kin | None:
        """Return where a lineage was forked from, None for the first one of a family."""
        ...

    def kins(self) -> Iterator[tuple[int, Kin]]:
        """Yield stream number and origin of all forks."""
        ...

    def family(self, root: int) -> list[int]:
        """Return the streams of a family, its first one in front."""
        ...

    def descendants(self, stream: int, since: int, upto: int) -> list[int]:
        """Return the forks of a lineage made at ``since < leaf <= upto`` in the log, and all forks of theirs."""
        ...

    def effect(self, identity: bytes) -> EffectRow | None:
        """Return an effect by its identity (32 bytes)."""
        ...

    def number_of_effect(self, identity: bytes) -> int:
        """Return where an effect stands in the order of first mention; 0 for none."""
        ...

    def effects(self, root: int, name: str | None, *, unsettled: bool, after: int, limit: int) -> list[EffectRow]:
        """Return a page of a family's effects in the order of their first mention, from the number ``after`` on."""
        ...

    def first_policy(self, root: int, name: str) -> int | None:
        """Return the policy of the first effect of a name in a family."""
        ...

    def crossed(self, stream: int, since: int, upto: int) -> dict[int, int]:
        """Count a stream's effects by class: those with entries after ``since`` that began at ``upto`` or before."""
        ...

    def traced(
        self,
        stream: int,
        since: int,
        upto: int,
        *,
        classes: tuple[int, ...],
        name: str | None,
        limit: int,
        keyed: bool = True,
    ) -> list[EffectRow]:
        """Return the first effects that ``crossed`` counts, of some classes and perhaps of one name.

        ``keyed=False`` leaves out those that the caller gave a key.
        """
        ...

    def unsettled(self, root: int, stream: int, since: int) -> list[EffectRow]:
        """Return a family's unsettled effects, neither read-only nor idempotent, with entries in a stream since."""
        ...

    def all_effects(self) -> Iterator[tuple[EffectRow, list[tuple[int, int, int]]]]:
        """Yield every effect with (stream, first seq, last seq) of its entries."""
        ...

    def cursor(self, ledger: int, member: str) -> int:
        """Return how far a member has acknowledged what a ledger tells; 0 if that is not known."""
        ...

    def log(self) -> tuple[int, bytes]:
        """Return the log's number of leaves and its packed Merkle frontier."""
        ...

    def leaves(self) -> Iterator[tuple[int, Entry]]:
        """Yield (stream number, entry) of the whole store in the order of the log."""
        ...

    def notes(self) -> Iterator[tuple[int, bytes]]:
        """Yield (size, text) of the stored head notes, smallest first."""
        ...

    def last_note(self) -> tuple[int, bytes] | None:
        """Return size and text of the newest head note."""
        ...


class Writer(Reader, Protocol):
    """One write transaction: everything in it is committed, or nothing."""

    def position(self, stream: int | None) -> Position:
        """Return where a stream and the log stand, in one statement. None: a stream that does not exist yet."""
        ...

    def add_stream(self, stream: StreamId) -> int:
        """Name a new stream; returns its number."""
        ...

    def add_entry(self, stream: int, entry: Entry) -> None:
        """Append an entry, its place in the log included."""
        ...

    def add_block(self, stream: int, seq: int, block: bytes) -> None:
        """Append an entry's block to the tail."""
        ...

    def add_segment(self, stream: int, segment: Segment) -> None:
        """Store a sealed segment and drop the blocks of the tail that it covers."""
        ...

    def add_blob(self, namespace: str, content: bytes, frame: bytes) -> bool:
        """Store a frame under its content digest; False if that content is there already (the frame is kept)."""
        ...

    def add_key(self, stream: int, key: str, seq: int) -> None:
        """File an entry under its idempotency key."""
        ...

    def set_cursor(self, ledger: int, member: str, position: int) -> None:
        """Note how far a member has acknowledged what a ledger tells."""
        ...

    def add_kin(self, stream: int, kin: Kin) -> None:
        """File a fork."""
        ...

    def put_effect(self, row: EffectRow, known: EffectRow | None) -> None:
        """File the newest entry about an effect; ``known`` is how it was filed before, None if this is the first."""
        ...

    def set_log(self, size: int, frontier: bytes) -> None:
        """Replace the log's size and frontier."""
        ...

    def add_note(self, size: int, text: bytes) -> None:
        """Keep a head note."""
        ...


class Backend(Protocol):
    """A database that holds one store."""

    @property
    def target(self) -> str:
        """The path or address, for messages."""
        ...

    @property
    def durable(self) -> bool:
        """Whether every transaction survives power loss once it has ended."""
        ...

    @property
    def engine(self) -> str:
        """The database engine's version, and whether it is sound."""
        ...

    def changes(self) -> int:
        """Return a number that changes when somebody else commits; cheap enough to be asked all the time."""
        ...

    def stats(self) -> dict[str, int]:
        """Return bytes and counts by what they are for."""
        ...

    def read(self) -> AbstractContextManager[Reader]:
        """Open a read transaction."""
        ...

    def write(self, timeout: float | None = None, *, durable: bool = False) -> AbstractContextManager[Writer]:
        """Open a write transaction, committed when the block ends normally, rolled back otherwise.

        ``durable``: when it has ended, it and all before it survive power loss, whatever the store's durability.

        ``timeout`` is in seconds; None waits as long as the backend was opened with. Raises BusyError, with the
        holder's name where it is known, StorageError, SchemaTooNewError.
        """
        ...

    def close(self) -> None:
        """Let go of the database. A backend that is closed stays closed."""
        ...
