"""Somebody alters a ledger with plain SQL, or with a release that forgets to tell: verify names it."""

from __future__ import annotations

import itertools
import sqlite3
from contextlib import closing

import pytest

import cpstore
from cpstore import Signer, canonical
from cpstore.digest import Frontier
from cpstore.errors import CheckpointStoreError, CorruptError
from cpstore.lineage import commits, compacting, restoring
from cpstore.model.ledger import Member, Status
from cpstore.streams import telling
from cpstore.streams.board import Board

SIGNER = Signer.from_seed(bytes(range(32)))
LONG = [f"message {at}: " + "word " * 20 for at in range(60)]
SHORT = {"messages": ["a summary of everything that was said", *LONG[-2:]]}


def opened(path, **options):
    return cpstore.open(path, signer=SIGNER, clock=itertools.count(10**15, 1000).__next__, **options)


def fill(store):
    task = store.lineage("task")
    task.commit({"messages": LONG}, step=1)
    board = store.ledger("board")
    peer, other = board.join("peer", lineage=task), board.join("other")
    seen = peer.write("a", {"n": 1})
    seen = peer.write("a", {"n": 2}, seen=seen)
    other.read("a")
    task.compact(SHORT, summary="/messages/0")
    peer.revalidate([peer.read("a")])
    peer.write("a", {"n": 3}, seen=peer.read("a"))
    return task, board, peer, other


@pytest.fixture
def sample(path, small):
    with opened(path) as store:
        fill(store)
    return path


def rewrite(path, *statements):
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA foreign_keys = OFF")
        triggers = db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            db.execute(f"DROP TRIGGER {name}")
        for sql, *values in statements:
            assert db.execute(sql, values).rowcount != 0, sql
        for _, sql in triggers:
            db.execute(sql)
        db.commit()


def rows(path, name, seqs):
    """Return the ids of a stream's entries."""
    with closing(sqlite3.connect(path)) as db:
        (number,) = db.execute("SELECT no FROM stream WHERE name = ?", (name,)).fetchone()
    return [number << 32 | seq for seq in seqs]


def kinds(path, name):
    """Return the kinds of a stream's entries, by seq."""
    with closing(sqlite3.connect(path)) as db:
        (number,) = db.execute("SELECT no FROM stream WHERE name = ?", (name,)).fetchone()
        found = db.execute("SELECT id & 4294967295, kind FROM entry WHERE id >> 32 = ?", (number,)).fetchall()
    return dict(found)


def found(path):
    try:
        with opened(path, read_only=True) as store:
            return {finding.id: finding for finding in reversed(store.verify().findings)}
    except CheckpointStoreError as error:
        return {"open": error}


def test_the_attacks_start_from_a_sound_store(sample):
    assert found(sample) == {}
    assert set(kinds(sample, "board").values()) == {11, 12, 13}


def test_an_altered_detail_of_any_entry_of_a_ledger_is_named(sample):
    for seq in kinds(sample, "board"):
        with closing(sqlite3.connect(sample)) as db:
            (place,) = rows(sample, "board", [seq])
            (detail,) = db.execute("SELECT detail FROM entry WHERE id = ?", (place,)).fetchone()
        value = canonical.decode(detail)
        value["member"] = "peer:nobody"
        rewrite(sample, ("UPDATE entry SET detail = ? WHERE id = ?", canonical.encode(value), place))
        finding = found(sample)["signature"]
        assert finding.lineage == "board"
        rewrite(sample, ("UPDATE entry SET detail = ? WHERE id = ?", detail, place))
    assert found(sample) == {}


@pytest.mark.parametrize("seq", range(1, 9))
def test_an_entry_that_was_taken_out_of_a_ledger_is_named(sample, seq):
    assert max(kinds(sample, "board")) == 8
    rewrite(sample, ("DELETE FROM entry WHERE id = ?", *rows(sample, "board", [seq])))
    named = found(sample)
    if seq == 8:
        assert {"truncated", "stray"} & set(named)
    else:
        assert named["gap"].lineage == "board" and f"entry {seq} " in named["gap"].text


def test_altered_bytes_of_the_tree_are_named(sample):
    with closing(sqlite3.connect(sample)) as db:
        (number,) = db.execute("SELECT no FROM stream WHERE name = 'board'").fetchone()
        sealed = db.execute("SELECT count(*) FROM segment WHERE id >> 32 = ?", (number,)).fetchone()[0]
        places = [row[0] for row in db.execute("SELECT id FROM tail WHERE id >> 32 = ?", (number,))]
    assert sealed and places
    rewrite(sample, ("UPDATE tail SET block = zeroblob(length(block)) WHERE id = ?", places[0]))
    assert found(sample)["damaged-bytes"].lineage == "board"
    with opened(sample) as store, pytest.raises(CorruptError):
        store.ledger("board").read("a")


def test_a_sealed_part_of_the_tree_that_is_gone_is_named(sample):
    rewrite(
        sample,
        ("DELETE FROM segment WHERE id >> 32 = (SELECT no FROM stream WHERE name = 'board')",),
    )
    assert found(sample)["damaged-bytes"].lineage == "board"


def test_a_ledger_that_is_gone_is_named_and_its_member_commits_no_more(sample):
    low, high = (place for place in rows(sample, "board", [0, 1 << 30]))
    rewrite(
        sample,
        *[(f"DELETE FROM {table} WHERE id BETWEEN ? AND ?", low, high) for table in ("entry", "tail", "segment")],
        ("DELETE FROM cursor",),
        ("DELETE FROM stream WHERE name = 'board'",),
    )
    assert "log-gap" in found(sample)
    with opened(sample) as store:
        task = store.lineage("task")
        with pytest.raises(CorruptError):
            task.commit({"messages": []}, step=9, expected_revision=task.head().revision)


def cut(path, *names):
    """Take the last entry of each stream away, and mend what can be mended without the keys: log, note, cursors."""
    for name in names:
        (place,) = rows(path, name, [max(kinds(path, name))])
        rewrite(path, ("DELETE FROM entry WHERE id = ?", place))
        with closing(sqlite3.connect(path)) as db:
            db.execute("DELETE FROM tail WHERE id = ?", (place,))
            db.commit()
    with opened(path, read_only=True) as store:
        journal = store._journal
        with journal.backend.read() as tx:
            leaves, frontier = dict(_leaves(journal, tx)), Frontier()
    for at in sorted(leaves):
        frontier.append(leaves[at])
    rewrite(path, ("DELETE FROM note",), ("UPDATE log SET size = ?, frontier = ?", frontier.size, frontier.pack()))


def _leaves(journal, tx):
    from cpstore.model.entry import StreamKind, link_of

    for kind in StreamKind:
        for number, _ in tx.streams(kind):
            before = None
            for entry in tx.entries(number, 1, 1 << 30):
                yield entry.leaf, journal.leaf(entry, link_of(before))
                before = entry


@pytest.mark.parametrize("act", ["compaction", "restore"])
def test_a_broadcast_cut_off_with_the_log_mended_is_named_by_the_lineage_that_was_to_be_told(path, act):
    with opened(path) as store:
        task = store.lineage("task")
        task.commit({"messages": LONG}, step=1)
        store.ledger("board").join("peer", lineage=task)
        task.compact(SHORT, summary="/messages/0") if act == "compaction" else task.restore(1)
    cut(path, "board")
    named = found(path)
    assert set(named) == {"broadcasts"}
    assert (named["broadcasts"].lineage, named["broadcasts"].revisions) == ("task", (2,))
    assert "has not told" in named["broadcasts"].text


def test_what_a_lineage_did_before_it_joined_was_nobodys_to_tell(path):
    with opened(path) as store:
        task = store.lineage("task")
        task.commit({"messages": LONG}, step=1)
        task.compact(SHORT, summary="/messages/0")
        task.restore(1)
        store.ledger("board").join("peer", lineage=task)
        task.restore(2)
    assert found(path) == {}


def test_a_compaction_cut_off_while_its_broadcast_stands_is_named(path):
    with opened(path) as store:
        task = store.lineage("task")
        task.commit({"messages": LONG}, step=1)
        store.ledger("board").join("peer", lineage=task)
        task.compact(SHORT, summary="/messages/0")
    cut(path, "task")
    assert found(path)["broadcasts"].text.endswith("which is not there")


@pytest.mark.parametrize(("where", "act"), [(compacting, "compact"), (restoring, "restore")])
def test_a_release_that_forgets_to_tell_is_found_out(path, monkeypatch, where, act):
    with opened(path) as store:
        task, board, *_ = fill(store)
        with monkeypatch.context() as patch:
            patch.setattr(telling, "told", lambda *_, **__: [])
            made = (
                task.restore(1)
                if act == "restore"
                else task.compact({"messages": [SHORT["messages"][0] + "!"]}, summary="/messages/0")
            )
        assert len(board.events()) == 1
    named = found(path)
    assert (set(named), named["broadcasts"].revisions) == ({"broadcasts"}, (made.revision,))
    assert where is not commits


def test_an_entry_that_forgets_a_ledger_of_its_lineage_is_named(path, monkeypatch):
    with opened(path) as store:
        task, *_ = fill(store)
        with monkeypatch.context() as patch:
            patch.setattr(commits, "acked", lambda *_: {})
            with task.edit(step=9) as edit:
                edit.append("/messages", "x")
        revision = edit.result.revision
    named = found(path)["membership"]
    assert named.lineage == "task" or "task" in named.text
    with opened(path, read_only=True) as store:
        findings = [one for one in store.verify().findings if one.id == "membership"]
    assert {one.lineage for one in findings} == {"task", "board"}
    assert (revision,) in [one.revisions for one in findings]


WRONG = {
    "another value than it says": lambda change: {**change, "value": "another"},
    "another revision than it says": lambda change: {**change, "revision": change["revision"] + 1},
    "another place than it says": lambda change: {**change, "seq": change["seq"] - 1},
}


@pytest.mark.parametrize("what", WRONG)
def test_a_write_that_stores_another_thing_than_it_signs_is_named(path, monkeypatch, what):
    from cpstore.streams import board as module

    put = module._set

    def wrong(tokens, value):
        return put(tokens, WRONG[what](value) if tokens[0] == "keys" and len(tokens) == 2 else value)

    with opened(path) as store:
        _, _, peer, _ = fill(store)
        with monkeypatch.context() as patch:
            patch.setattr(module, "_set", wrong)
            peer.write("b", 1)
    named = found(path)["damaged-state"]
    assert named.lineage == "board" and "does not write key 'b' as it says" in named.text


@pytest.mark.parametrize("part", ["revision", "before"])
def test_a_write_out_of_its_keys_order_is_named(path, monkeypatch, part):
    with opened(path) as store:
        _, _, peer, _ = fill(store)
        step = Board.write_step

        def wrong(self, before, member, puts, known):
            if part == "revision":
                puts = {key: (revision + 1, value) for key, (revision, value) in puts.items()}
            else:
                known = {}
            return step(self, before, member, puts, known)

        with monkeypatch.context() as patch:
            patch.setattr(Board, "write_step", wrong)
            peer.write("a", 1, seen=peer.read("a"))
    assert "does not write key 'a' as it says" in found(path)["damaged-state"].text


def test_a_status_that_is_not_the_one_that_was_signed_is_named(path, monkeypatch):
    with opened(path) as store:
        task, *_ = fill(store)
        step = Board.member_step

        def wrong(self, member, act, **options):
            made = step(self, member, act, **options)
            made.detail["status"] = Status.ACTIVE.value
            return made

        with monkeypatch.context() as patch:
            patch.setattr(Board, "member_step", wrong)
            task.restore(1)
    assert "another status than it says" in found(path)["damaged-state"].text


def test_a_member_that_vanishes_from_the_state_is_named(path, monkeypatch):
    from cpstore.snapshot.edits import Change

    with opened(path) as store:
        _, _, peer, _ = fill(store)
        step = Board.write_step

        def wrong(self, before, member, puts, known):
            import attrs

            made = step(self, before, member, puts, known)
            drop = Change("delete", ("members", "peer:other"))

            def add(writer):
                taken = []
                changes = writer.changes
                writer.changes = lambda stated: changes([*stated, drop])
                try:
                    taken.append(made.add(writer))
                finally:
                    del writer.changes
                return taken[0]

            return attrs.evolve(made, add=add)

        with monkeypatch.context() as patch:
            patch.setattr(Board, "write_step", wrong)
            peer.write("b", 1)
    named = found(path)
    assert any("its members are not those" in finding.text for finding in named.values())


def test_a_cursor_proves_nothing_and_costs_nothing(sample):
    with closing(sqlite3.connect(sample)) as db:
        db.execute("UPDATE cursor SET position = 0")
        db.commit()
    assert found(sample) == {}


def test_what_a_reader_is_given_is_never_the_altered_value(sample):
    """Every block and segment of the ledger zeroed in turn: the right value, or an error."""
    with closing(sqlite3.connect(sample)) as db:
        (number,) = db.execute("SELECT no FROM stream WHERE name = 'board'").fetchone()
        parts = [("tail", "block", row[0]) for row in db.execute("SELECT id FROM tail WHERE id >> 32 = ?", (number,))]
        parts += [
            ("segment", "ops", row[0]) for row in db.execute("SELECT id FROM segment WHERE id >> 32 = ?", (number,))
        ]
    for table, column, place in parts:
        with closing(sqlite3.connect(sample)) as db:
            (was,) = db.execute(f"SELECT {column} FROM {table} WHERE id = ?", (place,)).fetchone()
        rewrite(sample, (f"UPDATE {table} SET {column} = ? WHERE id = ?", bytes(len(was)), place))
        with opened(sample, read_only=True) as store:
            board = store.ledger("board")
            for look in (lambda: board.read("a").value, lambda: [one.value for one in board.history("a")]):
                try:
                    assert look() in ({"n": 3}, [{"n": 3}, {"n": 2}, {"n": 1}])
                except CheckpointStoreError:
                    pass
            try:
                assert all(isinstance(member, Member) for member in board.peers())
            except CheckpointStoreError:
                pass
        rewrite(sample, (f"UPDATE {table} SET {column} = ? WHERE id = ?", was, place))
    assert found(sample) == {}
