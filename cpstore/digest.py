"""SHA-256, and the Merkle tree of RFC 6962 (section 2.1) over it.

The same tree serves three places: the items of a list in a state, the sealed segments of a stream, and
the log of all entries of a store.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

SIZE = 32
ZERO = bytes(SIZE)
EMPTY_ROOT = sha256(b"").digest()


def digest(data: bytes) -> bytes:
    """Return the SHA-256 of ``data``, 32 bytes."""
    return sha256(data).digest()


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of a leaf (RFC 6962: SHA-256 of 0x00 and the data)."""
    return sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node (RFC 6962: SHA-256 of 0x01, left and right)."""
    return sha256(b"\x01" + left + right).digest()


class Frontier:
    """The roots of the full subtrees of an append-only Merkle tree: enough to append and to know the root.

    ``size`` is the number of leaves; ``nodes`` has one 32-byte hash for each one-bit of it, largest first.
    """

    __slots__ = ("nodes", "size")

    def __init__(self, size: int = 0, nodes: Iterable[bytes] = ()) -> None:
        self.size = size
        self.nodes = list(nodes)
        if len(self.nodes) != size.bit_count() or any(len(node) != SIZE for node in self.nodes):
            msg = f"a frontier of {size} leaves has {size.bit_count()} hashes of {SIZE} bytes"
            raise ValueError(msg)

    @classmethod
    def unpack(cls, size: int, packed: bytes) -> Frontier:
        """Read the form that ``pack`` writes. Raises ValueError if it does not fit the size."""
        return cls(size, (packed[at : at + SIZE] for at in range(0, len(packed), SIZE)))

    def pack(self) -> bytes:
        """Return the hashes joined, largest subtree first."""
        return b"".join(self.nodes)

    def copy(self) -> Frontier:
        """Return an independent copy."""
        twin = Frontier()
        twin.size = self.size
        twin.nodes = self.nodes.copy()
        return twin

    def append(self, leaf: bytes) -> None:
        """Add the hash of one leaf."""
        size, nodes = self.size, self.nodes
        while size & 1:
            leaf = sha256(b"\x01" + nodes.pop() + leaf).digest()
            size >>= 1
        nodes.append(leaf)
        self.size += 1

    def root(self) -> bytes:
        """Return the root over all leaves so far."""
        if not self.nodes:
            return EMPTY_ROOT
        root = self.nodes[-1]
        for node in self.nodes[-2::-1]:
            root = sha256(b"\x01" + node + root).digest()
        return root


def root_of(leaves: Iterable[bytes]) -> bytes:
    """Return the Merkle root over leaf hashes."""
    frontier = Frontier()
    for leaf in leaves:
        frontier.append(leaf)
    return frontier.root()
