"""How long commits, loads and opening take, beside the peer, by turns in one run."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measure import Row, Sample, by_turns, times
from benchmarks.peers import LANGGRAPH, MISSING, PlainSqlite, SqliteSaverPeer, langgraph_installed
from benchmarks.stores import Ground, append, grow
from benchmarks.text import messages
from cpstore.lineage import Lineage

STEP = 3000
MARKS = (100, 3000, 30_000)


def at_least(name: str, ours: Sample, peer: Sample | None, bar: float) -> Row:
    """Return a row for "at least ``bar`` times faster than the peer"."""
    if peer is None:
        return Row(name, str(ours), MISSING, bar=f"≥ {bar:g} × faster")
    ratio = peer.median / ours.median
    return Row(
        name, str(ours), str(peer), f"{times(ratio)} faster", f"≥ {bar:g} × faster", ratio >= bar, _figures(ours, peer)
    )


def at_most(name: str, ours: Sample, peer: Sample | None, bar: float) -> Row:
    """Return a row for "at most ``bar`` times as long as the peer"."""
    if peer is None:
        return Row(name, str(ours), MISSING, bar=f"≤ {bar:g} ×")
    ratio = ours.median / peer.median
    return Row(name, str(ours), str(peer), times(ratio), f"≤ {bar:g} ×", ratio <= bar, _figures(ours, peer))


def edits(ground: Ground, rounds: int) -> list[Row]:
    """Measure ``edit`` on lineages of 100, 3,000 and 30,000 steps, each at those steps, at FULL."""
    texts = messages(MARKS[-1] + rounds)
    before = min(rounds // 2, 60)
    with ground.store("edits.db", durability="normal") as store:
        for mark in MARKS:
            grow(store.lineage(f"at-{mark}"), texts[: mark - before])
    calls: list[Callable[[Any], object]] = []
    with ground.store("edits.db") as store:
        for mark in MARKS:
            lineage = store.lineage(f"at-{mark}")
            lineage.head()
            append(lineage, mark, texts[:1])  # a writer that was just reopened is not what is measured
            calls.append(partial(_append_one, lineage, mark))
        feed = iter(texts[MARKS[-1] - before :] * 3)
        samples = by_turns(rounds, calls, [lambda: next(feed)] * len(calls))
    rows = [Row(f"edit(): append 1 KB at step {MARKS[0]:,}", str(samples[0]), figures=_figures(samples[0], None))]
    for mark, sample in zip(MARKS[1:], samples[1:], strict=True):
        ratio = sample.median / samples[0].median
        rows.append(
            Row(
                f"edit(): append 1 KB at step {mark:,}",
                str(sample),
                f"at step {MARKS[0]}: {samples[0]}",
                times(ratio),
                "≤ 1.3 ×",
                ratio <= 1.3,
                _figures(sample, samples[0]),
            )
        )
    return rows


def commits(ground: Ground, rounds: int) -> list[Row]:
    """Measure one step at step 3,000, all at FULL: edit, commit of the whole state, the peer's put, and a plain row."""
    texts = messages(STEP + rounds)
    with ground.store("commits.db", durability="normal") as store:
        for name in ("edited", "whole"):
            grow(store.lineage(name), texts[: STEP - rounds // 2])
    store = ground.store("commits.db")
    edited, whole = store.lineage("edited"), store.lineage("whole")
    whole_live, peer_live = (list(texts[: STEP - rounds // 2]) for _ in range(2))
    edit_feed, whole_feed, peer_feed = (iter(texts[STEP - rounds // 2 :]) for _ in range(3))
    edited.head()
    append(edited, STEP, texts[:1])
    whole.head()
    whole.commit({"messages": whole_live}, step=STEP)
    plain = PlainSqlite(str(ground.path("plain.db")))

    def next_whole() -> dict[str, Any]:
        whole_live.append(next(whole_feed))
        return {"messages": list(whole_live)}

    calls: list[Callable[[Any], object]] = [
        lambda message: append(edited, STEP, [message]),
        lambda state: whole.commit(state, step=STEP),
        plain.commit,
    ]
    prepare: list[Callable[[], Any]] = [lambda: next(edit_feed), next_whole, lambda: bytes(300)]
    saver = SqliteSaverPeer(str(ground.path("peer-put.db"))) if langgraph_installed() else None
    if saver is not None:
        saver.commit({"messages": list(peer_live)})

        def next_peer() -> tuple[Any, ...]:
            peer_live.append(next(peer_feed))
            return saver.checkpoint({"messages": list(peer_live)})

        calls.append(saver.put)
        prepare.append(next_peer)
    samples = by_turns(rounds, calls, prepare)
    put = samples[3] if saver is not None else None
    if saver is not None:
        saver.close()
    store.close()
    plain.close()
    ratio = samples[0].median / samples[2].median
    return [
        at_least(f"edit(): append at step {STEP:,}, FULL, beside {LANGGRAPH} put", samples[0], put, 10),
        at_least(f"commit(state) at step {STEP:,}, FULL, beside {LANGGRAPH} put", samples[1], put, 5),
        Row(
            "edit(): append, FULL, beside one plain 300 B row with sqlite3 at FULL",
            str(samples[0]),
            str(samples[2]),
            times(ratio),
            figures=_figures(samples[0], samples[2]),
        ),
    ]


def loads(ground: Ground, rounds: int) -> list[Row]:
    """Measure loads of a 3,000-step session: the first of a process, then warm ones, latest and older.

    A load allocates megabytes, and what that costs depends on what the process did before: a heap that has given its
    memory back takes a page fault for every 4 KB. So warm loads are measured in processes that do nothing else, once as
    such a process is and once with a heap that keeps its memory (glibc's thresholds raised).
    """
    texts = messages(STEP)
    chosen = random.Random(5).sample(range(1000, STEP), 15)
    with ground.store("loads.db", durability="normal") as store:
        grow(store.lineage("t1"), texts)
    ids: dict[int, str] = {}
    if langgraph_installed():
        # Only the revisions that are read are written: a smaller file than a session leaves, which favours the peer.
        saver = SqliteSaverPeer(str(ground.path("peer-loads.db")))
        for revision in [*sorted(chosen), STEP]:
            ids[revision] = saver.commit({"messages": texts[:revision]})
        saver.close()
    rows = [_first(ground, rounds, ids)]
    for name, wanted in (("the latest", [STEP]), ("random revisions from 1,000 up", chosen)):
        for kept in (False, True):
            asked = _asked(ground, wanted, ids, max(rounds, 2 * len(wanted)))
            samples = _alone("turns", asked, kept=kept)
            heap = "a heap that keeps its memory" if kept else "a plain process"
            title = f"warm load of {name}, {STEP:,} steps, {heap}"
            rows.append(at_most(title, samples[0], samples[1] if ids else None, 2.5))
    return rows


def _first(ground: Ground, rounds: int, ids: dict[int, str]) -> Row:
    asked = _asked(ground, [STEP], ids, 1)
    taken: dict[str, list[float]] = {"ours": [], "peer": []}
    for number in range(rounds):
        pair = ["ours", "peer"] if ids else ["ours"]
        for which in pair if number % 2 == 0 else reversed(pair):
            taken[which] += _alone(which, asked)[0].seconds
    samples = [Sample(tuple(each)) for each in taken.values() if each]
    name = f"first load in a fresh process, {STEP:,} steps, opening included, beside get_tuple"
    return at_most(name, samples[0], samples[1] if ids else None, 1.5)


def _asked(ground: Ground, wanted: list[int], ids: dict[int, str], rounds: int) -> str:
    return json.dumps(
        {
            "ours": str(ground.path("loads.db")),
            "peer": str(ground.path("peer-loads.db")) if ids else None,
            "key": str(ground.key),
            "wanted": [(revision, ids.get(revision)) for revision in wanted],
            "rounds": rounds,
        }
    )


def _alone(which: str, asked: str, *, kept: bool = False) -> list[Sample]:
    keep = {"MALLOC_TRIM_THRESHOLD_": str(1 << 29), "MALLOC_MMAP_THRESHOLD_": str(1 << 29)} if kept else {}
    command = [sys.executable, "-m", "benchmarks.alone", which, asked]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, env={**os.environ, **keep}, check=False)
    if done.returncode:
        raise RuntimeError(f"the process that loads {which} ended with {done.returncode}: {done.stderr.strip()}")
    return [Sample(tuple(each)) for each in json.loads(done.stdout)]


def opening(ground: Ground, rounds: int, checkpoints: int) -> list[Row]:
    """Measure opening a store and committing once, in a store of 100 checkpoints and in one of very many."""
    texts = messages(5, 400)
    for name, count in (("small.db", 100), ("large.db", checkpoints)):
        with ground.store(name, durability="normal") as store:
            for number in range(count // 5):
                grow(store.lineage(f"task-{number}"), texts)

    def commit_once(name: str, number: int) -> None:
        store = opened[name] = ground.store(name)
        lineage = store.lineage(f"task-{number}")
        lineage.head()
        append(lineage, 6, texts[:1])

    opened: dict[str, Any] = {}
    numbers = {"small.db": iter(range(20)), "large.db": iter(range(0, checkpoints // 5, checkpoints // 100))}
    taken: dict[str, list[float]] = {"small.db": [], "large.db": []}
    for turn in range(min(rounds, 20)):
        for name in ("small.db", "large.db") if turn % 2 else ("large.db", "small.db"):
            number = next(numbers[name])
            (sample,) = by_turns(1, [partial(commit_once, name)], [partial(int, number)])
            taken[name] += sample.seconds
            opened[name].close()
    small, large = (Sample(tuple(taken[name][1:])) for name in ("small.db", "large.db"))
    ratio = large.median / small.median
    return [
        Row(
            f"open a store of {checkpoints:,} checkpoints ({checkpoints // 5:,} lineages), look at a head, commit once",
            str(large),
            f"in one of 100: {small}",
            times(ratio),
            "≤ 1.3 ×",
            ratio <= 1.3,
            _figures(large, small),
        )
    ]


def _append_one(lineage: Lineage, step: int, message: dict[str, Any]) -> None:
    append(lineage, step, [message])


def forget(ground: Ground, *names: str) -> None:
    """Remove files of a measure that is done."""
    for name in names:
        for each in ground.folder.glob(name + "*"):
            shutil.rmtree(each) if each.is_dir() else each.unlink()


def _figures(ours: Sample, peer: Sample | None) -> dict[str, Any]:
    found: dict[str, Any] = {"ours_seconds": [ours.median, *ours.spread], "rounds": len(ours.seconds)}
    if peer is not None:
        found["peer_seconds"] = [peer.median, *peer.spread]
    return found
