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

from typing import TYPE_CHECKING, ClassVar, Literal

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
    """A ledger write cites a value that is not the current one."""

    retry = "reload"


class PeerReadOnlyError(CompactionConsistencyError):
    """The peer has to read again before it may write."""

    retry = "reload"


class UnsafeRollbackError(RefusedError):
    """The effect ledger does not clear the rollback."""


class EffectConflictError(RefusedError):
    """The same effect was begun with other arguments or another policy."""


class EffectInDoubtError(RefusedError):
    """Nobody knows whether the effect happened; reconcile it first."""


class EffectBusyError(RefusedError):
    """A live owner is carrying the effect out."""

    retry = "again"


class OutcomePrunedError(RefusedError):
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

    A failed write is in doubt: ``stream``, ``seq`` and ``entry`` (hex digest of the signed bytes) name the
    entry that may or may not have landed; ``Store.landed(error)`` tells.
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
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.namespace = namespace
        self.stream = stream
        self.seq = seq
        self.entry = entry

    def __str__(self) -> str:
        if self.seq is None:
            return self.problem
        return (
            f"{self.problem}; entry {self.seq} of {self.stream!r} is in doubt: "
            "ask store.landed(error) before repeating it"
        )


class CorruptError(CheckpointStoreError):
    """Stored bytes disagree with what was signed, or cannot be read at all."""


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
