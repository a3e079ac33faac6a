"""The effect ledger of a lineage: begin and settle, each a durable entry that no rollback takes back."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import attrs

from cpstore.backends.port import EffectRow
from cpstore.digest import digest
from cpstore.errors import CorruptError, EffectInDoubtError, InvalidStateError, NotFoundError
from cpstore.lineage import crossing, owner
from cpstore.lineage.effect import EffectHandle, Known
from cpstore.model.effect import Effect, EffectId, EffectPolicy, EffectState, Place
from cpstore.model.entry import Kind, StreamId, StreamKind
from cpstore.rules import effects as rules
from cpstore.rules.effects import Answer, Claim, Liveness
from cpstore.snapshot import values
from cpstore.streams.act import Plan, Step, carry_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cpstore.backends.port import Writer
    from cpstore.journal import Reading
    from cpstore.lineage.line import Line
    from cpstore.model.entry import Entry

PAGE = 100
Probe = "Callable[[str], bool | tuple[bool, Any] | None]"
"""Asked with the forwarded key whether an effect happened: True, (True, result), False, None where it cannot tell."""


class Effects:
    """The effects of one lineage's family, asked and recorded through this lineage."""

    def __init__(self, line: Line) -> None:
        self._line = line

    @property
    def origin(self) -> str:
        """The store's name."""
        return self._line.journal.origin

    # --- begin -----------------------------------------------------------------------------------------------

    def begin(
        self,
        name: str,
        args: Any,
        *,
        policy: EffectPolicy,
        key: str | None,
        occurrence: int,
        scope: str,
        probe: Callable[[str], Any] | None,
    ) -> EffectHandle:
        """Answer with a handle; see ``Lineage.begin``."""
        asked = self.asked(name, args, policy, key, occurrence, scope)
        for last in (False, True):
            answer, handle = self._begin(asked, probe=probe is not None and not last)
            if answer is not Answer.PROBE:
                return handle
            self._probe(handle.record, probe)
        raise AssertionError  # pragma: no cover - the second turn never answers PROBE

    def _begin(self, asked: Asked, *, probe: bool) -> tuple[Answer, EffectHandle]:
        answers: list[tuple[Answer, EffectHandle]] = []

        def decide(reading: Reading) -> Plan:
            found, claim = self._find(reading, asked)
            self._line.stands(reading)
            before = None if found is None else found.record
            answer = rules.begin(
                claim,
                before,
                floor=self._floor(reading, claim),
                owner=self._liveness(before),
                crossed=() if found else self._crossed(reading, claim),
                probe=probe,
            )
            if answer is not Answer.FRESH:
                assert found is not None  # noqa: S101 - there is nothing to replay or to probe otherwise
                answers[:] = [(answer, EffectHandle(self, found, fresh=False))]
                return Plan()
            after = rules.started(claim, before, owner.myself(), None if found is None else found.place)
            plan, known = self._plan(reading, "begin", found, after, [asked.encoded] if found is None else [])
            handle = EffectHandle(self, known, fresh=True)
            # Before it is written: no other thread may find it started and take it for abandoned.
            _UNDER_WAY[self.origin, after.id.digest, after.attempt] = handle
            answers[:] = [(answer, handle)]
            return plan

        self._carry_out(decide)
        return answers[0]

    def _probe(self, effect: Effect, probe: Any) -> None:
        said = probe(effect.id.forwarded(self.origin))
        if said is None:
            raise EffectInDoubtError(str(effect.id), f"{rules.in_doubt(effect)}; the probe cannot tell", effect)
        happened, result = said if type(said) is tuple and len(said) == 2 else (said, None)
        if type(happened) is not bool:
            raise InvalidStateError(f"a probe answers True, (True, result), False or None, not {said!r:.100}")
        given = () if result is None else (result,)
        self.reconcile(effect, happened=happened, who="probe", why="asked whether it happened", result=given)

    def _floor(self, reading: Reading, claim: Claim) -> EffectPolicy | None:
        rank = reading.tx.first_policy(crossing.family(reading, self._line.opened)[0], claim.id.name)
        return None if rank is None else tuple(EffectPolicy)[rank]

    def _crossed(self, reading: Reading, claim: Claim) -> list[Effect]:
        """Return the unkeyed effects of the claim's name that this line has stepped back over."""
        if claim.keyed or claim.policy is EffectPolicy.READ_ONLY:
            return []
        found: dict[bytes, Effect] = {}
        for stream, since, upto in crossing.intervals(reading, self._line.opened):
            # All of them: one that is left out might be the one that is asked for in other words.
            for row in reading.tx.traced(
                stream, since, upto, classes=(2, 3, 4), name=claim.id.name, limit=crossing.ALL, keyed=False
            ):
                found[row.identity] = self.read(reading, row).record
        return list(found.values())

    # --- settle ----------------------------------------------------------------------------------------------

    def complete(self, effect: EffectId, attempt: int, result: Any) -> Known:
        """Record that an attempt succeeded."""
        encoded, named = self._result(effect, result)

        def change(found: Known) -> tuple[str, Effect | None]:
            after = rules.completed(found.record, attempt, named, found.place)
            late = after is not None and after.evidence > found.record.evidence
            return "late" if late else "complete", after

        return self._settle(effect, change, [encoded])

    def fail(self, effect: EffectId, attempt: int, error: str, happened: bool | None) -> Known:
        """Record that an attempt ended with an error."""

        def change(found: Known) -> tuple[str, Effect | None]:
            after = rules.failed(found.record, attempt, error, happened, found.place)
            if after is not None and after.evidence > found.record.evidence:
                return "late", after
            return "release" if happened is None else "fail", after

        return self._settle(effect, change, [])

    def reconcile(
        self, effect: EffectId | Effect, *, happened: bool, who: str, why: str, result: tuple[Any, ...]
    ) -> Known:
        """Record a verdict on an effect in doubt; ``result`` is empty or has one value."""
        subject = _subject(effect)
        encoded, named = self._result(subject, result[0]) if result else (b"", None)

        def change(found: Known) -> tuple[str, Effect | None]:
            seen = self._liveness(found.record)
            return "reconcile", rules.reconciled(
                found.record, happened=happened, who=who, why=why, result=named, owner=seen, last=found.place
            )

        return self._settle(subject, change, [encoded] if result else [])

    def compensate(self, effect: EffectId | Effect, *, who: str, why: str) -> Known:
        """Record that what happened was undone."""
        return self._settle(
            _subject(effect),
            lambda found: ("compensate", rules.compensated(found.record, who=who, why=why, last=found.place)),
            [],
        )

    def cancel(self, asked: Asked, *, who: str, why: str) -> Known:
        """Record that an effect must never be begun."""
        return self._declare(asked, "cancel", lambda claim, before, place: rules.cancelled(
            claim, before, who=who, why=why, last=place
        ), [])  # fmt: skip

    def record(self, asked: Asked, result: Any) -> Known:
        """Record an effect that was carried out without being asked about."""
        encoded, named = self._result_of(asked.name, result)
        return self._declare(asked, "record", lambda claim, before, _: rules.recorded(claim, before, named), [encoded])

    def _settle(
        self, effect: EffectId, change: Callable[[Known], tuple[str, Effect | None]], attached: list[bytes]
    ) -> Known:
        known: list[Known] = []

        def decide(reading: Reading) -> Plan:
            self._exists(reading)
            known[:] = [self._one(reading, effect)]
            verb, after = change(known[0])
            if after is None:
                return Plan()
            plan, known[0] = self._plan(reading, verb, known[0], after, attached)
            return plan

        self._carry_out(decide)
        return known[0]

    def _declare(
        self,
        asked: Asked,
        verb: str,
        change: Callable[[Claim, Effect | None, Place | None], Effect | None],
        attached: list[bytes],
    ) -> Known:
        known: list[Known] = []

        def decide(reading: Reading) -> Plan:
            found, claim = self._find(reading, asked)
            after = change(claim, *((None, None) if found is None else (found.record, found.place)))
            given = [asked.encoded] if found is None else []
            if after is None:
                assert found is not None  # noqa: S101 - a rule answers None only about what it was shown
                known[:] = [found]
                return Plan()
            plan, after_it = self._plan(reading, verb, found, after, given + attached)
            known[:] = [after_it]
            return plan

        self._carry_out(decide)
        return known[0]

    # --- looking ---------------------------------------------------------------------------------------------

    def known(self, name: str | None, *, unsettled: bool) -> Iterator[Known]:
        """Yield the family's effects in the order of their first mention, a page at a time."""
        after = 0
        while True:
            with self._line.looking() as reading:
                self._line.opened.refresh(reading)
                self._exists(reading)
                root = crossing.family(reading, self._line.opened)[0]
                rows = reading.tx.effects(root, name, unsettled=unsettled, after=after, limit=PAGE)
                page = [self.read(reading, row) for row in rows]
                after = reading.tx.number_of_effect(rows[-1].identity) if rows else after
            yield from page
            if len(page) < PAGE:
                return

    def one(self, effect: Effect | EffectId) -> Known:
        """Return an effect of this family as it is known now. Raises NotFoundError, InvalidStateError."""
        subject = _subject(effect)
        with self._line.looking() as reading:
            self._line.opened.refresh(reading)
            self._exists(reading)
            return self._one(reading, subject)

    def in_doubt(self, effect: Effect) -> bool:
        """Whether nobody knows if an effect happened, and nobody is about to say."""
        if effect.state is not EffectState.STARTED or effect.policy.repeatable:
            return False
        return self._liveness(effect) is not Liveness.ALIVE

    def read(self, reading: Reading, row: EffectRow) -> Known:
        """Return an effect's record out of its newest entry, verified. Raises CorruptError."""
        opened, last = self._line.opened, self._line.opened.last
        newest = last is not None and (opened.number, last.seq) == (row.stream, row.seq)
        entry = last if newest and last is not None else reading.entry(row.stream, row.seq)
        detail = entry.detail or {}
        if entry.kind is not Kind.EFFECT or "effect" not in detail:
            raise CorruptError(f"{entry.stream}: entry {row.seq} is filed as one of an effect, but is not; run verify")
        record = Effect.from_value(detail["effect"], self._line.namespace)
        if record.id.digest != row.identity:
            raise CorruptError(f"{entry.stream}: entry {row.seq} is filed under another effect; run verify")
        return Known(record, Place(entry.stream.name, entry.seq))

    def outcome(self, known: Known) -> Any:
        """Return an effect's recorded result."""
        record = known.record
        if not record.state.settled:
            raise EffectInDoubtError(str(record.id), rules.in_doubt(record), record)
        if known.resulted is None:
            raise NotFoundError(f"effect {record.id} is {record.state.value}; no result was recorded")
        value = self._value(known.resulted, -1)
        if digest(values.canonical(value)).hex() != record.result:
            raise CorruptError(f"the result of effect {record.id} is not the one that was signed; run verify")
        return value

    def arguments(self, known: Known) -> Any:
        """Return the arguments that an effect was begun with, as they were recorded."""
        return self._value(known.argued, 0)

    def _value(self, place: Place, at: int) -> Any:
        with self._line.looking() as reading:
            stream = StreamId(self._line.namespace, StreamKind.LINEAGE, place.lineage)
            found = reading.states(stream).attached(place.seq)
        return values.decode(found[at])

    # --- how it is done --------------------------------------------------------------------------------------

    def asked(self, name: str, args: Any, policy: EffectPolicy, key: str | None, occurrence: int, scope: str) -> Asked:
        """Return what a caller names, its arguments redacted and encoded. Raises InvalidStateError with the path."""
        plain = values.encode(args)
        kept = self._line.redact(name, values.decode(plain)) if self._line.redact else args
        encoded = values.encode(kept) if self._line.redact else plain
        named = digest(values.canonical(kept)).hex()
        return Asked(name, encoded, named, encoded != plain, policy, key, occurrence, scope)

    def _result(self, effect: EffectId, result: Any) -> tuple[bytes, str]:
        return self._result_of(effect.name, result)

    def _result_of(self, name: str, result: Any) -> tuple[bytes, str]:
        encoded = values.encode(result)
        if self._line.redact:
            result = self._line.redact(name, values.decode(encoded))
            encoded = values.encode(result)
        return encoded, digest(values.canonical(result)).hex()

    def claim(self, reading: Reading, asked: Asked) -> Claim:
        """Return the claim that a caller's words make in this lineage."""
        _, root = crossing.family(reading, self._line.opened)
        return rules.identify(
            self._line.namespace,
            asked.name,
            asked.arguments,
            key=asked.key,
            occurrence=asked.occurrence,
            scope=asked.scope,
            root=root,
            lineage=self._line.id,
            redacted=asked.redacted,
            policy=asked.policy,
        )

    def _find(self, reading: Reading, asked: Asked) -> tuple[Known | None, Claim]:
        self._exists(reading)
        claim = self.claim(reading, asked)
        row = reading.tx.effect(claim.id.digest)
        return (None if row is None else self.read(reading, row)), claim

    def _one(self, reading: Reading, effect: EffectId) -> Known:
        """Return an effect of this family: its entries are in the family's lineages, and nowhere else."""
        row = reading.tx.effect(effect.digest)
        if row is None or row.root != crossing.family(reading, self._line.opened)[0]:
            raise NotFoundError(f"effect {effect} was never begun in the family of lineage {self._line.id!r}")
        return self.read(reading, row)

    def _exists(self, reading: Reading) -> None:
        if self._line.opened.last is None:
            self._line.opened.refresh(reading)
        if self._line.opened.last is None:
            raise NotFoundError(f"lineage {self._line.id!r} does not exist yet; commit to it first")

    def _liveness(self, effect: Effect | None) -> Liveness:
        if effect is None or effect.owner is None:
            return Liveness.GONE
        if effect.owner == owner.myself():
            under_way = (self.origin, effect.id.digest, effect.attempt) in _UNDER_WAY
            return Liveness.ALIVE if under_way else Liveness.GONE
        return owner.liveness(effect.owner)

    def _plan(
        self, reading: Reading, verb: str, found: Known | None, after: Effect, attached: list[bytes]
    ) -> tuple[Plan, Known]:
        opened, last = self._line.opened, self._line.opened.last
        assert last is not None  # noqa: S101
        root = crossing.family(reading, opened)[0]

        def file(tx: Writer, number: int, entry: Entry) -> None:
            row = EffectRow(
                identity=after.id.digest,
                root=root,
                name=after.id.name,
                policy=after.policy.rank,
                kind=after.kind,
                settled=after.state.settled,
                stream=number,
                seq=entry.seq,
                keyed=after.keyed,
            )
            tx.put_effect(row, None if found is None else attrs.evolve(row, kind=found.record.kind))

        step = Step(
            opened,
            Kind.EFFECT,
            lambda writer: writer.attach(attached) if attached else writer.bare(),
            last.revision,
            last.step,
            {"act": verb, "effect": after.to_value()},
            file=file,
        )
        return Plan((step,)), Known(after, Place(self._line.id, last.seq + 1))

    def _carry_out(self, decide: Callable[[Reading], Plan]) -> None:
        opened = self._line.opened
        with opened.lock:
            carry_out(self._line.journal, opened, decide, durable=True)
        self._line.streams.used(opened)


@attrs.frozen
class Asked:
    """A caller's words for an effect: name, encoded arguments and their digest, and what else tells it apart."""

    name: str
    encoded: bytes
    arguments: str
    redacted: bool
    policy: EffectPolicy
    key: str | None
    occurrence: int
    scope: str


def _subject(effect: object) -> EffectId:
    """Return which effect a caller means. Raises InvalidStateError."""
    if isinstance(effect, Effect):
        return effect.id
    if isinstance(effect, EffectId):
        return effect
    raise InvalidStateError(
        f"an effect is named by its record or its id, not {effect!r:.100}", advice="take it from effects() or an error"
    )


_UNDER_WAY: weakref.WeakValueDictionary[tuple[str, bytes, int], EffectHandle] = weakref.WeakValueDictionary()
"""The attempts of this process whose handle somebody still holds, by store, effect and attempt."""
