"""One encoded value, looked into without making objects: what in it becomes a node of its own."""

from __future__ import annotations

from cpstore.snapshot.tree import SPLIT
from cpstore.snapshot.values import array_count, is_array, is_map, split_map

_Spans = dict[str, tuple[int, int]]


class Shape:
    """An encoded value. Each mapping in it is split once, and its lists are counted once, however deep it lies."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._split: dict[int, _Spans] = {}
        self._lists: dict[int, int] = {}

    def grown(self, start: int, end: int) -> bool:
        """Whether the value there becomes a node: a large mapping, or a large list of two items or more."""
        data = self.data
        return end - start >= SPLIT and (
            is_map(data, start) or (is_array(data, start) and array_count(data, start)[0] > 1)
        )

    def split(self, start: int, end: int) -> _Spans:
        """Return where the children of a mapping are, by key."""
        if start not in self._split:
            self._split[start] = split_map(self.data, start, end)
        return self._split[start]

    def lists(self, start: int, end: int) -> int:
        """Return how many bytes of a value belong to lists that become nodes."""
        if not self.grown(start, end):
            return 0
        if is_array(self.data, start):
            return end - start
        if start not in self._lists:
            self._lists[start] = sum(self.lists(*span) for span in self.split(start, end).values())
        return self._lists[start]

    def places(self, start: int, end: int) -> int:
        """Return how many places a mapping has when its large mappings are nodes and its lists are not."""
        spans = self.split(start, end)
        large = [(low, high) for low, high in spans.values() if high - low >= SPLIT and is_map(self.data, low)]
        return len(spans) + sum(self.places(*span) for span in large)
