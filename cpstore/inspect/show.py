"""One checkpoint: its header, its glossary lock, and the shape of its state or all of it."""

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
    fields(rows)
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
