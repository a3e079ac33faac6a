"""The Merkle tree of RFC 6962 against its own definition, and the vectors of Certificate Transparency."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpstore.digest import EMPTY_ROOT, SIZE, ZERO, Frontier, digest, leaf_hash, node_hash, root_of

# The inputs and roots of the reference tests of certificate-transparency (merkletree, "test vectors").
INPUTS = [
    b"",
    b"\x00",
    b"\x10",
    b"\x20\x21",
    b"\x30\x31",
    b"\x40\x41\x42\x43",
    bytes(range(0x50, 0x58)),
    bytes(range(0x60, 0x70)),
]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def naive(leaves: list[bytes]) -> bytes:
    """RFC 6962 section 2.1, word for word, over leaf data."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return sha256(b"\x00" + leaves[0]).digest()
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return sha256(b"\x01" + naive(leaves[:split]) + naive(leaves[split:])).digest()


@pytest.mark.parametrize("size", range(9))
def test_the_roots_are_those_of_certificate_transparency(size):
    assert root_of(map(leaf_hash, INPUTS[:size])).hex() == ROOTS[size]


@given(st.lists(st.binary(max_size=8), max_size=70))
def test_the_root_is_the_recursive_one_after_every_append(leaves):
    frontier = Frontier()
    assert frontier.root() == naive([])
    for count, leaf in enumerate(leaves, 1):
        frontier.append(leaf_hash(leaf))
        assert (frontier.size, frontier.root()) == (count, naive(leaves[:count]))


@given(st.lists(st.binary(max_size=4), max_size=40), st.lists(st.binary(max_size=4), max_size=10))
def test_a_packed_frontier_goes_on_where_it_stopped(first, more):
    frontier = Frontier()
    for leaf in first:
        frontier.append(leaf_hash(leaf))
    again = Frontier.unpack(frontier.size, frontier.pack())
    for leaf in more:
        again.append(leaf_hash(leaf))

    assert again.root() == naive(first + more)
    assert frontier.root() == naive(first)


def test_a_copy_is_independent():
    frontier = Frontier()
    frontier.append(leaf_hash(b"a"))
    twin = frontier.copy()
    twin.append(leaf_hash(b"b"))

    assert (frontier.size, frontier.root()) == (1, naive([b"a"]))
    assert (twin.size, twin.root()) == (2, naive([b"a", b"b"]))


@pytest.mark.parametrize(
    ("size", "packed"), [(0, ZERO), (1, b""), (3, ZERO), (2, ZERO * 2), (1, ZERO[:-1]), (1, ZERO + b"x"), (4, b"x")]
)
def test_a_frontier_that_does_not_fit_its_size_is_refused(size, packed):
    with pytest.raises(ValueError, match="frontier"):
        Frontier.unpack(size, packed)


def test_a_leaf_is_never_a_node():
    left, right = leaf_hash(b"a"), leaf_hash(b"b")

    assert leaf_hash(left + right) != node_hash(left, right)
    assert node_hash(left, right) != node_hash(right, left)


def test_a_digest_is_a_sha256():
    assert digest(b"abc").hex() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert (len(ZERO), SIZE, EMPTY_ROOT) == (32, 32, digest(b""))
