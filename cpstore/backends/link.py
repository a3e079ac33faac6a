"""One SQLite connection: statements, rows and transactions, with the driver's errors translated."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from cpstore.backends import place
from cpstore.backends.names import Names
from cpstore.errors import BusyError, CheckpointStoreError, CorruptError, SchemaError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Answer = TypeVar("Answer")

PATIENCE = 5.0
"""Seconds to wait for a program that locks the database without this package's lock."""
PAGE_SIZE = 2048
"""Bytes of a page of a new store: a small store is mostly pages that are nearly empty, one or two a table."""
BIG = 32768
"""Pages of the write-ahead log that a reader keeps from the file, from which it is reported."""

_log = logging.getLogger("cpstore")


class Link:
    """One connection of one thread, with driver errors translated.

    ``finish`` closes it when its thread is done, if the store was closed meanwhile. ``stamp`` is what the file looked
    like if it is read without its log: SQLite then takes it for one that never changes.
    """

    def __init__(self, target: str, uri: str, stamp: place.Stamp | None = None) -> None:
        self.target = target
        self.stamp = stamp
        self.finish: Callable[[], object] = self.close
        self.names = Names()
        self.pages = 0
        self.thread = threading.current_thread()
        self._pid = os.getpid()
        self._patience = PATIENCE
        self._ahead = False
        self._reported = 0
        self._using = threading.Lock()
        self._ending = False
        try:
            self._connection = sqlite3.connect(
                uri, uri=True, isolation_level=None, timeout=PATIENCE, cached_statements=64, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise translate(error, target) from error

    def run(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Carry out one statement. Raises the package's errors only."""
        if self._pid != os.getpid():  # the child would end its parent's transaction
            raise StorageError(f"{self.target}: opened before a fork; open the store again in the child")
        try:
            return self._connection.execute(sql, values)
        except (sqlite3.Error, OverflowError, UnicodeError) as error:
            raise translate(error, self.target, self._patience) from error

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query: a damaged page or broken text may show only while they are fetched."""
        cursor = self.run(sql, values)
        try:
            return cursor.fetchall()
        except (sqlite3.Error, OverflowError, UnicodeError) as error:
            raise translate(error, self.target) from error

    def ask(self, question: Callable[[sqlite3.Connection], Answer]) -> Answer:
        """Put a question that needs the connection itself, with driver errors translated."""
        try:
            return question(self._connection)
        except (sqlite3.Error, OverflowError, UnicodeError) as error:
            raise translate(error, self.target) from error

    def patience(self, seconds: float) -> None:
        """Set how long to wait for a program that does not use this package's lock."""
        seconds = min(max(seconds, 0.0), PATIENCE)
        if seconds != self._patience:
            self.run(f"PRAGMA busy_timeout = {int(seconds * 1000)}")
            self._patience = seconds

    def log_ahead(self) -> None:
        """See to it, before the first write, that there is a write-ahead log: another program may have changed that.

        Also count what it has already: who wrote it may have been killed before its turn to checkpoint.
        """
        if not self._ahead:
            self.pages += place.size(self.target + "-wal") // PAGE_SIZE
            if self.rows("PRAGMA journal_mode") != [("wal",)]:
                self.run("PRAGMA journal_mode = WAL")
            self._ahead = True

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Keep the connection for a block: whoever closes the store meanwhile leaves the closing to its end."""
        if not self._using.acquire(blocking=False):
            if self._ending:
                raise StorageError(f"{self.target}: this store is closed")
            raise CheckpointStoreError(f"{self.target}: a transaction is already open in this thread")
        try:
            yield
        finally:
            self._using.release()
            if self._ending:
                self.finish()

    @property
    def busy(self) -> bool:
        """Whether a thread is using it now."""
        return self._using.locked()

    @contextlib.contextmanager
    def transaction(self, begin: str) -> Iterator[None]:
        """Hold a transaction for a block: committed if it ends normally, else rolled back, never left open."""
        try:
            self.run(begin)
            yield
            self.run("COMMIT")
        except BaseException:
            self.names.forget()
            with contextlib.suppress(sqlite3.Error):
                if self._pid == os.getpid() and self._connection.in_transaction:
                    self._connection.rollback()
            raise

    def checkpoint(self, pages: int) -> None:
        """Move the write-ahead log into the file once this connection has written that many pages to it.

        Never waits; called under the lock. The size of the log's file says nothing: it is reused from its start.
        """
        if self.pages < pages:
            return
        self.pages = 0
        with contextlib.suppress(sqlite3.Error):
            ((_, written, moved),) = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            waiting = written - moved
            if waiting >= max(BIG, 2 * self._reported):
                _log.warning(
                    "%s: %d MiB of the write-ahead log cannot be moved into the file: a reader has been open since "
                    "before they were written; close it",
                    self.target,
                    waiting * PAGE_SIZE >> 20,
                )
            self._reported = waiting if waiting >= BIG else 0

    def close(self) -> bool:
        """Close the connection, or let the thread that uses it do so when it is done; False then."""
        self._ending = True
        if self._pid != os.getpid():
            return True  # the parent's connection is the parent's
        if not self._using.acquire(blocking=False):
            return False
        try:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
        finally:
            self._using.release()
        return True


_BUSY = {"SQLITE_BUSY", "SQLITE_LOCKED"}
_CORRUPT = {"SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT"}


def translate(error: Exception, target: str, waited: float = PATIENCE) -> CheckpointStoreError:
    """Return this package's error for one of the driver's."""
    name = str(getattr(error, "sqlite_errorname", "") or "")
    short = "_".join(name.split("_")[:2])
    if short in _BUSY:
        return BusyError(target, waited, "a program that does not use this package's lock")
    if short in _CORRUPT:
        return CorruptError(
            f"{target} is not a readable SQLite database ({error}); it was left as it is: restore a backup"
        )
    if isinstance(error, (OverflowError, UnicodeError, sqlite3.InterfaceError)):
        return CorruptError(f"{target}: a value does not fit its column: {error}")
    if isinstance(error, sqlite3.OperationalError) and "no such" in str(error):
        return SchemaError(f"{target} does not have the tables of a store: {error}")
    return StorageError(f"{target}: {error}{f' ({name})' if name else ''}")
