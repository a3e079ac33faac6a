"""One spelling for what is signed: a subset of JSON on which sorted, compact JSON equals RFC 8785 (JCS).

Keys are ASCII, integers fit in 53 bits, there are no floats.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

from cpstore.errors import CorruptError, InvalidStateError

if TYPE_CHECKING:
    from collections.abc import Iterable

Value: TypeAlias = "None | bool | int | str | list[Value] | dict[str, Value]"

MAX_INTEGER = (1 << 53) - 1
MAX_DEPTH = 32


def encode(value: Value) -> bytes:
    """Return the canonical bytes of ``value``.

    Raises InvalidStateError, with the JSON Pointer of the place, for anything outside the model.
    """
    _check(value, "", 0)
    return spell(value)


def spell(value: Value) -> bytes:
    """Return the canonical bytes of a value that ``encode`` has let pass before."""
    return _ENCODE(value).encode("utf-8")


def decode(data: bytes) -> Value:
    """Read bytes that ``encode`` wrote.

    Raises CorruptError unless ``data`` is exactly the canonical spelling of its value: duplicate keys, floats,
    white space, other key orders and lone surrogates are all refused.
    """
    try:
        value: Value = json.loads(data.decode("utf-8"), parse_constant=_refuse, parse_float=_refuse)
        if encode(value) == data:
            return value
    except (ValueError, RecursionError, InvalidStateError) as error:
        msg = "not canonical JSON"
        raise CorruptError(msg) from error
    msg = "not canonical JSON: the same value has another spelling"
    raise CorruptError(msg)


_ENCODE = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def _refuse(text: str) -> Any:
    msg = f"{text} has no place in canonical JSON"
    raise ValueError(msg)


def _check(value: Value, path: str, depth: int) -> None:
    """Refuse what has no canonical spelling. Scalars are looked at where they stand: most of a value is scalars."""
    wrong = _fault(value)
    if wrong == "":
        return
    kind = type(value)
    if wrong or kind not in (dict, list):
        raise InvalidStateError(wrong or f"{kind.__name__} has no canonical spelling", path)
    if depth >= MAX_DEPTH:
        raise InvalidStateError("nested too deeply", path)
    for key, child in _children(value, path):
        if _fault(child) != "":
            _check(child, f"{path}/{key}", depth + 1)


def _children(value: Any, path: str) -> Iterable[tuple[object, Value]]:
    if type(value) is list:
        return enumerate(value)
    for key in value:
        if type(key) is not str or not key.isascii():
            raise InvalidStateError(f"key {key!r} is not ASCII text", path)
    children: Iterable[tuple[object, Value]] = value.items()
    return children


def _fault(value: Value) -> str | None:
    """Say what is wrong with a scalar, "" if nothing is; None for what is not one."""
    kind = type(value)
    if kind is str:
        if value.isascii():  # type: ignore[union-attr]
            return ""
        try:
            value.encode("utf-8")  # type: ignore[union-attr]
        except UnicodeEncodeError:
            return "text with a lone surrogate"
        return ""
    if kind is int:
        return "" if -MAX_INTEGER <= value <= MAX_INTEGER else "integer beyond 53 bits"  # type: ignore[operator]
    return "" if value is None or kind is bool else None
