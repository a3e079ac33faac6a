"""Whether an effect may be carried out, and what becomes known of it: DESIGN, "Effects", as pure functions."""

from __future__ import annotations

import enum
import operator
from typing import TYPE_CHECKING

import attrs

from cpstore.errors import EffectBusyError, EffectConflictError, EffectInDoubtError, InvalidStateError
from cpstore.model.effect import TEXT_MAX, Effect, EffectId, EffectPolicy, EffectState, Owner, Place
from cpstore.model.names import check_name
from cpstore.rules import symbols

if TYPE_CHECKING:
    from collections.abc import Sequence

SCOPES = ("family", "lineage")
LISTED = 10
"""Effects that a refusal lists at most."""


class Liveness(enum.Enum):
    """What can be seen of the process that started an effect."""

    ALIVE = "alive"
    GONE = "gone"
    UNSEEN = "unseen"
    """It runs, or ran, where this process cannot look: on another machine or in another container."""


class Answer(enum.Enum):
    """What a caller may do."""

    FRESH = "fresh"
    REPLAY = "replay"
    PROBE = "probe"
    """Ask the probe whether it happened, reconcile, ask again."""


@attrs.frozen
class Claim:
    """What ``begin`` asks: may this effect be carried out? ``arguments`` is the digest (hex) of the canonical ones."""

    id: EffectId
    keyed: bool
    policy: EffectPolicy
    arguments: str


def identify(
    namespace: str,
    name: str,
    arguments: str,
    *,
    key: str | None,
    occurrence: int,
    scope: str,
    root: str,
    lineage: str,
    redacted: bool,
    policy: EffectPolicy,
) -> Claim:
    """Return the claim on an effect. ``root`` is the first lineage of the family, ``lineage`` the one that asks.

    Raises InvalidStateError for an unusable name, key, occurrence, scope or policy, and for arguments that redaction
    touched without a key: what two calls have in common could not be told any more.
    """
    given: object = policy
    if not isinstance(given, EffectPolicy):
        known = ", ".join(str(one) for one in EffectPolicy)
        raise InvalidStateError(f"the policy {given!r} of effect {name!r} is unknown", advice=f"use {known}")
    check_name(name, "effect name")
    if key is not None:
        check_name(key, "effect key")
    elif redacted:
        raise InvalidStateError(f"the arguments of effect {name!r} were redacted", advice="pass key=, a business key")
    if type(occurrence) is not int or not 1 <= occurrence < 1 << 53:
        raise InvalidStateError(f"an occurrence counts from 1, it is not {occurrence!r}")
    if scope not in SCOPES:
        raise InvalidStateError(f"the scope of an effect is 'family' or 'lineage', not {scope!r}")
    owner = root if scope == "family" else lineage
    return Claim(
        EffectId(namespace, scope, owner, name, key or arguments, occurrence), key is not None, policy, arguments
    )


def begin(
    claim: Claim,
    found: Effect | None,
    *,
    floor: EffectPolicy | None = None,
    owner: Liveness = Liveness.GONE,
    crossed: Sequence[Effect] = (),
    probe: bool = False,
) -> Answer:
    """Answer whether the caller may go ahead.

    ``found`` is the effect as it is known, ``floor`` the policy that the name's first effect in the family fixed,
    ``owner`` what can be seen of the process that started it, ``crossed`` the effects of that name which a restore or
    fork has stepped back over, ``probe`` whether the caller can find out whether it happened. Raises
    EffectConflictError, EffectBusyError, EffectInDoubtError.
    """
    _agree(claim, found, floor)
    if found is None:
        _reworded(claim, crossed)
        return Answer.FRESH
    if found.state is EffectState.CANCELLED:
        by = f" by {found.who}: {found.why}" if found.who else ""
        raise EffectConflictError(str(claim.id), f"it was cancelled{by}; raise occurrence= if it is meant anew", found)
    policy = max(claim.policy, found.policy)
    if policy is EffectPolicy.READ_ONLY:
        return Answer.FRESH
    if found.state.settled:
        return Answer.REPLAY if found.state.happened else Answer.FRESH
    return _unsettled(claim, found, policy, owner, probe=probe)


def _agree(claim: Claim, found: Effect | None, floor: EffectPolicy | None) -> None:
    """Refuse a claim that names an effect, but means another one."""
    _same_arguments(claim, found)
    fixed = max((policy for policy in (floor, found.policy if found else None) if policy), default=None)
    if fixed is not None and claim.policy < fixed:
        problem = f"its policy is {fixed.value} in this family, {claim.policy.value} is weaker"
        raise EffectConflictError(str(claim.id), problem, found)


def _same_arguments(claim: Claim, found: Effect | None) -> None:
    if found is not None and found.arguments != claim.arguments:
        problem = f"it was begun with other arguments: {found.arguments[:16]}… then, {claim.arguments[:16]}… now"
        raise EffectConflictError(str(claim.id), problem, found)


def _reworded(claim: Claim, crossed: Sequence[Effect]) -> None:
    """Refuse an unkeyed effect that may be one of those that were stepped back over, in other words.

    What counts is whether those may be run again: a reworded claim has another forwarded key, so that nobody would
    notice the repetition, whatever its policy. Only what changes nothing may pass.
    """
    if claim.keyed or claim.policy is EffectPolicy.READ_ONLY:
        return
    others = [one for one in crossed if not one.keyed and not one.policy.repeatable]
    alike = [one for one in others if one.arguments != claim.arguments and one.id.occurrence >= claim.id.occurrence]
    if alike:
        listed = "; ".join(f"{one.id} is {one.state.value}" for one in alike[:LISTED])
        problem = (
            f"{len(alike)} effect(s) of this name with other arguments were stepped back over: {listed}; "
            "is this one of them? Pass its arguments or a key=, or raise occurrence= if it is a new one"
        )
        raise EffectConflictError(str(claim.id), problem, alike[0])


def _unsettled(claim: Claim, found: Effect, policy: EffectPolicy, owner: Liveness, *, probe: bool) -> Answer:
    if found.owner is not None and owner is Liveness.ALIVE:
        raise EffectBusyError(str(claim.id), f"{found.owner} is carrying it out (attempt {found.attempt})", found)
    if policy is EffectPolicy.IDEMPOTENT:
        return Answer.FRESH
    if policy is EffectPolicy.RECONCILABLE and probe and not (found.owner is not None and owner is Liveness.UNSEEN):
        return Answer.PROBE
    raise EffectInDoubtError(str(claim.id), in_doubt(found), found)


def in_doubt(effect: Effect) -> str:
    """Say why nobody knows whether an effect happened."""
    by = f"by {effect.owner}, which is gone or cannot be seen" if effect.owner else "and its attempt ended"
    said = f" with {effect.error!r}" if effect.error else ""
    return f"attempt {effect.attempt} was started {by}{said}, and nobody has said what came of it: reconcile it"


# --- transitions: the record after the next entry ---------------------------------------------------------------------


def started(claim: Claim, found: Effect | None, owner: Owner, last: Place | None) -> Effect:
    """Return the record of an attempt that goes ahead. ``last`` is the newest entry about the effect."""
    if found is None:
        return Effect(claim.id, claim.keyed, claim.policy, claim.arguments, EffectState.STARTED, 1, owner)
    return attrs.evolve(
        found,
        policy=max(claim.policy, found.policy),
        state=EffectState.STARTED,
        attempt=found.attempt + 1,
        owner=owner,
        argued=found.argued or last,
        result=None,
        resulted=None,
        who="",
        why="",
        error="",
    )


def completed(effect: Effect, attempt: int, result: str, last: Place) -> Effect | None:
    """Return the record after attempt ``attempt`` said that it happened; None if that is known already.

    An attempt that was replaced, or comes after a verdict, is noted as evidence, even of the same result: it may have
    been carried out twice. Raises EffectConflictError if this attempt has another outcome already.
    """
    known = attrs.evolve(effect, argued=effect.argued or last)
    if attempt == effect.attempt and effect.state is EffectState.STARTED:
        return attrs.evolve(known, state=EffectState.COMPLETED, owner=None, result=result, resulted=None, error="")
    if attempt == effect.attempt and effect.state in (EffectState.COMPLETED, EffectState.FAILED):
        if effect.result == result:
            return None
        stands = f"{effect.state.value}, {f'result {effect.result[:16]}…' if effect.result else effect.error}"
        problem = f"it has an outcome already ({stands}), this one has result {result[:16]}…; the first stands"
        raise EffectConflictError(str(effect.id), problem, effect)
    return _late(known, last)


def _late(effect: Effect, last: Place) -> Effect:
    """Return the record after an attempt that was replaced, or a verdict that came first, had something to say."""
    resulted = effect.resulted or (last if effect.result is not None else None)
    return attrs.evolve(effect, evidence=effect.evidence + 1, resulted=resulted)


def failed(effect: Effect, attempt: int, error: str, happened: bool | None, last: Place) -> Effect | None:
    """Return the record after an attempt ended with an error; None if that is known already.

    ``happened``: True, it took place all the same; False, it did not; None, nobody knows, and the attempt lets go. An
    attempt that was replaced, or comes after a verdict, is noted as evidence. Raises EffectConflictError if this
    attempt has an outcome that says otherwise already.
    """
    if happened is not None and type(happened) is not bool:
        raise InvalidStateError(f"happened is True, False or None, not {happened!r}")
    error = text(error, "error")
    known = attrs.evolve(effect, argued=effect.argued or last)
    outcome = {True: EffectState.HAPPENED, False: EffectState.FAILED, None: EffectState.STARTED}[happened]
    if attempt == effect.attempt and effect.state is EffectState.STARTED:
        after = attrs.evolve(known, state=outcome, owner=None, error=error)
        return None if after == effect else after
    if attempt != effect.attempt or effect.who:  # a name stands under every verdict, and under nothing else
        return _late(known, last)
    if happened is None or happened is effect.state.happened:
        return None
    problem = f"it has an outcome already ({effect.state.value}), this one is {outcome.value}; the first stands"
    raise EffectConflictError(str(effect.id), problem, effect)


def reconciled(
    effect: Effect, *, happened: bool, who: str, why: str, result: str | None, owner: Liveness, last: Place
) -> Effect | None:
    """Return the record after a verdict; None if it is known already that it did, or did not, happen.

    The first verdict stands, with its ``who``, ``why`` and ``result``. Raises EffectBusyError while a live owner
    carries it out, EffectConflictError if it is settled otherwise.
    """
    if type(happened) is not bool:
        raise InvalidStateError(f"a verdict says happened=True or happened=False, not {happened!r}")
    who, why = text(who, "who", needed=True), text(why, "why", needed=True)
    if result is not None and not happened:
        raise InvalidStateError("what did not happen has no result")
    verdict = EffectState.HAPPENED if happened else EffectState.NOT_HAPPENED
    if effect.state is not EffectState.STARTED:
        if effect.state.happened is happened and effect.state not in (EffectState.CANCELLED, EffectState.COMPENSATED):
            return None
        problem = (
            f"it is settled already as {effect.state.value}{_by(effect)}, the verdict {verdict.value} comes too late"
        )
        raise EffectConflictError(str(effect.id), problem, effect)
    if effect.owner is not None and owner is Liveness.ALIVE:
        raise EffectBusyError(str(effect.id), f"{effect.owner} is carrying it out; it will say what came of it", effect)
    known = attrs.evolve(effect, argued=effect.argued or last, owner=None, who=who, why=why)
    return attrs.evolve(known, state=verdict, result=result, resulted=None)


def compensated(effect: Effect, *, who: str, why: str, last: Place) -> Effect | None:
    """Return the record after what happened was undone in the world; None if that is known."""
    who, why = text(who, "who", needed=True), text(why, "why", needed=True)
    if effect.state is EffectState.COMPENSATED:
        return None
    if not effect.state.happened:
        raise EffectConflictError(str(effect.id), f"it is {effect.state.value}: only what happened is undone", effect)
    known = attrs.evolve(effect, argued=effect.argued or last, who=who, why=why)
    return attrs.evolve(
        known, state=EffectState.COMPENSATED, resulted=effect.resulted or last if effect.result else None
    )


def cancelled(claim: Claim, effect: Effect | None, *, who: str, why: str, last: Place | None) -> Effect | None:
    """Return the record of an effect that must never be begun; None if that is known.

    Raises EffectConflictError for one that has happened, or may have, or has other arguments.
    """
    who, why = text(who, "who", needed=True), text(why, "why", needed=True)
    _same_arguments(claim, effect)
    if effect is None:
        return Effect(claim.id, claim.keyed, claim.policy, claim.arguments, EffectState.CANCELLED, 0, who=who, why=why)
    if effect.state is EffectState.CANCELLED:
        return None
    if effect.state.happened or effect.state is EffectState.STARTED:
        raise EffectConflictError(str(effect.id), f"it is {effect.state.value}: too late to cancel it", effect)
    known = attrs.evolve(effect, argued=effect.argued or last, who=who, why=why, owner=None)
    return attrs.evolve(known, state=EffectState.CANCELLED, result=None, resulted=None)


def recorded(claim: Claim, effect: Effect | None, result: str) -> Effect | None:
    """Return the record of an effect that was carried out without being asked about; None if that is known.

    Raises EffectConflictError if it is known otherwise.
    """
    if effect is None:
        done = EffectState.COMPLETED
        return Effect(claim.id, claim.keyed, claim.policy, claim.arguments, done, 0, result=result, recorded=True)
    _same_arguments(claim, effect)
    if effect.recorded and effect.state.happened and effect.result == result:
        return None
    problem = f"it is known already as {effect.state.value}; raise occurrence= if this is another one"
    raise EffectConflictError(str(effect.id), problem, effect)


def check_next(before: Effect | None, after: Effect, verb: str) -> str:
    """Say what is wrong with a record that follows another one, "" if nothing is: what ``verify`` asks."""
    if verb not in VERBS:
        return f"it has the unknown verb {verb!r}"
    allowed, states = VERBS[verb]
    state = None if before is None else before.state
    if state not in allowed or after.state not in (states or {state}):
        return f"a {verb} leads from {state.value if state else 'nothing'} to {after.state.value}"
    if before is None:
        return _first(after, verb)
    if verb == "begin" and after.policy > _AGAIN.get(before.state, after.policy):
        return f"a {after.policy.value} effect that is {before.state.value} was begun again"
    if _KEPT(before) != _KEPT(after) or after.policy < before.policy:
        return "it became another effect"
    if after.attempt != before.attempt + (verb == "begin") or after.evidence != before.evidence + (verb == "late"):
        return "its attempts are miscounted"
    if after.argued is None or before.argued not in (None, after.argued):
        return "it names other arguments"
    free = _FREE.get(verb, ())
    touched = [name for name in _SAID if name not in free and getattr(before, name) != getattr(after, name)]
    return f"a {verb} changes its {', '.join(touched)}" if touched else _owned(after, verb)


def _first(effect: Effect, verb: str) -> str:
    counted = (effect.attempt, effect.evidence, effect.recorded) == (verb == "begin", 0, verb == "record")
    if not counted or effect.argued or effect.resulted:
        return "its first entry counts what was not there before"
    return _owned(effect, verb)


def _owned(effect: Effect, verb: str) -> str:
    """Whoever begins owns it until something is said; what is late says nothing about the owner."""
    if verb == "late" or (effect.owner is not None) == (verb == "begin"):
        return ""
    return f"a {verb} leaves it {'with' if effect.owner else 'without'} an owner"


_KEPT = operator.attrgetter("id", "keyed", "arguments", "recorded")
_SAID = ("policy", "owner", "result", "resulted", "who", "why", "error")
_FREE = {
    "begin": _SAID,
    "complete": ("owner", "result", "resulted", "error"),
    "fail": ("owner", "error"),
    "release": ("owner", "error"),
    "late": ("resulted",),
    "reconcile": ("owner", "result", "resulted", "who", "why"),
    "compensate": ("resulted", "who", "why"),
    "cancel": ("result", "resulted", "who", "why"),
}
"""Verb → what it may change, beside state, counts and the place of the arguments."""
_S = EffectState
VERBS: dict[str, tuple[set[EffectState | None], set[EffectState | None]]] = {
    "begin": ({None, *set(_S) - {_S.CANCELLED}}, {_S.STARTED}),
    "complete": ({_S.STARTED}, {_S.COMPLETED}),
    "fail": ({_S.STARTED}, {_S.FAILED, _S.HAPPENED}),
    "release": ({_S.STARTED}, {_S.STARTED}),
    "late": (set(_S), set()),
    "reconcile": ({_S.STARTED}, {_S.HAPPENED, _S.NOT_HAPPENED}),
    "compensate": ({_S.COMPLETED, _S.HAPPENED}, {_S.COMPENSATED}),
    "cancel": ({None, _S.FAILED, _S.NOT_HAPPENED, _S.COMPENSATED}, {_S.CANCELLED}),
    "record": ({None}, {_S.COMPLETED}),
}
"""Verb → states it may come from, states it may lead to (empty: the same). ``begin`` on a settled one is a retry."""
_AGAIN = {
    _S.STARTED: EffectPolicy.IDEMPOTENT,
    _S.COMPLETED: EffectPolicy.READ_ONLY,
    _S.HAPPENED: EffectPolicy.READ_ONLY,
}
"""State → the strongest policy under which it may be begun again; any, where none is named."""


def text(given: str, what: str, *, needed: bool = False) -> str:
    """Return a text for the record, cut to ``TEXT_MAX`` characters.

    Raises InvalidStateError for anything else, and where it is ``needed`` but nothing of it can be seen.
    """
    kept = given.encode("utf-8", "replace").decode()[:TEXT_MAX] if type(given) is str else None
    if kept is None or (needed and symbols.invisible(kept)):
        raise InvalidStateError(f"{what} is a text{' and must not be blank' if needed else ''}, not {given!r:.100}")
    return kept


def _by(effect: Effect) -> str:
    return f" by {effect.who} ({effect.why})" if effect.who else ""
