"""Recompute everything from the stored bytes; name what is damaged and what to do."""

from __future__ import annotations

import argparse  # noqa: TC003
from typing import TYPE_CHECKING, Any

from cpstore.inspect.exits import DAMAGED, GOOD
from cpstore.inspect.render import amount, fields, progress, say, visible

if TYPE_CHECKING:
    from cpstore.inspect.open import Asked


def add(parser: argparse.ArgumentParser) -> None:
    """It takes no arguments of its own."""


def answer(asked: Asked) -> tuple[dict[str, Any], int]:
    """Return the report of ``Store.verify``."""
    with progress("verify") as report:
        found = asked.store.verify(progress=report)
    return {"store": asked.path} | found.to_value(), GOOD if found.good else DAMAGED


def show(value: dict[str, Any]) -> None:
    """Print it."""
    for finding in value["findings"]:
        say(f"{finding['severity']}: {_where(finding)}{visible(finding['text'])}", f"  -> {visible(finding['advice'])}")
    if value["findings"]:
        say("")
    damaged = sum(finding["severity"] == "damage" for finding in value["findings"])
    fields(
        (
            ("store", visible(value["store"])),
            ("origin", visible(value["origin"])),
            ("looked at", f"{value['lineages']} lineages, {value['entries']} entries, {amount(value['bytes'])}"),
            ("head", f"{value['size']} entries, root {value['root']}"),
            ("engine", visible(value["engine"])),
            ("verdict", f"DAMAGED, {damaged} findings" if damaged else "good: every byte agrees with what was signed"),
            ("complete?", "unknown: no head note was given to compare with; a copy from the past looks the same"),
        )
    )


def _where(finding: dict[str, Any]) -> str:
    if not finding["lineage"]:
        return ""
    revisions = finding["revisions"]
    if not revisions:
        at = ""
    elif len(revisions) == 1:
        at = f"@{revisions[0]}"
    else:
        at = f"@{revisions[0]}…{revisions[-1]} ({len(revisions)} revisions)"
    return f"{visible(finding['namespace'])}/{visible(finding['lineage'])}{at}: "
