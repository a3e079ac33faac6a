"""A store: opened here, with its clock, its keys and its name."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs

from cpstore.audit import Audit, Report
from cpstore.backends.sqlite import SqliteBackend, path_of
from cpstore.errors import CheckpointStoreError, InvalidStateError, StorageError
from cpstore.journal import Journal, Reading
from cpstore.lineage import MAX_STATE_BYTES, Lineage
from cpstore.model.entry import FORMAT, StreamId, StreamKind
from cpstore.model.names import check_name
from cpstore.signing.keyring import Keyring
from cpstore.signing.keys import Signer, default_key_path, load_key, load_or_create_key
from cpstore.signing.note import open_head
from cpstore.streams.opened import CACHE_BYTES, OpenStreams

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from cpstore.model.checkpoint import Checkpoint

Landing = Literal["landed", "not landed", "superseded"]


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
) -> Store:
    """Open the store at ``target``, a path or ``sqlite:///path``; make it, and this user's key, on first use.

    ``create=False`` and ``read_only=True`` never make anything. ``signer`` overrides the key file
    (``cpstore.signing.keys.default_key_path()``); ``trust`` the public keys whose entries are believed (default: the
    signer's own). ``durability="full"`` survives power loss after each commit, ``"normal"`` may lose the last ones,
    never their order. ``actor`` names who makes the entries. ``timeout`` is in seconds, sizes are in bytes;
    ``checkpoint="external"`` leaves SQLite's WAL to another program such as Litestream. ``clock`` returns microseconds
    UTC since 1970; times are only labels.

    Raises NotFoundError (with ``create=False``), CorruptError, SchemaError, StorageError, BusyError, UntrustedKeyError
    (written with other keys); the file is then as it was.
    """
    actor = check_name(actor, "actor")
    path = path_of(target)
    exists = Path(path).exists()
    if signer is None and not (read_only and trust is not None):
        found = exists or read_only or not create
        signer = load_key(default_key_path()) if found else load_or_create_key(default_key_path())
    keyring = trust or Keyring.of(*([signer] if signer else []))
    now = clock or (lambda: time.time_ns() // 1000)
    backend = SqliteBackend.open(
        path,
        create=create and not read_only,
        read_only=read_only,
        durability=durability,
        timeout=timeout,
        checkpoint=checkpoint,
        new_origin=lambda: f"cpstore.local/{secrets.token_hex(16)}",
        clock=now,
    )
    try:
        journal = Journal(backend, None if read_only else signer, keyring, now, actor)
        _recognise(journal)
    except BaseException:
        backend.close()
        raise
    return Store(journal, OpenStreams(cache_bytes), max_state_bytes)


def _recognise(journal: Journal) -> None:
    """Refuse a store that was written with keys this reader does not trust, before anything is written."""
    with Reading(journal, "") as reading:
        tx = reading.tx
        facts = tx.facts()
        if facts.format != FORMAT:
            raise InvalidStateError(f"the store has format {facts.format}, this release reads format {FORMAT}")
        newest = tx.last_note()
        if newest is not None:
            open_head(newest[1], journal.keyring, journal.origin)
            return
        found = tx.any_entry()
        if found is not None:
            reading.checked(*found)


@attrs.frozen
class LineageRecord:
    """A lineage in a listing: its names and the header of its newest checkpoint."""

    id: str
    namespace: str
    head: Checkpoint


class Store:
    """An open store. Threads may share it; a forked child opens its own. Close it, or use it as a context manager."""

    def __init__(self, journal: Journal, opened: OpenStreams, max_state_bytes: int) -> None:
        self._journal = journal
        self._opened = opened
        self._max = max_state_bytes
        self._closed = False

    def __repr__(self) -> str:
        return f"<Store {self.target} {self.origin}>"

    @property
    def target(self) -> str:
        """Where the store is kept."""
        return self._journal.backend.target

    @property
    def origin(self) -> str:
        """The store's own name, inside everything it signs."""
        return self._journal.origin

    @property
    def engine(self) -> str:
        """The database engine's version, and whether it is sound."""
        return self._journal.backend.engine

    def lineage(self, id: str, *, namespace: str = "default") -> Lineage:  # noqa: A002
        """Return a handle on a lineage, which need not exist yet. Raises InvalidStateError for an unusable name."""
        return Lineage(self._journal, self._opened, id, namespace, self._max)

    def lineages(self, *, namespace: str | None = None) -> Iterator[LineageRecord]:
        """Yield the lineages of a namespace (default: of all), by name, their heads verified."""
        with Reading(self._journal, namespace or "default") as reading:
            names = [stream for _, stream in reading.tx.streams(StreamKind.LINEAGE, namespace)]
        for stream in names:
            handle = self.lineage(stream.name, namespace=stream.namespace)
            yield LineageRecord(stream.name, stream.namespace, handle.head())

    def landed(self, what: StorageError | str, *, lineage: str | None = None, namespace: str = "default") -> Landing:
        """Tell what became of a write that failed.

        ``what`` is the StorageError it raised, or the idempotency key it carried (then ``lineage`` says where).
        ``"superseded"``: the place in the stream is taken by another entry. Raises InvalidStateError for an error that
        names no entry.
        """
        if isinstance(what, str):
            if lineage is None:
                raise InvalidStateError("a key belongs to a lineage", advice="pass lineage=")
            return "not landed" if self.lineage(lineage, namespace=namespace).landed(what) is None else "landed"
        if what.stream is None or what.seq is None or what.namespace is None:
            raise InvalidStateError("this error names no entry: nothing of its act was written")
        stream = StreamId(what.namespace, StreamKind.LINEAGE, what.stream)
        with Reading(self._journal, what.namespace) as reading:
            number = reading.tx.stream(stream)
            entry = None if number is None else reading.tx.entry(number, what.seq)
            if entry is None or number is None:
                return "not landed"
            reading.checked(number, entry)
            before = reading.tx.entry(number, what.seq - 1) if what.seq > 1 else None
            same = self._journal.digest(entry, before.link if before else bytes(32)).hex() == what.entry
            return "landed" if same else "superseded"

    def verify(self, *, progress: Callable[[int, int], None] | None = None) -> Report:
        """Recompute everything from the stored bytes and return what was found.

        ``progress(done, total)`` is called with numbers of entries. Nothing is changed. Damage is in the report, not an
        exception; only what prevents reading at all raises.
        """
        return Audit(self._journal).run(progress)

    def stats(self) -> dict[str, Any]:
        """Return sizes in bytes and counts, by what they are for."""
        return self._journal.backend.stats()

    def note(self) -> bytes | None:
        """Sign the journal's head now and return the note (about 230 bytes); None for an empty or read-only store."""
        return self._journal.note()

    def close(self) -> None:
        """Sign the head and let go of the file. A store that is closed already stays closed."""
        if self._closed:
            return
        self._closed = True
        try:
            self._journal.note()
        finally:
            self._journal.backend.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close()
        except CheckpointStoreError:
            self._journal.backend.close()
