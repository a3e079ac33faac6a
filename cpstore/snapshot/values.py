"""State values to bytes and back: MessagePack, with a tag for each Python type it has no word for.

What is encoded comes back equal and of the same type, except that ``bytearray`` and ``memoryview`` come back
as ``bytes``. Everything else is refused with its path. The tags are listed in docs/format.md.
"""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
import ormsgpack

from cpstore.errors import CheckpointStoreError, CorruptError, HostLimitError, InvalidStateError
from cpstore.snapshot import pointer

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_DEPTH = 128
"""How deeply mappings, lists, tuples and sets may nest, the state itself counted. Up to three frames of the call stack
follow a level, and the stack has a thousand, most of them the caller's.
"""

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
    """Return the bytes of a value that is to stand at ``path`` in the state.

    Raises InvalidStateError, naming the place, for a type without a tag, a key that is not text, a cycle, or
    nesting beyond ``MAX_DEPTH``; HostLimitError where the call stack has no room.
    """
    enc = bytes_of(value, path)
    check(value, path)
    return enc


def bytes_of(value: object, path: str = "") -> bytes:
    """Return what ``encode`` does, without ``check``: to be compared with bytes that passed it.

    Raises what ``encode`` does for what has no bytes at all.
    """
    try:
        return _pack(value)
    except (TypeError, ValueError, RecursionError):
        try:
            return _pack(_inspect(value, pointer.parse(path)))
        except (TypeError, ValueError, RecursionError) as error:
            raise HostLimitError(NO_ROOM) from error


def check(value: object, path: str) -> None:
    """Refuse a value at ``path`` that nests too deeply, or that holds what the encoder writes without asking.

    The encoder's own limit starts anew in each tuple and knows no path. Raises InvalidStateError with the place.
    """
    level = [value] if type(value) in _LOOKED_INTO else []
    depth = path.count("/")
    try:
        while level:
            depth += 1
            if depth > MAX_DEPTH:
                break
            level = [
                child
                for above in level
                for child in (tuple(above.values()) if type(above) is dict else above)  # type: ignore[attr-defined]
                if type(child) in _LOOKED_INTO
            ]
    except TypeError:  # an Ext has no children
        pass
    if level:
        _refuse(value, path)


def _refuse(value: object, path: str) -> None:
    try:
        _inspect(value, pointer.parse(path))
    except RecursionError as error:
        raise HostLimitError(NO_ROOM) from error
    raise InvalidStateError("the value changed while it was looked at", path)


def canonical(value: object) -> bytes:
    """Return bytes that are equal for equal values, whatever the order of keys in their mappings.

    They are hashed to tell whether two calls ask for the same; nothing stores them. ``value`` is one that ``encode``
    accepts. Raises InvalidStateError as it does.
    """
    fresh = decode(encode(value))
    try:
        return _pack_sorted(fresh)
    except TypeError:  # texts with lone surrogates, which the encoder does not hand on
        return _pack_sorted(_inspect(fresh, ()))


def decode(data: bytes, shared: Callable[[bytes], object] | None = None) -> Any:
    """Return a fresh value from bytes that ``encode`` made.

    ``shared`` resolves references to shared values. Raises CorruptError for anything else, unknown tags included, and
    HostLimitError where the call stack has no room or the time zone database lacks a zone.
    """
    try:
        return _decode(data, ext_hook=_untag if shared is None else _Resolver(shared))
    except CheckpointStoreError:
        raise
    except RecursionError as error:
        raise HostLimitError(NO_ROOM) from error
    except (msgspec.MsgspecError, ValueError, TypeError, ArithmeticError, LookupError, AttributeError) as error:
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


def _pack_sorted(value: object) -> bytes:
    return ormsgpack.packb(value, _tag_sorted, _OPTIONS | ormsgpack.OPT_SORT_KEYS)


def _tag_sorted(value: Any) -> ormsgpack.Ext:
    return _tag(value, _pack_sorted)


def _zone(moment: dt.datetime) -> str:
    """Return the name by which a reader finds a moment's time zone, ``""`` for none or a fixed offset."""
    tz = moment.tzinfo
    if tz is None or type(tz) is dt.timezone:
        return ""
    if type(tz) is not ZoneInfo or not tz.key:
        raise TypeError(f"time zone {tz!r} is neither a fixed offset nor a named zone")
    try:
        known = ZoneInfo(tz.key)
    except (LookupError, ValueError, OSError) as error:
        raise TypeError(f"time zone {tz.key!r} is not in the time zone database") from error
    if known is not tz and _about(moment) != _about(moment.replace(tzinfo=known)):
        raise TypeError(f"time zone {tz.key!r} is not the one of that name in the time zone database")
    return tz.key


def _about(moment: dt.datetime) -> tuple[object, ...]:
    return moment.utcoffset(), moment.dst(), moment.tzname()


def _find_zone(key: str) -> ZoneInfo:
    try:
        return ZoneInfo(key)
    except (ZoneInfoNotFoundError, OSError) as error:
        raise HostLimitError(
            f"a stored date is in the time zone {key!r}, which this machine's time zone database has not; "
            "install or update tzdata"
        ) from error


def _tag(value: Any, pack: Callable[[object], bytes] = _pack) -> ormsgpack.Ext:  # noqa: PLR0911 - one line a type
    kind = type(value)
    if kind is tuple:
        return ormsgpack.Ext(TUPLE, pack(list(value)))
    if kind is set or kind is frozenset:
        body = b"".join(sorted(pack(item) for item in value))
        return ormsgpack.Ext(SET if kind is set else FROZENSET, array_header(len(value)) + body)
    if kind is dt.datetime:
        zone = _zone(value)
        text = (value.replace(tzinfo=None) if zone else value).isoformat()
        return ormsgpack.Ext(DATETIME, pack([text, zone, value.fold]))
    if kind is dt.date:
        return ormsgpack.Ext(DATE, value.isoformat().encode())
    if kind is dt.time:
        if value.tzinfo is not None:
            raise TypeError("a time of day with a time zone")
        return ormsgpack.Ext(TIME, pack([value.isoformat(), value.fold]))
    if kind is dt.timedelta:
        return ormsgpack.Ext(DURATION, pack([value.days, value.seconds, value.microseconds]))
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
        return tuple(_decode(body, ext_hook=_untag))
    if code == SET:
        return set(_decode(body, ext_hook=_untag))
    if code == FROZENSET:
        return frozenset(_decode(body, ext_hook=_untag))
    if code == DATETIME:
        text, zone, fold = _decode(body)
        moment = dt.datetime.fromisoformat(text).replace(fold=fold)
        return moment.replace(tzinfo=_find_zone(zone)) if zone else moment
    if code == DATE:
        return dt.date.fromisoformat(body.decode())
    if code == TIME:
        text, fold = _decode(body)
        return dt.time.fromisoformat(text).replace(fold=fold)
    if code == DURATION:
        return dt.timedelta(*_decode(body))
    if code == UUID:
        return uuid.UUID(bytes=body)
    if code == DECIMAL:
        return Decimal(body.decode())
    if code == INTEGER:
        return int.from_bytes(body, "big", signed=True)
    if code == TEXT:
        return body.decode("utf-8", "surrogatepass")
    raise ValueError(f"unknown type tag {code}: written by a newer release, or damaged")


_PLAIN = (type(None), bool, int, float, str, bytes, bytearray, memoryview)
_TAGGED = (dt.datetime, dt.date, dt.time, dt.timedelta, uuid.UUID, Decimal)
_NESTING = (dict, list, tuple, set, frozenset)
_LOOKED_INTO = frozenset((*_NESTING, ormsgpack.Ext, getattr(ormsgpack, "Fragment", ormsgpack.Ext)))
"""What can hold values, and what the encoder writes as it stands: nobody but ``_tag`` may make those."""
NO_ROOM = "the call stack has no room to follow this value: call from a shallower one, or raise the recursion limit"


def _inspect(value: Any, at: tuple[str, ...]) -> Any:
    """Name the place that cannot be stored, or return the value with broken texts wrapped."""
    kind = type(value)
    if kind in _NESTING and len(at) >= MAX_DEPTH:
        raise InvalidStateError(f"nested more than {MAX_DEPTH} deep, or a cycle", pointer.spell(at))
    if kind is dict:
        return {check_key(key, at): _inspect(child, (*at, key)) for key, child in value.items()}
    if kind in _NESTING:
        return kind(_inspect(child, (*at, str(n))) for n, child in enumerate(value))
    if kind is str:
        return value if _encodable(value) else _Broken(value)
    if kind is memoryview and not value.c_contiguous:
        raise InvalidStateError("a memoryview with gaps", pointer.spell(at), "copy it: bytes(view)")
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


_decode = msgspec.msgpack.decode


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


def map_header(count: int) -> bytes:
    """Return the MessagePack header of a mapping, as short as it can be."""
    if count < 16:
        return bytes((0x80 | count,))
    return b"\xde" + count.to_bytes(2, "big") if count < 65536 else b"\xdf" + count.to_bytes(4, "big")


def text_size(text: str) -> int:
    """Return how many bytes an encoded text has."""
    size = len(text.encode())
    return size + (1 if size < 32 else 2 if size < 256 else 3 if size < 65536 else 5)


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
