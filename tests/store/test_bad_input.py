"""Bad input is refused with its place, or with the next step, before anything is locked or written."""

from __future__ import annotations

import datetime as dt
import os
import re
import sqlite3

import pytest
from store_cases import content, typed

import cpstore
from cpstore.errors import (
    CheckpointStoreError,
    CorruptError,
    InvalidStateError,
    NotFoundError,
    SchemaChangedError,
    SchemaError,
    SchemaTooNewError,
    StorageError,
)
from cpstore.lineage import MAX_STATE_BYTES
from cpstore.snapshot.values import MAX_DEPTH


class Odd:
    """Something that no store can keep."""


class Text(str):
    pass


def cycle():
    state: dict = {"a": [1]}
    state["a"].append(state)
    return state


def nested(depth):
    value: object = 1
    for _ in range(depth):
        value = [value]
    return {"deep": value}


INVALID = {
    "a list": ([1], ""),
    "None": (None, ""),
    "text": ("state", ""),
    "a subclass of dict": (type("Sub", (dict,), {})(a=1), ""),
    "an object": ({"a": {"b": [1, Odd()]}}, "/a/b/1"),
    "a function": ({"f": len}, "/f"),
    "a class": ({"c": Odd}, "/c"),
    "a subclass of str": ({"t": Text("x")}, "/t"),
    "a generator": ({"g": (at for at in range(3))}, "/g"),
    "an object in a set": ({"s": {Odd()}}, "/s"),
    "a key that is a number": ({"a": {1: "x"}}, "/a"),
    "a key that is None": ({"a": {None: "x"}}, "/a"),
    "a key that is bytes": ({"a": {b"k": "x"}}, "/a"),
    "a key with a lone surrogate": ({"a": {"\ud83d": 1}}, "/a"),
    "a cycle": (cycle(), None),
    "too deep": (nested(MAX_DEPTH + 100), None),
    "far too deep": (nested(100_000), None),
    "a date with an odd zone": ({"t": dt.datetime(2020, 1, 1, tzinfo=type("Z", (dt.tzinfo,), {})())}, "/t"),
    "a key with special characters": ({"a/b~c": {"x": Odd()}}, "/a~1b~0c/x"),
}


@pytest.mark.parametrize("name", INVALID)
def test_a_state_that_cannot_be_kept_is_refused_with_its_place_and_without_the_lock(path, name):
    state, place = INVALID[name]
    with cpstore.open(path, timeout=0.0) as store:
        task = store.lineage("task")
        task.commit({"fine": True}, step=0)
        # Whoever waits for the lock waits forever here: another owner has it.
        with store._journal.backend._lock.held(0.0), pytest.raises(InvalidStateError) as refused:
            task.commit(state, step=1)
        if place is not None:
            assert refused.value.path.startswith(place), refused.value.path
            assert place in str(refused.value)
        assert task.load() == {"fine": True} and task.head().revision == 1
        task.commit({"next": 1}, step=1)
        assert store.verify().good


@pytest.mark.parametrize("name", [name for name, (state, _) in INVALID.items() if type(state) is dict])
def test_an_edit_refuses_the_same_values_with_their_place(path, name):
    state, place = INVALID[name]
    with cpstore.open(path) as store:
        task = store.lineage("task")
        task.commit({"at": {}}, step=0)
        with pytest.raises(InvalidStateError) as refused, task.edit(step=1) as edit:
            edit.set("/at/here", state)
        if place is not None:
            assert refused.value.path.startswith("/at/here" + place), refused.value.path
        assert task.load() == {"at": {}} and task.head().revision == 1


def test_edits_together_are_bounded_like_a_commit(path):
    limit = 100_000
    for _ in range(2):  # the second time from what is stored
        with cpstore.open(path, max_state_bytes=limit) as store:
            task = store.lineage("task")
            with pytest.raises(InvalidStateError, match="the limit is 100000"):
                for at in range(20):
                    with task.edit(step=0, expected_revision=task.head().revision if task.exists else 0) as edit:
                        edit.set(f"/k{at}{task.head().revision if task.exists else 0}", "x" * 9000)
            state = task.load()
            assert 90_000 < sum(map(len, state.values())) <= limit
            task.commit(state, step=0)
            assert task.load() == state


def test_a_limit_beyond_what_can_be_read_again_is_refused(path):
    with pytest.raises(InvalidStateError, match="at most"):
        cpstore.open(path, max_state_bytes=MAX_STATE_BYTES + 1)
    assert not path.exists()
    cpstore.open(path, max_state_bytes=MAX_STATE_BYTES).close()


def test_a_state_over_the_limit_is_refused_and_one_at_the_limit_is_kept(path):
    with cpstore.open(path, max_state_bytes=1000) as store:
        task = store.lineage("task")
        task.commit({"x": "a" * 990}, step=0)
        with pytest.raises(InvalidStateError, match="the limit is 1000"):
            task.commit({"x": "a" * 1000}, step=0)
        with pytest.raises(InvalidStateError, match="max_state_bytes"), task.edit(step=0) as edit:
            for _ in range(20):
                edit.set("/x", "a" * 100)
        assert task.head().revision == 1


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "x" * 256,
        "a\0b",
        "a\nb",
        "tab\t",
        "\x1b[31m",
        "\u202egnp.exe",
        "zero\u200bwidth",
        "\ud800",
        " x",
        "x ",
        None,
        7,
        b"x",
    ],
)
def test_names_that_cannot_be_shown_are_refused_everywhere(path, name):
    with cpstore.open(path) as store:
        task = store.lineage("task")
        task.commit({}, step=0)
        for act in (
            lambda: store.lineage(name),
            lambda: store.lineage("fine", namespace=name),
            lambda: task.fork(name),
            lambda: task.landed(name),
            lambda: cpstore.open(path, actor=name),
            *([] if name is None else [lambda: task.commit({}, step=0, key=name)]),
        ):
            with pytest.raises(InvalidStateError):
                act()
        assert [found.id for found in store.lineages()] == ["task"]


def test_ids_never_become_paths(path, tmp_path):
    names = [
        "../../etc/passwd",
        "/abs",
        "a/b/c",
        "..",
        ".",
        "x" * 255,
        "日本語",
        "'; DROP TABLE entry; --",
        "%s",
        "C:\\x",
    ]
    before = set(os.listdir(tmp_path))
    with cpstore.open(path) as store:
        for name in names:
            store.lineage(name, namespace=name).commit({"name": name}, step=0, key=name)
        assert {found.id for found in store.lineages()} == set(names)
        assert all(store.lineage(name, namespace=name).load() == {"name": name} for name in names)
        assert store.verify().good
    assert set(os.listdir(tmp_path)) - before == {"agent.db", "agent.db-lock"}


@pytest.mark.parametrize("step", [-1, 1.0, True, None, "1", 2**53])
def test_a_step_that_is_none_is_refused(path, step):
    with cpstore.open(path) as store, pytest.raises(InvalidStateError):
        store.lineage("task").commit({}, step=step)


@pytest.mark.parametrize("revision", [0, -1, 3, 2**70, 1.0, True, "1"])
def test_a_revision_that_is_none_is_not_found(path, revision):
    with cpstore.open(path) as store:
        task = store.lineage("task")
        task.commit({"at": 1}, step=0)
        task.commit({"at": 2}, step=0)
        for ask in (task.load, task.checkpoint, task.glossary, lambda number: task.fork("child", revision=number)):
            with pytest.raises(NotFoundError):
                ask(revision)


@pytest.mark.parametrize(
    "path_in_state", ["messages", "/~2", "/messages/x", "/messages/01", "/messages/7", "/no/such", "/text/deep", 7]
)
def test_a_path_that_leads_nowhere_is_refused(path, path_in_state):
    with cpstore.open(path) as store:
        task = store.lineage("task")
        task.commit({"messages": [1, 2], "text": "x"}, step=0)
        with pytest.raises(InvalidStateError), task.edit(step=1) as edit:
            edit.append(path_in_state, 1)
        assert task.head().revision == 1


def test_edits_cannot_nest_deeper_than_a_load_can_follow(path):
    # Each edit is shallow; together they dig. Mappings of this size are nodes of their own.
    with cpstore.open(path, durability="normal") as store:
        task = store.lineage("task")
        task.commit({"c": {"pad": "x" * 3000}}, step=0)
        place = "/c"
        with pytest.raises(InvalidStateError, match="deep"):
            for _ in range(MAX_DEPTH + 2):
                place += "/c"
                with task.edit(step=0) as edit:
                    edit.set(place, {"pad": "x" * 3000})
        state = task.load()
        depth = 0
        while "c" in state:
            state, depth = state["c"], depth + 1
        assert depth == task.head().revision > 100
        assert store.verify().good


# --- files -------------------------------------------------------------------------------------------------------


@pytest.fixture
def store_file(path):
    with cpstore.open(path) as store:
        store.lineage("task").commit({"messages": ["x" * 9000]}, step=0)
    return path


def alter(path, *statements):
    db = sqlite3.connect(path)
    for sql in statements:
        db.execute(sql)
    db.commit()
    db.execute("PRAGMA journal_mode = DELETE")
    db.close()


def bytes_at(path, at, new):
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(new)


FILES = {
    "text": (lambda path: path.write_text("no database at all\n" * 300), CorruptError),
    "a few bytes": (lambda path: path.write_bytes(b"abc"), CorruptError),
    "emptied": (lambda path: path.write_bytes(b""), CorruptError),
    "zeros": (lambda path: path.write_bytes(bytes(8192)), CheckpointStoreError),
    "another SQLite database": (lambda path: (path.unlink(), alter(path, "CREATE TABLE t (x)")), SchemaError),
    "other tables of the same name": (
        lambda path: (
            path.unlink(),
            alter(path, "CREATE TABLE store (x)", "CREATE TABLE schema_script (name, checksum)"),
        ),
        SchemaError,
    ),
    "a newer schema": (
        lambda path: alter(path, "INSERT INTO schema_script VALUES ('9999_later.sql', 'x')"),
        SchemaTooNewError,
    ),
    "another schema": (lambda path: alter(path, "UPDATE schema_script SET checksum = 'x'"), SchemaChangedError),
    "a newer format": (lambda path: alter(path, "UPDATE store SET format = 2"), CheckpointStoreError),
    "a corrupt first page": (lambda path: bytes_at(path, 100, b"\xff" * 200), CorruptError),
    "cut in half": (lambda path: os.truncate(path, path.stat().st_size // 2 // 4096 * 4096), CheckpointStoreError),
    "cut to a page": (lambda path: os.truncate(path, 4096), CheckpointStoreError),
}


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_is_no_sound_store_is_a_typed_error_and_stays_as_it_is(store_file, kind, read_only):
    spoil, error = FILES[kind]
    spoil(store_file)
    before = content(store_file)
    options = {"read_only": read_only, "create": kind != "emptied"}
    with pytest.raises(error) as refused, cpstore.open(store_file, **options) as store:
        store.lineage("task").load()
    assert str(store_file) in str(refused.value) or isinstance(refused.value, cpstore.errors.InvalidStateError)
    after = content(store_file)
    after.pop("-lock", None), before.pop("-lock", None)
    assert after == before


def test_a_file_with_a_corrupt_page_inside_fails_typed_and_stays_as_it_is(store_file):
    pages = store_file.stat().st_size // 4096
    whole = store_file.read_bytes()
    for page in range(1, pages):
        store_file.write_bytes(whole)
        bytes_at(store_file, page * 4096, b"\xa5" * 4096)
        before = store_file.read_bytes()
        with pytest.raises(CheckpointStoreError) as refused, cpstore.open(store_file, read_only=True) as store:
            store.lineage("task").load()
            report = store.verify()
            if not report.good:
                raise CorruptError("named by verify")
            raise NotFoundError(f"page {page} holds nothing that a reader sees")
        assert str(refused.value)
        assert store_file.read_bytes() == before, page


def test_a_missing_file_is_not_made_where_none_is_expected(path, tmp_path):
    for options in ({"create": False}, {"read_only": True}):
        with pytest.raises(NotFoundError, match=re.escape(str(path))):
            cpstore.open(path, **options)
    with pytest.raises(NotFoundError):
        cpstore.open(tmp_path / "no" / "such" / "folder.db", create=False)
    assert os.listdir(tmp_path) == []


def test_a_folder_a_device_and_a_pipe_are_no_stores(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for target in (tmp_path, tmp_path / "pipe", "/dev/null"):
        with pytest.raises(StorageError, match=r"left alone|a store is a file"):
            cpstore.open(target)
    for target in ("", ":memory:", "postgresql://host/db", "a\0b"):
        with pytest.raises(StorageError):
            cpstore.open(target)


@pytest.fixture
def as_nobody(tmp_path):
    """Only a user without privileges is stopped by modes: lend this process another effective user for a while."""
    if os.geteuid() != 0:
        yield lambda: None
        return
    yield lambda: os.seteuid(65534)
    os.seteuid(0)


def test_a_folder_that_cannot_be_written_is_a_typed_error(tmp_path, as_nobody):
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o755)
    signer = cpstore.Signer.generate()
    with cpstore.open(folder / "there.db", signer=signer) as store:
        store.lineage("task").commit({"x": 1}, step=0)
    for part in folder.iterdir():
        part.chmod(0o444)
    folder.chmod(0o555)
    for above in (tmp_path, *list(tmp_path.parents)[:3]):
        if above.stat().st_uid == os.getuid() and str(above).startswith("/tmp/"):
            above.chmod(0o755)
    before = (folder / "there.db").read_bytes()
    as_nobody()
    with pytest.raises(StorageError, match=re.escape(str(folder))):
        cpstore.open(folder / "new.db", signer=signer)
    refused = pytest.raises(StorageError, match=re.escape(str(folder)))
    with refused, cpstore.open(folder / "there.db", signer=signer) as store:
        store.lineage("task").commit({"x": 2}, step=0, expected_revision=1)
    with cpstore.open(folder / "there.db", signer=signer, read_only=True) as store:
        assert store.lineage("task").load() == {"x": 1}
    assert sorted(os.listdir(folder)) == ["there.db", "there.db-lock"]
    assert (folder / "there.db").read_bytes() == before


def test_a_read_only_store_refuses_to_write_and_leaves_the_file_as_it_is(store_file):
    before = content(store_file)
    with cpstore.open(store_file, read_only=True) as store:
        task = store.lineage("task")
        task.load()
        for act in (lambda: task.commit({}, step=1), lambda: task.fork("child")):
            with pytest.raises(CheckpointStoreError):
                act()
        assert store.verify().good and store.note() is None
    assert content(store_file) == before


def test_a_closed_store_says_so(path):
    store = cpstore.open(path)
    task = store.lineage("task")
    task.commit({}, step=0)
    store.close()
    store.close()
    for act in (task.load, task.head, lambda: task.commit({}, step=1), store.verify, store.stats):
        with pytest.raises(StorageError, match="closed"):
            act()


def test_what_a_caller_does_with_its_objects_later_changes_nothing(path):
    with cpstore.open(path) as store:
        task = store.lineage("task")
        state = {"messages": [["mine"]], "set": {1}}
        task.commit(state, step=0)
        state["messages"][0].append("later")
        state["set"].add(2)
        loaded = task.load()
        assert typed(loaded) == typed({"messages": [["mine"]], "set": {1}})
        loaded["messages"].append("mine too")
        assert task.load() == {"messages": [["mine"]], "set": {1}}
        item = ["appended"]
        with task.edit(step=0) as edit:
            edit.append("/messages", item)
            item.append("later")
        assert task.load()["messages"][-1] == ["appended"]
