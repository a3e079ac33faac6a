"""SQLite: connections, transactions, the write lock, creation and migration of a store's file."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from cpstore.backends import engine as engines
from cpstore.backends import place, queries, scripts
from cpstore.backends.link import PAGE_SIZE, Link
from cpstore.backends.lockfile import LockFile
from cpstore.backends.sqlite_rows import SqliteReader, SqliteWriter
from cpstore.errors import (
    CheckpointStoreError,
    CorruptError,
    InvalidStateError,
    SchemaChangedError,
    SchemaError,
    SchemaTooNewError,
    StorageError,
)
from cpstore.model.entry import FORMAT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

APPLICATION_ID = 0x43505354  # "CPST"
DIALECT = "sqlite"
WAL_PAGES = 2000
"""Pages of the write-ahead log from which a commit also checkpoints."""
LOOKS, QUIET, PAUSE = 40, 3, 0.01
"""How often a file that is being written is looked at, how often one without a log, and the seconds between two."""

_NOTHING = contextlib.nullcontext()


def path_of(target: str | os.PathLike[str]) -> str:
    """Return the real path behind ``agent.db`` or ``sqlite:///agent.db``.

    Raises StorageError for other schemes, InvalidStateError for what is no path of text at all.
    """
    text = os.fspath(target) if isinstance(target, (str, os.PathLike)) else None
    if not isinstance(text, str):
        raise InvalidStateError(f"a store is opened at a path of text, not {type(target).__name__}")
    if text.startswith("sqlite:///"):
        text = text.removeprefix("sqlite:///")
    elif "://" in text:
        raise StorageError(f"{text}: only a path or sqlite:///path can be opened by this release")
    if not text or "\0" in text or text == ":memory:" or any("\ud800" <= one <= "\udfff" for one in text):
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
        self._anchor: Link | None = None
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
            if not place.look(path, create=create):
                backend._create(new_origin, clock)
            backend._settle()
        except BaseException:
            backend._let_go()
            backend._lock.close()
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
        at_rest = self._unchanged(link) if link.stamp else _NOTHING
        with link.used(), at_rest, link.transaction("BEGIN"):
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
        patience = self._timeout if timeout is None else timeout
        with link.used(), self._lock.held(patience):
            link.patience(patience)
            link.log_ahead()
            if not self._external:
                link.checkpoint(WAL_PAGES)  # of what killed processes left; after a restart only this starts it anew
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

    @contextlib.contextmanager
    def _unchanged(self, link: Link) -> Iterator[None]:
        """Refuse what was read if the file was read without its log, and changed meanwhile."""
        try:
            yield
        except CheckpointStoreError as error:
            if link.stamp in (None, place.stamp(self.path)):
                raise
            raise StorageError(f"{self.path} changed while it was read; repeat the call") from error
        if link.stamp not in (None, place.stamp(self.path)):
            raise StorageError(f"{self.path} changed while it was read; repeat the call")

    def close(self) -> None:
        """Close all connections. The last one empties the write-ahead log, under the lock.

        A connection that another thread is using is closed by that thread when its transaction ends.
        """
        if self._closed:
            return
        with self._quiet(self._lock):
            if self._lock.mine and not self._external:
                with contextlib.suppress(CheckpointStoreError):
                    link = self._link()
                    with link.used():
                        link.checkpoint(0)
            self._let_go()
        self._lock.close()

    @contextlib.contextmanager
    def _quiet(self, lock: LockFile) -> Iterator[None]:
        """Hold the lock for a block, if it can be had: closing goes on without it."""
        with contextlib.ExitStack() as stack:
            if not self.read_only and self._pid == os.getpid():
                with contextlib.suppress(CheckpointStoreError):
                    stack.enter_context(lock.held(self._timeout))
            yield

    def _let_go(self) -> None:
        """Close all connections that no thread is using, as they are, and see to the closing of the others."""
        with self._guard:
            self._closed = True
            self._links = [link for link in self._links if not link.close()]
            if not self._links and self._anchor is not None:
                self._anchor.close()

    def _finish(self) -> None:
        """Close what was in use when the store was closed."""
        with self._quiet(LockFile(self.path)):
            self._let_go()

    def changes(self) -> int:
        """Return a number that changes when another connection commits (SQLite's data_version)."""
        link = self._link()
        with link.used():
            return int(link.rows("PRAGMA data_version")[0][0])

    def stats(self) -> dict[str, int]:
        """Return bytes and counts by what they are for."""
        link = self._link()
        with link.used(), link.transaction("BEGIN"):
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
        if link is not None and link.stamp is not None and not link.busy and link.stamp != place.at_rest(self.path):
            self._forget(link)
            link = None
        if link is None:
            link = self._local.link = self._connect(read_only=self.read_only)
            link.finish = self._finish
            self._keep(link)
        return link

    def _keep(self, link: Link) -> None:
        """Remember a connection to close it later, and close those of threads that have ended."""
        with self._guard:
            gone = [one for one in self._links if not one.thread.is_alive()]
            self._links = [one for one in self._links if one not in gone] + [link]
            late = self._closed
        if gone:
            link.rows("PRAGMA schema_version")  # now it has the log open too, and closing the others leaves that alone
        for one in gone:
            link.pages += one.pages
            one.close()
        if late:
            link.close()

    def _forget(self, link: Link) -> None:
        """Close a connection that shows a file as it was."""
        with self._guard:
            self._links = [one for one in self._links if one is not link]
        link.close()

    def _drop_anchor(self) -> None:
        """Keep a connection that SQLite cannot write through, to be closed last: it then leaves the log as it is."""
        self._link().rows("PRAGMA schema_version")
        self._anchor = self._connect(read_only=True)
        self._anchor.rows("PRAGMA schema_version")

    def _connect(self, *, read_only: bool) -> Link:
        mode = "ro" if read_only else "rw"
        stamp = place.at_rest(self.path) if read_only else None
        link = Link(self.path, f"file:{quote(self.path)}?mode={mode}" + ("&immutable=1" if stamp else ""), stamp)
        try:
            link.run("PRAGMA trusted_schema = OFF")
            link.run("PRAGMA cell_size_check = ON")
            link.run("PRAGMA foreign_keys = ON")
            link.run("PRAGMA wal_autocheckpoint = 0")
            link.run(f"PRAGMA synchronous = {self._durability.upper()}")
            if read_only:
                link.run("PRAGMA query_only = ON")
        except BaseException:
            link.close()
            raise
        return link

    # --- creation and schema ---------------------------------------------------------------------------------

    def _create(self, new_origin: Callable[[], str], clock: Callable[[], int]) -> None:
        """Make a new file, under the lock; somebody else may have made it meanwhile.

        It is built under another name and put in place whole: whoever looks finds no store or all of it, even if this
        process is killed.
        """
        folder, draft = Path(self.path).parent, self.path + "-new"
        place.make_folder(folder)
        with self._lock.held(self._timeout):
            if place.look(self.path, create=True):
                return
            try:
                place.remove_draft(draft)
                fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
                os.fchmod(fd, 0o600)
                os.close(fd)
                self._build(draft, new_origin(), clock())
                os.rename(draft, self.path)  # noqa: PTH104
                place.sync(folder)
            except BaseException as error:
                with contextlib.suppress(OSError):
                    place.remove_draft(draft)
                if isinstance(error, OSError):
                    raise StorageError(f"cannot make {self.path}: {error.strerror}") from error
                raise

    def _build(self, draft: str, origin: str, now: int) -> None:
        link = Link(self.path, f"file:{quote(draft)}?mode=rw")
        try:
            link.run(f"PRAGMA page_size = {PAGE_SIZE}")
            link.run("PRAGMA auto_vacuum = INCREMENTAL")
            link.run("PRAGMA journal_mode = WAL")
            link.run("PRAGMA synchronous = FULL")
            with link.transaction("BEGIN IMMEDIATE"):
                scripts.carry_out(link.run, self._known)
                link.run("INSERT INTO store (one, origin, format, epoch) VALUES (1, ?, ?, ?)", (origin, FORMAT, now))
                link.run("INSERT INTO log (one, size, frontier) VALUES (1, 0, x'')")
                link.run(f"PRAGMA application_id = {APPLICATION_ID}")
                link.run(f"PRAGMA user_version = {len(self._known)}")
            link.checkpoint(0)
        finally:
            link.close()
        if Path(draft + "-wal").exists():
            raise StorageError(f"cannot make {self.path}: something else has {draft} open")

    def _settle(self) -> None:
        """Check what the file is; carry pending migrations out."""
        self._recognize()
        missing = self._missing()
        if missing and self.read_only:
            raise SchemaError(f"{self.path} needs {len(missing)} migration(s); open it for writing once")
        if self._external and not self.read_only:
            self._drop_anchor()
        if missing:
            link = self._link()
            with self._lock.held(self._timeout), link.transaction("BEGIN IMMEDIATE"):
                applied = link.rows("SELECT name, checksum FROM schema_script ORDER BY name")
                scripts.carry_out(link.run, scripts.pending(self._known, applied, self.path))
                link.run(f"PRAGMA user_version = {len(self._known)}")

    def _recognize(self) -> None:
        """Refuse a file of another application, looked at as one that never changes: not even a log is recovered.

        Where somebody moves a log into the file at this moment, such a look may find half of it: it is repeated.
        """
        for look in range(LOOKS):
            try:
                ours = self._application()
            except CorruptError:
                quiet = look >= QUIET and place.size(self.path + "-wal") == 0
                if quiet or look == LOOKS - 1:
                    raise
                time.sleep(PAUSE)
                continue
            if ours == APPLICATION_ID:
                return
            raise SchemaError(f"{self.path} is a SQLite database, but not a store of this package; it was left alone")

    def _application(self) -> int:
        link = Link(self.path, f"file:{quote(self.path)}?mode=ro&immutable=1")
        try:
            return int(link.rows("PRAGMA application_id")[0][0])
        finally:
            link.close()

    def _missing(self) -> list[scripts.Script]:
        """Return the migrations that the file still needs. Raises SchemaError if it is no store.

        A connection that may write empties a log that was left behind when it closes, and a file that is refused has to
        stay as it is: then look with one that cannot.
        """
        left = place.size(self.path + "-wal") > 0 and not self.read_only
        link = self._connect(read_only=True) if left else self._link()
        try:
            found = self._applied(link)
            if found is None:
                raise SchemaError(
                    f"{self.path} is a SQLite database, but not a store of this package; it was left alone"
                )
            applied, schema = found
            missing = scripts.pending(self._known, applied, self.path)
            wrong = [] if self.read_only else scripts.differences(schema, self._known[: len(applied)])
            if wrong:
                raise SchemaChangedError(
                    f"{self.path} has not the schema that this package made: {'; '.join(wrong[:5])}; nothing was "
                    "written: restore a backup, or open it with read_only=True and copy what verifies"
                )
            return missing
        finally:
            if left:
                link.close()

    def _applied(self, link: Link) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]] | None:
        """Return the migrations that the file has had and what stands in its schema, None if it is no store."""
        with link.transaction("BEGIN"):
            ours = link.rows("PRAGMA application_id") == [(APPLICATION_ID,)]
            tables = link.rows("SELECT count(*) FROM sqlite_schema WHERE name IN ('schema_script', 'store')")
            if not ours or tables != [(2,)]:
                return None
            return link.rows("SELECT name, checksum FROM schema_script ORDER BY name"), link.rows(scripts.SCHEMA)

    def _same_schema(self, link: Link) -> None:
        if link.rows("PRAGMA user_version") != [(len(self._known),)]:
            raise SchemaTooNewError(
                f"{self.path} was migrated by a newer release while it was open here; nothing was written: "
                "use that release"
            )
