"""What lies between an older state of a lineage and now: effects, forks, restores and compactions in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cpstore.errors import CorruptError
from cpstore.model.entry import Kind
from cpstore.rules.restore import readable
from cpstore.streams import look

if TYPE_CHECKING:
    from cpstore.journal import Reading
    from cpstore.model.entry import Entry
    from cpstore.streams.opened import OpenStream

ALL = (1 << 32) - 1
"""A seq that no stream has reached."""


def family(reading: Reading, opened: OpenStream) -> tuple[int, str]:
    """Return number and name of the first lineage of a family, as the signed entries of its forks have it.

    Raises CorruptError where the index of forks says otherwise: an effect would be taken for one never begun.
    """
    if opened.root is None and opened.number is not None:
        check_kin(reading, opened.number)
    return opened.family(reading)


def check_kin(reading: Reading, number: int) -> None:
    """Compare where a lineage and those above it come from with their first entries. Raises CorruptError."""
    below, filed = number, reading.tx.kin(number)
    while True:
        first, kin = reading.entry(below, 1), reading.tx.kin(below)
        cited: Any = (first.detail or {}).get("parent") if first.kind is Kind.FORK else None
        good = (kin is None) == (cited is None)
        if kin is None:
            good = good and (filed is None or filed.root == below)
        elif good:
            above = reading.tx.name(kin.parent)
            named = (first.stream.namespace, first.stream.kind, cited.get("lineage"))
            good = named == (above.namespace, above.kind, above.name) and kin.leaf == first.leaf and kin.parent != below
        if not good or (filed and kin and kin.root != filed.root):
            raise CorruptError(f"{first.stream}: the index of forks is not that of the entries; run verify")
        if kin is None:
            return
        below = kin.parent


def intervals(reading: Reading, opened: OpenStream) -> list[tuple[int, int, int]]:
    """Return (stream, after seq, up to seq) of all that a lineage has stepped back over, by restores and by forking."""
    if opened.last is None or opened.number is None:
        return []
    found: list[tuple[int, int, int]] = []
    number, entry = opened.number, opened.last
    while True:
        for epoch in look.epochs(reading, number, entry):
            if epoch.kind is Kind.RESTORE:
                seen = look.watermark(epoch)
                since = seen if type(seen) is int else 0
                found += _crossed(reading, number, since, epoch)
        above = reading.tx.kin(number)
        if above is None:
            return found
        first = reading.entry(number, 1)
        number, entry = above.parent, _cited(reading, above.parent, first)
        seen = look.watermark(entry)
        before = (first.detail or {}).get("crossed")
        if type(before) is int and type(seen) is int:
            found.append((number, seen, before))
            found += [(child, 0, ALL) for child in reading.tx.descendants(number, entry.leaf, first.leaf - 1)]


def _crossed(reading: Reading, number: int, since: int, restore: Entry) -> list[tuple[int, int, int]]:
    target = reading.tx.entry(number, since)
    leaf = -1 if target is None else target.leaf
    children = reading.tx.descendants(number, leaf, restore.leaf)
    return [(number, since, restore.seq - 1), *((child, 0, ALL) for child in children)]


def _cited(reading: Reading, parent: int, fork: Entry) -> Entry:
    cited: Any = (fork.detail or {}).get("parent")
    entry = reading.tx.revision(parent, cited["revision"]) if isinstance(cited, dict) else None
    if entry is None:
        raise CorruptError(f"{fork.stream}: the revision it was forked from is missing; run verify")
    return reading.checked(parent, entry)


def streams(reading: Reading, number: int, entry: Entry, last: Entry) -> list[tuple[int, int, int]]:
    """Return (stream, after seq, up to seq) of what going back from ``last`` to ``entry`` steps over.

    Raises nothing for a watermark that cannot be read: the caller asks ``readable`` first.
    """
    seen = look.watermark(entry)
    since = seen if type(seen) is int and readable(seen, last.seq) else 0
    target = entry if since == entry.seq else reading.tx.entry(number, since)
    leaf = -1 if target is None else target.leaf
    children = reading.tx.descendants(number, leaf, ALL)
    return [(number, since, ALL), *((child, 0, ALL) for child in children)]


def lossy(reading: Reading, number: int, entry: Entry) -> bool:
    """Whether a compaction at or before an entry covers content of the lineage that is not held any more."""
    compacted = [epoch for epoch in look.epochs(reading, number, entry) if epoch.kind is Kind.COMPACTION]
    if not compacted:
        return False
    newest = max(epoch.seq for epoch in compacted)
    end = 1
    for head in reading.tx.segments(number, 0):
        if head.first != end:
            return True
        end = head.end
    tail = reading.tx.tail(number)
    return bool(end < newest and (not tail or tail[0][0] != end))
