"""How many bytes a store takes, beside the peer, or over the least that could hold the same."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from benchmarks.measure import Row, size, times
from benchmarks.peers import LANGGRAPH, MISSING, SqliteSaverPeer, langgraph_installed
from benchmarks.speeds import STEP, forget
from benchmarks.stores import Ground, append, grow
from benchmarks.text import agents, messages, tool_database, tool_state
from cpstore.replay import FLOOR_CHECKPOINT, Manner, Result, commit_all, compare_all, read_trajectories
from cpstore.snapshot.frames import densest

TRACES = {
    "tau_airline": 2.2,
    "tau_retail": 2.2,
    "swe_agent_demos": 2.2,
    "openhands": 2.2,
    "whowhen_magentic": 2.2,
    "long_session": 2.2,
    "intercode": 2.4,
}
PEER_BYTES = 5 << 30
"""What SqliteSaver's file of 3,000 steps needs, with its WAL."""


def session(ground: Ground, *, quick: bool) -> list[Row]:
    """Measure a session of 3,000 steps of 1 KB, everything in the closed file, and the peer's file of the same."""
    texts = messages(STEP)
    with ground.store("session.db", durability="normal") as store:
        grow(store.lineage("t1"), texts)
    ours = ground.bytes("session.db")
    with ground.store("whole.db", durability="normal") as store:
        lineage = store.lineage("t1")
        for step in range(1, 513):
            lineage.commit({"messages": texts[:step], "tools": tool_state(step)}, step=step)
    with_tools = ground.bytes("whole.db") / 512
    each = ours / STEP
    rows = [
        Row(
            f"bytes a checkpoint, {STEP:,} steps of 1 KB",
            f"{each:,.0f} B",
            bar="≤ 700 B",
            good=each <= 700,
            figures={"ours_bytes": ours},
        ),
        _beside_peer(ground, ours, texts, quick=quick),
        Row("bytes a checkpoint, 512 × commit(state) with 0.9 KB of tool state", f"{with_tools:,.0f} B"),
    ]
    forget(ground, "session.db", "whole.db")
    return rows


def _beside_peer(ground: Ground, ours: int, texts: list[dict[str, Any]], *, quick: bool) -> Row:
    name = f"file of {STEP:,} steps beside {LANGGRAPH}"
    bar = "≤ 1/1,000"
    if not langgraph_installed():
        return Row(name, size(ours), MISSING, bar=bar)
    free = shutil.disk_usage(ground.folder).free
    if quick or free < PEER_BYTES:
        # Every put writes the whole list, so n steps take a·n + b·n(n+1)/2 bytes: two files give a and b exactly.
        short, long = (_peer_file(ground, texts[:count]) for count in (300, 600))
        growth = (long - 2 * short) / (600 * 601 / 2 - 2 * (300 * 301 / 2))
        fixed = (short - growth * 300 * 301 / 2) / 300
        peer = fixed * STEP + growth * STEP * (STEP + 1) / 2
        how = f"{size(peer)}, worked out from 300 and 600 steps"
    else:
        peer = _peer_file(ground, texts)
        how = size(peer)
    return Row(
        name,
        size(ours),
        how,
        f"1/{peer / ours:,.0f}",
        bar,
        peer / ours >= 1000,
        {"ours_bytes": ours, "peer_bytes": peer},
    )


def _peer_file(ground: Ground, texts: list[dict[str, Any]]) -> int:
    name = f"peer-{len(texts)}.db"
    saver = SqliteSaverPeer(str(ground.path(name)))
    for step in range(1, len(texts) + 1):
        saver.commit({"messages": texts[:step]})
    saver.close()
    found = ground.bytes(name)
    forget(ground, name)
    return found


def fixed(ground: Ground) -> list[Row]:
    """Measure what a checkpoint takes that changes nothing: the row, its share of pages, log and segments."""
    found = []
    for count in (1280, 5120):
        with ground.store(f"fixed-{count}.db", durability="normal") as store:
            lineage = store.lineage("t1")
            lineage.commit({"a": 1}, step=1)
            for step in range(2, count + 1):
                with lineage.edit(step=step):
                    pass
        found.append(ground.bytes(f"fixed-{count}.db"))
    forget(ground, "fixed-")
    each = (found[1] - found[0]) / (5120 - 1280)
    return [
        Row("fixed bytes of a checkpoint (one that changes nothing)", f"{each:,.0f} B", bar="≤ 150 B", good=each <= 150)
    ]


def fleet(ground: Ground, *, quick: bool) -> list[Row]:
    """Measure many agents of recorded step sizes in one store, over zstd -19 --long of each, plus signatures."""
    count, steps = (40, 25) if quick else (200, 25)
    floor = unique = 0
    with ground.store("fleet.db", durability="normal") as store:
        for number, agent in enumerate(agents(count, steps)):
            lineage = store.lineage(f"agent-{number}")
            lineage.commit({"messages": agent[0]}, step=1)
            for step, added in enumerate(agent[1:], 2):
                append(lineage, step, added)
            plain = b"\n".join(json.dumps(m, separators=(",", ":")).encode() for step in agent for m in step)
            unique += len(plain)
            floor += densest(plain) + FLOOR_CHECKPOINT * steps
    ours = ground.bytes("fleet.db")
    forget(ground, "fleet.db")
    total = count * steps
    name = (
        f"bytes a checkpoint, {count} agents × {steps} steps of recorded sizes ({unique / total:,.0f} B added a step)"
    )
    return [
        Row(
            name,
            f"{ours / total:,.0f} B",
            f"floor {floor / total:,.0f} B",
            times(ours / floor),
            figures={"ours_bytes": ours},
        )
    ]


def shared(ground: Ground, *, quick: bool) -> list[Row]:
    """Measure content that lineages share: a tool database that 20 start from, and 50 forks of one long parent."""
    database = tool_database(3_000_000)
    found = []
    for count in (1, 20):
        with ground.store(f"shared-{count}.db", durability="normal") as store:
            for number in range(count):
                lineage = store.lineage(f"task-{number}")
                lineage.commit({"messages": messages(1, seed=number), "tools": database}, step=1)
                with lineage.edit(step=2) as edit:
                    edit.set(f"/tools/user_{number:06d}/balance", -1)
        found.append(ground.bytes(f"shared-{count}.db"))
    forget(ground, "shared-")
    ratio = found[1] / found[0]
    rows = [
        Row(
            "20 lineages that start from the same 3 MB tool database, beside one",
            size(found[1]),
            f"one: {size(found[0])}",
            times(ratio),
            "≤ 1.3 ×",
            ratio <= 1.3,
        )
    ]
    return [*rows, _forks(ground, 10 if quick else 100)]


def _forks(ground: Ground, megabytes: int) -> Row:
    chunk = 500
    texts = messages(megabytes * 1000)
    with ground.store("forks.db", durability="normal") as store:
        parent = store.lineage("parent")
        parent.commit({"messages": texts[:chunk]}, step=1)
        for step, at in enumerate(range(chunk, len(texts), chunk), 2):
            append(parent, step, texts[at : at + chunk])
    before = ground.bytes("forks.db")
    with ground.store("forks.db", durability="normal") as store:
        parent = store.lineage("parent")
        for number in range(50):
            append(parent.fork(f"child-{number}"), parent.head().step, messages(1, seed=number))
        loaded = store.lineage("child-49").load()["messages"]
    if loaded != texts + messages(1, seed=49):
        raise AssertionError("a fork does not load as its parent and what it added")
    after = ground.bytes("forks.db")
    forget(ground, "forks.db")
    name = f"50 forks of a {megabytes} MB parent, each with one step of its own, beside the parent"
    ratio = after / before
    return Row(name, size(after), f"parent: {size(before)}", times(ratio), "≤ 1.1 ×", ratio <= 1.1)


def traces(ground: Ground, folder: Path) -> list[Row]:
    """Measure recorded runs, each file in a store of its own, over the floor; every revision is loaded and compared."""
    rows = []
    for name, bar in TRACES.items():
        path = folder / f"{name}.jsonl.zst"
        label = f"recorded runs: {name}"
        if not path.is_file():
            rows.append(Row(label, f"{path} is missing", bar=f"≤ {bar} × floor"))
            continue
        result, manner = Result(name), Manner(floor=True)
        with ground.store(f"{name}.db", durability="normal") as store:
            commit_all(read_trajectories(str(path)), store, manner, result)
        disk, floor = ground.bytes(f"{name}.db"), result.floor or 0
        if name != "long_session":
            with ground.store(f"{name}.db") as store:
                compare_all(read_trajectories(str(path)), store, manner, result)
            if not result.good:
                raise AssertionError(f"{name}: {result.wrong[:3]}")
        forget(ground, f"{name}.db")
        rows.append(
            Row(
                f"{label} ({result.trajectories} runs, {result.checkpoints:,} checkpoints)",
                f"{disk / result.checkpoints:,.0f} B a checkpoint",
                f"floor {floor / result.checkpoints:,.0f} B; full states 1/{result.full / disk:,.0f}",
                times(disk / floor),
                f"≤ {bar} ×",
                disk / floor <= bar,
                {
                    "ours_bytes": disk,
                    "floor_bytes": floor,
                    "commits_per_second": result.checkpoints / result.commit_time,
                },
            )
        )
    return rows
