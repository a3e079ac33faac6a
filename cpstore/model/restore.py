"""Going back: what a restore or a fork below the head would step over, and who answers for it."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

import attrs

from cpstore import canonical
from cpstore.errors import CorruptError, InvalidStateError
from cpstore.model.binding import exact, hex_digest, is_step

EFFECT_CLASSES = ("read_only", "idempotent", "other", "recorded without a key", "of one lineage")
"""Names of the classes by which a plan counts effects."""


class Verdict(enum.Enum):
    """What a plan says about going back."""

    CLEARED = "cleared"
    NEEDS_ACKNOWLEDGEMENT = "needs acknowledgement"
    """Refused, unless somebody answers for what the plan lists."""
    REFUSED = "refused"


def _ids(given: Any) -> tuple[str, ...]:
    listed = None if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
    if listed is None or any(type(one) is not str for one in listed):
        raise InvalidStateError(f"the effects of an acknowledgement are a list of ids, not {given!r:.100}")
    return tuple(sorted(listed))


def _gaps(given: Any) -> tuple[tuple[int, int], ...]:
    try:
        pairs = [(first, last) for first, last in given]
    except (TypeError, ValueError) as error:
        raise InvalidStateError(f"gaps are pairs (first seq, last seq), not {given!r:.100}") from error
    if not all(is_step(end) for pair in pairs for end in pair):
        raise InvalidStateError(f"gaps are pairs of seqs, not {given!r:.100}")
    return tuple(sorted(pairs))


@attrs.frozen
class Acknowledgement:
    """Someone's word that going back may step over what the ledger does not clear.

    ``effects`` are ids (64 hex digits, as the plan lists them), ``gaps`` ranges of seqs that the ledger does not cover.
    It has to name all that the plan names, and nothing else.
    """

    who: str
    why: str
    effects: tuple[str, ...] = attrs.field(converter=_ids, default=())
    gaps: tuple[tuple[int, int], ...] = attrs.field(converter=_gaps, default=())

    def to_value(self) -> dict[str, Any]:
        """Return the canonical JSON model."""
        gaps = [list(gap) for gap in self.gaps]
        return {"effects": list(self.effects), "gaps": gaps, "who": self.who, "why": self.why}

    @classmethod
    def from_value(cls, value: Any) -> Acknowledgement:
        """Read what ``to_value`` wrote. Raises CorruptError for anything else."""
        fields = exact(value, "acknowledgement", "effects", "gaps", "who", "why")
        for name in ("who", "why"):
            if type(fields[name]) is not str or not fields[name].strip():
                raise CorruptError(f"a stored acknowledgement does not say {name}")
        try:
            made = cls(**fields)
            canonical.encode(value)
        except InvalidStateError as error:
            raise CorruptError(f"a stored acknowledgement cannot be read: {error}") from error
        for one in made.effects:
            hex_digest(one, "acknowledgement")
        if made.to_value() != value:
            raise CorruptError("a stored acknowledgement has another spelling than its own")
        return made


@attrs.frozen
class RestorePlan:
    """What going back to a revision means, computed without writing.

    The interval is the effects with an entry after ``watermark`` (a seq of the lineage; None if it cannot be read) and
    up to ``head_seq``, in this lineage and in those forked from it since. ``counts`` has their number by class, see
    ``EFFECT_CLASSES``; ``unsettled`` and ``unasked`` describe up to ten effects that stand in the way, ``effects``
    the ids of all of them, ``gaps`` the seqs that the ledger does not cover. ``moved`` lists (symbol, then, now) for
    locks that have changed since. ``lossy``: a compaction at or before the target covers what is not held any more.
    """

    lineage: str
    revision: int
    head: int
    watermark: int | None
    head_seq: int
    verdict: Verdict
    reasons: tuple[str, ...]
    alternatives: tuple[str, ...]
    counts: dict[str, int]
    unsettled: tuple[str, ...] = ()
    unasked: tuple[str, ...] = ()
    effects: tuple[str, ...] = ()
    gaps: tuple[tuple[int, int], ...] = ()
    moved: tuple[tuple[str, str, str], ...] = ()
    lossy: bool = False

    @property
    def cleared(self) -> bool:
        """Whether the restore passes as it stands: the ledger clears it, and no lock has moved."""
        return self.verdict is Verdict.CLEARED and not self.moved

    def to_value(self) -> dict[str, Any]:
        """Return the plan in the JSON model."""
        value = attrs.asdict(self, recurse=False) | {"verdict": self.verdict.value}
        return {name: _listed(found) for name, found in value.items()}


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return dict(value)
    return [_listed(part) for part in value] if isinstance(value, tuple) else value
