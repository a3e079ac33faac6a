"""The outcomes that DESIGN 5.4 and 5.5 promise, as laws over any copy of the rules.

Each law is a sentence that takes ``rules`` (the modules effects and restore) and fails if the promise is broken:
test_effects.py and test_restore.py run them over the rules, test_mutants.py over broken copies of them.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import attrs

from cpstore.errors import (
    CheckpointStoreError,
    EffectBusyError,
    EffectConflictError,
    EffectInDoubtError,
    InvalidStateError,
)
from cpstore.model.effect import TEXT_MAX, Effect, EffectId, EffectPolicy, EffectState, Owner, Place
from cpstore.model.restore import Acknowledgement, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

READ_ONLY, IDEMPOTENT, RECONCILABLE, AT_MOST_ONCE = EffectPolicy
STARTED, COMPLETED, FAILED, HAPPENED, NOT_HAPPENED, COMPENSATED, CANCELLED = EffectState
EFFECTS: dict[str, list[tuple[str, Callable[..., None], tuple[Any, ...]]]] = {}
RESTORE: dict[str, list[tuple[str, Callable[..., None], tuple[Any, ...]]]] = {}
"""Row of the table → (sentence, law, arguments)."""

A, B, R, S = (text * 32 for text in ("a0", "b1", "c2", "d3"))
"""Digests: of two arguments, of two results."""
ID = EffectId("default", "family", "invoice-42", "refund", "order-17")
ME, OTHER = Owner("m/1", "p", 7, 100), Owner("m/1", "p", 8, 200)
FIRST, LAST = Place("invoice-42", 3), Place("invoice-42/worker", 9)
BASE = Effect(ID, keyed=True, policy=AT_MOST_ONCE, arguments=A, state=STARTED, attempt=1)
WORD = {"who": "ada", "why": "the bank says so"}
FOUND = {
    "started": attrs.evolve(BASE, owner=ME),
    "released": attrs.evolve(BASE, argued=FIRST, error="timeout"),
    "completed": attrs.evolve(BASE, state=COMPLETED, argued=FIRST, result=R),
    "failed": attrs.evolve(BASE, state=FAILED, argued=FIRST, error="no money"),
    "happened by its own word": attrs.evolve(BASE, state=HAPPENED, argued=FIRST, error="late receipt"),
    "happened": attrs.evolve(BASE, state=HAPPENED, argued=FIRST, **WORD),
    "not happened": attrs.evolve(BASE, state=NOT_HAPPENED, argued=FIRST, **WORD),
    "compensated": attrs.evolve(BASE, state=COMPENSATED, argued=FIRST, result=R, resulted=FIRST, **WORD),
    "cancelled": attrs.evolve(BASE, state=CANCELLED, attempt=0, **WORD),
    "recorded": attrs.evolve(BASE, state=COMPLETED, attempt=0, result=R, recorded=True),
}
STARTED_ONES, SETTLED = ("started", "released"), tuple(FOUND)[2:]


def law(
    table: dict[str, list[tuple[str, Callable[..., None], tuple[Any, ...]]]], row: str, *cases: tuple[Any, ...]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """File a law under its row, once for each tuple of arguments."""

    def file(check: Callable[..., None]) -> Callable[..., None]:
        name = check.__name__.replace("_", " ")
        for number, arguments in enumerate(cases or ((),)):
            table.setdefault(row, []).append((f"{name} {number}" if cases else name, check, arguments))
        return check

    return file


@contextlib.contextmanager
def refused(kind: type[CheckpointStoreError], *words: str) -> Iterator[list[Any]]:
    """Expect an error of exactly this kind whose text has these words; yield a list that will hold it."""
    caught: list[Any] = []
    try:
        yield caught
    except CheckpointStoreError as error:
        assert type(error) is kind, f"{error!r} instead of {kind.__name__}"
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"{missing} not in {error}"
        caught.append(error)
    else:
        raise AssertionError(f"nothing was refused; expected {kind.__name__}")


def asks(rules: Any, policy: EffectPolicy = AT_MOST_ONCE, **change: Any) -> Any:
    """Return a claim on the effect of BASE."""
    return attrs.evolve(rules.effects.Claim(ID, True, policy, A), **change)


def answer(rules: Any, claim: Any, found: Effect | None, owner: str = "GONE", **facts: Any) -> str:
    """Return what ``begin`` says, in the words of the table."""
    kinds = {EffectBusyError: "busy", EffectInDoubtError: "in doubt", EffectConflictError: "refused"}
    try:
        said = rules.effects.begin(claim, found, owner=rules.effects.Liveness[owner], **facts)
    except tuple(kinds) as error:
        assert error.effect == str(claim.id)
        assert error.record is found
        return kinds[type(error)]
    return {"FRESH": "fresh", "REPLAY": "replay", "PROBE": "probe"}[said.name]


# --- identity ---------------------------------------------------------------------------------------------------------

IDENTITY = "identity = (scope, name, key, occurrence)"
ASKED: dict[str, Any] = {
    "key": "order-17", "occurrence": 1, "scope": "family", "root": "invoice-42", "lineage": "invoice-42/worker",
    "redacted": False, "policy": AT_MOST_ONCE,
}  # fmt: skip


def identify(rules: Any, name: Any = "refund", **change: Any) -> Any:
    return rules.effects.identify("default", name, A, **(ASKED | change))


@law(EFFECTS, IDENTITY)
def a_key_of_the_caller_is_the_identity_else_the_digest_of_the_arguments(rules: Any) -> None:
    assert identify(rules) == rules.effects.Claim(ID, True, AT_MOST_ONCE, A)
    assert identify(rules, key=None) == rules.effects.Claim(attrs.evolve(ID, key=A), False, AT_MOST_ONCE, A)


@law(EFFECTS, IDENTITY)
def the_scope_is_the_family_or_narrowed_to_the_lineage_that_asks(rules: Any) -> None:
    assert identify(rules).id.lineage == "invoice-42"
    narrow = identify(rules, scope="lineage").id
    assert narrow == attrs.evolve(ID, scope="lineage", lineage="invoice-42/worker")


@law(EFFECTS, IDENTITY, (1,), (2,), ((1 << 53) - 1,))
def repeats_on_purpose_raise_the_occurrence(rules: Any, occurrence: int) -> None:
    assert identify(rules, occurrence=occurrence).id == attrs.evolve(ID, occurrence=occurrence)


@law(EFFECTS, IDENTITY)
def redacted_arguments_need_a_key(rules: Any) -> None:
    assert identify(rules, redacted=True).keyed
    with refused(InvalidStateError, "'refund' were redacted", "pass key="):
        identify(rules, redacted=True, key=None)


@law(
    EFFECTS,
    IDENTITY,
    ({"name": ""}, "effect name must not be empty"),
    ({"name": 7}, "effect name is text"),
    ({"key": ""}, "effect key must not be empty"),
    ({"key": " a"}, "the effect key ' a' begins"),
    ({"key": 17}, "effect key is text"),
    ({"occurrence": 0}, "counts from 1, it is not 0"),
    ({"occurrence": -1}, "counts from 1"),
    ({"occurrence": 1 << 53}, "counts from 1"),
    ({"occurrence": True}, "counts from 1, it is not True"),
    ({"occurrence": 1.0}, "counts from 1"),
    ({"occurrence": None}, "counts from 1"),
    ({"scope": "namespace"}, "'family' or 'lineage', not 'namespace'"),
    ({"scope": None}, "not None"),
    ({"policy": "at_most_once"}, "'at_most_once' of effect 'refund' is unknown; use EffectPolicy.READ_ONLY, "),
    ({"policy": None}, "the policy None"),
)
def what_names_no_effect_is_refused(rules: Any, change: dict[str, Any], said: str) -> None:
    with refused(InvalidStateError, said):
        identify(rules, **change)


# --- the table of begin -----------------------------------------------------------------------------------------------

BEGIN = "begin: state found and policy"
FRESH = ("fresh",) * 4
REPLAY = ("fresh", "replay", "replay", "replay")
DOUBT = ("fresh", "fresh", "in doubt", "in doubt")
PROBE = ("fresh", "fresh", "probe", "in doubt")
CELLS: tuple[tuple[str | None, dict[str, Any], tuple[str, ...]], ...] = (
    (None, {}, FRESH),
    (None, {"owner": "ALIVE"}, FRESH),
    ("failed", {}, FRESH),
    ("not happened", {}, FRESH),
    ("compensated", {}, FRESH),
    ("completed", {}, REPLAY),
    ("happened", {}, REPLAY),
    ("happened by its own word", {}, REPLAY),
    ("recorded", {}, REPLAY),
    ("started", {"owner": "ALIVE"}, ("fresh", "busy", "busy", "busy")),
    ("started", {"owner": "ALIVE", "probe": True}, ("fresh", "busy", "busy", "busy")),
    ("started", {"owner": "GONE"}, DOUBT),
    ("started", {"owner": "GONE", "probe": True}, PROBE),
    ("started", {"owner": "UNSEEN"}, DOUBT),
    ("started", {"owner": "UNSEEN", "probe": True}, DOUBT),
    *(("released", {"owner": owner}, DOUBT) for owner in ("ALIVE", "GONE", "UNSEEN")),
    *(("released", {"owner": owner, "probe": True}, PROBE) for owner in ("ALIVE", "GONE", "UNSEEN")),
    ("cancelled", {}, ("refused",) * 4),
)


@law(EFFECTS, BEGIN, *((*cell, at) for cell in CELLS for at in range(4)))
def each_cell_is_answered_as_the_table_says(
    rules: Any, state: str | None, facts: dict[str, Any], row: tuple[str, ...], at: int
) -> None:
    policy = tuple(EffectPolicy)[at]
    found = None if state is None else attrs.evolve(FOUND[state], policy=policy)
    assert answer(rules, asks(rules, policy), found, **facts) == row[at]


@law(EFFECTS, BEGIN, *((*cell, then, now) for cell in CELLS[2:] for now in range(4) for then in range(now)))
def a_stronger_policy_than_the_first_one_counts(
    rules: Any, state: str, facts: dict[str, Any], row: tuple[str, ...], then: int, now: int
) -> None:
    policies = tuple(EffectPolicy)
    found = attrs.evolve(FOUND[state], policy=policies[then])
    assert answer(rules, asks(rules, policies[now]), found, floor=policies[then], **facts) == row[now]


@law(EFFECTS, BEGIN)
def who_is_in_the_way_and_what_was_said_is_named(rules: Any) -> None:
    alive, gone = rules.effects.Liveness.ALIVE, rules.effects.Liveness.GONE
    again = attrs.evolve(FOUND["started"], attempt=4)
    with refused(EffectBusyError, "process 7 is carrying it out (attempt 4)", str(ID)):
        rules.effects.begin(asks(rules), again, owner=alive)
    with refused(EffectInDoubtError, "attempt 4 was started by process 7, which is gone", "reconcile it"):
        rules.effects.begin(asks(rules), again, owner=gone)
    with refused(EffectInDoubtError, "attempt 1 was started and its attempt ended with 'timeout', and nobody"):
        rules.effects.begin(asks(rules), FOUND["released"], owner=gone)
    silent = attrs.evolve(FOUND["released"], error="")
    assert rules.effects.in_doubt(silent).startswith("attempt 1 was started and its attempt ended, and nobody")


@law(EFFECTS, BEGIN)
def without_facts_an_owner_is_gone_and_nothing_can_be_probed(rules: Any) -> None:
    with refused(EffectInDoubtError):
        rules.effects.begin(asks(rules, RECONCILABLE), attrs.evolve(FOUND["started"], policy=RECONCILABLE))


@law(EFFECTS, BEGIN)
def a_cancelled_effect_says_who_and_why_and_how_to_mean_another_one(rules: Any) -> None:
    with refused(EffectConflictError, "it was cancelled by ada: the bank says so; raise occurrence="):
        rules.effects.begin(asks(rules), FOUND["cancelled"])
    with refused(EffectConflictError, "it was cancelled; raise"):
        rules.effects.begin(asks(rules), attrs.evolve(FOUND["cancelled"], who="", why=""))


# --- the same effect, another meaning ---------------------------------------------------------------------------------

CONFLICT = "begin: other arguments, weaker policies, other words"


@law(EFFECTS, CONFLICT, *((state, policy) for state in FOUND for policy in EffectPolicy))
def other_arguments_under_one_key_are_a_conflict_that_shows_both(rules: Any, state: str, policy: EffectPolicy) -> None:
    found = attrs.evolve(FOUND[state], policy=policy)
    with refused(EffectConflictError, f"other arguments: {A[:16]}… then, {B[:16]}… now") as caught:
        rules.effects.begin(asks(rules, policy, arguments=B), found)
    assert caught[0].record is found


@law(EFFECTS, CONFLICT, *((floor, policy) for floor in EffectPolicy for policy in EffectPolicy))
def the_first_policy_of_a_name_is_the_least_in_its_family(
    rules: Any, floor: EffectPolicy, policy: EffectPolicy
) -> None:
    failed = attrs.evolve(FOUND["failed"], policy=floor)
    for found, fixed in ((None, floor), (failed, None), (failed, READ_ONLY)):
        if policy.rank >= floor.rank:
            assert answer(rules, asks(rules, policy), found, floor=fixed) == "fresh"
            continue
        said = f"its policy is {floor.value} in this family, {policy.value} is weaker"
        with refused(EffectConflictError, said) as caught:
            rules.effects.begin(asks(rules, policy), found, floor=fixed)
        assert caught[0].record is found
    weak = attrs.evolve(FOUND["failed"], policy=READ_ONLY)
    assert answer(rules, asks(rules, policy), weak, floor=floor) == ("refused" if policy < floor else "fresh")


def unkeyed(state: str = "completed", arguments: str = A, occurrence: int = 1, **change: Any) -> Effect:
    id_ = attrs.evolve(ID, key=arguments, occurrence=occurrence)
    return attrs.evolve(FOUND[state], id=id_, keyed=False, arguments=arguments, **change)


def reworded(rules: Any, policy: EffectPolicy = AT_MOST_ONCE, occurrence: int = 1) -> Any:
    return rules.effects.Claim(attrs.evolve(ID, key=B, occurrence=occurrence), False, policy, B)


@law(EFFECTS, CONFLICT, *((state, then) for state in FOUND for then in EffectPolicy))
def an_unkeyed_effect_in_other_words_is_a_conflict_with_what_was_stepped_back_over(
    rules: Any, state: str, then: EffectPolicy
) -> None:
    crossed = [unkeyed(state, policy=then)]
    for policy in EffectPolicy:
        stays = policy is READ_ONLY or then in (READ_ONLY, IDEMPOTENT)
        said = "fresh" if stays else "refused"
        try:
            made = rules.effects.begin(reworded(rules, policy), None, crossed=crossed).value
        except EffectConflictError as error:
            made = "refused"
            assert error.record == crossed[0]
            assert f"1 effect(s) of this name with other arguments were stepped back over: {crossed[0].id} is" in str(
                error
            )
            assert crossed[0].state.value in str(error)
        assert made == said


@law(EFFECTS, CONFLICT)
def a_higher_occurrence_a_key_or_the_same_arguments_tell_it_apart(rules: Any) -> None:
    second = unkeyed(occurrence=2)
    for crossed, occurrence, said in (
        ([unkeyed()], 2, "fresh"), ([second], 1, "refused"), ([second], 2, "refused"), ([second], 3, "fresh"),
        ([unkeyed(arguments=B)], 1, "fresh"), ([unkeyed(arguments=B), unkeyed()], 1, "refused"), ([], 1, "fresh"),
    ):  # fmt: skip
        claim = reworded(rules, occurrence=occurrence)
        try:
            assert rules.effects.begin(claim, None, crossed=crossed) is rules.effects.Answer.FRESH
            assert said == "fresh"
        except EffectConflictError:
            assert said == "refused"
    assert answer(rules, asks(rules, arguments=B), None, crossed=[unkeyed()]) == "fresh"
    assert answer(rules, reworded(rules), None, crossed=[attrs.evolve(FOUND["completed"])]) == "fresh"


@law(EFFECTS, CONFLICT)
def what_is_known_by_its_own_arguments_is_not_in_other_words(rules: Any) -> None:
    claim = reworded(rules)
    assert answer(rules, claim, unkeyed("failed", B), crossed=[unkeyed()]) == "fresh"
    assert answer(rules, claim, unkeyed("completed", B), crossed=[unkeyed()]) == "replay"


@law(EFFECTS, CONFLICT)
def a_conflict_counts_all_and_lists_ten(rules: Any) -> None:
    crossed = [unkeyed(arguments=f"{number:064x}") for number in range(12)]
    with refused(EffectConflictError, "12 effect(s)", "raise occurrence=") as caught:
        rules.effects.begin(reworded(rules), None, crossed=crossed)
    assert str(caught[0]).count("is completed") == 10


# --- transitions ------------------------------------------------------------------------------------------------------

TRANSITIONS = "what becomes of an effect"


@law(EFFECTS, TRANSITIONS)
def the_first_attempt_is_number_one_and_has_an_owner(rules: Any) -> None:
    claim = asks(rules, RECONCILABLE)
    made = Effect(ID, keyed=True, policy=RECONCILABLE, arguments=A, state=STARTED, attempt=1, owner=ME)
    assert rules.effects.started(claim, None, ME, None) == made
    assert not rules.effects.started(attrs.evolve(claim, keyed=False), None, ME, None).keyed


@law(EFFECTS, TRANSITIONS, *((state,) for state in FOUND if state != "cancelled"))
def the_next_attempt_is_counted_and_forgets_what_was_said_of_the_last(rules: Any, state: str) -> None:
    found = attrs.evolve(FOUND[state], evidence=2)
    after = rules.effects.started(asks(rules), found, OTHER, LAST)
    clean = attrs.evolve(BASE, owner=OTHER, attempt=found.attempt + 1, evidence=2, recorded=found.recorded)
    assert after == attrs.evolve(clean, argued=found.argued or LAST)


@law(EFFECTS, TRANSITIONS)
def the_stronger_policy_is_kept(rules: Any) -> None:
    for then, now in ((IDEMPOTENT, AT_MOST_ONCE), (AT_MOST_ONCE, IDEMPOTENT)):
        found = attrs.evolve(FOUND["failed"], policy=then)
        assert rules.effects.started(asks(rules, now), found, ME, LAST).policy is AT_MOST_ONCE


@law(EFFECTS, TRANSITIONS, *((state,) for state in STARTED_ONES))
def an_attempt_that_is_under_way_or_let_go_may_say_what_came_of_it(rules: Any, state: str) -> None:
    found = FOUND[state]
    known = attrs.evolve(found, argued=found.argued or LAST, owner=None)
    done = rules.effects.completed(found, 1, R, LAST)
    assert done == attrs.evolve(known, state=COMPLETED, result=R, error="")
    for happened, outcome in ((True, HAPPENED), (False, FAILED), (None, STARTED)):
        after = rules.effects.failed(found, 1, "boom", happened, LAST)
        assert after == attrs.evolve(known, state=outcome, error="boom")


@law(EFFECTS, TRANSITIONS)
def letting_go_twice_with_the_same_words_is_known(rules: Any) -> None:
    found = FOUND["released"]
    assert rules.effects.failed(found, 1, "timeout", None, LAST) is None
    assert rules.effects.failed(found, 1, "reset", None, LAST) == attrs.evolve(found, error="reset")
    assert rules.effects.failed(found, 1, "timeout", False, LAST) == attrs.evolve(found, state=FAILED)


@law(EFFECTS, TRANSITIONS)
def the_outcome_of_an_attempt_stands_and_repeating_it_is_no_news(rules: Any) -> None:
    done, failed, own = FOUND["completed"], FOUND["failed"], FOUND["happened by its own word"]
    assert rules.effects.completed(done, 1, R, LAST) is None
    stands = f"(completed, result {R[:16]}…), this one has result {S[:16]}…; the first stands"
    with refused(EffectConflictError, stands, str(ID)) as caught:
        rules.effects.completed(done, 1, S, LAST)
    assert caught[0].record is done
    with refused(EffectConflictError, f"(failed, no money), this one has result {R[:16]}…; the first stands"):
        rules.effects.completed(failed, 1, R, LAST)
    for found, happened in ((done, True), (own, True), (failed, False), (done, None), (own, None), (failed, None)):
        assert rules.effects.failed(found, 1, "other words", happened, LAST) is None
    for found, happened, state, other in (
        (done, False, "completed", "failed"), (own, False, "happened", "failed"), (failed, True, "failed", "happened"),
    ):  # fmt: skip
        said = f"an outcome already ({state}), this one is {other}; the first stands"
        with refused(EffectConflictError, said, str(ID)) as caught:
            rules.effects.failed(found, 1, "other words", happened, LAST)
        assert caught[0].record is found


def late(found: Effect) -> Effect:
    """The record after one more word that is noted, but not believed: the result, if any, is in another entry now."""
    place = found.argued or LAST
    resulted = found.resulted or (LAST if found.result else None)
    return attrs.evolve(found, argued=place, resulted=resulted, evidence=found.evidence + 1)


@law(EFFECTS, TRANSITIONS, *((state, attempt) for state in FOUND for attempt in (1, 2, 4)))
def a_replaced_attempt_is_evidence_whatever_it_says(rules: Any, state: str, attempt: int) -> None:
    found = attrs.evolve(FOUND[state], attempt=3, evidence=5)
    for result in (R, S):
        assert rules.effects.completed(found, attempt, result, LAST) == late(found)
    for happened in (True, False, None):
        assert rules.effects.failed(found, attempt, "boom", happened, LAST) == late(found)


@law(EFFECTS, TRANSITIONS, ("happened",), ("not happened",), ("compensated",), ("cancelled",))
def after_a_verdict_the_attempt_itself_is_evidence(rules: Any, state: str) -> None:
    found = attrs.evolve(FOUND[state], attempt=1)
    for result in (R, S):
        assert rules.effects.completed(found, 1, result, LAST) == late(found)
    for happened in (True, False, None):
        assert rules.effects.failed(found, 1, "boom", happened, LAST) == late(found)


@law(EFFECTS, TRANSITIONS)
def a_result_after_the_attempt_said_that_it_happened_is_evidence(rules: Any) -> None:
    found = FOUND["happened by its own word"]
    assert rules.effects.completed(found, 1, R, LAST) == late(found)


@law(EFFECTS, TRANSITIONS, ("no",), (1,), (0,), (1.0,), ([],))
def whether_it_happened_is_true_false_or_unknown(rules: Any, happened: Any) -> None:
    with refused(InvalidStateError, f"happened is True, False or None, not {happened!r}"):
        rules.effects.failed(FOUND["started"], 1, "boom", happened, LAST)
    for wrong in (happened, None):
        with refused(InvalidStateError, f"happened=False, not {wrong!r}"):
            verdict(rules, FOUND["started"], happened=wrong)


def verdict(rules: Any, found: Effect, **change: Any) -> Effect | None:
    owner = rules.effects.Liveness[change.pop("owner", "GONE")]
    said: dict[str, Any] = {"happened": True, "result": None, **WORD} | change
    return rules.effects.reconciled(found, owner=owner, last=LAST, **said)  # type: ignore[no-any-return]


VERDICTS = "reconcile, compensate, cancel, record"


@law(EFFECTS, VERDICTS, *((state, owner) for state in STARTED_ONES for owner in ("GONE", "UNSEEN")))
def a_verdict_settles_what_nobody_carries_out(rules: Any, state: str, owner: str) -> None:
    found = FOUND[state]
    known = attrs.evolve(found, argued=found.argued or LAST, owner=None, **WORD)
    yes, no = attrs.evolve(known, state=HAPPENED), attrs.evolve(known, state=NOT_HAPPENED)
    assert verdict(rules, found, owner=owner) == yes
    assert verdict(rules, found, owner=owner, result=R) == attrs.evolve(yes, result=R)
    assert verdict(rules, found, owner=owner, happened=False) == no


@law(EFFECTS, VERDICTS)
def a_live_owner_is_not_overruled(rules: Any) -> None:
    for happened in (True, False):
        with refused(EffectBusyError, "process 7 is carrying it out; it will say", str(ID)) as caught:
            verdict(rules, FOUND["started"], owner="ALIVE", happened=happened)
        assert caught[0].record is FOUND["started"]
    assert verdict(rules, FOUND["released"], owner="ALIVE") is not None
    assert verdict(rules, FOUND["completed"], owner="ALIVE") is None


@law(
    EFFECTS,
    VERDICTS,
    ("completed", True, False),
    ("recorded", True, False),
    ("happened", True, False),
    ("happened by its own word", True, False),
    ("failed", False, True),
    ("not happened", False, True),
)
def the_first_verdict_stands(rules: Any, state: str, same: bool, other: bool) -> None:
    found, who = FOUND[state], " by ada (the bank says so)" if FOUND[state].who else ""
    assert verdict(rules, found, happened=same, who="bob", why="I say so") is None
    word = "happened" if other else "not_happened"
    said = f"it is settled already as {found.state.value}{who}, the verdict {word} comes too late"
    with refused(EffectConflictError, said, str(ID)) as caught:
        verdict(rules, found, happened=other, who="bob")
    assert caught[0].record is found


@law(EFFECTS, VERDICTS, ("compensated", True), ("compensated", False), ("cancelled", True), ("cancelled", False))
def what_was_undone_or_called_off_gets_no_verdict(rules: Any, state: str, happened: bool) -> None:
    with refused(EffectConflictError, f"settled already as {state} by ada"):
        verdict(rules, FOUND[state], happened=happened)


@law(EFFECTS, VERDICTS)
def what_did_not_happen_has_no_result(rules: Any) -> None:
    with refused(InvalidStateError, "has no result"):
        verdict(rules, FOUND["started"], happened=False, result=R)


BLANK = ("", " \n", "\u200b", "\u3164", " " * TEXT_MAX + "x", None, 7, b"ada")


@law(EFFECTS, VERDICTS, *((name, wrong) for name in ("who", "why") for wrong in BLANK))
def a_word_on_an_effect_has_a_name_and_a_ground(rules: Any, name: str, wrong: Any) -> None:
    word: dict[str, Any] = WORD | {name: wrong}
    said = f"{name} is a text and must not be blank, not {wrong!r:.100}"
    with refused(InvalidStateError, said):
        verdict(rules, FOUND["started"], **word)
    with refused(InvalidStateError, said):
        rules.effects.compensated(FOUND["completed"], last=LAST, **word)
    for found in (None, FOUND["failed"], FOUND["cancelled"]):
        with refused(InvalidStateError, said):
            rules.effects.cancelled(asks(rules), found, last=LAST, **word)


@law(EFFECTS, VERDICTS)
def a_text_is_kept_up_to_its_limit_and_without_what_cannot_be_stored(rules: Any) -> None:
    long, exact = "x" * (TEXT_MAX + 1), "x" * TEXT_MAX
    after = verdict(rules, FOUND["started"], who=long, why="a\ud800b")
    assert after is not None
    assert (after.who, after.why) == (exact, "a?b")
    assert rules.effects.text(exact, "error") == exact
    assert rules.effects.failed(FOUND["started"], 1, "", None, LAST).error == ""
    for wrong in (None, 7, b"x"):
        with refused(InvalidStateError, f"error is a text, not {wrong!r}"):
            rules.effects.failed(FOUND["started"], 1, wrong, None, LAST)


@law(EFFECTS, VERDICTS)
def what_happened_can_be_undone_once(rules: Any) -> None:
    word = {"who": "bob", "why": "refunded by hand"}
    for state, resulted in (
        ("completed", LAST), ("recorded", LAST), ("happened", None), ("happened by its own word", None),
    ):  # fmt: skip
        found = FOUND[state]
        after = rules.effects.compensated(found, last=LAST, **word)
        known = attrs.evolve(found, state=COMPENSATED, argued=found.argued or LAST, resulted=resulted, **word)
        assert after == known
        assert rules.effects.compensated(after, last=FIRST, **word) is None
    elsewhere = attrs.evolve(FOUND["completed"], resulted=FIRST)
    assert rules.effects.compensated(elsewhere, last=LAST, **word).resulted == FIRST
    for state in ("started", "released", "failed", "not happened", "cancelled"):
        found = FOUND[state]
        with refused(EffectConflictError, f"it is {found.state.value}: only what happened is undone") as caught:
            rules.effects.compensated(found, last=LAST, **word)
        assert caught[0].record is found


@law(EFFECTS, VERDICTS)
def what_never_happened_can_be_called_off(rules: Any) -> None:
    word = {"who": "bob", "why": "not this one"}
    fresh = attrs.evolve(BASE, state=CANCELLED, attempt=0, policy=IDEMPOTENT, **word)
    assert rules.effects.cancelled(asks(rules, IDEMPOTENT), None, last=None, **word) == fresh
    assert not rules.effects.cancelled(asks(rules, keyed=False), None, last=None, **word).keyed
    assert rules.effects.cancelled(asks(rules), FOUND["cancelled"], last=LAST, **word) is None
    for state in ("failed", "not happened", "compensated"):
        found = FOUND[state]
        after = attrs.evolve(found, state=CANCELLED, result=None, resulted=None, **word)
        assert rules.effects.cancelled(asks(rules), found, last=LAST, **word) == after
        bare = attrs.evolve(found, argued=None)
        assert rules.effects.cancelled(asks(rules), bare, last=LAST, **word).argued == LAST
    for state in ("started", "released", "completed", "recorded", "happened", "happened by its own word"):
        found = FOUND[state]
        with refused(EffectConflictError, f"it is {found.state.value}: too late to cancel it", str(ID)) as caught:
            rules.effects.cancelled(asks(rules), found, last=LAST, **word)
        assert caught[0].record is found


@law(EFFECTS, VERDICTS, *((state,) for state in FOUND))
def an_order_on_one_effect_is_not_filed_under_anothers_arguments(rules: Any, state: str) -> None:
    both = f"other arguments: {A[:16]}… then, {B[:16]}… now"
    with refused(EffectConflictError, both):
        rules.effects.cancelled(asks(rules, arguments=B), FOUND[state], last=LAST, **WORD)
    with refused(EffectConflictError, both):
        rules.effects.recorded(asks(rules, arguments=B), FOUND[state], R)


@law(EFFECTS, VERDICTS)
def what_was_done_without_asking_is_recorded_once_and_marked(rules: Any) -> None:
    assert rules.effects.recorded(asks(rules), None, R) == FOUND["recorded"]
    claim = asks(rules, IDEMPOTENT, keyed=False)
    assert rules.effects.recorded(claim, None, R) == attrs.evolve(FOUND["recorded"], policy=IDEMPOTENT, keyed=False)
    assert rules.effects.recorded(asks(rules), FOUND["recorded"], R) is None
    undone = attrs.evolve(FOUND["recorded"], state=COMPENSATED)
    others = [FOUND["recorded"], undone, *(found for found in FOUND.values() if not found.recorded)]
    for found, result in zip(others, [S, *[R] * len(FOUND)], strict=True):
        said = f"it is known already as {found.state.value}; raise occurrence="
        with refused(EffectConflictError, said, str(ID)) as caught:
            rules.effects.recorded(asks(rules), found, result)
        assert caught[0].record is found


# --- what verify asks -------------------------------------------------------------------------------------------------

HISTORY = "a history that the rules could not have made is named"
DONE, OPEN = (COMPLETED, HAPPENED), (None, STARTED, COMPLETED, FAILED, HAPPENED, NOT_HAPPENED, COMPENSATED)
MOVES: dict[str, dict[EffectState | None, tuple[EffectState, ...]]] = {
    "begin": dict.fromkeys(OPEN, (STARTED,)),
    "complete": {STARTED: (COMPLETED,)},
    "fail": {STARTED: (FAILED, HAPPENED)},
    "release": {STARTED: (STARTED,)},
    "late": {state: (state,) for state in EffectState},
    "reconcile": {STARTED: (HAPPENED, NOT_HAPPENED)},
    "compensate": dict.fromkeys(DONE, (COMPENSATED,)),
    "cancel": dict.fromkeys((None, FAILED, NOT_HAPPENED, COMPENSATED), (CANCELLED,)),
    "record": {None: (COMPLETED,)},
}
MAY = {
    "begin": "owner result resulted who why error policy", "complete": "result resulted error", "fail": "error",
    "release": "error", "late": "resulted", "reconcile": "result resulted who why", "compensate": "resulted who why",
    "cancel": "result resulted who why",
}  # fmt: skip
"""Verb → the fields that may change with it, beside the owner, who comes by ``begin`` and goes by all but ``late``."""


def step(before: Effect | None, verb: str, state: EffectState) -> Effect:
    """Return a record that could follow ``before``."""
    begins = verb == "begin"
    owner = ME if begins else None
    if before is None:
        fresh = attrs.evolve(BASE, state=state, attempt=int(begins), recorded=verb == "record", owner=owner)
        return attrs.evolve(fresh, policy=READ_ONLY)
    return attrs.evolve(
        before,
        state=state,
        attempt=before.attempt + begins,
        evidence=before.evidence + (verb == "late"),
        owner=before.owner if verb == "late" else owner,
        argued=before.argued or FIRST,
    )


def at(state: EffectState | None, policy: EffectPolicy = READ_ONLY) -> Effect | None:
    if state is None:
        return None
    return attrs.evolve(BASE, state=state, policy=policy, owner=ME if state is STARTED else None, argued=FIRST)


@law(EFFECTS, HISTORY, *((verb, before) for verb in MOVES for before in (None, *EffectState)))
def a_verb_leads_from_some_states_to_some(rules: Any, verb: str, before: EffectState | None) -> None:
    for state in EffectState:
        said = rules.effects.check_next(at(before), step(at(before), verb, state), verb)
        good = state in MOVES[verb].get(before, ())
        from_ = "nothing" if before is None else before.value
        assert said == ("" if good else f"a {verb} leads from {from_} to {state.value}")


@law(EFFECTS, HISTORY)
def an_unknown_verb_is_named(rules: Any) -> None:
    for verb in ("prune", "", "None"):
        assert rules.effects.check_next(None, at(STARTED), verb) == f"it has the unknown verb {verb!r}"


@law(EFFECTS, HISTORY, *((state, policy) for state in EffectState if state is not CANCELLED for policy in EffectPolicy))
def what_may_not_be_run_again_was_not_begun_again(rules: Any, state: EffectState, policy: EffectPolicy) -> None:
    for then in (READ_ONLY, policy):
        after = attrs.evolve(step(at(state, then), "begin", STARTED), policy=policy)
        said = rules.effects.check_next(at(state, then), after, "begin")
        most = {STARTED: IDEMPOTENT, COMPLETED: READ_ONLY, HAPPENED: READ_ONLY}.get(state, AT_MOST_ONCE)
        wrong = f"a {policy.value} effect that is {state.value} was begun again"
        assert said == (wrong if policy.rank > most.rank else "")


@law(EFFECTS, HISTORY)
def the_first_entry_starts_every_count(rules: Any) -> None:
    check = rules.effects.check_next
    for verb, state in (("begin", STARTED), ("cancel", CANCELLED), ("record", COMPLETED)):
        good = step(None, verb, state)
        assert check(None, good, verb) == ""
        for change in (
            {"attempt": good.attempt + 1}, {"attempt": good.attempt - 1}, {"evidence": 1}, {"argued": FIRST},
            {"resulted": FIRST}, {"recorded": not good.recorded},
        ):  # fmt: skip
            wrong = attrs.evolve(good, **change)
            assert check(None, wrong, verb) == "its first entry counts what was not there before"
        turned = attrs.evolve(good, owner=None if good.owner else ME)
        assert check(None, turned, verb) == f"a {verb} leaves it {'without' if good.owner else 'with'} an owner"


FOLLOWS = [
    (verb, before, after)
    for verb, moves in MOVES.items()
    for before, states in moves.items()
    for after in states
    if before is not None
]


@law(EFFECTS, HISTORY, *FOLLOWS)
def an_effect_stays_the_effect_it_was(rules: Any, verb: str, then: EffectState, now: EffectState) -> None:
    before = at(then, IDEMPOTENT if verb != "begin" or then not in DONE else READ_ONLY)
    after = step(before, verb, now)
    for change in (
        *({"id": attrs.evolve(ID, **part)} for part in ({"name": "pay"}, {"key": "x"}, {"occurrence": 2})),
        {"arguments": B},
        {"keyed": False},
        {"recorded": True},
    ):
        said = rules.effects.check_next(before, attrs.evolve(after, **change), verb)
        assert said == "it became another effect"
    weaker = attrs.evolve(after, policy=READ_ONLY)
    strong = attrs.evolve(before, policy=IDEMPOTENT)
    assert rules.effects.check_next(strong, weaker, verb) == "it became another effect"


@law(EFFECTS, HISTORY, *FOLLOWS)
def attempts_and_evidence_are_counted_one_by_one(rules: Any, verb: str, then: EffectState, now: EffectState) -> None:
    before = attrs.evolve(at(then), attempt=5, evidence=5)
    after = step(before, verb, now)
    assert rules.effects.check_next(before, after, verb) == ""
    for field in ("attempt", "evidence"):
        for by in (-1, 1, 2):
            wrong = attrs.evolve(after, **{field: getattr(after, field) + by})
            assert rules.effects.check_next(before, wrong, verb) == "its attempts are miscounted"


@law(EFFECTS, HISTORY, *FOLLOWS)
def the_place_of_the_arguments_is_told_once(rules: Any, verb: str, then: EffectState, now: EffectState) -> None:
    for argued, place, good in (
        (FIRST, FIRST, True), (None, LAST, True), (FIRST, LAST, False), (FIRST, None, False), (None, None, False),
    ):  # fmt: skip
        before = attrs.evolve(at(then), argued=argued)
        said = rules.effects.check_next(before, attrs.evolve(step(before, verb, now), argued=place), verb)
        assert said == ("" if good else "it names other arguments")


@law(EFFECTS, HISTORY, *FOLLOWS)
def a_verb_changes_what_it_is_about_and_nothing_else(
    rules: Any, verb: str, then: EffectState, now: EffectState
) -> None:
    before = at(then)
    changes: dict[str, Any] = {
        "policy": IDEMPOTENT, "result": S, "resulted": LAST, "who": "eve", "why": "because", "error": "none",
    }  # fmt: skip
    for field, value in changes.items():
        if verb == "begin" and field == "policy" and then in DONE:
            continue
        after = attrs.evolve(step(before, verb, now), **{field: value})
        said = rules.effects.check_next(before, after, verb)
        assert said == ("" if field in MAY[verb].split() else f"a {verb} changes its {field}")
    both = attrs.evolve(step(before, "late", then), error="none", who="eve")
    assert rules.effects.check_next(before, both, "late") == "a late changes its who, error"


@law(EFFECTS, HISTORY, *FOLLOWS)
def an_effect_has_an_owner_from_begin_to_the_first_word(
    rules: Any, verb: str, then: EffectState, now: EffectState
) -> None:
    before = at(then)
    after = step(before, verb, now)
    turned = attrs.evolve(after, owner=None if after.owner else OTHER)
    said = rules.effects.check_next(before, turned, verb)
    if "owner" in MAY[verb].split() or (verb in ("complete", "fail", "release", "reconcile")):
        assert said == f"a {verb} leaves it {'with' if turned.owner else 'without'} an owner"
    else:
        assert said == f"a {verb} changes its owner"


# --- restore ----------------------------------------------------------------------------------------------------------

ROWS = "restore: what is in the interval, lossless and lossy"
OWES = attrs.evolve(FOUND["started"], policy=RECONCILABLE)
LET_GO = attrs.evolve(unkeyed("released"))
FILED = unkeyed("recorded")
NARROW = attrs.evolve(FOUND["completed"], id=attrs.evolve(ID, scope="lineage", lineage="invoice-42/worker"))
GAP = {"gaps": ((4, 6), (8, 8))}
INTERVALS: dict[str, tuple[dict[str, Any], Verdict]] = {
    "nothing": ({}, Verdict.CLEARED),
    "repeatable": ({"counts": {0: 2, 1: 3}}, Verdict.CLEARED),
    "settled": ({"counts": {0: 1, 2: 4, 3: 1, 4: 1}}, Verdict.CLEARED),
    "recorded without a key": ({"unasked": (FILED,), "counts": {3: 1}}, Verdict.NEEDS_ACKNOWLEDGEMENT),
    "of another lineage": ({"unasked": (NARROW,), "counts": {4: 1}}, Verdict.NEEDS_ACKNOWLEDGEMENT),
    "not settled": ({"unsettled": (OWES,), "counts": {2: 1}}, Verdict.REFUSED),
    "let go": ({"unsettled": (LET_GO,), "counts": {2: 1}}, Verdict.REFUSED),
    "not settled, and unasked": ({"unsettled": (OWES,), "unasked": (FILED, NARROW)}, Verdict.REFUSED),
    "a gap": (GAP, Verdict.NEEDS_ACKNOWLEDGEMENT),
    "a gap, and settled": (GAP | {"counts": {2: 1}}, Verdict.NEEDS_ACKNOWLEDGEMENT),
    "a gap, and unasked": (GAP | {"unasked": (FILED, NARROW)}, Verdict.NEEDS_ACKNOWLEDGEMENT),
    "a gap, and not settled": (GAP | {"unsettled": (OWES, LET_GO)}, Verdict.NEEDS_ACKNOWLEDGEMENT),
    "no watermark": ({"watermark": None}, Verdict.NEEDS_ACKNOWLEDGEMENT),
    "no watermark, and all else": (
        GAP | {"watermark": None, "unsettled": (OWES,), "unasked": (FILED,)}, Verdict.NEEDS_ACKNOWLEDGEMENT
    ),
}  # fmt: skip
UNREADABLE: tuple[Any, ...] = (None, "3", b"3", True, False, 0, -1, 1.5, 3.0, 11, 1 << 60, [3], {"seq": 3})


def facts(rules: Any, *, lossy: bool = False, **found: Any) -> Any:
    return rules.restore.Facts(**({"watermark": 3, "head_seq": 10, "lossy": lossy} | found))


def ids(*effects: Effect) -> tuple[str, ...]:
    return tuple(sorted(effect.id.digest.hex() for effect in effects))


@law(RESTORE, ROWS, *((row, lossy) for row in INTERVALS for lossy in (False, True)))
def each_row_has_its_verdict(rules: Any, row: str, lossy: bool) -> None:
    found, verdict = INTERVALS[row]
    judgement = rules.restore.judge(facts(rules, lossy=lossy, **found))
    cleared = verdict is Verdict.CLEARED
    assert judgement.verdict is (Verdict.REFUSED if lossy and not cleared else verdict)
    assert judgement.effects == ids(*found.get("unsettled", ()), *found.get("unasked", ()))
    assert judgement.gaps == (((1, 10),) if "watermark" in found else found.get("gaps", ()))
    assert judgement.reasons
    assert any("is lossy" in reason for reason in judgement.reasons) is (lossy and not cleared)


@law(RESTORE, ROWS, *((row, lossy) for row in INTERVALS for lossy in (False, True)))
def an_acknowledgement_overrides_if_it_names_all_and_nothing_else(rules: Any, row: str, lossy: bool) -> None:
    judgement = rules.restore.judge(facts(rules, lossy=lossy, **INTERVALS[row][0]))
    check, cleared = rules.restore.check_acknowledged, judgement.verdict is Verdict.CLEARED
    refusal = judgement.verdict is Verdict.REFUSED
    exact = Acknowledgement("ada", "I looked", judgement.effects, judgement.gaps)
    none = "refused" if refusal else "nobody has answered for it: pass acknowledge="
    assert check(judgement, None) == ("" if cleared else none)
    assert check(judgement, exact) == ("an acknowledgement does not override this" if refusal else "")
    others = [(f"effect {B[:16]}… is not in the way", attrs.evolve(exact, effects=(*judgement.effects, B)))]
    others += [("there is no gap (5, 7)", attrs.evolve(exact, gaps=(*judgement.gaps, (5, 7))))]
    for one in judgement.effects:
        rest = tuple(other for other in judgement.effects if other != one)
        others.append((f"effect {one[:16]}… is not named", attrs.evolve(exact, effects=rest)))
    for gap in judgement.gaps:
        rest = tuple(other for other in judgement.gaps if other != gap)
        others.append((f"the gap {gap} is not named", attrs.evolve(exact, gaps=rest)))
    for problem, wrong in others:
        said = check(judgement, wrong)
        if cleared:
            assert said == ""
        elif refusal:
            assert said == "an acknowledgement does not override this"
        else:
            assert said == f"the acknowledgement does not fit: {problem}"


@law(RESTORE, ROWS)
def all_that_does_not_fit_is_said_at_once(rules: Any) -> None:
    judgement = rules.restore.judge(facts(rules, unasked=(FILED,), gaps=((4, 6),)))
    named = ids(FILED)[0][:16]
    said = f"effect {named}… is not named; effect {B[:16]}… is not in the way; the gap (4, 6) is not named"
    other = Acknowledgement("ada", "I looked", (B,), ((4, 5),))
    expected = f"the acknowledgement does not fit: {said}; there is no gap (4, 5)"
    assert rules.restore.check_acknowledged(judgement, other) == expected
    twice = Acknowledgement("ada", "I looked", (*judgement.effects, *judgement.effects), ((4, 6), (4, 6)))
    assert rules.restore.check_acknowledged(judgement, twice) == ""


@law(RESTORE, ROWS, *((name, wrong) for name in ("who", "why") for wrong in ("", " ", "\u200b", "\u3164", None, 7)))
def an_acknowledgement_says_who_and_why(rules: Any, name: str, wrong: Any) -> None:
    word: Any = {"who": "ada", "why": "I looked", name: wrong}
    for row in ("nothing", "a gap", "not settled"):
        judgement = rules.restore.judge(facts(rules, **INTERVALS[row][0]))
        said = f"the {name} of an acknowledgement is a text that is not blank, not {wrong!r}"
        with refused(InvalidStateError, said):
            rules.restore.check_acknowledged(judgement, Acknowledgement(**word))


@law(RESTORE, ROWS, (True,), (False,), ("",), ("yes",), (0,), ({"who": "ada", "why": "x"},))
def nothing_else_is_an_acknowledgement(rules: Any, given: Any) -> None:
    for row in ("nothing", "a gap", "not settled"):
        judgement = rules.restore.judge(facts(rules, **INTERVALS[row][0]))
        with refused(InvalidStateError, "takes an Acknowledgement(who, why, effects, gaps)"):
            rules.restore.check_acknowledged(judgement, given)


@law(RESTORE, ROWS, *((mark,) for mark in UNREADABLE))
def a_watermark_that_is_no_entry_of_the_lineage_covers_nothing(rules: Any, mark: Any) -> None:
    assert not rules.restore.readable(mark, 10)
    for more in ({}, {"gaps": ((4, 6),)}, {"counts": {2: 1}}):
        judgement = rules.restore.judge(facts(rules, watermark=mark, **more))
        assert judgement.verdict is Verdict.NEEDS_ACKNOWLEDGEMENT
        assert judgement.gaps == ((1, 10),)
        said = f"the target's watermark {mark!r} is no entry of this lineage: what it has seen is unknown"
        assert judgement.reasons == (said,)


@law(RESTORE, ROWS, (1,), (3,), (10,))
def a_watermark_is_a_seq_up_to_the_head(rules: Any, mark: int) -> None:
    assert rules.restore.readable(mark, 10)
    assert rules.restore.judge(facts(rules, watermark=mark)).verdict is Verdict.CLEARED


REASONS = "restore: reasons"
LOSSY = "the target is lossy: a compaction before it covers content that the store no longer holds"
OWED = f"effect {ID} of policy reconcilable is started and not settled: reconcile it"
UNKEYED = f"effect {FILED.id} would not be asked about again: it was recorded after the fact, without a key"
NARROWED = f"effect {NARROW.id} would not be asked about again: only lineage 'invoice-42/worker' asks about it"
SPANS = "the effect ledger does not cover the entries 4 to 6, 8 to 8; run verify"


@law(
    RESTORE,
    REASONS,
    ({}, ("no effects since",)),
    ({"lossy": True}, ("no effects since",)),
    ({"counts": {0: 2, 1: 3}}, ("5 effect(s), all read-only or idempotent",)),
    ({"counts": {0: 0}}, ("no effects since",)),
    ({"counts": {0: 1, 1: 1, 2: 4, 3: 2, 4: 1}}, ("7 effect(s) are settled and stay known: begin answers with their "
                                                  "recorded outcome",)),
    ({"unsettled": (OWES,)}, (OWED,)),
    ({"unsettled": (OWES,), "lossy": True}, (OWED, LOSSY)),
    ({"unasked": (FILED, NARROW)}, (UNKEYED, NARROWED)),
    ({"unasked": (attrs.evolve(NARROW, recorded=True),)}, (NARROWED,)),
    ({"unasked": (attrs.evolve(NARROW, keyed=False),)}, (NARROWED,)),
    ({"unsettled": (OWES,), "unasked": (FILED,)}, (OWED, UNKEYED)),
    ({"unasked": (FILED,), "lossy": True}, (UNKEYED, LOSSY)),
    (GAP, (SPANS,)),
    (GAP | {"unsettled": (OWES,), "unasked": (FILED,), "lossy": True}, (SPANS, OWED, UNKEYED, LOSSY)),
)  # fmt: skip
def a_plan_says_what_stands_in_the_way(rules: Any, found: dict[str, Any], reasons: tuple[str, ...]) -> None:
    assert rules.restore.judge(facts(rules, **found)).reasons == reasons


@law(RESTORE, REASONS, (9, 0), (10, 0), (11, 1), (12, 2))
def a_plan_describes_ten_of_a_kind_and_names_all(rules: Any, number: int, more: int) -> None:
    many = tuple(unkeyed("released", f"{at:064x}") for at in range(number))
    filed = tuple(unkeyed("recorded", f"{at + 99:064x}") for at in range(number))
    judgement = rules.restore.judge(facts(rules, unsettled=many, unasked=filed))
    rest = (f"and {2 * more} more",) if more else ()
    assert judgement.reasons[20:] == rest or number < 10
    assert len(judgement.reasons) == 2 * min(number, 10) + len(rest)
    assert judgement.effects == ids(*many, *filed)


@law(RESTORE, REASONS)
def an_effect_that_stands_in_the_way_twice_is_named_once(rules: Any) -> None:
    judgement = rules.restore.judge(facts(rules, unsettled=(LET_GO,), unasked=(attrs.evolve(LET_GO, recorded=True),)))
    assert judgement.effects == ids(LET_GO)
