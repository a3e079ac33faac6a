"""What was done outside the store: every effect with its state, read out of signed entries and not out of an index."""

from __future__ import annotations

import subprocess
import sys

import pytest

import cpstore
from cpstore import EffectPolicy
from cpstore.lineage import owner
from cpstore.model.effect import Owner
from cpstore.rules.effects import Liveness

PAY = EffectPolicy.AT_MOST_ONCE


def by_name(ran):
    assert ran.code == 0, ran.err
    return {(one["name"], one["key"] if one["keyed"] else ""): one for one in ran.value["effects"]}


def test_every_effect_is_listed_with_its_state(run, busy):
    found = run("inspect", busy, "effects", "--json").value["effects"]

    assert [(one["name"], one["policy"], one["state"], one["attempts"], one["in_doubt"]) for one in found] == [
        ("refund", "at_most_once", "completed", 1, False),
        ("mail", "at_most_once", "started", 1, True),
        ("mail", "at_most_once", "not_happened", 1, False),
        ("sync", "idempotent", "completed", 2, False),
        ("drop", "at_most_once", "cancelled", 0, False),
        ("note", "at_most_once", "completed", 0, False),
        ("note", "at_most_once", "completed", 0, False),
    ]
    assert "arguments" not in found[0]


def test_an_effect_says_under_which_revision_it_was_begun_and_last_heard_of(run, busy):
    found = by_name(run("inspect", busy, "effects", "--json"))

    refund, note = found["refund", "order-17"], found["note", ""]
    assert (refund["begun"]["lineage"], refund["begun"]["revision"], refund["begun"]["actor"]) == ("task", 1, "planner")
    assert refund["first"] == refund["begun"]
    assert refund["last"]["seq"] == refund["begun"]["seq"] + 1
    assert (note["begun"], note["first"]["revision"], note["recorded"]) == (None, 3, True)


def test_a_second_attempt_moves_where_it_was_begun(run, busy):
    sync = by_name(run("inspect", busy, "effects", "--json"))["sync", "page-1"]

    assert sync["begun"]["seq"] == sync["first"]["seq"] + 2
    assert sync["evidence"] == 1


def test_a_verdict_names_who_and_why(run, busy):
    ran = run("inspect", busy, "effects")

    for text in ("ops: not in the outbox", "dba: never", "recorded after the fact", "LATE EVIDENCE (1)"):
        assert all(word in ran.out for word in text.split())


def test_what_is_in_doubt_stands_out_and_can_be_asked_for_alone(run, busy):
    ran = run("inspect", busy, "effects", "--in-doubt")

    assert ran.out.count("IN DOUBT") == 1
    assert "mail" in ran.out
    assert "refund" not in ran.out
    assert "reconcile" in ran.out
    (one,) = run("inspect", busy, "effects", "--in-doubt", "--json").value["effects"]
    assert one["error"] == "TimeoutError: no answer"


def test_nothing_in_doubt_is_said_in_words(run, path):
    assert "no effects are in doubt" in run("inspect", path, "effects", "--in-doubt").out
    assert "no effects were begun" in run("inspect", path, "effects").out


def test_a_name_shows_arguments_and_results(run, busy):
    (one,) = run("inspect", busy, "effects", "--name", "refund", "--json").value["effects"]

    assert (one["arguments"], one["result"]) == ({"order": 17, "cents": 990}, {"receipt": "R-1"})
    out = run("inspect", busy, "effects", "--name", "refund").out
    for text in ('"receipt": "R-1"', '"order": 17', one["forwarded"], one["arguments_digest"], "key order-17"):
        assert text in out


def test_what_was_recorded_after_the_fact_has_both_values_in_one_entry(run, busy):
    one, other = run("inspect", busy, "effects", "--name", "note", "--json").value["effects"]

    assert (one["arguments"], one["result"]) == ({"text": "hi"}, 7)
    assert (other["arguments"], other["result"]) == ({"text": "unkeyed"}, None)


def test_what_has_no_result_shows_none(run, busy):
    for one in run("inspect", busy, "effects", "--name", "mail", "--json").value["effects"]:
        assert one["arguments"]["to"].endswith("@example.org")
        assert (one["result"], one["result_digest"]) == (None, None)
        assert "unread" not in one


def test_long_arguments_are_cut_for_people_and_whole_for_programs(run, path):
    with cpstore.open(path) as store:
        store.lineage("task").record("note", {"text": "y" * 5000}, policy=PAY)

    assert len(run("inspect", path, "effects", "--name", "note").out) < 4000
    (one,) = run("inspect", path, "effects", "--name", "note", "--json").value["effects"]
    assert one["arguments"] == {"text": "y" * 5000}


def test_an_unknown_name_or_lineage_is_a_wrong_usage(run, busy):
    for look in (("effects", "none"), ("effects", "--name", "none"), ("why", "none"), ("why", "refund", "none")):
        ran = run("inspect", busy, *look)
        assert (ran.code, ran.out) == (2, "")
    assert run("inspect", busy, "effects", "--name", "refund", "--in-doubt").code == 0


def test_the_effects_of_a_fork_are_those_of_its_family(run, busy):
    whole, worker = (run("inspect", busy, "effects", *more, "--json").value for more in ((), ("task/worker",)))

    assert worker["effects"] == whole["effects"]


def test_namespaces_are_kept_apart(run, busy):
    (one,) = run("inspect", busy, "--namespace", "other", "effects", "--json").value["effects"]

    assert one["recorded"] is True
    mine = by_name(run("inspect", busy, "effects", "--json"))["refund", "order-17"]
    assert one["id"] != mine["id"]


def test_families_of_one_namespace_are_all_listed(run, busy):
    with cpstore.open(busy) as store:
        alone = store.lineage("alone")
        alone.commit({}, step=1)
        alone.record("refund", {"order": 3}, key="order-17", policy=PAY)

    found = run("inspect", busy, "effects", "--name", "refund", "--json").value["effects"]

    assert [one["lineage"] for one in found] == ["alone", "task"]
    assert [one["lineage"] for one in run("inspect", busy, "effects", "alone", "--json").value["effects"]] == ["alone"]


def test_an_effect_that_a_live_handle_carries_out_is_not_in_doubt(run, path):
    with cpstore.open(path) as store:
        task = store.lineage("task")
        task.head()
        handle = task.begin("pay", {"n": 1}, policy=PAY)
        (one,) = run("inspect", path, "effects", "--json").value["effects"]

    assert handle.fresh
    assert (one["in_doubt"], one["owner"]["liveness"]) == (False, "alive")


STARTER = """
import sys, time, cpstore
store = cpstore.open(sys.argv[1])
task = store.lineage("task"); task.head()
handle = task.begin("pay", {"n": 1}, policy=cpstore.EffectPolicy.AT_MOST_ONCE)
print("begun", flush=True); time.sleep(60)
"""


def test_a_process_that_is_killed_leaves_its_effect_in_doubt(run, path):
    with subprocess.Popen([sys.executable, "-c", STARTER, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"begun\n"
        (alive,) = run("inspect", path, "effects", "--json").value["effects"]
        process.kill()
        process.wait(timeout=10)
    (gone,) = run("inspect", path, "effects", "--json").value["effects"]

    assert (alive["in_doubt"], alive["owner"]) == (False, {"process": process.pid, "liveness": "alive"})
    assert (gone["in_doubt"], gone["owner"]) == (True, {"process": process.pid, "liveness": "gone"})
    out = run("inspect", path, "effects").out
    assert "IN DOUBT" in out
    assert f"process {process.pid}, gone" in out
    assert "1 in doubt, 1 without an outcome" in run("inspect", path).out


def test_an_owner_that_cannot_be_seen_is_said_to_be_unseen(run, path, monkeypatch):
    with cpstore.open(path) as store:
        task = store.lineage("task")
        task.head()
        held = task.begin("pay", {"n": 1}, policy=PAY)
    me = owner.myself()
    monkeypatch.setattr(owner, "myself", lambda: Owner("elsewhere/1", "x", me.pid, me.started))

    (one,) = run("inspect", path, "effects", "--json").value["effects"]

    assert held.fresh
    assert (one["in_doubt"], one["owner"]["liveness"]) == (True, Liveness.UNSEEN.value)


EFFECT_KIND = 9


@pytest.mark.parametrize(
    ("statement", "codes"),
    [
        (f"DELETE FROM entry WHERE id = (SELECT min(id) FROM entry WHERE kind = {EFFECT_KIND})", (1, 3)),
        (f"UPDATE entry SET kind = 1 WHERE id = (SELECT min(id) FROM entry WHERE kind = {EFFECT_KIND})", (1, 3)),
        ("DELETE FROM kin", (1,)),
    ],
    ids=["an entry is gone", "an entry is made another", "a fork is made a family of its own"],
)
@pytest.mark.parametrize("look", [("effects",), ("why", "refund")], ids=" ".join)
def test_an_effect_cannot_be_hidden(run, busy, statement, codes, look, damaged):
    damaged(busy, statement)

    ran = run("inspect", busy, *look)

    assert ran.code in codes, ran.out
    assert ran.out == ""


def test_an_entry_that_is_gone_is_named(run, busy, damaged):
    damaged(busy, f"DELETE FROM entry WHERE id = (SELECT min(id) FROM entry WHERE kind = {EFFECT_KIND})")

    ran = run("inspect", busy, "effects")

    assert (ran.code, ran.err.strip()) == (1, "cpstore: default/task: entry 3 is missing; run verify")


def test_the_index_is_not_believed(run, busy, damaged):
    damaged(busy, "DELETE FROM trace", "DELETE FROM effect")

    assert len(run("inspect", busy, "effects", "--json").value["effects"]) == 7


def test_effects_are_listed_beyond_a_page(run, path):
    with cpstore.open(path, durability="normal") as store:
        task = store.lineage("task")
        task.head()
        for n in range(150):
            task.record("note", {"n": n}, key=f"n-{n}", policy=PAY)

    found = run("inspect", path, "effects", "--json").value["effects"]

    assert [one["key"] for one in found] == [f"n-{n}" for n in range(150)]
