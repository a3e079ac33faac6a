"""Compaction: a smaller state in the place of what was said, and everybody who relied on that is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from cpstore.digest import digest, leaf_hash, root_of
from cpstore.errors import InvalidStateError, NotFoundError
from cpstore.lineage.commits import Commit
from cpstore.lineage.effects import Effects
from cpstore.model.compaction import Compaction, Covered
from cpstore.model.effect import EffectId
from cpstore.model.entry import Kind
from cpstore.model.glossary import Change
from cpstore.model.ledger import member_id
from cpstore.rules import compaction as rules
from cpstore.rules import glossary as glossary_rules
from cpstore.rules import ledger as ledger_rules
from cpstore.rules import verbatim
from cpstore.snapshot import pointer, values
from cpstore.streams import look, telling
from cpstore.streams.act import Plan
from cpstore.streams.board import Board, acked, joined, lock_of, value_digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cpstore.journal import Reading
    from cpstore.lineage.line import Line
    from cpstore.lineage.request import Request
    from cpstore.model.compaction import Claim, EffectClaim, KeyClaim
    from cpstore.model.entry import Entry
    from cpstore.model.glossary import Glossary
    from cpstore.model.ledger import Held, Member


@attrs.frozen
class Summary:
    """What a caller says of a compaction beside the state itself."""

    path: str
    claims: tuple[Claim, ...] = ()
    covers: tuple[Covered, ...] | None = None
    kept: Mapping[Any, str] = attrs.field(factory=dict)
    tokens_before: int | None = None
    tokens_after: int | None = None

    @classmethod
    def of(
        cls,
        path: str,
        claims: Iterable[Claim],
        covers: Iterable[Covered] | None,
        kept: Mapping[Any, str] | None,
        *tokens: int | None,
    ) -> Summary:
        """Return what a caller passed. Raises InvalidStateError for arguments of another type."""
        for name, given in (("claims", claims), ("covers", covers)):
            if given is not None and not isinstance(given, Iterable):
                raise InvalidStateError(f"{name} is a list of records, not {type(given).__name__}")
        if kept is not None and not isinstance(kept, Mapping):
            raise InvalidStateError(f"kept is a mapping from key to path, not {type(kept).__name__}")
        said = None if covers is None else tuple(covers)
        return cls(path, tuple(claims), said, dict(kept or {}), *tokens)


class Compact(Commit):
    """One compaction on its way."""

    kind = Kind.COMPACTION
    durable = True

    def __init__(self, line: Line, request: Request, state: dict[str, Any], summary: Summary) -> None:
        super().__init__(line, request, lambda writer: writer.state(state, line.max_bytes))
        self._state = state
        self._summary = summary

    def _ready(self, reading: Reading) -> bool:
        if self._request.step is None:
            self._line.opened.refresh(reading)
            last = self._line.opened.last
            self._request = attrs.evolve(self._request, step=0 if last is None else last.step)
        return super()._ready(reading)

    def _decide(self, reading: Reading) -> Plan:
        line, opened = self._line, self._line.opened
        self._after = None
        if not self._ready(reading):
            return Plan()
        if opened.last is None or opened.number is None:
            raise NotFoundError(f"lineage {line.id!r} does not exist yet: there is nothing to compact")
        held = glossary_rules.inherit(line.held(reading))  # StepLocal bindings never cross a compaction
        change = self._advance(reading, held)
        if change is None and opened.last.term:
            change = Change((), (), (), held.digest.hex())
        detail = self._detail(held, change)
        found = telling.boards(reading, opened.last)
        record, kept = self._record(reading, opened.last, self._after or held, found)
        detail["compaction"] = record.to_value()
        if joined(opened.last):
            detail["ledgers"] = acked(reading, opened.last, line.namespace, member_id("", line.id))
        steps = [self._step(self._add, detail, term=change is not None, epoch=True)]
        lock = lock_of(self._after or held)
        steps += telling.told(
            found,
            lambda board, member: attrs.evolve(
                ledger_rules.demote(member, board.position, "compaction", kept.get(board.name, {})), lock=lock
            ),
            kind="compacted",
            revision=line.head + 1,
            text=f"{line.id} compacted revisions {record.first} to {record.last} into {record.path}",
            detail={
                "covers": [covered.to_value() for covered in record.covers[:20]],
                "level": record.level,
                "tokensAfter": record.tokens_after,
                "tokensBefore": record.tokens_before,
            },
        )
        return Plan(tuple(steps))

    def _record(
        self, reading: Reading, last: Entry, glossary: Glossary, found: Sequence[tuple[Board, Member]]
    ) -> tuple[Compaction, dict[str, dict[str, str]]]:
        """Compute what is covered, and let the rules compare it and the summary with what is known."""
        line, summary = self._line, self._summary
        states = reading.states(line.stream)
        before = states.value(states.tree(last.seq))
        value = _at(self._state, summary.path)
        covers = tuple(differences("", before, self._state))
        rules.check_covers(summary.covers, covers)
        size = len(values.encode(value))
        text = rules.check_summary(value, size, sum(part.size for part in covers), summary.path)
        named = value_digest(value)
        if _find(before, summary.path) == named:
            raise InvalidStateError("the summary was there before", summary.path, "point summary at the new one")
        verbatim.check(text, glossary, f"{line.stream}@{last.revision + 1}")
        unbacked = rules.check_claims(
            summary.claims,
            terms={binding.symbol: binding for binding in glossary},
            effects=lambda claim: self._effect(reading, claim),
            keys=lambda claim: self._key(reading, claim),
        )
        by_name = {board.name: board for board, _ in found}
        kept = rules.check_kept(
            summary.kept,
            {board.name: member for board, member in found},
            lambda ledger, key: by_name[ledger].held(key),
            lambda path: _find(self._state, path),
        )
        earlier = compactions(reading, last, line)
        first, until = rules.span(last.revision, earlier[0][0].revision if earlier else None)
        record = Compaction(
            first=first,
            last=until,
            covers=covers,
            path=summary.path,
            summary=named,
            level=rules.level(_levels(before, covers, [record for _, record in earlier])),
            tokens_before=summary.tokens_before,
            tokens_after=summary.tokens_after,
            claims=summary.claims,
            unbacked=unbacked,
            kept=tuple(sorted((ledger, key, path) for ledger, keys in kept.items() for key, path in keys.items())),
            previous=earlier[0][0].seq if earlier else 0,
        )
        wrong = record.fault()
        if wrong:
            raise InvalidStateError(f"the compaction cannot be recorded: {wrong}")
        return record, kept

    def _effect(self, reading: Reading, claim: EffectClaim) -> str | None:
        _, root = self._line.opened.family(reading)
        asked = EffectId(self._line.namespace, "family", root, claim.name, claim.key, claim.occurrence)
        row = reading.tx.effect(asked.digest)
        return None if row is None else Effects(self._line).read(reading, row).record.state.value

    def _key(self, reading: Reading, claim: KeyClaim) -> Held | None:
        return Board.of(reading, self._line.namespace, claim.ledger).held(claim.key)


def compactions(reading: Reading, last: Entry, line: Line) -> list[tuple[Entry, Compaction]]:
    """Return a lineage's compactions up to an entry, newest first."""
    number = line.opened.number
    if number is None:
        return []
    entries = [entry for entry in look.epochs(reading, number, last) if entry.kind is Kind.COMPACTION]
    return [(entry, Compaction.from_value((entry.detail or {}).get("compaction"))) for entry in entries]


def expand(line: Line, revision: int | None) -> dict[str, Any]:
    """Return what a compaction covers, by the path of each part, out of the revision before it."""
    with line.looking() as reading:
        number, _, entry = look.find(reading, line.stream, revision)
        if revision is None:
            entry = next((one for one in look.epochs(reading, number, entry) if one.kind is Kind.COMPACTION), entry)
        if entry.kind is not Kind.COMPACTION:
            what = "has not been compacted" if revision is None else f"revision {revision} is no compaction"
            raise NotFoundError(f"lineage {line.id!r}: {what}")
        record = Compaction.from_value((entry.detail or {}).get("compaction"))
        _, _, before = look.find(reading, line.stream, record.last)
        states = reading.states(line.stream)
        state = states.value(states.tree(before.seq))
    found: dict[str, Any] = {}
    for part in record.covers:
        value = _at(state, part.path)
        if part.start is None:
            found[part.path] = value
        else:
            found.setdefault(part.path, []).extend(value[part.start : part.stop])
    return found


def differences(path: str, old: Any, new: Any) -> Iterator[Covered]:
    """Yield what a value holds and another one at its place does not: ranges of list items, and whole values."""
    if type(old) is dict and type(new) is dict:
        for key, value in old.items():
            below = path + pointer.spell((key,))
            if key in new:
                yield from differences(below, value, new[key])
            else:
                yield _whole(below, value)
    elif type(old) is list and type(new) is list:
        yield from _ranges(path, old, new)
    elif values.canonical(old) != values.canonical(new):
        yield _whole(path, old)


def _ranges(path: str, old: list[Any], new: list[Any]) -> Iterator[Covered]:
    """Yield the ranges of items that went. Of equal items the later ones are taken to have stayed."""
    left: dict[bytes, int] = {}
    for item in new:
        enc = values.canonical(item)
        left[enc] = left.get(enc, 0) + 1
    encs = [values.canonical(item) for item in old]
    gone: list[int] = []
    for at in range(len(encs) - 1, -1, -1):
        if left.get(encs[at], 0):
            left[encs[at]] -= 1
        else:
            gone.append(at)
    gone.reverse()
    at = 0
    while at < len(gone):
        end = at
        while end + 1 < len(gone) and gone[end + 1] == gone[end] + 1:
            end += 1
        start, stop = gone[at], gone[end] + 1
        part = encs[start:stop]
        yield Covered(path, start, stop, root_of(map(leaf_hash, part)).hex(), sum(map(len, part)))
        at = end + 1


def _whole(path: str, value: Any) -> Covered:
    enc = values.canonical(value)
    return Covered(path, None, None, digest(enc).hex(), len(enc))


def _levels(before: dict[str, Any], covers: tuple[Covered, ...], earlier: list[Compaction]) -> Iterator[int]:
    """Yield the levels of the earlier summaries that are covered, in items or in a value that went whole."""
    levels = {record.summary: record.level for record in earlier}
    if not levels:
        return
    for part in covers:
        if part.start is None:
            inside = [record for record in earlier if record.path.startswith(part.path + "/")]
            yield from (record.level for record in inside if _find(before, record.path) == record.summary)
        value = _at(before, part.path)
        for item in [value] if part.start is None else value[part.start : part.stop]:
            found = levels.get(value_digest(item))
            if found is not None:
                yield found


def _at(state: Any, path: str) -> Any:
    """Return the value at a path of a plain state. Raises InvalidStateError, naming the path."""
    value = state
    for token in pointer.parse(path):
        if type(value) is dict and token in value:
            value = value[token]
        elif type(value) is list:
            value = value[pointer.index(token, len(value), path)]
        else:
            raise InvalidStateError("the state has nothing there", path)
    return value


def _find(state: Any, path: str) -> str | None:
    try:
        return value_digest(_at(state, path))
    except InvalidStateError:
        return None
