"""What takes content away, whatever the act is called: items of lists, or more than 2 KB together."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strand import MiniLineage

from cpstore.snapshot import form, shape, writer
from cpstore.snapshot.edits import Change
from cpstore.snapshot.shrink import MUCH, weight
from cpstore.snapshot.values import encode

LONG = [f"message {at}: " + "word " * 20 for at in range(60)]
BIG = "x" * (MUCH + 60)
STATE = {
    "long": LONG,
    "short": [1, 2, 3],
    "none": [],
    "text": BIG,
    "notes": {f"note {at}": "y" * 500 for at in range(20)},
    "deep": {"lists": {"a": ["p", "q"]}, "of": [{"inner": [1, 2]}, ["r", "s"]]},
    "n": 1,
}


def change(verb, path, *values, start=0, stop=0):
    tokens = tuple(path.split("/")[1:])
    return Change(verb, tokens, tuple(encode(value, path) for value in values), start, stop)


def watched(lineage, add):
    made = lineage._writer()
    made.watched = True
    try:
        lineage.land(add(made))
        return made.shrunk
    finally:
        made.watched = False


@pytest.fixture(params=["kept", "reopened", "sealed"])
def lineage(request):
    mini = MiniLineage("a")
    mini.commit(STATE)
    if request.param == "sealed":
        for at in range(130):
            mini.edit(change("set", "/n", at % 2))
    if request.param != "kept":
        mini.forget_writer()
    return mini


EDITS = {
    "an append": ([change("append", "/long", "more")], False),
    "an append to a short list": ([change("append", "/short", 4)], False),
    "the first item of an empty list": ([change("append", "/none", 4)], False),
    "an item in the middle": ([change("splice", "/long", "new", start=3, stop=3)], False),
    "an item that replaces another": ([change("set", "/long/3", "another")], False),
    "two items that replace two": ([change("splice", "/long", "a", "b", start=3, stop=5)], False),
    "three items that replace two": ([change("splice", "/long", *"abc", start=3, stop=5)], False),
    "no items for none": ([change("splice", "/long", start=3, stop=3)], False),
    "an item that goes": ([change("delete", "/long/3")], True),
    "the last item": ([change("delete", "/long/59")], True),
    "one item that replaces two": ([change("splice", "/long", "summary", start=0, stop=2)], True),
    "an item of a short list": ([change("delete", "/short/0")], True),
    "an item of a list in a list": ([change("delete", "/deep/of/1/0")], True),
    "an item of a list in an item": ([change("delete", "/deep/of/0/inner/1")], True),
    "an item of a list in mappings": ([change("delete", "/deep/lists/a/0")], True),
    "many items that shrink a little each": ([change("set", f"/long/{at}", "-") for at in range(40)], True),
    "a few items that shrink": ([change("set", f"/long/{at}", "-") for at in range(5)], False),
    "more items that say less": ([change("splice", "/long", *["-"] * 41, start=0, stop=40)], True),
    "a list by a shared value, into which nobody looks": ([change("set", "/long", "z" * 50_000)], False),
    "a list by a summary": ([change("set", "/long", ["s" * 400])], True),
    "a list by a text": ([change("set", "/long", "s" * 4000)], True),
    "a list by one as long": ([change("set", "/long", [f"{item}!" for item in LONG])], False),
    "a list by a longer one": ([change("set", "/long", [*LONG, 1])], False),
    "a list by its end and something new": ([change("set", "/long", [*LONG[1:], 1])], True),
    "a list by another order": ([change("set", "/long", LONG[::-1])], False),
    "a list by nothing": ([change("delete", "/long")], True),
    "a short list by a shorter one": ([change("set", "/short", [1, 3])], True),
    "a short list by another": ([change("set", "/short", [4, 5, 6])], False),
    "a short list by a number": ([change("set", "/short", 6)], True),
    "a short list that goes": ([change("delete", "/short")], True),
    "an empty list that goes": ([change("delete", "/none")], False),
    "a long text that goes": ([change("delete", "/text")], True),
    "a long text by a short one": ([change("set", "/text", "gone")], True),
    "a long text that loses a little": ([change("set", "/text", BIG[:-100])], False),
    "a long text that loses its middle": ([change("set", "/text", BIG[:5] + BIG[-5:])], True),
    "a long text by a list": ([change("set", "/text", [BIG])], False),
    "one note": ([change("delete", "/notes/note 1")], False),
    "five notes at once": ([change("delete", f"/notes/note {at}") for at in range(5)], True),
    "five notes while others come": (
        [*[change("delete", f"/notes/note {at}") for at in range(5)], change("set", "/other", BIG)],
        True,
    ),
    "all notes": ([change("set", "/notes", {})], True),
    "all notes, elsewhere": ([change("set", "/notes", {"all": BIG * 9})], True),
    "notes that are kept": ([change("set", "/notes", {**STATE["notes"], "more": 1})], False),
    "one note changed": ([change("set", "/notes/note 1", "shorter")], False),
    "a small value": ([change("delete", "/n")], False),
    "a number": ([change("set", "/n", 2)], False),
    "a new value": ([change("set", "/new", BIG)], False),
    "nothing": ([], False),
    "what it brought itself": ([change("set", "/new", BIG), change("delete", "/new")], True),
}


@pytest.mark.parametrize("what", EDITS)
def test_stated_changes(lineage, what):
    changes, found = EDITS[what]
    assert watched(lineage, lambda made: made.changes(changes)) is found


COMMITS = {
    "the same": (lambda state: None, False),
    "an append": (lambda state: state["long"].append("more"), False),
    "something in the middle": (lambda state: state["long"].insert(5, "more"), False),
    "one item less": (lambda state: state["long"].pop(7), True),
    "a window": (lambda state: (state["long"].pop(0), state["long"].append("more")), True),
    "a window that gained two": (lambda state: (state["long"].pop(0), state["long"].extend("ab")), True),
    "an item changed": (lambda state: state["long"].__setitem__(3, "another"), False),
    "a summary": (lambda state: state["long"].__setitem__(slice(0, 50), ["summary"]), True),
    "another order": (lambda state: state["long"].reverse(), False),
    "an item moved": (lambda state: state["long"].append(state["long"].pop(0)), False),
    "items that others stand for": (lambda state: state["long"].__setitem__(slice(0, 40), ["-"] * 40), True),
    "one of two that moved and another that came": (
        lambda state: state["long"].__setitem__(slice(0, 3), [LONG[2], LONG[0], "x"]),
        False,
    ),
    "a key": (lambda state: state.pop("text"), True),
    "a small key": (lambda state: state.pop("n"), False),
    "many small keys": (lambda state: state.update(notes={}), True),
    "a mapping with a short list": (lambda state: state.pop("deep"), False),
    "an item of a short list": (lambda state: state["short"].pop(), True),
    "a deep item": (lambda state: state["deep"]["lists"]["a"].pop(), True),
    "another type": (lambda state: state.update(long={"text": BIG * 9}), True),
}


@pytest.mark.parametrize("what", COMMITS)
def test_whole_states(lineage, what):
    act, found = COMMITS[what]
    state = copy.deepcopy(STATE)
    if lineage.seq > 1:
        state["n"] = 1
    act(state)
    assert watched(lineage, lambda made: made.state(state, 1 << 30)) is found


def test_nobody_looks_unless_asked(lineage):
    made = lineage._writer()
    lineage.land(made.changes([change("delete", "/long")]))
    assert not made.shrunk


def test_one_act_is_not_charged_for_the_one_before(lineage):
    for at in range(12):
        assert watched(lineage, lambda made, at=at: made.changes([change("delete", f"/notes/note {at}")])) is False
    assert watched(lineage, lambda made: made.changes([change("delete", "/long/0")])) is True
    assert watched(lineage, lambda made: made.changes([change("append", "/long", 1)])) is False


def test_values_that_are_shared_weigh_what_they_hold():
    mini = MiniLineage("a")
    large = {"text": "z" * 50_000, "list": LONG}
    mini.commit(
        {"a": "z" * 50_000, "items": ["w" * 50_000, "v" * 50_000], "map": {f"k{at}": "u" * 400 for at in range(40)}}
    )
    assert mini.shared
    assert watched(mini, lambda made: made.changes([change("set", "/b", large)])) is False
    assert watched(mini, lambda made: made.changes([change("set", "/items/0", "w")])) is True
    assert watched(mini, lambda made: made.changes([change("set", "/items/1", "V" * 50_000)])) is False
    assert watched(mini, lambda made: made.changes([change("set", "/map", {"k0": "u" * 400})])) is True
    assert watched(mini, lambda made: made.changes([change("set", "/a", "z" * 100)])) is True
    assert watched(mini, lambda made: made.changes([change("delete", "/b")])) is True


def test_weight_counts_what_encodings_have():
    assert weight(encode("abc")) == 4 and weight(7) == 7
    assert weight([encode("abc"), encode(1)]) == 5
    assert weight({"key": encode("abc")}) == 8


lists = st.lists(st.text("ab", max_size=2), max_size=7)


@given(old=lists, new=lists, small=st.booleans())
def test_a_list_that_holds_every_item_it_held_lost_none_and_a_shorter_one_did(old, new, small):
    with pytest.MonkeyPatch.context() as patch:
        if small:
            for module in (shape, form):
                patch.setattr(module, "SPLIT", 8)
            patch.setattr(writer, "FIRST_MIN", 1 << 20)
        found = []
        for act in (
            lambda made: made.state({"l": new}, 1 << 30),
            lambda made: made.changes([change("set", "/l", new)]),
            lambda made: made.changes([change("splice", "/l", *new, start=0, stop=len(old))]),
        ):
            mini = MiniLineage("a")
            mini.commit({"l": old})
            found.append(watched(mini, act))
    left = list(new)
    gone = [item for item in old if item not in left or left.remove(item)]
    assert found == [found[0]] * 3
    if not gone:
        assert not found[0]
    if len(new) < len(old) or len(gone) > len(new) - (len(old) - len(gone)):
        assert found[0]
    if len(old) == len(new) and sum(a != b for a, b in zip(old, new, strict=True)) == 1:
        assert not found[0]
