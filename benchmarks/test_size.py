"""Bytes, which are the same on every machine: these are bars, not timings."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import sizes
from benchmarks.peers import MISSING, langgraph_installed
from benchmarks.stores import Ground


@pytest.mark.parametrize("measure", ["session", "fixed", "shared", "fleet"])
def test_the_bytes_are_within_their_bars(benchmark: Any, ground: Ground, measure: str) -> None:
    if measure == "session" and not langgraph_installed():
        pytest.skip(MISSING)
    options = {} if measure == "fixed" else {"quick": True}

    rows = benchmark.pedantic(getattr(sizes, measure), args=(ground,), kwargs=options, rounds=1)

    benchmark.extra_info.update({row.measure: row.ours for row in rows})
    assert [row.measure for row in rows if row.good is False] == []
