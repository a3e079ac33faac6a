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
        *(_fault(one, Binding) or _step_fault(one, step) or _new_fault(one, held) for one in define),
        *(_fault(one, Binding) or _new_fault(one, held) for one in declared),
        *(
            _fault(order, Supersession)
            or _step_fault(order.binding, step)
            or _text_fault(order.binding, held)
            or _order_fault(order)
            for order in supersede
        ),
        *(_fault(end, Retirement) or _order_fault(end) for end in retire),
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


def _new_fault(binding: Binding, held: Glossary) -> str:
    # What is in force passed once; another release's Unicode tables must not make it unusable.
    wrong = "" if held.get(binding.symbol) else symbols.fault(binding.symbol)
    return f"the symbol {binding.symbol!r} {wrong}" if wrong else _text_fault(binding, held)


def _text_fault(binding: Binding, held: Glossary) -> str:
    found = held.get(binding.symbol)
    texts = {"definition": binding.definition, "constraint": binding.constraint}
    new = {name: text for name, text in texts.items() if text != getattr(found, name, None)}
    return _unseen(f"of {binding.symbol!r}", new)


def _order_fault(order: Supersession | Retirement) -> str:
    directive = order.directive
    texts = {"reference": directive.reference, "text": directive.text}
    return _unseen(f"of the order on {_subject(order)!r}", texts)


def _unseen(whose: str, texts: dict[str, str]) -> str:
    blank = [name for name, text in texts.items() if text and symbols.invisible(text)]
    return f"the {blank[0]} {whose} has no character that can be seen" if blank else ""
