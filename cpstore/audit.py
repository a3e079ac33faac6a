"""Verify: recompute everything from the stored bytes, and name what does not agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import attrs

from cpstore.digest import Frontier, digest, leaf_hash
from cpstore.errors import CheckpointStoreError, CorruptError, SignatureError
from cpstore.journal import Reading
from cpstore.model.entry import Entry, StreamId, StreamKind, link_of
from cpstore.model.fork import Citation
from cpstore.model.glossary import Change, Glossary
from cpstore.rules.glossary import apply, in_force
from cpstore.signing.note import open_head
from cpstore.snapshot.frames import decompress
from cpstore.snapshot.packs import BlocksDigest, packs, segments_frontier, segments_root
from cpstore.snapshot.replay import Replay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cpstore.journal import Journal
    from cpstore.snapshot.records import SegmentHead
    from cpstore.snapshot.shared import Ref
    from cpstore.snapshot.source import Source

Severity = Literal["damage", "note"]
PAGE = 512
"""Entries that are held at once."""


@attrs.frozen
class Finding:
    """One thing that does not agree. ``revisions`` are those of ``lineage`` that it concerns."""

    id: str
    severity: Severity
    text: str
    advice: str
    namespace: str = ""
    lineage: str = ""
    revisions: tuple[int, ...] = ()

    def to_value(self) -> dict[str, Any]:
        """Return the finding in the JSON model."""
        return {**attrs.asdict(self), "revisions": list(self.revisions)}


@attrs.frozen
class Report:
    """What ``verify`` found, and how far it looked: counts of lineages, entries and bytes; the log's size and root."""

    origin: str
    findings: tuple[Finding, ...]
    lineages: int
    entries: int
    bytes: int
    size: int
    root: str
    engine: str

    @property
    def good(self) -> bool:
        """Whether nothing is damaged."""
        return not any(finding.severity == "damage" for finding in self.findings)

    def to_value(self) -> dict[str, Any]:
        """Return the report in the JSON model."""
        names = ("origin", "lineages", "entries", "bytes", "size", "root", "engine")
        value = {name: getattr(self, name) for name in names}
        return {**value, "good": self.good, "findings": [finding.to_value() for finding in self.findings]}


class Audit:
    """One pass over a store."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._findings: list[Finding] = []
        self._leaves: dict[int, bytes] = {}
        self._refs: dict[str, dict[Ref, tuple[StreamId, int]]] = {}
        self.citations: list[tuple[Entry, Any]] = []
        self._entries = 0
        self._bytes = 0
        self._progress: Callable[[int, int], None] | None = None
        self._total = 0

    def run(self, progress: Callable[[int, int], None] | None = None) -> Report:
        """Look at every stream, the log, the notes and the shared values."""
        self._progress = progress
        with Reading(self._journal, "") as reading:
            tx = reading.tx
            for text in tx.integrity():
                self._find("engine", f"SQLite finds: {text}", "restore from a backup, or salvage what still verifies")
            self._total, packed = tx.log()
            streams = [found for kind in StreamKind for found in tx.streams(kind)]
            namespaces = sorted({stream.namespace for _, stream in streams})
            for number, stream in streams:
                self._guard(stream, lambda number=number, stream=stream: self._stream(tx, number, stream))  # type: ignore[misc]
            self._guard(None, lambda: self._log(tx, packed))
            for namespace in namespaces:
                self._guard(None, lambda namespace=namespace: self._blobs(tx, namespace))  # type: ignore[misc]
            for entry, parent in self.citations:
                self._guard(entry.stream, lambda entry=entry, parent=parent: self._parent(tx, entry, parent))  # type: ignore[misc]
            self._guard(None, lambda: self._strays(tx, {number for number, _ in streams}))
        return Report(
            origin=self._journal.origin,
            findings=tuple(self._findings),
            lineages=sum(stream.kind is StreamKind.LINEAGE for _, stream in streams),
            entries=self._entries,
            bytes=self._bytes,
            size=self._total,
            root=self._root.hex(),
            engine=self._journal.backend.engine,
        )

    _root = b""

    def _find(self, id_: str, text: str, advice: str, stream: StreamId | None = None, revisions: Any = ()) -> None:
        namespace, lineage = ("", "") if stream is None else (stream.namespace, stream.name)
        self._findings.append(Finding(id_, "damage", text, advice, namespace, lineage, tuple(revisions)))

    def _guard(self, stream: StreamId | None, look: Callable[[], None]) -> None:
        """Turn what stops the look at one part into a finding, and go on with the next."""
        try:
            look()
        except CheckpointStoreError as error:
            self._find("unreadable", str(error), "restore from a backup, or salvage what still verifies", stream)

    # --- one stream ------------------------------------------------------------------------------------------

    def _stream(self, tx: Any, number: int, stream: StreamId) -> None:
        entries = _Entries(self, tx, number, stream)
        last = entries.check()
        if last is None:
            self._find("empty-stream", f"{stream} has no entries", "its entries were removed", stream)
            return
        with Reading(self._journal, stream.namespace, tx) as reading:
            source = self._bytes_of(reading, entries, last)
            if source is not None:
                self._states(reading, source, entries)

    def _bytes_of(self, reading: Reading, entries: _Entries, last: Entry) -> Source | None:
        """Compare a stream's stored bytes with its newest signature; where they differ, say from which entry on."""
        try:
            source = reading.source(entries.stream)
        except SignatureError:
            return None  # reported with the entries
        except CorruptError as error:
            self._locate(reading, entries, last, str(error))
            return None
        return source

    def _locate(self, reading: Reading, entries: _Entries, last: Entry, problem: str) -> None:
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
        self._find(
            "damaged-bytes",
            f"{stream}: {problem}",
            f"revisions {_ranges(revisions)} cannot be trusted; the last good one before them is "
            f"{revisions[0] - 1 or 'none'}; restore from a backup, or salvage the others",
            stream,
            revisions,
        )

    def _states(self, reading: Reading, source: Source, entries: _Entries) -> None:
        """Replay a stream's changes and compare every state root with the signed one."""
        replay = Replay(reading.states(entries.stream))
        try:
            self._follow(replay, source, entries)
        finally:
            known = self._refs.setdefault(entries.stream.namespace, {})
            for ref, seq in replay.refs.items():
                known.setdefault(ref, (entries.stream, entries.revision_of(seq)))

    def _follow(self, replay: Replay, source: Source, entries: _Entries) -> None:
        for entry in entries.walk():
            try:
                root = replay.step(entry.seq)
            except CorruptError as error:
                later = sorted({entries.revision_of(seq) for seq in range(entry.seq, source.end)})
                self._find("damaged-state", str(error), "restore from a backup", entries.stream, later)
                return
            if root != entry.state:
                self._find(
                    "wrong-state",
                    f"{entries.stream}@{entry.revision}: its bytes make another state than was signed",
                    "the file was altered by somebody who has the keys, or a release was faulty; restore from a backup",
                    entries.stream,
                    (entry.revision,),
                )
                return
        self._bytes += replay.bytes

    # --- the log ---------------------------------------------------------------------------------------------

    def _log(self, tx: Any, packed: bytes) -> None:
        frontier = Frontier()
        notes = dict(tx.notes())
        for leaf in range(len(self._leaves)):
            if leaf not in self._leaves:
                self._find("log-gap", f"the log has no entry {leaf} although it has later ones", "an entry was removed")
                return
            if leaf in notes:
                self._note(notes.pop(leaf), leaf, frontier.root())
            frontier.append(self._leaves[leaf])
        self._root = frontier.root()
        if frontier.size in notes:
            self._note(notes.pop(frontier.size), frontier.size, frontier.root())
        for size in notes:
            self._find(
                "truncated",
                f"a signed head counts {size} entries, the log has {frontier.size}",
                "entries at the end were removed; restore from a backup",
            )
        if (frontier.size, frontier.pack()) != (self._total, packed):
            self._find(
                "log-cache",
                f"the stored log ({self._total} entries) is not the one of the entries ({frontier.size})",
                "the file was altered, or entries were removed",
            )

    def _note(self, text: bytes, size: int, root: bytes) -> None:
        head = open_head(text, self._journal.keyring, self._journal.origin)
        if (head.size, head.root) != (size, root):
            self._find(
                "log-fork",
                f"the head signed at {size} entries has another root than the entries have",
                "the history before it was rewritten",
            )

    def _blobs(self, tx: Any, namespace: str) -> None:
        """Compare the shared values of a namespace with their names and with what the signed references say of them."""
        frames: dict[bytes, bytes] = {}
        for content, frame in tx.blobs(namespace):
            frames[content] = digest(frame)
            try:
                good = leaf_hash(decompress(frame)) == content
            except CorruptError:
                good = False
            if not good:
                self._shared(f"the shared value {content.hex()[:16]} of namespace {namespace!r} is damaged")
            self._bytes += len(frame)
        for ref, (stream, revision) in self._refs.get(namespace, {}).items():
            if frames.get(ref.content) != ref.frame:
                what = "is not the one that was signed" if ref.content in frames else "is missing"
                text = f"the shared value {ref.content.hex()[:16]}, which {stream}@{revision} is the first to hold, {what}"
                self._shared(text, stream, (revision,))

    def _shared(self, text: str, stream: StreamId | None = None, revisions: tuple[int, ...] = ()) -> None:
        advice = "the revisions that refer to it cannot be loaded; restore from a backup"
        self._find("damaged-shared", text, advice, stream, revisions)

    def _parent(self, tx: Any, fork: Entry, parent: Any) -> None:
        """Compare what a fork cites with the entry that is there."""
        cited = Citation.from_value(parent)
        number = tx.stream(StreamId(fork.stream.namespace, StreamKind.LINEAGE, cited.lineage))
        entry = None if number is None else tx.revision(number, cited.revision)
        before = None if entry is None or entry.seq == 1 else tx.entry(number, entry.seq - 1)
        if entry is None or self._journal.digest(entry, link_of(before)).hex() != cited.entry:
            self._find(
                "parent",
                f"{fork.stream} was forked from {cited.lineage}@{cited.revision}, which is not there as it was cited",
                "the parent was removed or replaced; the fork's older content may be lost",
                fork.stream,
                (1,),
            )

    def _strays(self, tx: Any, streams: set[int]) -> None:
        for text in tx.strays(streams):
            self._find("stray", text, "rows that no signed entry accounts for were put into the file")

    def tick(self) -> None:
        """Count one more entry."""
        self._entries += 1
        if self._progress is not None:
            self._progress(self._entries, self._total)


class _Entries:
    """The entries of one stream: their order, chain, signatures and glossary."""

    def __init__(self, audit: Audit, tx: Any, number: int, stream: StreamId) -> None:
        self.number = number
        self.stream = stream
        self._audit = audit
        self._tx = tx
        self._revisions: list[int] = []
        self._held = Glossary(())
        self._keys: dict[str, int] = {}

    def revision_of(self, seq: int) -> int:
        """Return the revision that an entry belongs to, as far as it could be read."""
        known = self._revisions
        return known[seq - 1] if 0 < seq <= len(known) else (known[-1] if known else 0)

    def walk(self) -> Iterator[Entry]:
        """Yield the stream's entries in order, a page at a time."""
        at, top = 1, len(self._revisions)
        while at <= top:
            page = list(self._tx.entries(self.number, at, min(top, at + PAGE - 1)))
            yield from page
            at += PAGE

    def check(self) -> Entry | None:
        """Check all entries; returns the newest."""
        before: Entry | None = None
        first = 1
        while page := self._page(first):
            for entry in page:
                if not self._one(entry, before):
                    return before
                before = entry
            first += PAGE
        stored = dict(self._tx.keys(self.number))
        if stored != self._keys:
            self._audit._find(  # noqa: SLF001
                "keys",
                f"{self.stream}: the index of idempotency keys is not that of the entries",
                "retries of these commits would be answered wrongly",
                self.stream,
            )
        return before

    def _page(self, first: int) -> list[Entry]:
        return list(self._tx.entries(self.number, first, first + PAGE - 1))

    def _one(self, entry: Entry, before: Entry | None) -> bool:
        find, stream = self._audit._find, self.stream  # noqa: SLF001
        seq = 1 if before is None else before.seq + 1
        if entry.seq != seq:
            find(
                "gap",
                f"{stream}: entry {seq} is missing",
                "an entry was removed; restore from a backup",
                stream,
                (self.revision_of(seq - 1) + 1,),
            )
            return False
        self._revisions.append(entry.revision)
        self._audit.tick()
        journal = self._audit._journal  # noqa: SLF001
        try:
            journal.verify(entry, before)
        except SignatureError as error:
            find(
                "signature",
                f"{stream}@{entry.revision}, entry {seq}: {error}",
                "do not rely on this revision or later ones",
                stream,
                (entry.revision,),
            )
        leaf = journal.leaf(entry, link_of(before))
        if self._audit._leaves.setdefault(entry.leaf, leaf) != leaf:  # noqa: SLF001
            find(
                "log-twice",
                f"{stream}: entry {seq} claims a place in the log that another has",
                "the file was altered",
                stream,
            )
        expected = (0 if before is None else before.revision) + entry.kind.makes_revision
        if entry.revision != expected:
            find(
                "revision",
                f"{stream}: entry {seq} says revision {entry.revision}, it is {expected}",
                "the file was altered",
                stream,
                (expected,),
            )
        self._terms(entry, before)
        match entry.detail:
            case {"key": {"name": str(key)}}:
                self._keys[key] = seq
            case {"parent": parent}:
                self._audit.citations.append((entry, parent))
        return True

    def _terms(self, entry: Entry, before: Entry | None) -> None:
        part = (entry.detail or {}).get("glossary")
        term = 0 if before is None else before.term
        problem = ""
        if part is not None:
            if (entry.detail or {}).get("previousTerm", 0) != term or entry.term != entry.seq:
                problem = "its place in the chain of glossary changes is wrong"
            try:
                held = in_force(self._held, entry.step)
                self._held = apply(held, Change.from_value(part), entry.step)
            except CheckpointStoreError as error:
                problem = str(error)
        elif entry.term != term:
            problem = "it forgets the glossary"
        if problem:
            self._audit._find(  # noqa: SLF001
                "glossary",
                f"{self.stream}@{entry.revision}: {problem}",
                "the lock cannot be relied on from here",
                self.stream,
                (entry.revision,),
            )


def _frontier_of(head: SegmentHead) -> Frontier:
    """Return a segment's frontier, or an empty one, which no later segment fits."""
    try:
        return segments_frontier(head)
    except CorruptError:
        return Frontier()


def _ranges(numbers: list[int]) -> str:
    """Spell sorted numbers as ranges."""
    groups: list[list[int]] = []
    for number in numbers:
        if groups and groups[-1][1] == number - 1:
            groups[-1][1] = number
        else:
            groups.append([number, number])
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in groups)
