"""The bindings in force at a checkpoint, their lock, and what an entry records when they change."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import attrs

from cpstore import canonical
from cpstore.digest import SIZE, digest
from cpstore.errors import CorruptError, InvalidStateError
from cpstore.model.binding import Binding, Directive, Retirement, Supersession, exact, hex_digest, stored

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DOMAIN = b"cpstore/glossary/v1\n"
"""What the lock's SHA-256 starts with, so that its input is never that of another digest."""


def _sorted(bindings: Iterable[Binding]) -> tuple[Binding, ...]:
    found = tuple(bindings)
    for binding in found:
        if not isinstance(binding, Binding):
            raise InvalidStateError(f"a glossary holds bindings, not {type(binding).__name__}")
    return tuple(sorted(found, key=lambda binding: str(binding.symbol)))


def _digest(given: bytes | str | None) -> bytes | None:
    if given is None:
        return None
    try:
        found = bytes.fromhex(given) if isinstance(given, str) else bytes(given)
    except (TypeError, ValueError):
        found = b""
    if len(found) != SIZE:
        raise InvalidStateError(f"a glossary digest is {SIZE} bytes or {2 * SIZE} hex digits, not {given!r:.100}")
    return found


@attrs.frozen
class Glossary:
    """Bindings, sorted by symbol (by code point).

    ``Glossary(bindings, digest)`` states the lock's digest too (32 bytes or hex); it is kept as ``declared`` and
    compared at the commit, while ``digest`` is always computed. Two glossaries with the same bindings are equal.
    Raises InvalidStateError for what is no binding or no digest; everything else the commit checks.
    """

    bindings: tuple[Binding, ...] = attrs.field(converter=_sorted, default=())
    declared: bytes | None = attrs.field(converter=_digest, default=None, alias="digest", eq=False)

    def __iter__(self) -> Iterator[Binding]:
        return iter(self.bindings)

    def __len__(self) -> int:
        return len(self.bindings)

    @property
    def task_wide(self) -> tuple[Binding, ...]:
        """The locked bindings."""
        return tuple(binding for binding in self.bindings if binding.locked)

    @property
    def digest(self) -> bytes:
        """The lock: 32 bytes, the SHA-256 of ``DOMAIN`` and the canonical JSON array of ``task_wide``.

        Raises InvalidStateError if a binding is malformed.
        """
        return digest(DOMAIN + canonical.encode([binding.to_value() for binding in self.task_wide]))

    def get(self, symbol: str) -> Binding | None:
        """Return the binding of a symbol, None if there is none."""
        return next((binding for binding in self.bindings if binding.symbol == symbol), None)

    def to_value(self) -> dict[str, Any]:
        """Return the canonical JSON model. Raises InvalidStateError if a binding is malformed."""
        return {
            "bindings": [binding.to_value() for binding in self.bindings],
            "digest": None if self.declared is None else self.declared.hex(),
        }

    @classmethod
    def from_value(cls, value: Any) -> Glossary:
        """Read what ``to_value`` wrote. Raises CorruptError for anything else."""
        fields = exact(value, "glossary", "bindings", "digest")
        bindings = tuple(Binding.from_value(part) for part in _list(fields["bindings"], "glossary"))
        _rising([binding.symbol for binding in bindings], "glossary")
        return cls(bindings, None if fields["digest"] is None else hex_digest(fields["digest"], "glossary"))


@attrs.frozen
class Change:
    """What one entry does to the glossary: established first, then superseded, then retired.

    ``digest`` is the lock afterwards, in hex. ``before`` has, for each superseded or retired symbol, the SHA-256 (hex)
    of the binding that the directive is bound to, or ``""`` where the symbol had been retired and an act below the head
    brings it back. Each part is sorted by symbol.
    """

    established: tuple[Binding, ...]
    superseded: tuple[Supersession, ...]
    retired: tuple[Retirement, ...]
    digest: str
    before: tuple[tuple[str, str], ...] = ()

    def to_value(self) -> dict[str, Any]:
        """Return the canonical JSON model: what an entry's detail stores under ``glossary``."""
        before = dict(self.before)
        return {
            "digest": self.digest,
            "established": [binding.to_value() for binding in self.established],
            "retired": [part.to_value() | {"before": before[part.symbol]} for part in self.retired],
            "superseded": [part.to_value() | {"before": before[part.binding.symbol]} for part in self.superseded],
        }

    @classmethod
    def from_value(cls, value: Any) -> Change:
        """Read what ``to_value`` wrote. Raises CorruptError for anything else."""
        what = "glossary change"
        fields = exact(value, what, "digest", "established", "retired", "superseded")
        established = tuple(Binding.from_value(part) for part in _list(fields["established"], what))
        superseded, before = [], {}
        for part in _list(fields["superseded"], what):
            order, replaced = _bound(part, "supersession", "binding")
            superseded.append(Supersession.from_value(order))
            before[superseded[-1].binding.symbol] = replaced
        retired = []
        for part in _list(fields["retired"], what):
            order, replaced = _bound(part, "retirement", "symbol")
            retired.append(Retirement.from_value(order))
            before[retired[-1].symbol] = replaced
        _rising([binding.symbol for binding in established], what)
        _rising([part.binding.symbol for part in superseded], what)
        _rising([part.symbol for part in retired], what)
        if len(before) != len(superseded) + len(retired):
            raise CorruptError(f"a stored {what} supersedes and retires one symbol")
        if any(made.established_at_step is None for made in (*established, *(part.binding for part in superseded))):
            raise CorruptError(f"a stored {what} does not say at which step a binding was established")
        digest_after = hex_digest(fields["digest"], what)
        return cls(established, tuple(superseded), tuple(retired), digest_after, tuple(sorted(before.items())))


@attrs.frozen
class Reread:
    """An order to read an older state under what a symbol means today.

    ``then`` and ``now`` are the SHA-256 (hex) of the symbol's binding at the older state and today, ``now`` is ``""``
    where nothing is in force any more.
    """

    symbol: str
    then: str
    now: str
    directive: Directive

    def to_value(self) -> dict[str, Any]:
        """Return the canonical JSON model."""
        order = self.directive.to_value()
        return {"directive": order, "now": self.now, "symbol": self.symbol, "then": self.then}

    @classmethod
    def from_value(cls, value: Any) -> Reread:
        """Read what ``to_value`` wrote. Raises CorruptError for anything else."""
        fields = exact(value, "reread", "directive", "now", "symbol", "then")
        subject = stored(Retirement(fields["symbol"], Directive.from_value(fields["directive"])), "reread")
        then, now = hex_digest(fields["then"], "reread"), _digest_or_none(fields["now"], "reread")
        return cls(subject.symbol, then, now, subject.directive)


def _list(value: Any, what: str) -> list[Any]:
    if type(value) is not list:
        raise CorruptError(f"a stored {what} has lists, not {type(value).__name__}")
    return value


def _bound(value: Any, what: str, subject: str) -> tuple[dict[str, Any], str]:
    order = exact(value, what, "before", "directive", subject)
    return order, _digest_or_none(order.pop("before"), what)


def _digest_or_none(value: Any, what: str) -> str:
    return "" if value == "" else hex_digest(value, what)


def _rising(symbols: list[str], what: str) -> None:
    if any(left >= right for left, right in itertools.pairwise(symbols)):
        raise CorruptError(f"a stored {what} is not sorted by symbol, or names one twice")
