"""Whether a lineage may go back to an older state, now that the world has moved: DESIGN, "Restore"."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard, TypeVar

import attrs

from cpstore.errors import InvalidStateError
from cpstore.model.restore import Acknowledgement, Verdict
from cpstore.rules import symbols

if TYPE_CHECKING:
    from cpstore.model.effect import Effect

Named = TypeVar("Named")

SHOWN = 10
"""Effects that a plan describes; it names all of them by id."""
_REPEATABLE = (0, 1)


@attrs.frozen
class Facts:
    """What there is between a target and the head.

    ``watermark`` is how much of the effect history the target has seen, as it was found. ``counts`` has the number of
    effects by class (``Effect.kind``), ``unsettled`` those of no known outcome that are neither read-only nor
    idempotent, ``unasked`` those that a re-run would not ask about, ``gaps`` the seqs that the ledger does not cover.
    """

    watermark: object
    head_seq: int
    counts: dict[int, int] = attrs.field(factory=dict)
    unsettled: tuple[Effect, ...] = ()
    unasked: tuple[Effect, ...] = ()
    gaps: tuple[tuple[int, int], ...] = ()
    lossy: bool = False


@attrs.frozen
class Judgement:
    """A verdict with its reasons; ``effects`` and ``gaps`` are what an acknowledgement has to name."""

    verdict: Verdict
    reasons: tuple[str, ...]
    effects: tuple[str, ...] = ()
    gaps: tuple[tuple[int, int], ...] = ()


def judge(facts: Facts) -> Judgement:
    """Return the verdict of the first row, from the bottom of the table up, that fits the facts."""
    listed = tuple(sorted({effect.id.digest.hex() for effect in (*facts.unsettled, *facts.unasked)}))
    gaps = facts.gaps if readable(facts.watermark, facts.head_seq) else ((1, facts.head_seq),)
    if gaps:
        return Judgement(_overridable(facts), (_uncovered(facts, gaps), *_known(facts)), listed, gaps)
    if facts.unsettled:
        return Judgement(Verdict.REFUSED, _known(facts), listed)
    if facts.unasked:
        return Judgement(_overridable(facts), _known(facts), listed)
    return Judgement(Verdict.CLEARED, _cleared(facts))


def readable(watermark: object, head_seq: int) -> TypeGuard[int]:
    """Whether a watermark is a seq of the lineage."""
    return type(watermark) is int and 1 <= watermark <= head_seq


def check_acknowledged(judgement: Judgement, acknowledgement: Acknowledgement | None) -> str:
    """Say why going back is refused, "" if it passes.

    Raises InvalidStateError for an acknowledgement that is malformed.
    """
    if acknowledgement is not None:
        _sound(acknowledgement)
    if judgement.verdict is Verdict.CLEARED:
        return ""
    if judgement.verdict is Verdict.REFUSED:
        return "refused" if acknowledgement is None else "an acknowledgement does not override this"
    if acknowledgement is None:
        return "nobody has answered for it: pass acknowledge="
    wrong = [f"effect {one[:16]}… is not named" for one in _beyond(judgement.effects, acknowledgement.effects)]
    wrong += [f"effect {one[:16]}… is not in the way" for one in _beyond(acknowledgement.effects, judgement.effects)]
    wrong += [f"the gap {gap} is not named" for gap in _beyond(judgement.gaps, acknowledgement.gaps)]
    wrong += [f"there is no gap {gap}" for gap in _beyond(acknowledgement.gaps, judgement.gaps)]
    return "the acknowledgement does not fit: " + "; ".join(wrong) if wrong else ""


def _beyond(these: tuple[Named, ...], those: tuple[Named, ...]) -> list[Named]:
    return [one for one in these if one not in those]


def _sound(acknowledgement: Acknowledgement) -> None:
    given: object = acknowledgement
    if not isinstance(given, Acknowledgement):
        raise InvalidStateError(f"acknowledge= takes an Acknowledgement(who, why, effects, gaps), not {given!r:.100}")
    for name, text in (("who", acknowledgement.who), ("why", acknowledgement.why)):
        if type(text) is not str or symbols.invisible(text):
            raise InvalidStateError(f"the {name} of an acknowledgement is a text that is not blank, not {text!r:.100}")


def _overridable(facts: Facts) -> Verdict:
    return Verdict.REFUSED if facts.lossy else Verdict.NEEDS_ACKNOWLEDGEMENT


def _uncovered(facts: Facts, gaps: tuple[tuple[int, int], ...]) -> str:
    if not readable(facts.watermark, facts.head_seq):
        return (
            f"the target's watermark {facts.watermark!r:.60} is no entry of this lineage: what it has seen is unknown"
        )
    spans = ", ".join(f"{first} to {last}" for first, last in gaps)
    return f"the effect ledger does not cover the entries {spans}; run verify"


def _known(facts: Facts) -> tuple[str, ...]:
    reasons = [
        f"effect {one.id} of policy {one.policy.value} is {one.state.value} and not settled: reconcile it"
        for one in facts.unsettled[:SHOWN]
    ]
    reasons += [f"effect {one.id} would not be asked about again: {_why_unasked(one)}" for one in facts.unasked[:SHOWN]]
    more = len(facts.unsettled) + len(facts.unasked) - len(reasons)
    if more > 0:
        reasons.append(f"and {more} more")
    if facts.lossy:
        reasons.append("the target is lossy: a compaction before it covers content that the store no longer holds")
    return tuple(reasons)


def _why_unasked(effect: Effect) -> str:
    if effect.recorded and not effect.keyed:
        return "it was recorded after the fact, without a key"
    return f"only lineage {effect.id.lineage!r} asks about it"


def _cleared(facts: Facts) -> tuple[str, ...]:
    settled = sum(count for kind, count in facts.counts.items() if kind not in _REPEATABLE)
    repeatable = sum(count for kind, count in facts.counts.items() if kind in _REPEATABLE)
    if settled:
        return (f"{settled} effect(s) are settled and stay known: begin answers with their recorded outcome",)
    if repeatable:
        return (f"{repeatable} effect(s), all read-only or idempotent",)
    return ("no effects since",)
