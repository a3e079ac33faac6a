"""Read-only connections: they make no files, and never mistake a file that has changed for the one they knew."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from sqlite_cases import in_child, opened, work

from cpstore.errors import CheckpointStoreError, CorruptError, NotFoundError, SchemaError, StorageError
from cpstore.testing import STREAM, add, entry


@pytest.fixture(name="path")
def _path(tmp_path):
    path = tmp_path / "a.db"
    backend = opened(path)
    with backend.write() as tx:
        number = tx.add_stream(STREAM)
        add(tx, number, entry(1))
    backend.close()
    assert number == 1
    return path


def seqs(backend):
    with backend.read() as reader:
        return [one.seq for one in reader.entries(1, 1, 10_000)]


def grow(path, first, last):
    """Write entries in another process, which closes the store."""
    work(
        path,
        f"""
        from cpstore.testing import add, entry
        for seq in range({first}, {last} + 1):
            with backend.write() as tx:
                add(tx, 1, entry(seq))
        backend.close()
        """,
    )


def test_reading_leaves_no_file_behind(path):
    (path.parent / "a.db-lock").unlink()
    before = path.read_bytes()

    backend = opened(path, create=False, read_only=True)
    assert seqs(backend) == [1]
    backend.close()

    assert os.listdir(path.parent) == ["a.db"]
    assert path.read_bytes() == before


def test_what_another_process_has_written_and_closed_is_read(path):
    backend = opened(path, create=False, read_only=True)
    assert seqs(backend) == [1]

    grow(path, 2, 600)

    assert seqs(backend) == list(range(1, 601))
    backend.close()


def test_what_another_connection_is_writing_is_read(path):
    backend = opened(path, create=False, read_only=True)
    assert seqs(backend) == [1]
    writing = opened(path)

    for seq in range(2, 50):
        with writing.write() as tx:
            add(tx, 1, entry(seq))
        assert seqs(backend) == list(range(1, seq + 1))

    writing.close()
    grow(path, 50, 50)
    assert seqs(backend) == list(range(1, 51))
    backend.close()


def test_a_file_that_is_put_in_place_of_the_one_known_is_read(path):
    backend = opened(path, create=False, read_only=True)
    assert seqs(backend) == [1]
    other = path.parent / "b.db"
    shutil.copy(path, other)
    grow(other, 2, 3)
    os.replace(other, path)

    assert seqs(backend) == [1, 2, 3]
    backend.close()


def test_a_file_that_changes_while_it_is_read_at_rest_is_an_error_and_read_well_later(path):
    backend = opened(path, create=False, read_only=True)

    with pytest.raises(StorageError, match="changed while it was read"), backend.read() as reader:
        assert reader.last(1) is not None
        grow(path, 2, 600)

    assert seqs(backend) == list(range(1, 601))
    backend.close()


def test_what_a_killed_writer_left_in_the_log_is_read(path):
    work(path, "import os\nwith backend.write() as tx:\n    tx.add_note(7, b'note')\nos._exit(0)")
    assert (path.parent / "a.db-wal").stat().st_size > 0

    backend = opened(path, create=False, read_only=True)

    with backend.read() as reader:
        assert reader.last_note() == (7, b"note")
    backend.close()
    assert (path.parent / "a.db-wal").stat().st_size > 0


def test_a_store_that_is_open_for_reading_refuses_to_write(path):
    backend = opened(path, create=False, read_only=True)

    with pytest.raises(StorageError, match="reading only"), backend.write():
        pass
    with pytest.raises(StorageError):
        backend._link().run("DELETE FROM note")
    backend.close()


# --- files that are no stores --------------------------------------------------------------------------------


def foreign(path):
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE t (x)")
    db.execute("PRAGMA application_id = 7")
    db.commit()
    db.close()


def interrupted(path):
    """Leave a foreign database in the middle of a transaction whose pages are in its file already."""
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE t (x)")
    db.executemany("INSERT INTO t VALUES (?)", [("y" * 500,)] * 500)
    db.commit()
    db.close()
    code = """if True:
        import os, sqlite3, sys
        db = sqlite3.connect(sys.argv[1], isolation_level=None)
        db.execute("PRAGMA cache_size = 5")
        db.execute("BEGIN IMMEDIATE")
        db.execute("UPDATE t SET x = 'z' || x")
        os._exit(0)
    """
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    assert path.with_name(path.name + "-journal").exists()


def cut(size):
    def act(path):
        opened(path).close()
        os.truncate(path, size if size else path.stat().st_size // 2)

    return act


def spoiled(path):
    opened(path).close()
    with path.open("r+b") as file:
        file.seek(100)
        file.write(bytes(range(256)) * 15)


def renamed(path):
    """Make a database that has the tables of a store but another application's id."""
    opened(path).close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA application_id = 7")
    db.close()


REFUSED = {
    "text": (lambda path: path.write_text("no database at all\n" * 400), CorruptError),
    "random bytes": (lambda path: path.write_bytes(bytes(range(7, 256)) * 100), CorruptError),
    "another application's": (foreign, SchemaError),
    "another application's, with our tables": (renamed, SchemaError),
    "another application's, interrupted": (interrupted, SchemaError),
    "cut after 100 bytes": (cut(100), CorruptError),
    "cut after the first page": (cut(4096), CheckpointStoreError),
    "cut in the middle": (cut(0), CheckpointStoreError),
    "first page spoiled": (spoiled, CheckpointStoreError),
}


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("kind", REFUSED)
def test_a_file_that_is_no_sound_store_is_refused_and_stays_as_it_is(tmp_path, kind, read_only):
    make, error = REFUSED[kind]
    path = tmp_path / "a.db"
    make(path)
    path.with_name("a.db-lock").unlink(missing_ok=True)
    before = {name: (tmp_path / name).read_bytes() for name in sorted(os.listdir(tmp_path))}

    with pytest.raises(error) as refused:
        opened(path, create=not read_only, read_only=read_only)

    assert str(path) in str(refused.value)
    assert {name: (tmp_path / name).read_bytes() for name in sorted(os.listdir(tmp_path))} == before


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (Path.mkdir, StorageError),
        (os.mkfifo, StorageError),
        (lambda path: path.parent.joinpath("link").symlink_to("/dev/null") or path.symlink_to("link"), StorageError),
        (lambda path: path.symlink_to(path), StorageError),
        (lambda path: None, NotFoundError),
        (lambda path: path.symlink_to("nowhere"), NotFoundError),
        (Path.touch, CorruptError),
    ],
    ids=["folder", "pipe", "device", "loop", "nothing", "link to nowhere", "empty"],
)
def test_what_is_no_file_of_a_store_is_refused_and_nothing_is_made(tmp_path, make, error):
    path = tmp_path / "a.db"
    make(path)
    before = sorted(os.listdir(tmp_path))

    with pytest.raises(error):
        opened(path, create=False)

    assert sorted(os.listdir(tmp_path)) == before


def test_a_link_to_nowhere_leads_to_the_store_that_is_made(tmp_path):
    (tmp_path / "a.db").symlink_to("real.db")

    opened(os.path.realpath(tmp_path / "a.db")).close()

    assert (tmp_path / "real.db").stat().st_size > 4096
    assert (tmp_path / "a.db").is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("left", [False, True])
def test_in_a_folder_that_cannot_be_written_a_store_is_read_or_refused_with_its_name(path, left):
    if left:
        work(path, "import os\nwith backend.write() as tx:\n    tx.add_note(7, b'note')\nos._exit(0)")
        (path.parent / "a.db-shm").unlink()
    for name in os.listdir(path.parent):
        (path.parent / name).chmod(0o444)
    for folder in (path.parent, *list(path.parent.parents)[:-2]):
        folder.chmod(stat.S_IMODE(folder.stat().st_mode) & ~0o222 | 0o555)

    def read():
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        with pytest.raises(StorageError, match=r"a\.db"), opened(path, create=False).write():
            pass
        if left:
            with pytest.raises(StorageError, match=r"a\.db"):
                opened(path, create=False, read_only=True)
            return 0
        return 0 if seqs(opened(path, create=False, read_only=True)) == [1] else 1

    before = {name: (path.parent / name).read_bytes() for name in os.listdir(path.parent)}
    assert in_child(read) == 0
    assert {name: (path.parent / name).read_bytes() for name in os.listdir(path.parent)} == before
