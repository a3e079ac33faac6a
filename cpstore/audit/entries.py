"""The entries of one stream: their order, chain, signatures, revisions and glossary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cpstore.errors import CheckpointStoreError, SignatureError
from cpstore.model.entry import EPOCHS, Kind, StreamKind, link_of
from cpstore.model.glossary import Change, Glossary
from cpstore.rules.glossary import apply, in_force, inherit
from cpstore.streams.board import joined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cpstore.audit.report import Findings
    from cpstore.backends.port import Reader
    from cpstore.journal import Journal
    from cpstore.model.entry import Entry, StreamId

PAGE = 512
"""Entries that are held at once."""


class Entries:
    """The entries of one stream: their order, chain, signatures and glossary."""

    def __init__(
        self,
        journal: Journal,
        tx: Reader,
        number: int,
        stream: StreamId,
        findings: Findings,
        seen: Callable[[Entry, bytes], bool],
    ) -> None:
        """``seen`` is told each entry and its leaf hash; it answers whether its place in the log was free."""
        self.number = number
        self.stream = stream
        self._journal = journal
        self._findings = findings
        self._seen = seen
        self._tx = tx
        self.citations: list[tuple[Entry, Any]] = []
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
            self._findings.add(
                "keys",
                f"{self.stream}: the index of idempotency keys is not that of the entries",
                "retries of these commits would be answered wrongly",
                self.stream,
            )
        return before

    def _page(self, first: int) -> list[Entry]:
        return list(self._tx.entries(self.number, first, first + PAGE - 1))

    def _one(self, entry: Entry, before: Entry | None) -> bool:
        find, stream = self._findings.add, self.stream
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
        try:
            self._journal.verify(entry, before, anew=True)
        except SignatureError as error:
            find(
                "signature",
                f"{stream}@{entry.revision}: {error}",
                "do not rely on this revision or later ones",
                stream,
                (entry.revision,),
            )
        if not self._seen(entry, self._journal.leaf(entry, link_of(before))):
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
        if self.stream.kind is StreamKind.LEDGER:
            self._told(entry, before)
        else:
            self._terms(entry, before)
            self._carried(entry, before)
        self._epochs(entry, before)
        match entry.detail:
            case {"key": {"name": str(key)}}:
                self._keys[key] = seq
            case {"parent": parent}:
                self.citations.append((entry, parent))
        return True

    def _epochs(self, entry: Entry, before: Entry | None) -> None:
        epoch = 0 if before is None else before.epoch
        voids = entry.kind in EPOCHS
        linked = (entry.detail or {}).get("previousEpoch", 0) == epoch if voids else True
        if entry.epoch != (entry.seq if voids else epoch) or not linked:
            self._findings.add(
                "epoch",
                f"{self.stream}: entry {entry.seq} says that entry {entry.epoch} was the newest restore or compaction",
                "writers that should have looked again may have gone on",
                self.stream,
                (entry.revision,),
            )

    def _told(self, entry: Entry, before: Entry | None) -> None:
        """A ledger's newest broadcast is found as a lineage's newest change of the glossary is."""
        term = 0 if before is None else before.term
        tells = entry.kind is Kind.BROADCAST
        linked = (entry.detail or {}).get("previousTerm", 0) == term if tells else True
        if entry.term != (entry.seq if tells else term) or not linked:
            self._findings.add(
                "broadcasts",
                f"{self.stream}: entry {entry.seq} says that entry {entry.term} is the newest broadcast",
                "peers may not hear of a compaction",
                self.stream,
            )

    def _carried(self, entry: Entry, before: Entry | None) -> None:
        if not joined(before).keys() <= joined(entry).keys():
            self._findings.add(
                "membership",
                f"{self.stream}@{entry.revision}: entry {entry.seq} forgets a ledger of its lineage",
                "a later compaction is not told to that ledger",
                self.stream,
                (entry.revision,),
            )

    def _terms(self, entry: Entry, before: Entry | None) -> None:
        part = (entry.detail or {}).get("glossary")
        term = 0 if before is None else before.term
        problem = ""
        if part is not None:
            if (entry.detail or {}).get("previousTerm", 0) != term or entry.term != entry.seq:
                problem = "its place in the chain of glossary changes is wrong"
            try:
                before_it = inherit(self._held) if entry.kind in EPOCHS else self._held
                self._held = apply(in_force(before_it, entry.step), Change.from_value(part), entry.step)
            except CheckpointStoreError as error:
                problem = str(error)
        elif entry.term != term:
            problem = "it forgets the glossary"
        if problem:
            self._findings.add(
                "glossary",
                f"{self.stream}@{entry.revision}: {problem}",
                "the lock cannot be relied on from here",
                self.stream,
                (entry.revision,),
            )
