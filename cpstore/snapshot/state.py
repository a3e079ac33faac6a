"""States out of their bytes: the tree at a revision, its values, its encoding."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from cpstore.digest import leaf_hash
from cpstore.errors import CorruptError
from cpstore.snapshot import size
from cpstore.snapshot.delta import Applier
from cpstore.snapshot.form import parts, read_base, read_tree
from cpstore.snapshot.frames import decompress
from cpstore.snapshot.lookup import value_at
from cpstore.snapshot.plain import ROOM, ROOM_MANY
from cpstore.snapshot.records import ATTACHED, BASE, DELTA, OPENING
from cpstore.snapshot.shared import is_ref, item_hash, read_ref
from cpstore.snapshot.tree import Leaf, List, Map, Node, Run, Tree, lists_of
from cpstore.snapshot.values import array_header, decode, map_header, split_array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from cpstore.snapshot.delta import Logged
    from cpstore.snapshot.source import Source


class States:
    """Reads the states of one stream.

    ``foreign(name, incarnation)`` returns the authenticated source of another stream of the namespace;
    ``blob(content)`` the stored frame of a shared value, None if there is none.
    """

    def __init__(
        self, own: Source, foreign: Callable[[str, int], Source], blob: Callable[[bytes], bytes | None]
    ) -> None:
        self.own = own
        self._foreign = foreign
        self._blob = blob
        self._fetched: dict[bytes, bytes] = {}
        self._room = ROOM

    def fetch(self, enc: bytes) -> bytes:
        """Return the encoding of the shared value behind a reference. Raises CorruptError."""
        ref = read_ref(enc)
        if ref.content not in self._fetched:
            frame = self._blob(ref.content)
            if frame is None:
                raise CorruptError(f"{self.own.where}: the shared value {ref.content.hex()[:16]} is missing")
            if sha256(frame).digest() != ref.frame:
                raise CorruptError(f"{self.own.where}: the shared value {ref.content.hex()[:16]} is damaged")
            plain = decompress(frame)
            if len(plain) != ref.length or leaf_hash(plain) != ref.content:
                raise CorruptError(f"{self.own.where}: the shared value {ref.content.hex()[:16]} is another one")
            self._fetched[ref.content] = plain
        return self._fetched[ref.content]

    def tree(self, seq: int) -> Tree:
        """Return the tree after the entry ``seq``, to be read: its lists have no hashes."""
        applier: Applier | None = None
        for record in self.own.records(self.own.base(seq), seq):
            applier = self._follow(applier, record.kind, record.payload, record.seq)
        assert applier is not None  # noqa: S101
        return applier.tree

    def hashed(self, seq: int, fetch: Callable[[bytes], bytes] | None = None) -> tuple[Tree, int, int]:
        """Return the tree after the entry ``seq`` with the hashes of its lists, so that it can be changed.

        Also the seq of its base, and what reading on from there costs, in bytes of changes. A tree that outlives these
        states reads shared values later by ``fetch``.
        """
        fetch = fetch or self.fetch
        base = self.own.base(seq)
        logged = self.own.logged(base, seq)
        tree, cost = Tree(), 0
        for record in self.own.records(base, seq):
            if record.kind == BASE:
                tree, cost = read_tree(read_base(record.payload)[1], fetch), 0
            else:
                cost += len(bytes(record.payload))
                if record.kind == DELTA:
                    changes = parts(record.payload)
                    self._advance(tree, changes, record.seq, logged, fetch)
                    tree.size = size.stored(tree.size, changes, fetch)
        if base < self.own.open_first:
            cost += OPENING * len(self.own.heads(base, seq + 1))
        if tree.size is not None and seq > base:
            tree.size += size.logged(logged)
        return tree, base, cost

    def base_size(self, base: int) -> int:
        """Return the bytes of the tree that stands in a base."""
        (record,) = self.own.records(base, base)
        return len(bytes(read_base(record.payload)[1]))

    def advance(self, tree: Tree, changes: Iterable[bytes | msgspec.Raw], seq: int, logged: Logged) -> None:
        """Carry one entry's changes out on a tree that keeps its hashes."""
        self._advance(tree, changes, seq, logged, self.fetch)

    def _advance(
        self,
        tree: Tree,
        changes: Iterable[bytes | msgspec.Raw],
        seq: int,
        logged: Logged,
        fetch: Callable[[bytes], bytes],
    ) -> None:
        applier = Applier(tree, fetch, lambda node: self._hashes(tree, node))
        for change in changes:
            applier.apply(change, seq, logged)

    def _hashes(self, tree: Tree, node: List) -> list[bytes]:
        hashes = [item_hash(item) for item in self.items(tree, node.runs)]
        self.mark(node)
        return hashes

    def mark(self, node: List) -> None:
        """Tell a list, whose items were just read, where in the stream they are.

        The hints of its runs can then come nearer: a window that moves on is not looked for from where it began.
        """
        node.marks = sorted({*node.marks, *self.own.firsts(node.lid)})

    def _follow(self, applier: Applier | None, kind: int, payload: bytes | msgspec.Raw, seq: int) -> Applier:
        if kind == BASE:
            return Applier(read_tree(read_base(payload)[1], self.fetch), self.fetch)
        if applier is None:
            raise CorruptError(f"{self.own.where}: entry {seq} is not the base it is said to be")
        if kind == DELTA:
            for change in parts(payload):
                applier.apply(change, seq, None)
        return applier

    def attached(self, seq: int) -> list[bytes]:
        """Return the encodings of the values that the entry ``seq`` brought without putting them into the state."""
        (record,) = self.own.records(seq, seq)
        if record.kind != ATTACHED:
            raise CorruptError(f"{self.own.where}: entry {seq} has no values of its own")
        found = [bytes(value) for value in parts(record.payload)]
        return [self.fetch(value) if is_ref(value) else value for value in found]

    # --- values ----------------------------------------------------------------------------------------------

    def value(self, tree: Tree) -> dict[str, Any]:
        """Return the state as fresh Python values."""
        self._room = ROOM_MANY if len(lists_of(tree.root)) > 1 else ROOM
        return {key: self._value(tree, child) for key, child in tree.root.children.items()}

    def _value(self, tree: Tree, node: Node) -> Any:
        if isinstance(node, Leaf):
            return decode(node.enc, self._shared)
        if isinstance(node, Map):
            if node.folded and node.ref is not None:
                return self._shared(node.ref)
            return {key: self._value(tree, child) for key, child in node.children.items()}
        items: list[Any] = []
        for chunk in self._chunks(tree, node.runs):
            items += decode(chunk, self._shared)
        return items

    def value_at(self, tree: Tree, tokens: Sequence[str]) -> Any:
        """Return a fresh copy of the value at a path of a tree, ``lookup.MISSING`` if there is none."""
        return value_at(tree, tokens, lambda node: self.encoded(tree, node))

    def _shared(self, ref: bytes) -> Any:
        return decode(self.fetch(ref), self._shared)

    def _chunks(self, tree: Tree, runs: Iterable[Run]) -> Iterator[bytes]:
        sources: dict[int, Source] = {}
        for run in runs:
            source = sources.get(run.source)
            if source is None:
                source = self.own if run.source == 0 else self._foreign(*tree.sources[run.source - 1])
                source.hold(self._room)
                sources[run.source] = source
            yield from source.chunks(run.lid, run.start, run.count, run.hint)

    def items(self, tree: Tree, runs: Iterable[Run]) -> list[bytes]:
        """Return stored items, each its encoding or a reference."""
        found: list[bytes] = []
        for chunk in self._chunks(tree, runs):
            found += split_array(chunk)
        return found

    def encoded(self, tree: Tree, node: Node) -> bytes:
        """Return the encoding of a node and all below it, shared values included."""
        if isinstance(node, Leaf):
            return self.fetch(node.enc) if is_ref(node.enc) else node.enc
        if isinstance(node, List):
            items = [self.fetch(item) if is_ref(item) else item for item in self.items(tree, node.runs)]
            return array_header(len(items)) + b"".join(items)
        if node.folded and node.ref is not None:
            return self.fetch(node.ref)
        return map_header(len(node.children)) + b"".join(
            [_key(key) + self.encoded(tree, child) for key, child in node.children.items()]
        )


_key = msgspec.msgpack.Encoder().encode
