"""Shared ledgers on a real store: cited writes, doubt, memberships that outlive everything, and what peers are told."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing

import pytest
from store_cases import content

import cpstore
from cpstore import ABSENT, Authority, Binding, Directive, Retirement, Scope, Status, Supersession
from cpstore.errors import (
    ConflictError,
    InvalidStateError,
    NotFoundError,
    PeerReadOnlyError,
    RevisionConflictError,
    SemanticDriftError,
    StaleWriteError,
    StorageError,
)
from cpstore.model.ledger import Seen

DONE = Binding("done", "merged")
ORDER = Directive(Authority.USER, "message 3", "from now on")
LONG = [f"message {at}: " + "word " * 20 for at in range(60)]
SHORT = {"messages": ["a summary of everything that was said", *LONG[-2:]]}


@pytest.fixture
def store(path):
    with cpstore.open(path, durability="normal") as store:
        yield store


@pytest.fixture
def board(store):
    return store.ledger("release-7")


@pytest.fixture
def task(store):
    lineage = store.lineage("task")
    lineage.commit({"messages": LONG}, step=1)
    return lineage


def worker(store, name, *bindings):
    lineage = store.lineage(name)
    lineage.commit({"messages": LONG}, step=1, define=bindings)
    return lineage


def compact(lineage, **changed):
    return lineage.compact(SHORT, summary="/messages/0", **changed)


def entries(store):
    return store.stats()["entries"]


def refused(store, error, act):
    """An act that raises and writes no entry."""
    before = entries(store)
    with pytest.raises(error) as found:
        act()
    assert entries(store) == before
    return found.value


# --- citations ---------------------------------------------------------------------------------------------------


def test_a_write_cites_what_was_read_and_becomes_what_the_next_one_cites(board):
    one, two = board.join("one"), board.join("two")
    first = one.write("key", {"n": 1})
    assert (first.revision, first.value) == (1, {"n": 1}) and one.read("key") == first
    seen = two.read("key")
    assert (seen.key, seen.revision, seen.digest, seen.ledger) == ("key", 1, first.digest, "release-7")
    second = two.write("key", {"n": 2}, seen=seen)
    third = two.write("key", {"n": 3}, seen=second)
    assert third.revision == 3 and one.read("key").value == {"n": 3}
    assert one.write("key", {"n": 4}, seen=one.read("key").seen).revision == 4
    assert [(found.revision, found.value, found.peer) for found in board.history("key")] == [
        (4, {"n": 4}, "one"),
        (3, {"n": 3}, "two"),
        (2, {"n": 2}, "two"),
        (1, {"n": 1}, "one"),
    ]


@pytest.mark.parametrize(
    "cite",
    [
        lambda now: Seen("release-7", "key", 1, "0" * 64, now.position),  # equal revision, another value
        lambda now: Seen("release-7", "key", now.revision + 1, now.digest, now.position),  # newer than exists
        lambda now: Seen("release-7", "key", now.revision - 1, now.digest, now.position),  # older, by number alone
        lambda now: ABSENT,
    ],
)
def test_what_is_not_the_current_value_is_stale_and_nobody_becomes_suspect(store, board, cite):
    peer = board.join("peer")
    now = peer.write("key", 2, seen=peer.write("key", 1))
    error = refused(store, StaleWriteError, lambda: peer.write("key", 3, seen=cite(now)))
    assert [key for key, _, _ in error.stale] == ["key"] and not error.suspect
    assert peer.status is Status.ACTIVE and peer.read("key").value == 2


def test_of_two_that_read_the_same_the_second_is_refused_with_both_values(store, board):
    one, two = board.join("one"), board.join("two")
    one.write("key", 1)
    mine, theirs = one.read("key"), two.read("key")
    one.write("key", 2, seen=mine)
    error = refused(store, StaleWriteError, lambda: two.write("key", 3, seen=theirs))
    ((key, cited, current),) = error.stale
    assert key == "key" and "revision 1" in cited and "revision 2" in current
    assert two.write("key", 3, seen=two.read("key")).revision == 3


def test_a_value_that_came_back_is_still_another_revision(board):
    peer = board.join("peer")
    first = peer.write("key", "a")
    third = peer.write("key", "a", seen=peer.write("key", "b", seen=first))
    assert third.digest == first.digest
    with pytest.raises(StaleWriteError):
        peer.write("key", "c", seen=first)


def test_a_write_without_a_citation_makes_the_peer_suspect_durably(store, board, path):
    one, two = board.join("one"), board.join("two")
    one.write("key", 1)
    one.write("other", 1)
    with pytest.raises(StaleWriteError) as refusal:
        two.write("key", 2)
    assert refusal.value.suspect and two.read("key").value == 1
    assert two.status is Status.SUSPECT and two.membership.cause == "uncited write"
    with cpstore.open(path, durability="normal") as again:
        assert again.ledger("release-7").join("two").status is Status.SUSPECT


def test_a_suspect_peer_may_not_write_even_what_it_has_not_read(board):
    one, two = board.join("one"), board.join("two")
    one.write("key", 1)
    with pytest.raises(StaleWriteError):
        two.write("key", 2)
    with pytest.raises(PeerReadOnlyError) as refusal:
        two.write("new", 1, seen=ABSENT)
    assert (refusal.value.status, refusal.value.peer) == ("suspect", "two")
    two.revalidate([two.read("key")])
    assert two.status is Status.ACTIVE and two.write("new", 1, seen=ABSENT).revision == 1


def test_a_batch_is_all_or_nothing_and_one_entry(store, board):
    peer = board.join("peer")
    peer.write("a", 1)
    before = entries(store)
    made = peer.write_batch({"c": 3, "a": 2, "b": 2}, seen=[peer.read("a")])
    assert entries(store) == before + 1
    assert [(found.key, found.revision) for found in made] == [("a", 2), ("b", 1), ("c", 1)]
    assert len({found.position for found in made}) == 1
    stale = {"a": made[0], "b": ABSENT, "d": ABSENT}
    error = refused(store, StaleWriteError, lambda: peer.write_batch({"a": 3, "b": 3, "d": 1}, seen=stale))
    assert [key for key, _, _ in error.stale] == ["b"]
    assert board.keys() == ["a", "b", "c"] and peer.read("a").value == 2


def test_values_are_copies_on_the_way_in_and_out(board):
    peer = board.join("peer")
    given = {"list": [1]}
    made = peer.write("key", given)
    given["list"].append(2)
    assert made.value == {"list": [1]}
    made.value["list"].append(3)
    read = peer.read("key")
    assert read.value == {"list": [1]}
    read.value["list"].append(4)
    board.read("key").value.clear()
    next(board.history("key")).value.clear()
    assert peer.read("key").value == {"list": [1]} and peer.read_all()[0].value == {"list": [1]}


@pytest.mark.parametrize("value", [None, 0, "", [], {}, (1, 2), b"\0", {"a": float("inf")}, 1 << 80, "\ud800"])
def test_every_value_that_a_state_may_hold_is_a_value(board, value):
    peer = board.join("peer")
    peer.write("key", value)
    assert peer.read("key").value == value and type(peer.read("key").value) is type(value)
    assert peer.write("key", 1, seen=peer.read("key")).revision == 2


# --- what is wrong -----------------------------------------------------------------------------------------------

BAD = {
    "a citation of another type": lambda peer: peer.write("key", 2, seen=7),
    "a citation of another key": lambda peer: peer.write("new", 2, seen=peer.read("key")),
    "a citation of another ledger": lambda peer: peer.write("key", 2, seen=Seen("other", "key", 1, "0" * 64, 1)),
    "a malformed citation": lambda peer: peer.write("key", 2, seen=Seen("release-7", "key", 0, "x", 1)),
    "a key of another type": lambda peer: peer.write(["key"], 2),
    "a blank key": lambda peer: peer.write(" key", 2),
    "no keys": lambda peer: peer.write_batch({}),
    "a batch that is no mapping": lambda peer: peer.write_batch([("key", 2)]),
    "citations that are no list": lambda peer: peer.write_batch({"new": 1}, seen=5),
    "citations of what is not written": lambda peer: peer.write_batch({"new": 1}, seen={"key": ABSENT, 3: ABSENT}),
    "two citations of one key": lambda peer: peer.write_batch({"key": 1}, seen=[peer.read("key"), peer.read("key")]),
    "a value that cannot be stored": lambda peer: peer.write("new", {"deep": [object()]}),
    "reads that are no list": lambda peer: peer.revalidate(peer.read("key")),
    "reads of another type": lambda peer: peer.revalidate([5]),
    "an absence as a read": lambda peer: peer.revalidate([ABSENT]),
    "a limit": lambda peer: peer.poll(limit=-1),
    "a timeout": lambda peer: peer.wait("soon"),
    "a position": lambda peer: peer.ack("1"),
    "a position that was not delivered": lambda peer: peer.ack(99),
    "an empty report": lambda peer: peer.compacted(" "),
    "a report that is no text": lambda peer: peer.compacted(5),
    "a count of tokens": lambda peer: peer.compacted("shorter", tokens_before=-1),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_a_typed_error_and_writes_nothing(store, board, what):
    peer = board.join("peer")
    peer.write("key", 1)
    refused(store, InvalidStateError, lambda: BAD[what](peer))
    assert peer.status is Status.ACTIVE and peer.write("key", 2, seen=peer.read("key")).revision == 2


@pytest.mark.parametrize(
    ("error", "act"),
    [
        (InvalidStateError, lambda store, board: board.join(5)),
        (InvalidStateError, lambda store, board: board.join("")),
        (InvalidStateError, lambda store, board: board.join("x", lineage="task")),
        (InvalidStateError, lambda store, board: board.join("x", lineage=store.lineage("task", namespace="other"))),
        (NotFoundError, lambda store, board: board.join("x", lineage=store.lineage("nobody"))),
        (ConflictError, lambda store, board: board.join("peer", lineage=store.lineage("task"))),
        (NotFoundError, lambda store, board: board.read("nothing")),
        (InvalidStateError, lambda store, board: board.read(5)),
        (NotFoundError, lambda store, board: board.history("nothing")),
        (InvalidStateError, lambda store, board: board.history(5)),
        (InvalidStateError, lambda store, board: board.events(after="x")),
        (NotFoundError, lambda store, board: board.join("peer").read("nothing")),
        (InvalidStateError, lambda store, board: store.ledger("")),
        (InvalidStateError, lambda store, board: store.ledger("a", namespace=5)),
    ],
)
def test_a_ledger_refuses_what_cannot_be(store, board, task, error, act):
    board.join("peer")
    refused(store, error, lambda: act(store, board))


def test_a_closed_store_and_a_read_only_one_refuse_in_their_own_words(path, store, board, task):
    peer = board.join("peer")
    kept = peer.write("key", 1)
    with cpstore.open(path, read_only=True) as reader:
        other = reader.ledger("release-7")
        assert other.keys() == ["key"] and [member.peer for member in other.peers()] == ["peer"]
        assert other.read("key").value == 1 and [found.value for found in other.history("key")] == [1]
        with pytest.raises(StorageError):
            other.join("peer")
    store.close()
    acts = [
        peer.poll,
        peer.read_all,
        peer.leave,
        board.peers,
        lambda: peer.read("key"),
        lambda: peer.write("key", 2, seen=kept),
        lambda: peer.ack(1),
        lambda: peer.wait(0.1),
        lambda: peer.revalidate([]),
        lambda: peer.compacted("shorter"),
        lambda: peer.status,
        lambda: board.join("peer"),
    ]
    before = content(path)
    for act in acts:
        with pytest.raises(StorageError):
            act()
    assert content(path) == before


def test_a_peer_of_one_ledger_is_nobody_in_another(store, board):
    board.join("peer").write("key", 1)
    other = store.ledger("other").join("peer")
    assert not store.ledger("nobody's").exists and store.ledger("other").keys() == []
    with pytest.raises(NotFoundError):
        other.read("key")
    refused(store, InvalidStateError, lambda: other.write("key", 2, seen=board.read("key")))
    assert [ledger.id for ledger in store.ledgers()] == ["other", "release-7"]
    assert list(store.ledgers(namespace="elsewhere")) == []


def test_the_same_name_in_two_namespaces_is_two_ledgers(store, board):
    there = store.ledger("release-7", namespace="other")
    board.join("peer").write("key", "here")
    there.join("peer").write("key", "there")
    assert (board.read("key").value, there.read("key").value) == ("here", "there")
    assert {(ledger.namespace, ledger.id) for ledger in store.ledgers()} == {
        ("default", "release-7"),
        ("other", "release-7"),
    }


# --- a lineage's peers -------------------------------------------------------------------------------------------


def test_a_compaction_makes_the_peer_read_only_and_is_told_in_the_same_transaction(store, board, task):
    other, peer = board.join("other"), board.join("peer", lineage=task)
    other.write("a", 1)
    other.write("b", 1)
    peer.read("a")
    made = compact(task, tokens_before=900, tokens_after=60)
    assert peer.status is Status.READ_ONLY and peer.membership.keys == ("a",)
    (event,) = other.poll()
    assert (event.kind, event.peer, event.lineage, event.revision) == ("compacted", "peer", "task", made.revision)
    assert (event.detail["tokensBefore"], event.detail["tokensAfter"], event.detail["level"]) == (900, 60, 1)
    assert peer.poll() == [event]  # the peer itself hears it too
    with pytest.raises(PeerReadOnlyError) as refusal:
        peer.write("a", 2, seen=peer.read("a"))  # fresh, but not presented
    assert refusal.value.keys == ("a",) and refusal.value.status == "read_only"


def test_after_a_compaction_every_key_that_was_read_or_written_is_presented_though_none_changed(board, task):
    other, peer = board.join("other"), board.join("peer", lineage=task)
    for key in "abc":
        other.write(key, 1)
    early = [peer.read("a"), peer.write("b", 2, seen=peer.read("b"))]
    compact(task)
    with pytest.raises(StaleWriteError) as stale:  # equal values, but read before
        peer.revalidate(early)
    assert [key for key, _, _ in stale.value.stale] == ["a", "b"]
    with pytest.raises(PeerReadOnlyError) as missing:
        peer.revalidate([peer.read("a")])
    assert missing.value.keys == ("b",)
    peer.revalidate([peer.read("a"), peer.read("b")])
    assert peer.status is Status.ACTIVE
    with pytest.raises(StaleWriteError):  # what it presented counts, what it held before does not
        peer.write("a", 3, seen=early[0])
    assert peer.write("a", 3, seen=peer.read("a")).revision == 2
    with pytest.raises(StaleWriteError):  # never read: refused until read
        peer.write("c", 3)


def test_what_was_written_meanwhile_has_to_be_read_again_to_be_presented(board, task):
    other, peer = board.join("other"), board.join("peer", lineage=task)
    seen = other.write("a", 1)
    peer.read("a")
    compact(task)
    read = peer.read("a")
    other.write("a", 2, seen=seen)
    with pytest.raises(StaleWriteError):
        peer.revalidate([read])
    peer.revalidate([peer.read("a")])
    assert peer.status is Status.ACTIVE


def leave_and_join(store, board, peer, task):
    peer.leave()
    return board.join("peer", lineage=task)


def another_name(store, board, peer, task):
    peer.leave()
    return board.join("somebody else", lineage=task)


def rename(store, board, peer, task):
    return board.join("renamed", lineage=task)


def another_handle(store, board, peer, task):
    fresh = store.lineage("task")
    fresh.load()
    return board.join("peer", lineage=fresh)


@pytest.mark.parametrize("way", [leave_and_join, another_name, rename, another_handle])
@pytest.mark.parametrize("cause", ["compaction", "restore", "shrunk"])
def test_no_way_around_clears_a_status(store, board, task, way, cause):
    board.join("other").write("a", 1)
    peer = board.join("peer", lineage=task)
    peer.read("a")
    acts = {
        "compaction": lambda: compact(task),
        "restore": lambda: task.restore(1),
        "shrunk": lambda: task.commit({"messages": LONG[:-1]}, step=1),
    }
    acts[cause]()
    before = peer.membership
    after = way(store, board, peer, task)
    assert after.membership.cause == cause
    assert (after.status, after.membership.keys, after.membership.void) == (before.status, ("a",), before.void)
    with pytest.raises(PeerReadOnlyError):
        after.write("a", 2, seen=after.read("a"))
    after.revalidate(after.read_all())
    assert after.write("a", 2, seen=after.read("a")).revision == 2


def test_a_compaction_while_it_is_away_is_waiting_for_it(board, task):
    board.join("other").write("a", 1)
    peer = board.join("peer", lineage=task)
    early = peer.read("a")
    peer.leave()
    with pytest.raises(InvalidStateError):
        peer.write("a", 2, seen=early)
    for act in (
        lambda: peer.revalidate([early]),
        lambda: peer.read("a"),
        peer.read_all,
        peer.leave,
        lambda: peer.status,
    ):
        with pytest.raises(InvalidStateError):
            act()
    compact(task)
    back = board.join("back", lineage=task)
    assert back.status is Status.READ_ONLY and back.membership.keys == ("a",)
    assert [member.id for member in board.peers()] == ["lineage:task", "peer:other"]


def test_a_lineage_that_compacted_before_joins_as_suspect(board, task):
    compact(task)
    peer = board.join("peer", lineage=task)
    assert peer.status is Status.SUSPECT and peer.membership.cause == "compaction"
    with pytest.raises(PeerReadOnlyError):
        peer.write("a", 1, seen=ABSENT)
    peer.revalidate([])
    assert peer.write("a", 1, seen=ABSENT).revision == 1
    peer.leave()
    assert board.join("peer", lineage=task).status is Status.ACTIVE  # it has revalidated since


def test_a_restored_lineage_joins_as_active(board, task):
    task.commit({"messages": LONG}, step=2)
    task.restore(1)
    assert board.join("peer", lineage=task).status is Status.ACTIVE


def test_a_lineage_in_two_ledgers_is_told_to_both_and_revalidates_in_each(store, task):
    boards = [store.ledger(name) for name in ("one", "two")]
    peers = []
    for ledger in boards:
        ledger.join("other").write("a", 1)
        peers.append(ledger.join("peer", lineage=task))
        peers[-1].read("a")
    before = entries(store)
    compact(task)
    assert entries(store) == before + 3
    for peer, ledger in zip(peers, boards, strict=True):
        assert peer.status is Status.READ_ONLY
        assert [event.kind for event in ledger.events()] == ["compacted"]
    peers[0].revalidate(peers[0].read_all())
    assert [peer.status for peer in peers] == [Status.ACTIVE, Status.READ_ONLY]
    refused(store, InvalidStateError, lambda: peers[1].revalidate(peers[0].read_all()))


def test_a_fork_is_no_member_and_its_compaction_concerns_nobody(board, task):
    peer = board.join("peer", lineage=task)
    child = task.fork("child")
    child.head()
    compact(child)
    assert peer.status is Status.ACTIVE and board.events() == []
    own = board.join("its own", lineage=child)
    assert own.status is Status.SUSPECT and own.membership.id == "lineage:child"
    compact(task)
    assert (peer.status, own.status) == (Status.READ_ONLY, Status.SUSPECT)
    assert [event.lineage for event in board.events()] == ["task"]


def test_a_fork_of_a_compacted_lineage_joins_as_itself(board, task):
    compact(task)
    child = task.fork("child")
    child.head()
    assert board.join("child", lineage=child).status is Status.ACTIVE


@pytest.mark.parametrize("cause", [compact, lambda task: task.restore(1)])
def test_a_zombie_handle_may_not_write_even_with_fresh_reads(store, board, task, cause):
    board.join("other").write("a", 1)
    zombie = store.lineage("task")
    zombie.load()
    ghost = board.join("peer", lineage=zombie)
    living = board.join("peer", lineage=task)
    ghost.read("a")
    cause(task)
    living.revalidate(living.read_all())
    fresh = ghost.read("a")
    error = refused(store, RevisionConflictError, lambda: ghost.write("a", 2, seen=fresh))
    assert (error.expected, error.head) == (1, 2)
    refused(store, RevisionConflictError, lambda: ghost.revalidate([fresh]))
    assert living.write("a", 2, seen=living.read("a")).revision == 2
    zombie.load()
    assert ghost.write("a", 3, seen=ghost.read("a")).revision == 3


def test_a_handle_that_never_looked_may_not_write_once_there_was_a_compaction(store, board, task):
    compact(task)
    blind = store.lineage("task")
    peer = board.join("peer", lineage=blind)
    refused(store, RevisionConflictError, lambda: peer.revalidate([]))


def test_the_peer_of_a_plain_name_reports_by_itself(store, board, task):
    other, peer = board.join("other"), board.join("peer")
    seen = peer.write("a", 1)
    peer.compacted("everything about a, in a line", tokens_before=10)
    assert peer.status is Status.READ_ONLY
    (event,) = other.poll()
    assert (event.kind, event.peer, event.lineage, event.revision) == ("compacted", "peer", None, None)
    assert event.text == "everything about a, in a line" and event.detail["tokensBefore"] == 10
    with pytest.raises(PeerReadOnlyError):
        peer.write("a", 2, seen=seen)
    peer.revalidate([peer.read("a")])
    assert peer.write("a", 2, seen=peer.read("a")).revision == 2
    lineaged = board.join("lineaged", lineage=task)
    refused(store, InvalidStateError, lambda: lineaged.compacted("by another way"))


# --- what counts as a compaction by another name -----------------------------------------------------------------


def test_a_shrinking_commit_makes_the_peer_suspect_and_is_told(store, board, task):
    other, peer = board.join("other"), board.join("peer", lineage=task)
    other.write("a", 1)
    early = peer.read("a")
    made = task.commit({"messages": LONG[1:]}, step=2)
    assert peer.status is Status.SUSPECT and peer.membership.cause == "shrunk"
    (event,) = other.poll()
    assert (event.kind, event.lineage, event.revision) == ("shrunk", "task", made.revision)
    with pytest.raises(StaleWriteError):
        peer.revalidate([early])
    peer.revalidate([peer.read("a")])
    with task.edit(step=3) as edit:
        edit.append("/messages", "more")
    assert peer.status is Status.ACTIVE and len(board.events()) == 1


def test_shrinking_does_not_lift_read_only_nor_its_cause(board, task):
    peer = board.join("peer", lineage=task)
    compact(task)
    task.commit({"messages": []}, step=1)
    assert (peer.status, peer.membership.cause) == (Status.READ_ONLY, "compaction")


def test_a_lineage_without_peers_may_shrink_as_it_likes(store, task):
    before = entries(store)
    task.commit({"messages": []}, step=1)
    assert entries(store) == before + 1


# --- what the members mean ---------------------------------------------------------------------------------------


def test_two_meanings_of_one_symbol_cannot_share_a_ledger(store, board):
    board.join("a", lineage=worker(store, "a", DONE, Binding("same", "x")))
    other = worker(store, "b", Binding("done", "built"), Binding("same", "x", authority=Authority.USER))
    error = refused(store, SemanticDriftError, lambda: board.join("b", lineage=other))
    assert [symbol for symbol, _, _ in error.differences] == ["done"]  # who settled it is no part of the meaning
    assert [member.id for member in board.peers()] == ["lineage:a"]


@pytest.mark.parametrize("other", [{"constraint": "unit: s"}, {"verbatim": True}, {"definition": "else"}])
def test_constraint_and_verbatim_are_part_of_the_meaning(store, board, other):
    board.join("a", lineage=worker(store, "a", Binding("done", "merged")))
    with pytest.raises(SemanticDriftError):
        board.join("b", lineage=worker(store, "b", Binding(**{"symbol": "done", "definition": "merged", **other})))


def test_what_only_holds_for_a_step_clashes_with_nobody(store, board):
    board.join("a", lineage=worker(store, "a", DONE))
    local = worker(store, "b", Binding("done", "built", scope=Scope.STEP_LOCAL))
    assert board.join("b", lineage=local).status is Status.ACTIVE


def test_a_supersession_is_told_and_a_clash_refused_at_the_next_write_of_either_side(store, board):
    one, two = worker(store, "one", DONE, Binding("same", "x")), worker(store, "two", DONE, Binding("same", "x"))
    first, second, third = board.join("first", lineage=one), board.join("second", lineage=two), board.join("third")
    seen = {peer.name: peer.write(peer.name, 1) for peer in (first, second, third)}
    made = one.commit({"messages": LONG}, step=2, supersede=[Supersession(Binding("done", "built"), ORDER)])
    (event,) = third.poll()
    assert (event.kind, event.peer, event.revision) == ("superseded", "first", made.revision)
    assert event.detail["superseded"] == {"done": "built"} and event.detail["retired"] == []
    for peer in (first, second):
        error = refused(store, SemanticDriftError, lambda peer=peer: peer.write(peer.name, 2, seen=seen[peer.name]))
        assert [symbol for symbol, _, _ in error.differences] == ["done"]
    assert third.write("third", 2, seen=seen["third"]).revision == 2  # who means nothing by it clashes with nobody
    two.commit({"messages": LONG}, step=2, supersede=[Supersession(Binding("done", "built"), ORDER)])
    assert (
        first.write("first", 2, seen=seen["first"]).revision == second.write("second", 2, seen=seen["second"]).revision
    )


def test_a_clash_ends_when_one_of_them_leaves_or_retires_the_symbol(store, board):
    one, two = worker(store, "one", DONE), worker(store, "two", DONE)
    first, second = board.join("first", lineage=one), board.join("second", lineage=two)
    one.commit({"messages": LONG}, step=2, supersede=[Supersession(Binding("done", "built"), ORDER)])
    with pytest.raises(SemanticDriftError):
        second.write("a", 1)
    first.leave()
    seen = second.write("a", 1)
    with pytest.raises(SemanticDriftError):
        board.join("first", lineage=one)
    two.commit({"messages": LONG}, step=2, retire=[Retirement("done", ORDER)])
    assert board.events()[-1].detail["retired"] == ["done"]
    assert board.join("first", lineage=one).write("b", 1).revision == second.write("a", 2, seen=seen).revision - 1


def test_a_new_definition_of_a_member_is_compared_too(store, board):
    one, two = worker(store, "one"), worker(store, "two")
    first, second = board.join("first", lineage=one), board.join("second", lineage=two)
    one.commit({"messages": LONG}, step=2, define=[DONE])
    assert board.events() == [] and second.write("a", 1).revision == 1
    two.commit({"messages": LONG}, step=2, define=[Binding("done", "built")])
    for peer in (first, second):
        with pytest.raises(SemanticDriftError):
            peer.write("b", 1)


def test_a_supersession_while_compacting_is_compared_with_the_others(store, board):
    one, two = worker(store, "one", DONE), worker(store, "two", DONE)
    board.join("first", lineage=one)
    second = board.join("second", lineage=two)
    compact(one, supersede=[Supersession(Binding("done", "built"), ORDER)])
    with pytest.raises(SemanticDriftError):
        second.write("a", 1)


# --- events and cursors ------------------------------------------------------------------------------------------


def test_events_come_in_order_until_they_are_acknowledged(board):
    peer, loud = board.join("peer"), board.join("loud")
    for at in range(5):
        loud.compacted(f"report {at}")
    events = peer.poll()
    assert [event.text for event in events] == [f"report {at}" for at in range(5)] == [e.text for e in peer.poll()]
    assert [event.position for event in events] == sorted({event.position for event in events})
    peer.ack(events[1].position)
    assert [event.text for event in peer.poll(limit=2)] == ["report 2", "report 3"]
    assert peer.poll(limit=0) == [] and len(peer.poll(limit=None)) == 3
    peer.ack(events[0].position)  # what is acknowledged already changes nothing
    assert len(peer.poll()) == 3


def test_only_what_was_delivered_to_this_handle_is_acknowledged(board):
    peer, loud = board.join("peer"), board.join("loud")
    for at in range(3):
        loud.compacted(f"report {at}")
    first, second = peer.poll(limit=2)
    last = board.events()[-1]
    with pytest.raises(InvalidStateError):
        peer.ack(last.position)
    assert peer.poll(limit=1) == [first]  # a shorter look does not take back what was given
    other = board.join("peer")  # another handle was given nothing yet
    with pytest.raises(InvalidStateError):
        other.ack(first.position)
    peer.ack(second.position)
    assert [event.position for event in other.poll()] == [last.position]


def test_a_peer_hears_what_was_told_since_it_joined_and_while_it_was_away(board):
    loud = board.join("loud")
    loud.compacted("before")
    peer = board.join("peer")
    assert peer.poll() == []
    peer.leave()
    loud.compacted("meanwhile")
    assert [event.text for event in board.join("peer").poll()] == ["meanwhile"]


def test_a_cursor_row_that_is_lost_delivers_again_and_nothing_is_wrong(store, board, path):
    peer, loud = board.join("peer"), board.join("loud")
    loud.compacted("once")
    peer.ack(peer.poll()[0].position)
    assert peer.poll() == []
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("DELETE FROM cursor").rowcount
        db.commit()
    assert [event.text for event in peer.poll()] == ["once"]
    assert store.verify().good


def test_a_restore_sets_the_cursor_back_to_what_the_state_had_heard(store, board, task):
    peer, loud = board.join("peer", lineage=task), board.join("loud")
    loud.compacted("one")
    peer.ack(peer.poll()[0].position)
    heard = task.commit({"messages": [*LONG, "one"]}, step=2).revision
    loud.compacted("two")
    peer.ack(peer.poll()[0].position)
    task.commit({"messages": [*LONG, "one", "two"]}, step=3)
    assert peer.poll() == []
    task.restore(heard)
    events = peer.poll()
    assert [(event.kind, event.text) for event in events[:1]] == [("compacted", "two")]
    assert [event.kind for event in events] == ["compacted", "restored"]
    assert peer.status is Status.READ_ONLY and events[1].detail == {"to": heard}
    assert [event.kind for event in loud.poll()] == ["compacted", "compacted", "restored"]
    assert store.verify().good


def test_a_compaction_and_a_restore_carry_what_was_acknowledged_too(board, task):
    peer, loud = board.join("peer", lineage=task), board.join("loud")
    loud.compacted("one")
    peer.ack(peer.poll()[0].position)
    compacted = compact(task).revision
    peer.ack(peer.poll()[-1].position)
    restored = task.restore(compacted).revision
    assert [event.kind for event in peer.poll()] == ["compacted", "restored"]
    peer.ack(peer.poll()[-1].position)
    task.restore(restored)
    assert [event.kind for event in peer.poll()] == ["compacted", "restored", "restored"]


def test_a_restore_to_before_it_joined_lets_it_hear_everything(board, task):
    loud = board.join("loud")
    task.commit({"messages": [*LONG, "x"]}, step=2)
    peer = board.join("peer", lineage=task)
    loud.compacted("heard, but not by the restored state")
    peer.ack(peer.poll()[0].position)
    task.restore(1)
    assert [event.kind for event in peer.poll()] == ["compacted", "restored"]


def test_a_restore_changes_no_value_and_no_other_peer(store, board, task):
    other, peer = board.join("other"), board.join("peer", lineage=task)
    seen = peer.write("a", 1)
    task.commit({"messages": [*LONG, "x"]}, step=2)
    other.write("a", 2, seen=other.read("a"))
    task.restore(1)
    assert board.read("a").value == 2 and other.status is Status.ACTIVE and peer.status is Status.READ_ONLY
    with pytest.raises(PeerReadOnlyError):
        peer.write("a", 3, seen=seen)


def test_waiting_ends_with_an_event_or_with_the_time(board, store, path):
    peer, loud = board.join("peer"), board.join("loud")
    assert peer.wait(0) is False and peer.wait(0.02) is False
    other = cpstore.open(path, durability="normal")
    told = threading.Timer(0.05, lambda: other.ledger("release-7").join("loud").compacted("now"))
    told.start()
    assert peer.wait(20) is True
    told.join()
    (event,) = peer.poll()
    assert peer.wait(0) is False  # delivered, though not acknowledged
    assert event.text == "now"
    loud.compacted("again")
    assert peer.wait(0) is True
    other.close()


# --- one store, many hands ---------------------------------------------------------------------------------------


def test_two_stores_on_one_file_see_each_others_values(path, store, board):
    with cpstore.open(path, durability="normal") as second:
        there = second.ledger("release-7")
        mine, theirs = board.join("mine"), there.join("theirs")
        mine.write("n", 0)
        for turn in range(1, 20):
            peer = (mine, theirs)[turn % 2]
            assert peer.write("n", turn, seen=peer.read("n")).revision == turn + 1
        assert mine.read("n").value == theirs.read("n").value == 19
    assert store.verify().good


def test_threads_that_write_one_key_lose_nothing(store, board):
    board.join("first").write("n", 0)
    refusals = []

    def count(name):
        peer = board.join(name)
        done = 0
        while done < 20:
            seen = peer.read("n")
            try:
                peer.write("n", seen.value + 1, seen=seen)
                done += 1
            except StaleWriteError as error:
                refusals.append(error.suspect)

    threads = [threading.Thread(target=count, args=(f"peer {at}",)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert board.read("n").value == 80 and not any(refusals)
    assert [found.value for found in board.history("n")] == list(range(80, -1, -1))


def test_everything_is_there_after_a_reopen(path):
    with cpstore.open(path, durability="normal") as store:
        task = worker(store, "task", DONE)
        board = store.ledger("release-7")
        peer, other = board.join("peer", lineage=task), board.join("other")
        for at in range(300):  # more than a segment
            peer.write("n", at, seen=peer.read("n") if at else None)
        compact(task)
        before = board.peers(), board.events(), board.read("n").value
    with cpstore.open(path, durability="normal") as store:
        board = store.ledger("release-7")
        assert (board.peers(), board.events(), board.read("n").value) == before
        assert [event.kind for event in board.join("other").poll()] == ["compacted"]
        assert [found.value for found in board.history("n")] == list(range(299, -1, -1))
        assert store.verify().good
    assert other.name == "other"
