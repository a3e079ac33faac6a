"""The changes of one commit, found from a whole state or stated one by one, and carried out as they are found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpstore.digest import Frontier, leaf_hash
from cpstore.errors import CorruptError
from cpstore.snapshot import delta
from cpstore.snapshot.form import LIST, MAP, SHARED_MAP, array, pack, plain_children
from cpstore.snapshot.shape import Shape
from cpstore.snapshot.shared import is_ref, item_hash, read_ref
from cpstore.snapshot.tree import Leaf, List, Map
from cpstore.snapshot.values import array_count, array_header, is_array, is_map, split_array, split_map

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cpstore.snapshot.delta import Applier, Logged
    from cpstore.snapshot.shrink import Shrinking

Span = tuple[bytes, int, int]
"""An encoded value: the bytes it is in, its start, its end."""

PATCH_MIN = 1024
"""Encoded bytes from which a changed leaf is stored as the bytes that differ."""
HEADERS = {0xDA: 3, 0xDB: 5, 0xC5: 3, 0xC6: 5}
"""First byte of a long text or long bytes, and how many hold it and the length."""


class Draft:
    """What one entry adds. ``changes`` and ``items`` make its record.

    ``share(enc)`` returns an encoded reference for a value worth sharing, None for one that is not; ``fetch`` reads
    the value behind a reference.
    """

    def __init__(
        self,
        applier: Applier,
        seq: int,
        share: Callable[[bytes], bytes | None],
        fetch: Callable[[bytes], bytes],
    ) -> None:
        self.tree = applier.tree
        self.changes: list[bytes] = []
        self.items: Logged = {}
        self._applier = applier
        self._seq = seq
        self._share = share
        self._fetch = fetch
        self._lids = 0
        self.shrinking: Shrinking | None = None

    def add(self, change: bytes) -> None:
        """Carry out a change and keep it for the record."""
        if self.shrinking is not None:
            self.shrinking.look(self.tree, change, self.items)
        self._applier.apply(change, self._seq, self.items)
        self.changes.append(change)

    def log(self, lid: int, first: int, encs: Sequence[bytes]) -> None:
        """Keep new list items for the record; ``first`` is the number that the log gives the first of them."""
        if encs:
            self.items.setdefault(lid, (first, []))[1].extend([self._share(enc) or enc for enc in encs])

    # --- explicit changes ------------------------------------------------------------------------------------

    def put(self, path: Sequence[str], enc: bytes) -> None:
        """Make ``enc`` the value at a path whose parent is a mapping node."""
        node = self.tree.find(path)
        if isinstance(node, Leaf):
            if node.enc == enc or (is_ref(node.enc) and node.digest == leaf_hash(enc)):
                return
            if min(read_ref(node.enc).length if is_ref(node.enc) else len(node.enc), len(enc)) >= PATCH_MIN:
                changes = self._patch(path, node.enc, enc)
                for change in changes:
                    self.add(change)
                if changes:
                    return
        self._lids = self.tree.lids
        self.add(delta.set_(path, self._node(Shape(enc), (0, len(enc)))))

    def drop(self, path: Sequence[str]) -> None:
        """Take a key away."""
        self.add(delta.delete(path))

    def splice(self, path: Sequence[str], node: List, at: int, removed: int, encs: Sequence[bytes]) -> None:
        """Replace items of a list node."""
        if not removed and not encs:
            return
        self.log(node.lid or self.tree.lids + 1, node.total, encs)
        if at == node.count and not removed:
            self.add(delta.append(path, len(encs)))
        else:
            self.add(delta.splice(path, at, removed, [len(encs)] if encs else []))

    # --- a whole state ---------------------------------------------------------------------------------------

    def differ(self, path: list[str], old: Span, new: Span) -> None:
        """Find and carry out what turns the value ``old`` at ``path`` into ``new``, by their bytes alone."""
        if _equal(old, new):
            return
        node = self.tree.find(path)
        data, start, end = new
        if isinstance(node, Map) and is_map(data, start):
            self._differ_map(path, old, new)
        elif isinstance(node, List) and is_array(data, start):
            self._differ_list(path, node, old, new)
        else:
            self.put(path, data[start:end])

    def _differ_map(self, path: list[str], old: Span, new: Span) -> None:
        before, after = split_map(*old), split_map(*new)
        for key in before:
            if key not in after:
                self.drop([*path, key])
        for key, span in after.items():
            if key in before:
                self.differ([*path, key], (old[0], *before[key]), (new[0], *span))
            else:
                self.put([*path, key], new[0][span[0] : span[1]])

    def _differ_list(self, path: list[str], node: List, old: Span, new: Span) -> None:
        (had, skip), (has, header) = array_count(old[0], old[1]), array_count(new[0], new[1])
        body = memoryview(old[0])[old[1] + skip : old[2]]
        if has >= had and new[0].startswith(body, new[1] + header):
            rest = new[0][new[1] + header + len(body) : new[2]]
            self.splice(path, node, had, 0, split_array(array_header(has - had) + rest))
            return
        was, now = split_array(old[0][old[1] : old[2]]), split_array(new[0][new[1] : new[2]])
        first = _alike(was, now)
        limit = min(had, has) - first
        last = _alike(was[: -limit - 1 : -1], now[: -limit - 1 : -1]) if limit else 0
        gone, come = was[first : had - last], now[first : has - last]
        known = {enc: first + at for at, enc in enumerate(gone)} if len(come) > 1 else {}
        inserts, fresh = _inserts(come, known)
        self.log(node.lid or self.tree.lids + 1, node.total, fresh)
        self.add(delta.splice(path, first, len(gone), inserts))

    # --- new nodes -------------------------------------------------------------------------------------------

    def _patch(self, path: Sequence[str], old: bytes, enc: bytes) -> list[bytes]:
        """Return what makes ``enc`` of a leaf by the bytes that differ, nothing if most of them do.

        A shared value that changes a little is likely to do so again: it is not shared any more, so that the next time
        can be a patch.
        """
        if Shape(enc).grown(0, len(enc)):
            return []
        try:
            plain = self._fetch(old) if is_ref(old) else old
        except CorruptError:  # a damaged value may be replaced
            return []
        changes: list[bytes] = []
        before, after = _common(plain, enc)
        header = HEADERS.get(enc[0], 0)
        if 0 < before < header:  # the length in front is exchanged apart from what grew behind it
            changes.append(delta.patch(path, before, len(plain) - header, enc[before:header]))
            plain = enc[:header] + plain[header:]
            before, after = _common(plain, enc)
        if before + after < len(enc) // 2:
            return []
        if is_ref(old):
            return [delta.set_(path, array(pack(0), enc))]
        return [*changes, delta.patch(path, before, after, enc[before : len(enc) - after])]

    def _node(self, shape: Shape, span: tuple[int, int]) -> bytes:
        start, end = span
        if not shape.grown(start, end):
            enc = shape.data[start:end]
            return array(pack(0), self._share(enc) or enc)
        if is_array(shape.data, start):
            return self._list(shape.data[start:end])
        # A mapping of which a quarter or more is lists stays apart: they deserve an item log.
        if shape.lists(start, end) * 4 < end - start:
            shared = self._share(shape.data[start:end])
            if shared is not None:
                whole = Map(plain_children(shape.data, start, end))
                return array(pack(SHARED_MAP), pack(shared), pack(whole.digest), array())
        spans = shape.split(start, end)
        header = bytes((0x80 | len(spans),)) if len(spans) < 16 else b"\xdf" + len(spans).to_bytes(4, "big")
        children = b"".join([pack(key) + self._node(shape, below) for key, below in spans.items()])
        return array(pack(MAP), header + children)

    def _list(self, enc: bytes) -> bytes:
        encs = split_array(enc)
        self._lids += 1
        lid, count = self._lids, len(encs)
        self.log(lid, 0, encs)
        frontier = _frontier(self.items[lid][1])
        return array(pack(LIST), pack(lid), pack(count), pack(frontier.pack()), pack([[0, lid, 0, count, self._seq]]))


def _frontier(items: Sequence[bytes]) -> Frontier:
    frontier = Frontier()
    for item in items:
        frontier.append(item_hash(item))
    return frontier


def _equal(old: Span, new: Span) -> bool:
    (a, start, end), (b, low, high) = old, new
    return end - start == high - low and b.startswith(memoryview(a)[start:end], low)


def _alike(a: Sequence[bytes], b: Sequence[bytes]) -> int:
    """Return how many items two sequences share at their start."""
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _inserts(come: list[bytes], known: dict[bytes, int]) -> tuple[list[int | tuple[int, int]], list[bytes]]:
    """Spell new items as "n new ones" and "n of the old ones from here"; also return the really new ones."""
    inserts: list[int | tuple[int, int]] = []
    fresh: list[bytes] = []
    for enc in come:
        at, last = known.get(enc), inserts[-1] if inserts else None
        if at is None:
            fresh.append(enc)
            if isinstance(last, int):
                inserts[-1] = last + 1
            else:
                inserts.append(1)
        elif isinstance(last, tuple) and last[0] + last[1] == at:
            inserts[-1] = (last[0], last[1] + 1)
        else:
            inserts.append((at, 1))
    return inserts, fresh


def _common(a: bytes, b: bytes) -> tuple[int, int]:
    """Return how many bytes two values share at their start and at their end, without overlap."""
    limit = min(len(a), len(b))
    before = _shared(lambda low, high: a[low:high] == b[low:high], limit)
    after = _shared(
        lambda low, high: a[len(a) - high : len(a) - low] == b[len(b) - high : len(b) - low], limit - before
    )
    return before, after


def _shared(same: Callable[[int, int], bool], limit: int) -> int:
    """Return how far two values are the same; each byte is compared about once."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if same(low, middle):
            low = middle
        else:
            high = middle - 1
    return low
