"""What is in a store: lineages and their heads, size, engine, keys."""

from __future__ import annotations

import argparse  # noqa: TC003
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpstore.errors import CheckpointStoreError
from cpstore.inspect import facts
from cpstore.inspect.exits import GOOD, Phase, exit_code
from cpstore.inspect.open import file_of
from cpstore.inspect.render import amount, fields, moment, say, table, visible

if TYPE_CHECKING:
    from cpstore.inspect.open import Asked


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
    value = {
        "store": asked.path,
        "origin": asked.store.origin,
        "bytes": Path(file_of(asked.path)).stat().st_size,
        "engine": asked.store.engine,
        "key": {"file": asked.key, "writer": asked.writer},
        "stats": asked.store.stats(),
        "lineages": lineages,
    }
    return value, code


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
    for line in value["lineages"]:
        if line["error"]:
            say("", f"{visible(line['namespace'])}/{visible(line['lineage'])}: {visible(line['error'])}")


def _row(line: dict[str, Any]) -> tuple[str, ...]:
    head = line["head"]
    name, namespace = visible(line["lineage"]), visible(line["namespace"])
    if head is None:
        return name, namespace, "?", "?", "?", "damaged"
    return name, namespace, str(head["revision"]), str(head["step"]), moment(head["time"]), head["kind"]
