"""A store to look into: a lineage with a settled term, one that forked from it, one in another namespace."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from typing import Any

import attrs
import pytest

import cpstore
from cpstore import Acknowledgement, Authority, Binding, Directive, EffectPolicy, Supersession
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


PAY = EffectPolicy.AT_MOST_ONCE


def _effects(task):
    """Carry out what a field agent would: one settled, one in doubt, one reconciled, one late, one recorded."""
    with task.effect("refund", {"order": 17, "cents": 990}, key="order-17", policy=PAY) as refund:
        refund.complete({"receipt": "R-1"})
    with contextlib.suppress(TimeoutError), task.effect("mail", {"to": "ann@example.org"}, policy=PAY):
        raise TimeoutError("no answer")
    with contextlib.suppress(TimeoutError), task.effect("mail", {"to": "bob@example.org"}, policy=PAY) as mail:
        raise TimeoutError("no answer")
    task.reconcile(mail.id, happened=False, who="ops", why="not in the outbox")
    first = task.begin("sync", {"page": 1}, key="page-1", policy=EffectPolicy.IDEMPOTENT)
    first.fail("lost")
    second = task.begin("sync", {"page": 1}, key="page-1", policy=EffectPolicy.IDEMPOTENT)
    second.complete("second")
    first.complete("first, late")
    task.cancel("drop", {"table": "x"}, policy=PAY, who="dba", why="never")
    task.record("note", {"text": "hi"}, 7, key="n-1", policy=PAY)


@pytest.fixture
def busy(tmp_path):
    """A store with effects, a shared ledger, a compaction, a restore that somebody answers for, and forks."""
    target = tmp_path / "busy.db"
    with cpstore.open(target, actor="planner") as store:
        task = store.lineage("task")
        messages = [f"message {n} {'x' * 50}" for n in range(10)]
        task.commit({"messages": messages}, step=1, define=[MILLISECONDS])
        worker = task.fork("task/worker")
        board = store.ledger("release")
        planner, executor = board.join("planner"), board.join("executor", lineage=task)
        seen = planner.write("task-b", {"state": "todo"})
        executor.read("task-b")
        _effects(task)
        task.commit({"messages": messages, "paid": True}, step=2, supersede=[Supersession(SECONDS, ORDER)])
        summary = {"role": "system", "content": "all done, in short"}
        claims = [cpstore.TermClaim("budget", "unknown to the store")]
        task.compact({"messages": [summary]}, summary="/messages/0", claims=claims, tokens_before=900, tokens_after=9)
        planner.write("task-b", {"state": "done"}, seen=seen)
        planner.ack(planner.poll()[0].position)
        task.record("note", {"text": "unkeyed"}, policy=PAY)
        plan = task.plan_restore(3)
        task.restore(3, acknowledge=Acknowledgement("boss", "go on", plan.effects, plan.gaps))
        worker.commit({"n": 1}, step=2)
        other = store.lineage("task", namespace="other")
        other.commit({"x": 1}, step=1, define=[MILLISECONDS])
        other.record("refund", {"order": 1}, key="order-17", policy=PAY)
        store.ledger("release", namespace="other").join("elsewhere")
    return target


@pytest.fixture
def damaged():
    """Change a file behind the store's back, its triggers taken away."""

    def change(file, *statements):
        connection = sqlite3.connect(file)
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()

    return change
