"""Compaction on a real store: what is covered is computed, refused or recorded whole, and can be had back."""

from __future__ import annotations

import copy
import itertools
import sqlite3
from contextlib import closing

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cpstore
from cpstore import (
    Authority,
    Binding,
    Covered,
    Directive,
    EffectClaim,
    EffectPolicy,
    Glossary,
    KeyClaim,
    Retirement,
    Scope,
    Status,
    Supersession,
    TermClaim,
)
from cpstore.errors import (
    CompactionConsistencyError,
    ConflictError,
    InvalidStateError,
    NotFoundError,
    RevisionConflictError,
    SemanticDriftError,
)
from cpstore.model.compaction import Compaction
from cpstore.streams.board import value_digest

ORDER = Directive(Authority.USER, "message 3", "from now on")
TEXT = "a summary of everything that was said so far"
LONG = [{"role": "user", "content": f"message {at}: " + "word " * 20} for at in range(60)]


@pytest.fixture
def store(path):
    with cpstore.open(path, durability="normal") as store:
        yield store


@pytest.fixture
def task(store):
    lineage = store.lineage("task")
    lineage.commit({"messages": LONG, "tools": {"a": "x" * 100, "b": [1, 2, 3]}}, step=4)
    return lineage


def short(*kept, **parts):
    return {"messages": [TEXT, *kept], "tools": {"a": "x" * 100, "b": [1, 2, 3]}, **parts}


def record(path, name="task", revision=None):
    """Return the compactions of a lineage as they are stored, by revision."""
    with cpstore.open(path, read_only=True) as store:
        journal = store._journal
        from cpstore.journal import Reading
        from cpstore.model.entry import StreamId, StreamKind

        with Reading(journal, "default") as reading:
            number, last = reading.last(StreamId("default", StreamKind.LINEAGE, name))
            entries = list(reading.tx.entries(number, 1, last.seq))
    found = {
        entry.revision: Compaction.from_value(entry.detail["compaction"])
        for entry in entries
        if "compaction" in (entry.detail or {})
    }
    return found if revision is None else found[revision]


def refused(store, error, act):
    before = store.stats()["entries"]
    with pytest.raises(error) as found:
        act()
    assert store.stats()["entries"] == before
    return found.value


# --- what is committed and recorded ------------------------------------------------------------------------------


def test_a_compaction_is_a_checkpoint_whose_record_says_what_went(path, task):
    made = task.compact(short(*LONG[-3:]), summary="/messages/0", tokens_before=91_000, tokens_after=6_000)
    assert (made.kind, made.revision, made.step) == ("compaction", 2, 4)
    assert task.load() == short(*LONG[-3:]) and task.load(1)["messages"] == LONG
    found = record(path, revision=2)
    assert (found.first, found.last, found.level, found.previous) == (1, 1, 1, 0)
    assert [(part.path, part.start, part.stop) for part in found.covers] == [("/messages", 0, 57)]
    assert (found.tokens_before, found.tokens_after, found.summary) == (91_000, 6_000, value_digest(TEXT))
    assert task.expand() == {"/messages": LONG[:57]} == task.expand(2)


def test_lists_values_and_keys_that_went_come_back_exactly(task):
    with task.edit(step=5) as edit:
        edit.set("/tools/c", {"deep": [1, {"x": (1, 2)}]})
        edit.set("/scratch", "a note that is not needed any more")
    state = short(LONG[5], LONG[7], *LONG[40:50])
    state["tools"] = {"a": "y", "b": [3, 1]}
    task.compact(state, summary="/messages/0")
    assert task.expand() == {
        "/messages": [*LONG[:5], LONG[6], *LONG[8:40], *LONG[50:]],
        "/tools/a": "x" * 100,
        "/tools/b": [2],
        "/tools/c": {"deep": [1, {"x": (1, 2)}]},
        "/scratch": "a note that is not needed any more",
    }


def test_of_equal_items_the_earlier_ones_went(store, path):
    task = store.lineage("task")
    task.commit({"m": ["same text " * 9] * 5}, step=0)
    task.compact({"m": [TEXT, *["same text " * 9] * 2]}, summary="/m/0")
    assert [(part.start, part.stop) for part in record(path, revision=2).covers] == [(0, 3)]
    assert task.expand() == {"/m": ["same text " * 9] * 3}


items = st.one_of(st.integers(0, 5), st.text("ab", max_size=2), st.lists(st.integers(0, 2), max_size=2))
states = st.recursive(
    items,
    lambda inner: st.one_of(st.lists(inner, max_size=6), st.dictionaries(st.sampled_from("abc/~"), inner, max_size=3)),
    max_leaves=15,
)


@settings(max_examples=40)
@given(old=states, new=states)
def test_what_is_expanded_is_what_the_new_state_does_not_hold(tmp_path_factory, old, new):
    path = tmp_path_factory.mktemp("store") / "s.db"
    with cpstore.open(path, durability="normal") as store:
        task = store.lineage("task")
        task.commit({"s": old, "long": "word " * 100}, step=0)
        task.compact({"s": new, "summary": TEXT}, summary="/summary")
        found = task.expand()
        assert found.pop("/long") == "word " * 100
        _check(found, "/s", old, new)
        assert found == {}
        assert store.verify().good


def _check(found, path, old, new):
    """Take out of ``found`` what ``old`` holds and ``new`` does not."""
    if type(old) is dict and type(new) is dict:
        for key, value in old.items():
            below = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
            if key in new:
                _check(found, below, value, new[key])
            else:
                assert found.pop(below) == value
    elif type(old) is list and type(new) is list:
        left, gone = copy.deepcopy(new), []
        for item in reversed(old):
            if item in left:
                left.remove(item)
            else:
                gone.append(item)
        assert found.pop(path, []) == gone[::-1]
    elif old != new or type(old) is not type(new):
        assert found.pop(path) == old


def test_repeated_compactions_tile_the_revisions_and_build_a_tree(path, task):
    texts = [f"{TEXT}: part {at}" for at in range(5)]
    for at, text in enumerate(texts):
        state = task.load()
        state["messages"] = [text, *[f"new {at}.{n} " + "word " * 30 for n in range(4)]]
        if at == 3:  # the summary before it stays: this one covers none
            state["messages"].append(texts[2])
        task.compact(state, summary="/messages/0")
        for extra in range(at):
            with task.edit(step=5) as edit:
                edit.append("/messages", f"later {at}.{extra} " + "word " * 30)
    found = record(path)
    spans = [(one.first, one.last) for _, one in sorted(found.items())]
    assert spans[0][0] == 1 and all(right[0] == left[1] + 1 for left, right in itertools.pairwise(spans))
    assert [revision for revision, _ in sorted(found.items())] == [last + 1 for _, last in spans]
    assert [one.level for _, one in sorted(found.items())] == [1, 2, 3, 1, 4]
    for revision, one in found.items():
        assert task.expand(revision)["/messages"] == [
            item
            for part in one.covers
            if part.path == "/messages"
            for item in task.load(one.last)["messages"][part.start : part.stop]
        ]


def test_the_tree_of_summaries_is_followed_into_values_that_went_whole(path, task):
    task.compact({"ctx": {"summary": TEXT, "notes": "n" * 900}}, summary="/ctx/summary")
    task.compact({"summary": f"{TEXT}, twice"}, summary="/summary")
    assert record(path, revision=3).level == 2


def test_a_summary_that_was_overwritten_is_no_part_of_the_tree(path, task):
    task.compact({"ctx": {"summary": TEXT, "notes": "n" * 900}}, summary="/ctx/summary")
    with task.edit(step=5) as edit:
        edit.set("/ctx/summary", "another text")
    task.compact({"summary": f"{TEXT}, twice"}, summary="/summary")
    assert record(path, revision=4).level == 1


def test_tiling_goes_on_over_a_restore(path, task):
    task.compact(short(), summary="/messages/0")
    task.restore(1)
    task.compact(short(LONG[-1]), summary="/messages/0")
    assert [(one.first, one.last) for _, one in sorted(record(path).items())] == [(1, 1), (2, 3)]
    assert task.expand()["/messages"] == LONG[:-1]


def test_a_child_compacts_without_its_parent_and_cannot_expand_what_is_the_parents(store, path, task):
    with task.edit(step=5) as edit:
        edit.append("/messages", "parent")
    child = task.fork("child")
    child.head()
    before = list(task.history()), task.load()
    child.compact(short(), summary="/messages/0")
    assert (list(task.history()), task.load()) == before and record(path) == {}
    assert record(path, "child", 2).first == 1 and child.expand()["/messages"] == [*LONG, "parent"]
    with pytest.raises(NotFoundError):
        task.expand()
    task.compact(short(), summary="/messages/0")
    other = task.fork("other")
    with pytest.raises(NotFoundError):
        other.expand()
    assert store.verify().good


def test_a_compaction_can_be_undone(task):
    before = task.load()
    task.compact(short(), summary="/messages/0")
    task.restore(1)
    assert task.load() == before and task.head().revision == 3
    assert task.expand() == {"/messages": LONG}  # what went then
    with pytest.raises(NotFoundError):
        task.expand(3)


def test_expand_is_refused_where_there_is_none(task):
    for revision in (None, 1, 2, 0, "x"):
        with pytest.raises(NotFoundError):
            task.expand(revision)


# --- the caller's claims -----------------------------------------------------------------------------------------


def test_a_stated_cover_is_compared_range_by_range(store, task):
    right = Covered("/messages", 0, 58, "", 0)
    for wrong in (
        (),
        (attrs.evolve(right, stop=57),),
        (attrs.evolve(right, start=1),),
        (attrs.evolve(right, path="/tools"),),
        (attrs.evolve(right, digest="0" * 64),),
        (right, Covered("/tools/a", None, None, "", 0)),
    ):
        refused(
            store,
            CompactionConsistencyError,
            lambda wrong=wrong: task.compact(short(*LONG[-2:]), summary="/messages/0", covers=wrong),
        )
    assert task.compact(short(*LONG[-2:]), summary="/messages/0", covers=[right]).revision == 2


def test_claims_are_compared_with_their_sources_and_the_others_are_unbacked(store, path, task):
    with task.edit(step=5, define=[Binding("done", "merged")]) as edit:
        edit.set("/x", 1)
    with task.effect("mail", {"to": "a"}, policy=EffectPolicy.AT_MOST_ONCE, key="m1") as mail:
        mail.complete("sent")
    board = store.ledger("board")
    value = board.join("other").write("k", 1)
    right = [
        TermClaim("done", "merged"),
        EffectClaim("mail", "m1", "completed"),
        KeyClaim("board", "k", 1, value.digest),
    ]
    unknown = [
        TermClaim("rule", "never on a friday"),
        EffectClaim("mail", "m2", "completed"),
        KeyClaim("board", "nothing", 1, value.digest),
        KeyClaim("nobody's", "k", 1, value.digest),
    ]
    for wrong in (
        TermClaim("done", "built"),
        EffectClaim("mail", "m1", "failed"),
        KeyClaim("board", "k", 2, value.digest),
        KeyClaim("board", "k", 1, "0" * 64),
    ):
        error = refused(
            store,
            CompactionConsistencyError,
            lambda wrong=wrong: task.compact(short(), summary="/messages/0", claims=[*right, wrong, *unknown]),
        )
        assert str(wrong) in str(error)
    task.compact(short(), summary="/messages/0", claims=[*right, *unknown])
    found = record(path, revision=3)
    assert list(found.claims) == [*right, *unknown] and list(found.unbacked) == unknown


@pytest.mark.parametrize(
    ("state", "where"),
    [
        ({"messages": [""]}, "/messages/0"),
        ({"messages": ["too short"]}, "/messages/0"),
        ({"messages": ["word " * 9000]}, "/messages/0"),
        ({"messages": [{"role": "tool", "content": TEXT}]}, "/messages/0"),
        ({"messages": [{"role": "assistant", "content": TEXT, "tool_calls": [{"id": 1}]}]}, "/messages/0"),
        ({"messages": [{"type": "tool_use", "content": TEXT}]}, "/messages/0"),
        ({"messages": ['{"tool_calls": [{"function": "pay"}]}']}, "/messages/0"),
        ({"messages": [7]}, "/messages/0"),
        ({"messages": [TEXT]}, "/messages/1"),
        ({"messages": [TEXT]}, "/elsewhere"),
        ({"messages": [TEXT]}, "messages"),
        ({"messages": [LONG[-1]], "x": TEXT}, "/messages"),
    ],
)
def test_what_is_no_summary_is_refused_and_the_old_state_stays(store, task, state, where):
    before = task.load()
    refused(store, InvalidStateError, lambda: task.compact(state, summary=where))
    assert task.load() == before


def test_a_summary_that_was_there_before_is_none(store, task):
    with task.edit(step=5) as edit:
        edit.set("/summary", TEXT)
    refused(store, InvalidStateError, lambda: task.compact({"summary": TEXT}, summary="/summary"))


@pytest.mark.parametrize(
    ("error", "options"),
    [
        (InvalidStateError, {"summary": 5}),
        (InvalidStateError, {"claims": [5]}),
        (InvalidStateError, {"covers": [5]}),
        (InvalidStateError, {"kept": {5: "/messages/0"}}),
        (InvalidStateError, {"kept": {"never read": "/messages/0"}}),
        (InvalidStateError, {"tokens_before": -1}),
        (InvalidStateError, {"tokens_after": 1.5}),
        (InvalidStateError, {"step": 3}),
        (InvalidStateError, {"step": "4"}),
        (InvalidStateError, {"key": 5}),
        (InvalidStateError, {"expected_revision": "1"}),
        (InvalidStateError, {"define": [5]}),
        (InvalidStateError, {"state": []}),
        (InvalidStateError, {"state": {"messages": [TEXT], "tools": object()}}),
        (InvalidStateError, {"state": {"messages": [TEXT, *LONG], "tools": {"a": "x" * 100, "b": [1, 2, 3]}}}),
        (RevisionConflictError, {"expected_revision": 0}),
        (RevisionConflictError, {"expected_revision": 2}),
    ],
)
def test_bad_arguments_are_typed_errors_and_write_nothing(store, task, error, options):
    given = {"state": short(), "summary": "/messages/0", **options}
    state = given.pop("state")
    refused(store, error, lambda: task.compact(state, **given))
    assert task.compact(short(), summary="/messages/0").revision == 2


def test_there_is_nothing_to_compact_before_the_first_commit(store):
    with pytest.raises(NotFoundError):
        store.lineage("new").compact(short(), summary="/messages/0")
    assert not store.lineage("new").exists


# --- who may compact ---------------------------------------------------------------------------------------------


def test_a_handle_that_has_not_seen_the_head_may_not_compact(store, task):
    late = store.lineage("task")
    late.load()
    with task.edit(step=5) as edit:
        edit.append("/messages", "newer than what the summary knows")
    error = refused(store, RevisionConflictError, lambda: late.compact(short(), summary="/messages/0"))
    assert (error.expected, error.head) == (1, 2)
    assert task.load()["messages"][-1] == "newer than what the summary knows"
    blind = store.lineage("task")
    refused(store, RevisionConflictError, lambda: blind.compact(short(), summary="/messages/0"))


def test_whoever_looked_before_the_compaction_commits_edits_and_compacts_no_more(store, task):
    zombie = store.lineage("task")
    zombie.load()
    edit = zombie.edit(step=5)
    edit.append("/messages", "x")
    task.compact(short(), summary="/messages/0")
    for act in (
        lambda: zombie.commit({"messages": LONG}, step=5),
        lambda: zombie.compact(short(), summary="/messages/0"),
        lambda: zombie.begin("mail", {}, policy=EffectPolicy.AT_MOST_ONCE),
        lambda: zombie.restore(1),
        lambda: edit.__exit__(None, None, None),
    ):
        refused(store, RevisionConflictError, act)
    zombie.load()
    assert zombie.commit({"messages": []}, step=5).revision == 3


def test_a_key_makes_the_retry_of_a_compaction_safe(store, task):
    first = task.compact(short(), summary="/messages/0", key="once")
    before = store.stats()["entries"]
    again = store.lineage("task")
    assert again.compact(short(), summary="/messages/0", key="once") == first
    assert store.stats()["entries"] == before
    with pytest.raises(ConflictError):
        again.compact(short(LONG[0]), summary="/messages/0", key="once")


# --- the lock ----------------------------------------------------------------------------------------------------


def test_the_lock_holds_across_a_compaction(store, task):
    terms = [Binding(f"term {at}", f"meaning {at}", constraint="unit: ms", established_at_step=5) for at in range(30)]
    with task.edit(step=5, define=terms) as edit:
        edit.set("/x", 1)
    before = task.glossary()
    declared = [attrs.evolve(terms[9], constraint="unit: s"), *terms[:9], *terms[10:27]]
    error = refused(
        store,
        SemanticDriftError,
        lambda: task.compact(short(), summary="/messages/0", glossary=Glossary(declared)),
    )
    assert {symbol for symbol, _, _ in error.differences} == {"term 9", "term 27", "term 28", "term 29"}
    assert task.compact(short(), summary="/messages/0").revision == 3
    assert task.glossary() == before  # not named is not dropped


def test_what_is_ordered_while_compacting_holds_afterwards(store, task):
    with task.edit(step=5, define=[Binding("done", "merged"), Binding("old", "x")]) as edit:
        edit.set("/x", 1)
    task.compact(
        short(),
        summary="/messages/0",
        define=[Binding("new", "y")],
        supersede=[Supersession(Binding("done", "built"), ORDER)],
        retire=[Retirement("old", ORDER)],
    )
    assert {binding.symbol: binding.definition for binding in task.glossary()} == {"done": "built", "new": "y"}
    assert {binding.symbol: binding.definition for binding in task.glossary(2)} == {"done": "merged", "old": "x"}
    assert store.verify().good


def test_what_holds_for_a_step_does_not_cross_a_compaction_of_the_same_step(store, task):
    with task.edit(step=5, define=[Binding("here", "x", scope=Scope.STEP_LOCAL), Binding("ever", "y")]) as edit:
        edit.set("/x", 1)
    assert {binding.symbol for binding in task.glossary()} == {"here", "ever"}
    task.compact(short(), summary="/messages/0", step=5)
    assert {binding.symbol for binding in task.glossary()} == {"ever"}
    with task.edit(step=5, define=[Binding("here", "another thing", scope=Scope.STEP_LOCAL)]) as edit:
        edit.set("/x", 2)
    assert {binding.symbol for binding in task.glossary()} == {"here", "ever"}
    assert {binding.definition for binding in task.glossary(2)} == {"x", "y"}
    assert store.verify().good


def test_a_locked_id_that_the_summary_alters_is_refused_with_both(store, task):
    with task.edit(step=5, define=[Binding("host", "10.0.0.7:8443", verbatim=True)]) as edit:
        edit.set("/x", 1)
    state = {"messages": ["the service listens on 10.0.0.1:8443, as agreed"]}
    error = refused(store, SemanticDriftError, lambda: task.compact(state, summary="/messages/0"))
    assert error.differences == (("host", "10.0.0.7:8443", "10.0.0.1:8443"),)
    # one that is ordered in the same act counts already
    order = [Supersession(Binding("host", "10.0.0.1:8443", verbatim=True), ORDER)]
    assert task.compact(state, summary="/messages/0", supersede=order).revision == 3


# --- what is kept ------------------------------------------------------------------------------------------------


def test_a_key_whose_whole_value_stands_in_the_compacted_state_need_not_be_read_again(store, path, task):
    board = store.ledger("board")
    other, peer = board.join("other"), board.join("peer", lineage=task)
    value = {"rule": ["never", "on a friday"]}
    for key in ("rules", "plan"):
        other.write(key, value if key == "rules" else "go")
        peer.read(key)
    state = short(board={"rules": value})
    for wrong in ({"rules": "/board"}, {"rules": "/nowhere"}, {"plan": "/board/rules"}):
        refused(
            store,
            CompactionConsistencyError,
            lambda wrong=wrong: task.compact(state, summary="/messages/0", kept=wrong),
        )
    refused(store, InvalidStateError, lambda: task.compact(state, summary="/messages/0", kept={"rules": "board"}))
    task.compact(state, summary="/messages/0", kept={("board", "rules"): "/board/rules"})
    assert (peer.membership.keys, peer.membership.kept) == (("plan",), ("rules",))
    assert record(path, revision=2).kept == (("board", "rules", "/board/rules"),)
    peer.revalidate([peer.read("plan")])
    assert peer.status is Status.ACTIVE
    with pytest.raises(CompactionConsistencyError):  # to write it, it is read again all the same
        peer.write("rules", 2, seen=attrs.evolve(peer.read("rules").seen, position=1))
    assert peer.write("rules", 2, seen=peer.read("rules")).revision == 2


def test_a_key_that_was_written_since_is_kept_only_by_its_new_value(store, task):
    board = store.ledger("board")
    other, peer = board.join("other"), board.join("peer", lineage=task)
    seen = other.write("rules", "old rules that are long")
    peer.read("rules")
    other.write("rules", "new rules that are long", seen=seen)
    state = short(old="old rules that are long", new="new rules that are long")
    refused(
        store,
        CompactionConsistencyError,
        lambda: task.compact(state, summary="/messages/0", kept={"rules": "/old"}),
    )
    task.compact(state, summary="/messages/0", kept={"rules": "/new"})
    peer.revalidate([])
    assert peer.status is Status.ACTIVE


def test_a_key_of_two_ledgers_is_named_with_its_ledger(store, task):
    for name in ("one", "two"):
        board = store.ledger(name)
        board.join("other").write("rules", TEXT * 2)
        board.join("peer", lineage=task).read("rules")
    state = short(rules=TEXT * 2)
    refused(store, InvalidStateError, lambda: task.compact(state, summary="/messages/0", kept={"rules": "/rules"}))
    task.compact(state, summary="/messages/0", kept={("two", "rules"): "/rules"})
    members = {name: store.ledger(name).peers()[0] for name in ("one", "two")}
    assert (members["one"].keys, members["one"].kept) == (("rules",), ())
    assert (members["two"].keys, members["two"].kept) == ((), ("rules",))


# --- other ------------------------------------------------------------------------------------------------------


def test_a_compaction_is_durable_whatever_the_store_is(store, task, monkeypatch):
    asked = []
    backend = store._journal.backend
    write = backend.write

    def spy(*args, **options):
        asked.append(options.get("durable"))
        return write(*args, **options)

    monkeypatch.setattr(backend, "write", spy)
    task.compact(short(), summary="/messages/0")
    with task.edit(step=5) as edit:
        edit.set("/x", 1)
    assert asked == [True, False]


def test_nothing_is_left_of_a_compaction_whose_last_entry_fails(store, path, task):
    board = store.ledger("board")
    peer = board.join("peer", lineage=task)
    board.join("other").write("a", 1)
    peer.read("a")
    with closing(sqlite3.connect(path)) as db:
        number = db.execute("SELECT no FROM stream WHERE name = 'board'").fetchone()[0]
        db.execute(
            "CREATE TRIGGER fail BEFORE INSERT ON entry WHEN NEW.id >> 32 = "
            f"{number} BEGIN SELECT RAISE(ABORT, 'disk'); END"
        )
        db.commit()
    before = store.stats()["entries"]
    with pytest.raises(cpstore.errors.StorageError) as failed:
        task.compact(short(), summary="/messages/0")
    assert store.landed(failed.value) == "not landed"
    assert store.stats()["entries"] == before and peer.status is Status.ACTIVE and task.head().revision == 1
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TRIGGER fail")
    assert task.compact(short(), summary="/messages/0").revision == 2
    assert peer.status is Status.READ_ONLY and len(board.events()) == 1
    assert store.verify().good


@pytest.mark.parametrize("wrong", [{"claims": 5}, {"covers": 5}, {"kept": 5}, {"kept": ["k"]}, {"tokens_before": "x"}])
def test_arguments_of_another_type_are_refused_and_write_nothing(tmp_path, wrong):
    with cpstore.open(tmp_path / "a.db") as store:
        task = store.lineage("task")
        task.commit({"m": ["what was said, at length " * 20]}, step=1)
        with pytest.raises(cpstore.errors.InvalidStateError):
            task.compact({"m": ["a summary of what was said"]}, summary="/m/0", **wrong)
        assert task.head().revision == 1
