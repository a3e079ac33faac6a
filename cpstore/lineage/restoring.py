"""Restore: plan it without writing, or make a new revision out of an old one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from cpstore.errors import CorruptError, InvalidStateError, UnsafeRollbackError
from cpstore.lineage import crossing
from cpstore.lineage.effects import Effects
from cpstore.model.checkpoint import Checkpoint
from cpstore.model.entry import Kind
from cpstore.model.restore import EFFECT_CLASSES, RestorePlan, Verdict
from cpstore.rules import glossary as glossary_rules
from cpstore.rules import ledger as ledger_rules
from cpstore.rules import restore as rules
from cpstore.streams import look, telling
from cpstore.streams.act import Plan, Step, carry_out
from cpstore.streams.board import joined, lock_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cpstore.journal import Reading
    from cpstore.lineage.line import Line
    from cpstore.model.binding import Directive, Supersession
    from cpstore.model.entry import Entry
    from cpstore.model.restore import Acknowledgement
    from cpstore.rules.restore import Facts, Judgement
    from cpstore.snapshot.writer import Addition, SnapshotWriter

ALTERNATIVES = 64
"""Revisions above the target that are looked at for one that is cleared."""


def facts(line: Line, reading: Reading, number: int, entry: Entry, last: Entry, *, fork: bool) -> Facts:
    """Gather what lies between a revision and the head. A fork is another lineage: it asks less."""
    tx = reading.tx
    crossing.check_kin(reading, number)
    above = tx.kin(number)
    root = number if above is None else above.root
    ledger = Effects(line)
    counts: dict[int, int] = {}
    unsettled: dict[bytes, Any] = {}
    unasked: dict[bytes, Any] = {}
    seen = look.watermark(entry)
    for stream, since, upto in crossing.streams(reading, number, entry, last):
        for kind, count in tx.crossed(stream, since, upto).items():
            counts[kind] = counts.get(kind, 0) + count
        for row in tx.unsettled(root, stream, since):
            unsettled[row.identity] = ledger.read(reading, row).record
        for row in tx.traced(stream, since, upto, classes=(3, 4), name=None, limit=crossing.ALL):
            record = ledger.read(reading, row).record
            own = record.kind == 4 and record.id.lineage == line.id and not fork
            if record.state.happened and not own:
                unasked[row.identity] = record
    return rules.Facts(
        watermark=seen,
        head_seq=last.seq,
        counts=counts,
        unsettled=tuple(unsettled.values()),
        unasked=tuple(unasked.values()),
        lossy=crossing.lossy(reading, number, entry),
    )


def plan(line: Line, reading: Reading, revision: int, *, fork: bool = False) -> tuple[RestorePlan, Judgement]:
    """Answer what going back to a revision means. Raises NotFoundError, InvalidStateError where none is named."""
    given: object = revision
    if given is None:
        raise InvalidStateError("to go back takes the number of a revision, not None", advice="history() lists them")
    number, last, entry = look.find(reading, line.stream, revision)
    found = facts(line, reading, number, entry, last, fork=fork)
    judgement = rules.judge(found)
    then, now = look.glossary_at(reading, number, entry), look.glossary_at(reading, number, last)
    alternatives = (
        () if judgement.verdict is Verdict.CLEARED else _alternatives(line, reading, number, entry, last, fork=fork)
    )
    answered = RestorePlan(
        lineage=line.id,
        revision=entry.revision,
        head=last.revision,
        watermark=found.watermark if rules.readable(found.watermark, last.seq) else None,
        head_seq=last.seq,
        verdict=judgement.verdict,
        reasons=judgement.reasons,
        alternatives=alternatives,
        counts={EFFECT_CLASSES[kind]: count for kind, count in sorted(found.counts.items())},
        unsettled=tuple(str(one.id) for one in found.unsettled[: rules.SHOWN]),
        unasked=tuple(str(one.id) for one in found.unasked[: rules.SHOWN]),
        effects=judgement.effects,
        gaps=judgement.gaps,
        moved=glossary_rules.moved(then, now),
        lossy=found.lossy,
    )
    return answered, judgement


def refuse(line: Line, plan: RestorePlan, judgement: Judgement, acknowledge: Acknowledgement | None) -> None:
    """Raise UnsafeRollbackError with the plan's reasons unless the ledger, or somebody's word, clears it."""
    problem = rules.check_acknowledged(judgement, acknowledge)
    if problem:
        said = () if problem == "refused" else (problem,)
        raise UnsafeRollbackError(line.id, plan.revision, (*plan.reasons, *said), plan.alternatives, plan)


def _alternatives(
    line: Line, reading: Reading, number: int, entry: Entry, last: Entry, *, fork: bool
) -> tuple[str, ...]:
    """Name what can be done instead: settle, or go back less far."""
    for revision in range(entry.revision + 1, min(last.revision, entry.revision + ALTERNATIVES)):
        _, _, other = look.find(reading, line.stream, revision)
        if rules.judge(facts(line, reading, number, other, last, fork=fork)).verdict is Verdict.CLEARED:
            return (f"revision {revision} is the nearest one that is cleared",)
    return (f"go on from the head, revision {last.revision}",)


class Restore:
    """One restore on its way."""

    def __init__(
        self,
        line: Line,
        revision: int,
        acknowledge: Acknowledgement | None,
        supersede: tuple[Supersession, ...],
        reread: Mapping[str, Directive],
    ) -> None:
        self._line = line
        self._revision = revision
        self._acknowledge = acknowledge
        self._supersede = supersede
        self._reread = reread

    def carry_out(self) -> Checkpoint:
        """Write the new revision, durable when this returns."""
        line, opened = self._line, self._line.opened
        with opened.lock:
            made = carry_out(line.journal, opened, self._decide, durable=True)
            opened.glossary = self._glossary
            restored = next(one for one in made if one.entry.kind is Kind.RESTORE)
            line.seen = restored.entry.revision
        line.streams.used(opened)
        return Checkpoint.of(restored.entry, restored.name)

    def _decide(self, reading: Reading) -> Plan:
        line, opened = self._line, self._line.opened
        line.stands(reading)
        answered, judgement = plan(line, reading, self._revision)
        number, last, entry = look.find(reading, line.stream, self._revision)
        refuse(line, answered, judgement, self._acknowledge)
        made = glossary_rules.restore_glossary(
            look.glossary_at(reading, number, entry),
            look.glossary_at(reading, number, last),
            supersede=self._supersede,
            reread=self._reread,
            used=look.orders(reading, number, last) if self._supersede or self._reread else (),
            step=entry.step,
            where=f"{line.stream}@{last.revision + 1}",
        )
        self._glossary = made.glossary
        cited = {"entry": look.header(reading, number, entry).entry, "revision": entry.revision}
        detail: dict[str, Any] = {"restore": {**cited, "watermark": answered.watermark or 0}, **made.extra()}
        changes = bool(last.term or (made.change is not None and made.glossary.bindings))
        if changes and made.change is not None:
            detail["glossary"] = made.change.to_value()

        def add(writer: SnapshotWriter) -> Addition:
            addition = writer.back(entry.seq)
            if addition.state != entry.state:
                raise CorruptError(f"{line.stream}@{entry.revision}: its bytes make another state than was signed")
            return addition

        steps = []
        if judgement.verdict is not Verdict.CLEARED and self._acknowledge is not None:
            word = {"acknowledgement": self._acknowledge.to_value(), "restore": cited}
            steps.append(
                Step(opened, Kind.ACKNOWLEDGEMENT, lambda writer: writer.bare(), last.revision, last.step, word)
            )
        found = telling.boards(reading, last)
        if found:
            detail["ledgers"] = joined(last) | joined(entry)
        steps.append(Step(opened, Kind.RESTORE, add, last.revision + 1, entry.step, detail, term=changes, epoch=True))
        lock = lock_of(made.glossary)
        steps += telling.told(
            found,
            lambda board, member: attrs.evolve(ledger_rules.demote(member, board.position, "restore"), lock=lock),
            kind="restored",
            revision=last.revision + 1,
            text=f"{line.id} went back to revision {entry.revision}",
            detail={"to": entry.revision},
            cursors=joined(entry),
        )
        return Plan(tuple(steps))
