"""The glossary lock: what the next checkpoint may do to the definitions that were settled before it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import attrs

from cpstore.digest import digest
from cpstore.errors import CorruptError, InvalidStateError, SemanticDriftError
from cpstore.model.binding import Authority, Binding, Directive, Retirement, Supersession
from cpstore.model.glossary import Change, Glossary, Reread
from cpstore.rules import forms, symbols

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

SHOWN = 200
"""Characters of a definition or constraint that a difference shows; the rest is named by its digest."""


def advance(
    held: Glossary,
    *,
    step: int,
    define: Iterable[Binding] = (),
    supersede: Iterable[Supersession] = (),
    retire: Iterable[Retirement] = (),
    declared: Glossary | None = None,
    used: Container[tuple[str, Directive]] = (),
    where: str,
) -> Change | None:
    """Return what the checkpoint at ``step`` changes about the bindings in force, None if nothing.

    What the arguments do not mention is carried forward. ``declared`` is all that shall be in force afterwards:
    a locked binding that it leaves out would be dropped, one that it adds is established. ``used`` has the orders that
    this lineage has carried out before, each with its symbol: one counts once. ``where`` names the checkpoint in
    errors. Raises InvalidStateError for what can be no binding, symbol or directive, SemanticDriftError with every
    difference for what would break the lock.
    """
    held = in_force(held, step)
    define, supersede, retire = tuple(define), tuple(supersede), tuple(retire)
    forms.check(held, step, define, supersede, retire, () if declared is None else declared.bindings)
    draft = _Draft(held, step, used=used)
    for binding in define:
        draft.define(binding)
    for order in supersede:
        draft.supersede(order)
    for end in retire:
        draft.retire(end)
    if declared is not None:
        draft.declare(declared)
    draft.keep_apart()
    draft.refuse(where)
    return draft.change() if draft.changed else None


def apply(held: Glossary, change: Change, step: int) -> Glossary:
    """Return the bindings in force after the entry of ``step`` that recorded ``change``.

    Raises CorruptError if the change does not fit what was in force before it, or makes another lock than it says.
    """
    after = {binding.symbol: binding for binding in in_force(held, step)}
    before = dict(change.before)
    for binding in change.established:
        _expect(binding.symbol not in after, binding.symbol, "is established twice")
        after[binding.symbol] = binding
    for order in change.superseded:
        symbol = order.binding.symbol
        fits = before.get(symbol) == _name(after.get(symbol))
        _expect(fits, symbol, "was superseded, but not from what was in force")
        after[symbol] = order.binding
    for end in change.retired:
        found = after.pop(end.symbol, None)
        fits = found is not None and before.get(end.symbol) == _name(found)
        _expect(fits, end.symbol, "was retired, but not from what was in force")
    made = Glossary(after.values())
    if made.digest.hex() != change.digest:
        lock = made.digest.hex()
        raise CorruptError(
            f"glossary change at step {step}: recorded lock {change.digest}, computed {lock}; run verify"
        )
    return made


def in_force(held: Glossary, step: int) -> Glossary:
    """Return what holds for a commit of ``step``: the locked bindings, and the StepLocal ones of this step."""
    return Glossary(binding for binding in held if binding.locked or binding.established_at_step == step)


def inherit(held: Glossary) -> Glossary:
    """Return what crosses a fork, a compaction or a restore: the locked bindings."""
    return Glossary(held.task_wide)


def moved(then: Glossary, now: Glossary) -> tuple[tuple[str, str, str], ...]:
    """Return ``(symbol, then, now)`` for each locked binding of ``then`` that means something else now, or is gone.

    Who settled it and at which step is no part of the meaning. ``now`` is ``""`` where the symbol is not locked.
    """
    return tuple((old.symbol, describe(old), describe(new) if new else "") for old, new in _shifts(then, now))


@attrs.frozen
class ForkGlossary:
    """What a fork inherits and records: ``change`` makes ``glossary`` out of nothing; None if both are empty."""

    glossary: Glossary
    change: Change | None
    rereads: tuple[Reread, ...] = ()

    def extra(self) -> dict[str, Any]:
        """Return what the entry's detail has beside the change: ``reread``, where someone ordered one."""
        return {"reread": [reread.to_value() for reread in self.rereads]} if self.rereads else {}


def fork_glossary(
    then: Glossary,
    head: Glossary,
    *,
    supersede: Iterable[Supersession] = (),
    reread: Mapping[str, Directive] | None = None,
    step: int,
    where: str,
) -> ForkGlossary:
    """Return the glossary of a fork from a revision whose bindings were ``then``, in a lineage that has ``head`` now.

    The head's locked bindings are inherited. A symbol that has moved since is refused, unless ``supersede`` brings its
    old meaning back or ``reread`` has the order of an authority not below those that settled either meaning. Raises
    SemanticDriftError with every difference, InvalidStateError for malformed arguments or a reread of a symbol that
    has not moved.
    """
    inherited = inherit(head)
    draft, rereads = _cross(then, inherited, tuple(supersede), dict(reread or {}), step=step, where=where)
    made = Glossary(draft.after.values())
    change = attrs.evolve(draft.change(), established=inherited.bindings) if made.bindings else None
    return ForkGlossary(made, change, rereads)


def restore_glossary(
    then: Glossary,
    head: Glossary,
    *,
    supersede: Iterable[Supersession] = (),
    reread: Mapping[str, Directive] | None = None,
    used: Container[tuple[str, Directive]] = (),
    step: int,
    where: str,
) -> ForkGlossary:
    """Return the glossary after a restore to a revision whose bindings were ``then``, in a lineage that has ``head``.

    As ``fork_glossary``, but the lineage keeps its bindings: ``change`` records that StepLocal ones end, and what
    ``supersede`` brings back. ``used`` has the orders that have been carried out before.
    """
    inherited = inherit(head)
    orders = tuple(supersede), dict(reread or {})
    draft, rereads = _cross(then, inherited, *orders, step=step, where=where, used=used)
    return ForkGlossary(Glossary(draft.after.values()), draft.change(), rereads)


def _cross(
    then: Glossary,
    inherited: Glossary,
    supersede: tuple[Supersession, ...],
    reread: dict[str, Directive],
    *,
    step: int,
    where: str,
    used: Container[tuple[str, Directive]] = (),
) -> tuple[_Draft, tuple[Reread, ...]]:
    """Bring the bindings in force to an older state, on someone's order where they have moved since."""
    forms.check(inherited, step, (), supersede, tuple(Retirement(*order) for order in reread.items()), ())
    gone = {old.symbol: old for old, new in _shifts(then, inherited) if new is None}
    draft = _Draft(inherited, step, gone, used)
    for order in supersede:
        draft.supersede(order)
    draft.keep_apart()
    shifts = _shifts(then, Glossary(draft.after.values()))
    rereads = []
    for old, new in shifts:
        reason = _unsettled(old, new, reread.get(old.symbol)) or draft.spent(old.symbol, reread[old.symbol])
        if reason:
            draft.differ(old.symbol, describe(old), describe(new) if new else "", reason)
        else:
            rereads.append(Reread(old.symbol, _name(old), _name(new), reread[old.symbol]))
    draft.refuse(where, "supersede back to the old meaning, or pass reread={symbol: Directive}")
    idle = ", ".join(sorted(repr(symbol) for symbol in set(reread) - {old.symbol for old, _ in shifts}))
    if idle:
        raise InvalidStateError(f"{where}: reread names {idle}, which has not moved", advice="leave it out")
    return draft, tuple(rereads)


def describe(binding: Binding) -> str:
    """Return a short text for people, such as ``request timeout (unit: milliseconds) [user, step 1]``."""
    text = _short(binding.definition)
    if binding.constraint:
        text += f" ({_short(binding.constraint)})"
    marks = [binding.authority.value]
    if binding.established_at_step is not None:
        marks.append(f"step {binding.established_at_step}")
    if not binding.locked:
        marks.append(binding.scope.value)
    if binding.verbatim:
        marks.append("verbatim")
    return f"{text} [{', '.join(marks)}]"


class _Draft:
    """The glossary as one call would leave it, with everything that speaks against it."""

    def __init__(
        self,
        held: Glossary,
        step: int,
        gone: Mapping[str, Binding] | None = None,
        used: Container[tuple[str, Directive]] = (),
    ) -> None:
        self._held = {binding.symbol: binding for binding in held}
        self._step = step
        self._gone = dict(gone or {})
        self._used = used
        self._named: dict[str, str] = {}
        self._differences: list[tuple[str, str, str]] = []
        self._reasons: list[str] = []
        self._established: list[Binding] = []
        self._superseded: list[Supersession] = []
        self._retired: list[Retirement] = []
        self._before: dict[str, str] = {}
        self.after = dict(self._held)

    @property
    def changed(self) -> bool:
        return bool(self._established or self._superseded or self._retired)

    def differ(self, symbol: str, before: str, after: str, reason: str = "") -> None:
        self._differences.append((symbol, before, after))
        if reason:
            self._reasons.append(f"{symbol!r}: {reason}")

    def define(self, binding: Binding) -> None:
        if self._first(binding.symbol, describe(binding)):
            self._establish(binding)

    def supersede(self, order: Supersession) -> None:
        binding, symbol = order.binding, order.binding.symbol
        if not self._first(symbol, describe(binding)):
            return
        held = self._held.get(symbol)
        replaced = held or self._gone.get(symbol)
        if replaced is None:
            self.differ(symbol, "", describe(binding), "there is nothing to supersede; use define")
        elif held is None or not _restates(binding, held):
            reason = _forbidden(replaced, order.directive, binding) or self.spent(symbol, order.directive)
            if reason:
                self.differ(symbol, describe(replaced), describe(binding), reason)
            self._before[symbol] = _name(held)
            self.after[symbol] = self._dated(binding)
            self._superseded.append(Supersession(self.after[symbol], order.directive))

    def retire(self, end: Retirement) -> None:
        if not self._first(end.symbol, ""):
            return
        held = self.after.pop(end.symbol, None)
        if held is None:
            self.differ(end.symbol, "", "", "there is nothing to retire")
            return
        reason = _forbidden(held, end.directive) or self.spent(end.symbol, end.directive)
        if reason:
            self.differ(end.symbol, describe(held), "", reason)
        self._before[end.symbol] = _name(held)
        self._retired.append(end)

    def declare(self, declared: Glossary) -> None:
        stated: dict[str, Binding] = {}
        for binding in declared:
            if not binding.locked and binding.established_at_step not in (None, self._step):
                continue  # it held for another step
            symbol = binding.symbol
            found = self.after.get(symbol)
            if symbol in stated:
                said = describe(stated[symbol])
                self.differ(symbol, said, describe(binding), "the declared glossary has two bindings of it")
            elif found is not None:
                if not _restates(binding, found):
                    self.differ(symbol, describe(found), describe(binding))
            elif symbol in self._named:
                self.differ(symbol, "", describe(binding), "it is retired and declared in one call")
            else:
                self._establish(binding)
            stated[symbol] = binding
        for symbol, binding in self.after.items():
            if binding.locked and symbol not in stated:
                self.differ(symbol, describe(binding), "", "the declared glossary leaves it out")
        computed = Glossary(self.after.values()).digest
        if declared.declared not in (None, computed, declared.digest):
            self.differ("(digest)", computed.hex(), declared.to_value()["digest"], "the declared digest is another one")

    def keep_apart(self) -> None:
        """Refuse what is new and reads like another binding, if one of the two is locked."""
        if not self.changed:
            return
        alike: defaultdict[str, list[Binding]] = defaultdict(list)
        for binding in self.after.values():
            alike[symbols.reading(binding.symbol)].append(binding)
        for group in alike.values():
            first, *rest = sorted(group, key=lambda binding: (self._fresh(binding), not binding.locked, binding.symbol))
            for binding in filter(self._fresh, rest):
                if any(other.locked for other in group):
                    self.differ(binding.symbol, describe(first), describe(binding), f"reads like {first.symbol!r}")

    def refuse(self, where: str, advice: str = "") -> None:
        if self._differences:
            said = "; ".join(filter(None, [*sorted(set(self._reasons)), advice]))
            raise SemanticDriftError(where, sorted(set(self._differences)), said)

    def change(self) -> Change:
        return Change(
            established=tuple(sorted(self._established, key=lambda binding: binding.symbol)),
            superseded=tuple(sorted(self._superseded, key=lambda order: order.binding.symbol)),
            retired=tuple(sorted(self._retired, key=lambda end: end.symbol)),
            digest=Glossary(self.after.values()).digest.hex(),
            before=tuple(sorted(self._before.items())),
        )

    def _first(self, symbol: str, text: str) -> bool:
        if symbol not in self._named:
            self._named[symbol] = text
            return True
        self.differ(symbol, self._named[symbol], text, "it is named twice in one call")
        return False

    def spent(self, symbol: str, directive: Directive) -> str:
        if (symbol, directive) not in self._used:
            return ""
        return f"the order {directive.reference!r} has been carried out before; an order counts once"

    def _fresh(self, binding: Binding) -> bool:
        return binding != self._held.get(binding.symbol)

    def _establish(self, binding: Binding) -> None:
        held = self._held.get(binding.symbol)
        if held is None:
            self.after[binding.symbol] = self._dated(binding)
            self._established.append(self.after[binding.symbol])
        elif not _restates(binding, held):
            self.differ(binding.symbol, describe(held), describe(binding))

    def _dated(self, binding: Binding) -> Binding:
        return attrs.evolve(binding, established_at_step=self._step) if binding.established_at_step is None else binding


def _restates(binding: Binding, held: Binding) -> bool:
    """Whether ``binding`` says what is in force, its step perhaps left open."""
    if binding.established_at_step is None:
        held = attrs.evolve(held, established_at_step=None)
    return binding == held


def _forbidden(replaced: Binding, directive: Directive, binding: Binding | None = None) -> str:
    """Say why ``directive`` cannot put ``binding`` (None: nothing) in the place of ``replaced``."""
    reason = _outranked(replaced.authority, directive, locked=replaced.locked)
    if reason or binding is None:
        return reason
    if binding.authority > directive.authority:
        return f"the binding claims more authority ({binding.authority.value}) than the order has"
    if replaced.locked and not binding.locked:
        return "a locked definition does not become StepLocal; retire it"
    return ""


def _unsettled(then: Binding, now: Binding | None, directive: Directive | None) -> str:
    """Say why ``directive`` cannot have a state of ``then`` read under what is in force now."""
    if directive is None:
        return "the state would be read under another meaning"
    return _outranked(then.authority if now is None else max(then.authority, now.authority), directive)


def _outranked(settled_by: Authority, directive: Directive, *, locked: bool = True) -> str:
    needed = max(settled_by, Authority.USER) if locked else settled_by
    if directive.authority >= needed:
        return ""
    return f"an order of {directive.authority.value} is not enough, it takes {needed.value} or above"


def _shifts(then: Glossary, now: Glossary) -> list[tuple[Binding, Binding | None]]:
    today = {binding.symbol: binding for binding in now.task_wide}
    pairs = [(old, today.get(old.symbol)) for old in then.task_wide]
    return [(old, new) for old, new in pairs if new is None or _meaning(old) != _meaning(new)]


def _meaning(binding: Binding) -> tuple[str, str, bool]:
    return binding.definition, binding.constraint, binding.verbatim


def _name(binding: Binding | None) -> str:
    return "" if binding is None else binding.digest.hex()


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… (SHA-256 {digest(text.encode()).hex()[:8]})"


def _expect(fits: bool, symbol: str, problem: str) -> None:
    if not fits:
        raise CorruptError(f"glossary change: {symbol!r} {problem}; run verify")
