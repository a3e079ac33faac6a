"""Connections: one a thread, none in a forked child, and none whose closing or cursors surprise another."""

from __future__ import annotations

import os
import sqlite3
import threading
import time

import pytest
from sqlite_cases import opened

from cpstore.backends import engine
from cpstore.backends.link import Link
from cpstore.backends.lockfile import LockFile
from cpstore.errors import BusyError, CheckpointStoreError, StorageError
from cpstore.testing import STREAM, add, entry


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.db"


@pytest.fixture
def backend(path):
    backend = opened(path)
    yield backend
    backend.close()


@pytest.mark.parametrize("outer", ["read", "write"])
@pytest.mark.parametrize("inner", ["read", "write"])
def test_a_transaction_inside_another_is_refused_at_once(backend, outer, inner):
    started = time.monotonic()
    with getattr(backend, outer)():
        with pytest.raises(CheckpointStoreError, match="already open"), getattr(backend, inner)():
            pass
        assert time.monotonic() - started < 5

    with backend.write():
        pass


def test_a_program_without_the_lock_is_waited_for_no_longer_than_asked(path, backend):
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    started = time.monotonic()
    with pytest.raises(BusyError) as busy, backend.write(timeout=0.1):
        pass
    assert time.monotonic() - started < 2
    assert busy.value.waited == 0.1
    other.rollback()
    other.close()

    with backend.write(timeout=0.1):
        pass


def test_the_connections_of_ended_threads_are_closed(backend):
    def look():
        with backend.read() as reader:
            reader.facts()

    for _ in range(20):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()

    assert len(backend._links) <= 2


def test_closing_leaves_the_transaction_of_another_thread_to_its_end(backend):
    with backend.write() as tx:
        number = tx.add_stream(STREAM)
        add(tx, number, *(entry(seq) for seq in range(1, 1001)))
    reading, closed = threading.Event(), threading.Event()
    found = []

    def read():
        with backend.read() as reader:
            entries = reader.entries(number, 1, 1000)
            found.append(next(entries).seq)
            reading.set()
            closed.wait()
            found.extend(one.seq for one in entries)
        with pytest.raises(StorageError, match="closed"), backend.read():
            pass
        found.append("refused")

    thread = threading.Thread(target=read)
    thread.start()
    reading.wait()
    link = next(one for one in backend._links if one.thread is thread)
    backend.close()
    closed.set()
    thread.join()

    assert found == [*range(1, 1001), "refused"]
    with pytest.raises(sqlite3.ProgrammingError):
        link._connection.execute("SELECT 1")


def test_a_child_forked_inside_a_write_cannot_commit_it(backend):
    class Undo(Exception):
        pass

    with pytest.raises(Undo), backend.write() as tx:
        number = tx.add_stream(STREAM)
        block = tx._link.transaction("SELECT 1")
        block.__enter__()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                try:
                    block.__exit__(None, None, None)
                except StorageError as error:
                    code = 0 if "fork" in str(error) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        raise Undo

    with backend.read() as reader:
        assert reader.stream(STREAM) is None, number


def test_values_read_in_part_do_not_hold_their_moment(path, backend):
    with backend.write() as tx:
        tx.add_stream(STREAM)
        for number in range(9):
            tx.add_blob("default", bytes([number]) * 32, b"frame %d" % number)
    with backend.read() as reader:
        assert [content[0] for content, _ in reader.blobs("default")] == list(range(9))
        half = reader.blobs("default")
        next(half)
    other = opened(path)
    with other.write() as tx:
        tx.add_blob("default", b"o" * 32, b"other")
    other.close()

    with backend.write() as tx:
        tx.add_blob("default", b"m" * 32, b"mine")
    with pytest.raises(CheckpointStoreError, match="ended"):
        list(half)


def test_entries_left_over_from_an_ended_transaction_are_refused(backend):
    with backend.write() as tx:
        number = tx.add_stream(STREAM)
        add(tx, number, entry(1), entry(2))
    with backend.read() as reader:
        entries = reader.entries(number, 1, 2)
        next(entries)

    with pytest.raises(CheckpointStoreError, match="ended"):
        next(entries)


def test_leaves_come_in_the_order_of_the_log_over_many_pages(backend):
    with backend.write() as tx:
        number = tx.add_stream(STREAM)
        for seq in range(1, 701):
            tx.add_entry(number, entry(seq, leaf=(seq * 211) % 701))

    with backend.read() as reader:
        assert [one.leaf for _, one in reader.leaves()] == list(range(1, 701))


def test_a_journal_mode_that_another_program_set_is_put_right_at_the_next_write(path):
    opened(path).close()
    other = sqlite3.connect(path)
    assert other.execute("PRAGMA journal_mode = DELETE").fetchall() == [("delete",)]
    other.close()
    before = path.read_bytes()
    backend = opened(path)
    assert path.read_bytes() == before

    with backend.write():
        pass

    assert backend._link().rows("PRAGMA journal_mode") == [("wal",)]
    backend.close()


def test_closing_inside_its_own_transaction_waits_for_nothing_and_commits_it(path):
    backend = opened(path, timeout=60.0)
    started = time.monotonic()
    with backend.write() as tx:
        tx.add_note(1, b"note")
        backend.close()
    assert time.monotonic() - started < 10

    with pytest.raises(StorageError, match="closed"), backend.write():
        pass
    again = opened(path)
    with again.read() as reader:
        assert reader.last_note() == (1, b"note")
    again.close()


def test_the_connection_of_a_thread_that_ends_takes_no_checkpoint_with_it(path):
    made = []

    def make():
        made.append(opened(path))
        with made[0].write() as tx:
            tx.add_note(1, b"note")

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    log = path.parent / "a.db-wal"
    before = log.read_bytes()
    with made[0].read() as reader:
        assert reader.last_note() == (1, b"note")

    assert len(made[0]._links) == 1
    assert log.read_bytes() == before
    made[0].close()
    assert not log.exists()


@pytest.mark.parametrize("action", ["read", "write"])
def test_who_closes_last_empties_the_log_under_the_lock(path, monkeypatch, action):
    backend = opened(path)
    with backend.write() as tx:
        tx.add_note(1, b"note")
    using, closed = threading.Event(), threading.Event()
    held = []
    real = Link.close

    def close(link):
        with pytest.raises(BusyError), LockFile(path).held(0):
            pass
        held.append(link)
        real(link)

    def use():
        with getattr(backend, action)():
            using.set()
            closed.wait()

    thread = threading.Thread(target=use)
    thread.start()
    using.wait()
    closing = threading.Thread(target=backend.close)
    monkeypatch.setattr(Link, "close", close)
    if action == "read":
        closing.start()
        closing.join()
        closed.set()
    else:  # it waits for the lock
        closing.start()
        until(lambda: backend._lock.waiting == 1)
        closed.set()
        closing.join()
    thread.join()

    assert len(held) >= 2
    assert not (path.parent / "a.db-wal").exists()


def test_a_store_whose_log_others_look_after_never_checkpoints(path, monkeypatch):
    opened(path).close()
    monkeypatch.setattr(engine, "loaded", lambda: engine.judge((3, 51, 3)))
    before = path.read_bytes()
    for number in range(1, 4):
        backend = opened(path, checkpoint="external")
        with backend.write() as tx:
            tx.add_note(number, b"note" * 1000)
        thread = threading.Thread(target=lambda backend=backend: backend.stats())
        thread.start()
        thread.join()
        backend.close()

    assert path.read_bytes() == before
    assert (path.parent / "a.db-wal").stat().st_size > 3 * 4096
    backend = opened(path)
    with backend.read() as reader:
        assert [size for size, _ in reader.notes()] == [1, 2, 3]
    backend.close()
    assert not (path.parent / "a.db-wal").exists()


def until(true):
    """Wait for another thread's visible progress."""
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end
        threading.Event().wait(0.001)
