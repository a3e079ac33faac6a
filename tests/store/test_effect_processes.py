"""Effects and restores among real processes, some of them killed: one go, one outcome, and nothing forgotten."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys

import pytest
from processes import ROOT, PeerError

import cpstore
from cpstore import EffectPolicy, EffectState
from cpstore.errors import EffectBusyError, EffectInDoubtError, RevisionConflictError, UnsafeRollbackError
from cpstore.lineage import owner
from cpstore.model.effect import Owner
from cpstore.signing.keys import create_key

AT_MOST_ONCE = EffectPolicy.AT_MOST_ONCE
ARGS = {"order": 17}
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
    for turn in (1, 2, 3):
        task.commit({"turn": turn}, step=turn)
    return task


def joined(processes, path, count=1, **options):
    peers = processes(count)
    for peer in peers:
        peer("open", str(path), **options)
        peer("load", "task")
    return peers


def kill(peer):
    os.kill(peer.pid, signal.SIGKILL)
    peer.process.wait()


def test_f67_killed_between_start_and_outcome_is_in_doubt_and_never_run_again(path, task, processes):
    # microsoft/agent-framework#3938: a retry from a checkpoint sent the refund twice.
    (peer,) = joined(processes, path)
    fresh, key, _ = peer("begin", "task", "pay", ARGS)
    assert fresh
    with pytest.raises(EffectBusyError, match=f"process {peer.pid}"):
        task.begin("pay", ARGS, policy=AT_MOST_ONCE)
    kill(peer)
    (again,) = joined(processes, path)
    for _ in range(3):
        with pytest.raises(EffectInDoubtError) as doubt:
            task.begin("pay", ARGS, policy=AT_MOST_ONCE)
        with pytest.raises(PeerError, match="EffectInDoubtError"):
            again("begin", "task", "pay", ARGS)
    with pytest.raises(UnsafeRollbackError):
        task.restore(1)
    task.reconcile(doubt.value.record, happened=True, result="receipt", **WORD)
    assert again("begin", "task", "pay", ARGS) == [False, key, "receipt"]
    assert task.restore(1).revision == 4


def test_what_may_be_repeated_goes_again_under_the_same_key_after_a_kill(path, task, processes):
    (peer,) = joined(processes, path)
    _, key, _ = peer("begin", "task", "put", ARGS, policy="idempotent")
    with pytest.raises(EffectBusyError):
        task.begin("put", ARGS, policy=EffectPolicy.IDEMPOTENT)
    kill(peer)
    handle = task.begin("put", ARGS, policy=EffectPolicy.IDEMPOTENT)
    assert (handle.fresh, handle.key, handle.record.attempt) == (True, key, 2)


def test_f73_two_processes_that_begin_one_effect_get_one_go(path, task, processes):
    # anomaliaso/anomalia#70: a resume took over while the first one ran, and published twice.
    peers = joined(processes, path, 4)
    for turn in range(6):
        for peer in peers:
            peer.send("begin", "task", f"publish {turn}", ARGS)
        got = []
        for peer in peers:
            try:
                got.append((peer, peer.reply()))
            except PeerError as error:
                assert error.args[0] == "EffectBusyError"
        ((owner, (fresh, key, _)),) = got
        assert fresh
        owner("complete", f"publish {turn}", {"by": owner.pid})
        for peer in peers:
            assert peer("begin", "task", f"publish {turn}", ARGS) == [False, key, {"by": owner.pid}]


def test_a_live_process_that_let_its_handle_go_is_busy_for_others_until_it_ends(path, task, processes):
    # Nobody else can see a handle: while the process lives, it may still be at it.
    (peer,) = joined(processes, path)
    peer("begin", "task", "pay", ARGS)
    peer("let_go", "pay")
    with pytest.raises(EffectBusyError):
        task.begin("pay", ARGS, policy=AT_MOST_ONCE)
    with pytest.raises(PeerError, match="EffectInDoubtError"):
        peer("begin", "task", "pay", ARGS)
    kill(peer)
    with pytest.raises(EffectInDoubtError):
        task.begin("pay", ARGS, policy=AT_MOST_ONCE)


def test_f71_recovery_does_not_take_over_what_a_live_process_has_begun(path, task, processes):
    # dbos-inc/dbos-transact-java#491: begun in the same millisecond by the same process, and run twice.
    (peer,) = joined(processes, path)
    peer("begin", "task", "pay", ARGS)
    (record,) = task.effects()
    assert (record.owner.pid, record.attempt) == (peer.pid, 1)
    assert list(task.effects(in_doubt=True)) == []
    with pytest.raises(EffectBusyError):
        task.reconcile(record, happened=False, **WORD)
    peer("complete", "pay", "receipt")
    assert task.begin("pay", ARGS, policy=AT_MOST_ONCE).outcome == "receipt"


def test_a_process_that_was_replaced_by_one_of_the_same_id_is_gone(task):
    handle = task.begin("pay", ARGS, policy=AT_MOST_ONCE)
    mine = owner.myself()
    earlier = Owner(mine.boot, mine.space, mine.pid, mine.started - 1)
    other_boot = Owner(mine.boot + "0", mine.space, mine.pid, mine.started)
    assert owner.liveness(mine).value == "alive"
    assert owner.liveness(earlier).value == owner.liveness(other_boot).value == "gone"
    unseen = [
        Owner("another machine/1", mine.space, mine.pid, mine.started),
        Owner(mine.boot, "another container", mine.pid, mine.started),
    ]
    assert [owner.liveness(one).value for one in unseen] == ["unseen", "unseen"]
    handle.complete()


def test_an_effect_that_a_parent_began_is_busy_in_its_forked_child(path, task):
    handle = task.begin("pay", ARGS, policy=AT_MOST_ONCE)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with cpstore.open(path) as own:
                lineage = own.lineage("task")
                lineage.load()
                try:
                    lineage.begin("pay", ARGS, policy=AT_MOST_ONCE)
                except EffectBusyError:
                    code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    handle.complete()


@pytest.mark.parametrize("durability", ["full", "normal"])
def test_f82_a_restore_is_durable_when_it_returns(path, processes, durability):
    # anthropics/claude-code#87893: a rewind was forgotten when nothing was written after it.
    with cpstore.open(path, durability=durability) as store:
        task = store.lineage("task")
        for turn in (1, 2, 3):
            task.commit({"turn": turn}, step=turn)
    (peer,) = joined(processes, path, durability=durability)
    peer.send("restored", "task", 1)
    assert peer.line() == 4
    kill(peer)
    with cpstore.open(path) as store:
        task = store.lineage("task")
        head = task.head()
        assert (head.revision, head.kind, task.load()) == (4, "restore", {"turn": 1})
        assert store.verify().good


def test_an_older_process_neither_commits_nor_begins_after_a_restore(path, task, processes):
    (peer,) = joined(processes, path)
    peer("commit", "task", {"turn": 4}, 4)
    task.head()
    task.restore(1)
    for act in (
        lambda: peer("commit", "task", {"turn": 5}, 5),
        lambda: peer("begin", "task", "pay", ARGS),
        lambda: peer("restore", "task", 2),
        lambda: peer("append", "task", "/turns", 1, 5),
    ):
        with pytest.raises(PeerError, match="RevisionConflictError"):
            act()
    assert list(task.effects()) == [] and task.head().revision == 5
    assert peer("load", "task") == {"turn": 1}
    assert peer("begin", "task", "pay", ARGS)[0] is True
    peer("complete", "pay", "receipt")
    assert peer("restore", "task", 4) == 6
    with pytest.raises(RevisionConflictError):
        task.begin("pay", ARGS, policy=AT_MOST_ONCE)
    task.load()
    assert task.begin("pay", ARGS, policy=AT_MOST_ONCE).outcome == "receipt"


def test_f68_whenever_a_process_is_killed_the_world_never_saw_what_the_ledger_has_not(path, task, tmp_path, processes):
    # langchain-ai/langgraph#8039: work ran before its intent was stored, and ran again after a crash.
    world = tmp_path / "world"
    for attempt in range(6):
        (peer,) = joined(processes, path)
        peer.send("effects_endless", "task", str(world))
        for _ in range(5 + 3 * attempt):
            found = peer.line()
            assert type(found) is int, found
        kill(peer)
        sent = [int(line) for line in world.read_text().split()]
        known = {task.arguments(record)["at"]: record for record in task.effects()}
        assert len(sent) == len(set(sent)) and set(sent) <= set(known)
        for doubtful in list(task.effects(in_doubt=True)):
            at = task.arguments(doubtful)["at"]
            with pytest.raises(EffectInDoubtError):
                task.begin("send", {"at": at}, policy=AT_MOST_ONCE)
            task.reconcile(doubtful, happened=at in sent, **WORD)
        states = [record.state for record in task.effects()]
        assert states.count(EffectState.COMPLETED) >= len(sent) - attempt - 1


SYNCS = """
import sys
import cpstore
from cpstore.signing.keys import load_key

path, key, act, count = sys.argv[1:]
policy = cpstore.EffectPolicy.AT_MOST_ONCE
with cpstore.open(path, signer=load_key(key), durability="normal") as store:
    task = store.lineage("task")
    task.commit({"turn": 1}, step=1)
    for at in range(int(count)):
        if act == "restore":
            task.restore(1)
        else:
            handle = task.begin("send", {"at": at}, policy=policy)
            if act == "complete":
                handle.complete(at)
            else:
                handle.fail("no", happened=False)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("act", "each"), [("complete", 2), ("fail", 2), ("restore", 1)])
def test_effects_and_restores_are_synced_whatever_the_durability(tmp_path, act, each):
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed: the syncs cannot be counted")
    create_key(tmp_path / "key.pem")
    child = tmp_path / "child.py"
    child.write_text(SYNCS)
    counted = []
    for count in (5, 25):
        log = tmp_path / f"{count}.strace"
        command = [
            sys.executable,
            str(child),
            str(tmp_path / f"{count}.db"),
            str(tmp_path / "key.pem"),
            act,
            str(count),
        ]
        done = subprocess.run(
            ["strace", "-f", "-e", "trace=fsync,fdatasync", "-o", str(log), *command],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
        )
        if "ptrace" in done.stderr.lower():
            pytest.skip(f"strace may not trace here: {done.stderr.strip()[:100]}")
        assert done.returncode == 0, done.stderr
        counted.append(len(re.findall(r"f(?:data)?sync\(", log.read_text())))
    assert counted[1] - counted[0] == each * 20
