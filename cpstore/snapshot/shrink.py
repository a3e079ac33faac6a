"""Whether changes take content away: what an agent's peers have to hear of, whatever the act is called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from cpstore.snapshot.delta import DELETE, PATCH, SET, SPLICE
from cpstore.snapshot.form import LEAF, LIST, MAP, parts
from cpstore.snapshot.shared import is_ref, read_ref
from cpstore.snapshot.tree import Leaf, List, Map, Node, Run, Tree
from cpstore.snapshot.values import is_array, is_map, split_array, split_map

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cpstore.snapshot.delta import Logged

MUCH = 2048
"""Encoded bytes that are worth telling when they go, in one act together."""

Part: TypeAlias = "Node | bytes | int | Sequence[bytes] | Mapping[str, Part]"
"""A value as far as it was looked into: a node, an encoding, the size of a shared value, list items, children."""

_number = msgspec.msgpack.Decoder(int).decode
_bytes = msgspec.msgpack.Decoder(bytes).decode
_path = msgspec.msgpack.Decoder(list[str]).decode
_children = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode
_inserts = msgspec.msgpack.Decoder(list[int | tuple[int, int]]).decode


class Shrinking:
    """Looks at each change of one act before it is carried out.

    ``found``: items of some list, or more than ``MUCH`` bytes in all, are not there afterwards. What takes the place of
    a value counts against it, what is new elsewhere does not. ``items(runs)`` returns encodings of stored list items.
    """

    def __init__(self, items: Callable[[Sequence[Run]], list[bytes]]) -> None:
        self.found = False
        self._items = items
        self._gone = 0

    def look(self, tree: Tree, change: bytes, logged: Logged) -> None:
        """Take a change in; ``logged`` has the list items that it brings."""
        kind, where, *rest = parts(change)
        node = tree.find(_path(where))
        if node is None or self.found:
            return
        match _number(kind):
            case k if k == DELETE:
                self._drop(node)
            case k if k == SET:
                self._compare(node, _fresh(rest[0], logged))
            case k if k == PATCH and isinstance(node, Leaf):
                before, after, middle = _number(rest[0]), _number(rest[1]), _bytes(rest[2])
                self._compare(node, node.enc[:before] + middle + node.enc[len(node.enc) - after :])
            case k if k == SPLICE and isinstance(node, List):
                self._splice(node, _number(rest[0]), _number(rest[1]), _inserts(rest[2]), logged)
        self.found = self.found or self._gone > MUCH

    def _splice(
        self, node: List, at: int, removed: int, inserts: Sequence[int | tuple[int, int]], logged: Logged
    ) -> None:
        if not removed:
            return
        count = sum(insert for insert in inserts if isinstance(insert, int))
        fresh = iter(logged.get(node.lid, (0, []))[1][-count:] if count else ())
        new: list[bytes] = []
        for insert in inserts:
            if isinstance(insert, int):
                new += [next(fresh) for _ in range(insert)]
            else:
                new += self._items(node.part(*insert))
        self._lists(self._items(node.part(at, removed)), new)

    def _compare(self, before: Part, after: Part) -> None:
        old, new = self._open(before), self._open(after)
        if isinstance(old, list):
            if isinstance(new, list):
                self._lists(old, new)
            elif isinstance(new, int):
                self._gone += max(0, weight(old) - new)
            else:
                self.found = self.found or bool(old)
        elif isinstance(old, dict) and isinstance(new, dict):
            for key, child in old.items():
                if key in new:
                    self._compare(child, new[key])
                else:
                    self._drop(child)
        else:
            self._gone += max(0, weight(old) - weight(new))

    def _drop(self, part: Part) -> None:
        listed = isinstance(part, List) or (isinstance(part, Leaf) and is_array(part.enc))
        if listed or (isinstance(part, bytes) and is_array(part)):
            self.found = self.found or bool(self._open(part))
        else:
            self._gone += weight(part)

    def _open(self, part: Part) -> Part:
        """Look into a value, one level deep."""
        if isinstance(part, List):
            return self._items(part.runs)
        if isinstance(part, Map):
            return part.children
        enc = part.enc if isinstance(part, Leaf) else part
        if not isinstance(enc, bytes):
            return enc
        if is_ref(enc):
            return read_ref(enc).length
        if is_array(enc):
            return split_array(enc)
        if is_map(enc):
            return {key: enc[start:end] for key, (start, end) in split_map(enc, 0, len(enc)).items()}
        return enc

    def _lists(self, old: Sequence[bytes], new: Sequence[bytes]) -> None:
        """Compare two lists: between the items that stay, others may take the place of as many, not of more."""
        first = _alike(old, new)
        last = _alike(old[: first - len(old) - 1 : -1], new[: first - len(new) - 1 : -1])
        old, new = old[first : len(old) - last], new[first : len(new) - last]
        kept, still = _gaps(old, new), _gaps(new, old)
        if [enc for enc, _ in kept] != [enc for enc, _ in still]:  # what stays is in another order
            kept, still = [(b"", _lost(kept))], [(b"", _lost(still))]
        for (_, gone), (_, come) in zip(kept, still, strict=True):
            if len(gone) > len(come):
                self.found = True
            elif len(gone) == len(come):
                for before, after in zip(gone, come, strict=True):
                    self._compare(before, after)
            else:
                self._gone += max(0, weight(gone) - weight(come))


def weight(part: Part) -> int:
    """Return about how many encoded bytes a value stands for; a list node counts as much: its items are content."""
    if isinstance(part, int):
        return part
    if isinstance(part, bytes):
        return read_ref(part).length if is_ref(part) else len(part)
    if isinstance(part, Leaf):
        return weight(part.enc)
    if isinstance(part, List):
        return MUCH + 1 + part.count
    if isinstance(part, Map):
        return read_ref(part.ref).length if part.folded and part.ref is not None else weight(part.children)
    if isinstance(part, Mapping):
        return sum(weight(child) + len(key) + 1 for key, child in part.items())
    return sum(weight(child) for child in part)


def _fresh(raw: msgspec.Raw, logged: Logged) -> Part:
    """Return the value that a new node stands for."""
    kind, *rest = parts(raw)
    match _number(kind):
        case k if k == LEAF:
            return bytes(rest[0])
        case k if k == MAP:
            return {key: _fresh(child, logged) for key, child in _children(rest[0]).items()}
        case k if k == LIST:
            return logged.get(_number(rest[0]), (0, []))[1]
    return read_ref(_bytes(rest[0])).length


def _gaps(items: Iterable[bytes], others: Iterable[bytes]) -> list[tuple[bytes, list[bytes]]]:
    """Return the items that are among ``others`` too, each with those before it that are not; the end is an item."""
    left = Counter(others)
    found: list[tuple[bytes, list[bytes]]] = []
    lost: list[bytes] = []
    for enc in items:
        if left[enc] > 0:
            left[enc] -= 1
            found.append((enc, lost))
            lost = []
        else:
            lost.append(enc)
    return [*found, (b"", lost)]


def _lost(gaps: Iterable[tuple[bytes, list[bytes]]]) -> list[bytes]:
    return [enc for _, lost in gaps for enc in lost]


def _alike(a: Sequence[bytes], b: Sequence[bytes]) -> int:
    """Return how many items two sequences share at their start."""
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
