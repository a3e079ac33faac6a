"""The state root, recomputed from the items themselves: for a state that stands on bytes of another lineage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpstore.digest import Frontier
from cpstore.snapshot.shared import item_hash
from cpstore.snapshot.tree import List, Map, Node

if TYPE_CHECKING:
    from cpstore.snapshot.state import States
    from cpstore.snapshot.tree import Tree


def root(states: States, tree: Tree) -> bytes:
    """Return the root (32 bytes) of a tree that was rebuilt to be read, with every list hashed anew."""
    _hash(states, tree, tree.root)
    return tree.digest


def _hash(states: States, tree: Tree, node: Node) -> None:
    if isinstance(node, List):
        node.frontier = Frontier()
        for item in states.items(tree, node.runs):
            node.frontier.append(item_hash(item))
    elif isinstance(node, Map) and not node.folded:
        for child in node.children.values():
            _hash(states, tree, child)
