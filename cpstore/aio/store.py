"""A store for coroutines: opened, looked at and closed in threads of its own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Literal

from cpstore import store as blocking
from cpstore.aio.ledger import SharedLedger
from cpstore.aio.lineage import Lineage
from cpstore.aio.pool import THREADS, Items, Pool
from cpstore.lineage import MAX_STATE_BYTES
from cpstore.streams.opened import CACHE_BYTES

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Callable, Generator, Iterator
    from types import TracebackType

    from cpstore.audit import Report
    from cpstore.errors import StorageError
    from cpstore.signing.keyring import Keyring
    from cpstore.signing.keys import Signer
    from cpstore.store import Landing, LineageRecord


def open_store(
    target: str | os.PathLike[str],
    *,
    create: bool = True,
    read_only: bool = False,
    signer: Signer | None = None,
    trust: Keyring | None = None,
    durability: Literal["full", "normal"] = "full",
    actor: str = "agent",
    timeout: float = 30.0,
    max_state_bytes: int = MAX_STATE_BYTES,
    cache_bytes: int = CACHE_BYTES,
    checkpoint: Literal["auto", "external"] = "auto",
    clock: Callable[[], int] | None = None,
    redact: Callable[[str, Any], Any] | None = None,
    threads: int = THREADS,
) -> Opening:
    """Open the store at ``target``: ``store = await open(…)``, or ``async with open(…) as store``.

    The arguments and errors are those of ``cpstore.open``; ``clock`` and ``redact`` are called in threads. ``threads``
    says how many calls are carried out at the same time.
    """

    def make() -> blocking.Store:
        return blocking.open_store(
            target,
            create=create,
            read_only=read_only,
            signer=signer,
            trust=trust,
            durability=durability,
            actor=actor,
            timeout=timeout,
            max_state_bytes=max_state_bytes,
            cache_bytes=cache_bytes,
            checkpoint=checkpoint,
            clock=clock,
            redact=redact,
        )

    return Opening(make, threads)


class Opening:
    """A store that is about to be opened: await it, or enter it."""

    def __init__(self, make: Callable[[], blocking.Store], threads: int) -> None:
        self._make = make
        self._threads = threads
        self._store: Store | None = None

    def __await__(self) -> Generator[Any, None, Store]:
        return self._open().__await__()

    async def __aenter__(self) -> Store:
        self._store = await self._open()
        return self._store

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._store is not None:
            await self._store.__aexit__(kind, error, trace)

    async def _open(self) -> Store:
        pool = Pool(self._threads)
        try:
            return Store(pool, await pool.run_or_undo(self._make, blocking.Store.close))
        except BaseException:
            await pool.close(lambda: None)
            raise


class _StoppedError(Exception):
    """Nobody waits for the look any more."""


class Store:
    """An open store, for the tasks of an event loop. Close it, or use it as an asynchronous context manager."""

    def __init__(self, pool: Pool, store: blocking.Store) -> None:
        self._pool = pool
        self._store = store

    def __repr__(self) -> str:
        return f"<aio.Store {self.target} {self.origin}>"

    @property
    def target(self) -> str:
        """Where the store is kept."""
        return self._store.target

    @property
    def origin(self) -> str:
        """The store's own name, inside everything it signs."""
        return self._store.origin

    @property
    def engine(self) -> str:
        """The database engine's version, and whether it is sound."""
        return self._store.engine

    def lineage(self, id: str, *, namespace: str = "default") -> Lineage:  # noqa: A002
        """Return a handle on a lineage, which need not exist yet. Raises InvalidStateError for an unusable name."""
        return Lineage(self._pool, self._store.lineage(id, namespace=namespace))

    def ledger(self, id: str, *, namespace: str = "default") -> SharedLedger:  # noqa: A002
        """Return a shared ledger, which its first peer makes. Raises InvalidStateError for an unusable name."""
        return SharedLedger(self._pool, self._store.ledger(id, namespace=namespace))

    def ledgers(self, *, namespace: str | None = None) -> AsyncIterator[SharedLedger]:
        """Yield the ledgers of a namespace (default: of all), by name."""

        def start() -> Iterator[SharedLedger]:
            return (SharedLedger(self._pool, one) for one in self._store.ledgers(namespace=namespace))

        return Items(self._pool, start)

    def lineages(self, *, namespace: str | None = None) -> AsyncIterator[LineageRecord]:
        """Yield the lineages of a namespace (default: of all), by name, their heads verified.

        Damaged ones do not hide the others: the error that names them is raised after all sound ones were yielded.
        Raises InvalidStateError, CorruptError, SignatureError.
        """
        return Items(self._pool, lambda: self._store.lineages(namespace=namespace))

    async def landed(
        self, what: StorageError | str, *, lineage: str | None = None, namespace: str = "default"
    ) -> Landing:
        """Tell what became of a write that failed or was cancelled: of its StorageError, or of its idempotency key.

        Raises InvalidStateError, CorruptError, SignatureError.
        """
        return await self._pool.run(self._store.landed, what, lineage=lineage, namespace=namespace)

    async def verify(self, *, progress: Callable[[int, int], None] | None = None) -> Report:
        """Recompute everything from the stored bytes and return what was found.

        ``progress(done, total)`` is called in a thread; what it raises ends the look, and so does a cancellation.
        """
        stopped = threading.Event()

        def watched(done: int, total: int) -> None:
            if stopped.is_set():
                raise _StoppedError
            if progress is not None:
                progress(done, total)

        said = watched if progress is None or callable(progress) else progress
        return await self._pool.run_until(lambda: self._store.verify(progress=said), stopped.set)

    async def stats(self) -> dict[str, Any]:
        """Return sizes in bytes and counts, by what they are for."""
        return await self._pool.run(self._store.stats)

    async def note(self) -> bytes | None:
        """Sign the journal's head now and return the note; None for an empty or read-only store."""
        return await self._pool.run(self._store.note)

    async def close(self) -> None:
        """Let the calls that were made end, sign the head, let go of the file and end the threads.

        A store that is closed already stays closed. It closes even if the task is cancelled meanwhile.
        """
        await self._pool.close(self._store.close)

    async def __aenter__(self) -> Store:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._pool.close(lambda: self._store.__exit__(kind, error, trace))
