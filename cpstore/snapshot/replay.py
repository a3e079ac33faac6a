"""A stream's states one after the other, each with its root recomputed from the items themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpstore.digest import root_of
from cpstore.errors import CorruptError
from cpstore.snapshot.delta import nodes_set
from cpstore.snapshot.form import parts, plain_children, read_base, read_tree
from cpstore.snapshot.records import ATTACHED, BASE, DELTA, Record
from cpstore.snapshot.shared import Ref, is_ref, item_hash, read_ref
from cpstore.snapshot.tree import Leaf, Map, Node, Tree, lists_of

if TYPE_CHECKING:
    import msgspec

    from cpstore.snapshot.delta import Logged
    from cpstore.snapshot.state import States


class Replay:
    """Follows one stream from its first entry. Holds one segment at a time."""

    def __init__(self, states: States) -> None:
        self.bytes = 0
        self.refs: dict[Ref, int] = {}
        """References to shared values, each with the entry that was the first to hold it."""
        self.states = states
        self._tree: Tree | None = None
        self._records: dict[int, Record] = {}
        self._logged: Logged = {}

    @property
    def tree(self) -> Tree:
        """The state after the entry that was followed last."""
        if self._tree is None:
            raise CorruptError(f"{self.states.own.where}: the first record is not a base")
        return self._tree

    def step(self, seq: int) -> bytes:
        """Carry out the record of the next entry and return the state root after it. Raises CorruptError."""
        if seq not in self._records:
            self._fill(seq)
        record = self._records.pop(seq)
        if record.kind == BASE:
            self._rebase(record)
        elif record.kind == DELTA and self._tree is not None:
            self._advance(self._tree, parts(record.payload), seq)
        elif record.kind == ATTACHED:
            for value in parts(record.payload):
                if is_ref(bytes(value)):
                    self.refs.setdefault(read_ref(bytes(value)), seq)
        if self._tree is None:
            raise CorruptError(f"{self.states.own.where}: the first record is not a base")
        return self._tree.digest

    def _fill(self, seq: int) -> None:
        source = self.states.own
        source.drop_plain()
        end = source.segment_end(seq)
        self._records = {record.seq: record for record in source.records(seq, end - 1)}
        self._logged = source.logged(seq, end - 1)
        self.bytes += sum(len(bytes(record.payload)) for record in self._records.values())
        for _, items in self._logged.values():
            self.bytes += sum(map(len, items))
            for item in items:
                if is_ref(item):
                    self.refs.setdefault(read_ref(item), seq)

    def _rebase(self, record: Record) -> None:
        """Take over a base, after its claims were compared with the tree so far or with the items themselves."""
        states = self.states
        changes, packed = read_base(record.payload)
        tree = read_tree(packed, states.fetch)
        self._refer(read_tree(packed, states.fetch).root, record.seq)
        if self._tree is not None:
            before, self._tree = self._tree, tree
            if isinstance(changes, int):
                before, _, _ = states.hashed(changes)
            else:
                self._advance(before, changes, record.seq)
            if tree.digest != before.digest or _runs(tree.root) != _runs(before.root):
                raise CorruptError(f"{states.own.where}: the base at entry {record.seq} is not what its changes make")
            return
        for node in lists_of(tree.root):
            hashes = [item_hash(item) for item in states.items(tree, node.runs)]
            if node.frontier is None or root_of(hashes) != node.frontier.root():
                raise CorruptError(f"{states.own.where}: the base at entry {record.seq} is not made of its items")
        self._tree = tree

    def _advance(self, tree: Tree, changes: list[msgspec.Raw], seq: int) -> None:
        self.states.advance(tree, changes, seq, self._logged)
        for node in nodes_set(changes, self.states.fetch):
            self._refer(node, seq)

    def _refer(self, node: Node, seq: int) -> None:
        """Note the shared values that a stored node refers to, and check what it says of their content."""
        if isinstance(node, Leaf):
            if is_ref(node.enc):
                self.refs.setdefault(read_ref(node.enc), seq)
        elif isinstance(node, Map):
            if node.ref is not None:
                ref = read_ref(node.ref)
                if ref not in self.refs:
                    self.refs[ref] = seq
                    enc = self.states.fetch(node.ref)
                    if Map(plain_children(enc, 0, len(enc))).digest != node.stored_digest:
                        raise CorruptError(f"{self.states.own.where}: entry {seq} shares another value than it says")
            if not node.folded:
                for child in node.children.values():
                    self._refer(child, seq)


def _runs(node: Node) -> list[list[list[int]]]:
    """What lists are made of, hints aside."""
    return sorted([run.fields()[:4] for run in found.runs] for found in lists_of(node))
