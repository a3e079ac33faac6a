"""What was done outside the store: each effect, its policy and state, and what is in doubt."""

from __future__ import annotations

import argparse  # noqa: TC003
from typing import TYPE_CHECKING, Any

from cpstore.errors import NotFoundError
from cpstore.inspect import trail
from cpstore.inspect.exits import GOOD
from cpstore.inspect.render import brief, fields, moment, say, table, visible

if TYPE_CHECKING:
    from cpstore.inspect.open import Asked

SHOWN = 400
"""Characters of a value that are shown to people; ``--json`` has it whole."""


def add(parser: argparse.ArgumentParser) -> None:
    """Define the arguments."""
    parser.add_argument("lineage", nargs="?", metavar="LINEAGE", help="only its family (default: all of the namespace)")
    parser.add_argument("--in-doubt", action="store_true", help="only those nobody knows the outcome of")
    parser.add_argument("--name", metavar="NAME", help="only this name, with arguments and results")


def answer(asked: Asked) -> tuple[dict[str, Any], int]:
    """Return the effects, read out of the signed entries. Raises NotFoundError, CorruptError, SignatureError."""
    args = asked.args
    found = []
    with trail.looking(asked) as reading:
        for family in trail.families(asked, reading, args.lineage):
            for history in trail.histories(reading, family):
                if args.name is not None and history[-1].record.id.name != args.name:
                    continue
                value = trail.effect_value(asked, history)
                if args.in_doubt and not value["in_doubt"]:
                    continue
                found.append(value if args.name is None else value | trail.kept(reading, history))
    if args.name is not None and not found and not args.in_doubt:
        raise NotFoundError(f"no effect of the name {args.name!r} was ever begun in namespace {asked.namespace!r}")
    return {"namespace": asked.namespace, "in_doubt_only": args.in_doubt, "effects": found}, GOOD


def show(value: dict[str, Any]) -> None:
    """Print it."""
    found = value["effects"]
    if not found:
        say("no effects are in doubt" if value["in_doubt_only"] else "no effects were begun in this namespace")
    elif "arguments" in found[0]:
        for at, one in enumerate(found):
            say(*([""] if at else []))
            detailed(one)
    else:
        table(("effect", "policy", "state", "tries", "begun", "verdict"), map(_row, found), right=("tries",))
    doubtful = sum(one["in_doubt"] for one in found)
    if doubtful:
        say("", f"{doubtful} in doubt: find out what happened, then lineage.reconcile(effect, happened=, who=, why=)")


def detailed(one: dict[str, Any]) -> None:
    """Print all that is known of one effect."""
    rows = [
        ("effect", named(one)),
        ("identity", f"{one['id']}, scope {one['scope']} of {visible(one['lineage'])}"),
        ("policy", one["policy"]),
        ("state", state(one)),
        ("attempts", str(one["attempts"]) + (", recorded after the fact" if one["recorded"] else "")),
        ("forwarded key", one["forwarded"]),
    ]
    rows += [("owner", _owner(one))] if one["owner"] else []
    rows += [("begun", f"{where(one['begun'])}, {when(one['begun'])}")] if one["begun"] else []
    rows.append(("last entry", f"{where(one['last'])}, {when(one['last'])}"))
    rows += [("verdict", _verdict(one))] if one["who"] else []
    rows += [("error", visible(one["error"]))] if one["error"] else []
    unread = one.get("unread", {})
    rows.append(("arguments", _value(one, "arguments", unread)))
    if one["result_digest"] is not None:
        rows.append(("result", _value(one, "result", unread)))
    fields(rows)


def named(one: dict[str, Any]) -> str:
    """Return what tells an effect apart, for people: the name, the occurrence and the key."""
    again = f" #{one['occurrence']}" if one["occurrence"] > 1 else ""
    key = f"key {visible(one['key'])}" if one["keyed"] else f"arguments {one['key'][:16]}"
    return f"{visible(one['name'])}{again}, {key}"


def state(one: dict[str, Any]) -> str:
    """Return an effect's state for people; what is derived or suspicious stands out."""
    text = f"IN DOUBT ({one['state']})" if one["in_doubt"] else str(one["state"])
    if one["evidence"]:
        text += f"\nLATE EVIDENCE ({one['evidence']}): an attempt that was replaced or overruled spoke up"
    return text


def where(at: dict[str, Any]) -> str:
    """Return the revision under which an entry was made, for people."""
    return f"{visible(at['lineage'])}@{at['revision']}"


def when(at: dict[str, Any]) -> str:
    """Return when an entry was made, and by whom, for people."""
    return f"{moment(at['time'])} by {visible(at['actor'])}"


def _value(one: dict[str, Any], name: str, unread: dict[str, str]) -> str:
    shown = f"cannot be read: {visible(unread[name])}" if name in unread else brief(one[name], SHOWN)
    return f"{shown}\nSHA-256 {one[name + '_digest']}"


def _owner(one: dict[str, Any]) -> str:
    return f"process {one['owner']['process']}, {one['owner']['liveness']}"


def _verdict(one: dict[str, Any]) -> str:
    return f"{visible(one['who'])}: {visible(one['why'])}"


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    again = f" #{one['occurrence']}" if one["occurrence"] > 1 else ""
    key = visible(one["key"]) if one["keyed"] else f"arguments {one['key'][:16]}"
    status = state(one) + (f"\n{_owner(one)}" if one["owner"] else "")
    if one["error"]:
        status += f"\n{visible(one['error'])}"
    at = one["begun"] or one["first"]
    said = _verdict(one) if one["who"] else "recorded after the fact" if one["recorded"] else ""
    begun = f"{where(at)}\n{when(at)}"
    return f"{visible(one['name'])}{again}\n{key}", one["policy"], status, str(one["attempts"]), begun, said
