"""A process that does nothing but load, so that neither its imports nor its heap come from other measures.

Run by the measure of loads, as ``python -m benchmarks.alone ours|peer|turns ARGUMENTS``; these are one JSON object:
``ours`` and ``peer`` (paths), ``key``, ``wanted`` (pairs of a revision and the peer's id for it) and ``rounds``.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import cpstore
from benchmarks.measure import by_turns
from cpstore.signing.keys import load_key

State = dict[str, Any]


def main(which: str, arguments: str) -> None:
    """Print, as JSON, the seconds of each load: one list for each store that was asked about."""
    asked = json.loads(arguments)
    if which == "turns":
        print(json.dumps(_turns(asked)))
        return
    load = _ours(asked) if which == "ours" else _peer(asked)
    began = time.perf_counter()
    state = load()
    taken = time.perf_counter() - began
    (revision, _), *_ = asked["wanted"]
    if len(state["messages"]) != revision:
        raise SystemExit(f"{which}: {len(state['messages'])} messages instead of {revision}")
    print(json.dumps([[taken]]))


def _ours(asked: dict[str, Any]) -> Callable[[], State]:
    return lambda: cpstore.open(asked["ours"], create=False, signer=load_key(asked["key"])).lineage("t1").load()


def _peer(asked: dict[str, Any]) -> Callable[[], State]:
    warnings.simplefilter("ignore")
    import langgraph.checkpoint.base.id
    import langgraph.checkpoint.sqlite  # noqa: F401

    from benchmarks.peers import SqliteSaverPeer

    return lambda: SqliteSaverPeer(asked["peer"]).load()


def _turns(asked: dict[str, Any]) -> list[tuple[float, ...]]:
    lineage = cpstore.open(asked["ours"], create=False, signer=load_key(asked["key"])).lineage("t1")
    ours, peer = itertools.cycle(asked["wanted"]), itertools.cycle(asked["wanted"])
    calls: list[Callable[[Any], object]] = [lineage.load]
    prepare: list[Callable[[], Any]] = [lambda: next(ours)[0]]
    if asked["peer"] is not None:
        from benchmarks.peers import SqliteSaverPeer

        saver = SqliteSaverPeer(asked["peer"])
        revision, name = asked["wanted"][0]
        if lineage.load(revision) != saver.load(name):
            raise SystemExit(f"revision {revision}: the two stores hold different states")
        calls.append(saver.load)
        prepare.append(lambda: next(peer)[1])
    by_turns(2, calls, prepare)
    return [sample.seconds for sample in by_turns(asked["rounds"], calls, prepare)]


if __name__ == "__main__":
    main(*sys.argv[1:])
