"""An encoder is never used past a failed, refused or foreign row: after each of them everything still loads equal."""

from __future__ import annotations

import pytest
from processes import PeerError
from sample import words
from store_cases import assert_holds

import cpstore
from cpstore.backends.link import Link
from cpstore.errors import InvalidStateError, RevisionConflictError, SemanticDriftError, StorageError
from cpstore.snapshot import writer

NAME = ("default", "task")


@pytest.fixture(autouse=True)
def short_segments(monkeypatch):
    monkeypatch.setattr(writer, "SEGMENT_RECORDS", 6)


def next_of(states, text):
    return {"messages": [*(states[-1]["messages"] if states else []), text], "turn": len(states)}


@pytest.mark.parametrize("turns", [1, 2, 5, 7])
def test_two_processes_that_take_turns_continue_each_others_segments(path, processes, turns):
    (peer,) = processes()
    with cpstore.open(path) as store:
        peer("open", str(path), segment=6)
        task, states = store.lineage("task"), []
        for at in range(24):
            states.append(next_of(states, f"message {at} {words(at, 5)}"))
            if at // turns % 2:
                assert peer("commit", "task", states[-1], at, at) == at + 1
            else:
                assert task.commit(states[-1], step=at, expected_revision=at).revision == at + 1
        assert peer("verify")["good"]
        peer("close")
        assert_holds(store, {NAME: states})


def test_two_processes_that_take_turns_with_edits_continue_each_others_segments(path, processes):
    (peer,) = processes()
    with cpstore.open(path) as store:
        peer("open", str(path), segment=6)
        task, states = store.lineage("task"), [{"messages": []}]
        task.commit(states[0], step=0)
        for at in range(1, 30):
            item = f"message {at} {words(at, 5)}"
            states.append({"messages": [*states[-1]["messages"], item]})
            if at % 3:
                assert peer("head", "task") == at
                assert peer("append", "task", "/messages", item, at) == at + 1
            else:
                with task.edit(step=at, expected_revision=at) as edit:
                    edit.append("/messages", item)
        peer("close")
        assert_holds(store, {NAME: states})


@pytest.mark.parametrize("foreign", [1, 3, 6, 13])
def test_a_handle_that_was_overtaken_is_refused_and_goes_on_after_it_has_looked(path, processes, foreign):
    # ``foreign`` rows of another process may also seal the segment that this one was writing.
    (peer,) = processes()
    with cpstore.open(path) as store:
        peer("open", str(path), segment=6)
        task, states = store.lineage("task"), []
        for at in range(3):
            states.append(next_of(states, f"mine {at}"))
            task.commit(states[-1], step=0)
        for at in range(foreign):
            states.append(next_of(states, f"theirs {at}"))
            peer("commit", "task", states[-1], 0, len(states) - 1)
        with pytest.raises(RevisionConflictError) as refused:
            task.commit({"messages": "from an old view"}, step=0)
        assert (refused.value.expected, refused.value.head) == (3, 3 + foreign)
        with pytest.raises(PeerError, match="RevisionConflictError"):
            peer("commit", "task", {"messages": "from another old view"}, 0, 1)
        assert task.load() == states[-1]
        for at in range(8):
            states.append(next_of(states, f"again {at}"))
            task.commit(states[-1], step=0)
        peer("close")
        assert_holds(store, {NAME: states})


@pytest.mark.parametrize("foreign", [1, 3, 6, 13])
def test_an_evicted_lineage_that_was_overtaken_is_refused_too(path, processes, foreign):
    (peer,) = processes()
    with cpstore.open(path, cache_bytes=0) as store:
        peer("open", str(path), segment=6)
        task, other, states = store.lineage("task"), store.lineage("other"), []
        for at in range(3):
            states.append(next_of(states, f"mine {at}"))
            task.commit(states[-1], step=0)
        other.commit({"evicts": "task"}, step=0)
        assert store._opened.writers == 1
        for at in range(foreign):
            states.append(next_of(states, f"theirs {at}"))
            peer("commit", "task", states[-1], 0, len(states) - 1)
        with pytest.raises(RevisionConflictError):
            task.commit({"messages": "from an old view"}, step=0)
        assert task.load() == states[-1]
        states.append(next_of(states, "again"))
        task.commit(states[-1], step=0)
        peer("close")
        assert_holds(store, {NAME: states, ("default", "other"): [{"evicts": "task"}]})


def wrong_commits(store, task):
    """Every way to be refused between two good commits, each after more of the work was done."""
    yield InvalidStateError, lambda: task.commit({"messages": [{1, object()}]}, step=0)
    yield InvalidStateError, lambda: task.commit({"messages": []}, step=-1)
    yield SemanticDriftError, lambda: task.commit({}, step=0, define=[cpstore.Binding("term", "other")])
    yield RevisionConflictError, lambda: task.commit({"messages": ["stale"]}, step=0, expected_revision=999)
    yield RevisionConflictError, lambda: store.lineage("task").commit({"messages": ["blind"]}, step=0)

    def edit():
        with task.edit(step=0) as edit:
            edit.append("/messages", "half an edit", words(3, 400))
            edit.delete("/messages/999")

    yield InvalidStateError, edit


def test_a_refused_commit_in_the_middle_leaves_the_next_one_whole(path):
    with cpstore.open(path) as store:
        task, states = store.lineage("task"), []
        states.append(next_of(states, "first"))
        task.commit(states[-1], step=0, define=[cpstore.Binding("term", "meaning")])
        for at in range(20):
            for error, act in wrong_commits(store, task):
                with pytest.raises(error):
                    act()
            states.append(next_of(states, f"message {at}"))
            if at % 2:
                task.commit(states[-1], step=0)
            else:
                with task.edit(step=0) as edit:
                    edit.append("/messages", f"message {at}")
                    edit.set("/turn", len(states) - 1)
        assert_holds(store, {NAME: states})


def test_evicted_and_reopened_lineages_go_on_in_the_same_segment(path):
    names = [f"lineage {at}" for at in range(4)]
    states = {("default", name): [] for name in names}
    for opening in range(4):
        with cpstore.open(path, cache_bytes=0) as store:
            for turn in range(5):
                for name in names:
                    mine = states["default", name]
                    mine.append(next_of(mine, f"{name} {opening} {turn}"))
                    lineage = store.lineage(name)
                    lineage.commit(mine[-1], step=0, expected_revision=len(mine) - 1)
                    assert store._opened.writers == 1
            assert_holds(store, states)
    with cpstore.open(path, cache_bytes=0) as store:
        # 20 entries, six a segment: eviction and reopening have cut no segment short.
        assert store.stats()["segments"] == 4 * 3


class Broken:
    """Makes the k-th statement from now on fail, as a full disk does, after it was carried out or instead."""

    def __init__(self, patch, at, *, late):
        self.left, self.late = at, late
        self.ran = []
        real = Link.run

        def run(link, sql, values=()):
            self.ran.append(sql)
            self.left -= 1
            if self.left:
                return real(link, sql, values)
            if self.late:
                real(link, sql, values)
            raise StorageError("disk I/O error (SQLITE_IOERR)")

        patch.setattr(Link, "run", run)


def acts(task):
    """What a lineage can do, each with the state that it makes."""
    return {
        "first commit": lambda: task.commit({"messages": ["new"], "turn": 1}, step=0),
        "commit": lambda: task.commit({"messages": ["new"], "turn": 1}, step=0, key="once"),
        "edit": lambda: append(task, "new"),
        "sealing": lambda: append(task, "new"),
        "sharing": lambda: task.commit({"messages": ["new", words(1, 6000)], "turn": 1}, step=0),
    }


def append(task, text):
    with task.edit(step=0) as edit:
        edit.append("/messages", text)
    return edit.result


@pytest.mark.parametrize("late", [False, True], ids=["instead", "after it ran"])
@pytest.mark.parametrize("act", ["first commit", "commit", "edit", "sealing", "sharing"])
def test_f11_a_statement_that_fails_leaves_nothing_half_done_whichever_it_is(tmp_path, processes, act, late):
    (peer,) = processes()
    at = failures = 0
    while True:
        at += 1
        path = tmp_path / f"{at}.db"
        with cpstore.open(path) as store:
            task = store.lineage("task")
            states = []
            for turn in range({"first commit": 0, "sealing": 5}.get(act, 2)):
                states.append({"messages": [f"message {turn}"], "turn": turn})
                task.commit(states[-1], step=0)
            error = None
            with pytest.MonkeyPatch.context() as patch:
                broken = Broken(patch, at, late=late)
                try:
                    acts(task)[act]()
                except StorageError as failed:
                    error = failed
            if broken.left > 0:
                assert error is None
                break
            failures += 1
            check_after(path, store, peer, act, states, error, broken, late=late)
    assert failures >= 6


def check_after(path, store, peer, act, states, error, broken, *, late):
    assert error is not None, broken.ran
    for link in store._journal.backend._links:
        assert not link._connection.in_transaction, broken.ran
    committed = late and broken.ran[-1] == "COMMIT" and "BEGIN IMMEDIATE" in broken.ran
    if error.seq is not None:
        assert (error.namespace, error.stream, error.seq) == ("default", "task", len(states) + 1)
        assert store.landed(error) == ("landed" if committed else "not landed"), broken.ran
    else:
        assert not committed
    if act == "commit":
        assert store.landed("once", lineage="task") == ("landed" if committed else "not landed")
    # Another process writes at once: no lock was left behind.
    peer("open", str(path), segment=6, timeout=5.0)
    assert peer("commit", "elsewhere", {"free": True}, 0) == 1
    task = store.lineage("task")
    assert task.exists == bool(states or committed)
    head = len(states) + committed
    if committed:
        states.append(task.load())
        assert "new" in states[-1]["messages"]
    for turn in range(3):
        states.append({"messages": [f"after {turn}"], "turn": turn})
        task.commit(states[-1], step=0, expected_revision=head + turn)
    if not committed and error.seq is not None:
        assert store.landed(error) == "superseded"
    peer("close")
    assert_holds(store, {NAME: states, ("default", "elsewhere"): [{"free": True}]})


def test_a_handle_goes_on_after_its_own_failed_commit(path, monkeypatch):
    with cpstore.open(path) as store:
        task, states = store.lineage("task"), [{"messages": ["one"], "turn": 0}]
        task.commit(states[0], step=0)
        for at in range(1, 14):
            with pytest.MonkeyPatch.context() as patch:
                Broken(patch, at % 6 + 1, late=False)
                with pytest.raises(StorageError):
                    task.commit({"messages": ["lost"], "turn": at}, step=0)
            states.append(next_of(states, f"kept {at}"))
            task.commit(states[-1], step=0)
        assert_holds(store, {NAME: states})


@pytest.mark.parametrize("whole", [False, True])
def test_a_shared_mapping_read_by_an_earlier_act_is_opened_by_a_later_one(path, whole):
    tools = {f"tool {at}": {"about": words(at, 30), "limit": at} for at in range(100)}
    states = [{"tools": tools, "turn": 0}]
    with cpstore.open(path) as store:
        store.lineage("task").commit(states[0], step=0)
    with cpstore.open(path) as store:
        task = store.lineage("task")
        task.head()
        for turn in range(1, 4):
            with task.edit(step=turn) as edit:
                edit.set("/turn", turn)
            states.append({**states[-1], "turn": turn})
        changed = {**tools, "tool 7": {**tools["tool 7"], "limit": "changed"}}
        states.append({**states[-1], "tools": changed})
        if whole:
            task.commit(states[-1], step=9)
        else:
            with task.edit(step=9) as edit:
                edit.set("/tools/tool 7/limit", "changed")
        # No act leaves a transaction open behind it, which would hold up checkpoints for ever.
        assert not any(link._connection.in_transaction for link in store._journal.backend._links)
        states.append({**states[-1], "turn": 9})
        task.commit(states[-1], step=9)
        assert_holds(store, {NAME: states})
