"""Paths into a state: JSON Pointers (RFC 6901)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cpstore.errors import InvalidStateError

if TYPE_CHECKING:
    from collections.abc import Iterable

_INDEX = re.compile(r"0|[1-9][0-9]{0,17}")


def parse(path: str) -> tuple[str, ...]:
    """Return the tokens of a pointer; ``""`` is the whole state. Raises InvalidStateError for other text."""
    if not isinstance(path, str) or (path and not path.startswith("/")):
        raise InvalidStateError(f"{path!r} is not a JSON Pointer", advice="write it like /messages/3")
    if re.search(r"~(?![01])", path):
        raise InvalidStateError("a '~' in a JSON Pointer is written ~0, a '/' inside a key ~1", path)
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in path.split("/")[1:])


def spell(tokens: Iterable[str | int]) -> str:
    """Return the pointer for tokens."""
    return "".join("/" + str(token).replace("~", "~0").replace("/", "~1") for token in tokens)


def index(token: str, count: int, path: str) -> int:
    """Read a token as the position of one of ``count`` items. Raises InvalidStateError."""
    if not _INDEX.fullmatch(token) or int(token) >= count:
        raise InvalidStateError(f"the list has {count} items, so {token!r} names none of them", path)
    return int(token)
