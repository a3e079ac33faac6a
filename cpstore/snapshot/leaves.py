"""The hashes of all items of a list, with the inner nodes of their Merkle tree kept for changes in the middle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpstore.digest import SIZE, Frontier, node_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Leaves:
    """Level k holds the hashes of the full subtrees of 2**k items, 32 bytes each."""

    __slots__ = ("_levels",)

    def __init__(self, hashes: Iterable[bytes]) -> None:
        self._levels = [bytearray(b"".join(hashes))]
        self._raise(0)

    def splice(self, at: int, removed: int, hashes: Sequence[bytes]) -> None:
        """Replace ``removed`` hashes at ``at``: O(log n) for one exchanged item, else O(items behind it)."""
        ground = self._levels[0]
        ground[at * SIZE : (at + removed) * SIZE] = b"".join(hashes)
        if removed == len(hashes):
            self._patch(at, at + removed)
        else:
            self._raise(at)

    def part(self, at: int, count: int) -> list[bytes]:
        """Return ``count`` item hashes from position ``at``."""
        ground = self._levels[0]
        return [bytes(ground[n * SIZE : (n + 1) * SIZE]) for n in range(at, at + count)]

    def frontier(self) -> Frontier:
        """Return the frontier over all items."""
        size = len(self._levels[0]) // SIZE
        nodes, done = [], 0
        for level in range(size.bit_length() - 1, -1, -1):
            if size >> level & 1:
                at = done >> level
                nodes.append(bytes(self._levels[level][at * SIZE : (at + 1) * SIZE]))
                done += 1 << level
        return Frontier(size, nodes)

    def _patch(self, first: int, end: int) -> None:
        for level in range(1, len(self._levels)):
            first, end = first >> 1, (end + 1) >> 1
            below, here = self._levels[level - 1], self._levels[level]
            end = min(end, len(here) // SIZE)
            for at in range(first, end):
                here[at * SIZE : (at + 1) * SIZE] = _pair(below, at)

    def _raise(self, first: int) -> None:
        level = 1
        while (pairs := len(self._levels[level - 1]) // SIZE // 2) or level < len(self._levels):
            first >>= 1
            if level == len(self._levels):
                self._levels.append(bytearray())
            below, here = self._levels[level - 1], self._levels[level]
            del here[first * SIZE :]
            here += b"".join([_pair(below, at) for at in range(len(here) // SIZE, pairs)])
            level += 1


def _pair(below: bytearray, at: int) -> bytes:
    left = at * 2 * SIZE
    return node_hash(bytes(below[left : left + SIZE]), bytes(below[left + SIZE : left + 2 * SIZE]))
