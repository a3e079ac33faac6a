"""The glossary lock: each row of the table of outcomes, and properties of any sequence of commands."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpstore.errors import RefusedError
from cpstore.model.binding import Authority, Binding, Directive, Retirement, Scope, Supersession
from cpstore.model.glossary import Change, Glossary
from cpstore.rules import forks, glossary, revisions, symbols

_SPEC = importlib.util.spec_from_file_location("cpstore_rules_table", Path(__file__).with_name("table.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
table = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = table
_SPEC.loader.exec_module(table)

RULES = SimpleNamespace(glossary=glossary, revisions=revisions, forks=forks)
CASES = [
    pytest.param(check, arguments, id=f"{row}: {name}")
    for row, laws in table.LAWS.items()
    for name, check, arguments in laws
]

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(str.strip)
NAMES = st.sampled_from(["a", "b", "c", "timeout", "TIMEOUT", "ﬁx", "fix"])
BINDINGS = st.builds(
    Binding,
    symbol=NAMES,
    definition=st.sampled_from(["one", "two"]),
    constraint=st.sampled_from(["", "unit: s"]),
    scope=st.sampled_from(Scope),
    authority=st.sampled_from(Authority),
    established_at_step=st.sampled_from([None, 0, 1]),
    verbatim=st.booleans(),
)
LOCKED = st.builds(Binding, symbol=TEXTS, definition=TEXTS, constraint=st.just("") | TEXTS)
AGENTS = st.builds(Directive, st.just(Authority.AGENT), st.just("own"), st.just("because"))
ORDERS = st.builds(Directive, st.sampled_from(Authority), st.just("message 41"), st.just("so be it"))


def commands(directives: st.SearchStrategy[Directive]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {},
        optional={
            "define": st.lists(BINDINGS, max_size=3),
            "supersede": st.lists(st.builds(Supersession, BINDINGS, directives), max_size=2),
            "retire": st.lists(st.builds(Retirement, NAMES, directives), max_size=1),
        },
    )


def play(calls: list[dict[str, Any]]) -> tuple[list[Glossary], list[tuple[int, Change]]]:
    """Run commands over an empty glossary; return what was in force after each and the changes that were accepted."""
    held, changes = [Glossary(())], []
    for at, call in enumerate(calls):
        step = at // 2
        now = glossary.in_force(held[-1], step)
        try:
            change = glossary.advance(now, step=step, where="a", **call)
        except RefusedError:
            change = None
        if change is not None:
            changes.append((step, change))
            now = glossary.apply(now, change, step)
        held.append(now)
    return held, changes


@pytest.mark.parametrize(("check", "arguments"), CASES)
def test_the_table_of_outcomes_holds(check: Any, arguments: tuple[Any, ...]) -> None:
    check(RULES, *arguments)


def test_the_lock_tells_apart_what_joined_fields_confuse() -> None:
    one = Glossary((Binding("a", "b", "c", established_at_step=1), Binding("d", "e", "f", established_at_step=1)))
    other = Glossary((Binding("a", "b[c]@1|d=e", "f", established_at_step=1),))

    assert one.digest != other.digest


@given(st.lists(LOCKED, max_size=4, unique_by=lambda binding: binding.symbol), st.data())
def test_two_glossaries_have_one_lock_only_if_they_are_equal(bindings: list[Binding], data: st.DataObject) -> None:
    one = Glossary(bindings)
    other = Glossary(data.draw(st.just(bindings) | st.lists(LOCKED, max_size=4, unique_by=lambda b: b.symbol)))

    assert (one.digest == other.digest) == (one == other)


@given(st.lists(BINDINGS, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_definitions_does_not_matter(bindings: list[Binding], random: Any) -> None:
    mixed = bindings.copy()
    random.shuffle(mixed)

    outcomes: list[object] = []
    for order in (bindings, mixed):
        try:
            outcomes.append(glossary.advance(Glossary(()), step=1, define=order, where="a"))
        except RefusedError as error:
            outcomes.append(type(error))

    assert outcomes[0] == outcomes[1]


@given(st.lists(commands(ORDERS), max_size=8))
def test_folding_the_recorded_changes_gives_what_was_in_force(calls: list[dict[str, Any]]) -> None:
    held, changes = play(calls)

    folded = Glossary(())
    for step, change in changes:
        folded = glossary.apply(folded, Change.from_value(change.to_value()), step)

    last = max(0, len(calls) - 1) // 2
    assert glossary.in_force(folded, last) == held[-1]


@given(st.lists(commands(AGENTS), max_size=8))
def test_no_agent_ever_changes_or_drops_a_locked_binding(calls: list[dict[str, Any]]) -> None:
    held, _ = play(calls)

    for before, after in itertools.pairwise(held):
        assert set(before.task_wide) <= set(after.task_wide)


@given(st.lists(commands(ORDERS), max_size=8), BINDINGS)
def test_what_a_call_does_not_name_is_carried_forward(calls: list[dict[str, Any]], new: Binding) -> None:
    held = play(calls)[0][-1]
    new = attrs.evolve(new, established_at_step=None)
    try:
        change = glossary.advance(held, step=99, define=[new], where="a")
    except RefusedError:
        return

    after = held if change is None else glossary.apply(held, change, 99)

    assert {b for b in held.task_wide if b.symbol != new.symbol} <= set(after)
    assert after.get(new.symbol) is not None


@given(st.lists(commands(ORDERS), max_size=8))
def test_no_two_symbols_read_alike_once_one_is_locked(calls: list[dict[str, Any]]) -> None:
    for now in play(calls)[0]:
        readings = {symbols.reading(binding.symbol) for binding in now.task_wide}

        assert len(readings) == len(now.task_wide)
        assert not any(symbols.reading(b.symbol) in readings for b in now if not b.locked)


@given(st.lists(commands(ORDERS), max_size=6), st.lists(commands(ORDERS), max_size=6))
def test_a_fork_inherits_the_heads_locks_or_is_refused(first: list[dict[str, Any]], then: list[dict[str, Any]]) -> None:
    held = play(first + then)[0]
    old, head = held[len(first)], held[-1]
    moved = glossary.moved(old, head)
    try:
        plan = glossary.fork_glossary(old, head, step=1, where="b@1")
    except RefusedError as error:
        assert moved
        assert error.differences == moved  # type: ignore[attr-defined]
        return

    assert not moved
    assert plan.glossary == Glossary(head.task_wide)
    assert plan.glossary.digest == head.digest


@given(st.text(max_size=12))
def test_what_reads_alike_reads_alike_twice(text: str) -> None:
    once = symbols.reading(text)

    assert symbols.reading(once) == once
