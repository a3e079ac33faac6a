"""Shared ledgers among real processes, some of them killed in the middle of a compaction."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback

import pytest

import cpstore
from cpstore import Authority, Directive, Signer, Status, Supersession
from cpstore.backends.link import Link
from cpstore.errors import PeerReadOnlyError, RevisionConflictError, StaleWriteError
from cpstore.model.binding import Binding

SIGNER = Signer.from_seed(bytes(range(32)))
LONG = [f"message {at}: " + "word " * 20 for at in range(60)]
SHORT = {"messages": ["a summary of everything that was said", *LONG[-2:]]}
ORDER = Directive(Authority.USER, "message 3", "from now on")


def opened(path):
    return cpstore.open(path, signer=SIGNER, durability="normal", timeout=60)


@pytest.fixture
def store(path):
    with opened(path) as store:
        task = store.lineage("task")
        task.commit({"messages": LONG}, step=1, define=[Binding("done", "merged")])
        yield store


class Child:
    """A process that runs ``act(store, say)`` on its own store; ``say`` and what it returns come back as JSON lines."""

    def __init__(self, path, act):
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 9
            try:
                os.close(reading)
                with os.fdopen(writing, "w") as out:

                    def say(value):
                        print(json.dumps(value), file=out, flush=True)

                    with opened(path) as store:
                        say(act(store, say))
                code = 0
            except BaseException:
                traceback.print_exc(file=sys.stderr)
            finally:
                os._exit(code)
        os.close(writing)
        self.out = os.fdopen(reading)

    def line(self):
        return json.loads(self.out.readline())

    def end(self):
        """Return what was said that nobody has taken yet, and the exit code (negative: the signal)."""
        said = [json.loads(line) for line in self.out]
        self.out.close()
        return said, os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def result(self):
        said, code = self.end()
        assert code == 0
        return said[-1]


def adder(name, count):
    """Return the act of a peer that adds to one key, reading again whenever somebody was faster."""

    def act(store, say):
        peer, stale = store.ledger("board").join(name), 0
        for turn in range(count):
            while True:
                seen = peer.read("log")
                try:
                    peer.write("log", [*seen.value, f"{name} {turn}"], seen=seen)
                    break
                except StaleWriteError:
                    stale += 1
        return stale

    return act


def test_eight_writers_of_one_key_lose_nothing(path, store):
    store.ledger("board").join("first").write("log", [])
    children = [Child(path, adder(f"writer {at}", 15)) for at in range(8)]
    assert sum(child.result() for child in children) > 0  # they did get in each other's way
    log = store.ledger("board").read("log")
    assert log.revision == 121 and sorted(log.value) == sorted(
        f"writer {at} {turn}" for at in range(8) for turn in range(15)
    )
    for at in range(8):
        assert [line for line in log.value if line.startswith(f"writer {at} ")] == [
            f"writer {at} {n}" for n in range(15)
        ]
    report = store.verify()
    assert report.good, report.findings


def test_of_eight_that_claim_a_new_key_one_gets_it(path, store):
    def act(at):
        def claim(store, say):
            peer = store.ledger("board").join(f"worker {at}")
            won = 0
            for unit in range(10):
                try:
                    peer.write(f"unit {unit}", at, seen=cpstore.ABSENT)
                    won += 1
                except StaleWriteError as error:
                    assert not error.suspect
            assert peer.status is Status.ACTIVE
            return won

        return claim

    children = [Child(path, act(at)) for at in range(8)]
    assert sum(child.result() for child in children) == 10
    board = store.ledger("board")
    assert [board.read(f"unit {unit}").revision for unit in range(10)] == [1] * len(board.keys())


def test_a_cursor_is_the_same_in_the_next_process(path, store):
    board = store.ledger("board")
    board.join("peer")
    loud = board.join("loud")
    for at in range(5):
        loud.compacted(f"report {at}")

    def take(count):
        def act(store, say):
            peer = store.ledger("board").join("peer")
            texts = [event.text for event in peer.poll(limit=count)]
            if texts:
                peer.ack(peer.poll(limit=count)[-1].position)
            return texts

        return act

    taken = [Child(path, take(2)).result() for _ in range(4)]
    assert taken == [["report 0", "report 1"], ["report 2", "report 3"], ["report 4"], []]


def test_who_is_killed_between_poll_and_ack_is_given_it_again(path, store):
    board = store.ledger("board")
    peer, loud = board.join("peer"), board.join("loud")
    for at in range(3):
        loud.compacted(f"report {at}")

    def act(store, say):
        peer = store.ledger("board").join("peer")
        first, second, _ = peer.poll()
        peer.ack(first.position)
        say(second.text)
        os.kill(os.getpid(), signal.SIGKILL)

    said, code = Child(path, act).end()
    assert (said, code) == (["report 1"], -signal.SIGKILL)
    assert [event.text for event in peer.poll()] == ["report 1", "report 2"]


def test_a_wait_in_one_process_ends_with_a_compaction_in_another(path, store):
    store.ledger("board").join("member", lineage=_looked(store))

    def act(store, say):
        peer = store.ledger("board").join("listener")
        say("joined")
        began = time.monotonic()
        assert peer.wait(60)
        (event,) = peer.poll()
        peer.ack(event.position)
        return [event.kind, event.lineage, time.monotonic() - began]

    child = Child(path, act)
    assert child.line() == "joined"
    time.sleep(0.2)
    _looked(store).compact(SHORT, summary="/messages/0")
    kind, lineage, waited = child.result()
    assert (kind, lineage) == ("compacted", "task") and waited < 30


def _looked(store):
    task = store.lineage("task")
    task.load()
    return task


def test_another_process_clears_nothing_and_its_fresh_reads_do(path, store):
    board = store.ledger("board")
    board.join("other").write("a", 1)
    task = _looked(store)
    peer = board.join("member", lineage=task)
    peer.read("a")
    task.compact(SHORT, summary="/messages/0")

    def act(store, say):
        peer = store.ledger("board").join("another name", lineage=_looked(store))
        say(peer.status.value)
        try:
            peer.write("a", 2, seen=peer.read("a"))
        except PeerReadOnlyError as error:
            say(list(error.keys))
        peer.revalidate(peer.read_all())
        return peer.write("a", 2, seen=peer.read("a")).revision

    assert Child(path, act).end() == (["read_only", ["a"], 2], 0)
    assert peer.status is Status.ACTIVE and peer.membership.peer == "another name"


def test_a_zombie_process_that_looked_before_a_compaction_writes_nothing(path, store):
    board = store.ledger("board")
    task = _looked(store)
    peer = board.join("member", lineage=task)
    seen = peer.write("a", 1)

    def act(store, say):
        ghost = store.ledger("board").join("member", lineage=_looked(store))
        read = ghost.read("a")
        say("looked")
        other = store.ledger("board").join("clock")
        assert other.wait(60)
        for seen in (read, ghost.read("a")):
            try:
                ghost.write("a", "from the past", seen=seen)
                return "written"
            except RevisionConflictError:
                continue
            except PeerReadOnlyError:
                say("read-only")
        return "refused"

    child = Child(path, act)
    assert child.line() == "looked"
    time.sleep(0.2)
    task.compact(SHORT, summary="/messages/0")
    peer.revalidate(peer.read_all())
    assert child.result() == "refused"
    assert board.read("a").value == 1 and seen.revision == 1


# --- killed in the middle ----------------------------------------------------------------------------------------


def dying(act, kill_at):
    """Return ``act`` on the lineage, killed before its statement ``kill_at``, if it has so many."""

    def run(store, say):
        task, carry_out, count = _looked(store), Link.run, 0

        def counted(self, sql, values=()):
            nonlocal count
            count += 1
            if count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return carry_out(self, sql, values)

        Link.run = counted
        return act(task)

    return run


BUILT = [Supersession(Binding("done", "built"), ORDER)]
ACTS = {
    "compaction": (
        lambda task: task.compact(SHORT, summary="/messages/0", supersede=BUILT),
        ["compacted"],
        Status.READ_ONLY,
        "built",
    ),
    "shrunk": (
        lambda task: task.commit(SHORT, step=2, supersede=BUILT),
        ["shrunk", "superseded"],
        Status.SUSPECT,
        "built",
    ),
    "restore": (lambda task: task.restore(1), ["restored"], Status.READ_ONLY, "merged"),
}


@pytest.mark.parametrize("cause", ACTS)
def test_killed_at_any_statement_there_is_no_trace_or_all_of_it(path, cause):
    act, told, status, meaning = ACTS[cause]
    with opened(path) as store:
        task = store.lineage("task")
        task.commit({"messages": LONG}, step=1, define=[Binding("done", "merged")])
        boards = [store.ledger(name) for name in ("one", "two")]
        for board in boards:
            board.join("other").write("a", 1)
            board.join("member", lineage=task).read("a")
    nothing, everything, at = 0, 0, 0
    while not everything:
        at += 1
        _, code = Child(path, dying(lambda task: act(task).revision, at)).end()
        with opened(path) as store:
            task = store.lineage("task")
            members = [store.ledger(name).peers()[0] for name in ("one", "two")]
            events = [[event.kind for event in store.ledger(name).events()] for name in ("one", "two")]
            facts = task.head().revision, [member.status for member in members], events, task.glossary().bindings[0]
            if facts[0] == 1:
                nothing += 1
                assert code == -signal.SIGKILL
                assert facts[1:3] == ([Status.ACTIVE] * 2, [[], []]) and facts[3].definition == "merged"
            else:
                everything += 1
                assert facts[:3] == (2, [status] * 2, [told] * 2) and facts[3].definition == meaning
                assert {dict(member.lock)["done"] for member in members} == {dict(members[0].lock)["done"]}
            report = store.verify()
            assert report.good, (at, report.findings)
    assert nothing > 8  # it was killed often enough, and after the commit at last
