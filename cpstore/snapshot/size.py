"""How many bytes a state has when it is encoded: a bound that costs what was added, and the exact number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from cpstore.snapshot.delta import PATCH, SET, SPLICE
from cpstore.snapshot.form import parts, read_node
from cpstore.snapshot.shared import is_ref, read_ref
from cpstore.snapshot.tree import Leaf, List
from cpstore.snapshot.values import array_header, map_header, text_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cpstore.snapshot.delta import Logged
    from cpstore.snapshot.edits import Change
    from cpstore.snapshot.tree import Node, Run

HEADER = 5
"""Bytes that the header of a mapping or list has at most: how much an addition can lengthen it."""

_number = msgspec.msgpack.Decoder(int).decode
_path = msgspec.msgpack.Decoder(list[str]).decode
_inserts = msgspec.msgpack.Decoder(list[int | tuple[int, int]]).decode


def node_bytes(node: Node, items: Callable[[Sequence[Run]], list[bytes]]) -> int:
    """Return the size of a node and all below it. ``items`` reads the items of a list."""
    if isinstance(node, Leaf):
        return _value_bytes(node.enc)
    if isinstance(node, List):
        return len(array_header(node.count)) + sum(map(_value_bytes, items(node.runs)))
    if node.folded and node.ref is not None:
        return read_ref(node.ref).length
    below = sum(text_size(key) + node_bytes(child, items) for key, child in node.children.items())
    return len(map_header(len(node.children))) + below


def stated(changes: Iterable[Change]) -> int:
    """Return what changes stated by path add to a state at most."""
    return sum(HEADER + sum(map(text_size, one.tokens[-1:])) + sum(map(len, one.values)) for one in changes)


def stored(size: int | None, changes: Iterable[bytes | msgspec.Raw], fetch: Callable[[bytes], bytes]) -> int | None:
    """Return what a state of at most ``size`` bytes has at most after stored changes, logged items not counted.

    None where items that a list had already may now stand in it more than once: only they tell their size.
    """
    for change in changes:
        kind, where, *rest = parts(change)
        if size is None:
            return None
        size += HEADER + sum(map(text_size, _path(where)[-1:]))
        match _number(kind):
            case k if k == SET:
                size += node_bytes(read_node(rest[0], fetch), lambda _: [])
            case k if k == PATCH:
                size += len(bytes(rest[2]))
            case k if k == SPLICE and not all(isinstance(insert, int) for insert in _inserts(rest[2])):
                size = None
    return size


def logged(items: Logged) -> int:
    """Return the size of list items."""
    return sum(_value_bytes(enc) for _, encs in items.values() for enc in encs)


def _value_bytes(enc: bytes) -> int:
    return read_ref(enc).length if is_ref(enc) else len(enc)
