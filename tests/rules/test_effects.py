"""Effects: each cell of the table, field cases, and properties of any history of calls."""

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

from cpstore import canonical
from cpstore.errors import (
    EffectBusyError,
    EffectConflictError,
    EffectInDoubtError,
    InvalidStateError,
    RefusedError,
)
from cpstore.model.effect import Effect, EffectPolicy, EffectState, Owner, Place
from cpstore.rules import effects
from cpstore.rules.effects import Answer, Claim, Liveness, check_next

_SPEC = importlib.util.spec_from_file_location(
    "cpstore_rules_table_effects", Path(__file__).with_name("table_effects.py")
)
assert _SPEC is not None
assert _SPEC.loader is not None
table = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = table
_SPEC.loader.exec_module(table)

CASES = [
    pytest.param(check, arguments, id=f"{row}: {name}")
    for row, laws in table.EFFECTS.items()
    for name, check, arguments in laws
]
FOUND, A, B, R, S = table.FOUND, table.A, table.B, table.R, table.S
READ_ONLY, IDEMPOTENT, RECONCILABLE, AT_MOST_ONCE = EffectPolicy
LAST = Place("invoice-42", 9)
WORD = {"who": "ada", "why": "the bank says so"}


@pytest.mark.parametrize(("check", "arguments"), CASES)
def test_the_table_of_outcomes_holds(check: Any, arguments: tuple[Any, ...]) -> None:
    check(SimpleNamespace(effects=effects), *arguments)


def claim(name: str = "refund", arguments: str = A, key: str | None = "order-17", occurrence: int = 1) -> Claim:
    return effects.identify(
        "default", name, arguments, key=key, occurrence=occurrence, scope="family", root="invoice-42",
        lineage="invoice-42", redacted=False, policy=AT_MOST_ONCE,
    )  # fmt: skip


# --- field cases ------------------------------------------------------------------------------------------------------


def test_f35_a_retry_that_succeeds_is_what_stands_and_both_attempts_are_counted() -> None:
    one = effects.started(claim(), None, table.ME, None)
    lost = effects.failed(one, 1, "connection refused", False, LAST)
    assert lost is not None
    assert effects.begin(claim(), lost) is Answer.FRESH
    two = effects.started(claim(), lost, table.ME, LAST)
    done = effects.completed(two, 2, R, LAST)

    assert done is not None
    assert (done.state, done.result, done.attempt, done.error) == (EffectState.COMPLETED, R, 2, "")
    late = effects.failed(done, 1, "connection refused", False, LAST)
    assert late is not None
    assert late == attrs.evolve(done, evidence=1, resulted=LAST)
    assert effects.begin(claim(), late) is Answer.REPLAY


def test_f52_a_cancelled_effect_stays_cancelled_whatever_is_said_afterwards() -> None:
    asked = attrs.evolve(claim(), policy=READ_ONLY)
    off = effects.cancelled(asked, None, who="ada", why="plan P2 was dropped", last=None)
    assert off is not None
    for policy in EffectPolicy:
        with pytest.raises(EffectConflictError, match="cancelled by ada: plan P2 was dropped"):
            effects.begin(attrs.evolve(claim(), policy=policy), off, probe=True)
    with pytest.raises(EffectConflictError):
        effects.recorded(claim(), off, R)
    with pytest.raises(EffectConflictError):
        effects.compensated(off, last=LAST, **WORD)
    for happened in (True, False):
        with pytest.raises(EffectConflictError):
            effects.reconciled(off, happened=happened, result=None, owner=Liveness.GONE, last=LAST, **WORD)
    assert check_next(off, attrs.evolve(off, state=EffectState.STARTED, attempt=1, argued=LAST), "begin")


def test_f53_a_word_on_one_effect_authorises_no_other() -> None:
    approved = attrs.evolve(FOUND["not happened"], why="go ahead, try again")
    assert effects.begin(claim(), approved) is Answer.FRESH
    for other in (claim(name="delete"), claim(key="order-18"), claim(occurrence=2), claim(key=None)):
        assert other.id.digest != approved.id.digest
        assert other.id.forwarded("store") != approved.id.forwarded("store")
    with pytest.raises(EffectConflictError, match="other arguments"):
        effects.begin(claim(arguments=B), approved)
    again = effects.started(claim(), approved, table.ME, LAST)
    assert (again.who, again.why) == ("", "")  # the word was for one attempt
    with pytest.raises(EffectInDoubtError):
        effects.begin(claim(), again)


def test_f70_storing_the_result_again_after_a_failed_write_stores_it_once() -> None:
    under_way = effects.started(claim(), None, table.ME, None)
    with pytest.raises(EffectInDoubtError):
        effects.begin(claim(), under_way)
    done = effects.completed(under_way, 1, R, LAST)
    assert done is not None
    assert effects.completed(done, 1, R, LAST) is None
    assert done.evidence == 0
    with pytest.raises(EffectConflictError, match="the first stands"):
        effects.completed(done, 1, S, LAST)


def test_f71_work_of_a_live_owner_is_not_taken_over_by_anyone() -> None:
    under_way = FOUND["started"]
    for policy in (IDEMPOTENT, RECONCILABLE, AT_MOST_ONCE):
        found = attrs.evolve(under_way, policy=policy)
        with pytest.raises(EffectBusyError, match="process 7"):
            effects.begin(attrs.evolve(claim(), policy=policy), found, owner=Liveness.ALIVE, probe=True)
    for happened in (True, False):
        with pytest.raises(EffectBusyError):
            effects.reconciled(under_way, happened=happened, result=None, owner=Liveness.ALIVE, last=LAST, **WORD)


def test_f71_the_number_of_the_attempt_fences_not_the_owner_that_looks_the_same() -> None:
    found = attrs.evolve(FOUND["started"], policy=IDEMPOTENT)
    again = effects.started(attrs.evolve(claim(), policy=IDEMPOTENT), found, table.ME, LAST)
    assert (again.owner, again.attempt) == (found.owner, 2)
    late = effects.completed(again, 1, R, LAST)
    assert late is not None
    assert (late.state, late.result, late.evidence, late.owner) == (EffectState.STARTED, None, 1, table.ME)


def test_f73_of_two_that_resume_one_run_one_goes_ahead() -> None:
    assert effects.begin(claim(), None) is Answer.FRESH
    first = effects.started(claim(), None, table.ME, None)
    with pytest.raises(EffectBusyError):
        effects.begin(claim(), first, owner=Liveness.ALIVE)
    for owner in (Liveness.GONE, Liveness.UNSEEN):
        with pytest.raises(EffectInDoubtError):
            effects.begin(claim(), first, owner=owner)


def test_f76_the_same_key_with_other_arguments_is_a_conflict_that_shows_both_digests() -> None:
    for found in FOUND.values():
        with pytest.raises(EffectConflictError) as caught:
            effects.begin(claim(arguments=B), found)
        assert f"{A[:16]}… then" in str(caught.value)
        assert f"{B[:16]}… now" in str(caught.value)


def test_f77_an_id_that_is_used_for_something_else_is_refused_and_the_first_goes_on() -> None:
    under_way = effects.started(claim(), None, table.ME, None)
    other = attrs.evolve(claim(arguments=B), policy=RECONCILABLE)
    with pytest.raises(EffectConflictError):
        effects.begin(other, under_way)
    with pytest.raises(EffectConflictError):
        effects.recorded(other, under_way, S)
    with pytest.raises(EffectConflictError):
        effects.cancelled(other, under_way, last=LAST, **WORD)
    with pytest.raises(EffectConflictError, match="is weaker"):
        effects.begin(attrs.evolve(claim(), policy=RECONCILABLE), under_way)
    done = effects.completed(under_way, 1, R, LAST)
    assert done is not None
    assert done.result == R
    assert claim(name="delete").id.digest != under_way.id.digest


def test_a_second_run_with_the_same_result_does_not_go_unnoticed() -> None:
    """Reconciled as not happened, begun again, completed; then the first attempt comes back with an equal receipt."""
    again = effects.started(claim(), FOUND["not happened"], table.OTHER, LAST)
    done = effects.completed(again, 2, R, LAST)
    assert done is not None
    ghost = effects.completed(done, 1, R, LAST)
    assert ghost is not None
    assert ghost == attrs.evolve(done, evidence=1, resulted=LAST)


# --- any history ------------------------------------------------------------------------------------------------------

OWNERS = (Owner("m/1", "p", 7, 100), Owner("m/1", "p", 8, 200))
RESULTS, WHO = st.sampled_from([R, S]), st.sampled_from(["ada", "bob"])
ATTEMPT = st.sampled_from([0, 0, 0, -1, -2])  # counted from the newest one


def calls(*policies: EffectPolicy) -> st.SearchStrategy[tuple[Any, ...]]:
    """Calls about one effect, those that go on with it more often than those that end it."""
    begin = st.tuples(
        st.just("begin"), st.sampled_from(policies), st.sampled_from(Liveness), st.booleans(), st.sampled_from(OWNERS)
    )
    complete = st.tuples(st.just("complete"), ATTEMPT, RESULTS)
    errors, happened = st.sampled_from(["", "boom"]), st.sampled_from([True, False, None])
    fail = st.tuples(st.just("fail"), ATTEMPT, errors, happened)
    reconcile = st.tuples(st.just("reconcile"), st.booleans(), WHO, st.just(None) | RESULTS, st.sampled_from(Liveness))
    undo, off = st.tuples(st.just("compensate"), WHO), st.tuples(st.just("cancel"), WHO)
    record = st.tuples(st.just("record"), RESULTS)
    often = [begin, begin, begin, complete, fail, fail, fail, reconcile, reconcile, undo]
    return st.sampled_from([*often, off, record]).flatmap(lambda kind: kind)


CALLS = calls(*EffectPolicy)
RUNS = st.sampled_from(EffectPolicy).flatmap(
    lambda policy: st.tuples(
        st.just([("begin", policy, Liveness.GONE, False, OWNERS[0])]) | st.just([]),
        st.lists(calls(policy, policy, AT_MOST_ONCE), max_size=16),
    )
)


def call(found: Effect | None, what: tuple[Any, ...], place: Place) -> tuple[str, Effect | None]:
    """Do one call as a lineage does; return the verb of its entry and the record after it, None if there is none."""
    verb, *given = what
    asked = attrs.evolve(claim(), policy=IDEMPOTENT)
    if verb == "begin":
        asked = attrs.evolve(asked, policy=given[0])
        fresh = effects.begin(asked, found, owner=given[1], probe=given[2]) is Answer.FRESH
        return verb, effects.started(asked, found, given[3], place if found else None) if fresh else None
    if verb == "record":
        return verb, effects.recorded(asked, found, given[0])
    if verb == "cancel":
        return verb, effects.cancelled(asked, found, who=given[0], why="so be it", last=place if found else None)
    if found is None:
        return verb, None
    if verb == "compensate":
        return verb, effects.compensated(found, who=given[0], why="so be it", last=place)
    if verb == "reconcile":
        happened, who, result, owner = given
        return verb, effects.reconciled(
            found, happened=happened, who=who, why="so be it", result=result, owner=owner, last=place
        )
    if verb == "complete":
        after = effects.completed(found, found.attempt + given[0], given[1], place)
    else:
        after = effects.failed(found, found.attempt + given[0], given[1], given[2], place)
        verb = "release" if given[2] is None else "fail"
    return ("late" if after and after.evidence > found.evidence else verb), after


def play(calls: list[tuple[Any, ...]]) -> list[tuple[tuple[Any, ...], str, Effect | None, Effect]]:
    """Do calls one after another; return (call, verb, record before, record after) of each that was written."""
    found: Effect | None = None
    written: list[tuple[tuple[Any, ...], str, Effect | None, Effect]] = []
    for what in calls:
        try:
            verb, after = call(found, what, Place("invoice-42", len(written)))  # of the newest entry, counted from 1
        except (RefusedError, InvalidStateError):
            continue
        if after is not None:
            written.append((what, verb, found, after))
            found = after
    return written


HISTORIES = RUNS.map(lambda run: play(run[0] + run[1]))


@given(HISTORIES)
def test_what_the_rules_make_is_what_verify_accepts_and_reads_back(history: Any) -> None:
    for what, verb, before, after in history:
        assert check_next(before, after, verb) == "", (what, before, after)
        assert Effect.from_value(canonical.decode(canonical.encode(after.to_value())), "default") == after


@given(HISTORIES)
def test_an_effect_that_may_have_happened_is_never_begun_again_without_a_word(history: Any) -> None:
    open_ = False  # an attempt went ahead, and nobody has said that it left the world as it was
    for _, verb, _, after in history:
        if verb == "begin" and after.policy >= RECONCILABLE:
            assert not open_
        if verb in ("begin", "complete", "record") or (verb in ("fail", "reconcile") and after.state.happened):
            open_ = True
        elif verb in ("fail", "reconcile", "compensate"):
            open_ = False


@given(HISTORIES)
def test_counts_and_policies_only_rise_and_what_it_is_never_changes(history: Any) -> None:
    for _, _, before, after in history:
        if before is not None:
            assert (after.id, after.keyed, after.arguments) == (before.id, before.keyed, before.arguments)
            assert after.recorded is before.recorded
            assert after.policy >= before.policy
            assert (after.attempt - before.attempt, after.evidence - before.evidence) in ((0, 0), (1, 0), (0, 1))
            assert after.argued is not None
            assert before.argued in (None, after.argued)


@given(HISTORIES)
def test_the_first_verdict_stands_until_the_effect_is_undone_or_begun_again(history: Any) -> None:
    for _, verb, before, after in history:
        if before is not None and before.state.settled and verb not in ("begin", "compensate", "cancel"):
            assert verb == "late"
            told = {"evidence": after.evidence, "argued": after.argued, "resulted": after.resulted}
            assert after == attrs.evolve(before, **told)


@given(HISTORIES)
def test_nothing_but_evidence_follows_a_cancellation(history: Any) -> None:
    cancelled = False
    for _, verb, _, after in history:
        assert not cancelled or verb == "late"
        cancelled = after.state is EffectState.CANCELLED


@given(HISTORIES, CALLS)
def test_a_call_that_is_repeated_is_known_or_refused_or_noted(history: Any, what: tuple[Any, ...]) -> None:
    found = history[-1][3] if history else None
    try:
        verb, after = call(found, what, LAST)
    except (RefusedError, InvalidStateError):
        return
    if after is None or verb == "late":
        return
    try:
        again, twice = call(after, what, LAST)
    except (EffectBusyError, EffectInDoubtError):
        assert verb == "begin"
        return
    if verb != "begin":
        assert twice is None, (what, again)


@given(HISTORIES)
def test_the_record_says_which_entries_brought_the_arguments_and_the_result(history: Any) -> None:
    brought: dict[int, str] = {}
    for seq, (_, verb, _, after) in enumerate(history, 1):
        assert (after.argued.seq if after.argued else seq) == 1
        if verb in ("complete", "record", "reconcile"):
            assert after.resulted is None
            brought[seq] = after.result
        if after.result is not None:
            assert brought[after.resulted.seq if after.resulted else seq] == after.result
        else:
            assert after.resulted is None
