"""A small store with everything in it: namespaces, a fork, shared values, glossary changes, keys, sealed segments."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import attrs

import cpstore
from cpstore import Authority, Binding, Directive, Retirement, Signer, Supersession

if TYPE_CHECKING:
    from pathlib import Path

SIGNER = Signer.from_seed(bytes(range(32)))
TIMEOUT = Binding("timeout", "request timeout", constraint="unit: milliseconds", authority=Authority.USER)
SECONDS = attrs.evolve(TIMEOUT, constraint="unit: seconds")
ORDER = Directive(Authority.USER, "message 3", "seconds from now on")
KEYS = ("first", "second")

States = dict[tuple[str, str], list[Any]]


def words(seed: int, count: int) -> str:
    """Return text that a compressor cannot make vanish."""
    return " ".join(str(random.Random(f"{seed}/{at}").getrandbits(40)) for at in range(count))


def fill(store: cpstore.Store) -> States:
    """Write the sample and return what was committed."""
    tools = {"search": words(1, 40), "refund": words(2, 40), "limits": {"cents": 990, "per": ["day", "week"]}}
    task, states = store.lineage("task"), []
    for step in range(1, 13):
        state = {
            "messages": [{"role": "user", "content": words(at, 9)} for at in range(step)],
            "budget": {"left": 100 - step},
            "tools": tools,
        }
        terms: dict[str, Any] = {2: {"define": [TIMEOUT, Binding("done", "merged")]}}.get(step, {})
        if step == 7:
            terms = {"supersede": [Supersession(SECONDS, ORDER)], "retire": [Retirement("done", ORDER)]}
        task.commit(state, step=step, key={3: "first", 11: "second"}.get(step), **terms)
        states.append(state)
    worker = task.fork("worker", revision=9)
    mine = [states[8]]
    for step in (9, 10):
        with worker.edit(step=step) as edit:
            edit.append("/messages", f"worker {step}")
        mine.append({**mine[-1], "messages": [*mine[-1]["messages"], f"worker {step}"]})
    other = store.lineage("task", namespace="other")
    theirs = [{"messages": ["hello"], "tools": tools}, {"messages": ["hello", "there"], "tools": tools}]
    for step, state in enumerate(theirs):
        other.commit(state, step=step)
    return {("default", "task"): states, ("default", "worker"): mine, ("other", "task"): theirs}


def make(path: Path, signer: Signer = SIGNER) -> States:
    """Make the sample at ``path``, closed."""
    with cpstore.open(path, signer=signer, actor="planner", clock=iter(range(10**15, 10**16, 1000)).__next__) as store:
        states = fill(store)
        assert store.stats()["segments"] >= 2 and store.stats()["tail_bytes"] and store.stats()["shared_values"] >= 2
    return states
