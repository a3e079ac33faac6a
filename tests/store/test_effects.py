"""Effects on a real store: asked before they run, durable before the answer, never run twice by mistake."""

from __future__ import annotations

import gc
import threading

import attrs
import pytest

import cpstore
from cpstore import EffectPolicy, EffectState
from cpstore.errors import (
    CheckpointStoreError,
    EffectBusyError,
    EffectConflictError,
    EffectInDoubtError,
    InvalidStateError,
    NotFoundError,
    RefusedError,
    StorageError,
)

READ_ONLY, IDEMPOTENT, RECONCILABLE, AT_MOST_ONCE = EffectPolicy
POLICIES = list(EffectPolicy)
ARGS = {"order": 17, "cents": 990}
WORD = {"who": "Ada", "why": "looked at the bank's site"}


@pytest.fixture
def store(path):
    with cpstore.open(path) as store:
        yield store
        report = store.verify()
        assert report.good, report.findings


@pytest.fixture
def task(store):
    task = store.lineage("task")
    task.commit({"turn": 1}, step=1)
    return task


def begin(task, policy=AT_MOST_ONCE, **changed):
    return task.begin("pay", ARGS, policy=policy, **changed)


def orphan(task, policy=AT_MOST_ONCE):
    """Leave an effect behind that is started and has no owner, as a process that died does."""
    record = begin(task, policy).record
    gc.collect()
    return record


# --- the table of DESIGN 5.4, cell by cell ---------------------------------------------------------------------------


def none(task, policy):
    return None


def failed(task, policy):
    begin(task, policy).fail("refused by the bank", happened=False)


def compensated(task, policy):
    handle = begin(task, policy)
    handle.complete("receipt")
    task.compensate(handle.record, **WORD)


def not_happened(task, policy):
    task.reconcile(orphan(task, policy), happened=False, **WORD)


def completed(task, policy):
    begin(task, policy).complete("receipt")


def happened(task, policy):
    task.reconcile(orphan(task, policy), happened=True, result="receipt", **WORD)


def alive(task, policy):
    return begin(task, policy)  # the test holds the handle


def gone(task, policy):
    orphan(task, policy)


def let_go(task, policy):
    begin(task, policy).fail("connection reset")


def cancelled(task, policy):
    task.cancel("pay", ARGS, policy=policy, **WORD)


BUSY, DOUBT, CONFLICT = EffectBusyError, EffectInDoubtError, EffectConflictError
TABLE = [
    (none, ["fresh 1"] * 4),
    (failed, ["fresh 2"] * 4),
    (compensated, ["fresh 2"] * 4),
    (not_happened, ["fresh 2"] * 4),
    (completed, ["fresh 2", "replay", "replay", "replay"]),
    (happened, ["fresh 2", "replay", "replay", "replay"]),
    (alive, ["fresh 2", BUSY, BUSY, BUSY]),
    (gone, ["fresh 2", "fresh 2", DOUBT, DOUBT]),
    (let_go, ["fresh 2", "fresh 2", DOUBT, DOUBT]),
    (cancelled, [CONFLICT] * 4),
]
CELLS = [
    pytest.param(row, policy, answer, id=f"{row.__name__}-{policy.value}")
    for row, answers in TABLE
    for policy, answer in zip(POLICIES, answers, strict=True)
]


@pytest.mark.parametrize(("found", "policy", "answer"), CELLS)
@pytest.mark.parametrize("where", ["here", "fork", "restored", "reopened"])
def test_begin_answers_as_the_table_says_here_in_a_fork_after_a_restore_and_after_a_reopen(
    path, found, policy, answer, where
):
    with cpstore.open(path) as store:
        task = store.lineage("task")
        task.commit({"turn": 1}, step=1)
        if where == "fork":
            asking = task.fork("fork")
        held = found(task, policy)
        if where == "restored" and answer in (DOUBT, BUSY) and policy > IDEMPOTENT:
            with pytest.raises(cpstore.errors.UnsafeRollbackError):
                task.restore(1)
        elif where == "restored":
            task.restore(1)
        if where != "fork":
            asking = task
        if where == "reopened":
            again = cpstore.open(path)
            asking = again.lineage("task")
            asking.load()
        size = store.stats()["entries"]
        if type(answer) is str:
            handle = begin(asking, policy)
            assert handle.fresh == answer.startswith("fresh")
            if handle.fresh:
                assert handle.record.attempt == int(answer[-1]) and handle.record.state is EffectState.STARTED
                assert store.stats()["entries"] == size + 1
            else:
                assert handle.outcome == "receipt" and store.stats()["entries"] == size
        else:
            with pytest.raises(answer) as refused:
                begin(asking, policy)
            assert store.stats()["entries"] == size
            assert refused.value.record.id.name == "pay" and "'pay'" in str(refused.value)
        if where == "reopened":
            again.close()
        del held
        assert store.verify().good


@pytest.mark.parametrize("name", ["none", "failed"])
def test_the_start_is_stored_before_begin_answers(path, task, name):
    if name == "failed":
        failed(task, AT_MOST_ONCE)
    handle = begin(task)
    with cpstore.open(path, read_only=True) as other:
        (seen,) = other.lineage("task").effects()
    assert seen == handle.record and seen.state is EffectState.STARTED


# --- identity --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "args", "options"),
    [
        ("pay", {"cents": 990, "order": 17}, {}),  # the order of keys is no difference
        ("pay", {"order": 17, "cents": 990}, {"occurrence": 1}),
    ],
)
def test_what_is_the_same_effect_replays(task, name, args, options):
    completed(task, AT_MOST_ONCE)
    assert not task.begin(name, args, policy=AT_MOST_ONCE, **options).fresh


@pytest.mark.parametrize(
    ("name", "args", "options"),
    [
        ("refund", ARGS, {}),
        ("pay", {"order": 18, "cents": 990}, {}),
        ("pay", {"order": 17.0, "cents": 990}, {}),
        ("pay", {"order": True, "cents": 990}, {}),
        ("pay", ARGS, {"occurrence": 2}),
        ("pay", ARGS, {"key": "order 17"}),
        ("pay", ARGS, {"scope": "lineage"}),
    ],
)
def test_what_is_another_effect_is_fresh_under_another_forwarded_key(task, name, args, options):
    one = begin(task)
    one.complete("receipt")
    other = task.begin(name, args, policy=AT_MOST_ONCE, **options)
    assert other.fresh and other.key != one.key and len(other.key) == 64


def test_an_effect_of_another_namespace_or_family_is_another_effect(store, task):
    completed(task, AT_MOST_ONCE)
    for other in (store.lineage("task", namespace="other"), store.lineage("other")):
        other.commit({}, step=1)
        assert begin(other).fresh


def test_the_forwarded_key_is_the_same_for_every_attempt_and_another_in_another_store(tmp_path, task):
    first = begin(task, IDEMPOTENT)
    first.fail("timeout")
    again = begin(task, IDEMPOTENT)
    assert again.fresh and again.key == first.key and again.record.attempt == 2
    with cpstore.open(tmp_path / "other.db") as other:
        lineage = other.lineage("task")
        lineage.commit({"turn": 1}, step=1)
        assert begin(lineage, IDEMPOTENT).key != first.key


def test_other_arguments_under_one_key_are_a_conflict_that_shows_both_digests(task):
    handle = begin(task, key="order 17")
    handle.complete("receipt")
    with pytest.raises(EffectConflictError) as refused:
        task.begin("pay", {"order": 17, "cents": 9900}, policy=AT_MOST_ONCE, key="order 17")
    asked = task.record("probe", {"order": 17, "cents": 9900}, policy=READ_ONLY).arguments
    assert handle.record.arguments[:16] in str(refused.value) and asked[:16] in str(refused.value)
    assert refused.value.record.state is EffectState.COMPLETED


@pytest.mark.parametrize("first", POLICIES)
@pytest.mark.parametrize("then", POLICIES)
def test_the_first_begin_fixes_the_policy_of_its_name_in_its_family(task, first, then):
    task.begin("pay", {"order": 1}, policy=first).complete(1)
    task.commit({"turn": 2}, step=2)
    fork = task.fork("fork")
    if then < first:
        for lineage in (task, fork):
            with pytest.raises(EffectConflictError, match="weaker"):
                lineage.begin("pay", {"order": 2}, policy=then)
    else:
        assert fork.begin("pay", {"order": 2}, policy=then).fresh
    assert fork.begin("another name", {}, policy=READ_ONLY).fresh


def test_an_effect_of_one_lineage_is_asked_about_there_alone(store, task):
    mine = begin(task, scope="lineage")
    mine.complete("receipt")
    fork = task.fork("fork")
    assert not begin(task, scope="lineage").fresh
    theirs = begin(fork, scope="lineage")
    assert theirs.fresh and theirs.key != mine.key
    assert len(list(task.effects())) == len(list(fork.effects())) == 2  # both see the family's


# --- outcomes --------------------------------------------------------------------------------------------------------


VALUES = [None, False, 0, "", [], {"nested": {"list": [1, 2.5, "three"]}}, b"bytes", ("tuple", 1), 10**30, "\ud83d"]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_result_comes_back_equal_and_fresh(task, value):
    begin(task).complete(value)
    handle = begin(task)
    assert handle.outcome == value and type(handle.outcome) is type(value)
    assert task.outcome(handle.record) == value and task.arguments(handle.record) == ARGS
    if isinstance(value, dict):
        handle.outcome["nested"]["list"].append("more")
        assert handle.outcome == value


@pytest.mark.parametrize("size", [100, 33_000, 1_200_000])
def test_a_result_of_any_size_is_kept_through_restore_fork_and_reopen(path, size):
    result = {"body": "".join(chr(97 + at * at % 23) for at in range(size)), "size": size}
    with cpstore.open(path) as store:
        task = store.lineage("task")
        task.commit({"turn": 1}, step=1)
        begin(task).complete(result)
        task.commit({"turn": 2}, step=2)
        task.restore(1)
        assert begin(task).outcome == result and begin(task.fork("fork")).outcome == result
        assert task.load() == {"turn": 1}
        assert store.verify().good
    with cpstore.open(path, read_only=True) as store:
        (known,) = store.lineage("fork").effects()
        assert store.lineage("fork").outcome(known) == result


def test_a_state_is_none_the_worse_for_effects_between_its_checkpoints(small, store):
    task = store.lineage("task")
    for turn in range(23):
        task.commit({"turns": list(range(turn)), "text": "word " * 40}, step=turn)
        task.begin("send", {"turn": turn}, policy=AT_MOST_ONCE).complete({"text": f"{turn} " * 90})
    for turn in range(23):
        assert task.load(turn + 1) == {"turns": list(range(turn)), "text": "word " * 40}
        assert task.begin("send", {"turn": turn}, policy=AT_MOST_ONCE).outcome == {"text": f"{turn} " * 90}
    assert task.head().revision == 23


def test_a_result_that_cannot_be_stored_leaves_the_effect_under_way_and_a_later_complete_works(task):
    handle = begin(task)
    with pytest.raises(InvalidStateError) as refused:
        handle.complete({"response": {"body": object()}})
    assert refused.value.path == "/response/body"
    assert next(iter(task.effects())).state is EffectState.STARTED
    with pytest.raises(EffectBusyError):
        begin(task)
    handle.complete({"response": {"body": "text"}})
    assert begin(task).outcome == {"response": {"body": "text"}}


def test_arguments_that_cannot_be_stored_begin_nothing(task):
    with pytest.raises(InvalidStateError) as refused:
        task.begin("pay", {"when": object()}, policy=AT_MOST_ONCE)
    assert refused.value.path == "/when" and list(task.effects()) == []


def test_repeating_complete_changes_nothing_and_another_result_is_refused(store, task):
    handle = begin(task)
    handle.complete({"receipt": 1})
    size = store.stats()["entries"]
    handle.complete({"receipt": 1})
    assert store.stats()["entries"] == size
    for act in (lambda: handle.complete({"receipt": 2}), lambda: handle.fail("no", happened=False)):
        with pytest.raises(EffectConflictError):
            act()
    handle.fail("what happened has happened", happened=None)
    assert store.stats()["entries"] == size and begin(task).outcome == {"receipt": 1}


def test_a_failure_that_did_happen_has_no_result_but_is_not_run_again(task):
    begin(task).fail("the answer was lost, the mail was not", happened=True)
    handle = begin(task)
    assert not handle.fresh
    with pytest.raises(NotFoundError, match="no result"):
        _ = handle.outcome


def test_a_handle_without_an_outcome_says_so(task):
    with pytest.raises(EffectInDoubtError):
        _ = begin(task).outcome


def test_a_write_that_fails_leaves_the_effect_started_and_the_result_is_stored_by_a_retry(task, monkeypatch):
    handle = begin(task)
    backend = task._line.journal.backend
    real = type(backend).write

    def full(self, *args, **options):
        raise StorageError("database or disk is full")

    monkeypatch.setattr(type(backend), "write", full)
    with pytest.raises(StorageError):
        handle.complete("receipt")
    monkeypatch.setattr(type(backend), "write", real)
    assert next(iter(task.effects())).state is EffectState.STARTED
    handle.complete("receipt")
    handle.complete("receipt")
    assert begin(task).outcome == "receipt"


def test_an_attempt_that_was_replaced_is_evidence_and_not_believed(task):
    first = begin(task, IDEMPOTENT)
    first.fail("timeout")
    second = begin(task, IDEMPOTENT)
    first.complete("late receipt")
    (record,) = task.effects()
    assert (record.state, record.evidence, record.attempt) == (EffectState.STARTED, 1, 2)
    second.complete("receipt")
    (record,) = task.effects()
    assert record.evidence == 1 and begin(task, IDEMPOTENT).outcome == "receipt"


def test_a_late_outcome_does_not_take_the_result_away_that_stands(store, task):
    first = begin(task, IDEMPOTENT)
    first.fail("timeout")
    begin(task, IDEMPOTENT).complete({"receipt": "second"})
    first.complete({"receipt": "first"})
    assert begin(task, IDEMPOTENT).outcome == {"receipt": "second"}
    assert task.arguments(next(iter(task.effects()))) == ARGS


# --- verdicts --------------------------------------------------------------------------------------------------------


def test_the_first_verdict_stands(task):
    record = orphan(task)
    task.reconcile(record, happened=True, result="receipt", **WORD)
    for said in (True, False):
        if said:
            assert task.reconcile(record, happened=said, who="Bob", why="thinks so").who == "Ada"
        else:
            with pytest.raises(EffectConflictError, match="Ada"):
                task.reconcile(record, happened=said, who="Bob", why="thinks not")
    assert begin(task).outcome == "receipt"


@pytest.mark.parametrize("word", [{"who": "", "why": "y"}, {"who": "w", "why": " "}, {"who": None, "why": "y"}])
def test_a_verdict_needs_who_and_why(task, word):
    record = orphan(task)
    with pytest.raises(InvalidStateError):
        task.reconcile(record, happened=True, **word)
    assert [found.id for found in task.effects(in_doubt=True)] == [record.id]


def test_no_verdict_on_an_effect_that_is_under_way(task):
    handle = begin(task)
    with pytest.raises(EffectBusyError):
        task.reconcile(handle.record, happened=False, **WORD)
    handle.complete(1)


def test_an_owner_that_completes_after_the_verdict_is_evidence(task):
    handle = begin(task)
    handle.fail("lost the connection")
    task.reconcile(handle.record, happened=False, **WORD)
    handle.complete("it did after all")
    (record,) = task.effects()
    assert (record.state, record.evidence) == (EffectState.NOT_HAPPENED, 1)


def test_who_is_in_doubt_is_listed_and_nothing_else(task):
    completed(task, AT_MOST_ONCE)
    held = task.begin("held", {}, policy=AT_MOST_ONCE)
    task.begin("may be repeated", {}, policy=IDEMPOTENT).fail("timeout")
    task.begin("in doubt", {}, policy=AT_MOST_ONCE).fail("timeout")
    assert [found.id.name for found in task.effects(in_doubt=True)] == ["in doubt"]
    assert [found.id.name for found in task.effects()] == ["pay", "held", "may be repeated", "in doubt"]
    assert [found.id.name for found in task.effects("held")] == ["held"]
    held.complete()


def test_many_effects_are_listed_in_the_order_of_their_first_mention(path):
    with cpstore.open(path, durability="normal") as store:
        task = store.lineage("task")
        task.commit({}, step=1)
        for at in range(230):
            task.record("send", {"at": at}, policy=IDEMPOTENT)
        assert [task.arguments(found)["at"] for found in task.effects()] == list(range(230))


@pytest.mark.parametrize(
    ("said", "outcome"),
    [(True, None), ((True, "receipt"), "receipt"), (False, "fresh"), ((False, None), "fresh"), (None, DOUBT)],
)
def test_a_probe_is_asked_about_a_reconcilable_effect_in_doubt(task, said, outcome):
    record, asked = orphan(task, RECONCILABLE), []

    def probe(key):
        asked.append(key)
        return said

    if outcome is DOUBT:
        with pytest.raises(EffectInDoubtError):
            begin(task, RECONCILABLE, probe=probe)
        assert next(iter(task.effects())).state is EffectState.STARTED
    else:
        handle = begin(task, RECONCILABLE, probe=probe)
        assert handle.fresh == (outcome == "fresh")
        if outcome == "receipt":
            assert handle.outcome == "receipt"
        assert next(iter(task.effects())).state is (EffectState.STARTED if handle.fresh else EffectState.HAPPENED)
    assert asked == [record.id.forwarded(task._line.journal.origin)]


@pytest.mark.parametrize("said", ["yes", 1, (True, 1, 2), ("yes", 1)])
def test_a_probe_that_answers_anything_else_settles_nothing(task, said):
    orphan(task, RECONCILABLE)
    with pytest.raises(InvalidStateError):
        begin(task, RECONCILABLE, probe=lambda key: said)
    assert next(iter(task.effects())).state is EffectState.STARTED


def test_a_probe_is_not_asked_where_nothing_is_in_doubt_or_nothing_could_be_found_out(task):
    def probe(key):
        raise AssertionError("asked")

    begin(task, RECONCILABLE, probe=probe).complete("receipt")
    assert begin(task, RECONCILABLE, probe=probe).outcome == "receipt"
    task.begin("mail", {}, policy=AT_MOST_ONCE).fail("timeout")
    with pytest.raises(EffectInDoubtError):
        task.begin("mail", {}, policy=AT_MOST_ONCE, probe=probe)


def test_what_was_recorded_after_the_fact_replays(task):
    record = task.record("pay", ARGS, "receipt", policy=AT_MOST_ONCE)
    assert record.recorded and task.record("pay", ARGS, "receipt", policy=AT_MOST_ONCE) == record
    assert begin(task).outcome == "receipt"
    with pytest.raises(EffectConflictError):
        task.record("pay", ARGS, "another", policy=AT_MOST_ONCE)


def test_only_what_happened_is_compensated_and_only_what_did_not_is_cancelled(task):
    handle = begin(task)
    for act in (lambda: task.compensate(handle.record, **WORD), lambda: cancelled(task, AT_MOST_ONCE)):
        with pytest.raises(EffectConflictError):
            act()
    handle.complete(1)
    with pytest.raises(EffectConflictError):
        cancelled(task, AT_MOST_ONCE)
    assert task.compensate(handle.record, **WORD).state is EffectState.COMPENSATED
    assert task.compensate(handle.record.id, **WORD).state is EffectState.COMPENSATED
    cancelled(task, AT_MOST_ONCE)
    with pytest.raises(EffectConflictError, match="Ada"):
        begin(task)
    assert begin(task, occurrence=2).fresh


# --- blocks and owners -----------------------------------------------------------------------------------------------


def test_a_block_that_ends_without_an_outcome_is_in_doubt(task):
    with pytest.raises(EffectInDoubtError), task.effect("pay", ARGS, policy=AT_MOST_ONCE):
        pass
    with pytest.raises(EffectInDoubtError):
        begin(task)


def test_a_block_that_raises_is_in_doubt_and_its_error_is_kept_and_passed_on(task):
    with pytest.raises(ZeroDivisionError), task.effect("pay", ARGS, policy=AT_MOST_ONCE):
        raise ZeroDivisionError("after the request was sent")
    (record,) = task.effects(in_doubt=True)
    assert record.error == "ZeroDivisionError: after the request was sent"


def test_an_interrupted_block_is_in_doubt(task):
    with pytest.raises(KeyboardInterrupt), task.effect("pay", ARGS, policy=AT_MOST_ONCE):
        raise KeyboardInterrupt
    assert len(list(task.effects(in_doubt=True))) == 1


@pytest.mark.parametrize("ending", ["complete", "fail", "raise after complete"])
def test_a_block_with_an_outcome_ends_as_it_said(task, ending):
    try:
        with task.effect("pay", ARGS, policy=AT_MOST_ONCE) as pay:
            assert pay.fresh
            pay.fail("no", happened=False) if ending == "fail" else pay.complete("receipt")
            if ending == "raise after complete":
                raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    (record,) = task.effects()
    assert record.state is (EffectState.FAILED if ending == "fail" else EffectState.COMPLETED)


def test_a_block_around_a_replay_runs_and_writes_nothing(store, task):
    completed(task, AT_MOST_ONCE)
    size = store.stats()["entries"]
    with task.effect("pay", ARGS, policy=AT_MOST_ONCE) as pay:
        assert not pay.fresh and pay.outcome == "receipt"
    assert store.stats()["entries"] == size


def test_a_handle_that_somebody_holds_is_an_owner_and_one_that_is_gone_is_none(path, task):
    handle = begin(task)
    with cpstore.open(path) as other:  # the same process, another store
        lineage = other.lineage("task")
        lineage.load()
        for asking in (task, lineage):
            with pytest.raises(EffectBusyError) as busy:
                begin(asking)
            assert busy.value.retry == "again"
        del handle
        gc.collect()
        for asking in (task, lineage):
            with pytest.raises(EffectInDoubtError):
                begin(asking)


def test_threads_that_begin_at_once_get_one_go(task):
    barrier, got = threading.Barrier(8), []

    def work():
        barrier.wait()
        try:
            got.append(begin(task))
        except EffectBusyError as error:
            got.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 8 and sum(not isinstance(one, Exception) for one in got) == 1


def test_threads_that_begin_and_complete_their_own_effects_lose_none(path):
    with cpstore.open(path, durability="normal") as store:
        task = store.lineage("task")
        task.commit({}, step=1)

        def work(number):
            for at in range(12):
                task.begin("send", [number, at], policy=AT_MOST_ONCE).complete([number, at])

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(task.outcome(found) for found in task.effects()) == [[n, a] for n in range(6) for a in range(12)]
        assert store.verify().good


# --- bad arguments ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        {"policy": "at_most_once"},
        {"policy": None},
        {"key": ""},
        {"key": 17},
        {"occurrence": 0},
        {"occurrence": 1.0},
        {"occurrence": True},
        {"scope": "store"},
        {"name": ""},
        {"name": 3},
        {"name": "a\nb"},
        {"args": object()},
    ],
)
def test_a_bad_argument_begins_nothing(task, changed):
    given = {"name": "pay", "args": ARGS, "policy": AT_MOST_ONCE, **changed}
    name, args = given.pop("name"), given.pop("args")
    with pytest.raises(InvalidStateError):
        task.begin(name, args, **given)
    assert list(task.effects()) == []


@pytest.mark.parametrize("subject", ["pay", None, 3])
def test_an_effect_is_named_by_its_record_or_id(task, subject):
    for act in (
        lambda: task.reconcile(subject, happened=True, **WORD),
        lambda: task.compensate(subject, **WORD),
        lambda: task.outcome(subject),
        lambda: task.arguments(subject),
    ):
        with pytest.raises(InvalidStateError):
            act()


@pytest.mark.parametrize("happened", [None, 1, "yes"])
def test_a_verdict_is_yes_or_no(task, happened):
    with pytest.raises(InvalidStateError):
        task.reconcile(orphan(task), happened=happened, **WORD)


def test_a_lineage_that_does_not_exist_has_no_effects(store, task):
    record, nobody = orphan(task), store.lineage("nobody")
    for act in (
        lambda: begin(nobody),
        lambda: list(nobody.effects()),
        lambda: nobody.cancel("pay", ARGS, policy=AT_MOST_ONCE, **WORD),
        lambda: nobody.record("pay", ARGS, policy=AT_MOST_ONCE),
        lambda: nobody.reconcile(record, happened=True, **WORD),
        lambda: nobody.outcome(record),
    ):
        with pytest.raises(NotFoundError):
            act()
    assert not nobody.exists


def test_an_effect_is_settled_in_its_own_family_only(store, task):
    record = orphan(task)
    stranger, elsewhere = store.lineage("stranger"), store.lineage("task", namespace="other")
    stranger.commit({}, step=1)
    elsewhere.commit({}, step=1)
    for lineage in (stranger, elsewhere):
        for act in (
            lambda lineage=lineage: lineage.reconcile(record, happened=True, **WORD),
            lambda lineage=lineage: lineage.compensate(record, **WORD),
            lambda lineage=lineage: lineage.outcome(record),
            lambda lineage=lineage: lineage.arguments(record),
        ):
            with pytest.raises(NotFoundError):
                act()
        assert list(lineage.effects()) == []
    with pytest.raises(NotFoundError):
        task.outcome(attrs.evolve(record.id, name="never"))
    assert task.fork("fork").reconcile(record, happened=True, **WORD).state is EffectState.HAPPENED


def test_a_read_only_store_tells_what_it_knows_and_begins_nothing(path):
    with cpstore.open(path) as store:
        task = store.lineage("task")
        task.commit({}, step=1)
        completed(task, AT_MOST_ONCE)
        record = task.begin("mail", {}, policy=AT_MOST_ONCE).record
    with cpstore.open(path, read_only=True) as store:
        task = store.lineage("task")
        known = list(task.effects())
        assert [found.id.name for found in known] == ["pay", "mail"]
        assert (task.outcome(known[0]), task.arguments(known[0])) == ("receipt", ARGS)
        assert task.plan_restore(1).verdict is cpstore.Verdict.REFUSED
        for act in (
            lambda: task.begin("other", {}, policy=AT_MOST_ONCE),
            lambda: task.reconcile(record, happened=True, **WORD),
            lambda: task.restore(1),
        ):
            with pytest.raises(CheckpointStoreError):
                act()


# --- redaction (F101) ------------------------------------------------------------------------------------------------


def redact(name, value):
    if name == "plain":
        return value
    if isinstance(value, dict):
        return {key: "(redacted)" if key == "token" else redact(name, child) for key, child in value.items()}
    return value


def test_what_redaction_takes_out_is_nowhere_in_the_file(path):
    secret = "sk-live-0123456789abcdef"
    with cpstore.open(path, redact=redact) as store:
        task = store.lineage("task")
        task.commit({}, step=1)
        handle = task.begin("call", {"token": secret, "to": "Ada"}, policy=AT_MOST_ONCE, key="call 1")
        handle.complete({"token": secret, "ok": True})
        assert handle.outcome == {"token": "(redacted)", "ok": True}
        assert task.arguments(handle.record) == {"token": "(redacted)", "to": "Ada"}
        # Asked again with the same token, or with a new one: the same effect.
        for token in (secret, "sk-live-fresh"):
            assert not task.begin("call", {"token": token, "to": "Ada"}, policy=AT_MOST_ONCE, key="call 1").fresh
        with pytest.raises(EffectConflictError):
            task.begin("call", {"token": secret, "to": "Bob"}, policy=AT_MOST_ONCE, key="call 1")
        assert store.verify().good
    for suffix in ("", "-wal"):
        found = path.with_name(path.name + suffix)
        assert not found.exists() or secret.encode() not in found.read_bytes()


def test_arguments_that_redaction_touched_need_a_key_and_others_do_not(path):
    with cpstore.open(path, redact=redact) as store:
        task = store.lineage("task")
        task.commit({}, step=1)
        with pytest.raises(InvalidStateError, match="redacted"):
            task.begin("call", {"token": "secret"}, policy=AT_MOST_ONCE)
        with pytest.raises(InvalidStateError, match="redacted"):
            task.record("call", {"token": "secret"}, policy=AT_MOST_ONCE)
        assert list(task.effects()) == []
        assert task.begin("call", {"to": "Ada"}, policy=AT_MOST_ONCE).fresh
        assert task.begin("plain", {"token": "no secret"}, policy=AT_MOST_ONCE).fresh


def test_a_redaction_that_fails_begins_nothing_and_does_not_see_the_callers_own_value(path):
    given = {"token": "secret", "list": [1]}

    def careless(name, value):
        value["list"].append(2)
        raise ZeroDivisionError

    with cpstore.open(path, redact=careless) as store:
        task = store.lineage("task")
        task.commit({}, step=1)
        with pytest.raises(ZeroDivisionError):
            task.begin("call", given, policy=AT_MOST_ONCE, key="1")
        assert given == {"token": "secret", "list": [1]} and list(task.effects()) == []


def test_every_refusal_is_one_of_the_stores_own_and_names_the_effect(task):
    completed(task, AT_MOST_ONCE)
    with pytest.raises(RefusedError) as refused:
        begin(task, IDEMPOTENT)
    assert refused.value.retry == "never" and refused.value.effect.startswith("'pay'")
