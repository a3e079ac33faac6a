"""The digests by which one signature covers every stored byte of a stream: docs/format.md, "Packs"."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from cpstore.digest import EMPTY_ROOT, Frontier
from cpstore.errors import CorruptError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cpstore.snapshot.records import SegmentHead

SIZE = 16


def packs(prev: bytes, time: int, segments: bytes, blocks: bytes) -> bytes:
    """Return the 16 bytes that an entry signs for all stored bytes of its stream.

    ``segments`` is the Merkle root over the sealed segments, ``blocks`` the digest of the open one. The link to the
    entry before and the time label are mixed in so that nobody can prepare two contents with one digest ahead of
    time (randomised hashing, as in NIST SP 800-106): that is why half a SHA-256 is enough here. The content itself
    is vouched for by the full-length state root.
    """
    return sha256(b"cpstore/packs/v1\n" + prev + time.to_bytes(8, "big") + segments + blocks).digest()[:SIZE]


class BlocksDigest:
    """The running digest of the blocks of an open segment."""

    __slots__ = ("_sha",)

    def __init__(self, blocks: Iterable[bytes] = ()) -> None:
        self._sha = sha256(b"cpstore/open/v1\n")
        for block in blocks:
            self.add(block)

    def add(self, block: bytes) -> None:
        """Count one more block in."""
        self._sha.update(len(block).to_bytes(4, "big") + block)

    def digest(self) -> bytes:
        """Return the digest so far, 32 bytes."""
        return self._sha.digest()


NO_BLOCKS = BlocksDigest().digest()


def segments_frontier(head: SegmentHead | None) -> Frontier:
    """Return the frontier over the segments up to and including ``head``. Raises CorruptError."""
    if head is None:
        return Frontier()
    try:
        return Frontier.unpack(head.index + 1, head.frontier)
    except ValueError as error:
        raise CorruptError(f"the segment at {head.first} has a broken Merkle frontier: {error}") from error


def segments_root(head: SegmentHead | None) -> bytes:
    """Return the Merkle root over the segments up to and including ``head``."""
    return EMPTY_ROOT if head is None else segments_frontier(head).root()
