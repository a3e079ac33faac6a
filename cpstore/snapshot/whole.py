"""A whole state compared with the one before, by encoded bytes that were kept, piece by piece.

Object identity proves nothing: a caller may have changed an old message in place. So everything is encoded again
and compared with the bytes of last time; large lists slice by slice, so that no second copy of the state is ever made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cpstore.errors import InvalidStateError
from cpstore.snapshot import pointer, values
from cpstore.snapshot.tree import Leaf, List, Map, Node
from cpstore.snapshot.values import array_count, array_header, map_header, split_array, text_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from cpstore.snapshot.draft import Draft

SLICE = 64
"""List items that are encoded and compared at a time."""
Path = tuple[str, ...]


class _Place:
    """What is kept of one place, and of those below it."""

    __slots__ = ("below", "enc", "size")

    def __init__(self) -> None:
        self.enc: bytearray | bytes | None = None
        self.size = 0
        self.below: dict[str, _Place] = {}

    def held(self) -> int:
        """Return the bytes that are kept of it and below."""
        return self.size + sum(place.held() for place in self.below.values())


class Kept:
    """The encodings of last time, by place: of a list node its items joined, of a mapping node all of it."""

    def __init__(self) -> None:
        self._top = _Place()
        self.size = 0
        """Bytes held."""

    def get(self, path: Path) -> bytearray | bytes | None:
        """Return what is kept of a place, None if it is not known any more."""
        here: _Place | None = self._top
        for key in path:
            if here is None:
                return None
            here = here.below.get(key)
        return None if here is None else here.enc

    def put(self, path: Path, enc: bytearray | bytes) -> None:
        """Keep the encoding of a place."""
        here = self._top
        for key in path:
            here = here.below.setdefault(key, _Place())
        self.size += len(enc) - here.size
        here.enc, here.size = enc, len(enc)

    def drop(self, path: Path) -> None:
        """Forget a place that changes, all places below it and all that contain it."""
        above = here = self._top
        for key in path:
            self.size -= here.size
            here.enc, here.size = None, 0
            if key not in here.below:
                return
            above, here = here, here.below[key]
        self.size -= here.held()
        if path:
            del above.below[path[-1]]
        else:
            self._top = _Place()

    def clear(self) -> None:
        """Forget everything."""
        self.drop(())


class Whole:
    """Finds what turns the tree into a given state. ``encoded(node)`` reads the encoding of a node that is not kept."""

    def __init__(self, draft: Draft, kept: Kept, encoded: Callable[[Node], bytes]) -> None:
        self.size = 0
        self._draft = draft
        self._kept = kept
        self._encoded = encoded

    def differ(self, state: dict[str, Any]) -> None:
        """Carry out all differences. Raises InvalidStateError; the tree is then half changed."""
        self._map((), self._draft.tree.root, state)

    def _any(self, path: Path, node: Node, value: Any) -> None:
        if isinstance(node, List) and type(value) is list:
            self._list(path, node, value)
        elif isinstance(node, Map) and type(value) is dict and not node.folded and _holds_lists(node):
            self._map(path, node, value)
        else:
            self._piece(path, node, value)

    def _map(self, path: Path, node: Map, value: dict[str, Any]) -> None:
        if len(path) >= values.MAX_DEPTH:
            raise InvalidStateError("nested too deeply, or a cycle", pointer.spell(path))
        self.size += len(map_header(len(value)))
        for key in value:
            self.size += text_size(values.check_key(key, path))
        for key in [key for key in node.children if key not in value]:
            self._kept.drop((*path, key))
            self._draft.drop((*path, key))
        for key, child in value.items():
            here = node.children.get(key)
            if here is None:
                enc = values.encode(child, pointer.spell((*path, key)))
                self.size += len(enc)
                self._kept.drop((*path, key))
                self._draft.put((*path, key), enc)
            else:
                self._any((*path, key), here, child)

    def _piece(self, path: Path, node: Node, value: Any) -> None:
        """Compare a value that is encoded as a whole."""
        enc = values.bytes_of(value, pointer.spell(path))
        self.size += len(enc)
        if not isinstance(node, Map):
            if not isinstance(node, Leaf) or node.enc != enc:
                values.check(value, pointer.spell(path))
            self._kept.drop(path)
            self._draft.put(path, enc)  # which compares
            return
        old = self._kept.get(path)
        old = self._encoded(node) if old is None else bytes(old)
        if old != enc:
            values.check(value, pointer.spell(path))
            self._kept.drop(path)
            self._draft.differ(list(path), (old, 0, len(old)), (enc, 0, len(enc)))
        self._kept.put(path, enc)

    def _list(self, path: Path, node: List, value: list[Any]) -> None:
        kept = self._kept.get(path)
        body = kept if isinstance(kept, bytearray) else bytearray(_body(self._encoded(node)))
        if len(value) >= node.count and self._begins(path, value, node.count, body):
            if len(value) > node.count:
                values.check(value[node.count :], pointer.spell(path))
                fresh = self._encode(path, value, node.count, len(value))
                items = split_array(fresh)
                self._kept.drop(path)
                self._draft.splice(path, node, node.count, 0, items)
                body += _body(fresh)
        else:
            old, enc = array_header(node.count) + body, values.encode(value, pointer.spell(path))
            self._kept.drop(path)
            self._draft.differ(list(path), (old, 0, len(old)), (enc, 0, len(enc)))
            body = bytearray(_body(enc))
        self.size += len(array_header(len(value))) + len(body)
        self._kept.put(path, body)

    def _begins(self, path: Path, value: list[Any], count: int, body: bytearray) -> bool:
        """Whether the first ``count`` items are the ones of last time."""
        at = 0
        for start in range(0, count, SLICE):
            part = _body(self._encode(path, value, start, min(start + SLICE, count)))
            if not body.startswith(part, at):
                return False
            at += len(part)
        return at == len(body)

    def _encode(self, path: Path, value: list[Any], start: int, stop: int) -> bytes:
        try:
            return values.bytes_of(value[start:stop])
        except InvalidStateError:
            values.encode(value, pointer.spell(path))  # raises again, naming the place in the whole list
            raise


def _body(enc: bytes) -> memoryview:
    return memoryview(enc)[array_count(enc)[1] :]


def _holds_lists(node: Map) -> bool:
    """Whether looking into a mapping pays: it has few children, and among them a list with an item log."""
    return len(node.children) <= SLICE and any(isinstance(child, List) for child in node.children.values())
