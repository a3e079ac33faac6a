"""Sizes: what is accepted can be read again, a state is bounded however it grew, and memory is asked for in steps."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import msgspec
import pytest
import zstandard
from strand import MiniLineage

from cpstore.errors import CorruptError, InvalidStateError
from cpstore.snapshot import form, frames, size, values
from cpstore.snapshot import writer as writing
from cpstore.snapshot.edits import Change
from cpstore.snapshot.writer import detach


def change(verb: str, path: str, *items: Any, start: int = 0, stop: int = 0) -> Change:
    return Change(verb, tuple(path.split("/")[1:]), tuple(values.encode(item) for item in items), start, stop)


def noise(rng: random.Random, size: int) -> str:
    return f"{rng.getrandbits(4 * size):0{size}x}"


# --- frames ------------------------------------------------------------------------------------------------------


def test_a_small_tail_asks_for_little_memory() -> None:
    encoder = frames.TailEncoder()
    blocks = [encoder.feed(b"record %d" % at) for at in range(5)]
    tracemalloc.start()
    try:
        plain = frames.decompress_tail(blocks)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert plain == b"".join(b"record %d" % at for at in range(5))
    assert peak < 1 << 20


@pytest.mark.parametrize("seed", range(4))
def test_a_tail_is_read_whole_in_whatever_steps(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    records = [rng.choice([bytes, rng.randbytes])(rng.choice([1, 900, 140_000])) for _ in range(12)]
    encoder = frames.TailEncoder()
    blocks = [encoder.feed(record) for record in records]

    assert frames.decompress_tail([]) == b""
    for step in (7, 1000, 1 << 20):
        monkeypatch.setattr(frames, "_CHUNK", step)
        for count in (1, 11, 12):
            assert frames.decompress_tail(blocks[:count]) == b"".join(records[:count])


def test_a_tail_is_read_up_to_its_limit_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [frames.TailEncoder().feed(bytes(1 << 28))]
    monkeypatch.setattr(frames, "MAX_PLAIN", 1 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptError, match="larger than"):
            frames.decompress_tail(blocks)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 27


def test_a_frame_is_written_only_if_it_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_PLAIN", 1000)

    assert frames.decompress(frames.compress(bytes(1000))) == bytes(1000)
    with pytest.raises(InvalidStateError, match="1001 bytes"):
        frames.compress(bytes(1001))


def test_nothing_is_unpacked_of_a_frame_with_another_size_than_expected() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptError, match="it should have 10"):
            frames.decompress(bomb, 10)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("seed", range(4))
def test_what_fits_a_state_fits_all_frames_it_may_end_in(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # The constants scaled down alike: as released a frame holds 1 GiB, a segment is full at 512 KiB.
    limit = 1 << 16
    monkeypatch.setattr(frames, "MAX_PLAIN", 4 * limit)
    monkeypatch.setattr(writing, "SEGMENT_BYTES", limit // 4)
    rng = random.Random(seed)
    lineage, kept = MiniLineage("a"), []
    for _ in range(12):
        items = [noise(rng, rng.choice([10, 500])) for _ in range(rng.choice([2, 90, 110, 4000]))]
        state = {"l": items, "m": {f"k{at}": item for at, item in enumerate(items)}}
        while len(values.encode(state)) > limit:
            state["l"].pop()
            state["m"].popitem()
        lineage.land(lineage._writer().state(state, limit))
        kept.append(state)

    assert [lineage.load(seq) for seq in range(1, 13)] == kept


# --- the size of a state -----------------------------------------------------------------------------------------


def grow(rng: random.Random, state: dict[str, Any]) -> list[Change]:
    """Return some changes by path, carried out on ``state``."""
    pick, key = rng.randrange(6), f"k{rng.randrange(40)}"
    text = noise(rng, rng.choice([3, 300, 5000]))
    if pick == 0:
        state["map"][key] = text
        return [change("set", f"/map/{key}", text)]
    if pick == 1:
        state["list"].extend([text, 1])
        return [change("append", "/list", text, 1)]
    if pick == 2 and state["list"]:
        del state["list"][0]
        return [change("delete", "/list/0")]
    if pick == 3 and key in state["map"]:
        del state["map"][key]
        return [change("delete", f"/map/{key}")]
    if pick == 4:
        state["map"][key] = {"in": [text, text], "é": text}
        return [change("set", f"/map/{key}", state["map"][key])]
    half = len(state["list"]) // 2
    state["list"][:half] = [text]
    return [change("splice", "/list", text, start=0, stop=half)]


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_the_bound_is_never_below_the_size_and_the_exact_number_is_exact(
    seed: int, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "SEGMENT_RECORDS", 5)
    if small:
        monkeypatch.setattr(writing, "FIRST_MIN", 200)
        monkeypatch.setattr(writing, "LATER_MIN", 200)
    rng = random.Random(seed)
    lineage = MiniLineage("a")
    state: dict[str, Any] = {"map": {"first": noise(rng, 900)}, "list": [noise(rng, 700) for _ in range(5)]}
    lineage.commit(state)
    for _ in range(60):
        if rng.random() < 0.3:
            lineage.forget_writer()
        if rng.random() < 0.2:
            rng.shuffle(state["list"])
            state["list"] = state["list"] * 2 if len(state["list"]) < 9 else state["list"]
            lineage.commit(state)
        else:
            lineage.edit(*grow(rng, state))
        made = lineage._writer()
        size_now = len(values.encode(state))
        assert made.tree.size is None or made.tree.size >= size_now
        assert size.node_bytes(made.tree.root, made._items) == size_now
    assert lineage.load() == state


@pytest.mark.parametrize("reopened", [False, True])
def test_edits_are_bounded_as_a_whole_state_is(reopened: bool) -> None:
    limit, lineage = 50_000, MiniLineage("a")
    lineage.commit({"n": 0, "l": ["x" * 1100] * 2})
    with pytest.raises(InvalidStateError, match="the limit is 50000"):
        for at in range(100):
            if reopened or lineage.writer is None:
                lineage.forget_writer()
            lineage.land(lineage._writer().changes([change("append", "/l", f"{at:01000}")], limit))

    lineage.forget_writer()
    state = lineage.load()
    assert limit - 2000 < len(values.encode(state)) <= limit
    lineage.land(lineage._writer().state(state, limit))
    # What is replaced makes room, though the bound that is kept cannot know it; taking away is allowed at any size.
    for at in range(200):
        lineage.land(lineage._writer().changes([change("set", "/n", f"{at:0500}")], limit))
    lineage.land(lineage._writer().changes([change("delete", "/l/0")], 10))


def test_edits_far_from_the_limit_never_look_at_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    lineage = MiniLineage("a")
    lineage.commit({"l": [f"{at:0900}" for at in range(300)]})
    monkeypatch.setattr(size, "node_bytes", lambda *_: pytest.fail("the whole state was looked at"))
    for at in range(200):
        if at % 7 == 0:
            lineage.forget_writer()
        lineage.land(lineage._writer().changes([change("append", "/l", f"{at:0900}")], 1 << 20))

    assert len(lineage.load()["l"]) == 500


def test_a_fork_knows_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    streams: dict[str, Any] = {}
    parent = MiniLineage("parent", streams=streams)
    parent.commit({"l": [f"{at:0900}" for at in range(30)]})
    child = MiniLineage("child", shared=parent.shared, streams=streams)
    tree, _, _ = parent.states().hashed(1)
    reading = parent.states()
    child.writer = writing.SnapshotWriter.start(lambda: reading, parent.shared.get, detach(tree, "parent", 1))
    child.land(child.writer.bare_base())
    child.forget_writer()

    assert child._writer().tree.size == len(values.encode(parent.load()))


def test_bases_from_before_sizes_were_counted_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old(msgspec.Struct, array_like=True):
        lids: int
        sources: list[tuple[str, int]]

    lineage = MiniLineage("a")
    with monkeypatch.context() as patch:
        patch.setattr(form, "_Head", lambda lids, sources, size: Old(lids, sources))
        lineage.commit({"l": ["x" * 1100] * 40})
    lineage.forget_writer()
    assert lineage._writer().tree.size is None

    lineage.land(lineage._writer().changes([change("append", "/l", 1)], 50_000))
    assert lineage._writer().tree.size == len(values.encode(lineage.load()))
    lineage.forget_writer()
    with pytest.raises(InvalidStateError, match="the limit is 40000"):
        lineage.land(lineage._writer().changes([change("append", "/l", 1)], 40_000))
