"""Questions about a whole file, asked through sqlite-utils: for people, never on the write path."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

_BYTES = """
SELECT (SELECT coalesce(sum(length(block)), 0) FROM tail) AS tail_bytes,
       (SELECT coalesce(sum(length(ops) + length(items)), 0) FROM segment) AS segment_bytes,
       (SELECT coalesce(sum(length(frame)), 0) FROM blob) AS shared_bytes,
       (SELECT coalesce(sum(length(detail)), 0) FROM entry) AS detail_bytes
"""
_NAMES = {"entry": "entries", "stream": "streams", "segment": "segments", "blob": "shared_values", "note": "notes"}


def sizes(connection: sqlite3.Connection) -> dict[str, int]:
    """Return rows and bytes of a store by what they are for; sums over all rows, so it takes as long as reading them.

    sqlite-utils is told to leave the connection as it is: no plugins, no recursive triggers.
    """
    from sqlite_utils import Database

    database = Database(connection, recursive_triggers=False, execute_plugins=False)
    present = set(database.table_names())
    counts = {name: database.table(table).count for table, name in _NAMES.items() if table in present}
    (summed,) = database.query(_BYTES)
    return {**counts, **{name: int(value) for name, value in summed.items()}}
