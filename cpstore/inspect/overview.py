"""What is in a store: lineages, effects in doubt, ledgers and peers that may not write; size, engine, keys."""

from __future__ import annotations

import argparse  # noqa: TC003
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpstore.errors import CheckpointStoreError
from cpstore.inspect import facts
from cpstore.inspect.effects import named
from cpstore.inspect.exits import GOOD, Phase, exit_code
from cpstore.inspect.ledger import list_ledgers, listed
from cpstore.inspect.open import file_of
from cpstore.inspect.render import amount, fields, moment, say, table, visible

if TYPE_CHECKING:
    from cpstore.inspect.open import Asked


SHOWN = 10
"""Effects in doubt that are listed for people; ``--json`` has all."""


def add(parser: argparse.ArgumentParser) -> None:
    """The overview takes no arguments of its own."""


def answer(asked: Asked) -> tuple[dict[str, Any], int]:
    """Return the overview. A lineage whose head cannot be trusted is listed with its error, and sets the exit code."""
    lineages = []
    code = GOOD
    for namespace, name in facts.names(asked.store, asked.args.namespace):
        try:
            head: Any = facts.header(asked.store.lineage(name, namespace=namespace).head())
            problem = None
        except CheckpointStoreError as error:
            head, problem = None, str(error)
            code = code or exit_code(error, Phase.ACT)
        lineages.append({"lineage": name, "namespace": namespace, "head": head, "error": problem})
    effects, ledgers = _effects(asked, lineages), _ledgers(asked)
    code = code or next((found["code"] for found in (*effects["errors"], *ledgers) if found["error"]), GOOD)
    value = {
        "store": asked.path,
        "origin": asked.store.origin,
        "bytes": Path(file_of(asked.path)).stat().st_size,
        "engine": asked.store.engine,
        "key": {"file": asked.key, "writer": asked.writer},
        "stats": asked.store.stats(),
        "lineages": lineages,
        "effects": effects,
        "ledgers": ledgers,
    }
    return value, code


def _effects(asked: Asked, lineages: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how many effects have no outcome, and those in doubt; what cannot be read is named in ``errors``."""
    value: dict[str, Any] = {"unsettled": 0, "in_doubt": [], "errors": []}
    for line in lineages:
        name, namespace = line["lineage"], line["namespace"]
        try:
            found = facts.unsettled(asked, namespace, name)
        except CheckpointStoreError as error:
            code = exit_code(error, Phase.ACT)
            value["errors"].append({"lineage": name, "namespace": namespace, "error": str(error), "code": code})
            continue
        value["unsettled"] += len(found)
        value["in_doubt"] += [
            {
                "id": record.id.digest.hex(),
                "name": record.id.name,
                "key": record.id.key,
                "keyed": record.keyed,
                "occurrence": record.id.occurrence,
                "lineage": name,
                "namespace": namespace,
            }
            for record, doubt in found
            if doubt
        ]
    return value


def _ledgers(asked: Asked) -> list[dict[str, Any]]:
    """Return the ledgers; one that cannot be trusted with its error."""
    found = []
    for ledger in asked.store.ledgers(namespace=asked.args.namespace):
        try:
            found.append(listed(asked, ledger.id, ledger.namespace) | {"error": None})
        except CheckpointStoreError as error:
            code = exit_code(error, Phase.ACT)
            value = {"ledger": ledger.id, "namespace": ledger.namespace, "error": str(error), "code": code}
            found.append(value)
    return found


def show(value: dict[str, Any]) -> None:
    """Print it."""
    fields(
        (
            ("store", visible(value["store"])),
            ("origin", visible(value["origin"])),
            ("size", amount(value["bytes"])),
            ("engine", visible(value["engine"])),
            ("trusted key", f"{value['key']['writer']} ({visible(value['key']['file'])})"),
        )
    )
    say("")
    if not value["lineages"]:
        say("no lineages yet")
        return
    table(
        ("lineage", "namespace", "head", "step", "when", "kind"),
        [_row(line) for line in value["lineages"]],
        right=("head", "step"),
        whole=("when",),
    )
    _show_effects(value["effects"])
    if value["ledgers"]:
        say("")
        list_ledgers(value["ledgers"])
    said = {line["error"] for line in value["lineages"]}
    errors = [line for line in value["effects"]["errors"] if line["error"] not in said]
    for line in (*value["lineages"], *errors, *value["ledgers"]):
        if line["error"]:
            name = line["lineage"] if "lineage" in line else line["ledger"]
            say("", f"{visible(line['namespace'])}/{visible(name)}: {visible(line['error'])}")


def _show_effects(effects: dict[str, Any]) -> None:
    doubtful = effects["in_doubt"]
    if not doubtful and not effects["unsettled"] and not effects["errors"]:
        return
    partly = "; not all could be read" if effects["errors"] else ""
    say("", f"effects: {len(doubtful)} in doubt, {effects['unsettled']} without an outcome{partly}")
    for one in doubtful[:SHOWN]:
        say(f"  {named(one)}, of {visible(one['namespace'])}/{visible(one['lineage'])}")
    if len(doubtful) > SHOWN:
        say(f"  and {len(doubtful) - SHOWN} more: inspect STORE effects --in-doubt")


def _row(line: dict[str, Any]) -> tuple[str, ...]:
    head = line["head"]
    name, namespace = visible(line["lineage"]), visible(line["namespace"])
    if head is None:
        return name, namespace, "?", "?", "?", "damaged"
    return name, namespace, str(head["revision"]), str(head["step"]), moment(head["time"]), head["kind"]
