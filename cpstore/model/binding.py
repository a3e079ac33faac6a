"""A resolved ambiguity, and the orders that may change it once it is locked."""

from __future__ import annotations

import enum
import functools
from typing import Any, TypeVar

import attrs

from cpstore import canonical
from cpstore.digest import SIZE, digest
from cpstore.errors import CorruptError, InvalidStateError

_HEX = frozenset("0123456789abcdef")
Record = TypeVar("Record", "Binding", "Directive", "Retirement")


class Scope(enum.Enum):
    """How long a binding holds."""

    TASK_WIDE = "TaskWide"
    """For the rest of the task: locked."""
    STEP_LOCAL = "StepLocal"
    """For commits of its own step only: never locked."""


@functools.total_ordering
class Authority(enum.Enum):
    """Who settled a binding or ordered a change, in rising order: ``AGENT < USER < DEVELOPER < SYSTEM``."""

    AGENT = "agent"
    USER = "user"
    DEVELOPER = "developer"
    SYSTEM = "system"

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Authority):
            return NotImplemented
        return _RISING.index(self) < _RISING.index(other)


_RISING = tuple(Authority)


@attrs.frozen
class Binding:
    """One resolved ambiguity: what ``symbol`` means.

    ``constraint`` is the unit, range or other condition on it, ``""`` where there is none; ``established_at_step`` is
    the caller's step, filled in by the commit where it is None; ``verbatim`` marks an id, host or number that has to
    survive summaries letter by letter. The commit checks the fields, not the constructor.
    """

    symbol: str
    definition: str
    constraint: str = ""
    scope: Scope = Scope.TASK_WIDE
    authority: Authority = Authority.AGENT
    established_at_step: int | None = None
    verbatim: bool = False

    @property
    def locked(self) -> bool:
        """Whether the binding is under the glossary lock (TaskWide)."""
        return self.scope is Scope.TASK_WIDE

    @property
    def digest(self) -> bytes:
        """The SHA-256 (32 bytes) of the binding's canonical JSON: what a directive is bound to."""
        return digest(canonical.encode(self.to_value()))

    def fault(self) -> str:
        """Say what is wrong with the fields, ``""`` if nothing is."""
        for name, text, optional in (
            ("symbol", self.symbol, False),
            ("definition", self.definition, False),
            ("constraint", self.constraint, True),
        ):
            wrong = "" if optional and text == "" else _text_fault(text)
            if wrong:
                return f"its {name} is {wrong}"
        return _member_fault("scope", self.scope, Scope) or self._rest_fault()

    def _rest_fault(self) -> str:
        wrong = _member_fault("authority", self.authority, Authority)
        if wrong:
            return wrong
        if self.established_at_step is not None and not is_step(self.established_at_step):
            return f"its established_at_step {self.established_at_step!r} is not a step: use 0 to 2^53 - 1 or None"
        verbatim: object = self.verbatim
        return "" if isinstance(verbatim, bool) else f"its verbatim {verbatim!r} is not a bool"

    def to_value(self) -> dict[str, Any]:
        """Return the canonical JSON model, all fields. Raises InvalidStateError if one is malformed."""
        _sound(self, f"binding {self.symbol!r}")
        return {
            "authority": self.authority.value,
            "constraint": self.constraint,
            "definition": self.definition,
            "established_at_step": self.established_at_step,
            "scope": self.scope.value,
            "symbol": self.symbol,
            "verbatim": self.verbatim,
        }

    @classmethod
    def from_value(cls, value: Any) -> Binding:
        """Read what ``to_value`` wrote. Raises CorruptError for anything else."""
        fields = exact(value, "binding", *(field.name for field in attrs.fields(cls)))
        try:
            scope, authority = Scope(fields.pop("scope")), Authority(fields.pop("authority"))
        except ValueError as error:
            raise CorruptError(f"a stored binding cannot be read: {error}") from error
        return stored(cls(scope=scope, authority=authority, **fields), "binding")


@attrs.frozen
class Directive:
    """Who ordered a change, and on what ground.

    ``reference`` says where the order can be found ("message 41", a ticket), ``text`` what it says. Without a trust
    file both are claims of the writer.
    """

    authority: Authority
    reference: str
    text: str

    def fault(self) -> str:
        """Say what is wrong with the fields, ``""`` if nothing is."""
        for name, text in (("reference", self.reference), ("text", self.text)):
            wrong = _text_fault(text)
            if wrong:
                return f"its {name} is {wrong}"
        return _member_fault("authority", self.authority, Authority)

    def to_value(self) -> dict[str, Any]:
        """Return the canonical JSON model. Raises InvalidStateError if a field is malformed."""
        _sound(self, "directive")
        return {"authority": self.authority.value, "reference": self.reference, "text": self.text}

    @classmethod
    def from_value(cls, value: Any) -> Directive:
        """Read what ``to_value`` wrote. Raises CorruptError for anything else."""
        fields = exact(value, "directive", "authority", "reference", "text")
        try:
            authority = Authority(fields.pop("authority"))
        except ValueError as error:
            raise CorruptError(f"a stored directive cannot be read: {error}") from error
        return stored(cls(authority=authority, **fields), "directive")


@attrs.frozen
class Supersession:
    """An order that ``binding`` takes the place of what is in force under its symbol."""

    binding: Binding
    directive: Directive

    def fault(self) -> str:
        """Say what is wrong with the parts, ``""`` if nothing is."""
        binding: object = self.binding
        if not isinstance(binding, Binding):
            return f"it has no new binding, but {binding!r}: to end a definition use Retirement(symbol, directive)"
        return binding.fault() or _directive_fault(self.directive)

    def to_value(self) -> dict[str, Any]:
        """Return the canonical JSON model. Raises InvalidStateError if a part is malformed."""
        _sound(self, "supersession")
        return {"binding": self.binding.to_value(), "directive": self.directive.to_value()}

    @classmethod
    def from_value(cls, value: Any) -> Supersession:
        """Read what ``to_value`` wrote. Raises CorruptError for anything else."""
        fields = exact(value, "supersession", "binding", "directive")
        return cls(Binding.from_value(fields["binding"]), Directive.from_value(fields["directive"]))


@attrs.frozen
class Retirement:
    """An order that nothing is in force under ``symbol`` any more."""

    symbol: str
    directive: Directive

    def fault(self) -> str:
        """Say what is wrong with the parts, ``""`` if nothing is."""
        wrong = _text_fault(self.symbol)
        return f"its symbol is {wrong}" if wrong else _directive_fault(self.directive)

    def to_value(self) -> dict[str, Any]:
        """Return the canonical JSON model. Raises InvalidStateError if a part is malformed."""
        _sound(self, "retirement")
        return {"directive": self.directive.to_value(), "symbol": self.symbol}

    @classmethod
    def from_value(cls, value: Any) -> Retirement:
        """Read what ``to_value`` wrote. Raises CorruptError for anything else."""
        fields = exact(value, "retirement", "directive", "symbol")
        return stored(cls(fields["symbol"], Directive.from_value(fields["directive"])), "retirement")


def is_step(value: object) -> bool:
    """Whether ``value`` is a step: an integer from 0 to 2^53 - 1, and not a bool."""
    return type(value) is int and 0 <= value <= canonical.MAX_INTEGER


def exact(value: Any, what: str, *names: str) -> dict[str, Any]:
    """Return a copy of the dict ``value`` if it has exactly these keys. Raises CorruptError otherwise."""
    if type(value) is not dict or set(value) != set(names):
        raise CorruptError(f"a stored {what} has the fields {', '.join(sorted(names))}, not these: {value!r:.200}")
    return dict(value)


def hex_digest(value: Any, what: str) -> str:
    """Return ``value`` if it is a SHA-256 in lower-case hex. Raises CorruptError otherwise."""
    if type(value) is not str or len(value) != 2 * SIZE or not set(value) <= _HEX:
        raise CorruptError(f"a stored {what} has a digest of {2 * SIZE} hex digits, not {value!r:.100}")
    return value


def stored(record: Record, what: str) -> Record:
    """Return a record that was read if it is sound. Raises CorruptError otherwise."""
    wrong = record.fault()
    if wrong:
        raise CorruptError(f"a stored {what} cannot be read: {wrong}")
    return record


def _sound(record: Binding | Directive | Supersession | Retirement, what: str) -> None:
    wrong = record.fault()
    if wrong:
        raise InvalidStateError(f"a {what} cannot be stored: {wrong}")


def _member_fault(name: str, value: object, kind: type[enum.Enum]) -> str:
    if isinstance(value, kind):
        return ""
    return f"its {name} {value!r} is unknown: use {' or '.join(str(member) for member in kind)}"


def _directive_fault(directive: object) -> str:
    if not isinstance(directive, Directive):
        return f"it has no directive, but {directive!r}: say who ordered it, Directive(authority, reference, text)"
    wrong = directive.fault()
    return f"of its directive, {wrong}" if wrong else ""


def _text_fault(text: object) -> str:
    if type(text) is not str:
        return f"not text, but {type(text).__name__}"
    if not text.strip():
        return "blank"
    return "text with a lone surrogate" if any("\ud800" <= character <= "\udfff" for character in text) else ""
