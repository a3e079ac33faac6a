"""Shared values and segments: what is signed was compared, what is damaged is named, nothing is unpacked unsigned."""

from __future__ import annotations

import sqlite3
import tracemalloc

import pytest
import zstandard

import cpstore
from cpstore import errors

LARGE = "never wire money without asking; " * 300


def run(path, sql, *values):
    db = sqlite3.connect(path)
    changed = db.execute(sql, values).rowcount
    db.commit()
    db.close()
    assert changed == 1


def frame_of(path):
    db = sqlite3.connect(path)
    ((frame,),) = db.execute("SELECT frame FROM blob").fetchall()
    db.close()
    return frame


def flipped(frame):
    middle = len(frame) // 2
    return frame[:middle] + bytes((frame[middle] ^ 1,)) + frame[middle + 1 :]


def swapped(frame):
    other = LARGE.replace("never", "alway").encode()
    assert len(other) == len(LARGE)
    plain = zstandard.ZstdDecompressor().decompress(frame)
    return zstandard.ZstdCompressor().compress(plain.replace(LARGE.encode(), other))


@pytest.mark.parametrize("alter", [flipped, swapped], ids=["rotten", "exchanged"])
@pytest.mark.parametrize("way", ["commit", "edit"])
def test_a_value_that_is_shared_is_compared_before_it_is_signed(tmp_path, alter, way):
    path = tmp_path / "a.db"
    with cpstore.open(path) as store:
        store.lineage("first").commit({"rule": LARGE}, step=1)
    run(path, "UPDATE blob SET frame = ?", alter(frame_of(path)))

    with cpstore.open(path) as store:
        second = store.lineage("second")
        second.commit({"rule": LARGE} if way == "commit" else {"n": 1}, step=1)
        if way == "edit":
            with second.edit(step=1) as edit:
                edit.set("/rule", LARGE * 5)
                edit.set("/first", LARGE)
        assert second.load().get("rule", "")[: len(LARGE)] == LARGE
        with pytest.raises(errors.CorruptError, match="damaged"):
            store.lineage("first").load()
        report = store.verify()
        assert "damaged-shared" in {finding.id for finding in report.findings}
        assert {finding.lineage for finding in report.findings} <= {"first", ""}


def test_a_frame_that_was_signed_for_another_value_is_not_returned(tmp_path, monkeypatch):
    from cpstore.snapshot import writer

    path = tmp_path / "a.db"
    with cpstore.open(path) as store:
        store.lineage("first").commit({"rule": LARGE}, step=1)
    run(path, "UPDATE blob SET frame = ?", swapped(frame_of(path)))
    monkeypatch.setattr(writer, "_holds", lambda frame, enc: True)  # as a release would that does not compare
    with cpstore.open(path) as store:
        second = store.lineage("second")
        second.commit({"rule": LARGE}, step=1)
        with pytest.raises(errors.CorruptError, match="another one"):
            second.load()


def test_verify_unpacks_no_value_that_no_signature_names(tmp_path):
    path = tmp_path / "a.db"
    with cpstore.open(path) as store:
        store.lineage("first").commit({"n": 1}, step=1)
    bomb = zstandard.ZstdCompressor(level=3).compress(bytes(256 << 20))
    run(path, "INSERT INTO blob (namespace, content, frame) VALUES (1, ?, ?)", bytes(32), bomb)

    with cpstore.open(path) as store:
        tracemalloc.start()
        try:
            report = store.verify()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert [finding.id for finding in report.findings] == ["damaged-shared"]
    assert "belongs to no revision" in report.findings[0].text
    assert peak < 64 << 20


def test_a_value_of_a_lineage_that_cannot_be_followed_is_not_taken_for_a_stranger(tmp_path):
    path = tmp_path / "a.db"
    with cpstore.open(path) as store:
        store.lineage("first").commit({"rule": LARGE}, step=1)
        store.lineage("second").commit({"rule": LARGE[1:]}, step=1)
    run(path, "UPDATE tail SET block = zeroblob(40) WHERE id = (SELECT min(id) FROM tail)")

    with cpstore.open(path) as store:
        assert [(finding.id, finding.lineage) for finding in store.verify().findings] == [("damaged-bytes", "first")]


@pytest.mark.parametrize("column", ["frontier", "number"])
def test_a_segment_that_misstates_those_before_it_is_named(tmp_path, column):
    path = tmp_path / "a.db"
    with cpstore.open(path) as store:
        task = store.lineage("task")
        task.commit({"m": []}, step=0)
        for at in range(400):
            with task.edit(step=at) as edit:
                edit.append("/m", {"at": at})
    value = bytes(32) if column == "frontier" else 7
    run(path, f"UPDATE segment SET {column} = ? WHERE number = 1", value)

    with cpstore.open(path) as store:
        found = [(finding.id, finding.revisions) for finding in store.verify().findings]
        assert ("damaged-bytes", tuple(range(129, 257))) in found, found
        # It is a shortcut, and the digests lead to the signed root without it.
        for revision in (200, 300, 401):
            assert len(store.lineage("task").load(revision)["m"]) == revision - 1
