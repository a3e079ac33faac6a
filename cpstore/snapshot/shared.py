"""References to values that lineages of a namespace share: kept once, addressed by what they contain.

A reference is the MessagePack extension ``values.SHARED`` with 72 bytes: the content's leaf hash (32), the
SHA-256 of its stored frame (32), the length of its encoding in bytes (8, big-endian). It stands where the
encoded value would stand, and hashes like it, so sharing never changes a state root.
"""

from __future__ import annotations

from typing import NamedTuple

from cpstore.digest import SIZE, leaf_hash
from cpstore.errors import CorruptError
from cpstore.snapshot.values import SHARED

_HEAD = bytes((0xC7, 2 * SIZE + 8, SHARED))
LENGTH = len(_HEAD) + 2 * SIZE + 8

FIRST_MIN = 4096
"""Encoded bytes from which a value of a lineage's first revision is shared: what agents start from is alike."""
LATER_MIN = 32768
"""The same for values that come later."""


class Ref(NamedTuple):
    """Where a shared value is: content and frame are 32-byte digests, ``length`` counts encoded bytes."""

    content: bytes
    frame: bytes
    length: int

    def encode(self) -> bytes:
        """Return the bytes that stand for the value."""
        return _HEAD + self.content + self.frame + self.length.to_bytes(8, "big")


def is_ref(enc: bytes) -> bool:
    """Whether an encoded value is a reference."""
    return len(enc) == LENGTH and enc.startswith(_HEAD)


def read_ref(enc: bytes) -> Ref:
    """Read a reference, with or without its extension header. Raises CorruptError."""
    body = enc[len(_HEAD) :] if is_ref(enc) else enc
    if len(body) != LENGTH - len(_HEAD):
        raise CorruptError("a reference to a shared value has the wrong length")
    return Ref(body[:SIZE], body[SIZE : 2 * SIZE], int.from_bytes(body[2 * SIZE :], "big"))


def item_hash(enc: bytes) -> bytes:
    """Return the leaf hash of a value's content, whether it stands here or is shared."""
    return enc[len(_HEAD) : len(_HEAD) + SIZE] if is_ref(enc) else leaf_hash(enc)
