"""What a stream's bytes consist of: records, sealed segments, and where to get them."""

from __future__ import annotations

from hashlib import sha256
from typing import Protocol

import attrs
import msgspec

_pack = msgspec.msgpack.Encoder().encode

DELTA, BASE, BARE, ATTACHED = 0, 1, 2, 3
"""Kinds of record: changes since the record before; a whole tree; an entry that leaves the state alone; the same with
values of its own."""
OPENING = 4096
"""Bytes of changes that a load reads in the time that it takes to open one more segment, about."""


def segment_digest(first: int, count: int, base: int, parts: bytes, ops: bytes, items: bytes) -> bytes:
    """Return the leaf of a sealed segment: over its place, its content list and its two frames."""
    head = _pack((first, count, base, parts, len(ops), len(items)))
    whole = sha256(b"\x00cpstore/segment/v1\n" + head)
    whole.update(ops)
    whole.update(items)
    return whole.digest()


@attrs.frozen
class SegmentHead:
    """A sealed segment without its frames.

    It holds the records of the entries ``first`` to ``first + count - 1``. ``index`` is the number of segments
    before it, ``base`` the seq of the newest base in or before it, ``parts`` the packed list of the items inside
    (lid, number of the first, count, bytes), ``digest`` the leaf of the stream's Merkle tree, ``frontier`` that
    tree's packed frontier with this segment included.
    """

    first: int
    count: int
    index: int
    base: int
    parts: bytes
    digest: bytes
    frontier: bytes

    @property
    def end(self) -> int:
        """The seq after its last record."""
        return self.first + self.count


@attrs.frozen
class Segment:
    """A sealed segment with its two zstd frames."""

    head: SegmentHead
    ops: bytes
    items: bytes

    def recompute(self) -> bytes:
        """Return the digest that its stored bytes have."""
        head = self.head
        return segment_digest(head.first, head.count, head.base, head.parts, self.ops, self.items)


@attrs.frozen
class Record:
    """What one entry adds: changes (an encoded list) or a base, as ``kind`` says."""

    seq: int
    kind: int
    payload: msgspec.Raw | bytes


class Strand(Protocol):
    """Where a stream's bytes come from. Nothing of it is trusted before it was compared with a digest."""

    def tail(self) -> list[tuple[int, bytes]]:
        """Return (seq, block) of the open segment, in order."""
        ...

    def last_segment(self) -> SegmentHead | None:
        """Return the newest sealed segment."""
        ...

    def segments(self, since: int) -> list[SegmentHead]:
        """Return the sealed segments that hold entries from ``since`` on, in order."""
        ...

    def segment(self, first: int) -> Segment | None:
        """Return the sealed segment that begins with an entry."""
        ...
