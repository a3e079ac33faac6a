"""Shared ledgers: keys and who wrote them, members and what they have to read again, a key's history."""

from __future__ import annotations

import argparse  # noqa: TC003
from typing import TYPE_CHECKING, Any

from cpstore.errors import CorruptError, NotFoundError
from cpstore.inspect import trail
from cpstore.inspect.exits import GOOD
from cpstore.inspect.render import brief, in_json, moment, say, table, visible
from cpstore.journal import Reading
from cpstore.model.entry import StreamKind
from cpstore.rules.ledger import check_key
from cpstore.streams.board import Board
from cpstore.streams.telling import ledger_stream

if TYPE_CHECKING:
    from cpstore.inspect.open import Asked
    from cpstore.model.ledger import Member

SHOWN = 200
"""Characters of a value that are shown to people; ``--json`` has it whole."""


def add(parser: argparse.ArgumentParser) -> None:
    """Define the arguments."""
    parser.add_argument("ledger", nargs="?", metavar="NAME", help="which one (default: list those of the namespace)")
    # Not --key: that option names the key file, here as everywhere.
    parser.add_argument("of", nargs="?", metavar="KEY", help="the values that this key has had, newest first")


def answer(asked: Asked) -> tuple[dict[str, Any], int]:
    """Return the ledgers, or one with keys and members, or a key's history.

    Raises NotFoundError, InvalidStateError, CorruptError, SignatureError.
    """
    name, key = asked.args.ledger, asked.args.of
    value: dict[str, Any] = {"namespace": asked.namespace}
    if name is None:
        with trail.looking(asked) as reading:
            found = [stream.name for _, stream in reading.tx.streams(StreamKind.LEDGER, asked.namespace)]
        value["ledgers"] = [listed(asked, one) for one in found]
        return value, GOOD
    if key is not None:
        return value | {"ledger": name, "key": key, "history": _history(asked, name, key)}, GOOD
    with trail.looking(asked) as reading:
        number, board = opened(reading, asked.namespace, name)
        value |= {"ledger": name, "position": board.position}
        keys = board.keys()
        value["keys"] = [_key(reading, number, board, one) for one in keys]
        value["members"] = [member_value(reading, number, one) for one in board.members()]
    return value, GOOD


def opened(reading: Reading, namespace: str, name: str) -> tuple[int, Board]:
    """Return a ledger's stream and what it holds. Raises NotFoundError."""
    number = reading.tx.stream(ledger_stream(namespace, name))
    if number is None:
        raise NotFoundError(f"ledger {name!r} does not exist in namespace {namespace!r}")
    return number, Board.of(reading, namespace, name)


def listed(asked: Asked, name: str, namespace: str | None = None) -> dict[str, Any]:
    """Return one ledger as it stands in a list: how many keys, who may not write, and what was told last."""
    space = namespace or asked.namespace
    ledger = asked.store.ledger(name, namespace=space)
    members = [member for member in ledger.peers() if member.present]
    with Reading(asked.store._journal, space) as reading:  # noqa: SLF001
        found = reading.last(ledger_stream(space, name))
    events = [] if found is None or not found[1].term else ledger.events(after=found[1].term - 1)
    return {
        "ledger": name,
        "namespace": space,
        "keys": len(ledger.keys()),
        "peers": len(members),
        "not_active": [
            {"peer": member.peer, "status": member.status.value, "cause": member.cause}
            for member in members
            if not member.active
        ],
        "last_event": events[-1].to_value() if events else None,
    }


def member_value(reading: Reading, number: int, member: Member) -> dict[str, Any]:
    """Return a membership in the JSON model.

    ``reread`` is what it has to read again before it may write; ``acknowledged`` how far it has heard the ledger, which
    alone is not signed.
    """
    return {
        "peer": member.peer,
        "lineage": member.lineage,
        "present": member.present,
        "status": member.status.value,
        "cause": member.cause,
        "reread": [] if member.active else list(member.keys),
        "kept": list(member.kept),
        "read": sorted(member.known),
        "acknowledged": reading.tx.cursor(number, member.id),
    }


def show(value: dict[str, Any]) -> None:
    """Print it."""
    if "ledgers" in value:
        if not value["ledgers"]:
            say("no ledgers in this namespace")
            return
        list_ledgers(value["ledgers"])
    elif "history" in value:
        say(f"{visible(value['ledger'])}, key {visible(value['key'])}")
        rows = [(str(one["revision"]), *_by(one), brief(one["value"], SHOWN)) for one in value["history"]]
        table(("rev", "by", "when", "value"), rows, right=("rev",), whole=("when",))
    else:
        _whole(value)


def list_ledgers(ledgers: list[dict[str, Any]]) -> None:
    """Print the table of ledgers."""
    columns = ("ledger", "namespace", "keys", "peers", "may not write", "last event")
    table(columns, [_row(one) for one in ledgers], right=("keys", "peers"))


def status(member: dict[str, Any]) -> str:
    """Return what a peer may do, for people."""
    cause = f": {visible(member['cause'])}" if member["cause"] else ""
    return f"{member['status']}{cause}"


def _whole(value: dict[str, Any]) -> None:
    say(f"{visible(value['namespace'])}/{visible(value['ledger'])}, at position {value['position']}", "")
    if value["keys"]:
        rows = [
            (visible(one["key"]), str(one["revision"]), *_by(one), brief(one["value"], SHOWN)) for one in value["keys"]
        ]
        table(("key", "rev", "by", "when", "value"), rows, right=("rev",), whole=("when",))
    else:
        say("no keys yet")
    say("")
    table(("peer", "lineage", "status", "to read again"), [_member(one) for one in value["members"]])


def _key(reading: Reading, number: int, board: Board, key: str) -> dict[str, Any]:
    """Return what is under a key, and the entry that wrote it."""
    found = board.value(key)
    if found is None:
        raise CorruptError(f"{board.opened.stream}: key {key!r} is listed, but has no value; run verify")
    held, value = found
    entry = reading.entry(number, held.seq)
    return {
        "key": key,
        "revision": held.revision,
        "digest": held.digest,
        "position": held.seq,
        "peer": (entry.detail or {}).get("peer", ""),
        "actor": entry.actor,
        "time": entry.time,
        "value": in_json(value),
    }


def _history(asked: Asked, name: str, key: str) -> list[dict[str, Any]]:
    ledger = asked.store.ledger(name, namespace=asked.namespace)
    if not ledger.exists:
        raise NotFoundError(f"ledger {name!r} does not exist in namespace {asked.namespace!r}")
    return [
        {
            "key": one.key,
            "revision": one.revision,
            "digest": one.digest,
            "position": one.position,
            "peer": one.peer,
            "actor": one.actor,
            "time": one.time,
            "value": in_json(one.value),
        }
        for one in ledger.history(check_key(key))
    ]


def _by(one: dict[str, Any]) -> tuple[str, str]:
    return f"{visible(one['peer'])} ({visible(one['actor'])})", moment(one["time"])


def _member(member: dict[str, Any]) -> tuple[str, ...]:
    state = status(member) if member["present"] else f"has left ({status(member)})"
    again = "\n".join(map(visible, member["reread"]))
    kept = "".join(f"\n{visible(key)} (kept whole)" for key in member["kept"])
    return visible(member["peer"]), visible(member["lineage"] or ""), state, (again + kept).strip("\n")


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    if one.get("error"):
        return visible(one["ledger"]), visible(one["namespace"]), "?", "?", "damaged", ""
    stopped = "\n".join(f"{visible(peer['peer'])} is {status(peer)}" for peer in one["not_active"])
    last = one["last_event"]
    told = "" if last is None else f"{moment(last['time'])} {visible(last['text'])}"
    return visible(one["ledger"]), visible(one["namespace"]), str(one["keys"]), str(one["peers"]), stopped, told
