"""Base64 with one spelling for each value (RFC 4648 section 4, padded, no stray bits)."""

from __future__ import annotations

from base64 import b64decode, b64encode

from cpstore.errors import CorruptError


def encode64(raw: bytes) -> str:
    """Return the Base64 text of ``raw``, with padding."""
    return b64encode(raw).decode("ascii")


def decode64(text: str) -> bytes:
    """Read what ``encode64`` wrote. Raises CorruptError for any other spelling."""
    try:
        raw = b64decode(text, validate=True)
    except ValueError as error:
        msg = "not Base64"
        raise CorruptError(msg) from error
    if encode64(raw) != text:
        msg = "not canonical Base64: the same bytes have another spelling"
        raise CorruptError(msg)
    return raw
