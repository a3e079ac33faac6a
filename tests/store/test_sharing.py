"""What lineages have in common is stored once: tool databases, and the history that a fork starts from."""

from __future__ import annotations

import random

import pytest
from sample import words
from store_cases import size, typed

import cpstore


def database(megabytes, seed="tools"):
    """A tool database like tau-bench's: many small records, hardly any repetition."""
    chosen, records = random.Random(seed), {}
    while len(records) < megabytes * 10_000:
        number = len(records)
        records[f"order-{number:07}"] = {
            "id": number,
            "name": f"{chosen.getrandbits(200):050x}",
            "cents": chosen.randrange(99_999),
        }
    return records


def test_twenty_lineages_with_one_tool_database_cost_close_to_one_copy(tmp_path):
    tools = database(3)
    sizes = {}
    for count in (1, 20):
        path = tmp_path / f"{count}.db"
        with cpstore.open(path, durability="normal") as store:
            for number in range(count):
                task = store.lineage(f"task {number}")
                task.commit({"messages": [], "tools": tools}, step=0)
                with task.edit(step=1) as edit:
                    edit.append("/messages", f"task {number} begins")
            for number in range(0, count, 7):
                loaded = store.lineage(f"task {number}").load()
                assert loaded == {"messages": [f"task {number} begins"], "tools": tools}
            if count > 1:
                assert store.verify().good
        sizes[count] = size(path)
    assert sizes[1] > 1_000_000, "the database compresses too well to show anything"
    assert sizes[20] < 1.3 * sizes[1]


def test_a_change_in_a_shared_database_costs_the_change(path):
    tools = database(1)
    with cpstore.open(path, durability="normal") as store:
        one, other = store.lineage("one"), store.lineage("other")
        one.commit({"tools": tools}, step=0)
        other.commit({"tools": tools}, step=0)
        before = sum(store.stats()[name] for name in ("tail_bytes", "segment_bytes", "shared_bytes"))
        with one.edit(step=1) as edit:
            edit.set("/tools/order-0000007/cents", 1)
        after = sum(store.stats()[name] for name in ("tail_bytes", "segment_bytes", "shared_bytes"))
        assert after - before < 2_000
        assert one.load()["tools"]["order-0000007"]["cents"] == 1
        assert other.load() == {"tools": tools} == one.load(1)
        assert store.verify().good


def test_f5_fifty_forks_of_a_large_parent_cost_the_parent_and_little_more(path):
    with cpstore.open(path, durability="normal") as store:
        parent, state = store.lineage("parent"), {"messages": [], "notes": {}}
        parent.commit(state, step=0)
        chosen = random.Random("history")
        for step in range(1, 41):
            with parent.edit(step=step) as edit:
                items = [chosen.randbytes(16_000) for _ in range(16)]
                state["messages"] += items
                edit.append("/messages", *items)
    alone = size(path)
    assert alone > 10_000_000
    with cpstore.open(path, durability="normal") as store:
        parent = store.lineage("parent")
        for number in range(50):
            child = parent.fork(f"child {number}")
            with child.edit(step=41) as edit:
                edit.append("/messages", f"child {number} begins")
        for number in (0, 49):
            assert store.lineage(f"child {number}").load()["messages"] == [*state["messages"], f"child {number} begins"]
    assert size(path) < alone + 50 * 2_048
    with cpstore.open(path, read_only=True) as store:
        assert store.lineage("parent").load() == state


def cost_of_fork(path, history):
    """Return (rows, stored bytes) that a fork adds after a history of so many steps."""
    with cpstore.open(path, durability="normal") as store:
        parent = store.lineage("parent")
        parent.commit({"messages": []}, step=0)
        for step in range(1, history):
            with parent.edit(step=step) as edit:
                edit.append("/messages", f"message {step} {words(step, 6)}")
        before = store.stats()
        parent.fork("child")
        after = store.stats()
        kept = ("tail_bytes", "segment_bytes", "shared_bytes")
        assert store.lineage("child").load() == parent.load()
        return after["entries"] - before["entries"], sum(after[name] - before[name] for name in kept)


def test_the_cost_of_a_fork_does_not_depend_on_the_history(tmp_path):
    short, long = cost_of_fork(tmp_path / "short.db", 20), cost_of_fork(tmp_path / "long.db", 1_500)
    assert short[0] == long[0] == 1
    assert long[1] < short[1] + 400, (short, long)  # the frontier of the list's tree grows with the logarithm
    assert long[1] < 1_500


def test_forks_of_forks_read_what_each_of_them_wrote(path, small):
    with cpstore.open(path) as store:
        expected = {}
        task = store.lineage("0")
        states = [{"messages": []}]
        task.commit(states[0], step=0)
        for depth in range(6):
            for turn in range(7):
                item = f"{depth}/{turn} {words(depth * 10 + turn, 4)}"
                with task.edit(step=depth) as edit:
                    edit.append("/messages", item)
                states.append({"messages": [*states[-1]["messages"], item]})
            expected[task.id] = states
            revision = len(states) - depth
            task = task.fork(str(depth + 1), revision=revision)
            states = [states[revision - 1]]
        for name, revisions in expected.items():
            for revision, state in enumerate(revisions, 1):
                assert typed(store.lineage(name).load(revision)) == typed(state)
        assert store.verify().good


@pytest.mark.parametrize("namespace", ["default", "other"])
def test_sharing_ends_at_the_namespace(path, namespace):
    value = {"secret": words(1, 900)}
    with cpstore.open(path) as store:
        store.lineage("one").commit(value, step=0)
        before = store.stats()["shared_values"]
        store.lineage("two", namespace=namespace).commit(value, step=0)
        assert store.stats()["shared_values"] - before == (0 if namespace == "default" else before)
        assert store.lineage("two", namespace=namespace).load() == value
