"""Revisions, newest first: how lineages fork from each other, are compacted, and go back."""

from __future__ import annotations

import argparse  # noqa: TC003
from typing import TYPE_CHECKING, Any

from cpstore.inspect import facts
from cpstore.inspect.exits import GOOD
from cpstore.inspect.render import moment, say, table, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cpstore.inspect.open import Asked
    from cpstore.model.checkpoint import Checkpoint

LIMIT = 50


def add(parser: argparse.ArgumentParser) -> None:
    """Define the arguments."""
    parser.add_argument("lineage", nargs="?", metavar="LINEAGE", help="only this one (default: all of the namespace)")
    parser.add_argument("--graph", action="store_true", help="draw forks where they leave their parent")
    limit = f"revisions a lineage (default {LIMIT}, 0: all)"
    parser.add_argument("--limit", type=facts.limit_of, default=LIMIT, metavar="N", help=limit)


def answer(asked: Asked) -> tuple[dict[str, Any], int]:
    """Return the newest revisions of each lineage, and how many older ones there are."""
    args = asked.args
    chosen = [args.lineage] if args.lineage else [name for _, name in facts.names(asked.store, asked.namespace)]
    lineages = []
    for name in chosen:
        handle = asked.store.lineage(name, namespace=asked.namespace)
        handle.head()
        left = facts.forks(asked, name)
        revisions = [_noted(asked, found, left) for found in handle.history(limit=args.limit or None)]
        lineages.append({"lineage": name, "revisions": revisions, "older": revisions[-1]["revision"] - 1})
    return {"namespace": asked.namespace, "graph": args.graph, "lineages": lineages}, GOOD


def _noted(asked: Asked, found: Checkpoint, left: dict[int, list[str]]) -> dict[str, Any]:
    """Return a header with what made the revision (``restored``, ``compacted``) and what was forked from it."""
    value = facts.header(found) | {"restored": None, "compacted": None, "forks": left.get(found.revision, [])}
    if found.kind in ("restore", "compaction"):
        said = facts.made(asked, found)
        value["changes_glossary"] = said["moves_glossary"]  # their entries restate the lock, changed or not
        if said["restore"] is not None:
            value["restored"] = said["restore"]["revision"]
            value["acknowledged"] = said["acknowledgement"] is not None
        if said["compaction"] is not None:
            value["compacted"] = {part: said["compaction"][part] for part in ("first", "last", "level", "path")}
    return value


def show(value: dict[str, Any]) -> None:
    """Print it."""
    if not value["lineages"]:
        say("no lineages in this namespace")
    elif value["graph"]:
        say(*graph(value["lineages"]))
    else:
        for at, line in enumerate(value["lineages"]):
            say(*([""] if at else []), visible(line["lineage"]))
            rows = map(_row, line["revisions"])
            table(("rev", "step", "when", "kind", "by", "notes"), rows, right=("rev", "step"), whole=("when",))
            if line["older"]:
                say(f"… {line['older']} older, --limit 0 shows all")


def graph(lineages: list[dict[str, Any]]) -> Iterator[str]:
    """Draw lineages newest first; a fork is drawn above the revision it left, and joins it."""
    known = {line["lineage"]: line for line in lineages}
    forks: dict[str, list[tuple[int, str]]] = {}
    roots = []
    for name, line in known.items():
        parent = _parent(line)
        if parent is not None and parent["lineage"] in known and parent["lineage"] != name:
            forks.setdefault(parent["lineage"], []).append((parent["revision"], name))
        else:
            roots.append(name)
    for at, name in enumerate(roots):
        if at:
            yield ""
        yield from _drawn(name, known, forks, "")


def _drawn(name: str, known: dict[str, Any], forks: dict[str, list[tuple[int, str]]], left: str) -> Iterator[str]:
    line = known[name]
    children = sorted(forks.get(name, []), reverse=True)
    yield f"{left}{visible(name)}"
    for found in line["revisions"]:
        undrawn = [child for child in found.get("forks", []) if child not in known]
        revision, step, *rest = _row(found | {"forks": undrawn})
        while children and children[0][0] >= found["revision"]:
            yield from _drawn(children.pop(0)[1], known, forks, left + "│ ")
            yield f"{left}├─╯"
        yield f"{left}● {revision}  step {step}  {'  '.join(part for part in rest if part)}"
    for _, child in children:
        yield from _drawn(child, known, forks, left + "│ ")
        yield f"{left}├─╯"
    if line["older"]:
        yield f"{left}┆ {line['older']} older"


def _parent(line: dict[str, Any]) -> dict[str, Any] | None:
    oldest = line["revisions"][-1]
    parent: dict[str, Any] | None = oldest["parent"]
    return parent


def _row(found: dict[str, Any]) -> tuple[str, ...]:
    notes = []
    if found["parent"]:
        notes.append(f"of {visible(found['parent']['lineage'])}@{found['parent']['revision']}")
    if found.get("restored") is not None:
        word = ", acknowledged" if found.get("acknowledged") else ""
        notes.append(f"restore → rev {found['restored']}{word}")
    if found.get("compacted") is not None:
        covered = found["compacted"]
        notes.append(f"covers rev {covered['first']} to {covered['last']}, level {covered['level']}")
    if found["changes_glossary"]:
        notes.append("changes the glossary")
    if found["key"] is not None:
        notes.append(f"key {visible(found['key'])}")
    notes += [f"forked to {visible(name)}" for name in found.get("forks", [])]
    return (
        str(found["revision"]),
        str(found["step"]),
        moment(found["time"]),
        found["kind"],
        visible(found["actor"]),
        ", ".join(notes),
    )
