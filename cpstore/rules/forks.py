"""Whether a lineage may start from a revision of another one."""

from __future__ import annotations

from cpstore.errors import ConflictError, NotFoundError
from cpstore.model.fork import Citation


def check(child: str, *, exists: bool) -> None:
    """Let a fork pass whose id is free. Raises ConflictError."""
    if exists:
        raise ConflictError(f"lineage {child!r} exists already; fork to another id")


def plan(child: str, *, exists: bool, parent: str, revision: int, head: int, entry: str) -> Citation:
    """Return what the fork cites: ``entry`` is the digest (hex) of the entry that made the parent's ``revision``.

    ``head`` is the parent's newest revision. Raises ConflictError if the child's id is taken, NotFoundError if the
    parent has no such revision.
    """
    check(child, exists=exists)
    if type(revision) is not int or not 1 <= revision <= head:
        raise NotFoundError(f"lineage {parent!r} has the revisions 1 to {head}, not {revision!r}")
    return Citation(parent, revision, entry)
