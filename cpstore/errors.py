"""Every error a user of the store can see.

::

    CheckpointStoreError
    ├─ RefusedError                 a rule says no; nothing was written
    │  ├─ SemanticDriftError           a locked definition would be dropped, changed or shadowed
    │  ├─ CompactionConsistencyError
    │  │  ├─ StaleWriteError
    │  │  └─ PeerReadOnlyError
    │  ├─ UnsafeRollbackError
    │  ├─ EffectConflictError
    │  ├─ EffectInDoubtError
    │  ├─ EffectBusyError
    │  ├─ OutcomePrunedError
    │  └─ InvalidStateError            the value cannot be stored as it is
    ├─ ConflictError                somebody else wrote first
    │  └─ RevisionConflictError
    ├─ NotFoundError
    ├─ BusyError
    ├─ StorageError
    ├─ CorruptError                 stored bytes disagree with what was signed
    ├─ HostLimitError               the bytes are sound, this process cannot follow them
    ├─ SignatureError
    │  ├─ UntrustedKeyError
    │  └─ BadSignatureError
    └─ SchemaError
       ├─ SchemaTooNewError
       └─ SchemaChangedError

Each error carries its facts as attributes, survives pickling, and says in ``retry`` what helps:
``"never"`` (change the request), ``"reload"`` (read the head, decide again) or ``"again"`` (the same call later).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

Retry = Literal["never", "reload", "again"]


class CheckpointStoreError(Exception):
    """The base of all errors of this package."""

    retry: ClassVar[Retry] = "never"


class RefusedError(CheckpointStoreError):
    """A rule refuses the act. Nothing was written."""


class SemanticDriftError(RefusedError):
    """A glossary lock would be broken.

    ``differences`` lists every one of them as ``(symbol, before, after)``: texts that say what the lock
    holds and what the act would make of it; an empty text means "absent".
    """

    def __init__(self, where: str, differences: Sequence[tuple[str, str, str]], advice: str = "") -> None:
        super().__init__(where, tuple(differences), advice)
        self.where = where
        self.differences = tuple(differences)
        self.advice = advice

    def __str__(self) -> str:
        lines = [f"{self.where}: refused, {len(self.differences)} locked definition(s) would drift"]
        lines += [
            f"  {name!r}: {before or 'absent'} -> {after or 'absent'}" for name, before, after in self.differences
        ]
        advice = "state the definitions unchanged, or pass supersede=[Supersession(binding, directive)]"
        lines.append(self.advice or advice)
        return "\n".join(lines)


class CompactionConsistencyError(RefusedError):
    """An act contradicts what a compaction or a ledger has settled."""


class StaleWriteError(CompactionConsistencyError):
    """A ledger write, or a claim of a summary, cites a value that is not the current one.

    ``stale`` lists ``(key, cited, current)``: texts such as ``revision 3 (9f86d081…)``, or ``nothing``. ``suspect``:
    the peer cited nothing at all for a key that exists; it has been marked, and has to re-read before it writes.
    """

    retry = "reload"

    def __init__(self, ledger: str, stale: Sequence[tuple[str, str, str]], *, suspect: bool = False) -> None:
        super().__init__(ledger, tuple(stale), suspect)
        self.ledger = ledger
        self.stale = tuple(stale)
        self.suspect = suspect

    def __reduce__(self) -> Any:
        return _again, (type(self), (self.ledger, self.stale), {"suspect": self.suspect})

    def __str__(self) -> str:
        lines = [f"ledger {self.ledger!r}: refused, {len(self.stale)} key(s) are not as cited; nothing was written"]
        lines += [f"  {key!r}: cited {cited}, the ledger has {current}" for key, cited, current in self.stale]
        lines.append(
            "the peer is suspect now: read the keys again and pass them to revalidate()"
            if self.suspect
            else "read the keys again, decide again, then write with seen="
        )
        return "\n".join(lines)


class PeerReadOnlyError(CompactionConsistencyError):
    """The peer has to read again before it may write.

    ``status`` is ``suspect`` or ``read_only``, ``keys`` what it has to re-read and present to ``revalidate``.
    """

    retry = "reload"

    def __init__(self, ledger: str, peer: str, status: str, keys: Sequence[str] = (), problem: str = "") -> None:
        super().__init__(ledger, peer, status, tuple(keys), problem)
        self.ledger = ledger
        self.peer = peer
        self.status = status
        self.keys = tuple(keys)
        self.problem = problem

    def __str__(self) -> str:
        keys = ", ".join(map(repr, self.keys)) or "none yet: read what you are about to write"
        problem = f" ({self.problem})" if self.problem else ""
        return (
            f"ledger {self.ledger!r}: peer {self.peer!r} is {self.status}{problem} and may not write; nothing was "
            f"written: re-read and pass to revalidate(): {keys}"
        )


class UnsafeRollbackError(RefusedError):
    """The effect ledger does not clear the rollback.

    ``reasons`` are texts, ``alternatives`` what can be done instead. ``plan`` is what ``plan_restore`` answered.
    """

    def __init__(
        self, lineage: str, revision: int, reasons: Sequence[str], alternatives: Sequence[str] = (), plan: Any = None
    ) -> None:
        super().__init__(lineage, revision, tuple(reasons), tuple(alternatives), plan)
        self.lineage = lineage
        self.revision = revision
        self.reasons = tuple(reasons)
        self.alternatives = tuple(alternatives)
        self.plan = plan

    def __str__(self) -> str:
        lines = [f"lineage {self.lineage!r}: going back to revision {self.revision} is refused; nothing was written"]
        lines += [f"  {reason}" for reason in self.reasons]
        lines += [f"instead: {alternative}" for alternative in self.alternatives]
        return "\n".join(lines)


class _AboutEffect:
    """``effect`` names what is not to be carried out now, ``problem`` says why, ``record`` is what the ledger has."""

    def __init__(self, effect: str, problem: str, record: Any = None) -> None:
        super().__init__(effect, problem, record)  # type: ignore[call-arg]
        self.effect = effect
        self.problem = problem
        self.record = record

    def __str__(self) -> str:
        return f"effect {self.effect}: {self.problem}"


class EffectConflictError(_AboutEffect, RefusedError):
    """The same effect was begun with other arguments or another policy, was cancelled, or has another outcome."""


class EffectInDoubtError(_AboutEffect, RefusedError):
    """Nobody knows whether the effect happened; reconcile it first."""


class EffectBusyError(_AboutEffect, RefusedError):
    """A live owner is carrying the effect out."""

    retry = "again"


class OutcomePrunedError(_AboutEffect, RefusedError):
    """The effect is settled, but its result was pruned."""


class InvalidStateError(RefusedError):
    """A value, name or command cannot be stored as it is.

    ``path`` is the RFC 6901 JSON Pointer of the offending place inside the state, or ``""`` where the
    whole argument is meant.
    """

    def __init__(self, problem: str, path: str = "", advice: str = "") -> None:
        super().__init__(problem, path, advice)
        self.problem = problem
        self.path = path
        self.advice = advice

    def __str__(self) -> str:
        text = f"at {self.path}: {self.problem}" if self.path else self.problem
        return f"{text}; {self.advice}" if self.advice else text


class ConflictError(CheckpointStoreError):
    """Somebody else wrote first, or the same idempotency key was used for another request."""

    retry = "reload"


class RevisionConflictError(ConflictError):
    """The act was prepared against a revision that is not the head.

    ``expected`` is the revision the caller named or had seen (``None``: it had seen none), ``head`` the
    lineage's newest one (0: the lineage does not exist).
    """

    def __init__(self, lineage: str, expected: int | None, head: int) -> None:
        super().__init__(lineage, expected, head)
        self.lineage = lineage
        self.expected = expected
        self.head = head

    def __str__(self) -> str:
        if self.expected is None:
            return (
                f"lineage {self.lineage!r} already has revision {self.head} and this handle has not looked at it; "
                f"call head() or load() first, or pass expected_revision={self.head}"
            )
        return (
            f"lineage {self.lineage!r} is at revision {self.head}, not {self.expected}; nothing was written: "
            "load the head, decide again, then commit"
        )


class NotFoundError(CheckpointStoreError, LookupError):
    """No such store, lineage, revision or entry."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else "not found"


class BusyError(CheckpointStoreError):
    """The write lock was not free in time. ``holder`` names who has it, where known."""

    retry = "again"

    def __init__(self, target: str, waited: float, holder: str = "") -> None:
        super().__init__(target, waited, holder)
        self.target = target
        self.waited = waited
        self.holder = holder

    def __str__(self) -> str:
        who = self.holder or "another process"
        return f"{self.target}: {who} holds the write lock, waited {self.waited:.1f} s; nothing was written: try again"


class StorageError(CheckpointStoreError):
    """The operating system or SQLite failed.

    A failed write is in doubt: ``kind`` and ``stream``, ``seq`` and ``entry`` (hex digest of the signed bytes) name the
    first entry that may or may not have landed; ``Store.landed(error)`` tells.
    """

    retry = "again"

    def __init__(
        self,
        problem: str,
        *,
        namespace: str | None = None,
        stream: str | None = None,
        seq: int | None = None,
        entry: str | None = None,
        kind: str = "lineage",
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.namespace = namespace
        self.stream = stream
        self.seq = seq
        self.entry = entry
        self.kind = kind

    def __str__(self) -> str:
        if self.seq is None:
            return self.problem
        return (
            f"{self.problem}; entry {self.seq} of {self.stream!r} is in doubt: "
            "ask store.landed(error) before repeating it"
        )


class CorruptError(CheckpointStoreError):
    """Stored bytes disagree with what was signed, or cannot be read at all."""


class HostLimitError(CheckpointStoreError):
    """The stored bytes are sound and nothing was written, but this process lacks what it takes to follow a value.

    Room on its call stack, or a time zone in its database.
    """


class SignatureError(CheckpointStoreError):
    """An entry or a note cannot be trusted."""


class UntrustedKeyError(SignatureError):
    """The signature's key is not among those this reader trusts."""


class BadSignatureError(SignatureError):
    """A trusted key did not sign these bytes."""


class SchemaError(CheckpointStoreError):
    """The file's tables are not those of this release."""


class SchemaTooNewError(SchemaError):
    """A newer release wrote the file; use that release."""


class SchemaChangedError(SchemaError):
    """The file's migrations are not the ones this release knows."""


def _again(kind: type[CheckpointStoreError], args: tuple[Any, ...], fields: dict[str, Any]) -> CheckpointStoreError:
    return kind(*args, **fields)
