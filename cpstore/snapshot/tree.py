"""A state as a tree of leaves, large mappings and large lists, and the root that names its content.

A mapping or list of ``SPLIT`` encoded bytes or more becomes a node of its own; everything smaller is a leaf. The
items of a list node live in an append-only item log; the list is a few runs over logs. The root is a SHA-256
over the tree and says nothing about how the bytes are packed: docs/format.md, "State root".
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from hashlib import sha256
from itertools import accumulate
from typing import TYPE_CHECKING

from cpstore.digest import SIZE, ZERO, Frontier
from cpstore.snapshot.shared import item_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from cpstore.snapshot.leaves import Leaves

SPLIT = 2048
"""Encoded bytes from which a mapping or list is a node of its own."""
FANOUT = 64
"""Children of a mapping up to which they are hashed in one go; beyond, in 256 buckets."""


_Paths = dict[str, "_Paths | None"]
"""A set of paths, key by key; None ends one."""


class Leaf:
    """A value kept as one piece. ``enc`` is its encoding, or for a shared value that of the reference to it."""

    __slots__ = ("_digest", "enc")

    def __init__(self, enc: bytes) -> None:
        self.enc = enc
        self._digest: bytes | None = None

    @property
    def digest(self) -> bytes:
        """The hash of the content, 32 bytes."""
        if self._digest is None:
            self._digest = item_hash(self.enc)
        return self._digest


class Map:
    """A large mapping. ``ref``: it was stored as a shared value; ``changed`` yields the paths that moved since.

    A shared mapping stays folded, its content unread, until somebody asks for its children.
    """

    __slots__ = ("_buckets", "_changed", "_children", "_digest", "_dirty", "_unfold", "ref", "stored_digest")

    def __init__(
        self,
        children: dict[str, Node] | None = None,
        ref: bytes | None = None,
        digest: bytes | None = None,
        unfold: Callable[[], dict[str, Node]] | None = None,
    ) -> None:
        self._children = {} if children is None and unfold is None else children
        self._unfold = unfold
        self.ref = ref
        self.stored_digest = digest
        self._changed: _Paths = {}
        self._digest = digest
        self._buckets: dict[int, _Bucket] | None = None
        self._dirty: set[str] = set()

    @property
    def folded(self) -> bool:
        """Whether the content is exactly the shared value, not yet read."""
        return self._children is None

    @property
    def children(self) -> dict[str, Node]:
        """The nodes below, by key."""
        if self._children is None:
            assert self._unfold is not None  # noqa: S101
            self._children = self._unfold()
        return self._children

    def touch(self, key: str) -> None:
        """Note that the child under ``key`` was changed, added or removed."""
        self._digest = None
        if self._buckets is not None:
            self._dirty.add(key)

    def note(self, path: Sequence[str]) -> None:
        """Note that what is at ``path`` has to be written beside the reference; places below it are implied."""
        here = self._changed
        for key in path[:-1]:
            below = here.setdefault(key, {})
            if below is None:
                return
            here = below
        here[path[-1]] = None

    def changed(self) -> Iterator[tuple[str, ...]]:
        """Yield the paths to be written beside the reference; none is below another."""
        left: list[tuple[tuple[str, ...], _Paths]] = [((), self._changed)]
        while left:
            path, here = left.pop()
            for key, below in here.items():
                if below is None:
                    yield (*path, key)
                else:
                    left.append(((*path, key), below))

    @property
    def digest(self) -> bytes:
        """The hash of the content, 32 bytes."""
        if self._digest is None:
            if len(self.children) <= FANOUT:
                self._buckets = None
                self._digest = sha256(b"\x02" + self._join(sorted(self.children))).digest()
            else:
                self._digest = self._bucketed()
        return self._digest

    def _join(self, keys: Iterable[str]) -> bytes:
        return b"".join([sha256(key.encode()).digest() + self.children[key].digest for key in keys])

    def _bucketed(self) -> bytes:
        if self._buckets is None:
            self._buckets = {}
            self._dirty = set(self.children)
        buckets, stale = self._buckets, set()
        for key in sorted(self._dirty):
            name, child = sha256(key.encode()).digest(), self.children.get(key)
            stale.add(name[0])
            buckets.setdefault(name[0], _Bucket()).put(key, b"" if child is None else name + child.digest)
        for number in stale:
            if buckets[number].keys:
                buckets[number].digest = sha256(buckets[number].joined).digest()
            else:
                del buckets[number]
        self._dirty = set()
        return sha256(b"\x03" + b"".join([buckets[n].digest if n in buckets else ZERO for n in range(256)])).digest()


class _Bucket:
    """Part of a large mapping: for each of its keys, sorted, the hash of the key and that of the child, joined."""

    __slots__ = ("digest", "joined", "keys")

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.joined = bytearray()
        self.digest = ZERO

    def put(self, key: str, hashes: bytes) -> None:
        """Put the two hashes of a key in, or nothing."""
        at = bisect_left(self.keys, key)
        known = self.keys[at : at + 1] == [key]
        self.keys[at : at + known] = [key] if hashes else []
        self.joined[2 * SIZE * at : 2 * SIZE * (at + known)] = hashes


class Run:
    """Consecutive items of one item log: ``count`` from number ``start`` of log ``lid`` of stream ``source``.

    ``source`` 0 is the tree's own stream, n the n-th of its ``sources``. ``hint`` is the seq of an entry at or
    before the one that logged the first item.
    """

    __slots__ = ("count", "hint", "lid", "source", "start")

    def __init__(self, source: int, lid: int, start: int, count: int, hint: int) -> None:
        self.source = source
        self.lid = lid
        self.start = start
        self.count = count
        self.hint = hint

    def joins(self, other: Run) -> bool:
        """Whether ``other`` goes on where this run ends."""
        return (self.source, self.lid, self.start + self.count) == (other.source, other.lid, other.start)

    def part(self, skip: int, count: int) -> Run:
        """Return ``count`` items of this run, without its first ``skip``."""
        return Run(self.source, self.lid, self.start + skip, count, self.hint)

    def fields(self) -> list[int]:
        """Return the run as it is stored."""
        return [self.source, self.lid, self.start, self.count, self.hint]


class List:
    """A large list: runs over item logs, and the Merkle frontier over the hashes of its items.

    ``lid`` is the log that new items go to (0: none yet) and ``total`` the number of items it has. The frontier is
    None in a tree that was rebuilt only to be read.
    """

    __slots__ = ("_starts", "count", "frontier", "leaves", "lid", "marks", "runs", "total")

    def __init__(self, lid: int, total: int, runs: list[Run], frontier: Frontier | None) -> None:
        self.lid = lid
        self.total = total
        self.runs = runs
        self._starts: list[int] = []
        self.count = sum(run.count for run in runs)
        self.frontier = frontier
        self.leaves: Leaves | None = None
        self.marks: list[tuple[int, int]] = []

    @property
    def digest(self) -> bytes:
        """The hash of the content, 32 bytes."""
        if self.frontier is None:
            msg = "this tree was rebuilt without the hashes of its items"
            raise RuntimeError(msg)
        return sha256(b"\x04" + self.count.to_bytes(8, "big") + self.frontier.root()).digest()

    def log(self, count: int, seq: int) -> Run:
        """Make room for ``count`` new items in this list's log; returns the run that holds them."""
        run = Run(0, self.lid, self.total, count, seq)
        if not self.marks or seq - self.marks[-1][1] >= MARK:
            self.marks.append((self.total, seq))
        self.total += count
        return run

    def splice(self, at: int, removed: int, runs: Sequence[Run], hashes: Sequence[bytes] | None) -> None:
        """Replace ``removed`` items at ``at`` by runs. ``hashes``: of the inserted items, None where not tracked."""
        inserted = sum(run.count for run in runs)
        if at == self.count and not removed:
            _extend(self.runs, runs)
        else:
            self._exchange(at, at + removed, runs, inserted)
        if hashes is None:
            self.frontier = None
        elif self.leaves is not None:
            self.leaves.splice(at, removed, hashes)
            self.frontier = self.leaves.frontier()
        elif self.frontier is not None:
            if at != self.count or removed:
                msg = "the hashes of a list's items are needed to change its middle"
                raise RuntimeError(msg)
            for item in hashes:
                self.frontier.append(item)
        self.count += inserted - removed

    def _exchange(self, at: int, end: int, new: Sequence[Run], count: int) -> None:
        """Put ``new`` runs of ``count`` items where those from ``at`` to ``end`` are. Only the seams are looked at."""
        runs, starts = self.runs, self._positions()
        low, high = bisect_left(starts, at), bisect_left(starts, end)
        between: list[Run] = []
        if low:  # the run that reaches into the gap, or ends at it and may be joined
            low -= 1
            between.append(runs[low].part(0, min(runs[low].count, at - starts[low])))
        _extend(between, new)
        over = starts[high - 1] + runs[high - 1].count - end if high else 0
        if over > 0:
            _extend(between, [self._rest(runs[high - 1], over)])
        elif high < len(runs):
            _extend(between, [runs[high]])
            high += 1
        begin = starts[low] if low < len(starts) else 0
        moved = count - (end - at)
        if moved:
            starts[high:] = [start + moved for start in starts[high:]]
        runs[low:high] = between
        starts[low:high] = list(accumulate((run.count for run in between[:-1]), initial=begin)) if between else []

    def _positions(self) -> list[int]:
        """Return where each run begins; those that came at the end since the last time are added."""
        runs, starts = self.runs, self._starts
        while len(starts) < len(runs):
            starts.append(starts[-1] + runs[len(starts) - 1].count if starts else 0)
        return starts

    def _rest(self, run: Run, count: int) -> Run:
        """Return the last items of a run, with the nearest hint that is known."""
        rest = run.part(run.count - count, count)
        if run.source == 0 and run.lid == self.lid:
            rest.hint = max(run.hint, self._mark(rest.start))
        return rest

    def part(self, at: int, count: int) -> list[Run]:
        """Return the runs that hold ``count`` items from position ``at``."""
        found: list[Run] = []
        end, starts = at + count, self._positions()
        number = max(0, bisect_right(starts, at) - 1)
        while at < end and number < len(self.runs):
            run, skip = self.runs[number], at - starts[number]
            found.append(run.part(skip, min(run.count, end - starts[number]) - skip))
            at += found[-1].count
            number += 1
        return found

    def _mark(self, item: int) -> int:
        at = bisect_right(self.marks, item, key=lambda mark: mark[0])
        return self.marks[at - 1][1] if at else 0


MARK = 64
"""Entries after which a list notes anew where in the stream its log has got to."""

Node = Leaf | Map | List


class Tree:
    """One state. ``lids`` counts the item logs made so far, ``sources`` names the other streams it reads.

    ``size`` is how many bytes it has at most when it is encoded, None where nobody has counted.
    """

    __slots__ = ("lids", "root", "size", "sources")

    def __init__(
        self,
        root: Map | None = None,
        lids: int = 0,
        sources: Iterable[tuple[str, int]] = (),
        size: int | None = None,
    ) -> None:
        self.root = Map() if root is None else root
        self.size = 1 if root is None else size
        self.lids = lids
        self.sources = list(sources)

    @property
    def digest(self) -> bytes:
        """The state root, 32 bytes."""
        return self.root.digest

    def find(self, path: Sequence[str]) -> Node | None:
        """Return the node at exactly this path, None where no node begins."""
        node: Node | None = self.root
        for key in path:
            if not isinstance(node, Map):
                return None
            node = node.children.get(key)
        return node

    def touch(self, path: Sequence[str]) -> None:
        """Note on all mappings above that the node at ``path`` was changed."""
        node: Node | None = self.root
        for depth, key in enumerate(path):
            if not isinstance(node, Map):
                return
            node.touch(key)
            if node.ref is not None:
                node.note(path[depth:])
            node = node.children.get(key)


def lists_of(node: Node) -> list[List]:
    """Return the list nodes at and below a node; none lies in what is folded."""
    if isinstance(node, List):
        return [node]
    if isinstance(node, Map) and not node.folded:
        return [found for child in node.children.values() for found in lists_of(child)]
    return []


def places_of(node: Node) -> int:
    """Return how many places there are below a node; none lies in what is folded."""
    if not isinstance(node, Map) or node.folded:
        return 0
    return len(node.children) + sum([places_of(child) for child in node.children.values() if isinstance(child, Map)])


def _extend(runs: list[Run], more: Iterable[Run]) -> None:
    for run in more:
        if runs and runs[-1].joins(run):
            last = runs[-1]
            runs[-1] = Run(last.source, last.lid, last.start, last.count + run.count, last.hint)
        elif run.count:
            runs.append(run)
