"""Going back on a real store: a new revision, gated by what the world has seen, and nothing else is touched."""

from __future__ import annotations

import attrs
import pytest
from sample import ORDER, SECONDS, TIMEOUT

import cpstore
from cpstore import (
    Acknowledgement,
    Authority,
    Binding,
    Directive,
    EffectPolicy,
    Retirement,
    Scope,
    Supersession,
    Verdict,
)
from cpstore.backends.sqlite import SqliteBackend
from cpstore.errors import (
    EffectConflictError,
    InvalidStateError,
    NotFoundError,
    RevisionConflictError,
    SemanticDriftError,
    UnsafeRollbackError,
)

READ_ONLY, IDEMPOTENT, RECONCILABLE, AT_MOST_ONCE = EffectPolicy
WORD = {"who": "Ada", "why": "looked at the bank's site"}


@pytest.fixture
def store(path):
    with cpstore.open(path) as store:
        yield store
        report = store.verify()
        assert report.good, report.findings


@pytest.fixture
def task(store):
    """A lineage of three revisions."""
    task = store.lineage("task")
    for turn in (1, 2, 3):
        task.commit({"turn": turn}, step=turn)
    return task


def entries(store):
    return store.stats()["entries"]


def pay(lineage, order=1, policy=AT_MOST_ONCE, **changed):
    return lineage.begin("pay", {"order": order}, policy=policy, **changed)


# --- what a restore is ------------------------------------------------------------------------------------------------


def test_a_restore_is_a_new_revision_of_the_old_state_and_loses_nothing(task):
    made = task.restore(1)
    assert (made.revision, made.kind, made.step, made.state) == (4, "restore", 1, task.checkpoint(1).state)
    assert [task.load(revision) for revision in (1, 2, 3, 4)] == [{"turn": turn} for turn in (1, 2, 3, 1)]
    assert [found.revision for found in task.history()] == [4, 3, 2, 1]
    assert task.commit({"turn": "new"}, step=1).revision == 5


def test_a_restore_can_be_undone_and_the_undo_too(task):
    for target, state in ((1, 1), (3, 3), (4, 1), (2, 2), (7, 2)):
        task.restore(target)
        assert task.load() == {"turn": state}
    assert task.head().revision == 8


def test_a_restore_to_the_head_is_a_restore_too(task):
    assert task.restore(3).revision == 4 and task.load() == {"turn": 3}


def test_what_follows_a_restore_is_stored_as_after_any_revision(small, store):
    task = store.lineage("task")
    states = []
    for turn in range(17):
        states.append({"items": [f"{at} " * 30 for at in range(turn)], "turn": turn})
        task.commit(states[-1], step=turn)
    for target in (3, 16, 9, 1):
        task.restore(target)
        states.append(states[target - 1])
        with task.edit(step=20) as edit:
            edit.append("/items", "after")
            edit.set("/turn", target)
        states.append({"items": [*states[-1]["items"], "after"], "turn": target})
        task.load()
        assert states == [task.load(revision) for revision in range(1, len(states) + 1)]


@pytest.mark.parametrize("revision", [0, 4, -1, "1", None, 1.0, True])
def test_a_revision_that_is_not_there_is_not_gone_back_to(store, task, revision):
    size = entries(store)
    for act in (task.plan_restore, task.restore):
        with pytest.raises((NotFoundError, InvalidStateError)):
            act(revision)
    assert entries(store) == size


def test_a_plan_writes_nothing_and_says_what_the_restore_then_does(store, task):
    size = entries(store)
    plan = task.plan_restore(1)
    assert (plan.revision, plan.head, plan.watermark, plan.head_seq, plan.cleared) == (1, 3, 1, 3, True)
    assert plan.counts == {} and entries(store) == size
    assert plan.to_value()["verdict"] == "cleared"
    task.restore(1)
    plan = task.plan_restore(4)  # the watermark of a restored revision is its target's
    assert (plan.watermark, plan.head, plan.head_seq) == (1, 4, 4)


# --- older writers ----------------------------------------------------------------------------------------------------


def test_who_looked_before_a_restore_is_refused_until_he_looks_again(store, task):
    zombie, edit = store.lineage("task"), None
    zombie.load()
    edit = zombie.edit(step=3)
    edit.set("/turn", "zombie")
    task.restore(1)
    size = entries(store)

    def edited():
        with edit:
            pass

    for act in (
        lambda: zombie.commit({"turn": "zombie"}, step=3),
        edited,
        lambda: pay(zombie),
        lambda: zombie.restore(2),
    ):
        with pytest.raises(RevisionConflictError) as refused:
            act()
        assert refused.value.head == 4
    assert entries(store) == size and list(task.effects()) == []
    zombie.load()
    assert pay(zombie).fresh and zombie.commit({"turn": "woke"}, step=3).revision == 5


def test_a_zombie_is_refused_before_the_ledger_is_asked_and_may_still_say_what_it_did(store, task):
    zombie = store.lineage("task")
    zombie.load()
    handle = pay(zombie)
    handle.complete("receipt")
    other = zombie.begin("mail", {}, policy=AT_MOST_ONCE)
    other.fail("timeout")
    task.reconcile(other.record, happened=True, **WORD)
    task.restore(1)
    with pytest.raises(RevisionConflictError):
        pay(zombie, 2)
    handle.complete("receipt")  # what has been done is heard from anybody
    other.complete("it was sent")
    assert not pay(task).fresh


def test_a_handle_that_never_looked_begins_nothing(store, task):
    with pytest.raises(RevisionConflictError):
        pay(store.lineage("task"))


# --- the table of DESIGN 5.5 ------------------------------------------------------------------------------------------


def nothing(task):
    pass


def repeatable(task):
    pay(task, 1, READ_ONLY).complete()
    task.begin("put", {}, policy=IDEMPOTENT)


def settled(task):
    for number, act in enumerate(
        (
            lambda handle: handle.complete("receipt"),
            lambda handle: handle.fail("no", happened=False),
            lambda handle: handle.fail("lost", happened=True),
            lambda handle: (handle.fail("lost"), task.reconcile(handle.record, happened=True, **WORD)),
            lambda handle: (handle.complete(1), task.compensate(handle.record, **WORD)),
        )
    ):
        act(pay(task, number))
    task.cancel("pay", {"order": 99}, policy=AT_MOST_ONCE, **WORD)
    pay(task, 7, key="seven").complete()
    task.record("pay", {"order": 8}, policy=AT_MOST_ONCE, key="eight")


def own(task):
    pay(task, scope="lineage").complete()  # asked about here: a restore of this lineage is cleared


def unkeyed(task):
    task.record("pay", {"order": 1}, policy=AT_MOST_ONCE)


def of_a_fork(task):
    pay(task.fork("fork"), scope="lineage").complete()


def under_way(task):
    return pay(task)


def in_doubt(task):
    pay(task).fail("timeout")


def in_doubt_in_a_fork(task):
    task.fork("fork").begin("pay", {}, policy=RECONCILABLE).fail("timeout")


def unkeyed_and_in_doubt(task):
    unkeyed(task)
    pay(task, 2).fail("timeout")


CLEARED, ASKS, REFUSED = Verdict
TABLE = [
    (nothing, CLEARED),
    (repeatable, CLEARED),
    (settled, CLEARED),
    (own, CLEARED),
    (unkeyed, ASKS),
    (of_a_fork, ASKS),
    (under_way, REFUSED),
    (in_doubt, REFUSED),
    (in_doubt_in_a_fork, REFUSED),
    (unkeyed_and_in_doubt, REFUSED),
]


@pytest.mark.parametrize(("interval", "verdict"), TABLE, ids=[row[0].__name__ for row in TABLE])
def test_going_back_is_cleared_as_the_table_says(store, task, interval, verdict):
    held = interval(task)
    size, plan = entries(store), task.plan_restore(1)
    assert plan.verdict is verdict and plan.reasons and entries(store) == size
    if verdict is CLEARED:
        assert task.restore(1).revision == 4
        return
    with pytest.raises(UnsafeRollbackError) as refused:
        task.restore(1)
    assert refused.value.plan == plan
    assert set(plan.reasons) <= set(refused.value.reasons) and all(
        reason in str(refused.value) for reason in plan.reasons
    )
    word = Acknowledgement("Ada", "the bank was called", plan.effects, plan.gaps)
    if verdict is REFUSED:
        with pytest.raises(UnsafeRollbackError, match="does not override"):
            task.restore(1, acknowledge=word)
        assert entries(store) == size and task.head().revision == 3
    else:
        assert task.restore(1, acknowledge=word).revision == 4
    del held


def test_what_lies_before_the_watermark_does_not_stand_in_the_way(store):
    task = store.lineage("task")
    task.commit({}, step=1)
    in_doubt(task)
    unkeyed_args = {"order": 3}
    task.record("pay", unkeyed_args, policy=AT_MOST_ONCE)
    task.commit({}, step=2)
    task.commit({}, step=3)
    assert task.plan_restore(2).cleared and task.plan_restore(1).verdict is REFUSED
    # Any transition since counts, not only the start.
    (doubtful,) = task.effects(in_doubt=True)
    task.reconcile(doubtful, happened=False, **WORD)
    assert task.plan_restore(2).counts == {"other": 1} and task.plan_restore(2).cleared
    assert pay(task).fresh
    assert task.plan_restore(2).verdict is REFUSED


def test_reconciling_clears_the_way_and_the_nearest_cleared_revision_is_named(store, task):
    in_doubt(task)
    task.commit({"turn": 4}, step=4)
    task.commit({"turn": 5}, step=5)
    plan = task.plan_restore(1)
    assert plan.alternatives == ("revision 4 is the nearest one that is cleared",)
    (doubtful,) = task.effects(in_doubt=True)
    assert str(doubtful.id) in plan.unsettled and plan.effects == (doubtful.id.digest.hex(),)
    task.reconcile(doubtful, happened=True, result="receipt", **WORD)
    task.restore(1)
    assert pay(task).outcome == "receipt"


def test_a_word_names_exactly_what_the_plan_names(store, task):
    for order in (1, 2):
        task.record("pay", {"order": order}, policy=AT_MOST_ONCE)
    size, plan = entries(store), task.plan_restore(1)
    one, two = plan.effects
    for effects, gaps, said in (
        ((), (), "not named"),
        ((one,), (), "not named"),
        ((one, two, "0" * 64), (), "not in the way"),
        ((one, two), ((1, 2),), "no gap"),
    ):
        with pytest.raises(UnsafeRollbackError, match=said):
            task.restore(1, acknowledge=Acknowledgement("Ada", "why", effects, gaps))
    for who, why in (("", "why"), ("Ada", " "), (None, "why")):
        with pytest.raises(InvalidStateError):
            task.restore(1, acknowledge=Acknowledgement(who, why, (one, two)))
    with pytest.raises(InvalidStateError):
        task.restore(1, acknowledge="Ada")
    assert entries(store) == size
    task.restore(1, acknowledge=Acknowledgement("Ada", "both were checked", (two, one)))
    assert entries(store) == size + 2  # the word is an entry of its own


def test_the_word_is_a_signed_entry_beside_the_restore(store, task):
    unkeyed(task)
    plan = task.plan_restore(1)
    task.restore(1, acknowledge=Acknowledgement("Ada", "it was checked", plan.effects))
    with store._journal.backend.read() as tx:
        number = tx.stream(task._line.stream)
        last = tx.last(number)
        word = tx.entry(number, last.seq - 1)
    assert (word.kind.name, last.kind.name) == ("ACKNOWLEDGEMENT", "RESTORE")
    assert word.detail["acknowledgement"] == {
        "effects": list(plan.effects),
        "gaps": [],
        "who": "Ada",
        "why": "it was checked",
    }
    # The same effects need a word again for the next restore across them.
    assert task.plan_restore(3).verdict is ASKS


# --- after a restore --------------------------------------------------------------------------------------------------


def test_what_was_settled_replays_after_a_restore_and_after_the_next(task):
    settled(task)
    for target in (1, 2, 3):
        task.restore(target)
        assert pay(task, 0).outcome == "receipt" and not pay(task, 2).fresh and not pay(task, 3).fresh
        with pytest.raises(EffectConflictError):
            pay(task, 99)


def test_a_reworded_effect_is_refused_until_the_occurrence_is_raised(task):
    pay(task, 1).complete("receipt")
    assert pay(task, 2).fresh  # no restore: another order is another effect
    task.reconcile(next(iter(task.effects(in_doubt=True))), happened=False, **WORD)
    task.restore(1)
    with pytest.raises(EffectConflictError, match="stepped back over") as refused:
        pay(task, "one")
    assert "'pay'" in str(refused.value)
    assert not pay(task, 1).fresh
    assert pay(task, "one", key="order one").fresh  # a business key tells orders apart
    assert pay(task, "one", occurrence=2).fresh
    assert task.begin("mail", {"order": "one"}, policy=AT_MOST_ONCE).fresh


def test_a_reworded_effect_is_refused_in_forks_of_what_was_restored_and_not_elsewhere(store, task):
    early = task.fork("early")
    pay(task, 1).complete("receipt")
    task.restore(1)
    late = task.fork("late")
    with pytest.raises(EffectConflictError, match="stepped back over"):
        pay(late, "one")
    assert pay(early, "one").fresh


def test_a_reworded_effect_of_an_abandoned_fork_is_refused_after_a_restore_across_it(task):
    fork = task.fork("fork")
    pay(fork, 1).complete("receipt")
    task.restore(1)
    with pytest.raises(EffectConflictError, match="stepped back over"):
        pay(task, "one")


def test_a_reworded_effect_is_found_among_any_number_of_others(path, monkeypatch):
    real = SqliteBackend.write
    with cpstore.open(path, durability="normal") as store:
        task = store.lineage("task")
        task.commit({}, step=1)
        monkeypatch.setattr(SqliteBackend, "write", lambda self, timeout=None, *, durable=False: real(self, timeout))
        for order in range(1100):
            task.record("pay", {"order": order}, policy=AT_MOST_ONCE, key=f"order {order}")
        pay(task, "without a key").complete("receipt")
        task.restore(1)
        with pytest.raises(EffectConflictError, match="stepped back over"):
            pay(task, "in other words")


def test_a_watermark_is_kept_through_restores_of_restores(task):
    task.restore(1)  # 4
    unkeyed(task)
    task.commit({"turn": 5}, step=5)  # 5 has seen it
    assert task.plan_restore(4).verdict is ASKS and task.plan_restore(5).cleared
    word = Acknowledgement("Ada", "checked", task.plan_restore(4).effects)
    task.restore(4, acknowledge=word)  # 6: its state is from before the effect
    assert task.plan_restore(6).watermark == 1 and task.plan_restore(6).verdict is ASKS
    assert task.plan_restore(5).cleared is True


# --- forks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("interval", "verdict"), TABLE, ids=[row[0].__name__ for row in TABLE])
def test_a_fork_below_the_head_runs_the_plan(store, task, interval, verdict):
    held = interval(task)
    if interval is own:
        verdict = ASKS  # the fork would not ask about it
    if verdict is CLEARED:
        assert task.fork("back", revision=1).load() == {"turn": 1}
        return
    size = entries(store)
    with pytest.raises(UnsafeRollbackError) as refused:
        task.fork("back", revision=1)
    assert entries(store) == size and not store.lineage("back").exists
    word = Acknowledgement("Ada", "checked", refused.value.plan.effects)
    if verdict is REFUSED:
        with pytest.raises(UnsafeRollbackError):
            task.fork("back", revision=1, acknowledge=word)
    else:
        assert task.fork("back", revision=1, acknowledge=word).head().parent == ("task", 1)
    assert task.fork("on").load() == {"turn": 3}  # at the head nothing is stepped over
    del held


def test_a_fork_asks_about_the_familys_effects_and_the_parent_about_the_forks(task):
    pay(task, 1).complete("of the parent")
    back = task.fork("back", revision=1)
    assert pay(back, 1).outcome == "of the parent"
    with pytest.raises(EffectConflictError, match="stepped back over"):
        pay(back, "one")
    back.begin("mail", {}, policy=AT_MOST_ONCE).complete("of the fork")
    assert task.begin("mail", {}, policy=AT_MOST_ONCE).outcome == "of the fork"
    grandchild = back.fork("back/again")
    assert pay(grandchild, 1).outcome == "of the parent"


def test_a_restore_touches_no_other_lineage(store, task):
    fork, other = task.fork("fork"), store.lineage("other")
    fork.commit({"fork": 1}, step=4)
    other.commit({"other": 1}, step=1)
    handle = pay(other)
    before = [lineage.head() for lineage in (fork, other)]
    task.restore(1)
    assert [lineage.head() for lineage in (fork, other)] == before
    handle.complete()
    fork.commit({"fork": 2}, step=5)
    fork.restore(1)
    assert (fork.load(), task.load(), other.load()) == ({"turn": 3}, {"turn": 1}, {"other": 1})
    with pytest.raises(NotFoundError):
        fork.restore(5)  # only its own revisions


def test_a_fork_of_a_restored_revision_sees_its_state(task):
    task.restore(1)
    fork = task.fork("fork")
    assert fork.load() == {"turn": 1}
    task.commit({"turn": 9}, step=9)
    task.restore(2)
    back = task.fork("back", revision=4)
    assert (back.load(), back.head().step, fork.load(), task.load()) == ({"turn": 1}, 1, {"turn": 1}, {"turn": 2})


# --- locks ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def moved(store):
    """Revision 1 is of milliseconds, the head, revision 2, of seconds; 'done' was retired."""
    task = store.lineage("task")
    task.commit({"timeout": 5000}, step=1, define=[TIMEOUT, Binding("done", "merged", authority=Authority.USER)])
    task.commit({"timeout": 5}, step=2, supersede=[Supersession(SECONDS, ORDER)], retire=[Retirement("done", ORDER)])
    return task


BACK = Directive(Authority.USER, "message 9", "milliseconds again")
READ = Directive(Authority.USER, "message 10", "read it under today's meaning")


def test_locks_that_moved_are_named_and_refused(store, moved):
    size, plan = entries(store), moved.plan_restore(1)
    assert [symbol for symbol, _, _ in plan.moved] == ["done", "timeout"] and not plan.cleared
    with pytest.raises(SemanticDriftError) as refused:
        moved.restore(1)
    assert {symbol for symbol, _, _ in refused.value.differences} == {"done", "timeout"}
    for answer in ({"reread": {"done": READ}}, {"supersede": [Supersession(TIMEOUT, BACK)]}):
        with pytest.raises(SemanticDriftError):
            moved.restore(1, **answer)
    weak = attrs.evolve(READ, authority=Authority.AGENT)
    with pytest.raises(SemanticDriftError):
        moved.restore(1, reread={"done": weak, "timeout": weak})
    with pytest.raises(InvalidStateError):
        moved.restore(2, reread={"timeout": READ})  # it has not moved since
    assert entries(store) == size
    assert [binding.constraint for binding in moved.glossary()] == ["unit: seconds"]


def test_a_restore_reads_the_old_state_under_todays_locks_on_somebodys_order(moved):
    lock = moved.glossary().digest
    made = moved.restore(1, reread={"done": READ, "timeout": READ})
    assert moved.load() == {"timeout": 5000} and moved.glossary().digest == lock
    assert moved.glossary(made.revision).digest == lock
    # From here on the state is read so: going back to this revision moves nothing.
    assert moved.plan_restore(made.revision).moved == ()
    with pytest.raises(SemanticDriftError):
        moved.restore(1, reread={"done": READ, "timeout": READ})  # an order counts once


def test_a_restore_brings_an_old_meaning_back_by_a_supersession(moved):
    done = Binding("done", "merged", authority=Authority.USER)
    moved.restore(1, supersede=[Supersession(TIMEOUT, BACK), Supersession(done, BACK)])
    assert {b.symbol: (b.definition, b.constraint) for b in moved.glossary()} == {
        "timeout": ("request timeout", "unit: milliseconds"),
        "done": ("merged", ""),
    }
    assert moved.plan_restore(1).moved == () and [symbol for symbol, _, _ in moved.plan_restore(2).moved] == ["timeout"]


def test_a_lock_that_was_made_since_stays(task):
    task.commit({"turn": 4}, step=4, define=[TIMEOUT])
    lock = task.glossary().digest
    task.restore(1)
    assert task.glossary().digest == lock
    with pytest.raises(SemanticDriftError):
        task.commit({}, step=5, define=[SECONDS])


def test_step_local_bindings_do_not_come_back(store):
    task = store.lineage("task")
    local = Binding("it", "the file", scope=Scope.STEP_LOCAL)
    task.commit({"turn": 1}, step=1, define=[local])
    task.commit({"turn": 2}, step=2)
    task.restore(1)
    assert task.head().step == 1 and list(task.glossary()) == []
    task.commit({"turn": 3}, step=1)
    assert list(task.glossary()) == []
    assert [binding.symbol for binding in task.glossary(1)] == ["it"]
    other = Binding("it", "the folder", scope=Scope.STEP_LOCAL)
    task.commit({"turn": 4}, step=1, define=[other])
    assert [binding.definition for binding in task.glossary()] == ["the folder"]
    task.restore(5)
    assert list(task.glossary()) == []


def test_a_refused_word_and_moved_locks_are_both_needed(store, moved):
    unkeyed(moved)
    plan = moved.plan_restore(1)
    word = Acknowledgement("Ada", "checked", plan.effects)
    read = {"done": READ, "timeout": READ}
    with pytest.raises(UnsafeRollbackError):
        moved.restore(1, reread=read)
    with pytest.raises(SemanticDriftError):
        moved.restore(1, acknowledge=word)
    assert moved.restore(1, acknowledge=word, reread=read).revision == 3


# --- a second process' view -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["full", "normal"])
def test_a_reopened_store_stands_at_the_restore(path, durability):
    with cpstore.open(path, durability=durability) as store:
        task = store.lineage("task")
        for turn in (1, 2, 3):
            task.commit({"turn": turn}, step=turn)
        pay(task).complete("receipt")
        task.restore(1)
    with cpstore.open(path, durability=durability) as store:
        task = store.lineage("task")
        assert (task.load(), task.head().revision, task.head().kind) == ({"turn": 1}, 4, "restore")
        assert pay(task).outcome == "receipt"
        assert store.verify().good


def test_a_store_open_elsewhere_sees_the_restore_at_once(path):
    with cpstore.open(path) as store, cpstore.open(path) as other:
        task, theirs = store.lineage("task"), other.lineage("task")
        for turn in (1, 2, 3):
            task.commit({"turn": turn}, step=turn)
        theirs.load()
        task.restore(1)
        with pytest.raises(RevisionConflictError):
            theirs.commit({"turn": 4}, step=4)
        with pytest.raises(RevisionConflictError):
            pay(theirs)
        assert theirs.load() == {"turn": 1}
        theirs.restore(3)
        with pytest.raises(RevisionConflictError):
            pay(task)
        assert task.load() == {"turn": 3}
        assert store.verify().good and other.verify().good
