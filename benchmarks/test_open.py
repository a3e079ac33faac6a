"""Opening a store and committing once does not depend on what the store holds."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.stores import Ground, append, grow
from benchmarks.text import messages


@pytest.mark.parametrize(
    "lineages", [pytest.param(20, id="100-checkpoints"), pytest.param(2000, id="10000-checkpoints")]
)
def test_a_store_is_opened_and_committed_to(benchmark: Any, ground: Ground, lineages: int) -> None:
    texts = messages(6, 400)
    name = f"open-{lineages}.db"
    with ground.store(name, durability="normal") as store:
        for number in range(lineages):
            grow(store.lineage(f"task-{number}"), texts[:5])

    def open_and_commit() -> None:
        with ground.store(name) as store:
            lineage = store.lineage("task-7")
            lineage.head()
            append(lineage, 6, texts[5:])

    benchmark.pedantic(open_and_commit, rounds=15)

    with ground.store(name) as store:
        assert store.lineage("task-7").head().revision == 5 + (15 if benchmark.enabled else 1)
