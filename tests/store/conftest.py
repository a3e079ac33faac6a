"""A store's path, small segments, and other processes that take turns with this one."""

from __future__ import annotations

import pytest
from processes import Process
from store_cases import small_parts


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agent.db"


@pytest.fixture
def processes():
    """Start other processes, all ready when this returns."""
    made: list[Process] = []

    def start(count: int = 1) -> list[Process]:
        new = [Process() for _ in range(count)]
        made.extend(new)
        assert [process.line() for process in new] == ["ready"] * count
        return new

    yield start
    for process in made:
        process.end()


@pytest.fixture
def small(monkeypatch):
    """Segments of five records, nodes and shared values from a few hundred bytes."""
    small_parts(monkeypatch)
