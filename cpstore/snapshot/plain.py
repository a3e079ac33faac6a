"""Decompressed segments: the last ones that were used, and their items cut out without being copied one by one."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import OrderedDict
from itertools import accumulate
from typing import TYPE_CHECKING

import msgspec

from cpstore.snapshot.values import array_count, array_header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cpstore.snapshot.records import SegmentHead

ROOM = 32 << 20
"""Bytes of decompressed segments that a reader holds: enough for the few places that an edited list is read from."""
ROOM_MANY = 256 << 20
"""The same while a state with several lists is read: each of them may go through all segments."""

_raws = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


class Part(msgspec.Struct, array_like=True, frozen=True):
    """Items of one log inside a segment: ``count`` from number ``first``, ``size`` bytes."""

    lid: int
    first: int
    count: int
    size: int


class Items:
    """The items of one part, encoded as one list. Where each begins is found once, when they are first cut."""

    __slots__ = ("_starts", "enc", "part")

    def __init__(self, part: Part, enc: bytes) -> None:
        self.part = part
        self.enc = enc
        self._starts: array[int] | None = None

    def cut(self, start: int, end: int) -> bytes:
        """Return some of the items as an encoded list. Raises msgspec.MsgspecError if this is not a list."""
        if start == 0 and end == self.part.count:
            return self.enc
        if self._starts is None:
            lengths = (len(memoryview(raw)) for raw in _raws(self.enc))
            self._starts = array("Q", accumulate(lengths, initial=array_count(self.enc)[1]))
        return array_header(end - start) + self.enc[self._starts[start] : self._starts[end]]


class Recent:
    """Decompressed segments by their first entry, up to ``room`` bytes; the one that was used last always stays."""

    def __init__(self) -> None:
        self.room = ROOM
        self._held: OrderedDict[int, tuple[dict[int, Items], int]] = OrderedDict()
        self._size = 0

    def get(self, first: int) -> dict[int, Items] | None:
        """Return the logs of a segment, None if it is not held."""
        if first not in self._held:
            return None
        self._held.move_to_end(first)
        return self._held[first][0]

    def put(self, first: int, logs: dict[int, Items]) -> None:
        """Hold a segment that is not held; those not used for longest give way."""
        size = sum(len(items.enc) + 8 * items.part.count for items in logs.values())
        self._size += size
        while self._held and self._size > self.room:
            self._size -= self._held.popitem(last=False)[1][1]
        self._held[first] = (logs, size)

    def clear(self) -> None:
        """Let go of all."""
        self._held.clear()
        self._size = 0


class Places:
    """Which segments hold which items of a log. Filled from the newest segment backwards."""

    def __init__(self) -> None:
        self._of: dict[int, list[tuple[int, Part, SegmentHead]]] = {}

    def add(self, head: SegmentHead, parts: list[Part]) -> None:
        """Note what the segment holds that comes before all that are known."""
        for part in parts:
            self._of.setdefault(part.lid, []).append((-part.first, part, head))

    def since(self, lid: int, item: int) -> Iterator[tuple[Part, SegmentHead]]:
        """Yield the parts of a log from the one that may hold an item on."""
        places = self._of.get(lid, [])
        at = bisect_left(places, (-item,))  # the newest part that begins at or before it: the list is descending
        while 0 <= at < len(places):
            yield places[at][1:]
            at -= 1

    def firsts(self, lid: int) -> list[tuple[int, int]]:
        """Return for each known part of a log its first item and the first entry of its segment."""
        return [(part.first, head.first) for _, part, head in reversed(self._of.get(lid, []))]
