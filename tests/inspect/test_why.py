"""The chain of entries behind one fact: who settled a term on whose order, and was that mail sent."""

from __future__ import annotations

import argparse

import pytest

import cpstore
from cpstore import Authority, Binding, Directive, Retirement, Supersession
from cpstore.inspect import trail, why
from cpstore.inspect.open import Asked

MILLISECONDS = Binding("timeout", "request timeout", constraint="unit: milliseconds", authority=Authority.USER)
BACK = Directive(Authority.USER, "message 9", "as it was")


def acts(entries):
    return [(one["lineage"], one["revision"], one["act"]) for one in entries]


def test_a_term_shows_who_settled_it_and_on_whose_order(run, busy):
    task, worker = run("inspect", busy, "why", "timeout", "--json").value["terms"]

    assert acts(task["entries"]) == [("task", 1, "established"), ("task", 2, "superseded")]
    first, second = task["entries"]
    assert (first["directive"], first["binding"]["constraint"], first["actor"]) == (
        None,
        "unit: milliseconds",
        "planner",
    )
    assert second["directive"] == {"authority": "user", "reference": "message 3", "text": "seconds from now on"}
    assert (second["binding"]["constraint"], len(second["before"])) == ("unit: seconds", 64)
    assert first["lock"] != second["lock"]
    assert task["in_force"]["constraint"] == "unit: seconds"
    assert acts(worker["entries"]) == [("task/worker", 1, "inherited")]
    assert worker["in_force"]["constraint"] == "unit: milliseconds"


def test_in_a_fork_the_chain_goes_on_in_its_parent_up_to_where_it_left(run, busy):
    (one,) = run("inspect", busy, "why", "timeout", "task/worker", "--json").value["terms"]

    assert acts(one["entries"]) == [("task", 1, "established"), ("task/worker", 1, "inherited")]


def test_a_retired_term_is_known_though_not_in_force(run, path):
    with cpstore.open(path) as store:
        task = store.lineage("task")
        task.head()
        task.commit({}, step=4, retire=[Retirement("timeout", BACK)])

    (one,) = run("inspect", path, "why", "timeout", "task", "--json").value["terms"]

    assert one["in_force"] is None
    assert acts(one["entries"])[-1] == ("task", 4, "retired")
    out = run("inspect", path, "why", "timeout", "task").out
    assert "not in force" in out
    assert "user (message 9): as it was" in out


def test_an_order_to_read_an_old_state_under_todays_meaning_is_shown(run, path):
    with cpstore.open(path) as store:
        task = store.lineage("task")
        task.head()
        task.commit({}, step=4, define=[Binding("budget", "money left")])
        task.restore(1, reread={"timeout": BACK})

    (other,) = run("inspect", path, "why", "budget", "task", "--json").value["terms"]
    assert acts(other["entries"]) == [("task", 4, "established")]
    (one,) = run("inspect", path, "why", "timeout", "task", "--json").value["terms"]

    assert acts(one["entries"])[-1] == ("task", 5, "reread")
    assert one["entries"][-1]["directive"]["reference"] == "message 9"
    assert "reread (restore)" in run("inspect", path, "why", "timeout", "task").out
    assert "message 9" in run("inspect", path, "show", "task").out


def test_a_definition_that_a_restore_re_established_is_shown(run, path):
    with cpstore.open(path) as store:
        task = store.lineage("task")
        task.head()
        task.restore(1, supersede=[Supersession(MILLISECONDS, BACK)])

    (one,) = run("inspect", path, "why", "timeout", "task", "--json").value["terms"]

    assert acts(one["entries"])[-1] == ("task", 4, "superseded")
    assert "superseded (restore)" in run("inspect", path, "why", "timeout", "task").out
    assert "changes the glossary" in run("inspect", path, "log", "task", "--limit", "1").out


def test_other_symbols_are_left_out(run, path):
    with cpstore.open(path) as store:
        task = store.lineage("task")
        task.head()
        task.commit({}, step=4, define=[Binding("budget", "money left")])
        task.commit({}, step=5, retire=[Retirement("budget", BACK)])

    (one,) = run("inspect", path, "why", "timeout", "task", "--json").value["terms"]
    (other,) = run("inspect", path, "why", "budget", "--json").value["terms"]

    assert acts(one["entries"]) == [("task", 1, "established"), ("task", 3, "superseded")]
    assert acts(other["entries"]) == [("task", 4, "established"), ("task", 5, "retired")]


def test_an_effect_shows_intent_arguments_attempts_and_outcome(run, busy):
    (one,) = run("inspect", busy, "why", "refund", "--json").value["effects"]

    assert [(entry["act"], entry["state"], entry["attempt"]) for entry in one["entries"]] == [
        ("begin", "started", 1),
        ("complete", "completed", 1),
    ]
    assert (one["arguments"], one["result"]) == ({"order": 17, "cents": 990}, {"receipt": "R-1"})
    assert {entry["actor"] for entry in one["entries"]} == {"planner"}
    assert one["broken"] == ""
    with cpstore.open(busy, read_only=True) as store:
        assert one["entries"][0]["glossary"] == store.lineage("task").glossary(1).digest.hex()


def test_each_attempt_and_late_evidence_is_an_entry_of_its_own(run, busy):
    (one,) = run("inspect", busy, "why", "page-1", "--json").value["effects"]

    assert [entry["act"] for entry in one["entries"]] == ["begin", "release", "begin", "complete", "late"]
    assert one["entries"][-1]["evidence"] == "first, late"
    out = run("inspect", busy, "why", "page-1").out
    assert "late, as evidence" in out
    assert "attempt 2" in out


def test_a_late_failure_is_evidence_without_a_value(run, path):
    with cpstore.open(path) as store:
        task = store.lineage("task")
        task.head()
        policy = cpstore.EffectPolicy.IDEMPOTENT
        first = task.begin("sync", {}, policy=policy)
        first.fail("lost")
        task.begin("sync", {}, policy=policy).complete(1)
        first.fail("still lost", happened=False)

    (one,) = run("inspect", path, "why", "sync", "--json").value["effects"]

    assert one["entries"][-1]["act"] == "late"
    assert one["entries"][-1]["evidence"] is None
    assert one["result"] == 1


def test_a_history_that_contradicts_itself_is_not_whole(run, busy, capsys):
    with cpstore.open(busy, read_only=True) as store:
        asked = Asked(store, str(busy), "", "", argparse.Namespace(namespace=None))
        with trail.looking(asked) as reading:
            (family,) = trail.families(asked, reading, "task")
            history = trail.histories(reading, family)[0]

            assert trail.broken(history) == ""
            assert "entry 4: a complete leads from nothing" in trail.broken(history[1:])

    value = run("inspect", busy, "why", "refund", "--json").value
    why.show(value)
    assert "NOT WHOLE" not in capsys.readouterr().out
    value["effects"][0]["broken"] = "entry 3 \x1b"
    why.show(value)
    assert "NOT WHOLE: entry 3 \\x1b" in capsys.readouterr().out


def test_a_name_means_every_effect_of_that_name(run, busy):
    found = run("inspect", busy, "why", "mail", "--json").value["effects"]

    assert [one["arguments"]["to"] for one in found] == ["ann@example.org", "bob@example.org"]
    assert [one["in_doubt"] for one in found] == [True, False]
    assert "ops: not in the outbox" in run("inspect", busy, "why", "mail").out


@pytest.mark.parametrize(("cut", "code"), [(64, 0), (8, 0), (7, 2)])
def test_an_effect_is_named_by_how_its_identity_begins(run, busy, cut, code):
    (one,) = run("inspect", busy, "why", "refund", "--json").value["effects"]

    ran = run("inspect", busy, "why", one["id"][:cut], "--json")

    assert ran.code == code
    assert code or [found["id"] for found in ran.value["effects"]] == [one["id"]]


def test_a_word_that_is_a_term_and_an_effect_shows_both(run, path):
    with cpstore.open(path) as store:
        task = store.lineage("task")
        task.head()
        task.record("timeout", {}, policy=cpstore.EffectPolicy.AT_MOST_ONCE, key="k")

    value = run("inspect", path, "why", "timeout", "task", "--json").value

    assert (len(value["terms"]), len(value["effects"])) == (1, 1)
    out = run("inspect", path, "why", "timeout", "task").out
    assert "term timeout" in out
    assert "forwarded key" in out


def test_an_effect_begun_in_a_fork_names_the_fork(run, busy):
    with cpstore.open(busy) as store:
        worker = store.lineage("task/worker")
        worker.head()
        worker.record("ping", {}, key="p", policy=cpstore.EffectPolicy.AT_MOST_ONCE)

    (one,) = run("inspect", busy, "why", "ping", "task", "--json").value["effects"]

    assert [(entry["lineage"], entry["revision"]) for entry in one["entries"]] == [("task/worker", 2)]
    assert one["lineage"] == "task"
