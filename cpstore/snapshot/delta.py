"""Changes of a tree: written once, applied alike by the writer, a load and ``verify``. docs/format.md, "Changes".

A change is an array ``[kind, path, ...]``:

======== ================================ ==================================================================
kind     rest                             meaning
======== ================================ ==================================================================
0 set    node                             put a node at the path
1 delete                                  take the key away
2 splice at, removed, [insert, ...]       replace items of a list; an insert is a number of new items, or
                                          ``[from, count]`` of the list as it was
3 append count                            new items at the end of a list
4 patch  before, after, bytes             a leaf keeps its first and last bytes and exchanges the middle
======== ================================ ==================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from cpstore.digest import root_of
from cpstore.errors import CorruptError
from cpstore.snapshot.form import array, pack, parts, read_node
from cpstore.snapshot.leaves import Leaves
from cpstore.snapshot.shared import item_hash
from cpstore.snapshot.tree import Leaf, List, Map, Node, Run, Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

SET, DELETE, SPLICE, APPEND, PATCH = range(5)

_number = msgspec.msgpack.Decoder(int).decode
_path = msgspec.msgpack.Decoder(list[str]).decode
_inserts = msgspec.msgpack.Decoder(list[int | tuple[int, int]]).decode
_bytes = msgspec.msgpack.Decoder(bytes).decode


def set_(path: Sequence[str], node: bytes) -> bytes:
    """Put a node at the path."""
    return array(pack(SET), pack(path), node)


def delete(path: Sequence[str]) -> bytes:
    """Take the key away."""
    return array(pack(DELETE), pack(path))


def splice(path: Sequence[str], at: int, removed: int, inserts: Sequence[int | tuple[int, int]]) -> bytes:
    """Replace items of a list."""
    return pack((SPLICE, path, at, removed, inserts))


def append(path: Sequence[str], count: int) -> bytes:
    """Add new items at the end of a list."""
    return pack((APPEND, path, count))


def patch(path: Sequence[str], before: int, after: int, middle: bytes) -> bytes:
    """Exchange the middle of a leaf."""
    return pack((PATCH, path, before, after, middle))


Logged = dict[int, tuple[int, list[bytes]]]
"""New list items by item log: the number of the first, and their encodings."""


def fresh_hashes(logged: Logged, lid: int, start: int, count: int) -> list[bytes]:
    """Return the hashes of ``count`` items of a log from number ``start``. Raises CorruptError if they are missing."""
    first, items = logged.get(lid, (0, []))
    found = items[start - first : start - first + count] if start >= first else []
    if len(found) != count:
        raise CorruptError("a record announces more items than it holds")
    return [item_hash(item) for item in found]


def nodes_set(changes: Iterable[bytes | msgspec.Raw], fetch: Callable[[bytes], bytes]) -> list[Node]:
    """Return the nodes that changes, which could be applied, put into a tree."""
    split = [parts(change) for change in changes]
    return [read_node(rest[1], fetch) for kind, *rest in split if _number(kind) == SET]


class Applier:
    """Carries changes out on a tree.

    ``fetch`` reads shared values. ``hashes`` returns the hashes of all items of a list; it is asked when the middle
    of a list changes whose inner hashes nobody has kept. Without it nothing is hashed: enough for reading.
    """

    def __init__(
        self, tree: Tree, fetch: Callable[[bytes], bytes], hashes: Callable[[List], list[bytes]] | None = None
    ) -> None:
        self.tree = tree
        self._fetch = fetch
        self._hashes = hashes

    def apply(self, change: bytes | msgspec.Raw, seq: int, logged: Logged | None) -> None:
        """Carry out one change of the entry ``seq``. Raises CorruptError if it does not fit the tree."""
        try:
            kind, where, *rest = parts(change)
            path = _path(where)
            match _number(kind):
                case 0:
                    self._put(path, self._adopt(read_node(rest[0], self._fetch), logged))
                case 1:
                    self._put(path, None)
                case 2:
                    self._splice(path, _number(rest[0]), _number(rest[1]), _inserts(rest[2]), seq, logged)
                case 3:
                    self._splice(path, -1, 0, [_number(rest[0])], seq, logged)
                case 4:
                    before, after, middle = _number(rest[0]), _number(rest[1]), _bytes(rest[2])
                    self._patch(path, before, after, middle)
                case _:
                    raise CorruptError("unknown kind of change: written by a newer release, or damaged")
        except (msgspec.MsgspecError, ValueError, IndexError) as error:
            raise CorruptError(f"a stored change cannot be read: {error}") from error

    def _above(self, path: list[str]) -> Map:
        above = self.tree.find(path[:-1]) if path else None
        if not isinstance(above, Map):
            raise CorruptError("a stored change names a place that is not there")
        return above

    def _put(self, path: list[str], node: Node | None) -> None:
        above = self._above(path)
        if node is None:
            if path[-1] not in above.children:
                raise CorruptError("a stored change deletes what is not there")
            del above.children[path[-1]]
        else:
            above.children[path[-1]] = node
        self.tree.touch(path)

    def _adopt(self, node: Node, logged: Logged | None) -> Node:
        """Count the item logs that a new node brings, and check its claim on what they hold."""
        if isinstance(node, List):
            self.tree.lids = max(self.tree.lids, node.lid)
            if self._hashes is not None:
                new = logged or {}
                items = [item for run in node.runs for item in fresh_hashes(new, run.lid, run.start, run.count)]
                if node.frontier is None or node.frontier.root() != root_of(items):
                    raise CorruptError("a new list is not made of the items that were logged with it")
        elif isinstance(node, Map) and not node.folded and node.ref is None:
            for child in node.children.values():
                self._adopt(child, logged)
        return node

    def _splice(
        self,
        path: list[str],
        at: int,
        removed: int,
        inserts: Sequence[int | tuple[int, int]],
        seq: int,
        logged: Logged | None,
    ) -> None:
        target = self.tree.find(path)
        if not isinstance(target, List):
            raise CorruptError("a stored change of list items names a place without a list")
        at = target.count if at < 0 else at
        if at + removed > target.count or removed < 0:
            raise CorruptError("a stored change names items that the list has not")
        if target.lid == 0 and any(type(insert) is int for insert in inserts):
            self.tree.lids += 1
            target.lid = self.tree.lids
        tracked = self._hashes is not None
        known: list[bytes] = []
        if tracked and (at != target.count or removed) and target.leaves is None:
            known = self._hashes(target)  # type: ignore[misc]
            target.leaves = Leaves(known)
        runs: list[Run] = []
        hashes: list[bytes] = []
        for insert in inserts:
            if isinstance(insert, int):
                run = target.log(insert, seq)
                runs.append(run)
                if tracked:
                    hashes += fresh_hashes(logged or {}, run.lid, run.start, insert)
            else:
                start, count = insert
                if start + count > target.count:
                    raise CorruptError("a stored change keeps items that the list has not")
                runs += target.part(start, count)
                if tracked:
                    assert target.leaves is not None  # noqa: S101
                    hashes += target.leaves.part(start, count)
        target.splice(at, removed, runs, hashes if tracked else None)
        self.tree.touch(path)

    def _patch(self, path: list[str], before: int, after: int, middle: bytes) -> None:
        leaf = self.tree.find(path)
        if not isinstance(leaf, Leaf) or before + after > len(leaf.enc):
            raise CorruptError("a stored change of bytes does not fit the value")
        end = len(leaf.enc) - after
        self._put(path, Leaf(leaf.enc[:before] + middle + leaf.enc[end:]))
