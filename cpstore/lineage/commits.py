"""A commit: rules first, then bytes and signature, then the lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cpstore.errors import ConflictError, RevisionConflictError
from cpstore.lineage import look
from cpstore.model.checkpoint import Checkpoint
from cpstore.model.entry import Kind
from cpstore.model.names import check_name
from cpstore.rules import glossary as glossary_rules
from cpstore.rules import revisions
from cpstore.streams.act import Plan, Step, carry_out

if TYPE_CHECKING:
    from collections.abc import Callable

    from cpstore.journal import Reading
    from cpstore.lineage.line import Line
    from cpstore.lineage.request import Request
    from cpstore.model.glossary import Change
    from cpstore.snapshot.writer import Addition, SnapshotWriter


class Commit:
    """One checkpoint on its way."""

    def __init__(self, line: Line, request: Request, add: Callable[[SnapshotWriter], Addition]) -> None:
        self._line = line
        self._request = request
        self._add = add
        self._change: Change | None = None
        self._landed: Checkpoint | None = None

    def carry_out(self) -> Checkpoint:
        """Commit, or return the checkpoint that the same request made before."""
        line, opened = self._line, self._line.opened
        with opened.lock:
            made = carry_out(line.journal, opened, self._decide, ahead=True)
            if self._landed is not None:
                line.saw(self._landed.revision)
                return self._landed
            (one,) = made
            if self._change is not None:
                opened.glossary = self._after
            line.seen = one.entry.revision
        line.streams.used(opened)
        return Checkpoint.of(one.entry, one.name)

    def _decide(self, reading: Reading) -> Plan:
        line, request, opened = self._line, self._request, self._line.opened
        basis = request.expected or line.seen or 0
        # A writing end is rebuilt from what is stored now: others may have gone on since this process last looked.
        if opened.last is None or opened.writer is None or request.key is not None or basis != line.head:
            opened.refresh(reading)
        self._landed = self._repeated(reading)
        if self._landed is not None:
            return Plan()
        head = line.head
        if request.expected is None and request.looks not in (None, line.looks):
            raise RevisionConflictError(line.id, None, head)
        revisions.check(line.id, expected=request.expected, seen=line.seen, head=head)
        revisions.check_step(line.id, request.step, None if opened.last is None else opened.last.step)
        held = glossary_rules.in_force(line.held(reading), request.step)
        self._change = request.terms.advance(held, request.step, f"{line.stream}@{head + 1}", self._used(reading))
        detail: dict[str, Any] = {}
        if self._change is not None:
            self._after = glossary_rules.apply(held, self._change, request.step)
            detail["glossary"] = self._change.to_value()
        if request.key is not None:
            detail["key"] = {"name": request.key, "request": request.digest()}
        step = Step(
            opened,
            Kind.CHECKPOINT,
            self._add,
            head + 1,
            request.step,
            detail,
            term=self._change is not None,
            key=request.key,
        )
        return Plan((step,))

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
        if stored.get("request") != self._request.digest():
            raise ConflictError(
                f"key {key!r} of lineage {self._line.id!r} was used for another request: revision {entry.revision} "
                f"has request {stored.get('request')}, this one has {self._request.digest()}"
            )
        return found
