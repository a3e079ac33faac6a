"""The bytes of one stream, read only after they were compared with what was signed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from cpstore.errors import CorruptError
from cpstore.snapshot.frames import decompress, decompress_tail
from cpstore.snapshot.packs import BlocksDigest, packs, segments_frontier, segments_root
from cpstore.snapshot.plain import ROOM, Items, Part, Places, Recent
from cpstore.snapshot.records import BASE, Record, segment_digest
from cpstore.snapshot.values import array_header, split_array

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cpstore.digest import Frontier
    from cpstore.snapshot.records import Segment, SegmentHead, Strand


_parts = msgspec.msgpack.Decoder(list[Part]).decode
_sealed = msgspec.msgpack.Decoder(list[tuple[int, msgspec.Raw]]).decode
_open = msgspec.msgpack.Decoder(list[tuple[int, msgspec.Raw, list[tuple[int, int, list[msgspec.Raw]]]]]).decode


class Source:
    """One stream's records and items. ``where`` names the stream in errors.

    Nothing is decompressed before ``authenticate`` has succeeded.
    """

    def __init__(self, strand: Strand, where: str) -> None:
        self.where = where
        self.last = strand.last_segment()
        self.blocks = strand.tail()
        self._strand = strand
        self._trusted = False
        self._heads: list[SegmentHead] = []
        self._read: tuple[int, Segment] | None = None
        self._unsealed: tuple[int, list[Record]] = (0, [])
        self._plain = Recent()
        self._places = Places()
        self._placed = self.open_first
        self._records: list[Record] | None = None
        self._tail_logs: list[dict[int, tuple[int, list[bytes]]]] = []
        self._tail_items: dict[int, tuple[int, list[bytes]]] = {}
        start = self.open_first
        if [seq for seq, _ in self.blocks] != list(range(start, start + len(self.blocks))):
            raise CorruptError(f"{where}: the open segment does not follow the sealed ones, or has a gap")

    @property
    def open_first(self) -> int:
        """The seq of the first record that is not sealed."""
        return 1 if self.last is None else self.last.end

    @property
    def end(self) -> int:
        """The seq after the last record."""
        return self.open_first + len(self.blocks)

    def authenticate(self, signed: bytes, prev: bytes, time: int) -> None:
        """Compare all stored bytes with the ``packs`` of the stream's newest, verified entry. Raises CorruptError."""
        blocks = BlocksDigest(block for _, block in self.blocks).digest()
        if packs(prev, time, segments_root(self.last), blocks) != signed:
            raise CorruptError(
                f"{self.where}: the stored bytes are not those that were signed; run verify to see which revisions"
            )
        self._trusted = True

    # --- records ---------------------------------------------------------------------------------------------

    def records(self, first: int, last: int) -> list[Record]:
        """Return the records of the entries ``first`` to ``last``."""
        found: list[Record] = []
        if first < self.open_first:
            for head in self.heads(first, last + 1):
                found += [record for record in self._ops(head) if first <= record.seq <= last]
        if last >= self.open_first:
            found += [record for record in self._opened() if first <= record.seq <= last]
        if len(found) != last - first + 1:
            raise CorruptError(f"{self.where}: entries {first} to {last} have {len(found)} records")
        return found

    def base(self, seq: int) -> int:
        """Return the seq of the newest base at or before ``seq``."""
        for record in reversed(self._opened() if seq >= self.open_first else []):
            if record.seq <= seq and record.kind == BASE:
                return record.seq
        hint = self.last.base if self.last is not None else 0
        while hint > seq:
            head = self._head_of(seq)
            bases = [record.seq for record in self._ops(head) if record.seq <= seq and record.kind == BASE]
            if bases:
                return bases[-1]
            before = self.heads(head.first - 1, head.first) if head.first > 1 else []
            hint, seq = (before[0].base, before[0].end - 1) if before else (0, 0)
        if hint < 1:
            raise CorruptError(f"{self.where}: no base is stored for entry {seq}")
        return hint

    # --- items -----------------------------------------------------------------------------------------------

    def chunks(self, lid: int, start: int, count: int, hint: int) -> Iterator[bytes]:
        """Yield ``count`` items of a log from number ``start`` as encoded lists, a segment at a time, in order."""
        want, end = start, start + count
        if hint < self.open_first:
            self._place(hint)
            for part, head in self._places.since(lid, want):
                if want == end or not part.first <= want < part.first + part.count:
                    break
                take = min(end, part.first + part.count)
                yield self._cut(head, lid, want - part.first, take - part.first)
                want = take
        if want < end:
            self._opened()
        if want < end and lid in self._tail_items:
            first, items = self._tail_items[lid]
            if first <= want and end <= first + len(items):
                yield array_header(end - want) + b"".join(items[want - first : end - first])
                want = end
        if want != end:
            raise CorruptError(f"{self.where}: items {want} to {end - 1} of list {lid} are not stored")

    def logged(self, first: int, last: int) -> dict[int, tuple[int, list[bytes]]]:
        """Return the items that the entries of the segments touching ``first`` to ``last`` logged, by log."""
        logged: dict[int, tuple[int, list[bytes]]] = {}
        if first < self.open_first:
            for head in self.heads(first, last + 1):
                for lid, items in self._items(head).items():
                    _join(logged, lid, items.part.first, _split(items))
        if last >= self.open_first:
            self._opened()
            for lid, (number, encs) in self._tail_items.items():
                _join(logged, lid, number, encs)
        return logged

    def segment_end(self, seq: int) -> int:
        """Return the seq after the segment that holds ``seq``, sealed or open."""
        return self.end if seq >= self.open_first else self._head_of(seq).end

    def rest(self) -> None:
        """Keep only the outline: the digests that were checked and the open segment. ``resume`` goes on."""
        self.drop_plain()
        self._unsealed = (0, [])
        self._places, self._placed = Places(), self.open_first
        self.hold(ROOM)

    def resume(self, strand: Strand) -> None:
        """Go on with another transaction's bytes; each segment is compared with the digests that are known."""
        self._strand = strand

    def hold(self, room: int) -> None:
        """Hold up to ``room`` bytes of decompressed segments from now on."""
        self._plain.room = room

    def drop_plain(self) -> None:
        """Let go of decompressed segments: they can be read again."""
        self._read = None
        self._plain.clear()

    def firsts(self, lid: int) -> list[tuple[int, int]]:
        """Return where a log's items begin, as far as this was looked up: (item, seq at or before its entry)."""
        return self._places.firsts(lid)

    def items_of(self, seq: int) -> dict[int, tuple[int, list[bytes]]]:
        """Return the items that one entry of the open segment logged."""
        self._opened()
        return self._tail_logs[seq - self.open_first]

    # --- segments --------------------------------------------------------------------------------------------

    def heads(self, since: int, before: int | None = None) -> list[SegmentHead]:
        """Return the sealed segments that end after ``since``, their digests checked against the signed root.

        ``before``: only those that begin before this entry.
        """
        if not self._trusted:
            raise CorruptError(f"{self.where}: not authenticated")
        if not self._heads or self._heads[0].first > since:
            # Who asks for ever earlier ones gets more than asked, so that they are not all read anew each time.
            self._heads = self._outline(max(1, 2 * since - self.open_first) if self._heads else since)
        start = bisect_right(self._heads, since, key=lambda head: head.end)
        stop = len(self._heads) if before is None else bisect_left(self._heads, before, key=lambda head: head.first)
        return self._heads[start:stop]

    def frontier(self) -> Frontier:
        """Return the Merkle frontier over all sealed segments, from their digests alone. Raises CorruptError."""
        return self._chain(self._strand.segments(0))

    def _outline(self, since: int) -> list[SegmentHead]:
        heads = self._strand.segments(since)
        if heads and heads[0].index:
            # The final root vouches for what the segment before them says of those before, and for nothing else in it.
            before = self._strand.segments(heads[0].first - 1)[0]
            with suppress(CorruptError):
                self._chain(heads, before)
                return heads
        # Nothing vouches for that shortcut if it fails; the digests of all of them tell as well.
        heads = self._strand.segments(0)
        self._chain(heads)
        return heads

    def _chain(self, heads: list[SegmentHead], before: SegmentHead | None = None) -> Frontier:
        """Compare segments, of which the last is the stream's last, with the signed root."""
        frontier, at = segments_frontier(before), 1 if before is None else before.end
        for head in heads:
            if head.first != at:
                raise CorruptError(f"{self.where}: the sealed segments have a gap before entry {head.first}")
            frontier.append(head.digest)
            at = head.end
        if at != self.open_first or frontier.root() != segments_root(self.last):
            raise CorruptError(f"{self.where}: the digests of the sealed segments are not those that were signed")
        return frontier

    def _head_of(self, seq: int) -> SegmentHead:
        for head in self.heads(seq, seq + 1):
            return head
        raise CorruptError(f"{self.where}: no sealed segment holds entry {seq}")

    def _place(self, since: int) -> None:
        """Look up what the segments that end after ``since`` hold, without reading their frames."""
        if since < self._placed:
            for head in reversed(self.heads(since, self._placed)):
                self._places.add(head, self._listed(head))
                self._placed = head.first

    def _listed(self, head: SegmentHead) -> list[Part]:
        try:
            return _parts(head.parts)
        except msgspec.MsgspecError as error:
            raise CorruptError(f"{self.where}: the content list of the segment at {head.first} is broken") from error

    def _stored(self, head: SegmentHead) -> Segment:
        """Return a segment whose bytes were compared with its digest."""
        if self._read is None or self._read[0] != head.first:
            segment = self._strand.segment(head.first)
            if segment is None:
                raise CorruptError(f"{self.where}: the segment at entry {head.first} is missing")
            ops, items = segment.ops, segment.items
            if segment_digest(head.first, head.count, head.base, head.parts, ops, items) != head.digest:
                raise CorruptError(
                    f"{self.where}: entries {head.first} to {head.end - 1} are damaged: their stored bytes are not "
                    "those that were signed"
                )
            self._read = (head.first, segment)
        return self._read[1]

    def _items(self, head: SegmentHead) -> dict[int, Items]:
        found = self._plain.get(head.first)
        if found is None:
            plain = decompress(self._stored(head).items)
            found, at = {}, 0
            for part in self._listed(head):
                enc = plain if part.size == len(plain) else plain[at : at + part.size]
                found[part.lid] = Items(part, enc)
                at += part.size
            if at != len(plain):
                raise CorruptError(f"{self.where}: the segment at entry {head.first} has items nobody lists")
            self._plain.put(head.first, found)
        return found

    def _cut(self, head: SegmentHead, lid: int, start: int, end: int) -> bytes:
        try:
            return self._items(head)[lid].cut(start, end)
        except (msgspec.MsgspecError, IndexError) as error:
            raise CorruptError(f"{self.where}: the items of the segment at {head.first} cannot be read") from error

    def _ops(self, head: SegmentHead) -> list[Record]:
        if self._unsealed[0] == head.first:
            return self._unsealed[1]
        try:
            raws = _sealed(decompress(self._stored(head).ops))
        except msgspec.MsgspecError as error:
            raise CorruptError(f"{self.where}: the segment at entry {head.first} cannot be read: {error}") from error
        if len(raws) != head.count:
            raise CorruptError(f"{self.where}: the segment at entry {head.first} has {len(raws)} records")
        records = [Record(head.first + at, kind, payload) for at, (kind, payload) in enumerate(raws)]
        self._unsealed = (head.first, records)
        return records

    def _opened(self) -> list[Record]:
        if self._records is None:
            if not self._trusted:
                raise CorruptError(f"{self.where}: not authenticated")
            plain = decompress_tail([block for _, block in self.blocks])
            try:
                raws = _open(array_header(len(self.blocks)) + plain)
            except msgspec.MsgspecError as error:
                raise CorruptError(f"{self.where}: the open segment cannot be read: {error}") from error
            self._records = []
            for at, (kind, payload, logs) in enumerate(raws):
                self._records.append(Record(self.open_first + at, kind, payload))
                added = {lid: (first, [bytes(item) for item in items]) for lid, first, items in logs}
                self._tail_logs.append(added)
                for lid, (first, items) in added.items():
                    _join(self._tail_items, lid, first, items.copy())
        return self._records


def _join(logs: dict[int, tuple[int, list[bytes]]], lid: int, first: int, items: list[bytes]) -> None:
    start, known = logs.setdefault(lid, (first, []))
    if start + len(known) != first:
        raise CorruptError(f"the items of list {lid} have a gap")
    known += items


def _split(items: Items) -> list[bytes]:
    encs = split_array(items.enc)
    if len(encs) != items.part.count:
        raise CorruptError(f"a sealed list has {len(encs)} items where {items.part.count} are listed")
    return encs
