"""A state read back on a warm connection, as plain values: verified here, unverified at the peer."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from benchmarks.peers import SqliteSaverPeer
from benchmarks.stores import Ground, grow
from benchmarks.text import messages

STEPS = [pytest.param(1000, id="step-1000"), pytest.param(3000, id="step-3000")]


@pytest.mark.parametrize("step", STEPS)
def test_the_latest_is_loaded(benchmark: Any, ground: Ground, step: int) -> None:
    texts = messages(step)
    with ground.store(f"load-{step}.db", durability="normal") as store:
        grow(store.lineage("t1"), texts)

        state = benchmark.pedantic(store.lineage("t1").load, rounds=20, warmup_rounds=2)

    assert state["messages"] == texts


@pytest.mark.parametrize("step", STEPS)
def test_langgraph_gets_the_latest(benchmark: Any, saver: SqliteSaverPeer, step: int) -> None:
    texts = messages(step)
    saver.commit({"messages": texts})

    state = benchmark.pedantic(saver.load, rounds=20, warmup_rounds=2)

    assert state["messages"] == texts


def test_random_revisions_are_loaded(benchmark: Any, ground: Ground) -> None:
    texts = messages(3000)
    chosen = random.Random(5).sample(range(1000, 3000), 20)
    with ground.store("old.db", durability="normal") as store:
        lineage = store.lineage("t1")
        grow(lineage, texts)
        feed = itertools.cycle(chosen)

        benchmark.pedantic(lineage.load, setup=lambda: ((next(feed),), {}), rounds=20)

        assert lineage.load(chosen[0])["messages"] == texts[: chosen[0]]
