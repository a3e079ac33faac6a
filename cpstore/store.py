"""A store: opened here, with its clock, its keys and its name."""

from __future__ import annotations

import math
import secrets
import time
from typing import TYPE_CHECKING, Any, Literal

import attrs

from cpstore.audit import Audit, Report
from cpstore.backends import place
from cpstore.backends.sqlite import SqliteBackend, path_of
from cpstore.errors import (
    CheckpointStoreError,
    CorruptError,
    InvalidStateError,
    NotFoundError,
    SignatureError,
    StorageError,
    UntrustedKeyError,
)
from cpstore.journal import Journal, Reading
from cpstore.ledger import SharedLedger
from cpstore.lineage import MAX_STATE_BYTES, Lineage
from cpstore.model.binding import is_step
from cpstore.model.entry import FORMAT, StreamId, StreamKind
from cpstore.model.names import check_name
from cpstore.signing.keyring import Keyring, short
from cpstore.signing.keys import Signer, default_key_path, load_key, load_or_create_key
from cpstore.signing.note import open_head
from cpstore.streams.opened import CACHE_BYTES, OpenStreams

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from cpstore.model.checkpoint import Checkpoint

NAMED = 3
"""Damaged lineages that an error names; ``verify`` names all."""
Landing = Literal["landed", "not landed", "superseded"]
PROBES = 9
"""Entries from all over a store that are looked at when its newest head note does not tell whose it is."""


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
) -> Store:
    """Open the store at ``target``, a path or ``sqlite:///path``; make it, and this user's key, on first use.

    ``create=False`` and ``read_only=True`` never make anything. ``signer`` overrides the key file
    (``cpstore.signing.keys.default_key_path()``); ``trust`` the public keys whose entries are believed (default: the
    signer's own). ``durability="full"`` survives power loss after each commit, ``"normal"`` may lose the last ones,
    never their order. ``actor`` names who makes the entries. ``timeout`` is in seconds, sizes are in bytes;
    ``checkpoint="external"`` leaves SQLite's WAL to another program such as Litestream. ``clock`` returns microseconds
    UTC since 1970; times are only labels. ``redact(name, value)`` returns what may be kept of the arguments and results
    of the effects of a name, before they are hashed.

    Raises InvalidStateError (an argument that cannot be), NotFoundError (with ``create=False``), CorruptError,
    SchemaError, StorageError, BusyError, UntrustedKeyError (written with other keys, or ``trust`` without the
    signer's own); the file is then as it was. A store with damaged parts is opened: what is sound in it can be read.
    """
    actor = check_name(actor, "actor")
    _check_options(signer, trust, durability, checkpoint, timeout, clock)
    for name, size, least in (("max_state_bytes", max_state_bytes, 1), ("cache_bytes", cache_bytes, 0)):
        if not is_step(size) or size < least:
            raise InvalidStateError(f"{name} is a number of bytes from {least} on, not {size!r:.100}")
    if max_state_bytes > MAX_STATE_BYTES:
        raise InvalidStateError(f"max_state_bytes is at most {MAX_STATE_BYTES}: a larger state could not be read again")
    path = path_of(target)
    if signer is None and not (read_only and trust is not None):
        # A key made now is in nobody's trust: where that is given, the key has to be there.
        found = place.look(path, create=create and not read_only) or trust is not None
        signer = load_key(default_key_path()) if found else load_or_create_key(default_key_path())
    keyring = trust or Keyring.of(*([signer] if signer else []))
    if signer is not None and not read_only:
        _check_own(signer, keyring)
    now = _checked(clock) if clock else lambda: time.time_ns() // 1000
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
    return Store(journal, OpenStreams(cache_bytes), max_state_bytes, redact)


def _check_options(
    signer: object, trust: object, durability: object, checkpoint: object, timeout: object, clock: object
) -> None:
    """Let arguments of ``open_store`` pass that have the right types and values. Raises InvalidStateError."""
    for name, given, kind in (("signer", signer, Signer), ("trust", trust, Keyring)):
        if given is not None and not isinstance(given, kind):
            raise InvalidStateError(f"{name} is a {kind.__name__} or None, not {type(given).__name__}")
    for name, given, allowed in (
        ("durability", durability, ("full", "normal")),
        ("checkpoint", checkpoint, ("auto", "external")),
    ):
        if given not in allowed:
            raise InvalidStateError(f"{name} is {' or '.join(map(repr, allowed))}, not {given!r:.100}")
    if type(timeout) not in (int, float) or not 0 <= timeout < math.inf:  # type: ignore[operator]
        raise InvalidStateError(f"timeout is a number of seconds from 0 on, not {timeout!r:.100}")
    if clock is not None and not callable(clock):
        raise InvalidStateError(f"clock is a function that returns microseconds, not {type(clock).__name__}")


def _check_own(signer: Signer, keyring: Keyring) -> None:
    """Refuse a signer whose own entries this reader would not believe. Raises UntrustedKeyError."""
    if signer.writer not in keyring.writers or signer.store not in keyring.stores:
        raise UntrustedKeyError(
            f"trust= has not the keys of the signer {short(signer.writer)}: what it writes could not be read here; "
            "pass Keyring.of(signer, …), or open with read_only=True"
        )


def _checked(clock: Callable[[], int]) -> Callable[[], int]:
    def now() -> int:
        time = clock()
        if not is_step(time):
            raise InvalidStateError(f"the clock returned {time!r:.100}, not microseconds since 1970 (0 to 2^53 - 1)")
        return time

    return now


def _recognise(journal: Journal) -> None:
    """Refuse a store that was written with keys this reader does not trust, before anything is written.

    A damaged row must not lock away what is sound: one signature that holds is enough. Where the newest note names
    another key, none of the entries looked at may do so: then it is the note that is damaged.
    """
    with Reading(journal, "") as reading:
        facts = reading.tx.facts()
        if facts.format != FORMAT:
            raise InvalidStateError(f"the store has format {facts.format}, this release reads format {FORMAT}")
        problem: CheckpointStoreError | None = None
        try:
            newest = reading.tx.last_note()
            if newest is not None:
                open_head(newest[1], journal.keyring, journal.origin)
                return
        except (CorruptError, SignatureError) as error:
            problem = error
        if not _any_sound(reading, strict=isinstance(problem, UntrustedKeyError)) and problem is not None:
            raise problem


def _any_sound(reading: Reading, *, strict: bool) -> bool:
    """Whether the signature of some entry holds; False if there are no entries. Raises what is wrong with all of them.

    ``strict``: raises UntrustedKeyError if one that was looked at names a key that is not trusted.
    """
    sound, problem = False, None
    for at in range(PROBES):
        try:
            found = reading.tx.some_entry(at, PROBES - 1)
            if found is None:
                return False
            reading.checked(*found)
        except (CorruptError, SignatureError) as error:
            if strict and isinstance(error, UntrustedKeyError):
                raise
            problem = error if problem is None or isinstance(error, UntrustedKeyError) else problem
            continue
        if not strict:
            return True
        sound = True
    if problem is not None and not sound:
        raise problem
    return sound


@attrs.frozen
class LineageRecord:
    """A lineage in a listing: its names and the header of its newest checkpoint."""

    id: str
    namespace: str
    head: Checkpoint


class Store:
    """An open store. Threads may share it; a forked child opens its own. Close it, or use it as a context manager."""

    def __init__(
        self,
        journal: Journal,
        opened: OpenStreams,
        max_state_bytes: int,
        redact: Callable[[str, Any], Any] | None = None,
    ) -> None:
        self._journal = journal
        self._opened = opened
        self._max = max_state_bytes
        self._redact = redact
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
        return Lineage(self._journal, self._opened, id, namespace, self._max, self._redact)

    def ledger(self, id: str, *, namespace: str = "default") -> SharedLedger:  # noqa: A002
        """Return a shared ledger, which its first peer makes. Raises InvalidStateError for an unusable name."""
        return SharedLedger(self._journal, self._opened, id, namespace)

    def ledgers(self, *, namespace: str | None = None) -> Iterator[SharedLedger]:
        """Yield the ledgers of a namespace (default: of all), by name."""
        with Reading(self._journal, namespace or "default") as reading:
            names = [stream for _, stream in reading.tx.streams(StreamKind.LEDGER, namespace)]
        for stream in names:
            yield self.ledger(stream.name, namespace=stream.namespace)

    def lineages(self, *, namespace: str | None = None) -> Iterator[LineageRecord]:
        """Yield the lineages of a namespace (default: of all), by name, their heads verified.

        Damaged ones do not hide the others: the error that names them is raised after all sound ones were yielded.
        Raises InvalidStateError, CorruptError, SignatureError.
        """
        if namespace is not None:
            check_name(namespace, "namespace")
        return self._lineages(namespace)

    def _lineages(self, namespace: str | None) -> Iterator[LineageRecord]:
        with Reading(self._journal, namespace or "default") as reading:
            names = [stream for _, stream in reading.tx.streams(StreamKind.LINEAGE, namespace)]
        damaged: list[tuple[StreamId, CheckpointStoreError]] = []
        for stream in names:
            try:
                head = self.lineage(stream.name, namespace=stream.namespace).head()
            except (CorruptError, InvalidStateError, NotFoundError, SignatureError) as error:
                damaged.append((stream, error))
                continue
            yield LineageRecord(stream.name, stream.namespace, head)
        if damaged:
            first = damaged[0][1]
            kind = type(first) if isinstance(first, SignatureError) else CorruptError
            text = "; ".join(f"lineage {str(stream)!r} cannot be read: {error}" for stream, error in damaged[:NAMED])
            more = f"; and {len(damaged) - NAMED} more" if len(damaged) > NAMED else ""
            raise kind(text + more) from first

    def landed(self, what: StorageError | str, *, lineage: str | None = None, namespace: str = "default") -> Landing:
        """Tell what became of a write that failed.

        ``what`` is the StorageError it raised, or the idempotency key it carried (then ``lineage`` says where).
        ``"superseded"``: the place in the stream is taken by another entry. Raises InvalidStateError for an error that
        names no entry, CorruptError or SignatureError where the stream's end is damaged.
        """
        if isinstance(what, str):
            if lineage is None:
                raise InvalidStateError("a key belongs to a lineage", advice="pass lineage=")
            return "not landed" if self.lineage(lineage, namespace=namespace).landed(what) is None else "landed"
        if not isinstance(what, CheckpointStoreError):
            raise InvalidStateError(f"what is asked about is a StorageError or a key, not {type(what).__name__}")
        if not isinstance(what, StorageError) or what.stream is None or what.seq is None or what.namespace is None:
            raise InvalidStateError("this error names no entry: nothing of its act was written")
        stream = StreamId(what.namespace, StreamKind(what.kind), what.stream)
        with Reading(self._journal, what.namespace) as reading:
            found = reading.last(stream)
            if found is None or found[1].seq < what.seq:
                return "not landed"
            number = found[0]
            entry = reading.entry(number, what.seq)
            before = reading.tx.entry(number, what.seq - 1) if what.seq > 1 else None
            same = self._journal.digest(entry, before.link if before else bytes(32)).hex() == what.entry
            return "landed" if same else "superseded"

    def verify(self, *, progress: Callable[[int, int], None] | None = None) -> Report:
        """Recompute everything from the stored bytes and return what was found.

        ``progress(done, total)`` is called with numbers of entries; what it raises ends the look. Nothing is changed.
        Damage is in the report, not an exception; only what prevents reading at all raises.
        """
        if progress is not None and not callable(progress):
            raise InvalidStateError(f"progress is a function, not {type(progress).__name__}")
        return Audit(self._journal).run(progress)

    def stats(self) -> dict[str, Any]:
        """Return sizes in bytes and counts, by what they are for."""
        return self._journal.backend.stats()

    def note(self) -> bytes | None:
        """Sign the journal's head now and return the note (about 230 bytes); None for an empty or read-only store.

        Raises CorruptError, SignatureError if the one that is stored for this head is damaged.
        """
        text = self._journal.note()
        if text is not None:
            open_head(text, self._journal.keyring, self.origin)
        return text

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
