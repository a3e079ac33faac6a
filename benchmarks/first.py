"""A process that opens a store, loads its newest state once, and prints how long that took.

Run by the measure of first loads: ``python -m benchmarks.first ours|peer PATH KEY|- COUNT``.
Imports do not count, opening does.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable


def main(which: str, path: str, key: str, count: str) -> None:
    """Print the seconds as JSON, after checking that the state has ``count`` messages."""
    load = _ours(path, key) if which == "ours" else _peer(path)
    began = time.perf_counter()
    messages = load()
    taken = time.perf_counter() - began
    if len(messages) != int(count):
        raise SystemExit(f"{which}: {len(messages)} messages instead of {count}")
    print(json.dumps(taken))


def _ours(path: str, key: str) -> Callable[[], list[object]]:
    import cpstore
    from cpstore.signing.keys import load_key

    def load() -> list[object]:
        messages: list[object] = cpstore.open(path, create=False, signer=load_key(key)).lineage("t1").load()["messages"]
        return messages

    return load


def _peer(path: str) -> Callable[[], list[object]]:
    import warnings

    warnings.simplefilter("ignore")
    import langgraph.checkpoint.base.id
    import langgraph.checkpoint.sqlite  # noqa: F401

    from benchmarks.peers import SqliteSaverPeer

    def load() -> list[object]:
        messages: list[object] = SqliteSaverPeer(path).load()["messages"]
        return messages

    return load


if __name__ == "__main__":
    main(*sys.argv[1:])
