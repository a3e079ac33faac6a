"""One SQLite connection: statements, rows and transactions, with the driver's errors translated."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from typing import TYPE_CHECKING, Any, TypeVar

from cpstore.backends.sqlite_rows import Names
from cpstore.errors import BusyError, CheckpointStoreError, CorruptError, SchemaError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Answer = TypeVar("Answer")


class Link:
    """One connection of one thread, with driver errors translated."""

    def __init__(self, target: str, uri: str) -> None:
        self.target = target
        self.names = Names()
        self.pages = 0
        self._pid = os.getpid()
        self._busy = False
        try:
            self._connection = sqlite3.connect(
                uri, uri=True, isolation_level=None, timeout=5.0, cached_statements=64, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise translate(error, target) from error

    def run(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Carry out one statement. Raises the package's errors only."""
        try:
            return self._connection.execute(sql, values)
        except (sqlite3.Error, OverflowError, UnicodeError) as error:
            raise translate(error, self.target) from error

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query: a damaged page or broken text may show only while they are fetched."""
        cursor = self.run(sql, values)
        try:
            return cursor.fetchall()
        except (sqlite3.Error, OverflowError, UnicodeError) as error:
            raise translate(error, self.target) from error

    def each(self, sql: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query one by one, with driver errors translated."""
        cursor = self.run(sql, values)
        while True:
            try:
                row = cursor.fetchone()
            except (sqlite3.Error, OverflowError, UnicodeError) as error:
                raise translate(error, self.target) from error
            if row is None:
                return
            yield row

    def ask(self, question: Callable[[sqlite3.Connection], Answer]) -> Answer:
        """Put a question that needs the connection itself, with driver errors translated."""
        try:
            return question(self._connection)
        except (sqlite3.Error, OverflowError, UnicodeError) as error:
            raise translate(error, self.target) from error

    @contextlib.contextmanager
    def transaction(self, begin: str) -> Iterator[None]:
        """Hold a transaction for a block: committed if it ends normally, else rolled back, never left open."""
        if self._busy:
            raise CheckpointStoreError(f"{self.target}: a transaction is already open in this thread")
        self._busy = True
        try:
            self.run(begin)
            yield
            self.run("COMMIT")
        except BaseException:
            self.names.forget()
            with contextlib.suppress(sqlite3.Error):
                if self._connection.in_transaction:
                    self._connection.rollback()
            raise
        finally:
            self._busy = False

    def checkpoint(self, pages: int) -> None:
        """Move the write-ahead log into the file once this connection has written that many pages to it.

        Never waits; called under the lock. The size of the log's file says nothing: it is reused from its start.
        """
        if self.pages >= pages:
            self.pages = 0
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def close(self) -> None:
        """Close the connection."""
        if self._pid == os.getpid():
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()


_BUSY = {"SQLITE_BUSY", "SQLITE_LOCKED"}
_CORRUPT = {"SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT"}


def translate(error: Exception, target: str) -> CheckpointStoreError:
    """Return this package's error for one of the driver's."""
    name = str(getattr(error, "sqlite_errorname", "") or "")
    short = "_".join(name.split("_")[:2])
    if short in _BUSY:
        return BusyError(target, 5.0, "a program that does not use this package's lock")
    if short in _CORRUPT:
        return CorruptError(
            f"{target} is not a readable SQLite database ({error}); it was left as it is: restore a backup"
        )
    if isinstance(error, (OverflowError, UnicodeError, sqlite3.InterfaceError)):
        return CorruptError(f"{target}: a value does not fit its column: {error}")
    if isinstance(error, sqlite3.OperationalError) and "no such" in str(error):
        return SchemaError(f"{target} does not have the tables of a store: {error}")
    return StorageError(f"{target}: {error}{f' ({name})' if name else ''}")
