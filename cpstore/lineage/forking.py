"""A fork: a lineage that starts from a revision of another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cpstore.backends.port import Kin
from cpstore.errors import CorruptError
from cpstore.lineage import restoring
from cpstore.model.entry import Kind
from cpstore.model.fork import Citation
from cpstore.model.restore import Verdict
from cpstore.rules import forks
from cpstore.rules import glossary as glossary_rules
from cpstore.snapshot.writer import SnapshotWriter, detach
from cpstore.streams import look
from cpstore.streams.act import Plan, Step, carry_out

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cpstore.backends.port import Writer
    from cpstore.journal import Reading
    from cpstore.lineage.line import Line
    from cpstore.model.binding import Directive, Supersession
    from cpstore.model.entry import Entry
    from cpstore.model.restore import Acknowledgement
    from cpstore.snapshot.writer import Addition


class Fork:
    """One fork on its way: ``child`` starts from ``revision`` of ``parent``."""

    def __init__(
        self,
        parent: Line,
        child: Line,
        revision: int | None,
        supersede: tuple[Supersession, ...],
        reread: Mapping[str, Directive],
        acknowledge: Acknowledgement | None,
    ) -> None:
        self._parent = parent
        self._child = child
        self._revision = revision
        self._supersede = supersede
        self._reread = reread
        self._acknowledge = acknowledge

    def carry_out(self) -> None:
        """Write the child's first revision."""
        child = self._child
        with child.opened.lock:
            try:
                carry_out(child.journal, child.opened, self._decide, ahead=True)
            except BaseException:
                child.opened.forget()
                raise
            child.opened.glossary = self._plan.glossary
            child.opened.writer = None  # it holds the parent's bytes
            child.seen = 1

    def _decide(self, reading: Reading) -> Plan:
        parent, child, opened = self._parent, self._child, self._child.opened
        forks.check(child.id, exists=reading.tx.stream(child.stream) is not None)
        number, last, entry = look.find(reading, parent.stream, self._revision)
        self._plan = glossary_rules.fork_glossary(
            look.glossary_at(reading, number, entry),
            look.glossary_at(reading, number, last),
            supersede=self._supersede,
            reread=self._reread,
            step=entry.step,
            where=f"{child.stream}@1",
        )
        word = self._cleared(reading, number, entry, last)
        citation = Citation(parent.id, entry.revision, look.header(reading, number, entry).entry)
        states = reading.states(parent.stream)
        tree, _, _ = states.hashed(entry.seq)
        opened.forget()
        opened.writer = SnapshotWriter.start(lambda: states, reading.blob, detach(tree, parent.id, 1))

        def add(writer: SnapshotWriter) -> Addition:
            addition = writer.bare_base()
            if addition.state != entry.state:
                raise CorruptError(f"{parent.stream}@{entry.revision}: its bytes make another state than was signed")
            return addition

        def file(tx: Writer, stream: int, made: Entry) -> None:
            above = tx.kin(number)
            tx.add_kin(stream, Kin(number, number if above is None else above.root, made.leaf))

        detail = {"parent": citation.to_value(), **self._plan.extra(), **word}
        if entry.seq != last.seq:
            detail["crossed"] = last.seq
        if self._plan.change is not None:
            detail["glossary"] = self._plan.change.to_value()
        term = self._plan.change is not None
        return Plan((Step(opened, Kind.FORK, add, 1, entry.step, detail, term=term, file=file),))

    def _cleared(self, reading: Reading, number: int, entry: Entry, last: Entry) -> dict[str, Any]:
        """Ask the effect ledger about a fork below the head; return somebody's word if it takes one."""
        if entry.revision == last.revision:
            return {}
        plan, judgement = restoring.plan(self._parent, reading, entry.revision, fork=True)
        restoring.refuse(self._parent, plan, judgement, self._acknowledge)
        if judgement.verdict is Verdict.CLEARED or self._acknowledge is None:
            return {}
        return {"acknowledgement": self._acknowledge.to_value()}
