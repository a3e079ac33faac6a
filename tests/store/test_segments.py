"""What segments say of those before them is unsigned: it is believed only where the signed root bears it out."""

from __future__ import annotations

import sqlite3

import pytest

import cpstore
from cpstore.errors import CorruptError
from cpstore.snapshot import frames, writer
from cpstore.snapshot.records import segment_digest


@pytest.fixture
def made(path, monkeypatch):
    """A lineage of nine sealed segments, its first base the only one that says "good"."""
    monkeypatch.setattr(writer, "SEGMENT_RECORDS", 8)
    with cpstore.open(path, durability="normal") as store:
        task = store.lineage("task")
        task.commit({"word": "good", "n": 0, "list": []}, step=0)
        for at in range(1, 75):
            with task.edit(step=0) as edit:
                edit.set("/n", at)
                edit.append("/list", f"item {at}")
    return path


def rows(path, sql, *given):
    db = sqlite3.connect(path)
    found = db.execute(sql, given).fetchall()
    db.commit()
    db.close()
    return found


def forge(path, number):
    """Exchange a segment for one that says "evil", its own digest fitting."""
    ((rid, count, base, parts, ops, items),) = rows(
        path, "SELECT id, count, base, parts, ops, items FROM segment WHERE number = ?", number
    )
    plain = frames.decompress(ops)
    assert b"good" in plain
    ops = frames.compress(plain.replace(b"good", b"evil"))
    digest = segment_digest(rid & 0xFFFFFFFF, count, base, parts, ops, items)
    rows(path, "UPDATE segment SET ops = ?, digest = ? WHERE id = ?", ops, digest, rid)


@pytest.mark.parametrize("number", range(9))
def test_a_segment_is_not_believed_because_the_one_behind_it_was(made, number):
    # A load from the segment behind it reads this one's frontier, and what is known is kept for later loads.
    forge(made, number)
    with cpstore.open(made) as store:
        task = store.lineage("task")
        for revision in [*range(75, 0, -1), *range(1, 76)]:
            try:
                assert task.load(revision)["word"] == "good"
            except CorruptError:
                continue
        with pytest.raises(CorruptError):
            task.load(8 * number + 3)
        assert not store.verify().good


@pytest.mark.parametrize("column", ["frontier", "number"])
@pytest.mark.parametrize("number", range(8))
def test_a_wrong_shortcut_is_named_and_no_load_needs_it(made, number, column):
    value = bytes(32) if column == "frontier" else 40 + number
    rows(made, f"UPDATE segment SET {column} = ? WHERE number = ?", value, number)
    with cpstore.open(made) as store:
        task = store.lineage("task")
        for revision in (75, 60, 33, 9, 8, 1, 20, 70):
            assert task.load(revision)["n"] == revision - 1
        found = [(finding.id, finding.revisions) for finding in store.verify().findings]
        assert found == [("damaged-bytes", tuple(range(8 * number + 1, 8 * number + 9)))]


def test_a_wrong_count_of_segments_goes_into_no_later_one(made):
    # Ten segments have a frontier of as many hashes as nine, and these make the same root.
    ((last,),) = rows(made, "SELECT max(number) FROM segment")
    assert (last + 1).bit_count() == (last + 2).bit_count()
    rows(made, "UPDATE segment SET number = ? WHERE number = ?", last + 1, last)
    with cpstore.open(made) as store:
        task = store.lineage("task")
        assert task.load()["n"] == 74
        for at in range(75, 95):
            with task.edit(step=0) as edit:
                edit.set("/n", at)
        assert [task.load(revision)["n"] for revision in (1, 50, 74, 80, 95)] == [0, 49, 73, 79, 94]
    with cpstore.open(made) as store:
        assert store.lineage("task").load(95)["n"] == 94
        assert {finding.id for finding in store.verify().findings} == {"damaged-bytes"}
