"""Arguments that cannot be are refused with an error of the package that says which, before anything is written."""

from __future__ import annotations

import itertools
import os

import pytest
from store_cases import content

import cpstore
from cpstore import Authority, Binding, Directive, Glossary, Keyring, Retirement, Signer, Supersession
from cpstore.errors import (
    BusyError,
    ConflictError,
    CorruptError,
    InvalidStateError,
    NotFoundError,
    RevisionConflictError,
    StorageError,
    UntrustedKeyError,
)

ORDER = Directive(Authority.USER, "message 3", "from now on")
TERM = Binding("rate", "per month")
SIGNER, OTHER = Signer.from_seed(b"a" * 32), Signer.from_seed(b"z" * 32)


@pytest.fixture
def store(path):
    with cpstore.open(path) as store:
        store.lineage("task").commit({"list": [1, 2, 3], "map": {}}, step=1, key="k", define=[TERM])
        yield store


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"durability": "FULL"}, "durability is 'full' or 'normal'"),
        ({"durability": None}, "durability"),
        ({"durability": ["full"]}, "durability"),
        ({"checkpoint": "externl"}, "checkpoint is 'auto' or 'external'"),
        ({"timeout": None}, "timeout"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": True}, "timeout"),
        ({"timeout": "30"}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"timeout": float("inf")}, "timeout"),
        ({"max_state_bytes": 0}, "max_state_bytes"),
        ({"max_state_bytes": 1e9}, "max_state_bytes"),
        ({"cache_bytes": None}, "cache_bytes"),
        ({"cache_bytes": -1}, "cache_bytes"),
        ({"clock": 5}, "clock"),
        ({"signer": "key.pem"}, "signer"),
        ({"trust": [OTHER.writer]}, "trust"),
        ({"actor": None}, "actor"),
    ],
)
def test_an_option_that_cannot_be_is_named_and_no_store_is_made(path, tmp_path, options, said):
    with pytest.raises(InvalidStateError, match=said):
        cpstore.open(path, **options)

    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("target", [5, None, b"agent.db", ["agent.db"]])
def test_a_target_that_is_no_path_of_text_is_refused(target):
    with pytest.raises(InvalidStateError, match="path of text"):
        cpstore.open(target)


def test_a_path_that_cannot_be_spelled_is_refused():
    with pytest.raises(StorageError, match="no path of a store"):
        cpstore.open("agent\udcff.db")


@pytest.mark.parametrize("time", [-5, 1.5, 1 << 53, None, True])
def test_a_clock_that_tells_no_time_is_refused_before_anything_is_written(path, tmp_path, time):
    with pytest.raises(InvalidStateError, match="clock"):
        cpstore.open(path, clock=lambda: time)
    assert not path.exists()

    times = itertools.chain([10**15, 10**15], itertools.repeat(time))
    with cpstore.open(path, clock=lambda: next(times)) as store:
        task = store.lineage("task")
        task.commit({"at": 1}, step=1)
        with pytest.raises(InvalidStateError, match="clock"):
            task.commit({"at": 2}, step=2)
        assert task.load() == {"at": 1}


def test_a_signer_whose_entries_would_not_be_believed_is_refused_before_anything_is_written(path):
    with cpstore.open(path, signer=SIGNER) as store:
        store.lineage("task").commit({"at": 1}, step=1)
    before = content(path)
    half = Keyring(writers={OTHER.writer}, stores={SIGNER.store})
    for trust in (Keyring.of(SIGNER), half):
        with pytest.raises(UntrustedKeyError, match="trust="):
            cpstore.open(path, signer=OTHER, trust=trust)
    assert content(path) == before

    with cpstore.open(path, signer=OTHER, trust=Keyring.of(SIGNER), read_only=True) as store:
        assert store.lineage("task").load() == {"at": 1}
    with cpstore.open(path, signer=OTHER, trust=Keyring.of(SIGNER, OTHER)) as store:
        store.lineage("task").commit({"at": 2}, step=2, expected_revision=1)
        assert store.verify().good


def test_where_trust_is_given_no_key_is_made_that_it_cannot_have(path, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with pytest.raises(NotFoundError):
        cpstore.open(path, trust=Keyring.of(SIGNER))
    assert os.listdir(tmp_path) == []


TERMS = {
    "glossary is a list": {"glossary": [TERM]},
    "glossary is a dict": {"glossary": {"bindings": []}},
    "define is None": {"define": None},
    "define is a binding": {"define": TERM},
    "define has text": {"define": ["rate"]},
    "define is text": {"define": "rate"},
    "supersede has a binding": {"supersede": [TERM]},
    "supersede is an order": {"supersede": Supersession(TERM, ORDER)},
    "retire has text": {"retire": ["rate"]},
    "retire is a number": {"retire": 5},
    "retire has an order of another kind": {"retire": [Supersession(TERM, ORDER)]},
}


@pytest.mark.parametrize("name", TERMS)
@pytest.mark.parametrize("key", [None, "k", "new"])
def test_terms_of_another_type_are_refused_with_the_argument_also_under_a_key(store, name, key):
    task = store.lineage("task")
    task.head()
    with pytest.raises(InvalidStateError, match=name.split()[0]):
        task.commit({}, step=2, key=key, **TERMS[name])
    with pytest.raises(InvalidStateError, match=name.split()[0]):
        task.edit(step=2, key=key, **TERMS[name])
    assert task.head().revision == 1


@pytest.mark.parametrize(
    "options",
    [
        {"reread": ["rate"]},
        {"reread": "rate"},
        {"reread": {1: ORDER}},
        {"reread": {("a",): ORDER}},
        {"reread": {"rate": "message 3"}},
        {"supersede": None},
        {"supersede": [Retirement("rate", ORDER)]},
    ],
)
def test_a_fork_or_restore_with_orders_of_another_type_is_refused(store, options):
    task = store.lineage("task")
    task.head()
    for act in (lambda: task.fork("child", **options), lambda: task.restore(1, **options)):
        with pytest.raises(InvalidStateError):
            act()
    assert not store.lineage("child").exists


@pytest.mark.parametrize("key", [None, "new"])
@pytest.mark.parametrize(
    "splice",
    [("/list", None, None), ("/list", 0.0, 1.0), ("/list", "0", "1"), ("/list", False, True), ("/list", 0, 1, None)],
)
def test_a_splice_with_places_that_are_none_is_refused(store, splice, key):
    task = store.lineage("task")
    task.head()
    with pytest.raises(InvalidStateError) as refused, task.edit(step=2, key=key) as edit:
        edit.splice(*splice)
    assert refused.value.path == "/list"
    assert task.head().revision == 1


def test_a_path_with_a_lone_surrogate_is_refused(store):
    task = store.lineage("task")
    task.head()
    for path in ("/a\ud800", "/map/\udfff", "/\ud800/b"):
        with pytest.raises(InvalidStateError, match="lone surrogate"), task.edit(step=2) as edit:
            edit.set(path, 1)


@pytest.mark.parametrize("limits", [{"limit": -5}, {"limit": "3"}, {"limit": True}, {"before": 0}, {"before": "3"}])
def test_a_history_with_limits_that_are_none_is_refused_at_the_call(store, limits):
    with pytest.raises(InvalidStateError, match=next(iter(limits))):
        store.lineage("task").history(**limits)


@pytest.mark.parametrize("limits", [{}, {"before": 1}, {"limit": 0}, {"before": 1, "limit": 0}, {"before": 9}])
def test_the_history_of_a_lineage_that_does_not_exist_is_never_an_empty_one(store, limits):
    with pytest.raises(NotFoundError):
        list(store.lineage("none").history(**limits))


def test_a_history_is_cut_where_it_says(store):
    task = store.lineage("task")
    task.head()
    for turn in range(150):
        with task.edit(step=turn + 1) as edit:
            edit.set("/turn", turn)
    every = list(range(151, 0, -1))
    for before, limit in itertools.product(
        (None, 1, 2, 64, 65, 100, 151, 152, 999), (None, 0, 1, 63, 64, 65, 128, 500)
    ):
        found = [one.revision for one in task.history(before=before, limit=limit)]
        assert found == [one for one in every if before is None or one < before][:limit], (before, limit)


@pytest.mark.parametrize("asked", [5, None, b"k", ValueError("x"), BusyError("x", 1.0)])
def test_landed_answers_for_errors_that_name_an_entry_only(store, asked):
    with pytest.raises(InvalidStateError):
        store.landed(asked)
    with pytest.raises(InvalidStateError, match="nothing of its act was written"):
        store.landed(RevisionConflictError("task", 1, 2))


def test_a_landed_entry_whose_row_is_gone_is_damage_and_not_a_write_that_never_landed(path):
    with cpstore.open(path) as store:
        task = store.lineage("task")
        task.commit({"at": 1}, step=1)
        made = task.commit({"at": 2}, step=2)
        error = StorageError("lost", namespace="default", stream="task", seq=2, entry=made.entry)
        assert store.landed(error) == "landed"
        other = StorageError("lost", namespace="default", stream="task", seq=2, entry="00" * 32)
        later = StorageError("lost", namespace="default", stream="task", seq=3, entry="00" * 32)
        ledger = StorageError("lost", namespace="default", stream="task", seq=1, entry="00" * 32, kind="ledger")
        assert [store.landed(one) for one in (other, later, ledger)] == ["superseded", "not landed", "not landed"]
        link = store._journal.backend._link()
        link.run("DROP TRIGGER entry_is_never_deleted")
        link.run("DELETE FROM entry WHERE id & 255 = 2")
        with pytest.raises(CorruptError):
            store.landed(error)


@pytest.mark.parametrize("namespace", [5, "", "a\nb", b"default"])
def test_a_listing_of_a_namespace_that_cannot_be_is_refused_and_not_empty(store, namespace):
    with pytest.raises(InvalidStateError):
        store.lineages(namespace=namespace)


def test_what_the_progress_callback_raises_is_no_finding(store):
    with pytest.raises(InvalidStateError, match="progress"):
        store.verify(progress="yes")
    for raised in (CorruptError("mine"), ConflictError("mine"), KeyError("mine"), KeyboardInterrupt()):

        def progress(done, total, raised=raised):
            raise raised

        with pytest.raises(type(raised)) as caught:
            store.verify(progress=progress)
        assert caught.value is raised
    with pytest.raises(cpstore.errors.CheckpointStoreError, match="already open"):
        store.verify(progress=lambda done, total: store.lineage("task").head())
    assert store.verify(progress=lambda done, total: None).good


def test_definitions_and_orders_of_which_nothing_can_be_seen_are_refused(store):
    task = store.lineage("task")
    task.head()
    for text in ("\u200b", "\u3164", "\u2060\u00ad"):
        for terms in (
            {"define": [Binding("new", text)]},
            {"define": [Binding("new", "x", constraint=text)]},
            {"glossary": Glossary([TERM, Binding("new", text)])},
            {"retire": [Retirement("rate", Directive(Authority.USER, text, "x"))]},
        ):
            with pytest.raises(InvalidStateError, match="can be seen"):
                task.commit({}, step=2, **terms)
    assert task.head().revision == 1


# --- idempotency keys ------------------------------------------------------------------------------------------------


def turned(value):
    """Return an equal value whose mappings have their keys in another order."""
    if isinstance(value, dict):
        return {key: turned(child) for key, child in reversed(value.items())}
    if isinstance(value, (list, tuple)):
        return type(value)(map(turned, value))
    return value


STATE = {
    "b": 1,
    "a": {"z": [{"q": 1, "p": ({"n": 1, "m": ({"k": 1, "j": 2},)},)}], "y": {"s": {1, 2}, "t": "\ud800"}},
    "big": {f"k{at}": "x" * 50 for at in range(100)},
}


def test_a_retry_with_an_equal_state_is_the_same_request_whatever_the_order_of_its_keys(store):
    line = store.lineage("line")
    made = line.commit(STATE, step=1, key="a")
    again = turned(STATE)
    assert again == STATE and list(again) != list(STATE)
    assert line.commit(again, step=1, key="a") == made
    with pytest.raises(ConflictError):
        line.commit({**STATE, "b": True}, step=1, key="a")  # equal for Python, another type
    with pytest.raises(ConflictError):
        line.commit({**STATE, "b": 2}, step=1, key="a")


def test_a_retry_of_an_edit_with_equal_values_is_the_same_request(store):
    task = store.lineage("task")
    task.head()

    def edited(value, place="/map/x"):
        with task.edit(step=2, key="e") as edit:
            edit.set(place, value)
            edit.append("/list", value, {"b": 1, "a": 2})
        return edit.result

    made = edited(STATE)
    assert edited(turned(STATE)) == made
    for value, place in (({**STATE, "b": 2}, "/map/x"), (STATE, "/map/y")):
        with pytest.raises(ConflictError):
            edited(value, place)
