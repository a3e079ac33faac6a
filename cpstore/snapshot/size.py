"""How many bytes a state has when it is encoded: a bound that costs what was added, and the exact number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpstore.snapshot.delta import APPEND, PATCH, SET, SPLICE, read_change
from cpstore.snapshot.form import read_node
from cpstore.snapshot.shared import is_ref, read_ref
from cpstore.snapshot.tree import Leaf, List
from cpstore.snapshot.values import text_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import msgspec

    from cpstore.snapshot.delta import Logged
    from cpstore.snapshot.tree import Node, Run

HEADER = 5
"""Bytes that the header of a mapping, a list or a text has at most."""


def value_bytes(enc: bytes) -> int:
    """Return the size of a value, whether it stands here or is shared."""
    return read_ref(enc).length if is_ref(enc) else len(enc)


def logged_bytes(logged: Logged) -> int:
    """Return the size of list items."""
    return sum(value_bytes(enc) for _, encs in logged.values() for enc in encs)


def growth(changes: Iterable[bytes | msgspec.Raw], fetch: Callable[[bytes], bytes]) -> int | None:
    """Return what changes add to a state at most, the list items that were logged with them aside.

    None where items that a list had already stand in it more than once now: only they themselves tell their size.
    """
    total = 0
    for change in changes:
        kind, path, rest = read_change(change)
        total += 2 * HEADER + sum(map(text_size, path[-1:]))
        if kind == SET:
            total += node_bytes(read_node(rest[0], fetch), lambda _: [])
        elif kind == PATCH:
            total += len(bytes(rest[2]))
    return total


def node_bytes(node: Node, items: Callable[[Sequence[Run]], list[bytes]]) -> int:
    """Return the size of a node and all below it. ``items`` reads the items of a list."""
    if isinstance(node, Leaf):
        return value_bytes(node.enc)
    if isinstance(node, List):
        return HEADER + sum(map(value_bytes, items(node.runs)))
    if node.folded and node.ref is not None:
        return read_ref(node.ref).length
    return HEADER + sum(text_size(key) + node_bytes(child, items) for key, child in node.children.items())
