"""Many processes and threads on one store: nothing is lost, nobody is starved, and who holds the lock is named."""

from __future__ import annotations

import os
import signal
import sys
import threading

import pytest
from processes import PeerError
from store_cases import assert_holds

import cpstore
from cpstore.errors import BusyError, RevisionConflictError, StorageError

WRITERS, EACH = 8, 100


def test_f8_eight_processes_on_their_own_lineages_lose_no_commit(path, processes):
    peers = processes(WRITERS)
    for peer in peers:
        peer.send("open", str(path))
    assert len({peer.reply() for peer in peers}) == 1
    for number, peer in enumerate(peers):
        peer.send("own", f"agent {number}", EACH)
    assert [peer.reply() for peer in peers] == [EACH] * WRITERS
    for peer in peers:
        peer("close")
    expected = {
        ("default", f"agent {number}"): [
            {"items": [f"agent {number} {at}" for at in range(1, turn)]} for turn in range(1, EACH + 1)
        ]
        for number in range(WRITERS)
    }
    with cpstore.open(path) as store:
        assert store.stats()["entries"] == WRITERS * EACH
        assert_holds(store, expected)


def test_f8_eight_processes_on_one_lineage_make_every_revision_once(path, processes):
    peers = processes(WRITERS)
    with cpstore.open(path, durability="normal") as store:
        task = store.lineage("shared")
        task.commit({"items": []}, step=1)
        for peer in peers:
            peer("open", str(path), durability="normal")
        for number, peer in enumerate(peers):
            peer.send("shared", "shared", f"agent {number}", EACH)
        made = [peer.reply() for peer in peers]
        # Each process was told other revisions, and together all of them.
        assert sorted(revision for mine in made for revision in mine) == list(range(2, 2 + WRITERS * EACH))
        items = task.load()["items"]
        assert len(items) == WRITERS * EACH
        for number, mine in enumerate(made):
            assert [items[revision - 2] for revision in mine] == [f"agent {number} {at}" for at in range(EACH)]
        for revision in range(1, WRITERS * EACH, 97):
            assert task.load(revision)["items"] == items[: revision - 1]
        for peer in peers:
            peer("close")
        assert store.verify().good


def test_f40_eight_threads_on_one_store_make_every_revision_once(path):
    failures = []
    with cpstore.open(path, durability="normal") as store:
        shared = store.lineage("one handle")
        shared.commit({"items": []}, step=0)

        def work(number):
            try:
                own = store.lineage(f"own {number}")
                own.commit({"items": []}, step=0)
                for at in range(EACH // 2):
                    with shared.edit(step=0) as edit:  # threads that share a handle take turns
                        edit.append("/items", f"{number} {at}")
                    with own.edit(step=0) as edit:
                        edit.append("/items", at)
                    assert own.load()["items"][-1] == at
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        items = shared.load()["items"]
        assert shared.head().revision == 1 + WRITERS * EACH // 2
        assert sorted(items) == sorted(f"{number} {at}" for number in range(WRITERS) for at in range(EACH // 2))
        for number in range(WRITERS):
            assert [item for item in items if item.startswith(f"{number} ")] == [
                f"{number} {at}" for at in range(EACH // 2)
            ]
            assert store.lineage(f"own {number}").load()["items"] == list(range(EACH // 2))
        assert store.verify().good


def test_two_handles_of_one_process_conflict_as_two_processes_do(path):
    with cpstore.open(path) as store:
        one, other = store.lineage("task"), store.lineage("task")
        one.commit({"by": "one"}, step=0)
        other.load()
        one.commit({"by": "one again"}, step=0)
        with pytest.raises(RevisionConflictError) as refused:
            other.commit({"by": "other"}, step=0)
        assert (refused.value.expected, refused.value.head) == (1, 2)
        assert one.load() == {"by": "one again"}


def test_threads_that_race_for_a_new_lineage_make_one_first_revision(path):
    with cpstore.open(path) as store:
        barrier, results = threading.Barrier(WRITERS), []

        def work(number):
            handle = store.lineage("new")
            barrier.wait()
            try:
                results.append(handle.commit({"first": number}, step=0).revision)
            except RevisionConflictError:
                results.append(None)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(results, key=str) == [1] + [None] * (WRITERS - 1)
        assert store.lineage("new").head().revision == 1
        assert store.verify().good


def test_sixteen_processes_that_open_first_end_with_one_store_and_one_key(tmp_path, processes, monkeypatch):
    for attempt in range(2):
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / f"data {attempt}"))
        path = tmp_path / f"folder {attempt}" / "agent.db"
        peers = processes(16)
        for peer in peers:
            peer.send("open", str(path))
        assert len({peer.reply() for peer in peers}) == 1
        for number, peer in enumerate(peers):
            peer.send("commit", f"agent {number}", {"number": number}, 0)
        assert [peer.reply() for peer in peers] == [1] * 16
        for peer in peers:
            peer.end()
        keys = list((tmp_path / f"data {attempt}").rglob("*.pem*"))
        assert [key.name for key in keys] == ["default.pem"]
        with cpstore.open(path) as store:
            assert_holds(store, {("default", f"agent {number}"): [{"number": number}] for number in range(16)})


def test_a_forked_child_is_refused_and_the_parent_goes_on(path):
    with cpstore.open(path) as store:
        task = store.lineage("task")
        task.commit({"by": "parent"}, step=0)
        pid = os.fork()
        if pid == 0:
            refused = 0
            try:
                for act in (
                    task.load,
                    task.head,
                    store.verify,
                    lambda: task.commit({"by": "child"}, step=0),
                    store.close,
                ):
                    try:
                        act()
                    except StorageError as error:
                        refused += "fork" in str(error)
            finally:
                os._exit(0 if refused == 5 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        task.commit({"by": "parent again"}, step=0)
        assert_holds(store, {("default", "task"): [{"by": "parent"}, {"by": "parent again"}]})


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_a_forked_child_may_open_the_store_again(path):
    with cpstore.open(path) as store:
        task = store.lineage("task")
        task.commit({"by": "parent"}, step=0)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                with cpstore.open(path) as own:
                    own.lineage("task").commit({"by": "child"}, step=0, expected_revision=1)
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert task.load() == {"by": "child"}
        task.commit({"by": "parent"}, step=0)
        assert_holds(store, {("default", "task"): [{"by": "parent"}, {"by": "child"}, {"by": "parent"}]})


def test_f10_who_holds_the_lock_is_named_while_others_open_and_read(path, processes):
    (peer,) = processes()
    with cpstore.open(path, timeout=0.1) as store:
        task = store.lineage("task")
        task.commit({"turn": 1}, step=0)
        peer("open", str(path))
        assert peer("hold") == "held"
        with pytest.raises(BusyError) as busy:
            task.commit({"turn": 2}, step=0)
        assert f"pid {peer.pid} " in busy.value.holder and busy.value.holder in str(busy.value)
        assert busy.value.retry == "again" and busy.value.waited >= 0.1
        with cpstore.open(path) as another:  # start-up does not wait for it
            assert another.lineage("task").load() == {"turn": 1}
            assert another.verify().good
            assert peer("release") == "released"
        task.commit({"turn": 2}, step=0)
        peer("close")
        assert_holds(store, {("default", "task"): [{"turn": 1}, {"turn": 2}]})


def test_a_lock_is_free_as_soon_as_its_holder_is_killed(path, processes):
    (peer,) = processes()
    with cpstore.open(path, timeout=20.0) as store:
        peer("open", str(path))
        peer("hold")
        killer = threading.Timer(0.2, peer.process.kill)
        killer.start()
        assert store.lineage("task").commit({"turn": 1}, step=0).revision == 1
        killer.join()
        assert store.verify().good


def test_f20_a_process_killed_in_the_middle_of_its_commits_leaves_whole_ones(path, processes):
    state, head = {"items": []}, 0
    for attempt in range(6):
        (peer,) = processes()
        peer("open", str(path), segment=4)
        if attempt == 0:
            peer.send("endless", "task")
        else:
            peer.send("endless", f"task {attempt}")
        name = "task" if attempt == 0 else f"task {attempt}"
        acknowledged = [peer.line() for _ in range(7 + attempt * 3)][-1]
        os.kill(peer.pid, signal.SIGKILL)
        peer.process.wait()
        rest = [line for line in peer.process.stdout.read().split("\n") if line.strip().isdigit()]
        acknowledged = int(rest[-1]) if rest else acknowledged
        with cpstore.open(path) as store:
            task = store.lineage(name)
            head = task.head().revision
            assert head in (acknowledged, acknowledged + 1)
            for revision in range(1, head + 1):
                assert task.load(revision) == {"items": [f"item {at}" for at in range(1, revision + 1)]}
            state = task.load()
            task.commit({**state, "after": attempt}, step=head + 1)
            report = store.verify()
            assert report.good, report.findings


def test_a_refusal_in_another_process_has_its_name(path, processes):
    (peer,) = processes()
    with pytest.raises(PeerError, match="StorageError"):
        peer("open", "/proc/no/such/place.db")
