"""The public API against a plain model: whatever is done in whatever order, each revision loads as committed."""

from __future__ import annotations

import copy
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from store_cases import small_parts, typed

import cpstore
from cpstore import Binding, Signer
from cpstore.errors import (
    ConflictError,
    InvalidStateError,
    NotFoundError,
    RevisionConflictError,
    SemanticDriftError,
)

SIGNER = Signer.from_seed(bytes(range(32)))
NAMES = [("default", "a"), ("default", "b"), ("default", "a/1"), ("other", "a")]
KEYS = ["k1", "k2", "k3"]

names = st.sampled_from(NAMES)
texts = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["word " * 30, "x" * 200, "longer than shared " * 50, "\ud83d"]),
)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), texts, st.binary(max_size=300), st.tuples(st.integers())
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=6), st.dictionaries(st.sampled_from(["a", "b", "c/d", "~", ""]), inner, max_size=4)
    ),
    max_leaves=12,
)
wide = st.integers(60, 90).map(lambda count: {f"key {at}": at for at in range(count)})
states = st.fixed_dictionaries(
    {"messages": st.lists(values, max_size=12)},
    optional={
        "x": values,
        "wide": wide,
        "deep": st.fixed_dictionaries({"list": st.lists(texts, max_size=8), "y": values}),
    },
)
seeds = st.integers(0, 1 << 30)


class Model:
    """What was committed to one lineage."""

    def __init__(self, states: list[Any], bindings: list[dict[str, str]], step: int = 0) -> None:
        self.states = states
        self.bindings = bindings
        self.step = step
        self.keys: dict[str, tuple[Any, int]] = {}

    @property
    def head(self) -> int:
        return len(self.states)


class Life(RuleBasedStateMachine):
    """Two stores on one file: the second plays another process, so the first one's memory goes stale."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.folder = Path(tempfile.mkdtemp(prefix="cpstore-"))
        self.models: dict[tuple[str, str], Model] = {}

    @initialize(cache=st.sampled_from([0, 40_000, 64 << 20]), records=st.sampled_from([1, 3, 5, 128]))
    def begin(self, cache: int, records: int) -> None:
        small_parts(self.patch, records)
        self.cache = cache
        self.stores = [self.open(), self.open()]
        self.handles: dict[Any, Any] = {}

    def open(self) -> cpstore.Store:
        return cpstore.open(self.folder / "s.db", signer=SIGNER, durability="normal", cache_bytes=self.cache)

    def teardown(self) -> None:
        try:
            if self.models:
                self.reopen(0)
                report = self.stores[0].verify()
                assert report.good, report.findings
                for name in self.models:
                    self.all_revisions(name)
            for store in getattr(self, "stores", []):
                store.close()
        finally:
            self.patch.undo()
            shutil.rmtree(self.folder)

    # --- the parts of a rule ---------------------------------------------------------------------------------

    def handle(self, name: tuple[str, str], which: int, *, fresh: bool = True) -> Any:
        """Return a handle, by default one that has looked at the head."""
        found = self.handles.get((name, which))
        if found is None:
            found = self.handles[name, which] = self.stores[which].lineage(name[1], namespace=name[0])
        if fresh and name in self.models:
            assert found.head().revision == self.models[name].head
        return found

    def landed(self, name: tuple[str, str], made: Any, state: Any, **bound: str) -> None:
        model = self.models.setdefault(name, Model([], []))
        assert made.revision == model.head + 1
        model.step = made.step
        model.states.append(copy.deepcopy(state))
        model.bindings.append({**(model.bindings[-1] if model.bindings else {}), **bound})
        self.check(name, made.revision, 0)

    def check(self, name: tuple[str, str], revision: int, which: int) -> None:
        lineage, model = self.stores[which].lineage(name[1], namespace=name[0]), self.models[name]
        assert typed(lineage.load(revision)) == typed(model.states[revision - 1])
        found = {binding.symbol: binding.definition for binding in lineage.glossary(revision)}
        assert found == model.bindings[revision - 1]

    def all_revisions(self, name: tuple[str, str]) -> None:
        model = self.models[name]
        for revision in range(1, model.head + 1):
            self.check(name, revision, 0)
        lineage = self.stores[0].lineage(name[1], namespace=name[0])
        assert [found.revision for found in lineage.history()] == list(range(model.head, 0, -1))

    def refused(self, name: tuple[str, str], error: type[Exception], act: Any) -> None:
        """An act that must fail changes nothing: the next one finds the head where it was."""
        with pytest.raises(error):
            act()
        lineage = self.stores[0].lineage(name[1], namespace=name[0])
        assert lineage.exists == (name in self.models)
        if name in self.models:
            assert lineage.head().revision == self.models[name].head
            self.check(name, self.models[name].head, 1)

    # --- rules -----------------------------------------------------------------------------------------------

    @rule(name=names, which=st.integers(0, 1), state=states, rise=st.integers(0, 2))
    def commit(self, name: Any, which: int, state: Any, rise: int) -> None:
        step = self.models[name].step + rise if name in self.models else rise
        made = self.handle(name, which).commit(state, step=step)
        self.landed(name, made, state)

    @precondition(lambda self: self.models)
    @rule(seed=seeds, which=st.integers(0, 1), items=st.lists(values, max_size=5), cut=st.integers(0, 3))
    def commit_what_changed_a_little(self, seed: int, which: int, items: Any, cut: int) -> None:
        name = self.known(seed)
        state = copy.deepcopy(self.models[name].states[-1])
        state.setdefault("messages", [])
        if type(state["messages"]) is list:
            state["messages"][cut : cut + seed % 2] = items[: len(items) // 2]
            state["messages"] += items
        state["x"] = seed % 5
        made = self.handle(name, which).commit(state, step=self.models[name].step)
        self.landed(name, made, state)

    @precondition(lambda self: self.models)
    @rule(seed=seeds, which=st.integers(0, 1), data=st.data())
    def edit(self, seed: int, which: int, data: Any) -> None:
        name = self.known(seed)
        state = copy.deepcopy(self.models[name].states[-1])
        with self.handle(name, which).edit(step=self.models[name].step + 1) as edit:
            for _ in range(data.draw(st.integers(0, 4))):
                self.one_change(edit, state, data)
        self.landed(name, edit.result, state)

    def one_change(self, edit: Any, state: dict[str, Any], data: Any) -> None:
        places = sorted(lists_of(state, ""))
        verb = data.draw(
            st.sampled_from(["set", "new", "delete", *(["append", "splice", "item", "drop"] if places else [])])
        )
        value = copy.deepcopy(data.draw(values))
        if verb in ("set", "new", "delete"):
            key = "new" if verb == "new" or not state else data.draw(st.sampled_from(sorted(state)))
            if verb == "delete" and key in state:
                edit.delete(f"/{key}")
                del state[key]
            else:
                edit.set(f"/{key}", value)
                state[key] = value
            return
        place = data.draw(st.sampled_from(places))
        found = lists_of(state, "")[place]
        start = data.draw(st.integers(0, len(found)))
        if verb == "append":
            edit.append(place, value, value)
            found += [value, copy.deepcopy(value)]
        elif verb == "splice":
            stop = data.draw(st.integers(start, len(found)))
            edit.splice(place, start, stop, [value])
            found[start:stop] = [value]
        elif start < len(found) and verb == "item":
            edit.set(f"{place}/{start}", value)
            found[start] = value
        elif start < len(found):
            edit.delete(f"{place}/{start}")
            del found[start]

    @precondition(lambda self: self.models)
    @rule(seed=seeds, which=st.integers(0, 1))
    def a_wrong_edit_in_the_middle_changes_nothing(self, seed: int, which: int) -> None:
        name = self.known(seed)
        handle = self.handle(name, which)

        def act() -> None:
            with handle.edit(step=self.models[name].step) as edit:
                edit.set("/x", "half an edit")
                edit.append("/no such/list", 1)

        self.refused(name, InvalidStateError, act)

    @rule(name=names, which=st.integers(0, 1), state=states)
    def an_invalid_state_changes_nothing(self, name: Any, which: int, state: Any) -> None:
        handle = self.handle(name, which)
        step = self.models[name].step if name in self.models else 0
        self.refused(name, InvalidStateError, lambda: handle.commit({**state, "bad": object()}, step=step))

    @precondition(lambda self: self.models)
    @rule(seed=seeds, state=states)
    def a_stale_handle_is_refused(self, seed: int, state: Any) -> None:
        name = self.known(seed)
        stale = self.stores[1].lineage(name[1], namespace=name[0])
        step = self.models[name].step
        if seed % 3:
            stale.load()
            if seed % 3 == 1:  # now it also holds the lineage in memory
                self.landed(name, stale.commit({"x": seed}, step=step), {"x": seed})
            for _ in range(1 + seed % 4):
                self.landed(name, self.handle(name, 0).commit(state, step=step), state)
        self.refused(name, RevisionConflictError, lambda: stale.commit(state, step=step))

    @precondition(lambda self: self.models)
    @rule(seed=seeds, which=st.integers(0, 1), symbol=st.sampled_from(["one", "two", "three"]), state=states)
    def define(self, seed: int, which: int, symbol: str, state: Any) -> None:
        name = self.known(seed)
        handle, model = self.handle(name, which), self.models[name]
        text = f"meaning {seed % 2}"
        held = model.bindings[-1].get(symbol, text)

        def act() -> Any:
            return handle.commit(state, step=model.step, define=[Binding(symbol, text)])

        if held != text:
            self.refused(name, SemanticDriftError, act)
        else:
            self.landed(name, act(), state, **{symbol: text})

    @rule(seed=seeds, child=names)
    def fork(self, seed: int, child: Any) -> None:
        parents = sorted(name for name in self.models if name[0] == child[0])
        if not parents:
            return
        name = parents[seed % len(parents)]
        model = self.models[name]
        revision = 1 + seed % model.head
        parent = self.handle(name, seed % 2)
        if child in self.models:
            self.refused(child, ConflictError, lambda: parent.fork(child[1], revision=revision))
            return
        made = parent.fork(child[1], revision=revision)
        assert made.head().parent == (name[1], revision)
        steps = parent.checkpoint(revision).step
        state, bound = copy.deepcopy(model.states[revision - 1]), dict(model.bindings[-1])
        self.models[child] = Model([state], [bound], steps)
        self.handles.pop((child, 0), None)
        self.handles.pop((child, 1), None)
        self.check(child, 1, 0)

    @rule(name=names, which=st.integers(0, 1), key=st.sampled_from(KEYS), state=states)
    def commit_under_a_key(self, name: Any, which: int, key: str, state: Any) -> None:
        handle = self.handle(name, which)
        model = self.models.get(name)
        if model is not None and key in model.keys:
            (was, step), revision = model.keys[key]
            assert handle.commit(was, step=step, key=key).revision == revision
            assert self.stores[which].landed(key, lineage=name[1], namespace=name[0]) == "landed"
            self.refused(name, ConflictError, lambda: handle.commit({**was, "other": 1}, step=step, key=key))
            return
        step = 0 if model is None else model.step
        made = handle.commit(state, step=step, key=key)
        self.landed(name, made, state)
        self.models[name].keys[key] = ((copy.deepcopy(state), step), made.revision)

    @rule(which=st.integers(0, 1))
    def reopen(self, which: int) -> None:
        self.stores[which].close()
        self.stores[which] = self.open()
        self.handles = {known: handle for known, handle in self.handles.items() if known[1] != which}

    @precondition(lambda self: self.models)
    @rule(seed=seeds, which=st.integers(0, 1))
    def look_back(self, seed: int, which: int) -> None:
        name = self.known(seed)
        self.check(name, 1 + seed % self.models[name].head, which)
        missing = self.models[name].head + 1
        with pytest.raises(NotFoundError):
            self.stores[which].lineage(name[1], namespace=name[0]).load(missing)

    @precondition(lambda self: self.models)
    @rule(seed=seeds)
    def every_revision_loads_and_verify_is_good(self, seed: int) -> None:
        self.all_revisions(self.known(seed))
        report = self.stores[seed % 2].verify()
        assert report.good, report.findings

    def known(self, seed: int) -> tuple[str, str]:
        return sorted(self.models)[seed % len(self.models)]


def lists_of(value: Any, path: str) -> dict[str, list[Any]]:
    """Return the lists inside plain mappings, by path."""
    if type(value) is list:
        return {path: value}
    if type(value) is not dict:
        return {}
    found: dict[str, list[Any]] = {}
    for key, child in value.items():
        found |= lists_of(child, f"{path}/{key.replace('~', '~0').replace('/', '~1')}")
    return found


TestLife = Life.TestCase
TestLife.settings = settings(
    settings.default, max_examples=max(30, settings.default.max_examples // 3), stateful_step_count=25
)
