"""A stream's bytes in memory, and a lineage in miniature that writes to it: the snapshot layer without a database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cpstore.snapshot.packs import packs
from cpstore.snapshot.source import Source
from cpstore.snapshot.state import States
from cpstore.snapshot.writer import SnapshotWriter

if TYPE_CHECKING:
    from cpstore.snapshot.records import Segment, SegmentHead
    from cpstore.snapshot.writer import Addition


class MemoryStrand:
    def __init__(self) -> None:
        self.blocks: dict[int, bytes] = {}
        self.sealed: dict[int, Segment] = {}

    def tail(self) -> list[tuple[int, bytes]]:
        return sorted(self.blocks.items())

    def last_segment(self) -> SegmentHead | None:
        return self.sealed[max(self.sealed)].head if self.sealed else None

    def segments(self, since: int) -> list[SegmentHead]:
        return [s.head for _, s in sorted(self.sealed.items()) if s.head.end > since]

    def segment(self, first: int) -> Segment | None:
        return self.sealed.get(first)


class MiniLineage:
    """Commits and loads, signing nothing: ``packs`` of the last entry stands in for the signature."""

    def __init__(
        self, name: str, shared: dict[bytes, bytes] | None = None, streams: dict[str, Any] | None = None
    ) -> None:
        self.name = name
        self.strand = MemoryStrand()
        self.shared = {} if shared is None else shared
        self.streams = {} if streams is None else streams
        self.streams[name] = self
        self.signed = b""
        self.roots: list[bytes] = []
        self.writer: SnapshotWriter | None = None

    @property
    def seq(self) -> int:
        return len(self.roots)

    def source(self) -> Source:
        source = Source(self.strand, self.name)
        source.authenticate(self.signed or packs(bytes(32), 0, source_root(self.strand), empty()), bytes(32), self.seq)
        return source

    def states(self) -> States:
        others: dict[str, Source] = {}

        def foreign(name: str, _: int) -> Source:
            if name not in others:
                others[name] = self.streams[name].source()
            return others[name]

        own = self.source() if self.roots else Source(self.strand, self.name)
        return States(own, foreign, self.shared.get)

    def _writer(self) -> SnapshotWriter:
        if self.writer is None:
            if self.seq:
                self.writer = SnapshotWriter.reopen(self.seq, self.states, self.shared.get)
            else:
                self.writer = SnapshotWriter.start(self.states, self.shared.get)
        return self.writer

    def land(self, addition: Addition) -> None:
        assert addition.seq == self.seq + 1
        self.shared.update(addition.blobs)
        if addition.segment is not None:
            head = addition.segment.head
            self.strand.sealed[head.first] = addition.segment
            for seq in range(head.first, head.end):
                self.strand.blocks.pop(seq, None)
        else:
            assert addition.block is not None
            self.strand.blocks[addition.seq] = addition.block
        self.roots.append(addition.state)
        self.signed = packs(bytes(32), self.seq, addition.segments, addition.blocks)

    def commit(self, state: dict[str, Any]) -> None:
        self.land(self._writer().state(state, 1 << 30))

    def edit(self, *changes: Any) -> None:
        self.land(self._writer().changes(changes))

    def load(self, seq: int | None = None) -> dict[str, Any]:
        states = self.states()
        return states.value(states.tree(self.seq if seq is None else seq))

    def forget_writer(self) -> None:
        self.writer = None


def source_root(strand: MemoryStrand) -> bytes:
    from cpstore.snapshot.packs import segments_root

    return segments_root(strand.last_segment())


def empty() -> bytes:
    from cpstore.snapshot.packs import NO_BLOCKS

    return NO_BLOCKS
