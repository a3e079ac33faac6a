"""The snapshot layer as a whole: whatever is committed is loaded equal, at every revision, however it was packed."""

from __future__ import annotations

import copy
import random
from typing import TYPE_CHECKING, Any

import pytest
from strand import MiniLineage

from cpstore.errors import CorruptError, InvalidStateError
from cpstore.snapshot import values
from cpstore.snapshot import writer as writing
from cpstore.snapshot.edits import Change
from cpstore.snapshot.records import Segment
from cpstore.snapshot.replay import Replay
from cpstore.snapshot.writer import SnapshotWriter, detach

if TYPE_CHECKING:
    from collections.abc import Callable


def words(rng: random.Random, count: int) -> str:
    stock = ("alpha", "beta", "gamma", "delta", "tool", "error", "flight")
    return " ".join(rng.choice(stock) + str(rng.randint(0, 99)) for _ in range(count))


def wander(rng: random.Random, state: dict[str, Any]) -> None:
    """Change a state in one of the ways agents do."""
    messages = state.setdefault("messages", [])
    database = state.setdefault("db", {})

    def some(sequence: list[Any]) -> int:
        return rng.randrange(len(sequence)) if sequence else 0

    acts: list[Callable[[], object]] = [
        *[lambda: messages.append({"role": "user", "content": words(rng, rng.choice([1, 5, 60, 400]))})] * 5,
        lambda: messages.__setitem__(slice(some(messages), some(messages) + 1), [{"edited": words(rng, 30)}]),
        lambda: messages.insert(some(messages), words(rng, 50)),
        lambda: messages.__delitem__(slice(some(messages), some(messages) + 1)),
        lambda: state.update(messages=[{"summary": words(rng, 30)}, *messages[len(messages) * 4 // 5 :]]),
        lambda: database.setdefault(f"t{rng.randint(0, 5)}", {}).update(
            {f"k{rng.randint(0, 90)}": {"v": words(rng, 20)}}
        ),
        lambda: database.pop(rng.choice(sorted(database))) if database else None,
        lambda: state.update(big=words(rng, rng.choice([10, 1000, 8000]))),
        lambda: state.update(big=state.get("big", "")[:500] + "EDIT" + state.get("big", "")[500:]),
        lambda: rng.shuffle(messages),
        lambda: state.update(other=[words(rng, 40) for _ in range(rng.randint(0, 80))]),
        lambda: state.pop("other", None),
        lambda: state.update(number=rng.random(), when=(1, rng.random())),
    ]
    rng.choice(acts)()


@pytest.mark.parametrize("records", [1, 3, 16, 128])
@pytest.mark.parametrize("seed", range(6))
def test_every_revision_loads_equal_and_replays_to_its_root(
    seed: int, records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "SEGMENT_RECORDS", records)
    rng = random.Random(seed * 1000 + records)
    lineage = MiniLineage("a")
    state: dict[str, Any] = {"system": words(rng, 900)}
    committed = []
    for step in range(140):
        lineage.commit(state)
        committed.append(copy.deepcopy(state))
        if rng.random() < 0.1:
            lineage.forget_writer()
        wander(rng, state)
        state["step"] = step

    assert committed == [lineage.load(seq) for seq in range(1, lineage.seq + 1)]
    replay = Replay(lineage.states())
    assert lineage.roots == [replay.step(seq) for seq in range(1, lineage.seq + 1)]


def test_a_whole_state_and_stated_changes_make_the_same_root() -> None:
    rng = random.Random(3)
    messages = [{"role": "user", "content": words(rng, 80)} for _ in range(300)]
    whole, stated = MiniLineage("whole"), MiniLineage("stated")
    whole.commit({"messages": messages[:40]})
    stated.commit({"messages": messages[:40]})

    for count in range(41, 301):
        whole.commit({"messages": messages[:count]})
        stated.edit(Change("append", ("messages",), (values.encode(messages[count - 1]),)))
        if count % 50 == 0:
            stated.forget_writer()

    assert whole.roots == stated.roots


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            Change("set", ("messages", "1", "content"), (values.encode("new"),)),
            lambda s: s["messages"][1].update(content="new"),
        ),
        (Change("set", ("messages", "0"), (values.encode(7),)), lambda s: s["messages"].__setitem__(0, 7)),
        (Change("delete", ("messages", "2")), lambda s: s["messages"].pop(2)),
        (
            Change("splice", ("messages",), (values.encode(1), values.encode(2)), 1, 3),
            lambda s: s["messages"].__setitem__(slice(1, 3), [1, 2]),
        ),
        (
            Change("append", ("messages", "3", "tags"), (values.encode("x"),)),
            lambda s: s["messages"][3]["tags"].append("x"),
        ),
        (Change("append", ("short",), (values.encode(4),)), lambda s: s["short"].append(4)),
        (Change("append", ("short",), (values.encode("y" * 5000),)), lambda s: s["short"].append("y" * 5000)),
        (Change("set", ("deep", "a", "b"), (values.encode((1, 2)),)), lambda s: s["deep"]["a"].update(b=(1, 2))),
        (Change("set", ("deep", "a/b"), (values.encode(1),)), lambda s: s["deep"].update({"a/b": 1})),
        (Change("delete", ("deep", "a")), lambda s: s["deep"].pop("a")),
        (Change("delete", ("messages",)), lambda s: s.pop("messages")),
        (Change("splice", ("short",), (), 0, 2), lambda s: s["short"].__delitem__(slice(0, 2))),
        (Change("set", ("db", "k7", "v"), (values.encode("moved"),)), lambda s: s["db"]["k7"].update(v="moved")),
    ],
    ids=lambda value: value.verb + value.path if isinstance(value, Change) else "",
)
@pytest.mark.parametrize("reopened", [False, True])
def test_each_stated_change_does_what_it_says(change: Change, expected: Callable[[Any], Any], reopened: bool) -> None:
    state: dict[str, Any] = {
        "messages": [{"content": "m" * 700, "tags": []} for _ in range(9)],
        "short": [1, 2, 3],
        "deep": {"a": {"b": 0}},
        "db": {f"k{n}": {"v": "w" * 90} for n in range(80)},
    }
    lineage = MiniLineage("a")
    lineage.commit(state)
    if reopened:
        lineage.forget_writer()

    lineage.edit(change)

    after = copy.deepcopy(state)
    expected(after)
    assert after == lineage.load()
    assert state == lineage.load(1)


@pytest.mark.parametrize(
    "change",
    [
        Change("append", ("nowhere",), (values.encode(1),)),
        Change("append", ("deep",), (values.encode(1),)),
        Change("set", ("messages", "9"), (values.encode(1),)),
        Change("set", ("messages", "-1"), (values.encode(1),)),
        Change("set", ("messages", "01"), (values.encode(1),)),
        Change("set", ("gone", "x"), (values.encode(1),)),
        Change("delete", ("gone",)),
        Change("splice", ("messages",), (), 3, 99),
        Change("set", ("messages", "0", "content", "x"), (values.encode(1),)),
    ],
    ids=lambda change: change.verb + change.path,
)
def test_a_change_of_a_place_that_is_not_there_is_refused_with_its_path(change: Change) -> None:
    lineage = MiniLineage("a")
    lineage.commit({"messages": [{"content": "m" * 700} for _ in range(9)], "deep": {"a": 1}})

    with pytest.raises(InvalidStateError) as refused:
        lineage.edit(change)

    assert change.path == refused.value.path


def test_a_fork_shares_items_and_both_sides_go_on() -> None:
    streams: dict[str, Any] = {}
    parent = MiniLineage("parent", streams=streams)
    messages = [{"content": f"{n} " + "m" * 300} for n in range(60)]
    for count in range(20, 61):
        parent.commit({"messages": messages[:count]})
    child = MiniLineage("child", shared=parent.shared, streams=streams)
    tree, _, _ = parent.states().hashed(30)
    reading = parent.states()
    child.writer = SnapshotWriter.start(lambda: reading, parent.shared.get, detach(tree, "parent", 1))
    child.land(child.writer.bare_base())
    child.forget_writer()

    child.edit(Change("append", ("messages",), (values.encode("mine"),)))
    child.edit(Change("set", ("messages", "3"), (values.encode("changed"),)))
    parent.commit({"messages": ["other"]})

    assert parent.roots[29] == child.roots[0]
    assert {"messages": messages[:49]} == child.load(1)
    after = [*messages[:49], "mine"]
    after[3] = "changed"
    assert {"messages": after} == child.load()
    assert sum(map(len, child.strand.blocks.values())) < 1500


def test_a_flipped_bit_anywhere_is_refused_before_anything_is_decompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "SEGMENT_RECORDS", 8)
    rng = random.Random(7)
    lineage = MiniLineage("a")
    state: dict[str, Any] = {}
    for _ in range(21):
        wander(rng, state)
        lineage.commit(state)
    good = lineage.load()
    for _ in range(300):
        strand = copy.deepcopy(lineage.strand)
        pick = rng.choice(["block", "ops", "items", "digest", "frontier", "parts"])
        if pick == "block":
            seq = rng.choice(sorted(lineage.strand.blocks))
            lineage.strand.blocks[seq] = flip(rng, lineage.strand.blocks[seq])
        else:
            first = rng.choice(sorted(lineage.strand.sealed))
            lineage.strand.sealed[first] = damaged(rng, lineage.strand.sealed[first], pick)
        try:
            assert good == lineage.load()
        except CorruptError:
            pass
        lineage.strand = strand


def damaged(rng: random.Random, segment: Segment, pick: str) -> Segment:
    import attrs

    if pick in ("ops", "items"):
        return attrs.evolve(segment, **{pick: flip(rng, getattr(segment, pick))})
    return attrs.evolve(segment, head=attrs.evolve(segment.head, **{pick: flip(rng, getattr(segment.head, pick))}))


def flip(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes((data[at] ^ 1 << rng.randrange(8),)) + data[at + 1 :]
