"""Whether an act may follow the head: no blind commit, and steps that do not fall."""

from __future__ import annotations

from cpstore.errors import InvalidStateError, RevisionConflictError
from cpstore.model.binding import is_step


def check(lineage: str, *, expected: int | None, seen: int | None, head: int) -> None:
    """Let an act pass that was prepared against the head.

    ``expected`` is the revision that the caller names, ``seen`` the newest one that its handle has seen, ``head`` the
    lineage's newest (0: the lineage does not exist, and an act that names and has seen none starts it). Raises
    RevisionConflictError if the head is another one or has not been looked at, InvalidStateError if ``expected`` is no
    revision.
    """
    if expected is not None and not is_step(expected):
        raise InvalidStateError(f"expected_revision is an integer from 0 on or None, not {expected!r}")
    basis = seen if expected is None else expected
    if basis is None and head == 0:
        return
    if basis != head:
        raise RevisionConflictError(lineage, basis, head)


def check_epoch(lineage: str, *, seen: int | None, since: int, head: int) -> None:
    """Let an act pass whose handle has looked since the last restore or compaction, which made revision ``since``.

    Raises RevisionConflictError: a handle that looked before it, or never, acts on what is no longer so.
    """
    if seen is None or seen < since:
        raise RevisionConflictError(lineage, seen, head)


def check_step(lineage: str, step: int, head_step: int | None) -> None:
    """Let a step pass that repeats or rises.

    ``head_step`` is the head's step, None for a lineage that does not exist. Raises InvalidStateError.
    """
    if not is_step(step):
        raise InvalidStateError(f"a step is an integer from 0 to 2^53 - 1, not {step!r}")
    if head_step is not None and step < head_step:
        raise InvalidStateError(
            f"lineage {lineage!r} is at step {head_step}, the commit says step {step}",
            advice="a step may repeat or rise; to go back use restore or fork",
        )
