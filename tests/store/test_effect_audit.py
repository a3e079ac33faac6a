"""Somebody with write access edits what is known of effects, forks and restores: verify names it, begin is not fooled.

What a look at one row cannot tell (an effect's row that is gone altogether, the row of a fork when its parent is asked)
is named by ``verify`` alone; docs/guarantees.md says so.
"""

from __future__ import annotations

import re
import sqlite3

import attrs
import pytest
from sample import SIGNER
from test_tampering import named, rewrite, stream

import cpstore
from cpstore import Acknowledgement, EffectPolicy, EffectState
from cpstore.errors import CheckpointStoreError, CorruptError, EffectConflictError, EffectInDoubtError
from cpstore.lineage import restoring
from cpstore.model.entry import Kind
from cpstore.rules import effects

AT_MOST_ONCE = EffectPolicy.AT_MOST_ONCE
WORD = {"who": "Ada", "why": "looked"}


@pytest.fixture
def sample(path):
    """A family of three with effects in all states, a restore, and somebody's word."""
    with cpstore.open(path, signer=SIGNER) as store:
        task = store.lineage("task")
        for turn in (1, 2):
            task.commit({"turn": turn}, step=turn)
        task.begin("pay", {"order": 1}, policy=AT_MOST_ONCE).complete({"receipt": "one", "text": "word " * 30})
        worker = task.fork("worker")
        worker.begin("mail", {}, policy=AT_MOST_ONCE).complete("sent")
        grandchild = worker.fork("worker/again")
        task.begin("mail", {"to": "Bob"}, policy=AT_MOST_ONCE).fail("timeout", happened=False)
        task.begin("mail", {"to": "Bob"}, policy=AT_MOST_ONCE).complete("sent to Bob")
        task.record("note", {}, policy=AT_MOST_ONCE)
        plan = task.plan_restore(1)
        task.restore(1, acknowledge=Acknowledgement("Ada", "checked", plan.effects))
        grandchild.begin("call", {}, policy=AT_MOST_ONCE).fail("timeout")
        assert store.verify().good
    return path


def asked(path, name, ask):
    with cpstore.open(path, signer=SIGNER) as store:
        return ask(store.lineage(name))


def looked(task):
    task.load()
    return task


def row(path, sql, *values):
    db = sqlite3.connect(path)
    found = db.execute(sql, values).fetchone()
    db.close()
    return found


EFFECT = "(SELECT no FROM effect WHERE name = 'pay')"
INDEX = [
    ("a row that is gone", [f"DELETE FROM trace WHERE effect = {EFFECT}", "DELETE FROM effect WHERE name = 'pay'"]),
    ("a trace that is gone", [f"DELETE FROM trace WHERE effect = {EFFECT}"]),
    ("settled", ["UPDATE effect SET settled = 0 WHERE name = 'pay'"]),
    ("unsettled", ["UPDATE effect SET settled = 1 WHERE name = 'call'"]),
    ("class", ["UPDATE effect SET class = 1 WHERE name = 'pay'"]),
    ("policy", ["UPDATE effect SET policy = 0 WHERE name = 'pay'"]),
    ("name", ["UPDATE effect SET name = 'other' WHERE name = 'pay'"]),
    ("root", ["UPDATE effect SET root = root + 1 WHERE name = 'pay'"]),
    ("identity", ["UPDATE effect SET identity = zeroblob(32) WHERE name = 'pay'"]),
    ("entry", ["UPDATE effect SET entry = entry - 1 WHERE name = 'pay'"]),
    ("trace class", [f"UPDATE trace SET class = 1 WHERE effect = {EFFECT}"]),
    ("trace first", [f"UPDATE trace SET first = first - 1 WHERE effect = {EFFECT}"]),
    ("trace last", [f"UPDATE trace SET last = last - 1 WHERE effect = {EFFECT}"]),
    (
        "an effect that never was",
        ["INSERT INTO effect (identity, root, name, policy, class, settled, keyed, entry) "
         "SELECT zeroblob(32), root, 'x', 3, 2, 1, 1, entry FROM effect WHERE name = 'pay'"],
    ),
    ("a trace that never was", [f"INSERT INTO trace VALUES ({EFFECT}, (SELECT max(no) FROM stream), 2, 1, 1)"]),
]  # fmt: skip


@pytest.mark.parametrize("statements", [case[1] for case in INDEX], ids=[case[0] for case in INDEX])
def test_an_altered_index_of_effects_is_named(sample, statements):
    rewrite(sample, *((sql,) for sql in statements))
    found = named(sample)
    assert "effect-index" in found or "stray" in found, found
    if "effect-index" in found and "never was" not in str(statements):
        assert found["effect-index"].severity == "damage"


KIN = [
    ("gone", "DELETE FROM kin WHERE stream = {worker}"),
    ("another parent", "UPDATE kin SET parent = {again} WHERE stream = {worker}"),
    ("another root", "UPDATE kin SET root = {worker} WHERE stream = {again}"),
    ("another place", "UPDATE kin SET leaf = leaf + 1 WHERE stream = {worker}"),
    ("invented", "INSERT INTO kin VALUES ({task}, {again}, {again}, 1)"),
]


@pytest.mark.parametrize("sql", [case[1] for case in KIN], ids=[case[0] for case in KIN])
def test_an_altered_index_of_forks_is_named(sample, sql):
    numbers = {"task": "task", "worker": "worker", "again": "worker/again"}
    numbers = {short: stream(sample, name) for short, name in numbers.items()}
    rewrite(sample, (sql.format(**numbers),))
    assert "kin-index" in named(sample)


@pytest.mark.parametrize(
    ("sql", "lineage"),
    [
        (KIN[0][1], "worker"),
        (KIN[0][1], "worker/again"),
        (KIN[1][1], "worker"),
        (KIN[2][1], "worker/again"),
        (KIN[3][1], "worker"),
        (KIN[4][1], "task"),
    ],
)
def test_a_lineage_does_not_take_itself_for_another_family(sample, sql, lineage):
    # Its family would have another name: an effect that was carried out would be one that never was.
    numbers = {"task": "task", "worker": "worker", "again": "worker/again"}
    numbers = {short: stream(sample, name) for short, name in numbers.items()}
    rewrite(sample, (sql.format(**numbers),))
    for ask in (
        lambda task: looked(task).begin("pay", {"order": 1}, policy=AT_MOST_ONCE),
        lambda task: task.plan_restore(1),
        lambda task: looked(task).restore(1),
        lambda task: list(task.effects()),
        lambda task: looked(task).cancel("new", {}, policy=AT_MOST_ONCE, **WORD),
    ):
        with pytest.raises(CorruptError, match="run verify"):
            asked(sample, lineage, ask)


def test_a_row_that_names_another_entry_is_corrupt_for_begin_and_plan(sample):
    other = row(sample, "SELECT entry FROM effect WHERE name = 'note'")[0]
    rewrite(sample, ("UPDATE effect SET entry = ? WHERE name = 'call'", other))
    for ask in (
        lambda task: looked(task).begin("call", {}, policy=AT_MOST_ONCE),
        lambda task: task.plan_restore(1),
        lambda task: list(task.effects()),
    ):
        with pytest.raises(CorruptError, match="filed under another effect"):
            asked(sample, "worker/again", ask)


def test_a_row_that_names_an_entry_of_another_kind_is_corrupt(sample):
    rewrite(sample, ("UPDATE effect SET entry = ? WHERE name = 'pay'", stream(sample, "task") << 32 | 1))
    with pytest.raises(CorruptError, match="not; run verify"):
        asked(sample, "task", lambda task: looked(task).begin("pay", {"order": 1}, policy=AT_MOST_ONCE))


def test_a_policy_made_weaker_in_the_index_does_not_make_an_effect_repeatable(sample):
    rewrite(sample, ("UPDATE effect SET policy = 0, class = 0, settled = 0",))
    with pytest.raises(EffectConflictError, match="weaker"):
        asked(sample, "task", lambda task: looked(task).begin("pay", {"order": 1}, policy=EffectPolicy.READ_ONLY))
    assert not asked(sample, "task", lambda t: looked(t).begin("pay", {"order": 1}, policy=AT_MOST_ONCE).fresh)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"at_most_once", b"read_only"),
        (b'"completed"', b'"failed"'),
        (b'"attempt":1', b'"attempt":2'),
        (b'"complete"', b'"reconcile"'),
    ],
)
def test_an_altered_record_is_named_and_not_believed(sample, old, new):
    (entry,) = row(sample, "SELECT entry FROM effect WHERE name = 'pay'")
    (detail,) = row(sample, "SELECT detail FROM entry WHERE id = ?", entry)
    assert old in bytes(detail)
    rewrite(sample, ("UPDATE entry SET detail = ? WHERE id = ?", bytes(detail).replace(old, new), entry))
    found = named(sample)
    assert "signature" in found and found["signature"].lineage == "task"
    with pytest.raises(CheckpointStoreError) as refused:
        asked(sample, "task", lambda task: looked(task).begin("pay", {"order": 1}, policy=AT_MOST_ONCE))
    assert "signature" in type(refused.value).__name__.lower() or isinstance(refused.value, CorruptError)


@pytest.mark.parametrize("kind", ["RESTORE", "ACKNOWLEDGEMENT", "FORK"])
def test_an_altered_word_restore_or_fork_is_named(sample, kind):
    number = Kind[kind].value
    place, detail = row(sample, "SELECT id, detail FROM entry WHERE kind = ? AND detail IS NOT NULL LIMIT 1", number)
    changed = re.sub(rb'"revision":(\d)', rb'"revision":\g<1>9', bytes(detail))
    assert changed != bytes(detail)
    rewrite(sample, ("UPDATE entry SET detail = ? WHERE id = ?", changed, place))
    assert "signature" in named(sample)


def test_an_entry_of_an_effect_that_is_deleted_is_named_and_begin_does_not_go_on(sample):
    (place,) = row(sample, "SELECT entry FROM effect WHERE name = 'pay'")
    rewrite(sample, ("DELETE FROM entry WHERE id = ?", place))
    assert "gap" in named(sample)
    with pytest.raises(CheckpointStoreError):
        asked(sample, "task", lambda task: looked(task).begin("pay", {"order": 1}, policy=AT_MOST_ONCE))


def test_the_epoch_of_an_entry_is_signed(sample):
    number = stream(sample, "task")
    (last,) = row(sample, "SELECT max(id) FROM entry WHERE id >> 32 = ?", number)
    rewrite(sample, ("UPDATE entry SET epoch = 0 WHERE id = ?", last))
    assert "signature" in named(sample)
    with pytest.raises(CheckpointStoreError):
        asked(sample, "task", lambda task: looked(task).begin("new", {}, policy=AT_MOST_ONCE))


def test_the_bytes_of_a_result_that_were_altered_are_named_and_not_returned(path, small):
    with cpstore.open(path, signer=SIGNER) as store:
        task = store.lineage("task")
        task.commit({}, step=1)
        for at in range(9):
            task.begin("pay", {"at": at}, policy=AT_MOST_ONCE).complete({"receipt": f"{at} " * 40})
    (place, block) = row(path, "SELECT id, block FROM tail ORDER BY id LIMIT 1")
    rewrite(path, ("UPDATE tail SET block = ? WHERE id = ?", block[:-1] + bytes([block[-1] ^ 1]), place))
    assert "damaged-bytes" in named(path)
    with cpstore.open(path, signer=SIGNER) as store, pytest.raises(CorruptError):
        task = store.lineage("task")
        for record in task.effects():
            task.outcome(record)


# --- what somebody with the keys could write -------------------------------------------------------------------------


def forged(path, monkeypatch, act):
    """Let a release with faulty rules, which has the keys, write something."""
    with monkeypatch.context() as patch, cpstore.open(path, signer=SIGNER) as store:
        act(patch, store)
    return named(path)


def test_a_second_run_of_what_was_completed_is_named_though_it_is_signed(sample, monkeypatch):
    def act(patch, store):
        task = looked(store.lineage("task"))
        patch.setattr(effects, "begin", lambda *args, **options: effects.Answer.FRESH)
        task.begin("pay", {"order": 1}, policy=AT_MOST_ONCE)

    found = forged(sample, monkeypatch, act)
    assert found["effect"].lineage == "task" and "'pay'" in found["effect"].text


def test_an_outcome_that_changed_is_named_though_it_is_signed(sample, monkeypatch):
    def act(patch, store):
        task = looked(store.lineage("task"))
        (record,) = task.effects("pay")
        patch.setattr(
            effects, "compensated", lambda effect, **_: attrs.evolve(effect, state=EffectState.FAILED, who="x")
        )
        task.compensate(record, **WORD)

    assert "effect" in forged(sample, monkeypatch, act)


def test_a_restore_of_another_state_than_it_cites_is_named_though_it_is_signed(sample, monkeypatch):
    def act(patch, store):
        solo = store.lineage("solo")
        for turn in (1, 2):
            solo.commit({"turn": turn}, step=turn)
        real = restoring.plan

        def lying(*args, **options):
            plan, judgement = real(*args, **options)
            return attrs.evolve(plan, watermark=2), judgement

        patch.setattr(restoring, "plan", lying)
        solo.restore(1)

    found = forged(sample, monkeypatch, act)
    assert found["restore"].lineage == "solo" and "watermark" in found["restore"].text


def test_what_is_in_doubt_stays_in_doubt_in_a_sound_store(sample):
    with pytest.raises(EffectInDoubtError):
        asked(sample, "task", lambda task: looked(task).begin("call", {}, policy=AT_MOST_ONCE))
    assert named(sample) == {}
