"""Verify: recompute everything from the stored bytes, and name what does not agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cpstore.audit.effects import Families, values_of
from cpstore.audit.entries import Entries
from cpstore.audit.ledgers import LedgerEntries, check_memberships
from cpstore.audit.report import Findings, Report, ranges
from cpstore.digest import Frontier, digest, leaf_hash
from cpstore.errors import CheckpointStoreError, CorruptError, HostLimitError, SignatureError
from cpstore.journal import Reading
from cpstore.model.entry import Entry, Kind, StreamId, StreamKind, link_of
from cpstore.model.fork import Citation
from cpstore.signing.note import open_head
from cpstore.snapshot.frames import decompress
from cpstore.snapshot.packs import BlocksDigest, packs, segments_frontier, segments_root
from cpstore.snapshot.replay import Replay

if TYPE_CHECKING:
    from collections.abc import Callable

    from cpstore.journal import Journal
    from cpstore.model.ledger import Member
    from cpstore.snapshot.records import SegmentHead
    from cpstore.snapshot.shared import Ref
    from cpstore.snapshot.source import Source


class Audit:
    """One pass over a store."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._findings = Findings()
        self._families = Families(journal, self._findings)
        self._leaves: dict[int, bytes] = {}
        self._ledgers: dict[StreamId, dict[str, Member]] = {}
        self._refs: dict[str, dict[Ref, tuple[StreamId, int]]] = {}
        self._unfollowed: set[StreamId] = set()
        self._citations: list[tuple[Entry, Any]] = []
        self._entries = 0
        self._bytes = 0
        self._progress: Callable[[int, int], None] | None = None
        self._raised: CheckpointStoreError | None = None
        self._total = 0

    def run(self, progress: Callable[[int, int], None] | None = None) -> Report:
        """Look at every stream, the log, the notes and the shared values."""
        self._progress = progress
        with Reading(self._journal, "") as reading:
            tx = reading.tx
            for text in tx.integrity():
                self._findings.add(
                    "engine", f"SQLite finds: {text}", "restore from a backup, or salvage what still verifies"
                )
            self._guard(None, lambda: self._schema(tx))
            self._total, packed = tx.log()
            streams = [found for kind in StreamKind for found in tx.streams(kind)]
            namespaces = sorted({stream.namespace for _, stream in streams})
            for number, stream in streams:
                self._guard(stream, lambda number=number, stream=stream: self._stream(tx, number, stream))  # type: ignore[misc]
            self._guard(None, lambda: self._families.check(tx))
            for ledger, members in self._ledgers.items():
                self._guard(ledger, lambda: check_memberships(tx, ledger, members, self._findings))  # noqa: B023 - at once
            self._guard(None, lambda: self._log(tx, packed))
            for namespace in namespaces:
                self._guard(None, lambda namespace=namespace: self._blobs(tx, namespace))  # type: ignore[misc]
            for entry, parent in self._citations:
                self._guard(entry.stream, lambda entry=entry, parent=parent: self._parent(tx, entry, parent))  # type: ignore[misc]
            self._guard(None, lambda: self._strays(tx, {number for number, _ in streams}))
        return Report(
            origin=self._journal.origin,
            findings=tuple(self._findings.all),
            lineages=sum(stream.kind is StreamKind.LINEAGE for _, stream in streams),
            entries=self._entries,
            bytes=self._bytes,
            size=self._total,
            root=self._root.hex(),
            engine=self._journal.backend.engine,
        )

    _root = b""

    def _guard(self, stream: StreamId | None, look: Callable[[], None]) -> None:
        """Turn what stops the look at one part into a finding, and go on with the next."""
        try:
            look()
        except HostLimitError:
            raise  # this process falls short, the store does not
        except CheckpointStoreError as error:
            if error is self._raised:
                raise
            self._findings.add(
                "unreadable", str(error), "restore from a backup, or salvage what still verifies", stream
            )

    # --- one stream ------------------------------------------------------------------------------------------

    def _stream(self, tx: Any, number: int, stream: StreamId) -> None:
        self._unfollowed.add(stream)
        entries = Entries(self._journal, tx, number, stream, self._findings, self._see)
        last = entries.check()
        self._citations += entries.citations
        for entry in entries.walk():
            self._guard(stream, lambda entry=entry: self._families.see(number, entry))  # type: ignore[misc]
        if last is None:
            self._findings.add("empty-stream", f"{stream} has no entries", "its entries were removed", stream)
            return
        with Reading(self._journal, stream.namespace, tx, anew=True) as reading:
            source = self._bytes_of(reading, entries, last)
            if source is not None:
                self._states(reading, source, entries)

    def _bytes_of(self, reading: Reading, entries: Entries, last: Entry) -> Source | None:
        """Compare a stream's stored bytes with its newest signature; where they differ, say from which entry on."""
        try:
            source = reading.source(entries.stream)
        except SignatureError:
            return None  # reported with the entries
        except CorruptError as error:
            self._locate(reading, entries, last, str(error))
            return None
        self._frontiers(reading, entries)
        return source

    def _frontiers(self, reading: Reading, entries: Entries) -> None:
        """Compare what each segment says of those before it, which a load of an older revision starts from."""
        frontier = Frontier()
        for head in reading.tx.segments(entries.number, 0):
            frontier.append(head.digest)
            if (head.index, head.frontier) != (frontier.size - 1, frontier.pack()):
                revisions = sorted({entries.revision_of(seq) for seq in range(head.first, head.end)})
                self._findings.add(
                    "damaged-bytes",
                    f"{entries.stream}: the segment from entry {head.first} on misstates those before it",
                    f"loads do without it; the row of revisions {ranges(revisions)} was altered: restore from a backup",
                    entries.stream,
                    revisions,
                )

    def _locate(self, reading: Reading, entries: Entries, last: Entry, problem: str) -> None:
        """Find the entries whose bytes are damaged: segment by segment, then block by block."""
        tx, number, stream = reading.tx, entries.number, entries.stream
        damaged: set[int] = set()
        heads = tx.segments(number, 0)
        frontier = Frontier()
        at = 1
        for head in heads:
            segment = tx.segment(number, head.first)
            closing = tx.entry(number, head.end - 1)
            before = tx.entry(number, head.end - 2) if head.end > 2 else None
            good = segment is not None and head.first == at and head.index == frontier.size
            if good and segment is not None and closing is not None:
                frontier.append(segment.recompute())
                signed = packs(link_of(before), closing.time, frontier.root(), BlocksDigest().digest())
                good = signed == closing.packs
            # Nothing vouches for the numbers of a damaged segment: they must not decide how long this takes.
            end = min(max(head.end, at), last.seq + 1)
            if not good:
                damaged.update(range(at, end))
                frontier = _frontier_of(head)
            at = end
        blocks = BlocksDigest()
        tail = dict(tx.tail(number))
        root = _frontier_of(heads[-1]).root() if heads else segments_root(None)
        broken = False
        for seq in range(at, last.seq + 1):
            block, entry = tail.get(seq), tx.entry(number, seq)
            before = tx.entry(number, seq - 1) if seq > 1 else None
            if block is not None:
                blocks.add(block)
            if (
                block is None
                or entry is None
                or packs(link_of(before), entry.time, root, blocks.digest()) != entry.packs
            ):
                broken = True
            if broken:
                damaged.add(seq)
        revisions = sorted({entries.revision_of(seq) for seq in damaged}) or [last.revision]
        self._findings.add(
            "damaged-bytes",
            f"{stream}: {problem}",
            f"revisions {ranges(revisions)} cannot be trusted; the last good one before them is "
            f"{revisions[0] - 1 or 'none'}; restore from a backup, or salvage the others",
            stream,
            revisions,
        )

    def _states(self, reading: Reading, source: Source, entries: Entries) -> None:
        """Replay a stream's changes and compare every state root with the signed one."""
        replay = Replay(reading.states(entries.stream))
        try:
            self._follow(replay, source, entries)
            for entry in entries.walk():
                if entry.kind is Kind.EFFECT:
                    self._guard(entries.stream, lambda entry=entry: values_of(reading, entry))  # type: ignore[misc]
        finally:
            known = self._refs.setdefault(entries.stream.namespace, {})
            for ref, seq in replay.refs.items():
                known.setdefault(ref, (entries.stream, entries.revision_of(seq)))

    def _follow(self, replay: Replay, source: Source, entries: Entries) -> None:
        ledger = LedgerEntries(entries.stream, replay.states) if entries.stream.kind is StreamKind.LEDGER else None
        for entry in entries.walk():
            try:
                root = replay.step(entry.seq)
                if ledger is not None:
                    ledger.see(entry, replay.tree)
            except CorruptError as error:
                later = sorted({entries.revision_of(seq) for seq in range(entry.seq, source.end)})
                self._findings.add("damaged-state", str(error), "restore from a backup", entries.stream, later)
                return
            if root != entry.state:
                self._findings.add(
                    "wrong-state",
                    f"{entries.stream}@{entry.revision}: its bytes make another state than was signed",
                    "the file was altered by somebody who has the keys, or a release was faulty; restore from a backup",
                    entries.stream,
                    (entry.revision,),
                )
                return
        self._bytes += replay.bytes
        self._unfollowed.discard(entries.stream)
        if ledger is not None:
            self._guard(entries.stream, lambda: ledger.finish(replay.tree))
            self._ledgers[entries.stream] = ledger.members

    # --- the log ---------------------------------------------------------------------------------------------

    def _log(self, tx: Any, packed: bytes) -> None:
        frontier = Frontier()
        notes = dict(tx.notes())
        for leaf in range(len(self._leaves)):
            if leaf not in self._leaves:
                self._findings.add(
                    "log-gap", f"the log has no entry {leaf} although it has later ones", "an entry was removed"
                )
                return
            if leaf in notes:
                self._note(notes.pop(leaf), leaf, frontier.root())
            frontier.append(self._leaves[leaf])
        self._root = frontier.root()
        if frontier.size in notes:
            self._note(notes.pop(frontier.size), frontier.size, frontier.root())
        for size in notes:
            self._findings.add(
                "truncated",
                f"a signed head counts {size} entries, the log has {frontier.size}",
                "entries at the end were removed; restore from a backup",
            )
        if (frontier.size, frontier.pack()) != (self._total, packed):
            self._findings.add(
                "log-cache",
                f"the stored log ({self._total} entries) is not the one of the entries ({frontier.size})",
                "the file was altered, or entries were removed",
            )

    def _note(self, text: bytes, size: int, root: bytes) -> None:
        try:
            head = open_head(text, self._journal.keyring, self._journal.origin)
        except (CorruptError, SignatureError) as error:
            advice = "no entry needs it, but it cannot show any more whether later ones are missing"
            self._findings.add("damaged-note", f"the head note of {size} entries: {error}", advice)
            return
        if (head.size, head.root) != (size, root):
            self._findings.add(
                "log-fork",
                f"the head signed at {size} entries has another root than the entries have",
                "the history before it was rewritten",
            )

    def _blobs(self, tx: Any, namespace: str) -> None:
        """Compare the shared values of a namespace with their names and with what the signed references say of them."""
        frames: dict[bytes, bytes] = {}
        known = self._refs.get(namespace, {})
        signed = {(ref.content, ref.frame): ref.length for ref in known}
        contents = {ref.content for ref in known}
        complete = all(stream.namespace != namespace for stream in self._unfollowed)
        for content, frame in tx.blobs(namespace):
            frames[content] = digest(frame)
            self._bytes += len(frame)
            length = signed.get((content, frames[content]))
            if length is None and content not in contents:
                if complete:  # else it may belong to what could not be read, which is reported
                    text = f"the shared value {content.hex()[:16]} of namespace {namespace!r} belongs to no revision"
                    self._findings.add("damaged-shared", text, "it was put into the file, and no load reads it")
            elif length is not None and not _is(frame, content, length):
                self._shared(f"the shared value {content.hex()[:16]} of namespace {namespace!r} is damaged")
        for ref, (stream, revision) in self._refs.get(namespace, {}).items():
            if frames.get(ref.content) != ref.frame:
                what = "is not the one that was signed" if ref.content in frames else "is missing"
                text = (
                    f"the shared value {ref.content.hex()[:16]}, which {stream}@{revision} is the first to hold, {what}"
                )
                self._shared(text, stream, (revision,))

    def _shared(self, text: str, stream: StreamId | None = None, revisions: tuple[int, ...] = ()) -> None:
        advice = "the revisions that refer to it cannot be loaded; restore from a backup"
        self._findings.add("damaged-shared", text, advice, stream, revisions)

    def _parent(self, tx: Any, fork: Entry, parent: Any) -> None:
        """Compare what a fork cites with the entry that is there."""
        cited = Citation.from_value(parent)
        number = tx.stream(StreamId(fork.stream.namespace, StreamKind.LINEAGE, cited.lineage))
        entry = None if number is None else tx.revision(number, cited.revision)
        before = None if entry is None or entry.seq == 1 else tx.entry(number, entry.seq - 1)
        if entry is None or self._journal.digest(entry, link_of(before)).hex() != cited.entry:
            self._findings.add(
                "parent",
                f"{fork.stream} was forked from {cited.lineage}@{cited.revision}, which is not there as it was cited",
                "the parent was removed or replaced; the fork's older content may be lost",
                fork.stream,
                (1,),
            )

    def _schema(self, tx: Any) -> None:
        for text in tx.schema():
            advice = "what does not belong there can undo later commits; restore from a backup, or copy what verifies"
            self._findings.add("schema", f"in the schema, {text}", advice)

    def _strays(self, tx: Any, streams: set[int]) -> None:
        for text in tx.strays(streams):
            self._findings.add("stray", text, "rows that no signed entry accounts for were put into the file")

    def _see(self, entry: Entry, leaf: bytes) -> bool:
        """Count one more entry in and take its place in the log; False if that is another's."""
        self._entries += 1
        if self._progress is not None:
            try:
                self._progress(self._entries, self._total)
            except CheckpointStoreError as error:
                self._raised = error  # the caller's own: no finding
                raise
        return self._leaves.setdefault(entry.leaf, leaf) == leaf


def _is(frame: bytes, content: bytes, length: int) -> bool:
    """Whether a frame that somebody signed holds the value that it is named after."""
    try:
        plain = decompress(frame)
    except CorruptError:
        return False
    return len(plain) == length and leaf_hash(plain) == content


def _frontier_of(head: SegmentHead) -> Frontier:
    """Return a segment's frontier, or an empty one, which no later segment fits."""
    try:
        return segments_frontier(head)
    except CorruptError:
        return Frontier()
