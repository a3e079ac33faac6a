"""What may be the name of a lineage, namespace, ledger, actor or idempotency key."""

from __future__ import annotations

import unicodedata

from cpstore.errors import InvalidStateError

MAX_NAME = 255
"""Characters (Unicode code points) that a name may have."""

# Control, format (bidirectional overrides, zero-width joiners), surrogates, line and paragraph separators: none of them
# shows in a terminal or a log as what it is.
_UNSEEN = {"Cc": "control", "Cf": "format", "Cs": "lone surrogate", "Zl": "line separator", "Zp": "paragraph separator"}


def check_name(text: str, what: str) -> str:
    """Return ``text`` if it can name a ``what`` (such as "lineage id").

    A name is 1 to 255 characters, without control, format and separator characters and without outer blanks. It is
    compared code point by code point and never becomes a path. Raises InvalidStateError that says what is wrong.
    """
    if type(text) is not str:
        raise InvalidStateError(f"a {what} is text, not {type(text).__name__}")
    if not text:
        raise InvalidStateError(f"a {what} must not be empty")
    if len(text) > MAX_NAME:
        raise InvalidStateError(f"the {what} has {len(text)} characters, the limit is {MAX_NAME}")
    unseen = unseen_character(text)
    if unseen:
        raise InvalidStateError(f"the {what} {text!r} has {unseen}", advice="use characters that can be seen")
    if text != text.strip():
        raise InvalidStateError(f"the {what} {text!r} begins or ends with a blank", advice="strip it")
    return text


def unseen_character(text: str) -> str:
    """Say which character of ``text`` is a control, format, surrogate or line separator character; "" if none is."""
    for at, character in enumerate(text):
        kind = _UNSEEN.get(unicodedata.category(character))
        if kind is not None:
            return f"a {kind} character (U+{ord(character):04X}) at position {at}"
    return ""


def check_count(number: int | None, what: str, least: int) -> None:
    """Let None and integers from ``least`` on pass. Raises InvalidStateError that says what is wrong."""
    if number is not None and (type(number) is not int or number < least):
        raise InvalidStateError(f"{what} is an integer from {least} on or None, not {number!r:.100}")
