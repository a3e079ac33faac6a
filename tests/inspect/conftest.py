"""A store to look into: a lineage with a settled term, one that forked from it, one in another namespace."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

import cpstore
from cpstore import Authority, Binding, Directive, Supersession
from cpstore.__main__ import main

MILLISECONDS = Binding("timeout", "request timeout", constraint="unit: milliseconds", authority=Authority.USER)
SECONDS = attrs.evolve(MILLISECONDS, constraint="unit: seconds")
ORDER = Directive(Authority.USER, "message 3", "seconds from now on")


@attrs.frozen
class Ran:
    """What a command left: its exit code and both outputs."""

    code: int
    out: str
    err: str

    @property
    def value(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def run(capsys, monkeypatch):
    """Run a command line in this process, 120 columns wide."""
    monkeypatch.setenv("COLUMNS", "120")

    def call(*argv: object) -> Ran:
        code = main([str(part) for part in argv])
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return call


@pytest.fixture
def path(tmp_path):
    target = tmp_path / "agent.db"
    with cpstore.open(target, actor="planner") as store:
        task = store.lineage("task")
        task.commit({"messages": ["a"], "budget": {"left": 3}}, step=1, define=[MILLISECONDS])
        task.commit({"messages": ["a", "b"], "budget": {"left": 2}}, step=2)
        worker = task.fork("task/worker")
        task.commit({"messages": ["a", "b", "c"], "plan": True}, step=3, supersede=[Supersession(SECONDS, ORDER)])
        worker.commit({"messages": ["a", "b", "w"], "budget": {"left": 2}}, step=3, key="once")
        store.lineage("task", namespace="other").commit({"x": 1}, step=1)
    return target
