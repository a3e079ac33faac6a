"""Shared ledgers: who wrote a key and when, who may not write and why, what was told and who has heard it."""

from __future__ import annotations

import pytest

import cpstore


def test_a_ledger_shows_its_keys_and_who_wrote_them(run, busy):
    value = run("inspect", busy, "ledger", "release", "--json").value

    (key,) = value["keys"]
    assert (key["key"], key["revision"], key["peer"], key["actor"]) == ("task-b", 2, "planner", "planner")
    assert key["value"] == {"state": "done"}
    assert key["time"] > 0
    assert 0 < key["position"] <= value["position"]


def test_a_member_that_may_not_write_shows_why_and_what_to_read_again(run, busy):
    members = {one["peer"]: one for one in run("inspect", busy, "ledger", "release", "--json").value["members"]}

    executor, planner = members["executor"], members["planner"]
    assert (executor["status"], executor["cause"], executor["reread"]) == ("read_only", "restore", ["task-b"])
    assert (planner["status"], planner["cause"], planner["reread"]) == ("active", "", [])
    assert (executor["lineage"], planner["lineage"]) == ("task", None)
    out = run("inspect", busy, "ledger", "release").out
    assert "read_only: restore" in out
    assert "active" in out


def test_a_key_shows_its_history_newest_first(run, busy):
    value = run("inspect", busy, "ledger", "release", "task-b", "--json").value

    assert [(one["revision"], one["value"]["state"]) for one in value["history"]] == [(2, "done"), (1, "todo")]
    assert {one["peer"] for one in value["history"]} == {"planner"}
    out = run("inspect", busy, "ledger", "release", "task-b").out
    assert out.index("done") < out.index("todo")


def test_what_is_kept_whole_need_not_be_read_again(run, path):
    with cpstore.open(path) as store:
        task = store.lineage("task")
        task.head()
        peer = store.ledger("board").join("p", lineage=task)
        peer.write_batch({"a": {"x": 1}, "b": 2})
        state = {"messages": [{"role": "system", "content": "nine messages, in short"}], "kept": {"x": 1}}
        before = {"messages": [f"{n} {'y' * 80}" for n in range(9)], "kept": {"x": 1}}
        task.commit(before, step=4)
        task.compact(state, summary="/messages/0", kept={"a": "/kept"})

    (member,) = run("inspect", path, "ledger", "board", "--json").value["members"]

    assert (member["reread"], member["kept"], member["read"]) == (["b"], ["a"], ["a", "b"])
    assert "a (kept whole)" in run("inspect", path, "ledger", "board").out


def test_a_peer_that_left_is_shown_as_such_and_counted_no_more(run, busy):
    with cpstore.open(busy) as store:
        store.ledger("release").join("planner").leave()

    members = {one["peer"]: one for one in run("inspect", busy, "ledger", "release", "--json").value["members"]}
    (listed,) = run("inspect", busy, "ledger", "--json").value["ledgers"]

    assert members["planner"]["present"] is False
    assert "has left" in run("inspect", busy, "ledger", "release").out
    assert "has left" in run("inspect", busy, "events").out
    assert listed["peers"] == 1


def test_ledgers_are_listed_with_those_that_may_not_write_and_the_last_event(run, busy):
    (one,) = run("inspect", busy, "ledger", "--json").value["ledgers"]

    assert (one["ledger"], one["keys"], one["peers"]) == ("release", 1, 2)
    assert one["not_active"] == [{"peer": "executor", "status": "read_only", "cause": "restore"}]
    assert one["last_event"]["kind"] == "restored"
    (other,) = run("inspect", busy, "--namespace", "other", "ledger", "--json").value["ledgers"]
    assert (other["peers"], other["not_active"], other["last_event"]) == (1, [], None)


def test_events_come_in_order_and_say_how_far_each_peer_has_heard(run, busy):
    (one,) = run("inspect", busy, "events", "--json").value["ledgers"]

    assert [event["kind"] for event in one["events"]] == ["superseded", "compacted", "restored"]
    positions = [event["position"] for event in one["events"]]
    assert positions == sorted(positions)
    peers = {peer["peer"]: peer for peer in one["peers"]}
    assert (peers["planner"]["acknowledged"], peers["planner"]["unheard"]) == (positions[0], 2)
    assert peers["executor"]["unheard"] == 3
    out = run("inspect", busy, "events", "release").out
    assert out.index("superseded") < out.index("compacted") < out.index("restored")
    assert "task@3" in out


def test_a_ledger_that_told_nothing_says_so(run, busy, path):
    assert "nothing was told yet" in run("inspect", busy, "--namespace", "other", "events").out
    assert "no keys yet" in run("inspect", busy, "--namespace", "other", "ledger", "release").out
    for look in ("ledger", "events"):
        assert "no ledgers" in run("inspect", path, look).out


@pytest.mark.parametrize(
    "look",
    [("ledger", "none"), ("ledger", "none", "k"), ("ledger", "release", "none"), ("events", "none")],
    ids=" ".join,
)
def test_an_unknown_ledger_or_key_is_a_wrong_usage(run, busy, look):
    ran = run("inspect", busy, *look)

    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)


def test_the_overview_shows_effects_in_doubt_and_peers_that_may_not_write(run, busy):
    ran = run("inspect", busy, "--json")

    assert ran.code == 0
    assert ran.value["effects"]["unsettled"] == 1
    (doubt,) = ran.value["effects"]["in_doubt"]
    assert (doubt["name"], doubt["lineage"], doubt["namespace"]) == ("mail", "task", "default")
    assert [(one["namespace"], len(one["not_active"])) for one in ran.value["ledgers"]] == [
        ("default", 1),
        ("other", 0),
    ]
    out = run("inspect", busy).out
    for text in ("1 in doubt, 1 without an outcome", "executor is read_only: restore", "task went back to revision 3"):
        assert text in out


def test_the_overview_of_one_namespace_leaves_out_the_others(run, busy):
    value = run("inspect", busy, "--namespace", "other", "--json").value

    assert value["effects"] == {"unsettled": 0, "in_doubt": [], "errors": []}
    assert [one["namespace"] for one in value["ledgers"]] == ["other"]


def test_the_overview_lists_some_effects_in_doubt_and_counts_the_others(run, path):
    with cpstore.open(path, durability="normal") as store:
        task = store.lineage("task")
        task.head()
        for n in range(12):
            task.begin("pay", {"n": n}, policy=cpstore.EffectPolicy.AT_MOST_ONCE).fail("lost")
        task.begin("look", {}, policy=cpstore.EffectPolicy.READ_ONLY).fail("lost")

    out = run("inspect", path).out

    assert "12 in doubt, 13 without an outcome" in out
    assert out.count("  pay, ") == 10
    assert "and 2 more" in out
    assert len(run("inspect", path, "--json").value["effects"]["in_doubt"]) == 12


@pytest.mark.parametrize("part", ["lineage", "ledger"])
def test_damage_to_one_stream_does_not_hide_the_rest_of_the_overview(run, busy, part, damaged):
    number = f"(SELECT no FROM stream WHERE kind = '{part}' AND name IN ('task', 'release') ORDER BY namespace LIMIT 1)"
    damaged(busy, f"UPDATE entry SET time = time + 1 WHERE id >> 32 = {number}")

    ran = run("inspect", busy, "--json")

    assert ran.code in (1, 3)
    assert len(ran.value["lineages"]) == 3
    assert len(ran.value["ledgers"]) == 2
    if part == "ledger":
        assert ran.value["effects"]["unsettled"] == 1
        assert [one["error"] is None for one in ran.value["ledgers"]] == [False, True]
    else:
        assert {one["lineage"] for one in ran.value["effects"]["errors"]} >= {"task"}
    shown = run("inspect", busy)
    assert shown.code == ran.code
    assert "damaged" in shown.out
    assert ("not all could be read" in shown.out) == (part == "lineage")


def test_a_damaged_fork_sets_the_exit_code_though_its_family_is_sound(run, busy, damaged):
    number = "(SELECT no FROM stream WHERE name = 'task/worker')"
    damaged(busy, f"UPDATE entry SET time = time + 1 WHERE id = {number} << 32 | 2")

    ran = run("inspect", busy, "--json")

    assert ran.code in (1, 3)
    assert [one["lineage"] for one in ran.value["lineages"] if one["error"]] == ["task/worker"]
    assert (ran.value["effects"]["errors"], len(ran.value["effects"]["in_doubt"])) == ([], 1)
