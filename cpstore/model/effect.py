"""Changes outside the store: their identity, their policy, and what is known of them."""

from __future__ import annotations

import enum
import functools
from typing import Any

import attrs

from cpstore import canonical
from cpstore.digest import digest
from cpstore.errors import CorruptError, InvalidStateError
from cpstore.model.binding import exact, hex_digest, is_step
from cpstore.model.names import check_name

DOMAIN = b"cpstore/effect/v1\n"
FORWARD = b"cpstore/effect-key/v1\n"
TEXT_MAX = 2000
"""Characters of an error, a reason or a name of a person that an entry keeps."""


@functools.total_ordering
class EffectPolicy(enum.Enum):
    """What may be done about an effect whose outcome is not known, from weak to strong.

    ``READ_ONLY < IDEMPOTENT < RECONCILABLE < AT_MOST_ONCE``.
    """

    READ_ONLY = "read_only"
    """Changes nothing: run it again whenever asked."""
    IDEMPOTENT = "idempotent"
    """Runs again under the same forwarded key, and counts once."""
    RECONCILABLE = "reconcilable"
    """A probe can tell whether it happened."""
    AT_MOST_ONCE = "at_most_once"
    """Never run it again without a person's word."""

    def __init__(self, word: str) -> None:
        del word
        self.rank = len(type(self).__members__)
        """Its place in the order, from 0."""

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, EffectPolicy):
            return NotImplemented
        return self.rank < other.rank

    @property
    def repeatable(self) -> bool:
        """Whether running it again does no harm."""
        return self <= EffectPolicy.IDEMPOTENT


class EffectState(enum.Enum):
    """What is known of an effect. In doubt is no state: it is ``STARTED`` without a live owner."""

    STARTED = "started"
    COMPLETED = "completed"
    FAILED = "failed"
    """Settled as not happened, by the one who tried."""
    HAPPENED = "happened"
    """Reconciled: it did happen."""
    NOT_HAPPENED = "not_happened"
    """Reconciled: it did not."""
    COMPENSATED = "compensated"
    CANCELLED = "cancelled"

    @property
    def settled(self) -> bool:
        """Whether the outcome is known."""
        return self is not EffectState.STARTED

    @property
    def happened(self) -> bool:
        """Whether the world is as after the effect."""
        return self in (EffectState.COMPLETED, EffectState.HAPPENED)


@attrs.frozen
class EffectId:
    """Which effect this is: the same id is the same effect, whoever asks.

    ``lineage`` is the first lineage of the family, or with ``scope`` "lineage" the one that asks; ``key`` the caller's
    business key, or the digest (hex) of the canonical arguments; ``occurrence`` counts repeats on purpose from 1.
    """

    namespace: str
    scope: str
    lineage: str
    name: str
    key: str
    occurrence: int = 1

    @property
    def digest(self) -> bytes:
        """The SHA-256 (32 bytes) of ``DOMAIN`` and the canonical JSON of all fields."""
        return _digest(self)

    def forwarded(self, origin: str) -> str:
        """Return the idempotency key to hand to whoever carries the effect out: 64 hex digits, equal on every attempt.

        ``origin`` is the store's name, so that two stores never share one.
        """
        return digest(FORWARD + origin.encode() + b"\n" + self.digest).hex()

    def __str__(self) -> str:
        again = f" #{self.occurrence}" if self.occurrence > 1 else ""
        return f"{self.name!r}{again} (key {self.key:.20})"


@functools.lru_cache(maxsize=1024)
def _digest(effect: EffectId) -> bytes:
    return digest(DOMAIN + canonical.encode(attrs.asdict(effect)))


@attrs.frozen
class Owner:
    """The process that carries an effect out: machine start, process id space, id, and start in clock ticks."""

    boot: str
    space: str
    pid: int
    started: int

    def to_value(self) -> list[Any]:
        """Return the canonical JSON model."""
        return [self.boot, self.space, self.pid, self.started]

    def __str__(self) -> str:
        return f"process {self.pid}"


@attrs.frozen
class Place:
    """An entry: lineage and seq."""

    lineage: str
    seq: int


@attrs.frozen
class Effect:
    """All that is known of an effect after an entry about it. Each such entry holds the whole record.

    ``arguments`` and ``result`` are SHA-256 in hex of the canonical encodings (``result`` None: there is none);
    ``argued`` and ``resulted`` say which entries hold the values, None: this one. ``attempt`` counts those that were
    let go ahead: it is the fencing number. ``recorded``: filed after the fact. ``evidence`` counts late outcomes that
    were noted but not believed. ``who`` and ``why`` belong to a verdict, ``error`` to the last attempt.
    """

    id: EffectId
    keyed: bool
    policy: EffectPolicy
    arguments: str
    state: EffectState
    attempt: int
    owner: Owner | None = None
    result: str | None = None
    argued: Place | None = None
    resulted: Place | None = None
    recorded: bool = False
    evidence: int = 0
    who: str = ""
    why: str = ""
    error: str = ""

    @property
    def kind(self) -> int:
        """The class by which a restore judges it: 0 read-only, 1 idempotent, 2 any other, 3 recorded without a key, 4
        any other that only its own lineage asks about.
        """
        if self.policy.repeatable:
            return self.policy.rank
        if self.recorded and not self.keyed:
            return 3
        return 4 if self.id.scope == "lineage" else 2

    def to_value(self) -> dict[str, Any]:
        """Return the canonical JSON model, without what is as usual."""
        value: dict[str, Any] = {
            "arguments": self.arguments,
            "attempt": self.attempt,
            "lineage": self.id.lineage,
            "name": self.id.name,
            "policy": self.policy.value,
            "state": self.state.value,
        }
        rest: dict[str, tuple[Any, Any]] = {
            "argued": (self.argued, None),
            "error": (self.error, ""),
            "evidence": (self.evidence, 0),
            "key": (self.id.key if self.keyed else "", ""),
            "occurrence": (self.id.occurrence, 1),
            "owner": (self.owner, None),
            "recorded": (self.recorded, False),
            "result": (self.result, None),
            "resulted": (self.resulted, None),
            "scope": (self.id.scope, "family"),
            "who": (self.who, ""),
            "why": (self.why, ""),
        }
        value |= {name: found for name, (found, usual) in rest.items() if found != usual}
        for name in ("argued", "resulted"):
            if name in value:
                value[name] = [value[name].lineage, value[name].seq]
        if self.owner is not None:
            value["owner"] = self.owner.to_value()
        return value

    @classmethod
    def from_value(cls, value: Any, namespace: str) -> Effect:
        """Read what ``to_value`` wrote in an entry of ``namespace``. Raises CorruptError for anything else."""
        if type(value) is not dict:
            raise CorruptError(f"a stored effect is an object, not {type(value).__name__}")
        optional = ("argued", "error", "evidence", "key", "occurrence", "owner", "recorded", "result", "resulted")
        usual = {"scope": "family", "who": "", "why": "", "error": "", "key": "", "evidence": 0, "occurrence": 1}
        whole = dict.fromkeys(optional) | usual | {"recorded": False} | value
        names = ("arguments", "attempt", "lineage", "name", "policy", "state", "scope", "who", "why", *optional)
        fields = exact(whole, "effect", *names)
        try:
            made = _made(fields, namespace)
        except (ValueError, TypeError, InvalidStateError) as error:
            raise CorruptError(f"a stored effect cannot be read: {error}") from error
        if made.to_value() != value:
            raise CorruptError("a stored effect has another spelling than its own")
        return made


def _made(fields: dict[str, Any], namespace: str) -> Effect:
    keyed = fields["key"] != ""
    arguments = hex_digest(fields["arguments"], "effect")
    if fields["scope"] not in ("family", "lineage"):
        raise ValueError("its scope is unknown")
    for name, least in (("attempt", 0), ("evidence", 0), ("occurrence", 1)):
        if not is_step(fields[name]) or fields[name] < least:
            raise ValueError(f"its {name} is no number from {least} on")
    texts = [_text(fields[name]) for name in ("who", "why", "error")]
    if type(fields["recorded"]) is not bool:
        raise ValueError("a mark in it is neither true nor false")
    names = check_name(fields["lineage"], "lineage id"), check_name(fields["name"], "effect name")
    key = check_name(fields["key"], "effect key") if keyed else arguments
    return Effect(
        id=EffectId(namespace, fields["scope"], *names, key, fields["occurrence"]),
        keyed=keyed,
        policy=EffectPolicy(fields["policy"]),
        arguments=arguments,
        state=EffectState(fields["state"]),
        attempt=fields["attempt"],
        owner=_owner(fields["owner"]),
        result=None if fields["result"] is None else hex_digest(fields["result"], "effect"),
        argued=_place(fields["argued"]),
        resulted=_place(fields["resulted"]),
        recorded=fields["recorded"],
        evidence=fields["evidence"],
        who=texts[0],
        why=texts[1],
        error=texts[2],
    )


def _text(value: Any) -> str:
    if type(value) is not str or len(value) > TEXT_MAX:
        raise ValueError(f"a text in it is not one of at most {TEXT_MAX} characters")
    value.encode()  # UnicodeEncodeError is a ValueError
    return value


def _owner(value: Any) -> Owner | None:
    if value is None:
        return None
    boot, space, pid, started = value
    if not is_step(pid) or not is_step(started):
        raise ValueError("its owner is not a process")
    return Owner(_text(boot), _text(space), pid, started)


def _place(value: Any) -> Place | None:
    if value is None:
        return None
    lineage, seq = value
    if not is_step(seq) or seq < 1:
        raise ValueError("a place in it is no entry")
    return Place(check_name(lineage, "lineage id"), seq)
