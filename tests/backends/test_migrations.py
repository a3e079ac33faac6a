"""Schema scripts: all or nothing, and only onto what this release knows."""

from __future__ import annotations

import sqlite3

import pytest
from sqlite_cases import opened, work

import cpstore
from cpstore.backends import engine, scripts
from cpstore.backends.scripts import Script, pending
from cpstore.errors import CheckpointStoreError, SchemaChangedError, SchemaError, SchemaTooNewError

KNOWN = [Script("0001_a.sql", "CREATE TABLE a (x)", "aa"), Script("0002_b.sql", "CREATE TABLE b (x)", "bb")]


@pytest.mark.parametrize(
    ("applied", "left"),
    [
        ([], ["0001_a.sql", "0002_b.sql"]),
        ([("0001_a.sql", "aa")], ["0002_b.sql"]),
        ([(k.name, k.checksum) for k in KNOWN], []),
    ],
)
def test_what_was_applied_is_the_beginning_of_what_is_known(applied, left):
    assert left == [script.name for script in pending(KNOWN, applied, "a.db")]


@pytest.mark.parametrize(
    ("applied", "error"),
    [
        ([("0001_a.sql", "aa"), ("0002_b.sql", "bb"), ("0003_c.sql", "cc")], SchemaTooNewError),
        ([("0001_a.sql", "edited")], SchemaChangedError),
        ([("0002_b.sql", "bb")], SchemaChangedError),
    ],
)
def test_anything_else_is_refused(applied, error):
    with pytest.raises(error):
        pending(KNOWN, applied, "a.db")


def test_a_store_of_a_newer_release_is_refused_at_open_and_left_alone(tmp_path):
    path = tmp_path / "a.db"
    opened(path).close()
    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO schema_script VALUES ('0099_future.sql', 'ff')")
    db.close()
    before = path.read_bytes()

    with pytest.raises(SchemaTooNewError, match="newer release"):
        opened(path)

    assert before == path.read_bytes()


def test_an_older_release_that_has_it_open_is_refused_at_its_next_write(tmp_path):
    path = tmp_path / "a.db"
    backend = opened(path)
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()

    with pytest.raises(SchemaTooNewError, match="while it was open here"), backend.write() as tx:
        tx.add_note(1, b"x")
    with backend.read() as reader:
        assert reader.last_note() is None
    backend.close()


def test_an_edited_script_is_noticed(tmp_path):
    path = tmp_path / "a.db"
    opened(path).close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE schema_script SET checksum = 'x'")
    db.close()

    with pytest.raises(SchemaChangedError):
        opened(path)


def test_a_migration_that_fails_leaves_the_file_byte_equal(tmp_path, monkeypatch):
    path = tmp_path / "a.db"
    opened(path).close()
    before = path.read_bytes()
    known = scripts.load("sqlite")
    broken = Script("0099_broken.sql", "CREATE TABLE fine (x);\nCREATE TABLE store (again);\n", "bb")
    monkeypatch.setattr(scripts, "load", lambda dialect: [*known, broken])

    with pytest.raises(CheckpointStoreError):
        opened(path)

    assert before == path.read_bytes()
    monkeypatch.undo()
    opened(path).close()


def test_a_migration_that_fails_leaves_a_log_that_others_look_after(tmp_path, monkeypatch):
    path = tmp_path / "a.db"
    opened(path).close()
    work(path, "import os\nwith backend.write() as tx:\n    tx.add_note(1, b'note')\nos._exit(0)")
    before = path.read_bytes()
    known = scripts.load("sqlite")
    broken = Script("0099_broken.sql", "CREATE TABLE store (again);\n", "bb")
    monkeypatch.setattr(scripts, "load", lambda dialect: [*known, broken])
    monkeypatch.setattr(engine, "loaded", lambda: engine.judge((3, 51, 3)))

    with pytest.raises(CheckpointStoreError):
        opened(path, checkpoint="external")

    assert before == path.read_bytes()
    assert (tmp_path / "a.db-wal").stat().st_size > 0


def test_a_first_migration_that_fails_leaves_no_store_behind(tmp_path, monkeypatch):
    broken = Script("0001_broken.sql", "CREATE TABLE fine (x);\nCREATE TABLE fine (again);\n", "bb")
    monkeypatch.setattr(scripts, "load", lambda dialect: [broken])

    with pytest.raises(CheckpointStoreError):
        opened(tmp_path / "a.db")

    assert not (tmp_path / "a.db").exists()


def test_pending_migrations_are_carried_out_once(tmp_path, monkeypatch):
    path = tmp_path / "a.db"
    opened(path).close()
    known = scripts.load("sqlite")
    more = Script("0099_more.sql", "CREATE TABLE more (x);\n", "bb")
    monkeypatch.setattr(scripts, "load", lambda dialect: [*known, more])

    with pytest.raises(SchemaError, match="open it for writing once"):
        opened(path, create=False, read_only=True)
    opened(path).close()
    opened(path, create=False, read_only=True).close()

    db = sqlite3.connect(path)
    assert db.execute("SELECT count(*) FROM schema_script").fetchall() == [(len(known) + 1,)]
    assert db.execute("PRAGMA user_version").fetchall() == [(len(known) + 1,)]
    db.close()


def of_the_first_release(path):
    """Take away from a store all that later scripts made: what is left is a file of the release before them."""
    first = scripts.load("sqlite")[0]
    fresh = sqlite3.connect(":memory:")
    fresh.executescript(first.sql)
    known = {name for (name,) in fresh.execute("SELECT name FROM sqlite_schema")} | {"schema_script"}
    columns = {name: [c[1] for c in fresh.execute(f"PRAGMA table_info({name})")] for name in known}
    fresh.close()
    db = sqlite3.connect(path, isolation_level=None)
    objects = db.execute("SELECT type, name, tbl_name FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    for kind in ("trigger", "index", "table"):
        for name in [name for found, name, _ in objects if found == kind and name not in known]:
            db.execute(f"DROP {kind} {name}")
    for table in [name for found, name, _ in objects if found == "table" and name in known - {"schema_script"}]:
        for column in [c[1] for c in db.execute(f"PRAGMA table_info({table})") if c[1] not in columns[table]]:
            db.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    db.execute("DELETE FROM schema_script WHERE name <> ?", (first.name,))
    db.execute("PRAGMA user_version = 1")
    found = db.execute("SELECT sql FROM sqlite_schema WHERE name = 'entry'").fetchone()[0]
    assert "epoch" not in found and not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'kin'").fetchall()
    db.close()


def test_a_store_of_the_first_release_with_forks_of_forks_learns_who_is_related_to_whom(tmp_path):
    path = tmp_path / "a.db"
    with cpstore.open(path) as store:
        for namespace in ("default", "other"):
            task = store.lineage("task", namespace=namespace)
            for turn in (1, 2, 3):
                task.commit({"turn": turn}, step=turn)
            for name, revision in (("b", 1), ("c", None)):
                child = task.fork(name, revision=revision)
                child.commit({"child": name}, step=9)
                child.fork(f"{name}/again").fork(f"{name}/again/and again")
            # A name that means something in JSON, in SQL and in a path, and a state that looks like a fork's detail.
            odd = task.fork('it\'s "odd" / ü $.parent')
            odd.commit({"parent": {"lineage": "task"}}, step=9)
            odd.fork("of odd")
        store.lineage("alone").commit({"parent": {"lineage": "task"}}, step=1, key="parent")
        before = dict(kins(store))
        states = {(found.namespace, found.id): found.head for found in store.lineages()}
    assert len(before) == 16
    of_the_first_release(path)

    with pytest.raises(SchemaError, match="open it for writing once"):
        cpstore.open(path, read_only=True)
    with cpstore.open(path) as store:
        assert dict(kins(store)) == before
        report = store.verify()
        assert report.good, report.findings
        assert {(found.namespace, found.id): found.head for found in store.lineages()} == states
        first, last = store.lineage("task"), store.lineage("b/again/and again")
        first.load()
        last.load()
        first.begin("pay", {}, policy=cpstore.EffectPolicy.AT_MOST_ONCE).complete("receipt")
        assert last.begin("pay", {}, policy=cpstore.EffectPolicy.AT_MOST_ONCE).outcome == "receipt"
        first.restore(1)
        assert first.load() == {"turn": 1} and store.verify().good


def test_a_store_of_the_first_release_without_forks_has_no_kin(tmp_path):
    path = tmp_path / "a.db"
    with cpstore.open(path) as store:
        store.lineage("task").commit({}, step=1)
    of_the_first_release(path)

    with cpstore.open(path) as store:
        assert dict(kins(store)) == {} and store.verify().good
        store.lineage("task").fork("child")
        assert len(dict(kins(store))) == 1 and store.verify().good


def kins(store):
    with store._journal.backend.read() as tx:
        return list(tx.kins())


def test_the_digest_of_the_newest_schema_is_that_of_what_the_scripts_make():
    known = scripts.load("sqlite")
    made = scripts._made_by(tuple(known))

    assert {len(known): scripts.schema_digest(made)} == scripts.SCHEMAS
    assert len(made) > 20
