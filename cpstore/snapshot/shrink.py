"""Whether changes take content away: what an agent's peers have to hear of, whatever the act is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from cpstore.snapshot.delta import DELETE, PATCH, SET, SPLICE
from cpstore.snapshot.form import parts
from cpstore.snapshot.shared import is_ref, read_ref
from cpstore.snapshot.tree import Leaf, List, Map, Node, Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cpstore.snapshot.delta import Logged
    from cpstore.snapshot.tree import Run

MUCH = 2048
"""Encoded bytes of a subtree that are worth telling when they go."""

_number = msgspec.msgpack.Decoder(int).decode
_path = msgspec.msgpack.Decoder(list[str]).decode
_inserts = msgspec.msgpack.Decoder(list[int | tuple[int, int]]).decode


class Shrinking:
    """Looks at each change before it is carried out. ``items(runs)`` returns the encodings of stored list items."""

    def __init__(self, items: Callable[[Sequence[Run]], list[bytes]]) -> None:
        self.found = False
        self._items = items

    def look(self, tree: Tree, change: bytes, logged: Logged) -> None:
        """Take a change in. It takes content away if items or more than ``MUCH`` bytes are not there afterwards."""
        kind, where, *rest = parts(change)
        node = tree.find(_path(where))
        if node is None or self.found:
            return
        match _number(kind):
            case k if k == DELETE:
                self.found = weight(node) > MUCH
            case k if k == SET:
                self.found = weight(node) - len(bytes(rest[0])) - _logged(logged) > MUCH
            case k if k == PATCH and isinstance(node, Leaf):
                before, after = _number(rest[0]), _number(rest[1])
                self.found = len(node.enc) - before - after - len(bytes(rest[2])) > MUCH
            case k if k == SPLICE and isinstance(node, List):
                self.found = self._spliced(node, _number(rest[0]), _number(rest[1]), _inserts(rest[2]), logged)

    def _spliced(
        self, node: List, at: int, removed: int, inserts: Sequence[int | tuple[int, int]], logged: Logged
    ) -> bool:
        come = sum(insert if isinstance(insert, int) else insert[1] for insert in inserts)
        if removed > come:
            return True
        if not removed:
            return False
        gone = sum(map(_length, self._items(node.part(at, removed))))
        back = sum(
            sum(map(_length, self._items(node.part(*insert)))) for insert in inserts if not isinstance(insert, int)
        )
        fresh = sum(insert for insert in inserts if isinstance(insert, int))
        new = sum(map(_length, logged.get(node.lid, (0, []))[1][-fresh:])) if fresh else 0
        return gone - back - new > MUCH


def weight(node: Node) -> int:
    """Return about how many encoded bytes a node stands for; a list counts as much, since its items are the content."""
    if isinstance(node, Leaf):
        return _length(node.enc)
    if isinstance(node, List):
        return MUCH + 1 + node.count
    if isinstance(node, Map) and node.folded and node.ref is not None:
        return read_ref(node.ref).length
    return sum(weight(child) + len(key) + 1 for key, child in node.children.items())


def _length(enc: bytes) -> int:
    return read_ref(enc).length if is_ref(enc) else len(enc)


def _logged(logged: Logged) -> int:
    return sum(sum(map(_length, items)) for _, items in logged.values())
