"""One damaged or planted row: what is sound beside it is read, verify names it; another's schema is refused."""

from __future__ import annotations

import sqlite3

import pytest
from store_cases import content
from test_tampering import named, rewrite, stream

import cpstore
from cpstore import Keyring, Signer
from cpstore.errors import (
    BadSignatureError,
    CheckpointStoreError,
    CorruptError,
    SchemaChangedError,
    SignatureError,
    UntrustedKeyError,
)
from cpstore.store import NAMED, PROBES

SIGNER = Signer.from_seed(bytes(range(32)))  # that of ``named``
OTHER = Signer.from_seed(b"z" * 32)
NAMES = ("a", "b", "c")


@pytest.fixture
def three(path):
    with cpstore.open(path, signer=SIGNER) as store:
        for name in NAMES:
            line = store.lineage(name)
            for turn in range(3):
                line.commit({"name": name, "turn": turn}, step=turn)
    return path


def alter(path, *statements):
    """Change a file as any program can, constraints aside."""
    db = sqlite3.connect(path)
    for sql in statements:
        db.execute(sql)
    db.commit()
    db.close()


# --- one damaged row does not lock the others away -------------------------------------------------------------------

NOTES = {
    "another origin": lambda note: note.replace(b"cpstore", b"cpst0re"),
    "another size": lambda note: note.replace(b"\n9\n", b"\n8\n"),
    "another key id": lambda note: note[:-94] + b"AAAA" + note[-90:],
    "another signature": lambda note: note[:-50] + b"AAAA" + note[-46:],
    "no note": lambda note: b"not a note",
}


def damage_note(path, kind):
    db = sqlite3.connect(path)
    ((size, text),) = db.execute("SELECT size, text FROM note").fetchall()
    db.close()
    assert NOTES[kind](text) != text
    rewrite(path, ("UPDATE note SET text = ? WHERE size = ?", NOTES[kind](text), size))


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("kind", NOTES)
def test_a_damaged_note_is_named_and_locks_nothing(three, kind, read_only):
    damage_note(three, kind)

    with cpstore.open(three, signer=SIGNER, read_only=read_only) as store:
        assert [store.lineage(name).load()["name"] for name in NAMES] == list(NAMES)
        assert {found.id for found in store.verify().findings} == {"damaged-note"}
        if not read_only:
            with pytest.raises((CorruptError, SignatureError)):
                store.note()  # never returned as if it had been signed
            store.lineage("a").commit({"more": 1}, step=3, expected_revision=3)
            assert store.note().split(b"\n")[1] == b"10"


@pytest.mark.parametrize("seq", [1, 2, 3])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "sql", ["UPDATE entry SET step = step + 1 WHERE id = ?", "UPDATE entry SET auth = x'00' WHERE id = ?"]
)
def test_a_damaged_entry_is_named_and_the_other_lineages_are_read(three, name, seq, sql):
    rewrite(three, ("DELETE FROM note",), (sql, stream(three, name) << 32 | seq))

    with cpstore.open(three, signer=SIGNER, read_only=True) as store:
        for other in set(NAMES) - {name}:
            assert store.lineage(other).load() == {"name": other, "turn": 2}
        assert name in {found.lineage for found in store.verify().findings}


def test_the_command_line_verifies_a_file_with_a_damaged_note_and_a_damaged_entry(three, capsys, monkeypatch):
    from cpstore.__main__ import main

    monkeypatch.setattr("cpstore.inspect.open.load_key", lambda path: SIGNER)
    damage_note(three, "no note")
    rewrite(three, ("UPDATE entry SET step = 9 WHERE id = ?", stream(three, "a") << 32 | 1))

    assert main(["inspect", str(three), "verify"]) == 1
    shown = capsys.readouterr().out
    assert "DAMAGED" in shown and "default/a@1" in shown and "note" in shown


def test_a_store_of_which_nothing_can_be_believed_is_refused_and_stays_as_it_is(three):
    damage_note(three, "no note")
    rewrite(three, ("UPDATE entry SET step = step + 1",))
    before = content(three)
    for read_only in (False, True):
        with pytest.raises(CheckpointStoreError):
            cpstore.open(three, signer=SIGNER, read_only=read_only)
    assert content(three) == before


def test_a_store_of_other_keys_is_refused_whatever_of_it_is_damaged(three):
    for damage in (
        None,
        "UPDATE note SET text = x'00'",
        "DELETE FROM note",
        "UPDATE entry SET step = 9 WHERE id & 255 = 2",
    ):
        if damage:
            rewrite(three, (damage,))
        with pytest.raises(UntrustedKeyError):
            cpstore.open(three, signer=OTHER)


def test_a_store_that_another_key_has_gone_on_with_is_refused(three):
    both = Keyring.of(SIGNER, OTHER)
    with cpstore.open(three, signer=OTHER, trust=both) as store:
        store.lineage("d").commit({}, step=0)
    with pytest.raises(UntrustedKeyError):
        cpstore.open(three, signer=SIGNER)
    with cpstore.open(three, signer=SIGNER, trust=both) as store:
        assert store.verify().good


def test_opening_looks_at_the_newest_note_or_at_a_few_entries_however_many_there_are(path, monkeypatch):
    from cpstore.backends.sqlite_rows import SqliteReader

    looked = []
    real = SqliteReader.some_entry
    monkeypatch.setattr(SqliteReader, "some_entry", lambda self, at, of: looked.append(at) or real(self, at, of))
    with cpstore.open(path, signer=SIGNER, durability="normal") as store:
        for number in range(60):
            store.lineage(f"task {number}").commit({}, step=0)
    cpstore.open(path, signer=SIGNER).close()
    looked.clear()
    cpstore.open(path, signer=SIGNER).close()
    assert looked == []  # the note tells
    rewrite(path, ("DELETE FROM note",))
    cpstore.open(path, signer=SIGNER, read_only=True).close()
    assert looked == [0]
    rewrite(path, ("UPDATE entry SET step = 5 WHERE id >> 32 < 60",))
    looked.clear()
    cpstore.open(path, signer=SIGNER, read_only=True).close()
    assert looked == list(range(PROBES))


# --- errors that say where -------------------------------------------------------------------------------------------


def test_a_bad_signature_names_its_stream_and_entry(three):
    rewrite(three, ("UPDATE entry SET step = 9 WHERE id = ?", stream(three, "b") << 32 | 3))
    with cpstore.open(three, signer=SIGNER) as store:
        with pytest.raises(BadSignatureError, match="entry 3 of default/b"):
            store.lineage("b").load()
        assert "entry 3 of default/b" in named(three)["signature"].text


@pytest.mark.parametrize("name", NAMES)
def test_a_listing_goes_on_past_a_damaged_lineage_and_then_names_it(three, name):
    rewrite(three, ("UPDATE entry SET step = 9 WHERE id = ?", stream(three, name) << 32 | 3))
    with cpstore.open(three, signer=SIGNER) as store:
        listing, found = store.lineages(), []
        with pytest.raises(BadSignatureError, match=f"lineage 'default/{name}'"):
            found.extend(one.id for one in listing)
        assert found == [] or found == [other for other in NAMES if other != name]
        seen = []
        with pytest.raises(SignatureError):
            for one in store.lineages():
                seen.append(one.id)
        assert seen == [other for other in NAMES if other != name]


def test_a_listing_names_some_of_many_damaged_lineages(path):
    with cpstore.open(path, signer=SIGNER) as store:
        for number in range(NAMED + 3):
            store.lineage(f"task {number}").commit({}, step=0)
    rewrite(path, ("DELETE FROM entry WHERE id >> 32 <= ?", NAMED + 2))
    with cpstore.open(path, signer=SIGNER) as store, pytest.raises(CorruptError, match=r"task 0.*task 2.*and 2 more"):
        list(store.lineages())


# --- rows that hang on nothing ---------------------------------------------------------------------------------------

STRAYS = {
    "landed": "INSERT INTO landed VALUES (99, 'k', 1)",
    "kin": "INSERT INTO kin VALUES (99, 1, 1, 0)",
    "kin of a parent": "INSERT INTO kin VALUES (3, 99, 1, 0)",
    "kin of a root": "INSERT INTO kin VALUES (3, 1, 99, 0)",
    "effect of a root": "INSERT INTO effect VALUES (1, zeroblob(32), 99, 'e', 0, 0, 1, 1, 4294967297)",
    "effect of an entry": "INSERT INTO effect VALUES (1, zeroblob(32), 1, 'e', 0, 0, 1, 1, 99 << 32 | 1)",
    "trace": "INSERT INTO trace VALUES (1, 99, 0, 1, 1)",
    "entry": "INSERT INTO entry SELECT 99 << 32 | 1, kind, 99, lag, step, time, actor, writer, term, auth, detail, "
    "epoch FROM entry LIMIT 1",
    "tail": "INSERT INTO tail VALUES (99 << 32 | 1, x'00')",
    "segment": "INSERT INTO segment VALUES (99 << 32 | 1, 1, 0, 1, x'', x'', x'', x'', x'')",
    "blob": "INSERT INTO blob VALUES (1, 99, zeroblob(32), x'00')",
    "stream": "INSERT INTO stream VALUES (99, 99, 'lineage', 'ghost', 1)",
}


@pytest.mark.parametrize("kind", STRAYS)
def test_a_row_that_hangs_on_no_stream_or_namespace_is_named(three, kind):
    rewrite(three, (STRAYS[kind],))
    with cpstore.open(three, signer=SIGNER, read_only=True) as store:
        strays = [found.text for found in store.verify().findings if found.id == "stray"]
    assert any(f"table {kind.split()[0]} has" in text for text in strays), strays


def test_a_key_row_that_waits_for_a_stream_is_damage_and_no_write_in_doubt(three):
    rewrite(three, ("INSERT INTO landed VALUES (4, 'k', 1)",))
    with cpstore.open(three, signer=SIGNER) as store:
        for _ in range(2):
            with pytest.raises(CorruptError, match="'k' is filed already"):
                store.lineage("d").commit({}, step=0, key="k")
        assert not store.lineage("d").exists
        store.lineage("d").commit({}, step=0, key="another")


# --- the schema ------------------------------------------------------------------------------------------------------

SCHEMAS = {
    "a trigger that undoes commits": (
        "trigger 'x' was added",
        "CREATE TRIGGER x AFTER UPDATE ON log BEGIN DELETE FROM tail; END",
    ),
    "a protecting trigger less": ("trigger 'entry_is_never_deleted' is missing", "DROP TRIGGER entry_is_never_deleted"),
    "a protecting trigger that protects nothing": (
        "trigger 'entry_is_never_deleted' is not that of this release",
        "DROP TRIGGER entry_is_never_deleted",
        "CREATE TRIGGER entry_is_never_deleted BEFORE DELETE ON entry BEGIN SELECT 1; END",
    ),
    "a protecting trigger on another table": (
        "trigger 'entry_is_never_deleted' is not that of this release",
        "DROP TRIGGER entry_is_never_deleted",
        "CREATE TRIGGER entry_is_never_deleted BEFORE DELETE ON tail BEGIN SELECT RAISE(ABORT, 'x'); END",
    ),
    "a table more": ("table 'mine' was added", "CREATE TABLE mine (x)"),
    "a view more": ("view 'mine' was added", "CREATE VIEW mine AS SELECT * FROM entry"),
    "an index more": ("index 'mine' was added", "CREATE INDEX mine ON entry (step)"),
    "an index less": ("index 'kin_by_parent' is missing", "DROP INDEX kin_by_parent"),
    "a column more": ("table 'entry' is not that of this release", "ALTER TABLE entry ADD COLUMN mine INTEGER"),
    "a table that checks less": (
        "table 'landed' is not that of this release",
        "DROP TABLE landed",
        "CREATE TABLE landed (stream, key, seq)",
    ),
    "a trigger on the list of scripts": (
        "trigger 'x' was added",
        "CREATE TRIGGER x AFTER INSERT ON schema_script BEGIN DELETE FROM tail; END",
    ),
    "a trigger under a name of SQLite's own": (
        "trigger 'sqlite_x' was added",
        "CREATE TRIGGER x AFTER UPDATE ON log BEGIN DELETE FROM tail; END",
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_schema SET name = 'sqlite_x', sql = replace(sql, 'R x', 'R sqlite_x') WHERE name = 'x'",
    ),
}


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_schema_of_somebody_else_is_refused_for_writing_and_named_by_verify(three, kind):
    said, *statements = SCHEMAS[kind]
    alter(three, *statements)
    before = content(three)

    with pytest.raises(SchemaChangedError) as refused:
        cpstore.open(three, signer=SIGNER)

    assert said in str(refused.value)
    assert content(three) == before
    with cpstore.open(three, signer=SIGNER, read_only=True) as store:
        report = store.verify()
        assert not report.good and any(said in found.text for found in report.findings if found.id == "schema")
        assert store.lineage("a").load() == {"name": "a", "turn": 2}


def test_what_sqlite_keeps_for_itself_is_no_change_of_the_schema(three):
    alter(three, "ANALYZE", "VACUUM", "REINDEX")
    with cpstore.open(three, signer=SIGNER) as store:
        assert store.verify().good


def test_a_store_that_lacks_the_newest_script_is_compared_with_those_it_has_had(three, monkeypatch):
    from cpstore.backends import scripts

    known = scripts.load("sqlite")
    more = scripts.Script("0099_more.sql", "CREATE TABLE more (x INTEGER) STRICT;\n", "bb")
    monkeypatch.setattr(scripts, "load", lambda dialect: [*known, more])
    alter(three, "CREATE TABLE mine (x)")
    with pytest.raises(SchemaChangedError, match="'mine' was added"):
        cpstore.open(three, signer=SIGNER)
    alter(three, "DROP TABLE mine")
    with cpstore.open(three, signer=SIGNER) as store:
        assert store.verify().good
