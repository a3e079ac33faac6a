"""One spelling for what is signed: a subset of JSON on which sorted, compact JSON equals RFC 8785 (JCS).

Keys are ASCII, integers fit in 53 bits, there are no floats.
"""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from cpstore.errors import CorruptError, InvalidStateError

Value: TypeAlias = "None | bool | int | str | list[Value] | dict[str, Value]"

MAX_INTEGER = (1 << 53) - 1
MAX_DEPTH = 32


def encode(value: Value) -> bytes:
    """Return the canonical bytes of ``value``.

    Raises InvalidStateError, with the JSON Pointer of the place, for anything outside the model.
    """
    _check(value, "", 0)
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
    kind = type(value)
    if kind is str:
        try:
            value.encode("utf-8")  # type: ignore[union-attr]
        except UnicodeEncodeError as error:
            raise InvalidStateError("text with a lone surrogate", path) from error
    elif kind is int:
        if not -MAX_INTEGER <= value <= MAX_INTEGER:  # type: ignore[operator]
            raise InvalidStateError("integer beyond 53 bits", path)
    elif kind is dict:
        if depth >= MAX_DEPTH:
            raise InvalidStateError("nested too deeply", path)
        for key, child in value.items():  # type: ignore[union-attr]
            if type(key) is not str or not key.isascii():
                raise InvalidStateError(f"key {key!r} is not ASCII text", path)
            _check(child, f"{path}/{key}", depth + 1)
    elif kind is list:
        if depth >= MAX_DEPTH:
            raise InvalidStateError("nested too deeply", path)
        for at, child in enumerate(value):  # type: ignore[arg-type]
            _check(child, f"{path}/{at}", depth + 1)
    elif value is not None and kind is not bool:
        raise InvalidStateError(f"{kind.__name__} has no canonical spelling", path)
