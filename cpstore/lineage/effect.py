"""An effect as a caller holds it: a handle, and the block in which it is carried out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import attrs

from cpstore.errors import CheckpointStoreError, EffectInDoubtError
from cpstore.model.effect import Effect, EffectId, EffectState, Place
from cpstore.rules.effects import in_doubt

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


@attrs.frozen
class Known:
    """What the store has of an effect: its record, and the entry that holds it."""

    record: Effect
    place: Place

    @property
    def argued(self) -> Place:
        """Where the arguments are."""
        return self.record.argued or self.place

    @property
    def resulted(self) -> Place | None:
        """Where the result is, None if there is none."""
        return None if self.record.result is None else self.record.resulted or self.place


class Ledger(Protocol):
    """Where a handle says what came of its effect."""

    @property
    def origin(self) -> str:
        """The store's name."""
        ...

    def complete(self, effect: EffectId, attempt: int, result: Any) -> Known:
        """Record that an attempt succeeded."""
        ...

    def fail(self, effect: EffectId, attempt: int, error: str, happened: bool | None) -> Known:
        """Record that an attempt ended with an error."""
        ...

    def outcome(self, known: Known) -> Any:
        """Return an effect's recorded result."""
        ...


class EffectHandle:
    """One effect, as ``begin`` answered. Keep it while the effect is under way: a handle that is gone has no owner.

    ``fresh``: carry the effect out now, with ``key`` as the idempotency key of whoever does it, and say what came of
    it by ``complete`` or ``fail``. Otherwise it has happened, and ``outcome`` is its recorded result.
    """

    def __init__(self, ledger: Ledger, known: Known, *, fresh: bool) -> None:
        self.fresh = fresh
        self._ledger = ledger
        self._known = known
        self._attempt = known.record.attempt

    def __repr__(self) -> str:
        return f"<EffectHandle {self.id} {'fresh' if self.fresh else self._known.record.state.value}>"

    @property
    def id(self) -> EffectId:
        """Which effect this is."""
        return self._known.record.id

    @property
    def key(self) -> str:
        """The idempotency key to forward, 64 hex digits: the same for every attempt at this effect."""
        return self.id.forwarded(self._ledger.origin)

    @property
    def record(self) -> Effect:
        """What was known of the effect when this handle last looked."""
        return self._known.record

    @property
    def outcome(self) -> Any:
        """The recorded result, as a fresh value.

        Raises EffectInDoubtError while nobody knows, NotFoundError if it happened but no result was recorded or it did
        not happen, OutcomePrunedError.
        """
        return self._ledger.outcome(self._known)

    def complete(self, result: Any = None) -> None:
        """Record that the effect happened, with its result. Repeating it with the same result does nothing.

        Raises InvalidStateError (with the path) for a result that cannot be stored; the effect is then still under
        way. Raises EffectConflictError if another outcome stands. An attempt that was replaced meanwhile is noted as
        evidence.
        """
        self._known = self._ledger.complete(self.id, self._attempt, result)

    def fail(self, error: object, *, happened: bool | None = None) -> None:
        """Record that the attempt ended with an error.

        ``happened``: False, nothing was done, and the effect may be begun again; True, it took place all the same;
        None, nobody knows: it is in doubt until somebody reconciles it. Raises EffectConflictError if another outcome
        stands.
        """
        said = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        self._known = self._ledger.fail(self.id, self._attempt, said, happened)


class EffectBlock:
    """A block in which an effect is carried out. If it ends without an outcome, the effect is in doubt."""

    def __init__(self, begin: Callable[[], EffectHandle]) -> None:
        self._begin = begin
        self._handle: EffectHandle | None = None

    def __enter__(self) -> EffectHandle:
        self._handle = self._begin()
        return self._handle

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        handle, self._handle = self._handle, None
        if handle is None or not handle.fresh or handle.record.state is not EffectState.STARTED:
            return
        if handle.record.owner is None:  # let go inside the block
            return
        if error is None:
            handle.fail("the block ended without complete() or fail()")
            raise EffectInDoubtError(str(handle.id), in_doubt(handle.record), handle.record)
        try:
            handle.fail(error)
        except CheckpointStoreError as problem:
            error.add_note(f"effect {handle.id} could not be let go: {problem}")
