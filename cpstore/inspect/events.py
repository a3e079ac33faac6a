"""What shared ledgers told their peers, in order, and how far each peer has acknowledged it."""

from __future__ import annotations

import argparse  # noqa: TC003
from typing import TYPE_CHECKING, Any

from cpstore.inspect import ledger, trail
from cpstore.inspect.exits import GOOD
from cpstore.inspect.render import moment, say, table, visible
from cpstore.model.entry import StreamKind

if TYPE_CHECKING:
    from cpstore.inspect.open import Asked


def add(parser: argparse.ArgumentParser) -> None:
    """Define the arguments."""
    parser.add_argument("ledger", nargs="?", metavar="LEDGER", help="only this one (default: all of the namespace)")


def answer(asked: Asked) -> tuple[dict[str, Any], int]:
    """Return each ledger's events and peers. Raises NotFoundError, CorruptError, SignatureError."""
    with trail.looking(asked) as reading:
        names = [stream.name for _, stream in reading.tx.streams(StreamKind.LEDGER, asked.namespace)]
    chosen = names if asked.args.ledger is None else [asked.args.ledger]
    found = []
    for name in chosen:
        with trail.looking(asked) as reading:
            number, board = ledger.opened(reading, asked.namespace, name)
            members = [ledger.member_value(reading, number, one) for one in board.members()]
        events = [event.to_value() for event in asked.store.ledger(name, namespace=asked.namespace).events()]
        for member in members:
            member["unheard"] = sum(event["position"] > member["acknowledged"] for event in events)
        found.append({"ledger": name, "events": events, "peers": members})
    return {"namespace": asked.namespace, "ledgers": found}, GOOD


def show(value: dict[str, Any]) -> None:
    """Print it."""
    if not value["ledgers"]:
        say("no ledgers in this namespace")
    for at, one in enumerate(value["ledgers"]):
        say(*([""] if at else []), visible(one["ledger"]))
        if one["events"]:
            columns = ("at", "when", "what", "about", "told")
            table(columns, [_event(event) for event in one["events"]], right=("at",), whole=("when",))
        else:
            say("nothing was told yet")
        say("")
        table(("peer", "status", "acknowledged", "unheard"), [_peer(peer) for peer in one["peers"]], right=("unheard",))


def _event(event: dict[str, Any]) -> tuple[str, ...]:
    about = visible(event["peer"])
    if event["lineage"] is not None:
        at = "" if event["revision"] is None else f"@{event['revision']}"
        about += f"\n{visible(event['lineage'])}{at}"
    return str(event["position"]), moment(event["time"]), event["kind"], about, visible(event["text"])


def _peer(peer: dict[str, Any]) -> tuple[str, ...]:
    state = ledger.status(peer) if peer["present"] else f"has left ({ledger.status(peer)})"
    return visible(peer["peer"]), state, f"up to {peer['acknowledged']}", str(peer["unheard"])
