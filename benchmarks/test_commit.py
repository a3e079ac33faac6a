"""One step committed at FULL: stated as a change, as a whole state, and as the peers do it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers import PlainSqlite, SqliteSaverPeer
from benchmarks.stores import Ground, append, grow
from benchmarks.text import messages

STEPS = [pytest.param(100, id="step-100"), pytest.param(1000, id="step-1000"), pytest.param(3000, id="step-3000")]
ROUNDS = 60


@pytest.mark.parametrize("step", STEPS)
def test_edit_appends_one_message(benchmark: Any, ground: Ground, step: int) -> None:
    texts = messages(step + 1)
    with ground.store(f"edit-{step}.db") as store:
        lineage = store.lineage("t1")
        grow(lineage, texts[:step])
        before = lineage.head().revision

        benchmark.pedantic(append, args=(lineage, step, texts[step:]), rounds=ROUNDS, warmup_rounds=2)

        assert lineage.head().revision > before


@pytest.mark.parametrize("writers", [1, 2], ids=["one-writer", "two-writers-by-turns"])
def test_writers_take_turns_on_one_lineage(benchmark: Any, ground: Ground, writers: int) -> None:
    """What a foreign row costs: the other's writing end has to be rebuilt from the stored bytes."""
    text = messages(1)
    name = f"turns-{writers}.db"
    with ground.store(name) as one, ground.store(name) as two:
        grow(one.lineage("t1"), messages(300))
        handles = [store.lineage("t1") for store in (one, two)[:writers]]
        turn = itertools.cycle(handles)

        def look() -> tuple[tuple[Any, ...], dict[str, Any]]:
            handle = next(turn)
            handle.head()
            return (handle, 300, text), {}

        benchmark.pedantic(append, setup=look, rounds=ROUNDS)

        assert handles[0].head().revision == 300 + (ROUNDS if benchmark.enabled else 1)
        assert one.verify().good


@pytest.mark.parametrize("step", STEPS)
def test_commit_takes_the_whole_state(benchmark: Any, ground: Ground, step: int) -> None:
    live = messages(step)
    more = iter(messages(ROUNDS + 3, seed=8))
    with ground.store(f"whole-{step}.db") as store:
        lineage = store.lineage("t1")
        grow(lineage, live)

        def grown() -> tuple[tuple[Any], dict[str, int]]:
            live.append(next(more))
            return ({"messages": list(live)},), {"step": step}

        benchmark.pedantic(lineage.commit, setup=grown, rounds=ROUNDS)

        assert lineage.load()["messages"] == live


@pytest.mark.parametrize("step", STEPS)
def test_langgraph_puts_a_checkpoint(benchmark: Any, saver: SqliteSaverPeer, step: int) -> None:
    live = messages(step)
    more = iter(messages(ROUNDS + 3, seed=8))

    def grown() -> tuple[tuple[Any], dict[str, int]]:
        live.append(next(more))
        return (saver.checkpoint({"messages": list(live)}),), {}

    benchmark.pedantic(saver.put, setup=grown, rounds=ROUNDS)

    assert saver.load()["messages"] == live


def test_sqlite_commits_one_plain_row(benchmark: Any, tmp_path: Path) -> None:
    plain = PlainSqlite(str(tmp_path / "plain.db"))
    sizes = itertools.count(300)

    benchmark.pedantic(lambda: plain.commit(bytes(next(sizes) % 8 + 300)), rounds=ROUNDS)

    plain.close()
    rounds = ROUNDS if benchmark.enabled else 1
    assert next(sizes) == 300 + rounds
