"""What differs between two checkpoints: paths of the state, the glossary, and effects in between."""

from __future__ import annotations

import argparse  # noqa: TC003
from typing import TYPE_CHECKING, Any

from cpstore.inspect import facts, trail
from cpstore.inspect.effects import named, when
from cpstore.inspect.exits import DIFFERS, GOOD
from cpstore.inspect.render import brief, in_json, revealed, say, table, visible
from cpstore.model.entry import StreamId, StreamKind
from cpstore.snapshot import pointer, values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cpstore.inspect.open import Asked
    from cpstore.model.checkpoint import Checkpoint

Path = tuple[str | int, ...]
Change = tuple[str, Path, Any, Any]


def add(parser: argparse.ArgumentParser) -> None:
    """Define the arguments."""
    parser.add_argument("old", metavar="LINEAGE@REV", help="the one before")
    parser.add_argument("new", metavar="LINEAGE@REV", help="the one after")


def answer(asked: Asked) -> tuple[dict[str, Any], int]:
    """Return the differences, both sides verified; the code says whether there are any."""
    old, new = (facts.checkpoint_at(asked, text) for text in (asked.args.old, asked.args.new))
    handles = [asked.store.lineage(found.lineage, namespace=asked.namespace) for found in (old, new)]
    state = []
    if old.state != new.state:
        before, after = (handle.load(found.revision) for handle, found in zip(handles, (old, new), strict=True))
        state = [_value(change) for change in differences(before, after)]
    terms = _terms(*(_held(handle.glossary(found.revision)) for handle, found in zip(handles, (old, new), strict=True)))
    effects = _between(asked, old, new)
    value = {"old": facts.header(old), "new": facts.header(new), "state": state, "glossary": terms, "effects": effects}
    return value, DIFFERS if state or terms or effects else GOOD


def show(value: dict[str, Any]) -> None:
    """Print it."""
    names = [f"{visible(found['lineage'])}@{found['revision']}" for found in (value["old"], value["new"])]
    if not value["state"] and not value["glossary"]:
        say(f"{names[0]} and {names[1]} are equal, state and glossary")
    else:
        say(f"{names[0]} -> {names[1]}", "")
    if value["state"]:
        table(("", "path", "before", "after"), [_row(change, revealed(change["path"])) for change in value["state"]])
    if value["glossary"]:
        say(*([""] if value["state"] else []), "glossary")
        rows = [_row(change, visible(change["symbol"])) for change in value["glossary"]]
        table(("", "symbol", "before", "after"), rows)
    if value["effects"]:
        say("", "done outside the store in between")
        table(("entry", "effect", "what", "then it was", "when"), map(_effect, value["effects"]), right=("entry",))


def differences(old: Any, new: Any, at: Path = ()) -> Iterator[Change]:
    """Yield (``added``/``removed``/``changed``, path, before, after), type by type: 1, 1.0 and True are three values.

    In lists equal items at both ends are left out first, so an insertion is one change; an added item has its path in
    the new state, a removed one in the old. The order of keys in a mapping does not count.
    """
    if type(old) is dict and type(new) is dict:
        for key, child in old.items():
            if key in new:
                yield from differences(child, new[key], (*at, key))
            else:
                yield "removed", (*at, key), child, None
        yield from (("added", (*at, key), None, child) for key, child in new.items() if key not in old)
    elif type(old) is list and type(new) is list:
        yield from _in_lists(old, new, at)
    elif not _same(old, new):
        yield "changed", at, old, new


def _in_lists(old: list[Any], new: list[Any], at: Path) -> Iterator[Change]:
    shorter = min(len(old), len(new))
    start = next((n for n in range(shorter) if not _same(old[n], new[n])), shorter)
    end = 0
    if len(old) != len(new):
        while end < shorter - start and _same(old[-1 - end], new[-1 - end]):
            end += 1
    left, right = old[start : len(old) - end], new[start : len(new) - end]
    for n, (before, after) in enumerate(zip(left, right, strict=False), start):
        yield from differences(before, after, (*at, n))
    both = min(len(left), len(right))
    yield from (("removed", (*at, n), item, None) for n, item in enumerate(left[both:], start + both))
    yield from (("added", (*at, n), None, item) for n, item in enumerate(right[both:], start + both))


def _same(old: Any, new: Any) -> bool:
    if type(old) is not type(new):
        return False
    if type(old) is dict:
        return old.keys() == new.keys() and all(_same(child, new[key]) for key, child in old.items())
    if type(old) is list:
        return len(old) == len(new) and all(map(_same, old, new))
    return old is new or values.bytes_of(old) == values.bytes_of(new)


def _value(change: Change) -> dict[str, Any]:
    kind, path, before, after = change
    value: dict[str, Any] = {"change": kind, "path": pointer.spell(path)}
    if kind != "added":
        value["before"] = in_json(before)
    if kind != "removed":
        value["after"] = in_json(after)
    return value


def _held(glossary: Any) -> dict[str, Any]:
    return {binding.symbol: binding.to_value() for binding in glossary}


def _terms(old: dict[str, Any], new: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for symbol in sorted(old.keys() | new.keys()):
        before, after = old.get(symbol), new.get(symbol)
        if before != after:
            kind = "added" if before is None else "removed" if after is None else "changed"
            sides = {key: side for key, side in (("before", before), ("after", after)) if side is not None}
            found.append({"change": kind, "symbol": symbol} | sides)
    return found


def _row(change: dict[str, Any], name: str) -> tuple[str, ...]:
    sign = {"added": "+", "removed": "-", "changed": "~"}[change["change"]]
    before, after = (_shown(change[side]) if side in change else "" for side in ("before", "after"))
    return sign, name, before, after


def _shown(value: Any) -> str:
    if isinstance(value, dict) and {"symbol", "definition", "authority"} <= value.keys():
        parts = [value["definition"], value["constraint"], value["scope"], value["authority"]]
        parts.append(f"step {value['established_at_step']}")
        return ", ".join(visible(part) for part in parts if part)
    return brief(value)


def _between(asked: Asked, old: Checkpoint, new: Checkpoint) -> list[dict[str, Any]]:
    """Return the entries about effects that lie between two revisions of one lineage, oldest first."""
    if old.lineage != new.lineage:
        return []
    first, last = sorted((old.seq, new.seq))
    with trail.looking(asked) as reading:
        number = reading.tx.stream(StreamId(asked.namespace, StreamKind.LINEAGE, old.lineage))
        found = [] if number is None else list(trail.done(reading, number, first + 1, last))
    return [
        trail.place(one.entry)
        | {
            "act": one.act,
            "id": one.record.id.digest.hex(),
            "name": one.record.id.name,
            "key": one.record.id.key,
            "keyed": one.record.keyed,
            "occurrence": one.record.id.occurrence,
            "attempt": one.record.attempt,
            "state": one.record.state.value,
        }
        for one in found
    ]


def _effect(one: dict[str, Any]) -> tuple[str, ...]:
    return str(one["seq"]), named(one), f"{one['act']}, attempt {one['attempt']}", one["state"], when(one)
