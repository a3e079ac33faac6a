"""What can be no binding, symbol or directive at all, whatever is locked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpstore.errors import InvalidStateError
from cpstore.model.binding import Binding, Retirement, Supersession
from cpstore.rules import symbols

if TYPE_CHECKING:
    from cpstore.model.glossary import Glossary


def check(
    held: Glossary,
    step: int,
    define: tuple[Binding, ...],
    supersede: tuple[Supersession, ...],
    retire: tuple[Retirement, ...],
    declared: tuple[Binding, ...],
) -> None:
    """Let the parts of a call pass that are well-formed. Raises InvalidStateError with all that is wrong."""
    problems = [
        *(_fault(binding, Binding) or _step_fault(binding, step) or _symbol_fault(binding, held) for binding in define),
        *(_fault(binding, Binding) or _symbol_fault(binding, held) for binding in declared),
        *(_fault(order, Supersession) or _step_fault(order.binding, step) for order in supersede),
        *(_fault(end, Retirement) for end in retire),
    ]
    found = sorted(filter(None, problems))
    if found:
        raise InvalidStateError("; ".join(found))


def _fault(record: Binding | Supersession | Retirement, kind: type) -> str:
    if not isinstance(record, kind):
        return f"a {kind.__name__} is needed here, not {record!r:.100}"
    wrong = record.fault()
    return f"the {kind.__name__} {_subject(record)!r} cannot stand: {wrong}" if wrong else ""


def _subject(record: Binding | Supersession | Retirement) -> object:
    return getattr(record.binding, "symbol", None) if isinstance(record, Supersession) else record.symbol


def _step_fault(binding: Binding, step: int) -> str:
    if binding.locked or binding.established_at_step in (None, step):
        return ""
    return f"the StepLocal {binding.symbol!r} holds only for step {step}, not {binding.established_at_step}"


def _symbol_fault(binding: Binding, held: Glossary) -> str:
    # What is in force passed once; another release's Unicode tables must not make it unusable.
    wrong = "" if held.get(binding.symbol) else symbols.fault(binding.symbol)
    return f"the symbol {binding.symbol!r} {wrong}" if wrong else ""
