"""What the store tests share: states compared by value and type, and all that a reader of a store can see."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import cpstore
from cpstore.errors import CheckpointStoreError
from cpstore.snapshot import form, shape, writer

FILES = ("", "-wal", "-shm", "-lock")


def typed(value: Any) -> Any:
    """Return a form of a value that is equal only for values equal in value and type; NaN equals NaN."""
    if type(value) is dict:
        return "dict", sorted((key, typed(child)) for key, child in value.items())
    if type(value) in (list, tuple):
        return type(value).__name__, [typed(child) for child in value]
    if type(value) in (set, frozenset):
        return type(value).__name__, sorted(repr(typed(child)) for child in value)
    return type(value).__name__, repr(value)


def small_parts(patch: Any, records: int = 5) -> None:
    """Let segments, nodes and shared values begin at sizes that a small state reaches."""
    patch.setattr(writer, "SEGMENT_RECORDS", records)
    patch.setattr(writer, "SEGMENT_BYTES", 20_000)
    patch.setattr(writer, "FIRST_MIN", 300)
    patch.setattr(writer, "LATER_MIN", 700)
    patch.setattr(shape, "SPLIT", 120)
    patch.setattr(form, "SPLIT", 120)


def seen(store: cpstore.Store) -> dict[str, Any]:
    """Return everything that a reader of a store can see, an error in place of what cannot be read.

    Any other exception than the package's own passes through.
    """
    found: dict[str, Any] = {"origin": store.origin}
    try:
        found["lineages"] = list(store.lineages())
    except CheckpointStoreError as error:
        found["lineages"] = error
    return found


def seen_of(lineage: cpstore.store.Lineage, revisions: int, keys: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return what a reader of a lineage can see, by question."""
    questions: dict[str, Any] = {"history": lambda: tuple(lineage.history())}
    for revision in range(1, revisions + 1):
        questions[f"load {revision}"] = lambda revision=revision: typed(lineage.load(revision))
        questions[f"glossary {revision}"] = lambda revision=revision: lineage.glossary(revision)
    questions["load"] = lambda: typed(lineage.load())
    for key in keys:
        questions[f"key {key}"] = lambda key=key: lineage.landed(key)
    return {name: answer(ask) for name, ask in questions.items()}


def answer(ask: Any) -> Any:
    try:
        return ask()
    except CheckpointStoreError as error:
        return error


def assert_holds(store: cpstore.Store, expected: dict[tuple[str, str], list[Any]]) -> None:
    """Every revision loads equal to what was committed, the newest is the last, and verify finds nothing."""
    for (namespace, name), states in expected.items():
        lineage = store.lineage(name, namespace=namespace)
        assert lineage.head().revision == len(states)
        for revision, state in enumerate(states, 1):
            assert typed(lineage.load(revision)) == typed(state), (namespace, name, revision)
    report = store.verify()
    assert report.good, report.findings
    assert {(found.namespace, found.id) for found in store.lineages()} == set(expected)


def content(path: str | os.PathLike[str]) -> dict[str, bytes]:
    """Return the bytes of a store's files, but not when the lock was held last. The store must not be open here."""
    found = {suffix: Path(f"{path}{suffix}").read_bytes() for suffix in FILES if Path(f"{path}{suffix}").exists()}
    return {suffix: whole.partition(b" since ")[0] if suffix == "-lock" else whole for suffix, whole in found.items()}


def size(path: str | os.PathLike[str]) -> int:
    return Path(path).stat().st_size
