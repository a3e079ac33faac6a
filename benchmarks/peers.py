"""What people use today, driven the way their own frameworks drive it, with durability equal to ours.

A peer that is not installed is named as missing, never left out in silence.
"""

from __future__ import annotations

import importlib.util
import sqlite3
import warnings
from datetime import UTC, datetime
from typing import Any

LANGGRAPH = "LangGraph SqliteSaver"
MISSING = "langgraph-checkpoint-sqlite is not installed: pip install 'cpstore[bench]'"


def langgraph_installed() -> bool:
    """Tell whether LangGraph's SqliteSaver can be measured here."""
    try:
        return importlib.util.find_spec("langgraph.checkpoint.sqlite") is not None
    except ModuleNotFoundError:
        return False


class SqliteSaverPeer:
    """LangGraph's SqliteSaver on a file, with its defaults: WAL, and ``synchronous=FULL`` as SQLite's own default.

    LangGraph's loop writes a whole checkpoint a step: all channel values, under new versions. Its second write
    of a step (``put_writes``) is left out, and messages are plain dicts instead of LangChain objects: both favour it.
    """

    def __init__(self, path: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from langgraph.checkpoint.base.id import uuid6
            from langgraph.checkpoint.sqlite import SqliteSaver
        self._uuid6 = uuid6
        self._opened = SqliteSaver.from_conn_string(path)
        self._saver = self._opened.__enter__()
        self._saver.setup()
        self._thread: Any = {"configurable": {"thread_id": "t1", "checkpoint_ns": ""}}
        self._last: Any = self._thread
        self._version: Any = None
        self._step = 0
        (mode,) = self._saver.conn.execute("PRAGMA synchronous").fetchone()
        if mode != 2:
            raise RuntimeError(f"SqliteSaver runs at synchronous={mode} here, not at FULL (2): not comparable")

    def checkpoint(self, state: dict[str, Any]) -> tuple[Any, ...]:
        """Return the arguments of ``put`` for the next step, made outside the time that is measured."""
        self._version = self._saver.get_next_version(self._version, None)
        versions = dict.fromkeys(state, self._version)
        checkpoint = {
            "v": 4,
            "id": str(self._uuid6(clock_seq=self._step)),
            "ts": datetime.now(UTC).isoformat(),
            "channel_values": state,
            "channel_versions": versions,
            "versions_seen": {"__input__": {}, "agent": versions},
            "updated_channels": list(state),
        }
        about = {"source": "loop", "step": self._step, "parents": {}, "run_id": "r1"}
        self._step += 1
        return self._last, checkpoint, about, versions

    def put(self, arguments: tuple[Any, ...]) -> str:
        """Write a checkpoint and return its id."""
        self._last = self._saver.put(*arguments)
        return str(self._last["configurable"]["checkpoint_id"])

    def commit(self, state: dict[str, Any]) -> str:
        """Write the next step's checkpoint and return its id."""
        return self.put(self.checkpoint(state))

    def load(self, checkpoint: str | None = None) -> dict[str, Any]:
        """Return the state of a checkpoint (default: the newest), as LangGraph's loop gets it."""
        thread = self._thread
        if checkpoint is not None:
            thread = {"configurable": {**thread["configurable"], "checkpoint_id": checkpoint}}
        found = self._saver.get_tuple(thread)
        if found is None:
            raise LookupError("SqliteSaver has no such checkpoint")
        return dict(found.checkpoint["channel_values"])

    def close(self) -> None:
        """Close the file."""
        self._opened.__exit__(None, None, None)


class PlainSqlite:
    """One row a commit with the standard library at FULL and nothing else: the least that durability costs here."""

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute("CREATE TABLE row (id INTEGER PRIMARY KEY, value BLOB)")

    def commit(self, value: bytes) -> None:
        """Commit one row."""
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("INSERT INTO row (value) VALUES (?)", (value,))
        self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
