"""The writing end of one lineage's snapshots: what a commit adds, packed and ready to be signed.

A writer is process-private. It is valid while the last thing it prepared is the stream's last entry; after a
failed, refused or foreign row it is thrown away and rebuilt from the stored bytes.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

import attrs

from cpstore.digest import Frontier, leaf_hash
from cpstore.errors import CorruptError, InvalidStateError
from cpstore.snapshot import size
from cpstore.snapshot.delta import Applier
from cpstore.snapshot.draft import Draft
from cpstore.snapshot.edits import Editor
from cpstore.snapshot.form import NIL, array, pack, write_tree
from cpstore.snapshot.frames import MAX_STATE, TailEncoder, compress, decompress
from cpstore.snapshot.lookup import keys_at, value_at
from cpstore.snapshot.packs import NO_BLOCKS, BlocksDigest, segments_frontier
from cpstore.snapshot.records import ATTACHED, BARE, BASE, DELTA, OPENING, Segment, SegmentHead, segment_digest
from cpstore.snapshot.shape import Shape
from cpstore.snapshot.shared import FIRST_MIN, LATER_MIN, Ref, is_ref, item_hash, read_ref
from cpstore.snapshot.shrink import Shrinking
from cpstore.snapshot.tree import Leaf, List, Map, Node, Run, Tree, lists_of, places_of
from cpstore.snapshot.values import array_header, map_header
from cpstore.snapshot.whole import Kept, Whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cpstore.snapshot.delta import Logged
    from cpstore.snapshot.edits import Change
    from cpstore.snapshot.state import States

SEGMENT_RECORDS = 128
SEGMENT_BYTES = 512 << 10
BASE_MIN = 4096
"""Bytes of changes, or of the tree, below which a base is never worth waiting for."""
CHANGES_MAX = 2048
"""Bytes of changes beside which a base is put off, since it holds them a second time: ``PATIENCE`` times as long."""
PATIENCE = 4
PLACE_BYTES = 350
"""What a key of a mapping and the node under it hold in memory beside the encoded value, measured."""
COMPARED = 1024
"""Shared values that a writer remembers as compared: what it names by a frame is what it was given."""
CONTEXT_BYTES = 1_300_000
"""What an encoder and its decoder hold in memory, measured."""


@attrs.frozen
class Addition:
    """What an entry adds to its stream, before it is signed.

    ``state`` is the new state root, ``segments`` the Merkle root over the sealed segments and ``blocks`` the digest of
    the open one: the two that ``packs`` covers. Either ``block`` or ``segment`` is set: a block of the tail, or the
    segment that this entry closes. ``blobs`` are new shared values, content digest to frame.
    """

    seq: int
    state: bytes
    segments: bytes
    blocks: bytes
    block: bytes | None
    segment: Segment | None
    blobs: dict[bytes, bytes]


class _Open:
    """The segment that is being written: its records as they were, and what sealing needs of them."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.records: list[bytes] = []
        self.ops: list[bytes] = []
        self.items: Logged = {}
        self.size = 0
        self.blocks = BlocksDigest()

    def add(self, kind: int, payload: bytes, items: Logged) -> bytes:
        logs = [
            array(pack(lid), pack(first), array_header(len(encs)) + b"".join(encs))
            for lid, (first, encs) in items.items()
        ]
        record = array(pack(kind), payload, array(*logs))
        self.records.append(record)
        self.ops.append(array(pack(kind), payload))
        for lid, (first, encs) in items.items():
            self.items.setdefault(lid, (first, []))[1].extend(encs)
        self.size += len(record)
        return record


class SnapshotWriter:
    """Turns states and stated changes into additions, one after the other.

    ``read()`` opens the stream's states as they are stored now; it is asked for what memory does not hold.
    ``known(content)`` returns the frame that the namespace already has for a shared value, or None.
    """

    def __init__(
        self, tree: Tree, seq: int, read: Callable[[], States], known: Callable[[bytes], bytes | None]
    ) -> None:
        self.seq = seq
        self._applier = Applier(tree, self._unfold, self._hashes)
        self._read = read
        self._known = known
        self._kept = Kept()
        self._draft: Draft | None = None
        self._open = _Open(seq + 1)
        self._encoder: TailEncoder | None = None
        self._stored: list[bytes] = []
        self._frontier = Frontier()
        self._counted = True
        self._base = 0
        self._base_size = 0
        self._cost = 0
        self._due = True
        self._hashed = 0
        self._unfolded = 0
        self._places = 0
        self._blobs: dict[bytes, bytes] = {}
        self._compared: dict[bytes, bytes] = {}
        self.watched = False
        """Whether to look if changes take content away; ``shrunk`` then says so of the last addition."""
        self.shrunk = False

    @classmethod
    def start(
        cls, read: Callable[[], States], known: Callable[[bytes], bytes | None], tree: Tree | None = None
    ) -> SnapshotWriter:
        """Begin a new stream, empty or from a tree that a fork brings."""
        return cls(tree or Tree(), 0, read, known)

    @classmethod
    def reopen(cls, seq: int, read: Callable[[], States], known: Callable[[bytes], bytes | None]) -> SnapshotWriter:
        """Go on after the stream's last entry ``seq``."""
        states = read()
        source = states.own
        writer = cls(Tree(), seq, read, known)
        # The tree stays for later acts, in which ``states`` is closed: what is still folded is read by the writer.
        writer._applier.tree, base, cost = states.hashed(seq, writer._unfold)
        writer._open = _Open(source.open_first)
        writer._base, writer._cost = base, cost
        writer._weigh()
        writer._base_size, writer._due = states.base_size(base), base < source.open_first
        writer._frontier, writer._counted = segments_frontier(source.last), source.last is None
        for record in source.records(source.open_first, seq):
            writer._open.add(record.kind, bytes(record.payload), source.items_of(record.seq))
        writer._stored = [block for _, block in source.blocks]
        for block in writer._stored:
            writer._open.blocks.add(block)
        return writer

    @property
    def tree(self) -> Tree:
        """The state as it is after what was prepared last."""
        return self._applier.tree

    @property
    def weight(self) -> int:
        """Bytes of memory that keeping this writer costs, roughly."""
        tree = PLACE_BYTES * self._places + self._base_size + self._cost + self._unfolded + 64 * self._hashed
        return (CONTEXT_BYTES if self._encoder else 0) + self._kept.size + 3 * self._open.size + tree

    # --- what an entry can add -------------------------------------------------------------------------------

    def state(self, state: dict[str, Any], max_bytes: int) -> Addition:
        """Make ``state`` the next one, storing what differs.

        Raises InvalidStateError, also if it has more than ``max_bytes``; the writer is then to be thrown away.
        """
        draft = self._begin()
        whole = Whole(draft, self._kept, self._encoded)
        whole.differ(state)
        self.tree.size = whole.size
        self._check_size(max_bytes)
        return self._finish(DELTA, draft)

    def changes(self, changes: Sequence[Change], max_bytes: int = MAX_STATE) -> Addition:
        """Make the stated changes. Raises what ``state`` raises; the writer is then to be thrown away."""
        draft = self._begin()
        editor = Editor(draft, self._items, self._fetch)
        for change in changes:
            editor.apply(change)
        if draft.changes:
            self._kept.clear()
        if self.tree.size is not None:
            self.tree.size += size.stated(changes)
        if any(change.values for change in changes):  # what only takes away is always allowed
            self._check_size(max_bytes)
        return self._finish(DELTA, draft)

    def bare_base(self) -> Addition:
        """Write the tree as it is: the first entry of a fork."""
        return self._finish(DELTA, self._begin())

    def bare(self) -> Addition:
        """Add nothing to the state."""
        return self._finish(BARE, self._begin())

    def attach(self, encs: Sequence[bytes]) -> Addition:
        """Add nothing to the state, but keep encoded values beside it; large ones are shared."""
        draft = self._begin()
        return self._finish(ATTACHED, draft, array(*[self._share(enc) or enc for enc in encs]))

    def back(self, seq: int) -> Addition:
        """Make the tree that followed the earlier entry ``seq`` the state again."""
        tree, _, _ = self._read().hashed(seq, self._unfold)
        tree.lids = max(tree.lids, self.tree.lids)
        _detach(tree.root, 0)
        self._applier.tree = tree
        self._kept.clear()
        return self._finish(BASE, self._begin(), pack(seq))

    # --- what is in the state --------------------------------------------------------------------------------

    def value_at(self, tokens: Sequence[str]) -> Any:
        """Return a fresh copy of the value at a path, ``lookup.MISSING`` if there is none."""
        return value_at(self.tree, tokens, self._encoded)

    def keys_at(self, tokens: Sequence[str]) -> list[str]:
        """Return the keys of the mapping at a path."""
        return keys_at(self.tree, tokens, self._encoded)

    # --- what memory does not hold ---------------------------------------------------------------------------

    def _check_size(self, limit: int) -> None:
        """Refuse a state that is too large. Looked at as a whole only where the bound that is kept does not tell."""
        tree = self.tree
        if tree.size is None or tree.size > limit:
            tree.size = size.node_bytes(tree.root, self._items)
        if tree.size > limit:
            raise InvalidStateError(
                f"the state has {tree.size} encoded bytes, the limit is {limit}", advice="raise max_state_bytes"
            )

    def _begin(self) -> Draft:
        self._blobs = {}
        self._draft = Draft(self._applier, self.seq + 1, self._share, self._fetch)
        if self.watched:
            self._draft.shrinking = Shrinking(self._items)
        return self._draft

    def _fetch(self, enc: bytes) -> bytes:
        frame = self._blobs.get(read_ref(enc).content)
        return self._read().fetch(enc) if frame is None else decompress(frame)

    def _unfold(self, enc: bytes) -> bytes:
        """Read a shared mapping whose content the tree is going to hold."""
        plain = self._fetch(enc)
        self._unfolded += len(plain)
        self._places += Shape(plain).places(0, len(plain))
        return plain

    def _encoded(self, node: Node) -> bytes:
        """Return the encoding of a node that is not kept."""
        if isinstance(node, Leaf):
            return self._fetch(node.enc) if is_ref(node.enc) else node.enc
        if isinstance(node, List):
            items = [self._fetch(item) if is_ref(item) else item for item in self._items(node.runs)]
            return array_header(len(items)) + b"".join(items)
        if node.folded and node.ref is not None:
            return self._fetch(node.ref)
        below = [pack(key) + self._encoded(child) for key, child in node.children.items()]
        return map_header(len(below)) + b"".join(below)

    def _hashes(self, node: List) -> list[bytes]:
        self._hashed += node.count
        hashes = [item_hash(item) for item in self._items(node.runs)]
        self._read().mark(node)
        return hashes

    def _items(self, runs: Sequence[Run]) -> list[bytes]:
        """Return list items, from memory where they belong to the open segment or to the draft at hand."""
        found: list[bytes] = []
        states: States | None = None
        for run in runs:
            here = self._recent(run)
            stored = run.count - len(here)
            if stored:
                states = states or self._read()
                found += states.items(self.tree, [run.part(0, stored)])
            found += here
        return found

    def _recent(self, run: Run) -> list[bytes]:
        """Return the last items of a run that no sealed segment holds yet."""
        recent: list[bytes] = []
        end = run.start + run.count
        for logged in (self._open.items, self._draft.items if self._draft else {}):
            first, encs = logged.get(run.lid, (0, [])) if run.source == 0 else (0, [])
            recent += encs[max(0, run.start - first) : max(0, end - first)]
        return recent

    def _share(self, enc: bytes) -> bytes | None:
        if len(enc) < (LATER_MIN if self.seq else FIRST_MIN):
            return None
        content = leaf_hash(enc)
        named = self._compared.get(content)
        if named is None:
            frame = self._known(content)
            if frame is None:
                frame = self._blobs[content] = compress(enc)
            elif not _holds(frame, enc):
                return None  # what is stored there is not this value: it is not signed, and verify names it
            if len(self._compared) >= COMPARED:
                self._compared.clear()
            named = self._compared[content] = sha256(frame).digest()
        return Ref(content, named, len(enc)).encode()

    def _finish(self, kind: int, draft: Draft, payload: bytes = NIL) -> Addition:
        self.seq += 1
        changes = array(*draft.changes)
        payload = changes if kind == DELTA else payload
        self._due = self._due or not self._open.records
        if kind == BASE:
            payload = self._rebase(payload, write_tree(self.tree))
        elif self._base == 0 and kind == DELTA:
            kind, payload = BASE, self._rebase(array(), write_tree(self.tree))
        else:
            self._cost += len(payload)
            self._places += len(draft.changes)
            patience = 1 if len(changes) <= CHANGES_MAX else PATIENCE
            if kind == DELTA and self._wants_base(patience):
                base = write_tree(self.tree)
                self._base_size = len(base)
                if self._wants_base(patience):
                    kind, payload = BASE, self._rebase(changes, base)
        record = self._open.add(kind, payload, draft.items)
        if self.seq == 1:  # which keeps no changes: what was shared and replaced at once is not referred to
            self._blobs = {content: frame for content, frame in self._blobs.items() if content in record}
        self.shrunk = draft.shrinking is not None and draft.shrinking.found
        self._draft = None
        full = len(self._open.records) >= SEGMENT_RECORDS or self._open.size >= SEGMENT_BYTES
        block = None if full else self._block(record)
        segment = self._seal() if block is None else None
        return Addition(
            seq=self.seq,
            state=self.tree.digest,
            segments=self._frontier.root(),
            blocks=NO_BLOCKS if block is None else self._open.blocks.digest(),
            block=block,
            segment=segment,
            blobs=self._blobs,
        )

    def _wants_base(self, patience: int) -> bool:
        """A segment begins with a base where that is cheap; otherwise one comes when the changes outweigh it."""
        if patience == 1 and self._due and self._base_size <= max(BASE_MIN, self._cost):
            return True
        return self._cost >= patience * max(BASE_MIN, self._base_size)

    def _rebase(self, before: bytes, base: bytes) -> bytes:
        """Return the payload of a base; it keeps what led to it too, so that ``verify`` can follow."""
        self._base, self._base_size, self._cost, self._due = self.seq, len(base), 0, False
        self._weigh()
        return array(before, base)

    def _weigh(self) -> None:
        self._places = places_of(self.tree.root)
        self._hashed = sum(node.count for node in lists_of(self.tree.root) if node.leaves is not None)

    def _block(self, record: bytes) -> bytes | None:
        """Return the record's block, or None if this segment cannot be continued and has to be sealed."""
        if self._encoder is None:
            earlier = self._open.records[:-1]
            self._encoder = TailEncoder.resume(self._stored, earlier)
            self._stored = []
            if self._encoder is None:
                return None
        block = self._encoder.feed(record)
        self._open.blocks.add(block)
        return block

    def _seal(self) -> Segment:
        """Close the open segment with the entry that is being made."""
        open_ = self._open
        lists = {lid: array(*encs) for lid, (_, encs) in open_.items.items()}
        listed = [(lid, first, len(encs), len(lists[lid])) for lid, (first, encs) in open_.items.items()]
        content = pack(listed)
        ops = compress(array(*open_.ops))
        items = compress(b"".join(lists.values()))
        count = len(open_.records)
        digest = segment_digest(open_.first, count, self._base, content, ops, items)
        if not self._counted:  # only its root was vouched for so far, not how many segments it counts
            self._frontier, self._counted = self._read().own.frontier(), True
        self._frontier.append(digest)
        index, frontier = self._frontier.size - 1, self._frontier.pack()
        head = SegmentHead(open_.first, count, index, self._base, content, digest, frontier)
        self._open = _Open(self.seq + 1)
        self._cost += OPENING
        self._encoder = None
        self._stored = []
        return Segment(head, ops, items)


def _holds(frame: bytes, enc: bytes) -> bool:
    try:
        return decompress(frame, len(enc)) == enc  # no more is unpacked of what nobody has signed yet
    except CorruptError:
        return False


def detach(tree: Tree, name: str, incarnation: int) -> Tree:
    """Turn a tree of the stream ``name`` into one that another stream may go on from: it only refers to the items."""
    tree.sources.append((name, incarnation))
    _detach(tree.root, len(tree.sources))
    tree.lids = 0
    _drop_sources(tree)
    return tree


def _drop_sources(tree: Tree) -> None:
    """Forget the streams that no list reads any more: a fork of forks would carry the names of all of them."""
    lists = lists_of(tree.root)
    read = sorted({run.source for node in lists for run in node.runs})
    number = {source: at for at, source in enumerate(read, 1)}
    for node in lists:
        node.runs = [Run(number[run.source], run.lid, run.start, run.count, run.hint) for run in node.runs]
    tree.sources = [tree.sources[source - 1] for source in read]


def _detach(root: Map, source: int) -> None:
    for node in lists_of(root):
        for run in node.runs:
            run.source = run.source or source
        node.lid, node.total, node.marks = 0, 0, []
