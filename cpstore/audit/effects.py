"""Families, restores and effects: what the entries say of them, and whether the indexes say the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cpstore.backends.port import EffectRow, Kin
from cpstore.digest import digest
from cpstore.errors import CheckpointStoreError, CorruptError
from cpstore.model.effect import Effect
from cpstore.model.entry import Kind, StreamId, StreamKind, link_of
from cpstore.model.fork import Citation
from cpstore.model.restore import Acknowledgement
from cpstore.rules.effects import check_next
from cpstore.rules.restore import readable
from cpstore.snapshot.values import canonical, decode
from cpstore.streams import look

if TYPE_CHECKING:
    from cpstore.audit.report import Findings
    from cpstore.backends.port import Reader
    from cpstore.journal import Journal, Reading
    from cpstore.model.entry import Entry

ADVICE = "the file was altered; what begin and restore answer cannot be relied on"


class Families:
    """Collects what the entries of all lineages say, then compares it with the indexes. Holds one record an entry."""

    def __init__(self, journal: Journal, findings: Findings) -> None:
        self._journal = journal
        self._findings = findings
        self._about: dict[bytes, list[tuple[Entry, int, str, Effect]]] = {}
        self._forks: list[tuple[int, Entry]] = []
        self._restores: list[tuple[int, Entry]] = []

    def see(self, number: int, entry: Entry) -> None:
        """Take an entry in. Raises CorruptError for one that does not say what its kind says."""
        detail = entry.detail or {}
        if entry.kind is Kind.FORK:
            self._forks.append((number, entry))
        elif entry.kind is Kind.RESTORE:
            self._restores.append((number, entry))
        elif entry.kind is Kind.EFFECT:
            record = Effect.from_value(detail.get("effect"), entry.stream.namespace)
            self._about.setdefault(record.id.digest, []).append((entry, number, str(detail.get("act")), record))
        if entry.kind is Kind.ACKNOWLEDGEMENT or "acknowledgement" in detail:
            Acknowledgement.from_value(detail.get("acknowledgement"))

    def check(self, tx: Reader) -> None:
        """Compare all that was taken in with the store."""
        kins = self._kins(tx)
        if dict(tx.kins()) != kins:
            self._find("kin-index", "the index of forks is not that of the entries")
        for number, restore in self._restores:
            self._restore(tx, number, restore)
        self._effects(tx, kins)

    # --- families --------------------------------------------------------------------------------------------

    def _kins(self, tx: Reader) -> dict[int, Kin]:
        parents: dict[int, tuple[int, int]] = {}
        for number, fork in self._forks:
            cited = Citation.from_value((fork.detail or {}).get("parent"))
            parent = tx.stream(StreamId(fork.stream.namespace, StreamKind.LINEAGE, cited.lineage))
            if parent is not None:
                parents[number] = parent, fork.leaf
        return {number: Kin(parent, _root(parents, number), leaf) for number, (parent, leaf) in parents.items()}

    def _restore(self, tx: Reader, number: int, restore: Entry) -> None:
        """Compare what a restore cites with the revision that is there."""
        said: Any = (restore.detail or {}).get("restore")
        problem = "it does not say what it restores"
        if isinstance(said, dict) and type(said.get("revision")) is int:
            target = tx.revision(number, said["revision"])
            before = None if target is None or target.seq == 1 else tx.entry(number, target.seq - 1)
            problem = "the revision that it restores is not there as it was cited"
            if target is not None and self._journal.digest(target, link_of(before)).hex() == said.get("entry"):
                seen = look.watermark(target)
                problem = "" if target.state == restore.state else "its state is not that of the revision it restores"
                wanted = seen if readable(seen, restore.seq - 1) else 0
                same = wanted == said.get("watermark")
                problem = problem or ("" if same else "its watermark is not that of the revision")
        if problem:
            text = f"{restore.stream}@{restore.revision}: {problem}"
            self._findings.add("restore", text, "the file was altered", restore.stream, (restore.revision,))

    # --- effects ---------------------------------------------------------------------------------------------

    def _effects(self, tx: Reader, kins: dict[int, Kin]) -> None:
        expected = {}
        for identity, entries in self._about.items():
            entries.sort(key=lambda one: one[0].leaf)
            self._history(entries)
            expected[identity] = self._row(identity, entries, kins)
        found = {row.identity: (row, traces) for row, traces in tx.all_effects()}
        for identity in expected.keys() | found.keys():
            if expected.get(identity) == found.get(identity):
                continue
            known = self._about.get(identity)
            name = f"effect {known[0][3].id}" if known else f"an effect {identity.hex()[:16]} that no entry is about"
            what = "is filed otherwise than its entries say" if identity in found else "is missing from the index"
            self._find("effect-index", f"{name} {what}", known[-1][0] if known else None)

    def _history(self, entries: list[tuple[Entry, int, str, Effect]]) -> None:
        before: Effect | None = None
        for entry, _, verb, record in entries:
            problem = check_next(before, record, verb)
            if problem:
                self._find("effect", f"{entry.stream}, entry {entry.seq}: effect {record.id}: {problem}", entry)
                return
            before = record

    def _row(self, identity: bytes, entries: list[tuple[Entry, int, str, Effect]], kins: dict[int, Kin]) -> Any:
        last, number, _, record = entries[-1]
        spans: dict[int, list[int]] = {}
        for entry, stream, _, _ in entries:
            spans.setdefault(stream, []).append(entry.seq)
        row = EffectRow(
            identity=identity,
            root=kins[number].root if number in kins else number,
            name=record.id.name,
            policy=entries[0][3].policy.rank,
            kind=record.kind,
            settled=record.state.settled,
            stream=number,
            seq=last.seq,
            keyed=record.keyed,
        )
        return row, [(stream, min(seqs), max(seqs)) for stream, seqs in sorted(spans.items())]

    def _find(self, name: str, text: str, entry: Entry | None = None) -> None:
        stream, revisions = (None, ()) if entry is None else (entry.stream, (entry.revision,))
        self._findings.add(name, text, ADVICE, stream, revisions)


def values_of(reading: Reading, entry: Entry) -> None:
    """Compare the values that an effect's entry brought with the digests that it signs. Raises CorruptError."""
    detail = entry.detail or {}
    record = Effect.from_value(detail.get("effect"), entry.stream.namespace)
    brought = []
    if record.argued is None:
        brought.append(record.arguments)
    if record.result is not None and record.resulted is None:
        brought.append(record.result)
    if detail.get("act") == "late" or not brought:
        return
    try:
        found = [digest(canonical(decode(enc))).hex() for enc in reading.states(entry.stream).attached(entry.seq)]
    except CheckpointStoreError as error:
        raise CorruptError(f"{entry.stream}: the values of entry {entry.seq} cannot be read: {error}") from error
    if found != brought:
        raise CorruptError(f"{entry.stream}: the values of entry {entry.seq} are not those that were signed")


def _root(parents: dict[int, tuple[int, int]], number: int) -> int:
    seen: set[int] = set()
    while number in parents and number not in seen:
        seen.add(number)
        number = parents[number][0]
    return number
