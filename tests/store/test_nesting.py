"""One limit of nesting on every way into a state, and call stacks without room: a typed error or the value."""

from __future__ import annotations

import datetime as dt
import sys
import zoneinfo

import pytest

import cpstore
from cpstore.errors import HostLimitError, InvalidStateError
from cpstore.snapshot import values
from cpstore.snapshot.values import MAX_DEPTH


def nested(depth, leaf, wrap):
    for _ in range(depth):
        leaf = wrap(leaf)
    return leaf


DEEP = {
    "tuples": lambda depth: nested(depth, 1, lambda value: (value,)),
    "mappings that are nodes": lambda depth: nested(depth, "x" * 3000, lambda value: {"a": value}),
    "lists around broken text": lambda depth: nested(depth, "\ud800", lambda value: [value]),
    "sets": lambda depth: nested(depth, 1, lambda value: frozenset((value,))),
}

# Each way puts a value of some depth below as many containers as it says, the state itself counted.
WAYS = {
    "commit": (1, lambda task, value: task.commit({"v": value}, step=1)),
    "set": (1, lambda task, value: edited(task, lambda edit: edit.set("/v", value))),
    "set in a node": (3, lambda task, value: edited(task, lambda edit: edit.set("/node/in/v", value))),
    "set in a leaf": (3, lambda task, value: edited(task, lambda edit: edit.set("/leaf/in/v", value))),
    "append": (2, lambda task, value: edited(task, lambda edit: edit.append("/list", value))),
    "append in an item": (4, lambda task, value: edited(task, lambda edit: edit.append("/list/0/tags", value))),
    "splice": (2, lambda task, value: edited(task, lambda edit: edit.splice("/list", 0, 1, [value]))),
    "commit at the end of a list": (
        2,
        lambda task, value: task.commit({**START, "list": [*START["list"], value]}, step=1),
    ),
    "commit in a list": (2, lambda task, value: task.commit({**START, "list": [value, *START["list"]]}, step=1)),
    "commit in a node": (3, lambda task, value: task.commit({**START, "node": {"in": {**LARGE, "v": value}}}, step=1)),
}
LARGE = {"pad": "p" * 3000}
START = {"node": {"in": LARGE}, "leaf": {"in": {}}, "list": [{"tags": [], "pad": "x" * 1100} for _ in range(3)]}


def edited(task, change):
    with task.edit(step=1) as edit:
        change(edit)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", DEEP)
def test_every_way_into_a_state_has_the_same_limit_and_what_passes_loads(path, kind, way):
    above, act = WAYS[way]
    with cpstore.open(path, durability="normal") as store:
        task = store.lineage("task")
        task.commit(START, step=0)
        with pytest.raises(InvalidStateError, match="deep") as refused:
            act(task, DEEP[kind](MAX_DEPTH - above + 1))
        assert refused.value.path.count("/") == MAX_DEPTH
        assert (task.head().revision, task.load()) == (1, START)

        act(task, DEEP[kind](MAX_DEPTH - above))
        state = task.load()
        assert task.head().revision == 2 and store.verify().good
        store.lineage("again").commit(state, step=0)
        assert store.lineage("again").load() == state == task.fork("child").load()


def below(depth, act):
    return act() if depth == 0 else below(depth - 1, act)


def outcome(depth, act):
    try:
        return below(depth, act)
    except HostLimitError:
        return HostLimitError


@pytest.mark.parametrize("kind", DEEP)
def test_a_call_from_a_deep_stack_succeeds_or_says_so(path, kind):
    state = {"v": DEEP[kind](MAX_DEPTH - 1)}
    room = sys.getrecursionlimit() - 130
    seen = set()
    with cpstore.open(path, durability="normal") as store:
        task = store.lineage("task")
        task.commit({"fine": 1}, step=1)
        for above in [0, 300, *range(room - 400, room, 50)]:
            before = task.head().revision
            made = outcome(above, lambda: task.commit(state, step=1))
            assert task.head().revision == before + (made is not HostLimitError)
            task.commit(state, step=1)
            found = outcome(above, task.load)
            assert found is HostLimitError or found == state
            said = outcome(above, store.verify)
            assert said is HostLimitError or said.good
            changed = outcome(above, lambda: edited(task, lambda edit: edit.set("/w", state["v"])))
            assert changed in (HostLimitError, None)
            seen |= {made is HostLimitError, found is HostLimitError}
            task.commit({"fine": above}, step=1)
        assert seen == {False, True}
        assert outcome(300, lambda: task.commit(state, step=1)) is not HostLimitError
        assert outcome(300, task.load) == state


def test_a_zone_that_a_reader_has_not_is_named_and_is_no_damage(path, monkeypatch):
    with cpstore.open(path) as store:
        task = store.lineage("task")
        task.commit({"n": 1}, step=0)
        task.commit({"when": [dt.datetime(2020, 1, 1, tzinfo=zoneinfo.ZoneInfo("Asia/Tokyo"))]}, step=0)

        def lacks(key):
            raise zoneinfo.ZoneInfoNotFoundError(key)

        with monkeypatch.context() as patch:
            patch.setattr(values, "ZoneInfo", lacks)
            with pytest.raises(HostLimitError, match=r"Asia/Tokyo.*tzdata"):
                task.load()
            assert task.load(1) == {"n": 1}
            assert store.verify().good
        assert task.load()["when"][0].tzinfo is zoneinfo.ZoneInfo("Asia/Tokyo")
