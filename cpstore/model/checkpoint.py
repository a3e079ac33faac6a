"""A committed revision, as it is shown to the caller: its header, without the state."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from cpstore.model.entry import Entry


@attrs.frozen
class Checkpoint:
    """One revision of a lineage.

    ``revision`` counts from 1; ``seq`` is its place in the lineage's stream; ``step`` the caller's own index;
    ``time`` a label in microseconds UTC since 1970; ``kind`` how it came about (``checkpoint``, ``fork``, …);
    ``state`` the state root and ``entry`` the SHA-256 of the signed bytes, both in hex; ``key`` the idempotency key it
    was committed under; ``parent`` what a fork cites.
    """

    lineage: str
    namespace: str
    revision: int
    seq: int
    step: int
    kind: str
    time: int
    actor: str
    state: str
    entry: str
    changes_glossary: bool = False
    key: str | None = None
    parent: tuple[str, int] | None = None

    @classmethod
    def of(cls, entry: Entry, digest: bytes) -> Checkpoint:
        """Return the header of a verified entry."""
        detail: Any = entry.detail or {}
        parent = detail.get("parent")
        return cls(
            lineage=entry.stream.name,
            namespace=entry.stream.namespace,
            revision=entry.revision,
            seq=entry.seq,
            step=entry.step,
            kind=entry.kind.name.lower(),
            time=entry.time,
            actor=entry.actor,
            state=entry.state.hex(),
            entry=digest.hex(),
            changes_glossary="glossary" in detail,
            key=detail.get("key", {}).get("name"),
            parent=None if parent is None else (parent["lineage"], parent["revision"]),
        )

    @property
    def when(self) -> dt.datetime:
        """The time label as a datetime in UTC."""
        return dt.datetime.fromtimestamp(self.time / 1_000_000, dt.UTC)
