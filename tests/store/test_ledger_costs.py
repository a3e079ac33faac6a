"""What a ledger costs, in exact numbers: the statements of a write, a read and a poll, and the entries they add."""

from __future__ import annotations

import re
from contextlib import contextmanager

import pytest

import cpstore
from cpstore import Binding, Scope, Signer

WRITE = [
    "BEGIN IMMEDIATE",
    "PRAGMA user_version",
    "SELECT log",
    "INSERT INTO entry",
    "INSERT INTO tail",
    "UPDATE log",
    "COMMIT",
]
NEWEST = ["SELECT stream", "SELECT entry", "SELECT tail", "SELECT entry"]
"""What tells that a stream's newest entry is still the one that was verified: it, what it signed, what it follows."""
CURSOR = ["SELECT stream", "SELECT cursor"]
LONG = [f"message {at}: " + "word " * 20 for at in range(60)]
SHORT = {"messages": ["a summary of everything that was said", *LONG[-2:]]}


@pytest.fixture
def store(path):
    with cpstore.open(path, signer=Signer.from_seed(bytes(range(32)))) as store:
        yield store


def connection(store):
    return store._journal.backend._link()._connection


@contextmanager
def traced(store):
    """Collect the statements that run, each as its verb and its table; names that are looked up once are left out."""
    seen = []

    def note(sql):
        words = re.findall(r"[A-Za-z_]+", sql)
        if words[0] == "SELECT":
            seen.append("SELECT " + words[words.index("FROM") + 1])
        else:
            seen.append(" ".join(words[: 3 if words[0] in ("INSERT", "DELETE") else 2]))

    connection(store).set_trace_callback(note)
    try:
        yield seen
    finally:
        connection(store).set_trace_callback(None)


def entries(store):
    return connection(store).execute("SELECT count(*) FROM entry").fetchone()[0]


def warm(store, lineage=None):
    peer = store.ledger("board").join("peer", lineage=lineage)
    seen = peer.write("a", 0)
    for turn in range(3):
        seen = peer.write("a", turn, seen=seen)
    return peer, seen


def test_a_write_of_a_peer_is_seven_statements_as_a_commit_is(store):
    peer, seen = warm(store)
    with traced(store) as statements:
        peer.write("a", "next", seen=seen)
    assert statements == WRITE


def test_a_batch_costs_no_more_statements_than_a_write(store):
    peer, seen = warm(store)
    with traced(store) as statements:
        peer.write_batch({f"key {at}": at for at in range(50)} | {"a": 1}, seen=[seen])
    assert statements == WRITE


def test_a_write_of_a_lineages_peer_also_looks_at_the_lineage(store):
    task = store.lineage("task")
    task.commit({"messages": LONG}, step=1)
    peer, seen = warm(store, task)
    with traced(store) as statements:
        peer.write("a", "next", seen=seen)
    assert statements == [*WRITE[:3], *NEWEST, *WRITE[3:]]


def test_the_statements_of_a_write_do_not_grow_with_the_ledger(store):
    counts = []
    for size in (10, 400):
        board = store.ledger(f"board {size}")
        peer = board.join("peer")
        for at in range(10):
            board.join(f"other {at}")
        peer.write_batch({f"key {at}": at for at in range(size)})
        peer.write("key 0", 1, seen=peer.read("key 0"))
        seen = peer.read("key 0")
        with traced(store) as statements:
            peer.write("key 0", 2, seen=seen)
        counts.append(statements)
    assert counts == [WRITE, WRITE]


def test_a_first_read_writes_one_entry_and_the_second_nothing(store):
    warm(store)
    other = store.ledger("board").join("other")
    before = entries(store)
    other.read("a")
    assert entries(store) == before + 1
    with traced(store) as statements:
        other.read("a")
    assert statements == ["BEGIN", *NEWEST, "COMMIT"] and entries(store) == before + 1
    other.read_all()
    assert entries(store) == before + 1


def test_what_a_peer_has_written_it_reads_without_an_entry(store):
    peer, _ = warm(store)
    before = entries(store)
    peer.read("a")
    peer.read_all()
    store.ledger("board").read("a")
    assert entries(store) == before


def test_a_read_of_all_keys_for_the_first_time_is_one_entry(store):
    peer, _ = warm(store)
    peer.write_batch({f"key {at}": at for at in range(100)})
    other = store.ledger("board").join("other")
    before = entries(store)
    other.read_all()
    assert entries(store) == before + 1


def test_revalidating_what_an_active_peer_knows_writes_nothing(store):
    peer, _ = warm(store)
    before = entries(store)
    peer.revalidate(peer.read_all())
    assert entries(store) == before


def test_a_refused_write_adds_nothing_and_an_uncited_one_its_doubt(store):
    peer, seen = warm(store)
    other = store.ledger("board").join("other")
    stale = other.read("a")
    peer.write("a", "next", seen=seen)
    before = entries(store)
    with pytest.raises(cpstore.errors.StaleWriteError):
        other.write("a", 1, seen=stale)
    assert entries(store) == before
    for _ in range(2):
        with pytest.raises(cpstore.errors.CompactionConsistencyError):
            other.write("a", 1)
    assert entries(store) == before + 1


def test_a_poll_is_one_look_and_two_rows_for_each_event_before_the_newest(store):
    peer, _ = warm(store)
    loud = store.ledger("board").join("loud")
    peer.poll()
    for told in range(1, 4):
        loud.compacted(f"report {told}")
        peer.poll()
        with traced(store) as statements:
            assert len(peer.poll()) == told
        before = ["SELECT entry"] * 2 * (told - 1)
        assert statements == ["BEGIN", *CURSOR, *NEWEST, *before, "COMMIT"]


def test_an_acknowledgement_is_one_row_and_no_entry(store):
    peer, _ = warm(store)
    store.ledger("board").join("loud").compacted("once")
    (event,) = peer.poll()
    before = entries(store)
    changes = connection(store).total_changes
    peer.ack(event.position)
    assert connection(store).total_changes == changes + 1 and entries(store) == before
    peer.ack(event.position)
    assert connection(store).total_changes == changes + 1


def test_waiting_looks_at_the_change_counter_alone(store):
    peer, _ = warm(store)
    peer.wait(0)
    with traced(store) as statements:
        assert not peer.wait(0.3)
    first, *looks = statements
    look = ["BEGIN", *CURSOR, *NEWEST, "COMMIT"]
    assert (first, looks[: len(look)]) == ("PRAGMA data_version", look)
    assert len(looks) > len(look) + 3 and set(looks[len(look) :]) == {first}


def test_an_act_of_a_lineage_adds_one_entry_and_one_for_each_ledger_that_is_told(store):
    task = store.lineage("task")
    task.commit({"messages": LONG}, step=1)
    for name in ("one", "two"):
        store.ledger(name).join("peer", lineage=task)
    for act, added in (
        (lambda: task.commit({"messages": [*LONG, "x"]}, step=1), 1),
        (lambda: task.commit({"messages": LONG}, step=1), 3),
        (lambda: task.commit({"messages": LONG}, step=1, define=[Binding("done", "merged")]), 3),
        (lambda: task.commit({"messages": LONG}, step=1, define=[Binding("here", "x", scope=Scope.STEP_LOCAL)]), 1),
        (lambda: task.compact(SHORT, summary="/messages/0"), 3),
        (lambda: task.restore(1), 3),
    ):
        before = entries(store)
        act()
        assert entries(store) == before + added


def test_a_lineage_without_ledgers_pays_nothing_for_them(store):
    task, member = store.lineage("task"), store.lineage("member")
    for lineage in (task, member):
        lineage.commit({"messages": LONG}, step=1)
    store.ledger("board").join("peer", lineage=member)
    for lineage in (task, member):
        with lineage.edit(step=1) as edit:
            edit.append("/messages", "x")
    with traced(store) as plain, task.edit(step=1) as edit:
        edit.append("/messages", "x")
    assert plain == WRITE
    with traced(store) as told, member.edit(step=1) as edit:
        edit.append("/messages", "x")
    assert (told[:3], told[-4:]) == (WRITE[:3], WRITE[3:])
    assert "SELECT cursor" in told  # what it has acknowledged; the ledger itself is read where there is news
    assert len([statement for statement in told if statement == "SELECT segment"]) <= 1


def test_joining_again_writes_nothing(store):
    task = store.lineage("task")
    task.commit({"messages": LONG}, step=1)
    board = store.ledger("board")
    before = entries(store)
    board.join("peer", lineage=task)
    assert entries(store) == before + 2  # the ledger's own, and the lineage's
    for _ in range(3):
        board.join("peer", lineage=task)
    assert entries(store) == before + 2
    board.join("renamed", lineage=task)
    assert entries(store) == before + 3
