"""One checkpoint: its header, how it came about, its glossary lock, and the shape of its state or all of it."""

from __future__ import annotations

import argparse  # noqa: TC003
import json
from typing import TYPE_CHECKING, Any

from cpstore.inspect import facts
from cpstore.inspect.exits import GOOD
from cpstore.inspect.render import amount, brief, fields, in_json, moment, revealed, say, table, visible
from cpstore.snapshot import pointer, values

if TYPE_CHECKING:
    from cpstore.inspect.open import Asked


def add(parser: argparse.ArgumentParser) -> None:
    """Define the arguments."""
    parser.add_argument("at", metavar="LINEAGE[@REV]", help="which checkpoint (default: the head)")
    parser.add_argument("--state", action="store_true", help="print the whole state")


def answer(asked: Asked) -> tuple[dict[str, Any], int]:
    """Return the checkpoint, verified; its state with ``--state``, else a line on each top-level key."""
    checkpoint = facts.checkpoint_at(asked, asked.args.at)
    handle = asked.store.lineage(checkpoint.lineage, namespace=asked.namespace)
    state = handle.load(checkpoint.revision)
    held = handle.glossary(checkpoint.revision)
    value = {
        "checkpoint": facts.header(checkpoint),
        "made": facts.made(asked, checkpoint),
        "glossary": {"digest": held.digest.hex(), "symbols": [binding.symbol for binding in held]},
        "shape": [
            {"path": pointer.spell([key]), "bytes": len(values.bytes_of(child)), "value": brief(in_json(child))}
            for key, child in state.items()
        ],
    }
    if asked.args.state:
        value["state_value"] = in_json(state)
    return value, GOOD


def show(value: dict[str, Any]) -> None:
    """Print it."""
    found, parent = value["checkpoint"], value["checkpoint"]["parent"]
    rows = [
        ("lineage", f"{visible(found['namespace'])}/{visible(found['lineage'])}"),
        ("revision", f"{found['revision']} ({found['kind']}), entry {found['seq']} of its stream"),
        ("step", str(found["step"])),
        ("when", moment(found["time"])),
        ("by", visible(found["actor"])),
        ("state root", found["state"]),
        ("entry", found["entry"]),
        ("glossary", f"{len(value['glossary']['symbols'])} in force, lock {value['glossary']['digest']}"),
    ]
    if parent:
        rows.append(("forked from", f"{visible(parent['lineage'])}@{parent['revision']}"))
    if found["key"] is not None:
        rows.append(("key", visible(found["key"])))
    fields(rows + _made(value["made"]))
    say("")
    if "state_value" in value:
        text = json.dumps(value["state_value"], indent=2, ensure_ascii=False)
        say(*map(revealed, text.split("\n")))
        return
    table(
        ("path", "size", "value"),
        [(revealed(line["path"]), amount(line["bytes"]), line["value"]) for line in value["shape"]],
        right=("size",),
    )


def _made(said: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the rows on a restore, a compaction or a fork below the head."""
    rows = []
    if said["restore"] is not None:
        back = said["restore"]
        rows.append(("went back to", f"revision {back['revision']}, which had seen entries up to {back['watermark']}"))
    if said["crossed"] is not None:
        rows.append(("left below", f"entry {said['crossed']}, the newest of its parent then"))
    rows += [(f"reads {visible(one['symbol'])}", f"as it means today, {_order(one)}") for one in said["reread"]]
    word = said["acknowledgement"]
    if word is not None:
        gaps = "".join(f", entries {first} to {last}" for first, last in word["gaps"])
        over = f"{len(word['effects'])} effect(s){gaps}"
        rows.append(("answered for", f"{visible(word['who'])}: {visible(word['why'])} ({over})"))
        rows += [("", f"effect {effect}") for effect in word["effects"]]
    return rows + ([] if said["compaction"] is None else _compaction(said["compaction"]))


def _compaction(said: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [("covers", f"revisions {said['first']} to {said['last']}, level {said['level']}")]
    rows += [("", _covered(part)) for part in said["covers"]]
    rows.append(("summary", f"{revealed(said['path'])}, SHA-256 {said['summary']}"))
    counts = [("before", said["tokens_before"]), ("after", said["tokens_after"])]
    tokens = ", ".join(f"{count} {when}" for when, count in counts if count is not None)
    rows += [("tokens", tokens)] if tokens else []
    for claim in said["claims"]:
        doubt = "UNBACKED: nothing in the store says so; " if claim in said["unbacked"] else ""
        rows.append(("relies on", doubt + revealed(json.dumps(claim, ensure_ascii=False))))
    rows += [
        ("kept whole", f"{visible(key)} of {visible(ledger)} at {revealed(path)}") for ledger, key, path in said["kept"]
    ]
    return rows


def _covered(part: dict[str, Any]) -> str:
    what = "all of it" if part["start"] is None else f"items {part['start']} to {part['stop'] - 1}"
    return f"{revealed(part['path']) or 'the state'}: {what}, {amount(part['size'])}, SHA-256 {part['digest']}"


def _order(one: dict[str, Any]) -> str:
    order = one["directive"]
    return f"ordered by {order['authority']} ({visible(order['reference'])}): {visible(order['text'])}"
