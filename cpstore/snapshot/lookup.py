"""One value out of a tree, without making the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cpstore.snapshot.tree import Map, Node, Tree
from cpstore.snapshot.values import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MISSING: Any = object()
"""Stands for a value that is not there, which None cannot."""


def value_at(tree: Tree, tokens: Sequence[str], encoded: Callable[[Node], bytes]) -> Any:
    """Return a fresh copy of the value at a path (the tokens of a JSON Pointer), ``MISSING`` if there is none.

    ``encoded`` reads the encoding of a node. A list item that is not the list's last is read with its whole list.
    """
    node: Node = tree.root
    for depth, token in enumerate(tokens):
        if not isinstance(node, Map):
            return _inside(decode(encoded(node)), tokens[depth:])
        child = node.children.get(token)
        if child is None:
            return MISSING
        node = child
    return decode(encoded(node))


def keys_at(tree: Tree, tokens: Sequence[str], encoded: Callable[[Node], bytes]) -> list[str]:
    """Return the keys of the mapping at a path, none if there is no mapping."""
    node: Node | None = tree.find(tokens)
    if isinstance(node, Map):
        return list(node.children)
    found = value_at(tree, tokens, encoded)
    return list(found) if type(found) is dict else []


def _inside(value: Any, tokens: Sequence[str]) -> Any:
    for token in tokens:
        if type(value) is dict and token in value:
            value = value[token]
        elif type(value) is list and token.isascii() and token.isdigit() and int(token) < len(value):
            value = value[int(token)]
        else:
            return MISSING
    return value
