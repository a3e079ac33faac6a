"""One line of checkpoints: read the facts, ask the rules, append what they answer. One transaction an act."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from cpstore.errors import InvalidStateError
from cpstore.lineage import compacting, restoring
from cpstore.lineage.commits import Commit
from cpstore.lineage.compacting import Compact, Summary
from cpstore.lineage.edit import Edit
from cpstore.lineage.effect import EffectBlock
from cpstore.lineage.effects import Effects
from cpstore.lineage.forking import Fork
from cpstore.lineage.line import Line
from cpstore.lineage.request import Request, Terms, changes_digest, orders, records, state_digest
from cpstore.lineage.restoring import Restore
from cpstore.model.binding import Supersession
from cpstore.model.effect import Effect
from cpstore.model.names import check_count, check_name
from cpstore.snapshot.frames import MAX_STATE
from cpstore.streams import look

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cpstore.journal import Journal
    from cpstore.lineage.effect import EffectHandle
    from cpstore.model.binding import Binding, Directive, Retirement
    from cpstore.model.checkpoint import Checkpoint
    from cpstore.model.compaction import Claim, Covered
    from cpstore.model.effect import EffectId, EffectPolicy
    from cpstore.model.glossary import Glossary
    from cpstore.model.restore import Acknowledgement, RestorePlan
    from cpstore.snapshot.edits import Change as Edited
    from cpstore.streams.look import Outdated
    from cpstore.streams.opened import OpenStreams

MAX_STATE_BYTES = MAX_STATE
"""Encoded bytes that one state may have, unless the store is opened with another limit."""


class Lineage:
    """A handle on one lineage. Threads that share it take turns; each handle remembers what it has seen.

    Make it with ``Store.lineage``; nothing is written before the first commit.
    """

    def __init__(
        self,
        journal: Journal,
        streams: OpenStreams,
        name: str,
        namespace: str,
        max_state_bytes: int = MAX_STATE_BYTES,
        redact: Callable[[str, Any], Any] | None = None,
    ) -> None:
        self._line = Line(journal, streams, name, namespace, max_state_bytes, redact)
        self._effects = Effects(self._line)

    def __repr__(self) -> str:
        return f"<Lineage {self.namespace}/{self.id}>"

    @property
    def id(self) -> str:
        """The lineage's name."""
        return self._line.id

    @property
    def namespace(self) -> str:
        """The namespace it belongs to."""
        return self._line.namespace

    @property
    def seen(self) -> int | None:
        """The newest revision that this handle has looked at or made, None if it has not looked."""
        return self._line.seen

    # --- looking ---------------------------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        """Whether the lineage has a checkpoint."""
        with self._line.looking() as reading:
            found = reading.last(self._line.stream)
        if found is None:
            self._line.saw(0)
        return found is not None

    def head(self) -> Checkpoint:
        """Return the newest checkpoint, without its state. Raises NotFoundError if there is none."""
        return self.checkpoint()

    def checkpoint(self, revision: int | None = None) -> Checkpoint:
        """Return the header of a checkpoint (default: the head), its signature checked.

        Raises NotFoundError, CorruptError, SignatureError.
        """
        with self._line.looking() as reading:
            number, _, entry = look.find(reading, self._line.stream, revision)
            self._line.saw(entry.revision)
            return look.header(reading, number, entry)

    def load(self, revision: int | None = None) -> dict[str, Any]:
        """Return the state of a revision (default: the head) as fresh values, equal to what was committed.

        One signature vouches for all bytes that are read; they are compared with it before they are decompressed.
        Raises NotFoundError, CorruptError, SignatureError.
        """
        return self._line.state(revision)

    def outdated(self) -> tuple[Outdated, ...]:
        """Return the definitions that a lineage this one was forked from has superseded or retired since.

        A fork keeps its own lock until it records the change itself, by a supersession or retirement.
        """
        with self._line.looking() as reading:
            return look.outdated(reading, self._line.stream)

    def history(self, *, before: int | None = None, limit: int | None = None) -> Iterator[Checkpoint]:
        """Yield the headers of checkpoints, newest first, a page at a time, each with its signature checked.

        ``before`` starts below that revision, ``limit`` ends after so many. Raises NotFoundError if there is no such
        lineage: an empty history would look like a new one. Also InvalidStateError, CorruptError, SignatureError.
        """
        check_count(before, "before", 1)
        check_count(limit, "limit", 0)
        return self._history(before, limit)

    def _history(self, before: int | None, left: int | None) -> Iterator[Checkpoint]:
        while True:
            with self._line.looking() as reading:
                number, last, _ = look.find(reading, self._line.stream, None)
                top = last.revision if before is None else min(before - 1, last.revision)
                count = look.PAGE if left is None else min(look.PAGE, left)
                page = look.page(reading, number, self._line.stream, top, count) if top and count else []
            yield from page
            left = None if left is None else left - len(page)
            if left == 0 or not page or page[-1].revision == 1:
                return
            before = page[-1].revision

    def glossary(self, revision: int | None = None) -> Glossary:
        """Return the bindings in force at a revision (default: the head), with the lock's digest."""
        with self._line.looking() as reading:
            number, _, entry = look.find(reading, self._line.stream, revision)
            return look.glossary_at(reading, number, entry)

    # --- writing ---------------------------------------------------------------------------------------------

    def commit(
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

        ``step`` is the caller's own index: it may repeat or rise. ``define`` names new bindings, ``supersede`` and
        ``retire`` change locked ones on someone's order; ``glossary`` declares all of them, with or without its
        digest. ``expected_revision`` defaults to the newest revision this handle has seen. ``key`` makes a retry
        safe: the same key with the same request returns the checkpoint that landed.

        Raises InvalidStateError (with the path), SemanticDriftError, RevisionConflictError, ConflictError (key used
        for another request), BusyError, StorageError (in doubt: ask ``Store.landed``). After any of them nothing
        has changed, in memory or in the file, unless the error says "in doubt".
        """
        if type(state) is not dict:
            raise InvalidStateError(f"a state is a dict, not {type(state).__name__}", advice="wrap it: {'value': …}")
        terms = Terms.of(define, supersede, retire, glossary)
        request = Request(step, terms, expected_revision, key, lambda: state_digest(state))
        return Commit(self._line, request, lambda writer: writer.state(state, self._line.max_bytes)).carry_out()

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
        """Return a block that states changes by path and commits them when it ends without an exception.

        Its cost is that of the changes, whatever the size of the state. The arguments are those of ``commit``.
        """
        terms = Terms.of(define, supersede, retire, glossary)

        looks = self._line.looks

        def commit(changes: Sequence[Edited]) -> Checkpoint:
            request = Request(step, terms, expected_revision, key, lambda: changes_digest(changes), looks)
            return Commit(self._line, request, lambda writer: writer.changes(changes, self._line.max_bytes)).carry_out()

        return Edit(commit, self._line.max_bytes)

    def fork(
        self,
        name: str,
        *,
        revision: int | None = None,
        supersede: Iterable[Supersession] = (),
        reread: Mapping[str, Directive] | None = None,
        acknowledge: Acknowledgement | None = None,
    ) -> Lineage:
        """Start a lineage that shares the content of a revision (default: the head) and inherits the glossary lock.

        The fork's own revision 1 is written at once; the cost does not depend on the history. Below the head the
        locks of the head stay in force: where a definition has moved since, the fork is refused with
        SemanticDriftError unless ``supersede`` re-establishes it or ``reread`` names who ordered that the old state
        be read under today's meaning; and the effect ledger has to clear it as it does a restore, see
        ``plan_restore`` and ``acknowledge``. Raises NotFoundError, UnsafeRollbackError, ConflictError if ``name``
        exists.
        """
        line = self._line
        child = Lineage(line.journal, line.streams, name, line.namespace, line.max_bytes, line.redact)
        order = records("supersede", supersede, Supersession), orders(reread)
        Fork(line, child._line, revision, *order, acknowledge).carry_out()
        return child

    def landed(self, key: str) -> Checkpoint | None:
        """Return the checkpoint that was committed under an idempotency key, None if there is none."""
        check_name(key, "idempotency key")
        with self._line.looking() as reading:
            found = reading.last(self._line.stream)
            return None if found is None else look.landed(reading, found[0], key)

    # --- effects ---------------------------------------------------------------------------------------------

    def begin(
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

        The effect is told by its name, by ``key`` (a business key such as an order number; default: the digest of
        ``args``) and by ``occurrence``, in this lineage and all its forks (``scope="lineage"``: here alone). A handle
        that is ``fresh`` says: go ahead, with ``handle.key``. One that is not says that it has happened, and has the
        recorded ``outcome``. ``probe(key)`` tells for a reconcilable effect in doubt whether it happened: True,
        (True, result), False or None.

        Raises EffectBusyError (a live process is at it), EffectInDoubtError (nobody knows whether it happened; see
        ``reconcile``), EffectConflictError (other arguments or a weaker policy under the same name and key; cancelled;
        or, after a restore or fork, effects of this name that were stepped back over), InvalidStateError,
        NotFoundError (no checkpoint yet), RevisionConflictError (this handle has not looked since the last restore),
        BusyError, StorageError. The effect must not be carried out then.
        """
        return self._effects.begin(name, args, policy=policy, key=key, occurrence=occurrence, scope=scope, probe=probe)

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
        """Return a block around an effect: ``begin`` on entry; an effect without an outcome at its end is in doubt.

        A block that ends normally without ``complete`` or ``fail`` raises EffectInDoubtError. The arguments and the
        other errors are those of ``begin``.
        """
        return EffectBlock(
            lambda: self.begin(name, args, policy=policy, key=key, occurrence=occurrence, scope=scope, probe=probe)
        )

    def cancel(
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
        """Record that an effect must not be begun: ``begin`` is refused from now on, compacted or restored or not.

        Raises EffectConflictError for an effect that has happened or may have.
        """
        asked = self._effects.asked(name, args, policy, key, occurrence, scope)
        return self._effects.cancel(asked, who=who, why=why).record

    def record(
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
        """Record an effect that was carried out without being asked about. It is marked as such, and without a ``key``
        it stands in the way of a restore: a re-run would not ask about it.

        Raises EffectConflictError if it is known otherwise.
        """
        asked = self._effects.asked(name, args, policy, key, occurrence, scope)
        return self._effects.record(asked, result).record

    def reconcile(self, effect: Effect | EffectId, *, happened: bool, who: str, why: str, result: Any = None) -> Effect:
        """Say what became of an effect in doubt, and on whose word. The first verdict stands.

        ``effect`` is a record of ``effects()`` or of an error's ``record``; ``result`` what ``begin`` shall answer from
        now on. Raises EffectConflictError if the effect is settled otherwise, EffectBusyError while its owner lives,
        NotFoundError, InvalidStateError.
        """
        given = () if result is None else (result,)
        return self._effects.reconcile(effect, happened=happened, who=who, why=why, result=given).record

    def compensate(self, effect: Effect | EffectId, *, who: str, why: str) -> Effect:
        """Record that what an effect did was undone in the world; ``begin`` is fresh again.

        Raises EffectConflictError for one that has not happened.
        """
        return self._effects.compensate(effect.id if isinstance(effect, Effect) else effect, who=who, why=why).record

    def effects(self, name: str | None = None, *, in_doubt: bool = False) -> Iterator[Effect]:
        """Yield what is known of the effects of this family, in the order in which they were first mentioned.

        ``in_doubt``: only those that nobody knows the outcome of and nobody is carrying out. Raises NotFoundError if
        the lineage does not exist.
        """
        for known in self._effects.known(name, unsettled=in_doubt):
            if not in_doubt or self._effects.in_doubt(known.record):
                yield known.record

    def outcome(self, effect: Effect | EffectId) -> Any:
        """Return the recorded result of an effect. Raises EffectInDoubtError, NotFoundError, OutcomePrunedError."""
        return self._effects.outcome(self._effects.one(effect))

    def arguments(self, effect: Effect | EffectId) -> Any:
        """Return the arguments of an effect as they were recorded, redacted or not. Raises NotFoundError."""
        return self._effects.arguments(self._effects.one(effect))

    # --- compaction ------------------------------------------------------------------------------------------

    def compact(
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

        ``summary`` is the JSON Pointer of the summary in ``state``: a text or a message, smaller than what it covers.
        What is covered is computed; ``covers`` states it, and is compared. ``claims`` lists what the summary relies
        on (``TermClaim``, ``EffectClaim``, ``KeyClaim``); those without any source are recorded as unbacked. The
        lineage's peers are read-only until they have read again; ``kept`` spares a ledger's key (or (ledger, key))
        whose whole value stands at a path of ``state``. The token counts are labels, ``step`` defaults to the head's.
        All of it is one transaction, durable when this returns, and reversible by ``expand``.

        Raises InvalidStateError (no fit summary, nothing covered), CompactionConsistencyError (a claim, ``covers`` or
        ``kept`` contradicts the store), SemanticDriftError (a lock, or a locked id that the summary alters), and
        what ``commit`` raises.
        """
        if type(state) is not dict:
            raise InvalidStateError(f"a state is a dict, not {type(state).__name__}", advice="wrap it: {'value': …}")
        said = Summary.of(summary, claims, covers, kept, tokens_before, tokens_after)
        terms = Terms.of(define, supersede, retire, glossary)
        request = Request(step, terms, expected_revision, key, lambda: b"compact" + state_digest(state))
        return Compact(self._line, request, state, said).carry_out()

    def expand(self, revision: int | None = None) -> dict[str, Any]:
        """Return what the compaction at a revision (default: the newest) covers: by path, the items or the value.

        Raises NotFoundError if there is no such compaction, CorruptError if the content is not held any more.
        """
        return compacting.expand(self._line, revision)

    # --- going back ------------------------------------------------------------------------------------------

    def plan_restore(self, revision: int) -> RestorePlan:
        """Return what going back to a revision would mean, without writing. Raises NotFoundError."""
        with self._line.looking() as reading:
            answered, _ = restoring.plan(self._line, reading, revision)
            self._line.saw(answered.head)
            return answered

    def restore(
        self,
        revision: int,
        *,
        acknowledge: Acknowledgement | None = None,
        supersede: Iterable[Supersession] = (),
        reread: Mapping[str, Directive] | None = None,
    ) -> Checkpoint:
        """Make the state of an older revision the newest one, as a new revision that can itself be undone.

        It is durable when this returns. The glossary lock stays as it is now; where a definition has moved since,
        ``supersede`` re-establishes the old one or ``reread`` says who ordered that the state be read under today's.
        ``acknowledge`` answers for what the plan lists, where that can be overridden. Handles that looked before are
        refused until they look again.

        Raises UnsafeRollbackError with the plan's reasons, SemanticDriftError, NotFoundError, RevisionConflictError,
        InvalidStateError, BusyError, StorageError.
        """
        order = records("supersede", supersede, Supersession), orders(reread)
        return Restore(self._line, revision, acknowledge, *order).carry_out()
