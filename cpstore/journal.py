"""The journal: entries signed and chained, and the log over all of them. One place for every kind of stream."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import attrs

from cpstore.digest import Frontier, digest, leaf_hash
from cpstore.errors import CorruptError, HostLimitError, NotFoundError, SignatureError
from cpstore.model.entry import Entry, Kind, StreamId, StreamKind, link_of
from cpstore.signing.envelope import leaf_data, pae
from cpstore.signing.note import sign_head
from cpstore.snapshot.packs import packs
from cpstore.snapshot.source import Source
from cpstore.snapshot.state import States
from cpstore.snapshot.values import NO_ROOM

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from cpstore.backends.port import Backend, Position, Reader, Writer
    from cpstore.signing.keyring import Keyring
    from cpstore.signing.keys import Signer
    from cpstore.snapshot.records import Segment, SegmentHead
    from cpstore.snapshot.writer import Addition

PROVEN = 4096
"""Signatures that a process remembers as checked, by the hash of key, signature and signed bytes."""
SOURCES = 16
"""Streams whose authenticated outline (segment digests, open segment) is kept between two readings."""
NOTE_EVERY = 1000
"""Entries after which the log's head is signed anew."""


@attrs.frozen
class Signed:
    """An entry that was just signed, and the very bytes: what follows needs them without spelling them again."""

    entry: Entry
    signed: bytes

    @property
    def name(self) -> bytes:
        """The entry digest: its name outside the store."""
        return digest(self.signed)

    @property
    def leaf(self) -> bytes:
        """The entry's leaf hash in the log."""
        return leaf_hash(leaf_data(self.signed, self.entry.signature, self.entry.writer))


class Journal:
    """Signs entries, appends them, and verifies those that are read."""

    def __init__(
        self, backend: Backend, signer: Signer | None, keyring: Keyring, clock: Callable[[], int], actor: str
    ) -> None:
        self.backend = backend
        self.keyring = keyring
        self.clock = clock
        self.actor = actor
        self._signer = signer
        self._proven: set[bytes] = set()
        self._sources: OrderedDict[StreamId, tuple[bytes, Source]] = OrderedDict()
        self._lending = threading.Lock()
        with backend.read() as tx:
            self.origin = tx.facts().origin

    # --- writing ---------------------------------------------------------------------------------------------

    def sign(
        self,
        stream: StreamId,
        last: Entry | None,
        kind: Kind,
        addition: Addition,
        *,
        revision: int,
        step: int,
        term: int,
        epoch: int = 0,
        detail: Mapping[str, Any] | None = None,
    ) -> Signed:
        """Return the signed entry that follows ``last``."""
        if self._signer is None:
            raise SignatureError("this store was opened without a key to sign with; open it with signer=")
        prev, time = link_of(last), self.clock()
        entry = Entry(
            stream=stream,
            seq=addition.seq,
            kind=kind,
            revision=revision,
            step=step,
            time=time,
            actor=self.actor,
            writer=self._signer.writer,
            term=term,
            state=addition.state,
            packs=packs(prev, time, addition.segments, addition.blocks),
            detail=detail,
            epoch=epoch,
        )
        signed = pae(entry.body(self.origin, prev))
        made = entry.signed(self._signer.sign(signed))
        self._remember(digest(made.writer + made.signature + signed))
        return Signed(made, signed)

    def log(self, position: Position) -> Frontier:
        """Return the log as it stands, for the entries that one transaction appends. Raises CorruptError."""
        return _frontier(position.size, position.frontier)

    def append(self, tx: Writer, number: int, made: Signed, addition: Addition, log: Frontier) -> Entry:
        """Write an entry with all it adds, and its leaf to ``log``, which the caller writes back when all are there.

        The caller has compared the stream's position with what the entry follows.
        """
        if log.size and log.size % NOTE_EVERY == 0 and self.backend.durable:
            self._note(tx, log)
        entry = made.entry.at_leaf(log.size)
        log.append(made.leaf)
        tx.add_entry(number, entry)
        for content, frame in addition.blobs.items():
            if not tx.add_blob(entry.stream.namespace, content, frame) and tx.blob(
                entry.stream.namespace, content
            ) not in (frame, None):
                raise CorruptError("the same value was shared just now with other bytes; repeat the call")
        if addition.segment is not None:
            tx.add_segment(number, addition.segment)
        elif addition.block is not None:
            tx.add_block(number, entry.seq, addition.block)
        return entry

    def note(self) -> bytes | None:
        """Sign the head of the log as it is now, and keep the note. None where there is nothing to sign."""
        if self._signer is None:
            return None
        with self.backend.read() as tx:
            size, _ = tx.log()
            newest = tx.last_note()
        if not size or (newest is not None and newest[0] >= size):
            return None if newest is None else newest[1]
        with self.backend.write(durable=True) as writer:
            return self._note(writer, _frontier(*writer.log()))

    def _note(self, tx: Writer, frontier: Frontier) -> bytes | None:
        newest = tx.last_note()
        if self._signer is None or (newest is not None and newest[0] >= frontier.size):
            return None
        text = sign_head(self._signer, self.origin, frontier.size, frontier.root())
        tx.add_note(frontier.size, text)
        return text

    # --- reading ---------------------------------------------------------------------------------------------

    def digest(self, entry: Entry, prev: bytes) -> bytes:
        """Return the SHA-256 of the bytes that an entry signs: its name outside the store."""
        return digest(pae(entry.body(self.origin, prev)))

    def leaf(self, entry: Entry, prev: bytes) -> bytes:
        """Return the entry's leaf hash in the log."""
        return leaf_hash(leaf_data(pae(entry.body(self.origin, prev)), entry.signature, entry.writer))

    def verify(self, entry: Entry, before: Entry | None, *, anew: bool = False) -> None:
        """Check one entry's signature and its link. Raises SignatureError.

        What was signed here or found good is remembered: the same signature of the same bytes by the same key is good
        again, unless all is to be looked at ``anew``.
        """
        signed = pae(entry.body(self.origin, link_of(before)))
        proven = digest(entry.writer + entry.signature + signed)
        if anew or proven not in self._proven:
            what = f"entry {entry.seq} of {entry.stream}"
            self.keyring.verify(entry.writer, entry.signature, signed, what)
            self._remember(proven)

    def _remember(self, proven: bytes) -> None:
        if len(self._proven) >= PROVEN:
            self._proven.clear()
        self._proven.add(proven)

    def borrow(self, entry: Entry) -> Source | None:
        """Return the outline that was authenticated by this very entry, for one reader at a time."""
        with self._lending:
            signature, source = self._sources.pop(entry.stream, (b"", None))
        return source if signature == entry.signature else None

    def give_back(self, entry: Entry, source: Source) -> None:
        """Keep what is known of a stream as of its newest entry; the one not used for longest gives way."""
        source.rest()
        with self._lending:
            self._sources[entry.stream] = (entry.signature, source)
            if len(self._sources) > SOURCES:
                self._sources.popitem(last=False)


class Reading:
    """One read transaction over verified entries and authenticated bytes. Opened when first asked, then closed.

    ``tx`` lends it one that is open already. ``anew``: nothing that is known from before counts.
    """

    def __init__(self, journal: Journal, namespace: str, tx: Reader | None = None, *, anew: bool = False) -> None:
        self.journal = journal
        self.namespace = namespace
        self._manager: Any = None
        self._tx = tx
        self._anew = anew
        self.lent = tx is not None
        self._heads: dict[StreamId, tuple[int, Entry]] = {}
        self._sources: dict[StreamId, Source] = {}

    def __enter__(self) -> Reading:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._anew:
            for stream, source in self._sources.items():
                self.journal.give_back(self._heads[stream][1], source)
        self._heads, self._sources = {}, {}
        self._tx = None
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.__exit__(kind, error, trace)
        if isinstance(error, RecursionError):  # nested values are followed in many places; all of them end here
            raise HostLimitError(NO_ROOM) from error

    def close(self) -> None:
        """End the transaction now: a thread has one at a time, and a write is to follow."""
        self.__exit__(None, None, None)

    @property
    def tx(self) -> Reader:
        """The transaction, begun now if it was not."""
        if self._tx is None:
            self._manager = self.journal.backend.read()
            self._tx = self._manager.__enter__()
        return self._tx

    def entry(self, number: int, seq: int) -> Entry:
        """Return an entry whose signature was checked. Raises CorruptError, SignatureError."""
        entry = self.tx.entry(number, seq)
        if entry is None:
            raise CorruptError(f"entry {seq} is missing from its stream; run verify")
        return self.checked(number, entry)

    def checked(self, number: int, entry: Entry) -> Entry:
        """Check an entry's signature against the entry before it."""
        before = self.tx.entry(number, entry.seq - 1) if entry.seq > 1 else None
        if entry.seq > 1 and before is None:
            raise CorruptError(f"{entry.stream}: entry {entry.seq - 1} is missing; run verify")
        self.journal.verify(entry, before)
        return entry

    def last(self, stream: StreamId) -> tuple[int, Entry] | None:
        """Return number and newest entry of a stream, verified once; None if there is no such stream."""
        if stream not in self._heads:
            number = self.tx.stream(stream)
            entry = None if number is None else self.tx.last(number)
            if number is None:
                return None
            if entry is None:
                raise CorruptError(f"{stream}: the stream has no entries; run verify")
            if entry.stream != stream:
                raise CorruptError(f"{stream}: the index of names leads to the entries of {entry.stream}; run verify")
            if self.tx.end(number) != entry.seq:
                raise CorruptError(
                    f"{stream}: entry {entry.seq} is the last one found, but bytes are stored up to entry "
                    f"{self.tx.end(number)}; run verify"
                )
            self._heads[stream] = number, self.checked(number, entry)
        return self._heads[stream]

    def source(self, stream: StreamId) -> Source:
        """Return the authenticated bytes of a stream. Raises NotFoundError, CorruptError, SignatureError."""
        if stream not in self._sources:
            found = self.last(stream)
            if found is None:
                raise NotFoundError(f"{stream} does not exist")
            number, entry = found
            known = None if self._anew else self.journal.borrow(entry)
            if known is not None:
                known.resume(_Strand(self.tx, number))
                self._sources[stream] = known
                return known
            source = Source(_Strand(self.tx, number), str(stream))
            before = self.tx.entry(number, entry.seq - 1) if entry.seq > 1 else None
            source.authenticate(entry.packs, link_of(before), entry.time)
            if source.end != entry.seq + 1:
                raise CorruptError(f"{stream}: bytes for {source.end - 1} entries, but {entry.seq} entries; run verify")
            self._sources[stream] = source
        return self._sources[stream]

    def states(self, stream: StreamId) -> States:
        """Return what reads the states of a lineage."""
        return States(self.source(stream), self._foreign, self.blob)

    def blob(self, content: bytes) -> bytes | None:
        """Return the stored frame of a shared value."""
        return self.tx.blob(self.namespace, content)

    def _foreign(self, name: str, incarnation: int) -> Source:
        return self.source(StreamId(self.namespace, StreamKind.LINEAGE, name, incarnation))


class _Strand:
    """A stream's bytes in a read transaction."""

    def __init__(self, tx: Reader, number: int) -> None:
        self._tx = tx
        self._number = number

    def tail(self) -> list[tuple[int, bytes]]:
        return self._tx.tail(self._number)

    def last_segment(self) -> SegmentHead | None:
        return self._tx.last_segment(self._number)

    def segments(self, since: int) -> list[SegmentHead]:
        return self._tx.segments(self._number, since)

    def segment(self, first: int) -> Segment | None:
        return self._tx.segment(self._number, first)


def _frontier(size: int, packed: bytes) -> Frontier:
    try:
        return Frontier.unpack(size, packed)
    except ValueError as error:
        raise CorruptError(f"the log's Merkle frontier is broken: {error}; run verify") from error
