"""Going back: each row of the table of DESIGN 5.5, field cases, and properties of any facts."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpstore.model.effect import Effect, EffectPolicy
from cpstore.model.restore import Acknowledgement, Verdict
from cpstore.rules import restore
from cpstore.rules.restore import Facts, check_acknowledged, judge

_SPEC = importlib.util.spec_from_file_location(
    "cpstore_rules_table_restore", Path(__file__).with_name("table_effects.py")
)
assert _SPEC is not None
assert _SPEC.loader is not None
table = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = table
_SPEC.loader.exec_module(table)

CASES = [
    pytest.param(check, arguments, id=f"{row}: {name}")
    for row, laws in table.RESTORE.items()
    for name, check, arguments in laws
]

EFFECTS = st.builds(
    lambda number, state, policy: attrs.evolve(
        table.FOUND[state], id=attrs.evolve(table.ID, key=f"order-{number}"), policy=policy
    ),
    st.integers(0, 30),
    st.sampled_from(sorted(table.FOUND)),
    st.sampled_from(EffectPolicy),
)
SEQS = st.integers(1, 12)
GAPS = st.lists(st.tuples(SEQS, SEQS), max_size=3).map(lambda gaps: tuple(sorted(set(gaps))))
LISTS = st.lists(EFFECTS, max_size=14).map(tuple)
FACTS = st.builds(
    Facts,
    watermark=SEQS | st.none() | st.sampled_from(["3", True, 0, 1.5, -1]),
    head_seq=SEQS,
    counts=st.dictionaries(st.integers(0, 4), st.integers(0, 9)),
    unsettled=LISTS,
    unasked=LISTS,
    gaps=GAPS,
    lossy=st.booleans(),
)


@pytest.mark.parametrize(("check", "arguments"), CASES)
def test_the_table_of_outcomes_holds(check: Any, arguments: tuple[Any, ...]) -> None:
    check(SimpleNamespace(restore=restore), *arguments)


def test_f53_an_acknowledgement_of_one_effect_does_not_let_another_pass() -> None:
    one, other = (attrs.evolve(table.FILED, id=attrs.evolve(table.FILED.id, occurrence=number)) for number in (1, 2))
    word = Acknowledgement("ada", "go ahead", (one.id.digest.hex(),))
    assert check_acknowledged(judge(Facts(3, 10, unasked=(one,))), word) == ""
    assert "is not named" in check_acknowledged(judge(Facts(3, 10, unasked=(other,))), word)
    assert "is not named" in check_acknowledged(judge(Facts(3, 10, unasked=(one, other))), word)
    assert "the gap (4, 5) is not named" in check_acknowledged(
        judge(Facts(3, 10, unasked=(one,), gaps=((4, 5),))), word
    )


def test_f73_a_rollback_over_an_effect_that_is_under_way_is_refused_for_everyone() -> None:
    for found in (table.FOUND["started"], table.FOUND["released"]):
        judgement = judge(Facts(3, 10, {2: 1}, (found,)))
        assert judgement.verdict is Verdict.REFUSED
        word = Acknowledgement("ada", "go ahead", judgement.effects)
        assert check_acknowledged(judgement, word)


def named(*effects: Effect) -> set[str]:
    return {effect.id.digest.hex() for effect in effects}


@given(FACTS)
def test_nothing_is_cleared_that_the_ledger_does_not_clear(facts: Facts) -> None:
    judgement = judge(facts)

    clear = restore.readable(facts.watermark, facts.head_seq) and not (facts.gaps or facts.unsettled or facts.unasked)
    assert (judgement.verdict is Verdict.CLEARED) is clear
    assert judgement.reasons
    assert not facts.lossy or judgement.verdict is not Verdict.NEEDS_ACKNOWLEDGEMENT


@given(FACTS)
def test_what_has_to_be_named_is_all_that_stands_in_the_way_sorted_and_once(facts: Facts) -> None:
    judgement = judge(facts)

    assert list(judgement.effects) == sorted(named(*facts.unsettled, *facts.unasked))
    assert bool(judgement.gaps) is (bool(facts.gaps) or not restore.readable(facts.watermark, facts.head_seq))


@given(FACTS, st.data())
def test_one_acknowledgement_fits_and_every_other_one_does_not(facts: Facts, data: st.DataObject) -> None:
    judgement = judge(facts)
    exact = Acknowledgement("ada", "I looked", reversed(judgement.effects), judgement.gaps)
    assert (check_acknowledged(judgement, exact) == "") is (judgement.verdict is not Verdict.REFUSED)

    pool = sorted({*judgement.effects, "ab" * 32})
    effects = data.draw(st.lists(st.sampled_from(pool), unique=True))
    gaps = data.draw(st.lists(st.sampled_from(sorted({*judgement.gaps, (4, 9)})), unique=True))
    passes = check_acknowledged(judgement, Acknowledgement("ada", "I looked", effects, gaps)) == ""
    fits = set(effects) == set(judgement.effects) and set(gaps) == set(judgement.gaps)
    assert passes is (
        judgement.verdict is Verdict.CLEARED or (fits and judgement.verdict is Verdict.NEEDS_ACKNOWLEDGEMENT)
    )


@given(FACTS)
def test_a_loss_of_content_never_makes_it_easier(facts: Facts) -> None:
    order = list(Verdict)
    kept = order.index(judge(attrs.evolve(facts, lossy=False)).verdict)
    assert order.index(judge(attrs.evolve(facts, lossy=True)).verdict) >= kept
