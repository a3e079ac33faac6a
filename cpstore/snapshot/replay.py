"""A stream's states one after the other, each with its root recomputed from the items themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpstore.digest import root_of
from cpstore.errors import CorruptError
from cpstore.snapshot.form import parts, read_base, read_tree
from cpstore.snapshot.records import BASE, DELTA, Record
from cpstore.snapshot.shared import item_hash
from cpstore.snapshot.tree import List, Map, Node, Tree

if TYPE_CHECKING:
    from cpstore.snapshot.delta import Logged
    from cpstore.snapshot.state import States


class Replay:
    """Follows one stream from its first entry. Holds one segment at a time."""

    def __init__(self, states: States) -> None:
        self.bytes = 0
        self._states = states
        self._tree: Tree | None = None
        self._records: dict[int, Record] = {}
        self._logged: Logged = {}

    def step(self, seq: int) -> bytes:
        """Carry out the record of the next entry and return the state root after it. Raises CorruptError."""
        if seq not in self._records:
            self._fill(seq)
        record = self._records.pop(seq)
        if record.kind == BASE:
            self._rebase(record)
        elif record.kind == DELTA and self._tree is not None:
            self._states.advance(self._tree, parts(record.payload), seq, self._logged)
        if self._tree is None:
            raise CorruptError(f"{self._states.own.where}: the first record is not a base")
        return self._tree.digest

    def _fill(self, seq: int) -> None:
        source = self._states.own
        source.drop_plain()
        end = source.segment_end(seq)
        self._records = {record.seq: record for record in source.records(seq, end - 1)}
        self._logged = source.logged(seq, end - 1)
        self.bytes += sum(len(bytes(record.payload)) for record in self._records.values())
        self.bytes += sum(len(item) for _, items in self._logged.values() for item in items)

    def _rebase(self, record: Record) -> None:
        """Take over a base, after its claims were compared with the tree so far or with the items themselves."""
        states = self._states
        changes, packed = read_base(record.payload)
        tree = read_tree(packed, states.fetch)
        if self._tree is not None:
            before, self._tree = self._tree, tree
            states.advance(before, changes, record.seq, self._logged)
            if tree.digest != before.digest or _runs(tree.root) != _runs(before.root):
                raise CorruptError(f"{states.own.where}: the base at entry {record.seq} is not what its changes make")
            return
        for node in _lists(tree.root):
            hashes = [item_hash(item) for item in states.items(tree, node.runs)]
            if node.frontier is None or root_of(hashes) != node.frontier.root():
                raise CorruptError(f"{states.own.where}: the base at entry {record.seq} is not made of its items")
        self._tree = tree


def _lists(node: Node) -> list[List]:
    if isinstance(node, List):
        return [node]
    if isinstance(node, Map):
        if node.folded:
            return []
        return [found for child in node.children.values() for found in _lists(child)]
    return []


def _runs(node: Node) -> list[list[list[int]]]:
    """What lists are made of, hints aside."""
    return sorted([run.fields()[:4] for run in found.runs] for found in _lists(node))
