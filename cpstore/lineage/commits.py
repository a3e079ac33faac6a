"""A commit: rules first, then bytes and signature, then the lock. A ledger's member tells it what it must know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cpstore.errors import ConflictError, RevisionConflictError
from cpstore.model.checkpoint import Checkpoint
from cpstore.model.entry import Kind
from cpstore.model.ledger import member_id
from cpstore.model.names import check_name
from cpstore.rules import glossary as glossary_rules
from cpstore.rules import revisions
from cpstore.streams import look, telling
from cpstore.streams.act import Plan, Step, carry_out
from cpstore.streams.board import acked, joined

if TYPE_CHECKING:
    from collections.abc import Callable

    from cpstore.journal import Reading
    from cpstore.lineage.line import Line
    from cpstore.lineage.request import Request
    from cpstore.model.glossary import Change, Glossary
    from cpstore.snapshot.writer import Addition, SnapshotWriter


class Commit:
    """One checkpoint on its way."""

    kind = Kind.CHECKPOINT
    durable = False

    def __init__(self, line: Line, request: Request, add: Callable[[SnapshotWriter], Addition]) -> None:
        self._line = line
        self._asked = self._request = request
        self._add = add
        self._after: Glossary | None = None
        self._landed: Checkpoint | None = None

    def carry_out(self) -> Checkpoint:
        """Commit, or return the checkpoint that the same request made before."""
        line, opened = self._line, self._line.opened
        with opened.lock:
            made = carry_out(line.journal, opened, self._decide, ahead=not self.durable, durable=self.durable)
            if self._landed is not None:
                line.saw(self._landed.revision)
                return self._landed
            if self._after is not None:
                opened.glossary = self._after
            line.seen = made[0].entry.revision
        line.streams.used(opened)
        return Checkpoint.of(made[0].entry, made[0].name)

    def _decide(self, reading: Reading) -> Plan:
        line, request, opened = self._line, self._request, self._line.opened
        self._after = None
        if not self._ready(reading):
            return Plan()
        if joined(opened.last) and not reading.lent:
            return Plan(locked=True)  # what its ledgers hold is looked at and changed in one transaction
        held = glossary_rules.in_force(line.held(reading), request.step)
        change = self._advance(reading, held)
        detail = self._detail(held, change)
        if joined(opened.last):
            return self._told(reading, change, detail)
        return Plan((self._step(self._add, detail, term=change is not None),))

    def _detail(self, held: Glossary, change: Change | None) -> dict[str, Any]:
        """Return what the entry says of the glossary, which becomes the one ``_after`` it, and of its key."""
        request, detail = self._request, dict[str, Any]()
        if change is not None:
            self._after = glossary_rules.apply(held, change, request.step)
            detail["glossary"] = change.to_value()
        if request.key is not None:
            detail["key"] = {"name": request.key, "request": self._asked.digest()}
        return detail

    def _ready(self, reading: Reading) -> bool:
        """Check that the request follows the head; False if it has landed before."""
        line, request, opened = self._line, self._request, self._line.opened
        basis = request.expected or line.seen or 0
        # A writing end is rebuilt from what is stored now: others may have gone on since this process last looked.
        if opened.last is None or opened.writer is None or request.key is not None or basis != line.head:
            opened.refresh(reading)
        self._landed = self._repeated(reading)
        if self._landed is not None:
            return False
        if request.expected is None and request.looks not in (None, line.looks):
            raise RevisionConflictError(line.id, None, line.head)
        revisions.check(line.id, expected=request.expected, seen=line.seen, head=line.head)
        revisions.check_step(line.id, request.step, None if opened.last is None else opened.last.step)
        return True

    def _advance(self, reading: Reading, held: Glossary) -> Change | None:
        where = f"{self._line.stream}@{self._line.head + 1}"
        return self._request.terms.advance(held, self._request.step, where, self._used(reading))

    def _step(
        self, add: Callable[[SnapshotWriter], Addition], detail: dict[str, Any], *, term: bool, epoch: bool = False
    ) -> Step:
        line, request = self._line, self._request
        return Step(
            line.opened,
            self.kind,
            add,
            line.head + 1,
            request.step,
            detail,
            term=term,
            epoch=epoch,
            key=request.key,
        )

    def _told(self, reading: Reading, change: Change | None, detail: dict[str, Any]) -> Plan:
        """Return the commit of a member: with its acknowledged positions, and what its ledgers are told."""
        line, opened = self._line, self._line.opened
        detail["ledgers"] = acked(reading, opened.last, line.namespace, member_id("", line.id))
        found = telling.boards(reading, opened.last)
        addition, shrunk = self._added(reading)
        steps = [self._step(lambda _: addition, detail, term=change is not None)]
        if shrunk:
            steps += telling.told(
                found,
                telling.suspected("shrunk"),
                kind="shrunk",
                revision=line.head + 1,
                text=f"{line.id} dropped content without calling it a compaction",
            )
            found = [(board, telling.suspected("shrunk")(board, member)) for board, member in found]
        if change is not None and self._after is not None:
            steps += telling.glossary_told(found, change, self._after, line.head + 1)
        return Plan(tuple(steps))

    def _added(self, reading: Reading) -> tuple[Addition, bool]:
        opened = self._line.opened
        try:
            writer = opened.writing(reading)
            writer.watched = True
            try:
                return self._add(writer), writer.shrunk
            finally:
                writer.watched = False
        except BaseException:
            opened.forget()
            raise

    def _used(self, reading: Reading) -> Any:
        opened = self._line.opened
        orders = self._request.terms.supersede or self._request.terms.retire
        if not orders or opened.last is None or opened.number is None:
            return ()
        return look.orders(reading, opened.number, opened.last)

    def _repeated(self, reading: Reading) -> Checkpoint | None:
        """Return the checkpoint that this request made already. Raises ConflictError if another one has its key."""
        key, number = self._request.key, self._line.opened.number
        if key is None:
            return None
        check_name(key, "idempotency key")
        found = None if number is None else look.landed(reading, number, key)
        if found is None or number is None:
            return None
        entry = reading.entry(number, found.seq)
        stored = (entry.detail or {}).get("key", {})
        if stored.get("request") != self._asked.digest():
            raise ConflictError(
                f"key {key!r} of lineage {self._line.id!r} was used for another request: revision {entry.revision} "
                f"has request {stored.get('request')}, this one has {self._asked.digest()}"
            )
        return found
