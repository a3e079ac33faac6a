"""The chain of entries behind one fact: who settled this term, was that mail sent."""

from __future__ import annotations

import argparse  # noqa: TC003
from typing import TYPE_CHECKING, Any

from cpstore.errors import NotFoundError
from cpstore.inspect import effects, facts, trail
from cpstore.inspect.exits import GOOD
from cpstore.inspect.render import brief, say, table, visible

if TYPE_CHECKING:
    from cpstore.inspect.open import Asked

IDENTITY = 8
"""Hex digits of an effect's identity that name it."""


def add(parser: argparse.ArgumentParser) -> None:
    """Define the arguments."""
    what = "a symbol of a glossary, or an effect: its name, its key, or how its identity begins"
    parser.add_argument("subject", metavar="SYMBOL-or-EFFECT", help=what)
    parser.add_argument("lineage", nargs="?", metavar="LINEAGE", help="only there (default: all of the namespace)")


def answer(asked: Asked) -> tuple[dict[str, Any], int]:
    """Return the histories of all terms and effects that are meant. Raises NotFoundError if there are none."""
    subject, lineage = asked.args.subject, asked.args.lineage
    names = [lineage] if lineage is not None else [name for _, name in facts.names(asked.store, asked.namespace)]
    terms = []
    for name in names:
        said = trail.term(asked, subject, name, above=lineage is not None)
        if said:
            terms.append({"lineage": name, "in_force": trail.in_force(asked, name, subject), "entries": said})
    found = []
    with trail.looking(asked) as reading:
        for family in trail.families(asked, reading, lineage):
            for history in trail.histories(reading, family):
                if _meant(history[-1].record.id, subject):
                    entries = [trail.done_value(reading, one) for one in history]
                    value = trail.effect_value(asked, history) | trail.kept(reading, history)
                    found.append(value | {"broken": trail.broken(history), "entries": entries})
    if not terms and not found:
        where = f"lineage {lineage!r}" if lineage is not None else f"namespace {asked.namespace!r}"
        raise NotFoundError(f"{where} has no term and no effect {subject!r}; try inspect glossary, inspect effects")
    return {"subject": subject, "namespace": asked.namespace, "terms": terms, "effects": found}, GOOD


def show(value: dict[str, Any]) -> None:
    """Print it."""
    parts = [(_term, one) for one in value["terms"]] + [(_effect, one) for one in value["effects"]]
    for at, (printed, one) in enumerate(parts):
        say(*([""] if at else []))
        printed(value["subject"], one)


def _meant(identity: Any, subject: str) -> bool:
    begins = len(subject) >= IDENTITY and identity.digest.hex().startswith(subject)
    return begins or subject in (identity.name, identity.key)


def _term(symbol: str, one: dict[str, Any]) -> None:
    held = one["in_force"]
    now = "not in force" if held is None else f"{_means(held)} ({held['scope']}, {held['authority']})"
    say(f"term {visible(symbol)} in {visible(one['lineage'])}: {now}", "")
    table(("where", "what", "means", "on whose order"), [_term_row(entry) for entry in one["entries"]])


def _term_row(entry: dict[str, Any]) -> tuple[str, ...]:
    act = entry["act"] if entry["kind"] == "checkpoint" else f"{entry['act']} ({entry['kind']})"
    if entry["act"] == "inherited":
        act = f"inherited from {visible(entry['parent']['lineage'])}@{entry['parent']['revision']}"
    order = entry["directive"]
    said = "" if order is None else f"{order['authority']} ({visible(order['reference'])}): {visible(order['text'])}"
    means = "" if entry["binding"] is None else _means(entry["binding"])
    at = f"{effects.where(entry)}, step {entry['step']}\n{effects.when(entry)}\nkey {entry['writer']}"
    return at, act, means, said


def _means(binding: dict[str, Any]) -> str:
    limit = f" [{visible(binding['constraint'])}]" if binding["constraint"] else ""
    return visible(binding["definition"]) + limit


def _effect(subject: str, one: dict[str, Any]) -> None:
    del subject
    effects.detailed(one)
    say("")
    table(("where", "what", "then it was", "said"), [_effect_row(entry) for entry in one["entries"]])
    if one["broken"]:
        say("", f"NOT WHOLE: {visible(one['broken'])}")


def _effect_row(entry: dict[str, Any]) -> tuple[str, ...]:
    owner = f"\nprocess {entry['owner']}" if entry["act"] == "begin" else ""
    said = []
    if entry["who"]:
        said.append(f"{visible(entry['who'])}: {visible(entry['why'])}")
    if entry["error"] and entry["act"] in ("fail", "release"):  # later entries carry it on
        said.append(visible(entry["error"]))
    if entry["act"] == "late":
        said.append(f"late, as evidence: {brief(entry['evidence'], effects.SHOWN)}")
    at = f"{effects.where(entry)}, step {entry['step']}\n{effects.when(entry)}\nkey {entry['writer']}"
    state = f"{entry['state']}\nlock {entry['glossary'][:16]}"
    what = "late" if entry["act"] == "late" else f"{entry['act']}, attempt {entry['attempt']}{owner}"
    return at, what, state, "\n".join(said)
