"""How a store's file comes into being: whole or not at all, private, and never in the place of something else."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import stat
import time

import pytest
from sqlite_cases import in_child, opened

from cpstore.backends.link import Link
from cpstore.errors import CorruptError, SchemaError, SchemaTooNewError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.db"


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def create_until(path, statements):
    """Make a store in a process that dies before the statement after so many; 0 if it was done before that."""

    def make():
        ran = 0
        real = Link.run

        def run(link, sql, values=()):
            nonlocal ran
            ran += 1
            if ran > statements:
                os._exit(7)
            return real(link, sql, values)

        Link.run = run
        opened(path).close()

    return in_child(make)


def test_a_process_killed_while_it_makes_a_store_leaves_none_or_all_of_it(tmp_path):
    done = 1
    statements = 0
    while done:
        path = tmp_path / f"{statements}.db"
        done = create_until(path, statements)
        assert done in (0, 7)
        backend = opened(path)
        with backend.read() as reader:
            assert reader.facts().origin == "cpstore.test/origin"
        backend.close()
        assert [name for name in os.listdir(tmp_path) if "-new" in name] == []
        statements += 1

    assert statements > 20


def first_open(path, start, origins):
    start.wait()
    backend = opened(path, new_origin=lambda: f"cpstore.test/{os.getpid()}")
    with backend.read() as reader:
        origins.put(reader.facts().origin)
    backend.close()


def test_sixteen_processes_that_open_first_see_one_origin(tmp_path):
    fork = multiprocessing.get_context("fork")
    for attempt in range(5):
        start, origins = fork.Event(), fork.Queue()
        args = (tmp_path / f"{attempt}.db", start, origins)
        processes = [fork.Process(target=first_open, args=args) for _ in range(16)]
        for process in processes:
            process.start()
        start.set()
        found = {origins.get(timeout=30) for _ in processes}
        for process in processes:
            process.join()
        assert len(found) == 1
        assert [process.exitcode for process in processes] == [0] * 16


@pytest.mark.parametrize("umask", [0, 0o777])
def test_files_and_folders_are_private_under_any_umask(tmp_path, umask):
    path = tmp_path / "one" / "two" / "a.db"
    old = os.umask(umask)
    try:
        backend = opened(path)
        with backend.write() as tx:
            tx.set_log(0, b"")
    finally:
        os.umask(old)

    found = {name: mode(path.parent / name) for name in os.listdir(path.parent)}
    backend.close()
    assert found == dict.fromkeys(["a.db", "a.db-lock", "a.db-shm", "a.db-wal"], 0o600)
    assert (mode(path.parent), mode(path.parent.parent)) == (0o700, 0o700)


@pytest.mark.parametrize("age", [-3600, 3600])
def test_an_empty_file_becomes_a_store_whatever_its_age(path, age):
    path.touch()
    os.utime(path, (time.time() - age,) * 2)

    opened(path).close()

    assert path.stat().st_size > 4096


def test_an_empty_file_beside_a_log_is_a_lost_store(path):
    path.touch()
    (path.parent / "a.db-wal").write_bytes(b"frames")

    with pytest.raises(CorruptError, match="empty"):
        opened(path)

    assert sorted(os.listdir(path.parent)) == ["a.db", "a.db-wal"]


def left_behind(path, *statements):
    """Write to a database in a process that dies without closing it, so that its log stays."""

    def write():
        db = sqlite3.connect(path)
        db.execute("PRAGMA journal_mode = WAL")
        for sql in statements:
            db.execute(sql)
        db.commit()
        os._exit(0)

    assert in_child(write) == 0
    assert (path.parent / "a.db-wal").stat().st_size > 0


@pytest.mark.parametrize("foreign", [True, False])
def test_a_refused_file_with_a_log_left_behind_stays_as_it_is(path, foreign):
    if foreign:
        left_behind(path, "CREATE TABLE t (x)", "INSERT INTO t VALUES (1)")
    else:
        opened(path).close()
        (path.parent / "a.db-lock").unlink()
        left_behind(path, "INSERT INTO schema_script VALUES ('9999_later.sql', 'x')")
    before = {name: (path.parent / name).read_bytes() for name in ("a.db", "a.db-wal")}

    with pytest.raises(SchemaError if foreign else SchemaTooNewError):
        opened(path)

    assert {name: (path.parent / name).read_bytes() for name in before} == before
    assert not (path.parent / "a.db-lock").exists()


def test_a_store_with_a_log_left_behind_is_opened_with_all_of_it(path):
    opened(path).close()
    left_behind(path, "UPDATE log SET size = 7")

    backend = opened(path)
    with backend.read() as reader:
        assert reader.log()[0] == 7
    backend.close()
    assert not (path.parent / "a.db-wal").exists()
