"""The signed entries behind one fact: what was done about an effect, who settled a term. Oldest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from cpstore.errors import CheckpointStoreError, CorruptError, NotFoundError
from cpstore.inspect import facts
from cpstore.inspect.render import in_json
from cpstore.journal import Reading
from cpstore.lineage.crossing import check_kin
from cpstore.model.effect import Effect, Place
from cpstore.model.entry import Kind, StreamId, StreamKind
from cpstore.model.glossary import Change, Reread
from cpstore.rules.effects import Liveness, check_next
from cpstore.signing.keyring import short
from cpstore.snapshot import values
from cpstore.streams import look

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cpstore.inspect.open import Asked
    from cpstore.model.entry import Entry
    from cpstore.model.glossary import Glossary


@attrs.frozen
class Done:
    """One entry about an effect, and what was known of the effect after it. ``number`` is its stream's."""

    number: int
    entry: Entry
    record: Effect

    @property
    def act(self) -> str:
        """What was done: ``begin``, ``complete`` or another verb of ``rules.effects``."""
        return str((self.entry.detail or {}).get("act"))


def families(asked: Asked, reading: Reading, lineage: str | None) -> list[list[int]]:
    """Return the streams of each family of the namespace, or of the one that a lineage belongs to.

    Raises NotFoundError, CorruptError where the index of forks is not that of the signed entries.
    """
    names = [lineage] if lineage is not None else [name for _, name in facts.names(asked.store, asked.namespace)]
    roots: dict[int, None] = {}
    for name in names:
        number = reading.tx.stream(StreamId(asked.namespace, StreamKind.LINEAGE, name))
        if number is None:
            raise NotFoundError(f"lineage {name!r} does not exist in namespace {asked.namespace!r}")
        check_kin(reading, number)
        above = reading.tx.kin(number)
        roots[number if above is None else above.root] = None
    return [reading.tx.family(root) for root in roots]


def done(reading: Reading, number: int, first: int = 1, last: int | None = None) -> Iterator[Done]:
    """Yield what was done about effects in a stream, every entry on the way verified: none can be hidden.

    Raises CorruptError, SignatureError.
    """
    stream = reading.tx.name(number)
    end = last if last is not None else _end(reading, stream)
    before = reading.tx.entry(number, first - 1) if first > 1 else None
    expected = first
    for entry in reading.tx.entries(number, first, end):
        if entry.seq != expected:
            break
        reading.journal.verify(entry, before)
        if entry.kind is Kind.EFFECT:
            record = Effect.from_value((entry.detail or {}).get("effect"), stream.namespace)
            yield Done(number, entry, record)
        before, expected = entry, expected + 1
    if expected != end + 1:
        raise CorruptError(f"{stream}: entry {expected} is missing; run verify")


def histories(reading: Reading, family: Iterable[int]) -> list[list[Done]]:
    """Return all that was done about each effect of a family, in the order in which they were first mentioned."""
    found: dict[bytes, list[Done]] = {}
    every = [one for number in family for one in done(reading, number)]
    for one in sorted(every, key=lambda one: one.entry.leaf):
        found.setdefault(one.record.id.digest, []).append(one)
    return list(found.values())


def broken(history: list[Done]) -> str:
    """Say where a history contradicts itself, ``""`` if it does not: then entries were lost, or are not in order."""
    before = None
    for one in history:
        wrong = check_next(before, one.record, one.act)
        if wrong:
            return f"{one.entry.stream}, entry {one.entry.seq}: {wrong}; run verify"
        before = one.record
    return ""


def place(entry: Entry) -> dict[str, Any]:
    """Return where an entry stands and who made it, in the JSON model."""
    return {
        "lineage": entry.stream.name,
        "revision": entry.revision,
        "seq": entry.seq,
        "step": entry.step,
        "time": entry.time,
        "actor": entry.actor,
        "writer": short(entry.writer),
    }


def effect_value(asked: Asked, history: list[Done]) -> dict[str, Any]:
    """Return what is known of an effect, in the JSON model.

    ``begun`` is the entry that let the newest attempt go ahead (null: there was none), ``first`` and ``last`` are the
    first and the newest entry about it. ``forwarded`` is the idempotency key that each attempt was given.
    """
    newest = history[-1].record
    seen, doubt = liveness(asked, newest)
    begun = next((one.entry for one in reversed(history) if one.act == "begin"), None)
    return {
        "id": newest.id.digest.hex(),
        "name": newest.id.name,
        "key": newest.id.key,
        "keyed": newest.keyed,
        "occurrence": newest.id.occurrence,
        "scope": newest.id.scope,
        "lineage": newest.id.lineage,
        "policy": newest.policy.value,
        "state": newest.state.value,
        "in_doubt": doubt,
        "attempts": newest.attempt,
        "owner": None if newest.owner is None else {"process": newest.owner.pid, "liveness": seen.value},
        "begun": None if begun is None else place(begun),
        "first": place(history[0].entry),
        "last": place(history[-1].entry),
        "forwarded": newest.id.forwarded(asked.store.origin),
        "arguments_digest": newest.arguments,
        "result_digest": newest.result,
        "recorded": newest.recorded,
        "evidence": newest.evidence,
        "who": newest.who,
        "why": newest.why,
        "error": newest.error,
    }


def liveness(asked: Asked, record: Effect) -> tuple[Liveness, bool]:
    """Return what can be seen of an effect's owner, and whether the effect is in doubt."""
    effects = asked.store.lineage(record.id.lineage, namespace=asked.namespace)._effects  # noqa: SLF001
    return effects._liveness(record), effects.in_doubt(record)  # noqa: SLF001


def kept(reading: Reading, history: list[Done]) -> dict[str, Any]:
    """Return the arguments and the result of an effect as they were kept, in the JSON model; null where there is none.

    A value that cannot be read is left out, and ``unread`` says why.
    """
    newest, entry = history[-1].record, history[-1].entry
    here = Place(entry.stream.name, entry.seq)
    found: dict[str, Any] = {"arguments": None, "result": None}
    wanted = [("arguments", newest.argued or here, 0)]
    if newest.result is not None:
        wanted.append(("result", newest.resulted or here, -1))
    for name, where, at in wanted:
        stream = StreamId(entry.stream.namespace, StreamKind.LINEAGE, where.lineage)
        try:
            found[name] = _attached(reading, stream, where.seq)[at]
        except CheckpointStoreError as error:
            found.setdefault("unread", {})[name] = str(error)
    return found


def done_value(reading: Reading, one: Done) -> dict[str, Any]:
    """Return one entry about an effect: where, who, what, and under which glossary lock; in the JSON model."""
    record, entry = one.record, one.entry
    value = place(entry) | {
        "act": one.act,
        "attempt": record.attempt,
        "state": record.state.value,
        "owner": None if record.owner is None else record.owner.pid,
        "who": record.who,
        "why": record.why,
        "error": record.error,
        "glossary": look.glossary_at(reading, one.number, entry).digest.hex(),
    }
    if one.act == "late":
        # What a late attempt said is evidence: nothing else refers to it. One that failed left an entry without values.
        try:
            value["evidence"] = _attached(reading, entry.stream, entry.seq)[-1]
        except CorruptError:
            value["evidence"] = None
    return value


def _attached(reading: Reading, stream: StreamId, seq: int) -> list[Any]:
    return [in_json(values.decode(enc)) for enc in reading.states(stream).attached(seq)]


def _end(reading: Reading, stream: StreamId) -> int:
    found = reading.last(stream)
    return 0 if found is None else found[1].seq


# --- terms ------------------------------------------------------------------------------------------------------------


def term(asked: Asked, symbol: str, lineage: str, *, above: bool) -> list[dict[str, Any]]:
    """Return what was said about a symbol in a lineage, oldest first, in the JSON model.

    ``above``: also in those that it was forked from, up to where. Raises NotFoundError, CorruptError, SignatureError.
    """
    found: list[dict[str, Any]] = []
    at: tuple[str, int] | None = (lineage, asked.store.lineage(lineage, namespace=asked.namespace).head().revision)
    while at is not None:
        name, revision = at
        at = None
        for entry in facts.changes(asked, name, revision):
            found += reversed(_said(entry, symbol))
            if entry.kind is Kind.FORK and above:
                parent = (entry.detail or {})["parent"]
                at = parent["lineage"], parent["revision"]
    return found[::-1]


def _said(entry: Entry, symbol: str) -> list[dict[str, Any]]:
    """Return what one entry says about a symbol: at most one change, and an order to read it otherwise."""
    detail = entry.detail or {}
    change = Change.from_value(detail.get("glossary"))
    before = dict(change.before).get(symbol)
    found: list[dict[str, Any]] = []
    for binding in change.established:
        if binding.symbol == symbol:
            inherited = entry.kind is Kind.FORK
            found.append({"act": "inherited" if inherited else "established", "binding": binding.to_value()})
    for order in change.superseded:
        if order.binding.symbol == symbol:
            said = {"binding": order.binding.to_value(), "directive": order.directive.to_value()}
            found.append({"act": "superseded", **said, "before": before})
    for end in change.retired:
        if end.symbol == symbol:
            found.append({"act": "retired", "directive": end.directive.to_value(), "before": before})
    for one in map(Reread.from_value, detail.get("reread", [])):
        if one.symbol == symbol:
            found.append({"act": "reread", "directive": one.directive.to_value(), "before": one.then})
    usual = {"binding": None, "directive": None, "before": None, "lock": change.digest, "kind": entry.kind.name.lower()}
    usual["parent"] = detail.get("parent")
    return [place(entry) | usual | one for one in found]


def in_force(asked: Asked, lineage: str, symbol: str) -> dict[str, Any] | None:
    """Return the binding that a symbol has at a lineage's head, in the JSON model; None if it has none."""
    held: Glossary = asked.store.lineage(lineage, namespace=asked.namespace).glossary()
    found = held.get(symbol)
    return None if found is None else found.to_value()


def looking(asked: Asked) -> Reading:
    """Open a read transaction over the namespace that is asked about."""
    return Reading(asked.store._journal, asked.namespace)  # noqa: SLF001
