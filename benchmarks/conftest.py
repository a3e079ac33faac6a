"""What the timed tests share. Run with ``python -m pytest benchmarks``; ``python -m benchmarks`` holds the bars."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.peers import MISSING, SqliteSaverPeer, langgraph_installed
from benchmarks.stores import Ground


@pytest.fixture(name="ground", scope="session")
def _ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    return Ground(tmp_path_factory.mktemp("bench"))


@pytest.fixture(name="saver")
def _saver(tmp_path: Path) -> Iterator[SqliteSaverPeer]:
    if not langgraph_installed():
        pytest.skip(MISSING)
    saver = SqliteSaverPeer(str(tmp_path / "peer.db"))
    yield saver
    saver.close()
