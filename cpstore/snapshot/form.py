"""Tree nodes to bytes and back: docs/format.md, "Nodes"."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from cpstore.digest import Frontier
from cpstore.errors import CorruptError
from cpstore.snapshot.tree import SPLIT, Leaf, List, Map, Node, Run, Tree
from cpstore.snapshot.values import array_header, is_array, is_map, split_map

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LEAF, MAP, LIST, SHARED_MAP = range(4)
NIL = b"\xc0"

pack = msgspec.msgpack.Encoder().encode
parts = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_children = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode
_runs = msgspec.msgpack.Decoder(list[tuple[int, int, int, int, int]]).decode
_changes = msgspec.msgpack.Decoder(list[tuple[list[str], msgspec.Raw]]).decode
_number = msgspec.msgpack.Decoder(int).decode
_bytes = msgspec.msgpack.Decoder(bytes).decode


class _Head(msgspec.Struct, array_like=True, frozen=True):
    """What a base says of its tree. Bases of before the sizes were counted end with ``sources``."""

    lids: int
    sources: list[tuple[str, int]]
    size: int | None = None


_head = msgspec.msgpack.Decoder(_Head).decode

Fetch = "Callable[[bytes], bytes]"
"""Returns the encoding of the shared value behind an encoded reference."""


def array(*items: bytes) -> bytes:
    """Join encoded items to an encoded list."""
    return array_header(len(items)) + b"".join(items)


def write_tree(tree: Tree) -> bytes:
    """Return a tree as the base that later changes start from."""
    head = pack(_Head(tree.lids, tree.sources, tree.size))
    return array(head, write_node(tree.root))


def read_base(payload: bytes | msgspec.Raw) -> tuple[list[msgspec.Raw] | int, msgspec.Raw]:
    """Split a base's payload into what led to it and the tree. Raises CorruptError.

    What led to it are changes, or the seq of the earlier entry whose tree it brings back.
    """
    try:
        before, tree = parts(payload)
        return (parts(before) if is_array(bytes(before)) else _number(before)), tree
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptError(f"a stored base cannot be read: {error}") from error


def read_tree(data: bytes | msgspec.Raw, fetch: Callable[[bytes], bytes]) -> Tree:
    """Read what ``write_tree`` wrote. Raises CorruptError."""
    try:
        head, root = parts(data)
        known = _head(head)
        node = read_node(root, fetch)
    except (msgspec.MsgspecError, ValueError, IndexError) as error:
        raise CorruptError(f"a stored state tree cannot be read: {error}") from error
    if not isinstance(node, Map):
        raise CorruptError("a stored state is not a mapping")
    return Tree(node, known.lids, known.sources, known.size)


def write_node(node: Node) -> bytes:
    """Return one node and all below it."""
    if isinstance(node, Leaf):
        return array(pack(LEAF), node.enc)
    if isinstance(node, List):
        frontier = node.frontier.pack() if node.frontier is not None else b""
        runs = [run.fields() for run in node.runs]
        return array(pack(LIST), pack(node.lid), pack(node.total), pack(frontier), pack(runs))
    if node.ref is not None:
        changes = [array(pack(path), _write_at(node, path)) for path in node.changed()]
        return array(pack(SHARED_MAP), pack(node.ref), pack(node.stored_digest), array(*changes))
    return array(pack(MAP), _write_children(node))


def _write_children(node: Map) -> bytes:
    count = len(node.children)
    header = bytes((0x80 | count,)) if count < 16 else b"\xdf" + count.to_bytes(4, "big")
    return header + b"".join([pack(key) + write_node(child) for key, child in node.children.items()])


def _write_at(node: Map, path: Iterable[str]) -> bytes:
    child: Node | None = node
    for key in path:
        child = child.children.get(key) if isinstance(child, Map) else None
    return NIL if child is None else write_node(child)


def read_node(data: bytes | msgspec.Raw, fetch: Callable[[bytes], bytes]) -> Node:
    """Read one node; shared mappings stay folded."""
    kind, *rest = parts(data)
    match _number(kind):
        case 0:
            return Leaf(bytes(rest[0]))
        case 1:
            return Map({key: read_node(child, fetch) for key, child in _children(rest[0]).items()})
        case 2:
            runs = [Run(*fields) for fields in _runs(rest[3])]
            packed, count = _bytes(rest[2]), sum(run.count for run in runs)
            frontier = Frontier.unpack(count, packed) if packed or not count else None
            return List(_number(rest[0]), _number(rest[1]), runs, frontier)
        case 3:
            node = shared_map(_bytes(rest[0]), _bytes(rest[1]), fetch)
            for path, child in _changes(rest[2]):
                _place(node, path, None if bytes(child) == NIL else read_node(child, fetch))
            return node
    raise CorruptError("unknown kind of tree node: written by a newer release, or damaged")


def shared_map(ref: bytes, digest: bytes, fetch: Callable[[bytes], bytes]) -> Map:
    """Return the folded mapping behind a reference."""

    def unfold() -> dict[str, Node]:
        enc = fetch(ref)
        return plain_children(enc, 0, len(enc))

    return Map(None, ref, digest, unfold)


def plain_children(data: bytes, start: int, end: int) -> dict[str, Node]:
    """Split an encoded mapping into nodes; its lists stay leaves, since they have no item log."""
    return {key: plain_node(data, *span) for key, span in split_map(data, start, end).items()}


def plain_node(data: bytes, start: int, end: int) -> Node:
    """Return the node for an encoded value, without item logs."""
    if end - start >= SPLIT and is_map(data, start):
        return Map(plain_children(data, start, end))
    return Leaf(data[start:end])


def _place(node: Map, path: list[str], child: Node | None) -> None:
    above = node
    for key in path[:-1]:
        above.touch(key)
        below = above.children.get(key)
        if not isinstance(below, Map):
            raise CorruptError("a change of a shared value names a place that is not there")
        above = below
    above.touch(path[-1])
    if child is None:
        above.children.pop(path[-1], None)
    else:
        above.children[path[-1]] = child
    node.note(path)
