"""The bindings in force, who settled each, and which a lineage above has changed since the fork."""

from __future__ import annotations

import argparse  # noqa: TC003
from typing import TYPE_CHECKING, Any

import attrs

from cpstore.inspect import facts
from cpstore.inspect.exits import GOOD
from cpstore.inspect.render import moment, say, table, visible

if TYPE_CHECKING:
    from cpstore.inspect.open import Asked


def add(parser: argparse.ArgumentParser) -> None:
    """Define the arguments."""
    parser.add_argument("at", metavar="LINEAGE[@REV]", help="which checkpoint (default: the head)")


def answer(asked: Asked) -> tuple[dict[str, Any], int]:
    """Return the glossary with, for each binding, the revision that settled it and the directive behind it."""
    checkpoint = facts.checkpoint_at(asked, asked.args.at)
    handle = asked.store.lineage(checkpoint.lineage, namespace=asked.namespace)
    held = handle.glossary(checkpoint.revision)
    settled = facts.settlements(asked, checkpoint.lineage, checkpoint.revision)
    bindings = []
    for binding in held:
        place = settled.get(binding.symbol)
        bindings.append(binding.to_value() | {"settled": None if place is None else _settled(place)})
    outdated = [attrs.asdict(one) for one in handle.outdated()] if checkpoint.revision == handle.head().revision else []
    value = {"checkpoint": facts.header(checkpoint), "digest": held.digest.hex(), "bindings": bindings}
    return value | {"outdated": outdated}, GOOD


def show(value: dict[str, Any]) -> None:
    """Print it."""
    found = value["checkpoint"]
    say(f"{visible(found['lineage'])}@{found['revision']}: lock {value['digest']}")
    if not value["bindings"]:
        say("no bindings in force")
        return
    say("")
    table(("symbol", "means", "scope", "authority", "settled"), [_row(binding) for binding in value["bindings"]])
    if value["outdated"]:
        say("", "outdated: changed above since the fork; it holds here until this lineage records the change itself")
        table(("symbol", "here", "there", "forked from"), [_moved(one) for one in value["outdated"]])


def _settled(place: facts.Settled) -> dict[str, Any]:
    return {
        "lineage": place.lineage,
        "revision": place.revision,
        "time": place.time,
        "actor": place.actor,
        "directive": None if place.directive is None else place.directive.to_value(),
    }


def _row(binding: dict[str, Any]) -> tuple[str, ...]:
    means = visible(binding["definition"])
    if binding["constraint"]:
        means += f"\n[{visible(binding['constraint'])}]"
    if binding["verbatim"]:
        means += "\n[verbatim]"
    return visible(binding["symbol"]), means, binding["scope"], binding["authority"], _ground(binding)


def _ground(binding: dict[str, Any]) -> str:
    place = binding["settled"]
    if place is None:
        return "?"
    lines = [
        f"{visible(place['lineage'])}@{place['revision']}, step {binding['established_at_step']}",
        f"{moment(place['time'])} by {visible(place['actor'])}",
    ]
    order = place["directive"]
    if order is not None:
        lines.append(f"ordered by {order['authority']} ({visible(order['reference'])}): {visible(order['text'])}")
    return "\n".join(lines)


def _moved(one: dict[str, Any]) -> tuple[str, ...]:
    there = visible(one["there"]) or "retired"
    return visible(one["symbol"]), visible(one["here"]), there, f"{visible(one['lineage'])}@{one['revision']}"
