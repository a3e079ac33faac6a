"""State values to bytes and back: MessagePack, with a tag for each Python type it has no word for.

What is encoded comes back equal and of the same type, except that ``bytearray`` and ``memoryview`` come back
as ``bytes``. Everything else is refused with its path. The tags are listed in docs/format.md.
"""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import msgspec
import ormsgpack

from cpstore.errors import CorruptError, InvalidStateError
from cpstore.snapshot import pointer

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_DEPTH = 200
"""How deeply mappings and lists may nest."""

TUPLE, SET, FROZENSET, DATETIME, DATE, TIME, DURATION, UUID, DECIMAL, INTEGER, TEXT = range(1, 12)
SHARED = 32
"""The tag of a reference to a shared value: made by the store, never by a caller's value."""

_OPTIONS = (
    ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)


class _Broken:
    """Stands for a text with lone surrogates, which MessagePack's UTF-8 cannot hold."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def encode(value: object, path: str = "") -> bytes:
    """Return the bytes of a value that sits at ``path`` in the state.

    Raises InvalidStateError, naming the place, for a type without a tag, a key that is not text, a cycle, or
    nesting beyond ``MAX_DEPTH``.
    """
    try:
        return ormsgpack.packb(value, _tag, _OPTIONS)
    except (TypeError, ValueError, RecursionError) as error:
        mended = _inspect(value, pointer.parse(path), 0)
        try:
            return ormsgpack.packb(mended, _tag, _OPTIONS)
        except (TypeError, ValueError, RecursionError):
            raise InvalidStateError(f"cannot be stored: {error}", path) from error


def decode(data: bytes, shared: Callable[[bytes], object] | None = None) -> Any:
    """Return a fresh value from bytes that ``encode`` made.

    ``shared`` resolves references to shared values. Raises CorruptError for anything else, unknown tags included.
    """
    try:
        return msgspec.msgpack.decode(data, ext_hook=_untag if shared is None else _Resolver(shared))
    except (msgspec.MsgspecError, ValueError, TypeError, ArithmeticError, RecursionError) as error:
        raise CorruptError(f"stored value cannot be read: {error}") from error


class _Resolver:
    """The hook for values that may refer to shared ones, at any depth."""

    __slots__ = ("shared",)

    def __init__(self, shared: Callable[[bytes], object]) -> None:
        self.shared = shared

    def __call__(self, code: int, data: memoryview) -> object:
        return self.shared(bytes(data)) if code == SHARED else _untag(code, data)


def _pack(value: object) -> bytes:
    return ormsgpack.packb(value, _tag, _OPTIONS)


def _zone(tz: dt.tzinfo | None) -> str:
    if tz is None or type(tz) is dt.timezone:
        return ""
    if type(tz) is ZoneInfo and tz.key:
        return tz.key
    raise TypeError(f"time zone {tz!r} is neither a fixed offset nor a named zone")


def _tag(value: Any) -> ormsgpack.Ext:  # noqa: PLR0911 - one line a type
    kind = type(value)
    if kind is tuple:
        return ormsgpack.Ext(TUPLE, _pack(list(value)))
    if kind is set or kind is frozenset:
        body = b"".join(sorted(_pack(item) for item in value))
        return ormsgpack.Ext(SET if kind is set else FROZENSET, array_header(len(value)) + body)
    if kind is dt.datetime:
        return ormsgpack.Ext(
            DATETIME,
            _pack(
                [
                    value.replace(tzinfo=None).isoformat() if _zone(value.tzinfo) else value.isoformat(),
                    _zone(value.tzinfo),
                    value.fold,
                ]
            ),
        )
    if kind is dt.date:
        return ormsgpack.Ext(DATE, value.isoformat().encode())
    if kind is dt.time:
        if value.tzinfo is not None:
            raise TypeError("a time of day with a time zone")
        return ormsgpack.Ext(TIME, _pack([value.isoformat(), value.fold]))
    if kind is dt.timedelta:
        return ormsgpack.Ext(DURATION, _pack([value.days, value.seconds, value.microseconds]))
    if kind is uuid.UUID:
        return ormsgpack.Ext(UUID, value.bytes)
    if kind is Decimal:
        return ormsgpack.Ext(DECIMAL, str(value).encode())
    if kind is int:
        return ormsgpack.Ext(INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))
    if kind is _Broken:
        return ormsgpack.Ext(TEXT, value.text.encode("utf-8", "surrogatepass"))
    raise TypeError(f"{kind.__qualname__} has no tag")


def _untag(code: int, data: memoryview) -> object:  # noqa: PLR0911 - one line a type
    body = bytes(data)
    if code == TUPLE:
        return tuple(_inner(body))
    if code == SET:
        return set(_inner(body))
    if code == FROZENSET:
        return frozenset(_inner(body))
    if code == DATETIME:
        text, zone, fold = _inner(body)
        moment = dt.datetime.fromisoformat(text).replace(fold=fold)
        return moment.replace(tzinfo=ZoneInfo(zone)) if zone else moment
    if code == DATE:
        return dt.date.fromisoformat(body.decode())
    if code == TIME:
        text, fold = _inner(body)
        return dt.time.fromisoformat(text).replace(fold=fold)
    if code == DURATION:
        return dt.timedelta(*_inner(body))
    if code == UUID:
        return uuid.UUID(bytes=body)
    if code == DECIMAL:
        return Decimal(body.decode())
    if code == INTEGER:
        return int.from_bytes(body, "big", signed=True)
    if code == TEXT:
        return body.decode("utf-8", "surrogatepass")
    raise ValueError(f"unknown type tag {code}: written by a newer release, or damaged")


def _inner(body: bytes) -> Any:
    return msgspec.msgpack.decode(body, ext_hook=_untag)


_PLAIN = (type(None), bool, int, float, str, bytes, bytearray, memoryview)
_TAGGED = (dt.datetime, dt.date, dt.time, dt.timedelta, uuid.UUID, Decimal)


def _inspect(value: Any, at: tuple[str, ...], depth: int) -> Any:
    """Name the place that cannot be stored, or return the value with broken texts wrapped."""
    kind = type(value)
    if kind in (dict, list, tuple, set, frozenset) and depth >= MAX_DEPTH:
        raise InvalidStateError(f"nested more than {MAX_DEPTH} deep, or a cycle", pointer.spell(at[:8]) + "/…")
    if kind is dict:
        return {check_key(key, at): _inspect(child, (*at, key), depth + 1) for key, child in value.items()}
    if kind in (list, tuple, set, frozenset):
        return kind(_inspect(child, (*at, str(n)), depth + 1) for n, child in enumerate(value))
    if kind is str:
        return value if _encodable(value) else _Broken(value)
    if kind in _PLAIN:
        return value
    if kind in _TAGGED:
        try:
            _tag(value)
        except TypeError as error:
            raise InvalidStateError(str(error), pointer.spell(at)) from error
        return value
    raise InvalidStateError(
        f"a value of type {kind.__module__}.{kind.__qualname__} cannot be stored",
        pointer.spell(at),
        "convert it to plain JSON-like values first",
    )


def check_key(key: object, at: tuple[str, ...]) -> str:
    """Return a mapping's key. Raises InvalidStateError, naming the mapping at ``at``, if it is not storable text."""
    if type(key) is not str:
        raise InvalidStateError(f"key {key!r} is not text", pointer.spell(at), "mappings have text keys")
    if not _encodable(key):
        raise InvalidStateError(f"key {key!a} has a lone surrogate", pointer.spell(at))
    return key


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# --- the shape of encoded bytes: enough to split them without making objects -----------------------------------

_LIST = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_MAP = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode


def array_header(count: int) -> bytes:
    """Return the MessagePack header of an array."""
    if count < 16:
        return bytes((0x90 | count,))
    if count < 65536:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")


def is_array(data: bytes, at: int = 0) -> bool:
    """Whether the encoded value is a list."""
    return data[at] & 0xF0 == 0x90 or data[at] in (0xDC, 0xDD)


def is_map(data: bytes, at: int = 0) -> bool:
    """Whether the encoded value is a mapping."""
    return data[at] & 0xF0 == 0x80 or data[at] in (0xDE, 0xDF)


def array_count(data: bytes, at: int = 0) -> tuple[int, int]:
    """Return (number of items, length of the header)."""
    first = data[at]
    if first & 0xF0 == 0x90:
        return first & 0x0F, 1
    size = 2 if first == 0xDC else 4
    return int.from_bytes(data[at + 1 : at + 1 + size], "big"), 1 + size


def split_array(data: bytes) -> list[bytes]:
    """Return the encoded items of an encoded list."""
    return [bytes(raw) for raw in _LIST(data)]


def split_map(data: bytes, start: int, end: int) -> dict[str, tuple[int, int]]:
    """Return key to (start, end) of each child of the mapping at ``data[start:end]``."""
    spans: dict[str, tuple[int, int]] = {}
    at = start + (1 if data[start] & 0xF0 == 0x80 else 3 if data[start] == 0xDE else 5)
    for key, raw in _MAP(memoryview(data)[start:end]).items():
        size = len(key.encode())
        at += size + (1 if size < 32 else 2 if size < 256 else 3 if size < 65536 else 5)
        length = len(memoryview(raw))
        spans[key] = (at, at + length)
        at += length
    return spans
