"""Changes stated by path: append, set, delete, splice. Their values are encoded when they are stated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from cpstore.errors import InvalidStateError
from cpstore.snapshot import pointer
from cpstore.snapshot.shared import is_ref
from cpstore.snapshot.tree import Leaf, List, Map, Node, Run
from cpstore.snapshot.values import array_count, array_header, bytes_of, decode, is_array

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cpstore.snapshot.draft import Draft


@attrs.frozen
class Change:
    """One stated change: a verb, the place, and the encoded values."""

    verb: str
    tokens: tuple[str, ...]
    values: tuple[bytes, ...] = ()
    start: int = 0
    stop: int = 0

    @property
    def path(self) -> str:
        """The place as a JSON Pointer."""
        return pointer.spell(self.tokens)


class Editor:
    """Carries stated changes out on a draft.

    ``items(runs)`` returns stored list items, ``fetch`` the encoding behind a reference.
    """

    def __init__(
        self, draft: Draft, items: Callable[[Sequence[Run]], list[bytes]], fetch: Callable[[bytes], bytes]
    ) -> None:
        self._draft = draft
        self._items = items
        self._fetch = fetch

    def apply(self, change: Change) -> None:
        """Carry out one change. Raises InvalidStateError, naming the place, if the state has no such place."""
        node, depth = self._walk(change.tokens)
        rest = change.tokens[depth:]
        if isinstance(node, List):
            self._in_list(node, change, depth)
        elif isinstance(node, Leaf):
            self._in_leaf(node, change, depth)
        elif (change.verb == "set" and len(rest) == 1) or (change.verb == "set" and not rest and change.tokens):
            self._draft.put(change.tokens, change.values[0])
        elif change.verb == "delete" and not rest and change.tokens:
            self._draft.drop(change.tokens)
        elif rest:
            raise InvalidStateError(f"the state has no {pointer.spell(change.tokens[: depth + 1])}", change.path)
        else:
            raise InvalidStateError(f"{change.verb} does not fit a mapping here", change.path)

    def _walk(self, tokens: Sequence[str]) -> tuple[Node, int]:
        """Follow a path as far as there are nodes."""
        node: Node = self._draft.tree.root
        for depth, key in enumerate(tokens):
            child = node.children.get(key) if isinstance(node, Map) else None
            if child is None:
                return node, depth
            node = child
        return node, len(tokens)

    def _in_list(self, node: List, change: Change, depth: int) -> None:
        where, rest = change.tokens[:depth], change.tokens[depth:]
        if not rest:
            if change.verb == "append":
                self._draft.splice(where, node, node.count, 0, change.values)
            elif change.verb == "splice":
                start, stop = _bounds(change, node.count)
                self._draft.splice(where, node, start, stop - start, change.values)
            elif change.verb == "delete":
                self._draft.drop(where)
            else:
                self._draft.put(where, change.values[0])
            return
        at = pointer.index(rest[0], node.count, change.path)
        if len(rest) > 1 or change.verb in ("append", "splice"):
            (item,) = self._items(node.part(at, 1))
            self._draft.splice(where, node, at, 1, [self._inside(item, change, depth + 1)])
        else:
            self._draft.splice(where, node, at, 1, change.values)

    def _in_leaf(self, leaf: Leaf, change: Change, depth: int) -> None:
        where, rest = change.tokens[:depth], change.tokens[depth:]
        if not rest and change.verb == "set":
            self._draft.put(where, change.values[0])
        elif not rest and change.verb == "delete":
            self._draft.drop(where)
        elif not rest and change.verb == "append" and not is_ref(leaf.enc) and is_array(leaf.enc):
            count, header = array_count(leaf.enc)
            body = leaf.enc[header:] + b"".join(change.values)
            self._draft.put(where, array_header(count + len(change.values)) + body)
        else:
            self._draft.put(where, self._inside(leaf.enc, change, depth))

    def _inside(self, enc: bytes, change: Change, depth: int) -> bytes:
        whole = decode(self._fetch(enc) if is_ref(enc) else enc, lambda ref: decode(self._fetch(ref)))
        return bytes_of(_mutate(whole, change.tokens[depth:], change), pointer.spell(change.tokens[:depth]))


def _bounds(change: Change, count: int) -> tuple[int, int]:
    if not 0 <= change.start <= change.stop <= count:
        raise InvalidStateError(f"the list has {count} items, not {change.start}..{change.stop}", change.path)
    return change.start, change.stop


def _mutate(value: Any, tokens: Sequence[str], change: Change) -> Any:
    """Carry a change out inside a plain value."""
    if tokens:
        return _descend(value, tokens, change)
    if change.verb == "set":
        return decode(change.values[0])
    if type(value) is not list:
        raise InvalidStateError(f"{change.verb} needs a list, here is {type(value).__name__}", change.path)
    items = [decode(enc) for enc in change.values]
    start, stop = (len(value), len(value)) if change.verb == "append" else _bounds(change, len(value))
    value[start:stop] = items
    return value


def _descend(value: Any, tokens: Sequence[str], change: Change) -> Any:
    token, last = tokens[0], len(tokens) == 1
    key: str | int = token
    if type(value) is list:
        key = pointer.index(token, len(value), change.path)
    elif type(value) is not dict:
        raise InvalidStateError(f"there is a {type(value).__name__} above it", change.path)
    elif token not in value and not (last and change.verb == "set"):
        raise InvalidStateError(f"the state has no key {token!r} there", change.path)
    if last and change.verb == "delete":
        del value[key]
    elif last and change.verb == "set":
        value[key] = decode(change.values[0])
    else:
        value[key] = _mutate(value[key], tokens[1:], change)
    return value
