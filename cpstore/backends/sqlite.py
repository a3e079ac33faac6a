"""SQLite: connections, transactions, the write lock, creation and migration of a store's file."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from cpstore.backends import engine as engines
from cpstore.backends import queries, scripts
from cpstore.backends.link import Link
from cpstore.backends.lockfile import LockFile
from cpstore.backends.sqlite_rows import SqliteReader, SqliteWriter
from cpstore.errors import (
    CheckpointStoreError,
    CorruptError,
    NotFoundError,
    SchemaError,
    SchemaTooNewError,
    StorageError,
)
from cpstore.model.entry import FORMAT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

APPLICATION_ID = 0x43505354  # "CPST"
DIALECT = "sqlite"
WAL_PAGES = 1000
"""Pages of the write-ahead log from which a commit also checkpoints."""
PAGE_SIZE = 4096


def path_of(target: str | os.PathLike[str]) -> str:
    """Return the real path behind ``agent.db`` or ``sqlite:///agent.db``. Raises StorageError for other schemes."""
    text = os.fspath(target)
    if text.startswith("sqlite:///"):
        text = text.removeprefix("sqlite:///")
    elif "://" in text:
        raise StorageError(f"{text}: only a path or sqlite:///path can be opened by this release")
    if not text or "\0" in text or text == ":memory:":
        raise StorageError(f"{text!r} is no path of a store; a store is a file")
    return os.path.realpath(text)


class SqliteBackend:
    """One store in one file. Make it with ``open``; threads may share it, a forked child may not."""

    def __init__(
        self,
        path: str,
        *,
        read_only: bool,
        durability: Literal["full", "normal"],
        timeout: float,
        checkpoint: Literal["auto", "external"],
    ) -> None:
        self.path = path
        self.read_only = read_only
        self._durability = durability
        self._timeout = timeout
        self._external = checkpoint == "external"
        self._lock = LockFile(path)
        self._local = threading.local()
        self._links: list[Link] = []
        self._guard = threading.Lock()
        self._pid = os.getpid()
        self._closed = False
        self._known = scripts.load(DIALECT)
        verdict = engines.loaded()
        if not verdict.accepted or (self._external and not verdict.sound and not read_only):
            raise StorageError(f"{path}: {verdict.text}")
        self.engine = verdict.text

    @classmethod
    def open(
        cls,
        path: str,
        *,
        create: bool,
        read_only: bool,
        durability: Literal["full", "normal"],
        timeout: float,
        checkpoint: Literal["auto", "external"],
        new_origin: Callable[[], str],
        clock: Callable[[], int],
    ) -> SqliteBackend:
        """Open the store at a real path; make it if there is none and ``create`` says so.

        ``new_origin`` names a new store, ``clock`` returns microseconds UTC. Raises NotFoundError, CorruptError,
        SchemaError, StorageError, BusyError; an existing file is then as it was.
        """
        backend = cls(path, read_only=read_only, durability=durability, timeout=timeout, checkpoint=checkpoint)
        try:
            if not backend._found(create=create):
                backend._create(new_origin, clock)
            backend._settle()
        except BaseException:
            backend.close()
            raise
        return backend

    @property
    def target(self) -> str:
        """The path of the file."""
        return self.path

    @property
    def durable(self) -> bool:
        """Whether every transaction survives power loss once it has ended."""
        return self._durability == "full"

    # --- transactions ----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def read(self) -> Iterator[SqliteReader]:
        """Open a read transaction: one snapshot, no lock."""
        link = self._link()
        with link.transaction("BEGIN"):
            reader = SqliteReader(link)
            try:
                yield reader
            finally:
                reader.open = False

    @contextlib.contextmanager
    def write(self, timeout: float | None = None, *, durable: bool = False) -> Iterator[SqliteWriter]:
        """Open a write transaction under the lock file; committed if the block ends normally."""
        if self.read_only:
            raise StorageError(f"{self.path} is open for reading only")
        link = self._link()
        with self._lock.held(self._timeout if timeout is None else timeout):
            with self._synced(link, durable), link.transaction("BEGIN IMMEDIATE"):
                self._same_schema(link)
                writer = SqliteWriter(link)
                try:
                    yield writer
                finally:
                    writer.open = False
            link.pages += writer.pages
            if not self._external:
                link.checkpoint(WAL_PAGES)

    @contextlib.contextmanager
    def _synced(self, link: Link, durable: bool) -> Iterator[None]:
        """Make one transaction durable in a store that is not, and with it all before it in the same log."""
        if not durable or self._durability == "full":
            yield
            return
        link.run("PRAGMA synchronous = FULL")
        try:
            yield
        finally:
            link.run(f"PRAGMA synchronous = {self._durability.upper()}")

    def close(self) -> None:
        """Close all connections. The last one empties the write-ahead log, under the lock."""
        if self._closed:
            return
        self._closed = True
        if self._pid != os.getpid():
            return  # the parent's connections are the parent's
        with self._guard:
            links, self._links = self._links, []
        with contextlib.ExitStack() as stack:
            if not self.read_only and links:
                with contextlib.suppress(CheckpointStoreError):
                    stack.enter_context(self._lock.held(self._timeout))
                    if not self._external:
                        links[-1].checkpoint(0)
            for link in links:
                link.close()
        self._lock.close()

    def stats(self) -> dict[str, int]:
        """Return bytes and counts by what they are for."""
        link = self._link()
        with link.transaction("BEGIN"):
            found = link.ask(queries.sizes)
        for name, suffix in (("file_bytes", ""), ("wal_bytes", "-wal")):
            with contextlib.suppress(OSError):
                found[name] = os.stat(self.path + suffix).st_size  # noqa: PTH116
        return found

    # --- connections -----------------------------------------------------------------------------------------

    def _link(self) -> Link:
        if self._closed:
            raise StorageError(f"{self.path}: this store is closed")
        if self._pid != os.getpid():
            raise StorageError(f"{self.path}: opened before a fork; open the store again in the child")
        link: Link | None = getattr(self._local, "link", None)
        if link is None:
            link = self._local.link = self._connect()
            with self._guard:
                self._links.append(link)
        return link

    def _connect(self) -> Link:
        mode = "ro" if self.read_only else "rw"
        frozen = self.read_only and not Path(self.path + "-wal").exists()
        uri = f"file:{quote(self.path)}?mode={mode}" + ("&immutable=1" if frozen else "")
        link = Link(self.path, uri)
        try:
            link.run("PRAGMA trusted_schema = OFF")
            link.run("PRAGMA cell_size_check = ON")
            link.run("PRAGMA foreign_keys = ON")
            link.run("PRAGMA wal_autocheckpoint = 0")
            link.run(f"PRAGMA synchronous = {self._durability.upper()}")
            if self.read_only:
                link.run("PRAGMA query_only = ON")
        except BaseException:
            link.close()
            raise
        return link

    # --- creation and schema ---------------------------------------------------------------------------------

    def _create(self, new_origin: Callable[[], str], clock: Callable[[], int]) -> None:
        """Make a new file, under the lock; somebody else may have made it meanwhile."""
        folder = Path(self.path).parent
        try:
            missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
            for parent in reversed(missing):
                parent.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot make the folder {folder}: {error.strerror}") from error
        with self._lock.held(self._timeout):
            if _look(self.path, create=True):
                return
            made = not Path(self.path).exists()
            try:
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
                os.chmod(self.path, 0o600)  # noqa: PTH101
            except OSError as error:
                raise StorageError(f"cannot make {self.path}: {error.strerror}") from error
            try:
                self._build(new_origin(), clock())
            except BaseException:
                if made:
                    with contextlib.suppress(OSError):
                        os.unlink(self.path)  # noqa: PTH108
                raise

    def _build(self, origin: str, now: int) -> None:
        link = Link(self.path, f"file:{quote(self.path)}?mode=rw")
        try:
            link.run(f"PRAGMA page_size = {PAGE_SIZE}")
            link.run("PRAGMA auto_vacuum = INCREMENTAL")
            link.run("PRAGMA journal_mode = WAL")
            link.run("PRAGMA synchronous = FULL")
            with link.transaction("BEGIN IMMEDIATE"):
                _migrate(link, self._known)
                link.run("INSERT INTO store (one, origin, format, epoch) VALUES (1, ?, ?, ?)", (origin, FORMAT, now))
                link.run("INSERT INTO log (one, size, frontier) VALUES (1, 0, x'')")
                link.run(f"PRAGMA application_id = {APPLICATION_ID}")
                link.run(f"PRAGMA user_version = {len(self._known)}")
            link.checkpoint(0)
        finally:
            link.close()

    def _settle(self) -> None:
        """Check what the file is; carry pending migrations out."""
        link = self._link()
        applied = self._applied(link)
        if applied is None and self._in_the_making:
            with self._lock.held(self._timeout):
                applied = self._applied(link)
        if applied is None:
            raise SchemaError(f"{self.path} is a SQLite database, but not a store of this package; it was left alone")
        missing = scripts.pending(self._known, applied, self.path)
        if missing and self.read_only:
            raise SchemaError(f"{self.path} needs {len(missing)} migration(s); open it for writing once")
        if missing:
            with self._lock.held(self._timeout), link.transaction("BEGIN IMMEDIATE"):
                applied = link.rows("SELECT name, checksum FROM schema_script ORDER BY name")
                _migrate(link, scripts.pending(self._known, applied, self.path))
                link.run(f"PRAGMA user_version = {len(self._known)}")

    def _applied(self, link: Link) -> list[tuple[Any, ...]] | None:
        """Return the migrations that the file has had, None if it is no store."""
        with link.transaction("BEGIN"):
            ours = link.rows("PRAGMA application_id") == [(APPLICATION_ID,)]
            tables = link.rows("SELECT count(*) FROM sqlite_schema WHERE name IN ('schema_script', 'store')")
            if not ours or tables != [(2,)]:
                return None
            return link.rows("SELECT name, checksum FROM schema_script ORDER BY name")

    @property
    def _in_the_making(self) -> bool:
        """Whether another process may be making the file now: it has the lock file first, and holds it meanwhile."""
        return not self.read_only and Path(self._lock.path).exists()

    def _found(self, *, create: bool) -> bool:
        """Say whether there is a file; one that looks broken is looked at again once nobody is making it."""
        try:
            return _look(self.path, create=create)
        except CorruptError:
            if not self._in_the_making:
                raise
        with self._lock.held(self._timeout):
            return _look(self.path, create=create)

    def _same_schema(self, link: Link) -> None:
        if link.rows("PRAGMA user_version") != [(len(self._known),)]:
            raise SchemaTooNewError(
                f"{self.path} was migrated by a newer release while it was open here; nothing was written: "
                "use that release"
            )


def _look(path: str, *, create: bool) -> bool:
    """Say whether there is a store's file, by its kind and size alone: opening it here would drop SQLite's locks."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        if create:
            return False
        raise NotFoundError(f"there is no store at {path}; make it with create=True, or check the path") from None
    except (OSError, ValueError) as error:
        raise StorageError(f"cannot look at {path}: {error}") from error
    if stat.S_ISDIR(found.st_mode):
        raise StorageError(f"{path} is a folder; a store is a file: name one inside it")
    if not stat.S_ISREG(found.st_mode):
        raise StorageError(f"{path} is not a regular file; it was left alone")
    if found.st_size:
        return True
    if not create or Path(path + "-wal").exists() or time.time() - found.st_mtime < 0:
        raise CorruptError(f"{path} is empty; if it was a store, its content is gone: restore a backup")
    return False


def _migrate(link: Link, missing: Sequence[scripts.Script]) -> None:
    """Carry out scripts inside the open transaction."""
    link.run(
        "CREATE TABLE IF NOT EXISTS schema_script (name TEXT PRIMARY KEY, checksum TEXT NOT NULL) STRICT, WITHOUT ROWID"
    )
    for script in missing:
        for statement in _statements(script.sql):
            link.run(statement)
        link.run("INSERT INTO schema_script (name, checksum) VALUES (?, ?)", (script.name, script.checksum))


def _statements(sql: str) -> Iterator[str]:
    statement = ""
    for line in sql.splitlines(keepends=True):
        if not statement and (not line.strip() or line.startswith("--")):
            continue
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
