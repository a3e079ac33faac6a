"""Restores, compactions and forks in the log, in the header of a revision, and between two of them."""

from __future__ import annotations

import cpstore
from cpstore import Acknowledgement


def notes(ran):
    return {one["revision"]: one for line in ran.value["lineages"] for one in line["revisions"]}


def test_the_log_shows_restores_compactions_and_forks(run, busy):
    found = notes(run("inspect", busy, "log", "task", "--json"))

    assert (found[4]["kind"], found[4]["restored"], found[4]["acknowledged"]) == ("restore", 3, True)
    assert found[3]["compacted"] == {"first": 1, "last": 2, "level": 1, "path": "/messages/0"}
    assert found[1]["forks"] == ["task/worker"]
    assert (found[2]["restored"], found[2]["compacted"], found[2]["forks"]) == (None, None, [])
    out = run("inspect", busy, "log", "task").out
    for text in ("restore → rev 3, acknowledged", "covers rev 1 to 2, level 1", "forked to task/worker"):
        assert text in out


def test_a_restore_that_the_ledger_cleared_is_not_said_to_be_acknowledged(run, path):
    with cpstore.open(path) as store:
        worker = store.lineage("task/worker")
        worker.head()
        worker.restore(1)

    found = notes(run("inspect", path, "log", "task/worker", "--json"))[3]

    assert (found["restored"], found["acknowledged"]) == (1, False)
    assert "acknowledged" not in run("inspect", path, "log", "task/worker").out


def test_entries_that_only_restate_the_lock_do_not_change_the_glossary(run, busy):
    found = notes(run("inspect", busy, "log", "task", "--json"))

    assert [found[n]["changes_glossary"] for n in (1, 2, 3, 4)] == [True, True, False, False]


def test_in_the_graph_a_fork_is_drawn_and_not_told_again(run, busy):
    assert "forked to" not in run("inspect", busy, "log", "--graph").out
    assert "forked to task/worker" in run("inspect", busy, "log", "task", "--graph").out


def test_a_damaged_fork_does_not_stop_the_log_of_its_parent(run, busy, damaged):
    number = "(SELECT no FROM stream WHERE name = 'task/worker')"
    damaged(busy, f"UPDATE entry SET time = time + 1 WHERE id = {number} << 32 | 1")

    ran = run("inspect", busy, "log", "task", "--json")

    assert ran.code == 0
    assert notes(ran)[1]["forks"] == []


def test_a_compaction_shows_what_it_covers_and_what_it_relies_on(run, busy):
    said = run("inspect", busy, "show", "task@3", "--json").value["made"]

    record = said["compaction"]
    assert (record["first"], record["last"], record["level"], record["path"]) == (1, 2, 1, "/messages/0")
    assert [(part["path"], part["start"], part["stop"]) for part in record["covers"]] == [
        ("/messages", 0, 10),
        ("/paid", None, None),
    ]
    assert record["claims"] == record["unbacked"]
    out = run("inspect", busy, "show", "task@3").out
    for text in ("revisions 1 to 2, level 1", "items 0 to 9", "/paid: all of it", "UNBACKED", "900 before, 9 after"):
        assert text in out


def test_a_restore_shows_where_it_went_and_who_answers_for_it(run, busy):
    said = run("inspect", busy, "show", "task@4", "--json").value["made"]

    assert said["restore"]["revision"] == 3
    assert (said["acknowledgement"]["who"], len(said["acknowledgement"]["effects"])) == ("boss", 1)
    out = run("inspect", busy, "show", "task@4").out
    assert "revision 3" in out
    assert "boss: go on (1 effect(s))" in out
    assert said["acknowledgement"]["effects"][0] in out


def test_a_plain_checkpoint_shows_nothing_of_it(run, busy):
    said = run("inspect", busy, "show", "task@2", "--json").value["made"]

    assert {name: found for name, found in said.items() if found} == {"moves_glossary": True}


def test_a_fork_below_the_head_shows_what_it_left_and_who_answers_for_it(run, path):
    with cpstore.open(path) as store:
        worker = store.lineage("task/worker")
        worker.head()
        worker.record("note", {"n": 1}, policy=cpstore.EffectPolicy.AT_MOST_ONCE)
        worker.commit({"n": 2}, step=4)
        plan = worker.plan_restore(1)
        worker.fork("again", revision=1, acknowledge=Acknowledgement("boss", "new try", plan.effects, plan.gaps))

    said = run("inspect", path, "show", "again@1", "--json").value["made"]

    assert said["crossed"] == 4
    assert said["acknowledgement"]["who"] == "boss"
    out = run("inspect", path, "show", "again@1").out
    assert "entry 4" in out
    assert "boss: new try" in out


def test_two_revisions_show_the_effects_between_them(run, busy):
    ran = run("inspect", busy, "diff", "task@3", "task@4", "--json")

    assert ran.code == 1
    assert (ran.value["state"], ran.value["glossary"]) == ([], [])
    (one,) = ran.value["effects"]
    assert (one["name"], one["act"], one["state"]) == ("note", "record", "completed")
    out = run("inspect", busy, "diff", "task@3", "task@4").out
    assert "are equal, state and glossary" in out
    assert "note, arguments" in out


def test_the_order_of_the_two_does_not_count_for_effects(run, busy):
    one, other = (run("inspect", busy, "diff", *pair, "--json").value["effects"] for pair in
                  (("task@1", "task@2"), ("task@2", "task@1")))  # fmt: skip

    assert one == other
    assert [(found["name"], found["act"]) for found in one][:2] == [("refund", "begin"), ("refund", "complete")]


def test_effects_of_other_lineages_or_outside_are_not_between(run, busy):
    assert run("inspect", busy, "diff", "task@2", "task/worker@1", "--json").value["effects"] == []
    assert run("inspect", busy, "diff", "task@2", "task@3", "--json").value["effects"] == []
    assert run("inspect", busy, "diff", "task@4", "task@4").code == 0


def test_a_fork_is_told_what_was_superseded_above_since(run, busy):
    (one,) = run("inspect", busy, "glossary", "task/worker", "--json").value["outdated"]

    assert (one["symbol"], one["lineage"], one["revision"]) == ("timeout", "task", 1)
    assert "milliseconds" in one["here"]
    assert "unit: seconds" in one["there"]
    out = run("inspect", busy, "glossary", "task/worker").out
    assert "outdated" in out
    assert "task@1" in out


def test_what_is_outdated_is_said_of_the_head_alone(run, busy):
    assert run("inspect", busy, "glossary", "task/worker@1", "--json").value["outdated"] == []
    assert run("inspect", busy, "glossary", "task", "--json").value["outdated"] == []
    assert "outdated" not in run("inspect", busy, "glossary", "task").out


def test_a_fork_is_noted_where_its_signed_entry_says(run, busy, damaged):
    with cpstore.open(busy) as store:
        store.lineage("alone").commit({}, step=1)
    damaged(busy, "UPDATE kin SET parent = (SELECT no FROM stream WHERE name = 'alone')")

    assert notes(run("inspect", busy, "log", "alone", "--json"))[1]["forks"] == []
