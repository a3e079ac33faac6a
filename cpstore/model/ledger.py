"""What a shared ledger holds, who reads and writes it, and what its peers are told."""

from __future__ import annotations

import enum
import itertools
import typing
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar

import attrs

from cpstore import canonical
from cpstore.digest import SIZE
from cpstore.errors import CorruptError, InvalidStateError
from cpstore.model.binding import exact, is_step
from cpstore.model.names import check_name

if TYPE_CHECKING:
    from collections.abc import Mapping

EventKind = Literal["compacted", "shrunk", "superseded", "restored"]
EVENT_KINDS: tuple[EventKind, ...] = typing.get_args(EventKind)
_HEX = frozenset("0123456789abcdef")


class _Faulty(Protocol):
    def fault(self) -> str: ...


Record = TypeVar("Record", bound=_Faulty)


class Status(enum.Enum):
    """What a peer may do in a shared ledger."""

    ACTIVE = "active"
    """Read and write."""
    SUSPECT = "suspect"
    """Only read: it wrote what it had not read, or its context shrank. ``revalidate`` ends it."""
    READ_ONLY = "read_only"
    """Only read: its context was compacted or restored. ``revalidate`` ends it."""


class Absent(enum.Enum):
    """The type of ``ABSENT``."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
"""In the place of a citation: the writer claims that the key is new."""


@attrs.frozen
class Seen:
    """What a write cites: the value of ``key`` as it was read.

    ``revision`` counts the key's values from 1, ``digest`` is the value's SHA-256 in hex, ``position`` the ledger's
    newest seq when it was read.
    """

    ledger: str
    key: str
    revision: int
    digest: str
    position: int

    def fault(self) -> str:
        """Say what is wrong with the fields, ``""`` if nothing is."""
        return (
            name_fault(self.ledger, "ledger")
            or name_fault(self.key, "key")
            or count_fault(self.revision, "revision", first=1)
            or digest_fault(self.digest)
            or count_fault(self.position, "position", first=1)
        )

    def to_value(self) -> dict[str, Any]:
        """Return the canonical JSON model."""
        return attrs.asdict(self)

    @classmethod
    def from_value(cls, value: Any) -> Seen:
        """Read what ``to_value`` wrote. Raises CorruptError for anything else."""
        what = "citation of a key"
        return readable(cls(**exact(value, what, *(field.name for field in attrs.fields(cls)))), what)


@attrs.frozen
class Held:
    """What a ledger holds under a key now: the entry ``seq`` gave it this ``revision``; ``digest`` is hex SHA-256."""

    revision: int
    digest: str
    seq: int

    def fault(self) -> str:
        """Say what is wrong with the fields, ``""`` if nothing is."""
        return (
            count_fault(self.revision, "revision", first=1)
            or digest_fault(self.digest)
            or count_fault(self.seq, "seq", first=1)
        )

    def to_value(self) -> dict[str, Any]:
        """Return the canonical JSON model."""
        return attrs.asdict(self)

    @classmethod
    def from_value(cls, value: Any) -> Held:
        """Read what ``to_value`` wrote. Raises CorruptError for anything else."""
        what = "value of a key"
        return readable(cls(**exact(value, what, *(field.name for field in attrs.fields(cls)))), what)


@attrs.frozen
class Member:
    """A peer's membership in a ledger; it outlives ``leave``.

    ``id`` is what ``member_id`` gives; ``cause`` says why the status is not active (``""`` when it is); what was read
    at a ledger position (seq) up to ``void`` counts no more (0: everything counts); ``keys`` are those it has read or
    written and, while it is not active, has to present to ``revalidate``; ``kept`` those that it need not present,
    since the compacted state has them whole; ``lock`` has ``(symbol, SHA-256 of the meaning in hex)`` of each TaskWide
    binding of its lineage; ``present`` is False after it left. The tuples are sorted.
    """

    id: str
    peer: str
    lineage: str | None
    status: Status = Status.ACTIVE
    cause: str = ""
    void: int = 0
    keys: tuple[str, ...] = ()
    lock: tuple[tuple[str, str], ...] = ()
    present: bool = True
    kept: tuple[str, ...] = ()

    @property
    def active(self) -> bool:
        """Whether the member may write, as far as its status says."""
        return self.status is Status.ACTIVE

    @property
    def known(self) -> frozenset[str]:
        """The keys that the member has read or written."""
        return frozenset(self.keys).union(self.kept)

    def fault(self) -> str:
        """Say what is wrong with the fields, ``""`` if nothing is."""
        return (
            name_fault(self.peer, "peer")
            or ("" if self.lineage is None else name_fault(self.lineage, "lineage id"))
            or text_fault(self.cause, "cause")
            or count_fault(self.void, "void", first=0)
            or ("" if type(self.present) is bool else f"present is a bool, not {self.present!r:.100}")
            or next(filter(None, (name_fault(key, "key") for key in (*self.keys, *self.kept))), "")
            or next(filter(None, map(_lock_fault, self.lock)), "")
            or self._rest_fault()
        )

    def _rest_fault(self) -> str:
        if self.id != member_id(self.peer, self.lineage):
            return f"peer {self.peer!r} of lineage {self.lineage!r} has the id {self.id!r:.300}"
        if self.active and (self.cause or self.kept):
            return f"{self.peer!r} is active, but says why it is not"
        if not frozenset(self.kept).isdisjoint(self.keys):
            return f"{self.peer!r} has kept keys that it has to present"
        symbols = tuple(symbol for symbol, _ in self.lock)
        return unsorted(self.keys) or unsorted(self.kept) or unsorted(symbols)

    def to_value(self) -> dict[str, Any]:
        """Return the canonical JSON model, all fields."""
        return {
            "cause": self.cause,
            "id": self.id,
            "kept": list(self.kept),
            "keys": list(self.keys),
            "lineage": self.lineage,
            "lock": [list(pair) for pair in self.lock],
            "peer": self.peer,
            "present": self.present,
            "status": self.status.value,
            "void": self.void,
        }

    @classmethod
    def from_value(cls, value: Any) -> Member:
        """Read what ``to_value`` wrote. Raises CorruptError for anything else."""
        what = "member"
        fields = exact(value, what, *(field.name for field in attrs.fields(cls)))
        try:
            fields["status"] = Status(fields["status"])
        except ValueError as error:
            raise CorruptError(f"a stored {what} cannot be read: {error}") from error
        fields["keys"], fields["kept"] = tuple(items(fields["keys"], what)), tuple(items(fields["kept"], what))
        fields["lock"] = tuple(tuple(items(pair, what)) for pair in items(fields["lock"], what))
        return readable(cls(**fields), what)


@attrs.frozen
class Event:
    """What a ledger tells every peer, at the seq ``position`` of its stream.

    ``peer`` is the name of whom it is about; ``lineage`` and ``revision`` are where that came from (None: the peer has
    no lineage, or reports by itself); ``text`` one line for people; ``time`` a label in microseconds UTC since 1970;
    ``detail`` what only this kind has, in the canonical JSON model.
    """

    ledger: str
    position: int
    kind: EventKind
    peer: str
    lineage: str | None
    revision: int | None
    text: str
    time: int
    detail: Mapping[str, Any] = attrs.field(factory=dict)

    def fault(self) -> str:
        """Say what is wrong with the fields, ``""`` if nothing is."""
        return (
            name_fault(self.ledger, "ledger")
            or count_fault(self.position, "position", first=1)
            or ("" if self.kind in EVENT_KINDS else f"it is {', '.join(EVENT_KINDS)}, not {self.kind!r:.100}")
            or name_fault(self.peer, "peer")
            or ("" if self.lineage is None else name_fault(self.lineage, "lineage id"))
            or ("" if self.revision is None else count_fault(self.revision, "revision", first=1))
            or text_fault(self.text, "text")
            or count_fault(self.time, "time", first=0)
            or self._detail_fault()
        )

    def _detail_fault(self) -> str:
        if type(self.detail) is not dict:
            return f"its detail is a dict, not {type(self.detail).__name__}"
        try:
            canonical.encode(self.detail)
        except InvalidStateError as error:
            return f"in its detail, {error}"
        return ""

    def to_value(self) -> dict[str, Any]:
        """Return the canonical JSON model."""
        return attrs.asdict(self, recurse=False) | {"detail": dict(self.detail)}

    @classmethod
    def from_value(cls, value: Any) -> Event:
        """Read what ``to_value`` wrote. Raises CorruptError for anything else."""
        return readable(cls(**exact(value, "event", *(field.name for field in attrs.fields(cls)))), "event")


def member_id(peer: str, lineage: str | None) -> str:
    """Return what a membership is filed under: its lineage's id, or the peer's name where it has no lineage."""
    return f"peer:{peer}" if lineage is None else f"lineage:{lineage}"


def readable(record: Record, what: str) -> Record:
    """Return a record that was read if it is sound. Raises CorruptError otherwise."""
    wrong = record.fault()
    if wrong:
        raise CorruptError(f"a stored {what} cannot be read: {wrong}")
    return record


def items(value: Any, what: str) -> list[Any]:
    """Return ``value`` if it is a list. Raises CorruptError otherwise."""
    if type(value) is not list:
        raise CorruptError(f"a stored {what} has lists, not {type(value).__name__}")
    return value


def name_fault(value: Any, kind: str) -> str:
    """Say why ``value`` cannot name a ``kind``, ``""`` if it can."""
    try:
        check_name(value, kind)
    except InvalidStateError as error:
        return str(error)
    return ""


def text_fault(value: Any, field: str) -> str:
    """Say why ``value`` is no text that can be stored, ``""`` if it is one, perhaps an empty one."""
    if type(value) is not str:
        return f"its {field} is text, not {type(value).__name__}"
    return f"its {field} has a lone surrogate" if any("\ud800" <= one <= "\udfff" for one in value) else ""


def count_fault(value: Any, field: str, *, first: int) -> str:
    """Say why ``value`` is no integer from ``first`` to 2^53 - 1, ``""`` if it is."""
    return "" if is_step(value) and value >= first else f"its {field} is an integer from {first} on, not {value!r:.100}"


def digest_fault(value: Any) -> str:
    """Say why ``value`` is no SHA-256 in lower-case hex, ``""`` if it is."""
    fits = type(value) is str and len(value) == 2 * SIZE and _HEX.issuperset(value)
    return "" if fits else f"its digest has {2 * SIZE} hex digits, unlike {value!r:.100}"


def unsorted(values: tuple[Any, ...]) -> str:
    """Say that ``values`` are not sorted, or name one twice; ``""`` if they rise."""
    falls = any(left >= right for left, right in itertools.pairwise(values))
    return f"a list is not sorted, or names one twice: {values!r:.200}" if falls else ""


def _lock_fault(pair: Any) -> str:
    if len(pair) != 2:
        return f"it locks pairs of symbol and digest, not {pair!r:.200}"
    return text_fault(pair[0], "symbol") or digest_fault(pair[1])
