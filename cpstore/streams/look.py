"""Verified headers of a lineage: one revision, a page of history, the glossary at an entry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from cpstore.errors import CorruptError, NotFoundError
from cpstore.model.checkpoint import Checkpoint
from cpstore.model.entry import EPOCHS, Kind, link_of
from cpstore.model.fork import Citation
from cpstore.model.glossary import Change, Glossary, Reread
from cpstore.rules.glossary import apply, describe, in_force, inherit, moved

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cpstore.journal import Reading
    from cpstore.model.binding import Directive
    from cpstore.model.entry import Entry, StreamId

PAGE = 64
"""Headers of a history that are read at once."""


def find(reading: Reading, stream: StreamId, revision: int | None) -> tuple[int, Entry, Entry]:
    """Return (stream number, newest entry, the entry that made the revision), verified.

    Raises NotFoundError, saying which revisions there are.
    """
    found = reading.last(stream)
    if found is None:
        raise NotFoundError(
            f"lineage {stream.name!r} does not exist in namespace {stream.namespace!r}; commit to it first"
        )
    number, last = found
    wanted = last.revision if revision is None else revision
    if type(wanted) is not int or not 1 <= wanted <= last.revision:
        raise NotFoundError(f"lineage {stream.name!r} has the revisions 1 to {last.revision}, not {revision!r}")
    if wanted == last.revision and last.kind.makes_revision:
        return number, last, last
    entry = reading.tx.revision(number, wanted)
    if entry is None:
        raise CorruptError(f"{stream}: revision {wanted} is missing; run verify")
    return number, last, reading.checked(number, entry)


def header(reading: Reading, number: int, entry: Entry) -> Checkpoint:
    """Return a verified entry as it is shown."""
    before = reading.tx.entry(number, entry.seq - 1) if entry.seq > 1 else None
    return shown(reading, entry, before)


def shown(reading: Reading, entry: Entry, before: Entry | None) -> Checkpoint:
    """Return an entry as it is shown; ``before`` is the one it follows."""
    return Checkpoint.of(entry, reading.journal.digest(entry, link_of(before)))


def page(reading: Reading, number: int, stream: StreamId, top: int, count: int) -> list[Checkpoint]:
    """Return up to ``count`` headers from revision ``top`` down, each signature and link checked."""
    newest = reading.tx.revision(number, top)
    if newest is None:
        raise CorruptError(f"{stream}: revision {top} is missing; run verify")
    found: list[Checkpoint] = []
    later: Entry | None = None
    for entry in reading.tx.entries(number, 1, newest.seq, newest_first=True):
        if later is not None:
            if entry.seq != later.seq - 1:
                break
            _take(reading, later, entry, found)
        if len(found) == count:
            return found
        later = entry
    if later is None or later.seq != 1:
        raise CorruptError(f"{stream}: entries are missing before entry {later.seq if later else 0}; run verify")
    _take(reading, later, None, found)
    return found


def _take(reading: Reading, entry: Entry, before: Entry | None, found: list[Checkpoint]) -> None:
    reading.journal.verify(entry, before)
    if entry.kind.makes_revision:
        found.append(shown(reading, entry, before))


def glossary_at(reading: Reading, number: int, entry: Entry) -> Glossary:
    """Fold the chain of glossary changes that ends at an entry: what holds for commits of its step."""
    chain = _changes(reading, number, entry)
    held = Glossary(())
    for changed, change in reversed(chain):
        held = apply(inherit(held) if changed.kind in EPOCHS else held, change, changed.step)
    return in_force(held, entry.step)


def orders(reading: Reading, number: int, entry: Entry) -> frozenset[tuple[str, Directive]]:
    """Return the orders that a lineage has carried out up to an entry, each with its symbol."""
    found: set[tuple[str, Directive]] = set()
    for changed, change in _changes(reading, number, entry):
        found |= {(order.binding.symbol, order.directive) for order in change.superseded}
        found |= {(end.symbol, end.directive) for end in change.retired}
        rereads = [Reread.from_value(value) for value in (changed.detail or {}).get("reread", [])]
        found |= {(one.symbol, one.directive) for one in rereads}
    return frozenset(found)


def _changes(reading: Reading, number: int, entry: Entry) -> list[tuple[Entry, Change]]:
    """Return the entries that changed the glossary up to an entry, newest first."""
    chain: list[tuple[Entry, Change]] = []
    seq = entry.term
    while seq:
        changed = entry if entry.seq == seq else reading.entry(number, seq)
        detail = changed.detail or {}
        if "glossary" not in detail or (chain and seq >= chain[-1][0].seq):
            raise CorruptError(f"{entry.stream}: entry {seq} is said to change the glossary, but does not; run verify")
        chain.append((changed, Change.from_value(detail["glossary"])))
        seq = detail.get("previousTerm", 0)
    return chain


def landed(reading: Reading, number: int, key: str) -> Checkpoint | None:
    """Return the checkpoint that was committed under an idempotency key, None if there is none.

    The index is not believed: the entry itself has to carry the key. Raises CorruptError.
    """
    seq = reading.tx.landed(number, key)
    if seq is None:
        return None
    entry = reading.entry(number, seq)
    if (entry.detail or {}).get("key", {}).get("name") != key:
        raise CorruptError(f"{entry.stream}: entry {seq} is filed under key {key!r}, but does not carry it; run verify")
    return header(reading, number, entry)


@attrs.frozen
class Outdated:
    """A definition that ``lineage`` has changed since this one was forked from it at ``revision`` (of ``lineage``).

    ``here`` describes what is locked here, ``there`` what is in force there, ``""`` where nothing is any more.
    """

    symbol: str
    here: str
    there: str
    lineage: str
    revision: int


def outdated(reading: Reading, stream: StreamId) -> tuple[Outdated, ...]:
    """Return the definitions of a lineage that those above it have changed since the forks that lead to it."""
    number, last, _ = find(reading, stream, None)
    mine = glossary_at(reading, number, last)
    found: dict[str, Outdated] = {}
    above = reading.tx.kin(number)
    while above is not None:
        cited = Citation.from_value((reading.entry(number, 1).detail or {}).get("parent"))
        _, newest, then = find(reading, reading.tx.name(above.parent), cited.revision)
        now = glossary_at(reading, above.parent, newest)
        for symbol, _, there in moved(glossary_at(reading, above.parent, then), now):
            held = mine.get(symbol)
            if held is not None and symbol not in found and moved(Glossary((held,)), now):
                found[symbol] = Outdated(symbol, describe(held), there, cited.lineage, cited.revision)
        number, above = above.parent, reading.tx.kin(above.parent)
    return tuple(found[symbol] for symbol in sorted(found))


def epochs(reading: Reading, number: int, entry: Entry) -> Iterator[Entry]:
    """Yield the restores and compactions of a lineage up to an entry, newest first, each verified."""
    seq = entry.epoch
    while seq:
        found = entry if entry.seq == seq else reading.entry(number, seq)
        yield found
        before = (found.detail or {}).get("previousEpoch", 0)
        if found.kind not in EPOCHS or type(before) is not int or before >= seq:
            raise CorruptError(f"{entry.stream}: entry {seq} is said to restore or compact, but does not; run verify")
        seq = before


def watermark(entry: Entry) -> object:
    """Return how much of the effect history a revision has seen: its own seq; of a restored one, its target's."""
    if entry.kind is not Kind.RESTORE:
        return entry.seq
    restore: Any = (entry.detail or {}).get("restore")
    return restore.get("watermark") if isinstance(restore, dict) else None


def voided(reading: Reading, number: int, last: Entry) -> int:
    """Return the revision that a lineage's newest restore or compaction made, 0 if there is none."""
    if not last.epoch:
        return 0
    return (last if last.seq == last.epoch else reading.entry(number, last.epoch)).revision
