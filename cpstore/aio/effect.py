"""An edit and an effect as a coroutine holds them: the blocks that end in a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable
    from types import TracebackType

    from cpstore.aio.pool import Pool
    from cpstore.lineage import effect as blocking
    from cpstore.lineage.edit import Edit as BlockingEdit
    from cpstore.model.checkpoint import Checkpoint
    from cpstore.model.effect import Effect, EffectId


class Edit:
    """Changes by path (JSON Pointer, RFC 6901), committed together when the block ends without an exception.

    Values are taken as they are at the call, which does not wait: only the end of the block does. ``result`` is the
    checkpoint afterwards. A block that is cancelled inside commits nothing.
    """

    def __init__(self, pool: Pool, edit: BlockingEdit) -> None:
        self._pool = pool
        self._edit = edit

    def append(self, path: str, *items: Any) -> None:
        """Add items at the end of the list at ``path``. Raises InvalidStateError for what cannot be stored."""
        self._edit.append(path, *items)

    def set(self, path: str, value: Any) -> None:
        """Make ``value`` the one at ``path``; the last step of the path may be a new key."""
        self._edit.set(path, value)

    def delete(self, path: str) -> None:
        """Take away a key or a list item."""
        self._edit.delete(path)

    def splice(self, path: str, start: int, stop: int, items: Iterable[Any] = ()) -> None:
        """Replace the items ``start`` to ``stop - 1`` of the list at ``path``."""
        self._edit.splice(path, start, stop, items)

    @property
    def result(self) -> Checkpoint:
        """The checkpoint that the block made. Raises NotFoundError before it has ended well."""
        return self._edit.result

    async def __aenter__(self) -> Edit:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                await self._pool.run(self._edit.__exit__, None, None, None)
        finally:
            # Withdrawn, or left by an exception: it has ended, and takes no more changes. Nothing if it has committed.
            self._edit.__exit__(GeneratorExit, None, None)


class EffectHandle:
    """One effect, as ``begin`` answered. Keep it while the effect is under way: a handle that is gone has no owner.

    ``fresh``: carry the effect out now, with ``key`` as the idempotency key of whoever does it, and say what came of
    it by ``complete`` or ``fail``. Otherwise it has happened, and ``await handle.outcome`` is its recorded result.
    """

    def __init__(self, pool: Pool, handle: blocking.EffectHandle) -> None:
        self.fresh = handle.fresh
        self._pool = pool
        self._handle = handle

    def __repr__(self) -> str:
        return f"<aio.{repr(self._handle)[1:]}"

    @property
    def id(self) -> EffectId:
        """Which effect this is."""
        return self._handle.id

    @property
    def key(self) -> str:
        """The idempotency key to forward, 64 hex digits: the same for every attempt at this effect."""
        return self._handle.key

    @property
    def record(self) -> Effect:
        """What was known of the effect when this handle last looked."""
        return self._handle.record

    @property
    def outcome(self) -> Coroutine[Any, Any, Any]:
        """The recorded result, to be awaited. Raises as ``cpstore.lineage.effect.EffectHandle.outcome`` does."""
        return self._pool.run(lambda: self._handle.outcome)

    async def complete(self, result: Any = None) -> None:
        """Record that the effect happened, with its result; once called, it is recorded though the task be cancelled.

        Raises InvalidStateError (with the path), EffectConflictError, BusyError, StorageError.
        """
        await self._pool.run_surely(self._handle.complete, result)

    async def fail(self, error: object, *, happened: bool | None = None) -> None:
        """Record that the attempt ended with an error; once called, it is recorded though the task be cancelled.

        ``happened``: False, nothing was done; True, it took place all the same; None, nobody knows. Raises
        EffectConflictError, BusyError, StorageError.
        """
        await self._pool.run_surely(self._handle.fail, error, happened=happened)


class EffectBlock:
    """A block in which an effect is carried out. If it ends without an outcome, the effect is in doubt.

    So it is if the block is cancelled: whatever was under way in it may have happened.
    """

    def __init__(self, pool: Pool, block: blocking.EffectBlock) -> None:
        self._pool = pool
        self._block = block

    async def __aenter__(self) -> EffectHandle:
        return EffectHandle(self._pool, await self._pool.run_or_undo(self._block.__enter__, never_begun))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._pool.run_surely(self._block.__exit__, kind, error, trace)


def never_begun(handle: blocking.EffectHandle) -> None:
    """Settle an effect whose handle never reached who asked for it: this attempt did nothing.

    An attempt before it may have, where the policy allows another one beside it: that says as little as before.
    """
    if handle.fresh:
        certain = not handle.record.policy.repeatable
        handle.fail("cancelled before it was carried out", happened=False if certain else None)
