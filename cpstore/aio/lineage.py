"""One line of checkpoints, for coroutines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from cpstore.aio.effect import Edit, EffectBlock, EffectHandle, never_begun
from cpstore.aio.pool import Items

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping

    from cpstore.aio.pool import Pool
    from cpstore.lineage import handle as blocking
    from cpstore.model.binding import Binding, Directive, Retirement, Supersession
    from cpstore.model.checkpoint import Checkpoint
    from cpstore.model.compaction import Claim, Covered
    from cpstore.model.effect import Effect, EffectId, EffectPolicy
    from cpstore.model.glossary import Glossary
    from cpstore.model.restore import Acknowledgement, RestorePlan
    from cpstore.streams.look import Outdated


class Lineage:
    """A handle on one lineage. Tasks that share it take turns; each handle remembers what it has seen.

    Make it with ``Store.lineage``; nothing is written before the first commit. Arguments, answers and errors are those
    of ``cpstore.lineage.Lineage``. A state belongs to a call until it has ended: do not change it meanwhile.
    """

    def __init__(self, pool: Pool, lineage: blocking.Lineage) -> None:
        self._pool = pool
        self._lineage = lineage

    def __repr__(self) -> str:
        return f"<aio.Lineage {self.namespace}/{self.id}>"

    @property
    def id(self) -> str:
        """The lineage's name."""
        return self._lineage.id

    @property
    def namespace(self) -> str:
        """The namespace it belongs to."""
        return self._lineage.namespace

    @property
    def seen(self) -> int | None:
        """The newest revision that this handle has looked at or made, None if it has not looked."""
        return self._lineage.seen

    # --- looking ---------------------------------------------------------------------------------------------

    @property
    def exists(self) -> Coroutine[Any, Any, bool]:
        """Whether the lineage has a checkpoint, to be awaited."""
        return self._pool.run(lambda: self._lineage.exists)

    async def head(self) -> Checkpoint:
        """Return the newest checkpoint, without its state. Raises NotFoundError if there is none."""
        return await self._pool.run(self._lineage.head)

    async def checkpoint(self, revision: int | None = None) -> Checkpoint:
        """Return the header of a checkpoint (default: the head). Raises NotFoundError, CorruptError, SignatureError."""
        return await self._pool.run(self._lineage.checkpoint, revision)

    async def load(self, revision: int | None = None) -> dict[str, Any]:
        """Return the state of a revision (default: the head) as fresh values, equal to what was committed.

        Raises NotFoundError, CorruptError, SignatureError.
        """
        return await self._pool.run(self._lineage.load, revision)

    async def outdated(self) -> tuple[Outdated, ...]:
        """Return the definitions that a lineage this one was forked from has superseded or retired since."""
        return await self._pool.run(self._lineage.outdated)

    def history(self, *, before: int | None = None, limit: int | None = None) -> AsyncIterator[Checkpoint]:
        """Yield the headers of checkpoints, newest first, each with its signature checked.

        Raises, at the first of them, NotFoundError, InvalidStateError, CorruptError, SignatureError.
        """
        return Items(self._pool, lambda: self._lineage.history(before=before, limit=limit))

    async def glossary(self, revision: int | None = None) -> Glossary:
        """Return the bindings in force at a revision (default: the head), with the lock's digest."""
        return await self._pool.run(self._lineage.glossary, revision)

    # --- writing ---------------------------------------------------------------------------------------------

    async def commit(
        self,
        state: Mapping[str, Any],
        *,
        step: int,
        define: Iterable[Binding] = (),
        supersede: Iterable[Supersession] = (),
        retire: Iterable[Retirement] = (),
        glossary: Glossary | None = None,
        expected_revision: int | None = None,
        key: str | None = None,
    ) -> Checkpoint:
        """Commit ``state`` as the next revision, storing only what differs from the one before.

        If the task is cancelled, the commit is whole or has not taken place when the CancelledError arrives; with a
        ``key``, ``await store.landed(key, lineage=…)`` tells, and the same call again is safe. Raises
        InvalidStateError, SemanticDriftError, RevisionConflictError, ConflictError, BusyError, StorageError.
        """
        return await self._pool.run(
            self._lineage.commit,
            state,
            step=step,
            define=define,
            supersede=supersede,
            retire=retire,
            glossary=glossary,
            expected_revision=expected_revision,
            key=key,
        )

    def edit(
        self,
        *,
        step: int,
        define: Iterable[Binding] = (),
        supersede: Iterable[Supersession] = (),
        retire: Iterable[Retirement] = (),
        glossary: Glossary | None = None,
        expected_revision: int | None = None,
        key: str | None = None,
    ) -> Edit:
        """Return a block (``async with``) that states changes by path and commits them when it ends well.

        The arguments and errors are those of ``commit``.
        """
        edit = self._lineage.edit(
            step=step,
            define=define,
            supersede=supersede,
            retire=retire,
            glossary=glossary,
            expected_revision=expected_revision,
            key=key,
        )
        return Edit(self._pool, edit)

    async def fork(
        self,
        name: str,
        *,
        revision: int | None = None,
        supersede: Iterable[Supersession] = (),
        reread: Mapping[str, Directive] | None = None,
        acknowledge: Acknowledgement | None = None,
    ) -> Lineage:
        """Start a lineage that shares the content of a revision (default: the head) and inherits the glossary lock.

        Raises NotFoundError, SemanticDriftError, UnsafeRollbackError, ConflictError if ``name`` exists.
        """
        child = await self._pool.run(
            self._lineage.fork, name, revision=revision, supersede=supersede, reread=reread, acknowledge=acknowledge
        )
        return Lineage(self._pool, child)

    async def landed(self, key: str) -> Checkpoint | None:
        """Return the checkpoint that was committed under an idempotency key, None if there is none."""
        return await self._pool.run(self._lineage.landed, key)

    # --- effects ---------------------------------------------------------------------------------------------

    async def begin(
        self,
        name: str,
        args: Any,
        *,
        policy: EffectPolicy,
        key: str | None = None,
        occurrence: int = 1,
        scope: Literal["family", "lineage"] = "family",
        probe: Callable[[str], Any] | None = None,
    ) -> EffectHandle:
        """Ask whether a change outside the store may be carried out, and record durably that it is begun.

        ``probe`` is called in a thread. If the task is cancelled, no handle has been given out: what was begun is
        recorded as not carried out. Raises EffectBusyError, EffectInDoubtError, EffectConflictError,
        InvalidStateError, NotFoundError, RevisionConflictError, BusyError, StorageError.
        """

        def begin() -> Any:
            return self._lineage.begin(
                name, args, policy=policy, key=key, occurrence=occurrence, scope=scope, probe=probe
            )

        return EffectHandle(self._pool, await self._pool.run_or_undo(begin, never_begun))

    def effect(
        self,
        name: str,
        args: Any,
        *,
        policy: EffectPolicy,
        key: str | None = None,
        occurrence: int = 1,
        scope: Literal["family", "lineage"] = "family",
        probe: Callable[[str], Any] | None = None,
    ) -> EffectBlock:
        """Return a block (``async with``) around an effect; an effect without an outcome at its end is in doubt.

        The arguments and errors are those of ``begin``; a block that ends normally without ``complete`` or ``fail``
        raises EffectInDoubtError.
        """
        block = self._lineage.effect(
            name, args, policy=policy, key=key, occurrence=occurrence, scope=scope, probe=probe
        )
        return EffectBlock(self._pool, block)

    async def cancel(
        self,
        name: str,
        args: Any,
        *,
        policy: EffectPolicy,
        who: str,
        why: str,
        key: str | None = None,
        occurrence: int = 1,
        scope: Literal["family", "lineage"] = "family",
    ) -> Effect:
        """Record that an effect must not be begun. Raises EffectConflictError for one that has happened or may have."""
        return await self._pool.run_surely(
            self._lineage.cancel,
            name,
            args,
            policy=policy,
            who=who,
            why=why,
            key=key,
            occurrence=occurrence,
            scope=scope,
        )

    async def record(
        self,
        name: str,
        args: Any,
        result: Any = None,
        *,
        policy: EffectPolicy,
        key: str | None = None,
        occurrence: int = 1,
        scope: Literal["family", "lineage"] = "family",
    ) -> Effect:
        """Record an effect that was carried out without being asked about; once called, it is recorded in any case.

        Raises EffectConflictError if it is known otherwise.
        """
        return await self._pool.run_surely(
            self._lineage.record,
            name,
            args,
            result,
            policy=policy,
            key=key,
            occurrence=occurrence,
            scope=scope,
        )

    async def reconcile(
        self, effect: Effect | EffectId, *, happened: bool, who: str, why: str, result: Any = None
    ) -> Effect:
        """Say what became of an effect in doubt, and on whose word. The first verdict stands.

        Raises EffectConflictError, EffectBusyError while its owner lives, NotFoundError, InvalidStateError.
        """
        return await self._pool.run_surely(
            self._lineage.reconcile, effect, happened=happened, who=who, why=why, result=result
        )

    async def compensate(self, effect: Effect | EffectId, *, who: str, why: str) -> Effect:
        """Record that what an effect did was undone in the world. Raises EffectConflictError if it has not happened."""
        return await self._pool.run_surely(self._lineage.compensate, effect, who=who, why=why)

    def effects(self, name: str | None = None, *, in_doubt: bool = False) -> AsyncIterator[Effect]:
        """Yield what is known of the effects of this family, in the order in which they were first mentioned.

        Raises NotFoundError, at the first of them, if the lineage does not exist.
        """
        return Items(self._pool, lambda: self._lineage.effects(name, in_doubt=in_doubt))

    async def outcome(self, effect: Effect | EffectId) -> Any:
        """Return the recorded result of an effect. Raises EffectInDoubtError, NotFoundError, OutcomePrunedError."""
        return await self._pool.run(self._lineage.outcome, effect)

    async def arguments(self, effect: Effect | EffectId) -> Any:
        """Return the arguments of an effect as they were recorded, redacted or not. Raises NotFoundError."""
        return await self._pool.run(self._lineage.arguments, effect)

    # --- compaction ------------------------------------------------------------------------------------------

    async def compact(
        self,
        state: Mapping[str, Any],
        *,
        summary: str,
        claims: Iterable[Claim] = (),
        covers: Iterable[Covered] | None = None,
        kept: Mapping[str | tuple[str, str], str] | None = None,
        tokens_before: int | None = None,
        tokens_after: int | None = None,
        step: int | None = None,
        define: Iterable[Binding] = (),
        supersede: Iterable[Supersession] = (),
        retire: Iterable[Retirement] = (),
        glossary: Glossary | None = None,
        expected_revision: int | None = None,
        key: str | None = None,
    ) -> Checkpoint:
        """Commit the compacted ``state``, record what it covers, and tell every ledger that this lineage belongs to.

        Raises InvalidStateError, CompactionConsistencyError, SemanticDriftError, and what ``commit`` raises.
        """
        return await self._pool.run(
            self._lineage.compact,
            state,
            summary=summary,
            claims=claims,
            covers=covers,
            kept=kept,
            tokens_before=tokens_before,
            tokens_after=tokens_after,
            step=step,
            define=define,
            supersede=supersede,
            retire=retire,
            glossary=glossary,
            expected_revision=expected_revision,
            key=key,
        )

    async def expand(self, revision: int | None = None) -> dict[str, Any]:
        """Return what the compaction at a revision (default: the newest) covers. Raises NotFoundError, CorruptError."""
        return await self._pool.run(self._lineage.expand, revision)

    # --- going back ------------------------------------------------------------------------------------------

    async def plan_restore(self, revision: int) -> RestorePlan:
        """Return what going back to a revision would mean, without writing. Raises NotFoundError."""
        return await self._pool.run(self._lineage.plan_restore, revision)

    async def restore(
        self,
        revision: int,
        *,
        acknowledge: Acknowledgement | None = None,
        supersede: Iterable[Supersession] = (),
        reread: Mapping[str, Directive] | None = None,
    ) -> Checkpoint:
        """Make the state of an older revision the newest one, as a new revision that can itself be undone.

        Raises UnsafeRollbackError with the plan's reasons, SemanticDriftError, NotFoundError, RevisionConflictError,
        InvalidStateError, BusyError, StorageError.
        """
        return await self._pool.run(
            self._lineage.restore, revision, acknowledge=acknowledge, supersede=supersede, reread=reread
        )
