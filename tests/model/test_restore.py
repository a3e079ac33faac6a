"""Acknowledgements and plans: canonical form, and what cannot be said or read."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpstore import canonical
from cpstore.errors import CorruptError, InvalidStateError
from cpstore.model.effect import EffectPolicy
from cpstore.model.restore import EFFECT_CLASSES, Acknowledgement, RestorePlan, Verdict

A, B = "ab" * 32, "0c" * 32
WORD = Acknowledgement("ada", "I looked", (A, B), ((4, 6), (1, 2)))
PLAN = RestorePlan(
    "invoice-42", 3, 9, 4, 17, Verdict.NEEDS_ACKNOWLEDGEMENT, ("one", "two"), ("go on",), {"other": 2}, ("refund",),
    ("mail",), (A,), ((4, 6),), (("timeout", "ms", "s"),), lossy=True,
)  # fmt: skip

SAID = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9).filter(str.strip)
DIGESTS = st.binary(min_size=32, max_size=32).map(bytes.hex)
SEQS = st.integers(0, canonical.MAX_INTEGER)
WORDS = st.builds(Acknowledgement, SAID, SAID, st.lists(DIGESTS, max_size=3), st.lists(st.tuples(SEQS, SEQS)))


@given(WORDS)
def test_what_is_stored_reads_back_equal(word: Acknowledgement) -> None:
    value = canonical.decode(canonical.encode(word.to_value()))
    assert Acknowledgement.from_value(value) == word


def test_the_canonical_form_is_sorted_and_has_all_fields() -> None:
    assert WORD.to_value() == {"effects": [B, A], "gaps": [[1, 2], [4, 6]], "who": "ada", "why": "I looked"}
    assert Acknowledgement("ada", "x").to_value() == {"effects": [], "gaps": [], "who": "ada", "why": "x"}


@given(st.lists(DIGESTS, max_size=4), st.lists(st.tuples(SEQS, SEQS), max_size=4))
def test_the_order_in_which_things_are_named_does_not_matter(effects: Any, gaps: Any) -> None:
    word = Acknowledgement("ada", "x", effects, gaps)
    assert word == Acknowledgement("ada", "x", iter(effects[::-1]), [list(gap) for gap in gaps[::-1]])
    assert word.effects == tuple(sorted(effects))
    assert word.gaps == tuple(sorted(gaps))


@pytest.mark.parametrize("effects", [A, None, 7, True, (7,), [None], [A, 7], [A.encode()], A.encode(), [[A]]])
def test_effects_are_a_list_of_ids(effects: Any) -> None:
    with pytest.raises(InvalidStateError, match="the effects of an acknowledgement are a list of ids, not"):
        Acknowledgement("ada", "x", effects)


@pytest.mark.parametrize(
    "gaps",
    [
        None, 7, True, "ab", (4, 6), ["ab"], [(4,)], [(4, 5, 6)], [4], [None], [("4", "6")], [(4, 6.0)], [(4.0, 6)],
        [(True, 6)], [(4, True)], [(-1, 6)], [(4, 1 << 53)], [(None, 6)], [(4, None)], [(4, 6), (7, "8")],
    ],
)  # fmt: skip
def test_gaps_are_pairs_of_seqs(gaps: Any) -> None:
    with pytest.raises(InvalidStateError, match="gaps are pairs"):
        Acknowledgement("ada", "x", (), gaps)


@pytest.mark.parametrize(
    ("field", "junk"),
    [
        *((name, junk) for name in ("who", "why") for junk in (None, 7, True, "", " \n", [], "\ud800")),
        *(("effects", junk) for junk in (None, 7, A, {}, {A: 1}, (A,), [7], [None], [""], [A.upper()], [A[:-1]])),
        ("effects", [A, B]),
        ("effects", [B, A + "0"]),
        *(("gaps", junk) for junk in (None, 7, "ab", {}, (), [4], [[4]], [[4, 5, 6]], [["4", "6"]], [[True, 6]])),
        *(("gaps", junk) for junk in ([[4, 6.0]], [[-1, 6]], [[4, 1 << 53]], [(4, 6)], [[4, 6], [1, 2]], ["ab"])),
    ],
)
def test_a_malformed_field_is_corrupt(field: str, junk: Any) -> None:
    with pytest.raises(CorruptError, match="a stored acknowledgement"):
        Acknowledgement.from_value(WORD.to_value() | {field: junk})


def test_a_value_with_other_fields_is_corrupt() -> None:
    whole = WORD.to_value()
    wrong: Any
    for wrong in (None, [], "x", 7, {}, [whole], whole | {"more": 1}):
        with pytest.raises(CorruptError):
            Acknowledgement.from_value(wrong)
    for name in whole:
        with pytest.raises(CorruptError):
            Acknowledgement.from_value({other: part for other, part in whole.items() if other != name})


def test_the_classes_are_those_of_the_effects() -> None:
    assert EFFECT_CLASSES == ("read_only", "idempotent", "other", "recorded without a key", "of one lineage")
    assert EFFECT_CLASSES[:2] == tuple(policy.value for policy in EffectPolicy if policy.repeatable)


def test_a_plan_is_cleared_if_the_ledger_clears_it_and_no_lock_has_moved() -> None:
    for verdict in Verdict:
        plan = attrs.evolve(PLAN, verdict=verdict)
        assert not plan.cleared
        assert attrs.evolve(plan, moved=()).cleared is (verdict is Verdict.CLEARED)
    assert [verdict.value for verdict in Verdict] == ["cleared", "needs acknowledgement", "refused"]


def test_a_plan_is_shown_with_all_its_fields() -> None:
    assert PLAN.to_value() == {
        "lineage": "invoice-42",
        "revision": 3,
        "head": 9,
        "watermark": 4,
        "head_seq": 17,
        "verdict": "needs acknowledgement",
        "reasons": ["one", "two"],
        "alternatives": ["go on"],
        "counts": {"other": 2},
        "unsettled": ["refund"],
        "unasked": ["mail"],
        "effects": [A],
        "gaps": [[4, 6]],
        "moved": [["timeout", "ms", "s"]],
        "lossy": True,
    }
    assert canonical.encode(PLAN.to_value())
    unknown = attrs.evolve(PLAN, watermark=None)
    assert unknown.to_value()["watermark"] is None


def test_what_is_shown_of_a_plan_can_be_changed_without_changing_the_plan() -> None:
    PLAN.to_value()["counts"]["other"] = 0
    assert PLAN.counts == {"other": 2}
