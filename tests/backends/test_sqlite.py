"""What only the SQLite backend promises: settings, costs, checkpoints under the lock, and answers about the file."""

from __future__ import annotations

import gc
import os
import resource
import signal
import sqlite3
import threading

import pytest
from sqlite_cases import in_child, opened, work

from cpstore.backends import link
from cpstore.backends.sqlite import SqliteBackend, path_of
from cpstore.errors import CorruptError, StorageError
from cpstore.testing import STREAM, add, entry


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.db"


def test_the_file_has_the_settings_that_cannot_be_changed_later(path):
    opened(path).close()

    db = sqlite3.connect(path)
    found = [db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "auto_vacuum", "page_size")]
    strict = db.execute("SELECT name FROM pragma_table_list WHERE schema = 'main' AND strict = 0").fetchall()
    db.close()
    assert found == ["wal", 2, 2048]
    assert strict == [("sqlite_schema",)]


def test_entries_are_never_updated_or_deleted(path):
    backend = opened(path)
    with backend.write() as tx:
        add(tx, tx.add_stream(STREAM), entry(1))
    backend.close()

    db = sqlite3.connect(path)
    for sql in ("UPDATE entry SET step = 9", "DELETE FROM entry"):
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            db.execute(sql)
    db.close()


def test_the_header_of_a_checkpoint_costs_at_most_150_bytes_of_file(path):
    backend = opened(path)
    with backend.write() as tx:
        number = tx.add_stream(STREAM)
        for seq in range(1, 20_001):
            tx.add_entry(number, entry(seq, time=1_790_000_000_000_000 + seq * 1_000_000_000))
    backend.close()

    db = sqlite3.connect(path)
    (size,) = db.execute("SELECT sum(pgsize) FROM dbstat WHERE name = 'entry'").fetchone()
    db.close()
    assert size / 20_000 <= 150


def test_the_write_ahead_log_stays_bounded_while_nobody_reads(path):
    backend = opened(path)
    with backend.write() as tx:
        number = tx.add_stream(STREAM)
    sizes = []
    for seq in range(1, 1500):
        with backend.write() as tx:
            add(tx, number, entry(seq))
        sizes.append((path.parent / "a.db-wal").stat().st_size)
    backend.close()

    assert max(sizes) < 8 << 20
    assert not (path.parent / "a.db-wal").exists()


def test_the_write_ahead_log_stays_bounded_though_every_writer_is_killed(path):
    opened(path).close()
    code = """
        import os
        with backend.write() as tx:
            for number in range(300):
                tx.add_note({} + number, bytes(8000))
        os._exit(0)
    """
    sizes = []
    for turn in range(8):
        work(path, code.format(turn * 300))
        sizes.append((path.parent / "a.db-wal").stat().st_size)

    assert max(sizes) < 12 << 20


def test_a_reader_that_keeps_the_log_from_shrinking_is_reported(path, caplog, monkeypatch):
    monkeypatch.setattr(link, "BIG", 100)
    backend = opened(path)
    reading = opened(path)
    with reading.read() as reader:
        assert reader.last_note() is None
        for number in range(12):
            with backend.write() as tx:
                tx.add_note(number, bytes(1 << 20))
    reports = [record.getMessage() for record in caplog.records]
    assert 1 <= len(reports) <= 5
    assert str(path) in reports[0] and "reader" in reports[0]

    caplog.clear()
    for number in range(12, 24):
        with backend.write() as tx:
            tx.add_note(number, bytes(1 << 20))
    assert caplog.records == []
    reading.close()
    backend.close()


@pytest.mark.parametrize("durability", ["full", "normal"])
def test_a_full_disk_is_a_typed_error_after_which_the_store_goes_on(path, durability):
    backend = opened(path, durability=durability)

    def fill():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        full = opened(path, durability=durability)
        with full.write() as tx:
            tx.add_note(1, b"kept")
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
        with pytest.raises(StorageError, match=str(path)), full.write() as tx:
            for number in range(2, 100):
                tx.add_note(number, bytes(100_000))
        with full.read() as reader:
            assert reader.last_note() == (1, b"kept")
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        with full.write() as tx:
            tx.add_note(2, b"later")
        full.close()

    assert in_child(fill) == 0
    with backend.read() as reader:
        assert list(reader.notes()) == [(1, b"kept"), (2, b"later")]
        assert reader.integrity() == []
    backend.close()


def test_opening_and_closing_leaves_no_descriptor_behind(path):
    opened(path).close()
    gc.collect()
    before = sorted(os.listdir("/proc/self/fd"))
    for turn in range(300):
        backend = opened(path, create=False, read_only=turn % 3 == 2)
        with backend.read() as reader:
            reader.facts()
        backend.close()
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_every_checkpoint_is_made_under_the_lock(path, monkeypatch):
    backend = opened(path)
    held = []
    real = backend._lock.held

    def watch(timeout):
        held.append("asked")
        return real(timeout)

    monkeypatch.setattr(backend._lock, "held", watch)
    statements = []
    backend._link()._connection.set_trace_callback(lambda sql: statements.append((sql, backend._lock.locked)))
    with backend.write() as tx:
        number = tx.add_stream(STREAM)
    for seq in range(1, 700):
        with backend.write() as tx:
            add(tx, number, entry(seq))
    backend.close()

    checkpoints = [locked for sql, locked in statements if "wal_checkpoint" in sql]
    assert len(checkpoints) >= 2
    assert all(checkpoints)
    assert len(held) == 701


def test_threads_have_connections_of_their_own_and_close_takes_them_all(path):
    backend = opened(path)
    links = []

    def look():
        with backend.read() as reader:
            reader.facts()
        links.append(backend._link())

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    backend.close()

    assert len({id(one) for one in links}) == 4
    for one in links:
        with pytest.raises(StorageError):
            one.run("SELECT 1")
    with pytest.raises(StorageError, match="closed"), backend.read():
        pass


def test_stats_count_what_is_there(path):
    backend = opened(path)
    with backend.write() as tx:
        number = tx.add_stream(STREAM)
        add(tx, number, entry(1), entry(2))
        tx.add_blob("default", b"c" * 32, b"frame")

    found = backend.stats()

    backend.close()
    wanted = {"entries": 2, "streams": 1, "tail_bytes": 14, "shared_values": 1, "shared_bytes": 5, "segments": 0}
    assert wanted == {name: found[name] for name in wanted}


@pytest.mark.parametrize("target", ["postgresql://x", "http://x", "", "a\0b", ":memory:"])
def test_what_is_no_path_is_refused(target):
    with pytest.raises(StorageError):
        path_of(target)


def test_a_target_may_be_a_path_or_an_address(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "real.db")

    assert str(tmp_path / "real.db") == path_of(f"sqlite:///{tmp_path}/link")
    assert str(tmp_path / "real.db") == path_of(tmp_path / "link")


def test_a_look_into_a_file_that_is_just_being_written_is_repeated(tmp_path, monkeypatch):
    path = tmp_path / "a.db"
    opened(path).close()
    look, torn = SqliteBackend._application, [CorruptError("database disk image is malformed")] * 2

    def application(self):
        if torn:
            raise torn.pop()
        return look(self)

    monkeypatch.setattr(SqliteBackend, "_application", application)
    opened(path).close()
    assert not torn


def test_a_file_that_stays_broken_is_refused_soon(tmp_path, monkeypatch):
    path = tmp_path / "a.db"
    opened(path).close()
    looks = []

    def application(self):
        looks.append(1)
        raise CorruptError("database disk image is malformed")

    monkeypatch.setattr(SqliteBackend, "_application", application)
    with pytest.raises(CorruptError):
        opened(path)
    assert len(looks) < 10
