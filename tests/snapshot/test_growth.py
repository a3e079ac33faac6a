"""What grows with what: every cost here is counted, in calls, bytes, rows or bytecodes."""

from __future__ import annotations

import gc
import random
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from steps import calls, steps
from strand import MiniLineage

from cpstore.digest import leaf_hash, root_of
from cpstore.errors import CorruptError
from cpstore.snapshot import draft, leaves, plain, shape, source, tree, values
from cpstore.snapshot import writer as writing
from cpstore.snapshot.edits import Change
from cpstore.snapshot.leaves import Leaves
from cpstore.snapshot.replay import Replay
from cpstore.snapshot.tree import List, Map, Run, lists_of
from cpstore.snapshot.whole import Kept
from cpstore.snapshot.writer import CONTEXT_BYTES, SnapshotWriter, detach

if TYPE_CHECKING:
    from cpstore.snapshot.records import SegmentHead


def put(path: str, value: Any) -> Change:
    return Change("set", tuple(path.split("/")[1:]), (values.encode(value),))


def append(path: str, *items: Any) -> Change:
    return Change("append", tuple(path.split("/")[1:]), tuple(map(values.encode, items)))


def text(rng: random.Random, size: int) -> str:
    return f"{rng.getrandbits(4 * size):0{size}x}"


def fork(parent: MiniLineage, name: str) -> MiniLineage:
    child = MiniLineage(name, shared=parent.shared, streams=parent.streams)
    states = parent.states()
    made = states.hashed(parent.seq)[0]
    child.writer = SnapshotWriter.start(lambda: states, parent.shared.get, detach(made, parent.name, 1))
    child.land(child.writer.bare_base())
    child.forget_writer()
    return child


def verified(lineage: MiniLineage) -> bool:
    replay = Replay(lineage.states())
    return lineage.roots == [replay.step(seq) for seq in range(1, lineage.seq + 1)]


def message(number: int, kind: str = "message") -> dict[str, Any]:
    return {"role": "tool", "content": f"{kind} {number} " + "x" * 40}


@pytest.fixture(name="small_segments")
def _small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "SEGMENT_RECORDS", 16)


# --- lists ---------------------------------------------------------------------------------------------------------


def scattered(lineage: MiniLineage, count: int) -> list[Any]:
    """Commit a list of ``count`` messages, then edit every other one."""
    messages = [message(n) for n in range(count)]
    lineage.commit({"messages": messages[:50]})
    for n in range(50, count, 10):
        lineage.edit(append("/messages", *messages[n : n + 10]))
    for n in range(0, count, 2):
        messages[n] = message(n, "edited")
        lineage.edit(put(f"/messages/{n}", messages[n]))
    return messages


@pytest.mark.usefixtures("small_segments")
def test_a_load_of_a_list_edited_here_and_there_reads_each_segment_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lineage = MiniLineage("a")
    messages = scattered(lineage, 400)
    read = calls(monkeypatch, source, "decompress")
    split = calls(monkeypatch, plain, "_raws")

    assert lineage.load() == {"messages": messages}

    frames = [frame for (frame,) in read]
    assert len(frames) == len(set(frames)) > 10
    assert len(split) <= len(frames)


@pytest.mark.usefixtures("small_segments")
def test_segments_that_memory_has_no_room_for_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cpstore.snapshot.state.ROOM", 1)
    lineage = MiniLineage("a")
    messages = scattered(lineage, 100)

    assert lineage.load() == {"messages": messages}


def test_decompressed_segments_stay_within_the_room_there_is() -> None:
    recent = plain.Recent()
    recent.room = 100
    for first in (1, 2, 3):
        recent.put(first, {1: plain.Items(plain.Part(1, 0, 1, 40), b"x" * 40)})
    recent.get(2)
    recent.put(4, {1: plain.Items(plain.Part(1, 0, 1, 40), b"x" * 40)})
    held = [first for first in (1, 2, 3, 4) if recent.get(first)]
    recent.put(5, {1: plain.Items(plain.Part(1, 0, 1, 400), b"x" * 400)})

    assert (held, [first for first in range(6) if recent.get(first)]) == ([2, 4], [5])


def test_an_edit_of_a_list_made_of_many_runs_touches_a_few_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    cost = []
    for count in (200, 2000):
        node = List(1, count, [Run(0, 1, 0, count, 1)], None)
        for at in range(0, count, 2):
            node.splice(at, 1, [node.log(1, 2)], None)
        made = calls(monkeypatch, Run, "__init__")
        node.splice(count // 2, 1, [node.log(1, 3)], None)
        node.part(count // 2, 3)
        cost.append((len(made), steps(lambda: node.part(count // 2, 1))))
        monkeypatch.undo()

    assert cost[0] == cost[1]
    assert cost[0][0] < 10


@pytest.mark.parametrize("seed", range(20))
def test_runs_are_exchanged_as_items_are(seed: int) -> None:
    rng = random.Random(seed)
    items = list(range(30))
    node = List(1, 30, [Run(0, 1, 0, 30, 1)], None)
    for _ in range(150):
        at = rng.randint(0, len(items))
        removed = rng.randint(0, min(4, len(items) - at))
        start = rng.randint(0, len(items))
        kept = (start, rng.randint(0, min(3, len(items) - start)))
        first, count = node.total, rng.randint(0, 3)
        runs = [*node.part(*kept), node.log(count, 1)]
        new = [*items[kept[0] : sum(kept)], *range(first, first + count)]
        node.splice(at, removed, runs, None)
        items[at : at + removed] = new

        assert [item for run in node.runs for item in range(run.start, run.start + run.count)] == items
        assert node.count == len(items)
        assert all(run.count for run in node.runs)
        assert not any(a.joins(b) for a, b in zip(node.runs, node.runs[1:], strict=False))
        low = rng.randint(0, len(items))
        high = rng.randint(low, len(items))
        part = [item for run in node.part(low, high - low) for item in range(run.start, run.start + run.count)]
        assert part == items[low:high]


@pytest.mark.usefixtures("small_segments")
def test_a_fork_reads_each_segment_of_its_parent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lineage = MiniLineage("a", streams={})
    lineage.commit({f"c{n}": ["x" * 1100] * 2 for n in range(8)})
    for step in range(60):
        lineage.edit(*[append(f"/c{n}", f"{n}.{step}") for n in range(8)])
    child = fork(lineage, "b")
    read = calls(monkeypatch, source, "decompress")

    loaded = child.load()

    assert loaded["c7"][-2:] == ["7.58", "7.59"]
    frames = [frame for (frame,) in read]
    assert len(frames) == len(set(frames))


def test_what_is_looked_up_of_the_stream_is_asked_a_few_times(
    monkeypatch: pytest.MonkeyPatch, small_segments: None
) -> None:
    lineage = MiniLineage("a")
    lineage.commit({"m": [message(n) for n in range(20)]})
    for n in range(20, 900):
        lineage.edit(append("/m", message(n)))
    lineage.commit({"m": lineage.load()["m"][::-1]})  # its runs go back through the stream one by one
    asked = rows_asked(monkeypatch, lineage)
    reader = lineage.source()

    for seq in range(lineage.seq - 20, 0, -16):
        reader.heads(seq, seq + 1)

    assert sum(asked) < 8 * len(lineage.strand.sealed)


def rows_asked(monkeypatch: pytest.MonkeyPatch, lineage: MiniLineage) -> list[int]:
    """Return a list that takes in how many rows each question for sealed segments gets."""
    asked: list[int] = []
    segments = lineage.strand.segments

    def counted(since: int) -> list[SegmentHead]:
        found = segments(since)
        asked.append(len(found))
        return found

    monkeypatch.setattr(lineage.strand, "segments", counted)
    return asked


def test_a_window_that_moved_on_is_not_looked_for_from_where_it_began(
    monkeypatch: pytest.MonkeyPatch, small_segments: None
) -> None:
    """Also where the writing end is made anew more often than the window moves by its length."""
    lineage = MiniLineage("a")
    window = [message(n) for n in range(60)]
    lineage.commit({"m": window})
    for n in range(60, 700):
        lineage.edit(Change("splice", ("m",), (), 0, 1), append("/m", message(n)))
        window = [*window[1:], message(n)]
        if n % 10 == 0:
            lineage.forget_writer()
    asked = rows_asked(monkeypatch, lineage)

    assert lineage.load() == {"m": window}

    assert max(asked) <= 12 < len(lineage.strand.sealed)


# --- hashes --------------------------------------------------------------------------------------------------------


def hashes(count: int, salt: str = "") -> list[bytes]:
    return [leaf_hash(f"{salt}{n}".encode()) for n in range(count)]


@pytest.mark.parametrize("seed", range(20))
def test_the_root_over_a_list_follows_every_splice(seed: int) -> None:
    rng = random.Random(seed)
    items = hashes(rng.randint(0, 150))
    kept = Leaves(items)
    for turn in range(60):
        at = rng.choice([rng.randint(0, len(items)), len(items)])
        removed = min(rng.choice([0, 1, 2, 8, 64]), len(items) - at)
        new = hashes(rng.choice([0, 1, 2, 8, 16, removed, removed + 8]), f"{turn}.")
        items[at : at + removed] = new
        kept.splice(at, removed, new)

        assert (kept.frontier().size, kept.frontier().root()) == (len(items), root_of(items))
        assert kept.part(0, len(items)) == items


@pytest.mark.parametrize(
    ("at", "removed", "new", "limit"),
    [
        pytest.param(2000, 1, 1, 12, id="exchange one"),
        pytest.param(4096, 0, 1, 2, id="append one"),
        pytest.param(4095, 1, 0, 2, id="drop the last"),
        pytest.param(0, 1, 0, 4096, id="drop the first"),
        pytest.param(0, 64, 0, 4096 // 64, id="drop the first 64"),
        pytest.param(0, 64, 1, 4096, id="compact 64 to one"),
        pytest.param(0, 65, 1, 4096 // 64 + 12, id="compact 65 to one"),
    ],
)
def test_what_a_splice_hashes(at: int, removed: int, new: int, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Leaves(hashes(4096))
    made = calls(monkeypatch, leaves, "sha256")

    kept.splice(at, removed, hashes(new, "new"))

    assert len(made) <= limit


def test_an_edit_of_a_large_mapping_hashes_what_it_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Map({f"k{n:05}": tree.Leaf(values.encode(n)) for n in range(20000)})
    before = node.digest
    made = calls(monkeypatch, tree, "sha256")

    for key, value in (("k00007", 1), ("new", 2)):
        node.children[key] = tree.Leaf(values.encode(value))
        node.touch(key)
        assert node.digest != before
    del node.children["new"]
    node.touch("new")
    node.children["k00007"] = tree.Leaf(values.encode(7))
    node.touch("k00007")

    assert node.digest == before
    assert len(made) <= 12
    assert Map(dict(reversed(node.children.items()))).digest == before


# --- whole states --------------------------------------------------------------------------------------------------


def test_forgetting_a_place_costs_its_depth() -> None:
    cost = []
    for count in (10, 3000):
        kept = Kept()
        for n in range(count):
            kept.put((f"list{n}",), b"x" * 10)
            kept.put((f"map{n}", "a", "b"), b"x" * 10)
        cost.append(steps(lambda: kept.drop(("map7", "a"))))
        assert (kept.get(("map7", "a", "b")), kept.get(("map8", "a", "b"))) == (None, b"x" * 10)
        assert kept.size == 10 * (2 * count - 1)

    assert cost[0] == cost[1]


def test_a_place_is_forgotten_with_all_below_and_all_that_contain_it() -> None:
    kept = Kept()
    places = [(), ("a",), ("a", "b"), ("a", "b", "c"), ("a", "d"), ("e",)]
    for path in places:
        kept.put(path, b"xy")
    kept.put(("e",), bytearray(b"xyz"))

    kept.drop(("a", "b"))
    kept.drop(("nowhere", "at", "all"))

    assert [path for path in places if kept.get(path)] == [("a", "d"), ("e",)]
    assert kept.size == 5
    kept.clear()
    assert kept.size == 0 and kept.get(("e",)) is None


@pytest.mark.parametrize("shared", [True, False])
def test_a_new_value_is_looked_into_once_however_deep(shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    value: Any = {"text": "x" * 5000} if shared else ["x" * 100 for _ in range(200)]
    for _ in range(60):
        value = {"a": value}
    split = calls(monkeypatch, shape, "split_map")
    lineage = MiniLineage("a")

    lineage.commit({"v": value})

    assert lineage.load() == {"v": value}
    assert len(split) <= 62


# --- shared values -------------------------------------------------------------------------------------------------


def test_noting_a_change_below_a_shared_mapping_costs_its_depth() -> None:
    cost = []
    for count in (10, 3000):
        node = Map({}, b"ref")
        for n in range(count):
            node.note(("table", f"k{n}"))
        cost.append(steps(lambda: node.note(("table", "new"))))

    assert cost[0] == cost[1]


def test_changes_below_a_shared_mapping_imply_those_deeper_down() -> None:
    node = Map({}, b"ref")
    for path in (("a", "b"), ("a", "c", "d"), ("e",), ("e", "f"), ("a", "c"), ("a", "c", "x")):
        node.note(path)

    assert sorted(node.changed()) == [("a", "b"), ("a", "c"), ("e",)]


@pytest.mark.parametrize("size", [2000, 40_000, 70_000])
@pytest.mark.parametrize("where", ["front", "middle", "end"])
def test_a_large_text_that_changes_a_little_is_stored_by_what_changed(size: int, where: str) -> None:
    rng = random.Random(size)
    lineage = MiniLineage("a")
    lineage.commit({"n": 1})
    pad = text(rng, size)
    lineage.edit(put("/pad", pad))
    pads = [pad]
    before = 0
    for step in range(40):
        at = {"front": 0, "middle": len(pad) // 2, "end": len(pad)}[where]
        pad = pad[:at] + text(rng, 8) + pad[at:]
        lineage.edit(put("/pad", pad))
        pads.append(pad)
        if step == 0:  # the first time it may be stored once more
            before = stored(lineage)
        if step % 9 == 0:
            lineage.forget_writer()

    assert stored(lineage) - before < 40 * 400 + size
    assert [lineage.load(seq + 2)["pad"] for seq in range(41)] == pads
    assert verified(lineage)


def stored(lineage: MiniLineage) -> int:
    sealed = sum(len(segment.ops) + len(segment.items) for segment in lineage.strand.sealed.values())
    return sealed + sum(map(len, lineage.strand.blocks.values())) + sum(map(len, lineage.shared.values()))


def test_a_large_text_that_changes_altogether_is_still_shared() -> None:
    rng = random.Random(2)
    one, other = MiniLineage("a"), MiniLineage("b")
    other.shared = one.shared
    for step in range(4):
        content = text(rng, 40_000)
        for lineage in (one, other):
            lineage.edit(put("/pad", content)) if step else lineage.commit({"pad": content})

    assert len(one.shared) == 4
    assert stored(one) < 4 * 25_000


@pytest.mark.parametrize("first", [True, False])
def test_what_is_shared_is_what_records_refer_to(first: bool) -> None:
    rng = random.Random(3)
    lineage = MiniLineage("a")
    if not first:
        lineage.commit({"n": 1})
    for _ in range(1 if first else 60):
        lineage.edit(put("/pad", text(rng, 40_000)), put("/pad", 1), put("/map", {"k": text(rng, 40_000)}))
    replay = Replay(lineage.states())
    for seq in range(1, lineage.seq + 1):
        replay.step(seq)

    assert {ref.content for ref in replay.refs} == set(lineage.shared)
    assert first or len({lineage.source().base(seq) for seq in range(1, lineage.seq + 1)}) > 1


def test_a_damaged_shared_text_can_be_replaced() -> None:
    rng = random.Random(2)
    lineage = MiniLineage("a")
    content = text(rng, 40_000)
    lineage.commit({"pad": content})
    for digest in lineage.shared:
        lineage.shared[digest] = b"damaged"

    lineage.edit(put("/pad", content + "more"))

    assert lineage.load() == {"pad": content + "more"}
    with pytest.raises(CorruptError):
        lineage.load(1)


def test_a_fork_of_forks_names_only_the_lineages_that_it_reads() -> None:
    first = MiniLineage("first", streams={})
    messages = [message(n) for n in range(60)]
    first.commit({"m": messages[:40], "n": 1})
    last, middle = first, first
    for n in range(12):
        last = fork(last, f"fork {n}")
        if n == 5:
            last.edit(append("/m", *messages[40:]))
            middle = last
        last.edit(put("/n", n))

    states = last.states()
    made = states.tree(last.seq)

    assert made.sources == [("first", 1), (middle.name, 1)]
    assert states.value(made) == {"m": messages, "n": 11}
    assert verified(last)
    last.edit(put("/m", ["x" * 3000] * 2))
    assert fork(last, "new").states().tree(1).sources == [(last.name, 1)]


# --- bases ---------------------------------------------------------------------------------------------------------


def since_base(lineage: MiniLineage, seq: int) -> tuple[int, int]:
    """Return how many bytes of changes, and segments, a load of an entry reads."""
    reader = lineage.source()
    base = reader.base(seq)
    changes = sum(len(bytes(record.payload)) for record in reader.records(base, seq)[1:])
    return changes, sum(
        base < segment.head.end and segment.head.first <= seq for segment in lineage.strand.sealed.values()
    )


@pytest.mark.parametrize("reopened", [False, True])
def test_a_base_comes_although_every_commit_changes_much(reopened: bool) -> None:
    rng = random.Random(1)
    lineage = MiniLineage("a")
    contents = []
    for step in range(400):
        contents.append(text(rng, 3200))
        lineage.commit({"scratch": contents[-1], "n": 0})
        if reopened and step % 7 == 0:
            lineage.forget_writer()

    assert max(since_base(lineage, seq)[0] for seq in range(1, 401, 3)) <= 5 * writing.BASE_MIN + 4000
    assert [lineage.load(seq)["scratch"] for seq in (1, 150, 151, 400)] == [contents[n] for n in (0, 149, 150, 399)]
    assert verified(lineage)


def test_a_large_state_that_is_replaced_every_time_is_not_stored_twice() -> None:
    rng = random.Random(1)
    lineage = MiniLineage("a")
    for step in range(30):
        lineage.commit({f"k{n}": text(rng, 1000) for n in range(25)} | {"n": step})
    bases = {lineage.source().base(seq) for seq in range(1, 31)}

    assert 3 <= len(bases) <= 30 // writing.PATIENCE + 2


@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize("reopened", [False, True])
def test_a_large_state_is_read_from_few_segments_though_nothing_changes(reopened: bool) -> None:
    rng = random.Random(1)
    lineage = MiniLineage("a")
    state = {f"k{n}": text(rng, 900) for n in range(40)}
    lineage.commit(state)
    for step in range(400):
        lineage.edit()
        if reopened and step % 30 == 0:
            lineage.forget_writer()

    assert len(lineage.strand.sealed) == 25
    assert max(since_base(lineage, seq)[1] for seq in range(1, 402)) <= 40 * 900 // writing.OPENING + 2
    assert lineage.load() == state


def test_a_writing_end_made_anew_writes_no_base_that_the_old_one_would_not() -> None:
    one, other = MiniLineage("a"), MiniLineage("a")
    for step in range(100):
        for lineage in (one, other):
            lineage.commit({"n": step, "text": "x" * 500})
        other.forget_writer()

    assert one.strand.blocks == other.strand.blocks


# --- memory --------------------------------------------------------------------------------------------------------


BUFFER = 150_000
"""What the encoder holds in buffers that Python knows of; ``CONTEXT_BYTES`` counts them."""


def tools(value: Any) -> dict[str, Any]:
    return {"tools": {f"tool{n:05}": value(n) for n in range(8000)}}


def middle(lineage: MiniLineage) -> None:
    lineage.commit({"m": [message(n) for n in range(8000)]})
    for n in (5, 6):
        lineage.edit(put(f"/m/{n}/content", "y"))


def grown(lineage: MiniLineage) -> None:
    lineage.commit({"n": 0})
    for step in range(40):
        lineage.edit(*[put(f"/k{step}-{n}", n) for n in range(100)])


def unfolded(state: dict[str, Any], lineage: MiniLineage) -> None:
    lineage.commit(state)
    lineage.edit(put("/tools/tool00001", "z"))


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize(
    "fill",
    [
        pytest.param(lambda one: unfolded(tools(lambda n: {"name": f"tool {n}", "d": "x" * 40}), one), id="shared"),
        pytest.param(lambda one: unfolded(tools(lambda n: n), one), id="shared small"),
        pytest.param(grown, id="small keys"),
        pytest.param(middle, id="list"),
    ],
)
def test_the_weight_of_a_writing_end_is_about_what_it_holds(fill: Any, reopened: bool) -> None:
    warm = MiniLineage("warm")
    warm.commit({"a": 1})
    warm.load()
    lineage = MiniLineage("a")
    fill(lineage)
    if reopened:
        lineage.forget_writer()
    weight, held = 0, 0
    tracemalloc.start()
    try:
        if not reopened:
            lineage = MiniLineage("a")
            fill(lineage)
        else:
            lineage.edit(put("/tools/tool00002" if "tools" in lineage.load() else "/last", "z"))
        assert lineage.writer is not None
        weight = lineage.writer.weight - CONTEXT_BYTES
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        lineage.forget_writer()
        gc.collect()
        held = before - tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert held / 2 - BUFFER < weight < 2 * held


def test_lists_are_found_wherever_they_are() -> None:
    inner = List(1, 0, [], None)
    folded = Map(None, b"ref", b"", lambda: {"x": List(2, 0, [], None)})

    assert lists_of(Map({"a": Map({"b": inner}), "c": folded})) == [inner]
    assert draft.PATCH_MIN < 40_000
