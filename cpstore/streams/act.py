"""How an act is carried out: facts, a decision, and the entries it asks for, in one transaction.

A decision may be made ahead, against the head that was seen, so that compressing and signing hold no lock. If the
stream has moved meanwhile it is made again, once, under the lock; the rules then say whether the act still passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from cpstore.errors import StorageError
from cpstore.journal import Reading, Signed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cpstore.backends.port import Position, Writer
    from cpstore.journal import Journal
    from cpstore.model.entry import Entry, Kind, StreamId
    from cpstore.snapshot.writer import Addition, SnapshotWriter
    from cpstore.streams.opened import OpenStream


@attrs.frozen
class Step:
    """One entry that an act asks for.

    ``add`` makes what it adds to its stream; ``term`` and ``epoch`` say whether it changes the glossary or voids
    earlier reads; ``key`` is an idempotency key; ``file`` puts the entry into projections.
    """

    opened: OpenStream
    kind: Kind
    add: Callable[[SnapshotWriter], Addition]
    revision: int
    step: int
    detail: Mapping[str, Any] | None = None
    term: bool = False
    epoch: bool = False
    key: str | None = None
    file: Callable[[Writer, int, Entry], None] | None = None


@attrs.frozen
class Plan:
    """What a decision asks for: no steps where nothing has to be written.

    ``locked``: the decision can only be made under the lock (``reading.lent``); it is asked again there.
    """

    steps: tuple[Step, ...] = ()
    locked: bool = False


def carry_out(
    journal: Journal,
    opened: OpenStream,
    decide: Callable[[Reading], Plan],
    *,
    ahead: bool = False,
    durable: bool = False,
) -> tuple[Signed, ...]:
    """Decide and write; returns the entries that are in the store then. The caller holds ``opened.lock``.

    ``ahead``: decide before the lock is taken. ``durable``: whatever the store's durability. Raises what ``decide``
    raises, BusyError, StorageError (in doubt: it names the first entry). Whatever is raised, nothing was written unless
    it says so, and what the process keeps of the streams is dropped where it may be wrong.
    """
    act = _Act(journal, opened, decide)
    try:
        if ahead:
            with Reading(journal, opened.stream.namespace) as reading:
                act.prepare(reading, alone=True)
            if not act.plan.steps and not act.plan.locked:
                return ()
        return act.land(durable=durable)
    except StorageError as error:
        act.drop()
        if not act.made:
            raise
        first = act.made[0][1]
        raise StorageError(
            error.problem,
            namespace=opened.stream.namespace,
            stream=first.entry.stream.name,
            seq=first.entry.seq,
            entry=first.name.hex(),
            kind=first.entry.stream.kind.value,
        ) from error
    except BaseException:
        act.drop()
        raise
    finally:
        opened.reading = None


class _Act:
    def __init__(self, journal: Journal, opened: OpenStream, decide: Callable[[Reading], Plan]) -> None:
        self.journal = journal
        self.opened = opened
        self.decide = decide
        self.plan = Plan()
        self.made: list[tuple[Step, Signed, Addition]] = []
        self.pending: dict[StreamId, Entry] = {}
        self.begun = False

    def prepare(self, reading: Reading, *, alone: bool = False) -> None:
        """Ask the rules, then make and sign the entries; if ``alone``, only those of an act on one stream."""
        self.made, self.pending = [], {}
        self.plan = self.decide(reading)
        if alone and any(step.opened is not self.opened for step in self.plan.steps):
            return
        for step in self.plan.steps:
            self.begun = True
            addition = step.add(step.opened.writing(reading))
            made = self._sign(step, addition)
            self.pending[step.opened.stream] = made.entry
            self.made.append((step, made, addition))

    def land(self, *, durable: bool) -> tuple[Signed, ...]:
        """Write what was made, after it was made again if it no longer fits."""
        with self.journal.backend.write(durable=durable) as tx:
            position = tx.position(self.opened.number)
            if not self.made or self._moved(tx, position):
                self._again(tx, position)
            log = self.journal.log(position)
            landed = [self._append(tx, *one, log) for one in self.made]
            if landed:
                tx.set_log(log.size, log.pack())
        for (step, _, _), (number, entry) in zip(self.made, landed, strict=True):
            step.opened.number, step.opened.last = number, entry
        return tuple(made for _, made, _ in self.made)

    def _again(self, tx: Writer, position: Position) -> None:
        opened = self.opened
        with Reading(self.journal, opened.stream.namespace, tx) as reading:
            if self.begun or self._moved(tx, position):
                opened.writer = None  # it may have prepared what will never be written
                opened.refresh(reading)
            self.prepare(reading)

    def _moved(self, tx: Writer, position: Position) -> bool:
        last, number = self.opened.last, self.opened.number
        if number is None:
            return tx.stream(self.opened.stream) is not None
        return last is None or (position.seq, position.signature) != (last.seq, last.signature)

    def _append(self, tx: Writer, step: Step, made: Signed, addition: Addition, log: Any) -> tuple[int, Entry]:
        number = step.opened.number
        if number is None:
            number = step.opened.number = tx.add_stream(step.opened.stream)
        entry = self.journal.append(tx, number, made, addition, log)
        if step.key is not None:
            tx.add_key(number, step.key, entry.seq)
        if step.file is not None:
            step.file(tx, number, entry)
        return number, entry

    def _sign(self, step: Step, addition: Addition) -> Signed:
        last = self.pending.get(step.opened.stream, step.opened.last)
        term, epoch = (0, 0) if last is None else (last.term, last.epoch)
        detail = dict(step.detail or {})
        if last is not None and "ledgers" in (last.detail or {}):
            # A lineage knows its ledgers from its newest entry alone: nobody can hide a membership by deleting a row.
            detail.setdefault("ledgers", (last.detail or {})["ledgers"])
        if step.term:
            detail |= {"previousTerm": term} if term else {}
            term = addition.seq
        if step.epoch:
            detail |= {"previousEpoch": epoch} if epoch else {}
            epoch = addition.seq
        return self.journal.sign(
            step.opened.stream,
            last,
            step.kind,
            addition,
            revision=step.revision,
            step=step.step,
            term=term,
            epoch=epoch,
            detail=detail or None,
        )

    def drop(self) -> None:
        """Forget what may be wrong after a failure."""
        if self.begun:
            for step in self.plan.steps:
                step.opened.forget()
            self.opened.forget()
