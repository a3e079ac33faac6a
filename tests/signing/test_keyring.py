"""Trusted keys: who may sign, and which keys nobody may trust."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpstore.errors import BadSignatureError, CheckpointStoreError, UntrustedKeyError
from cpstore.signing.keyring import Keyring, fingerprint
from cpstore.signing.keys import Signer

ALICE, BOB = Signer(b"a" * 32), Signer(b"b" * 32)
PRIME = 2**255 - 19
CURVE = -121665 * pow(121666, -1, PRIME) % PRIME


def add(one: tuple[int, int], two: tuple[int, int]) -> tuple[int, int]:
    """The addition law of edwards25519 (RFC 8032 section 5.1.4, affine)."""
    (x1, y1), (x2, y2) = one, two
    product = CURVE * x1 * x2 * y1 * y2
    return (
        (x1 * y2 + x2 * y1) * pow(1 + product, -1, PRIME) % PRIME,
        (y1 * y2 + x1 * x2) * pow(1 - product, -1, PRIME) % PRIME,
    )


def recovered(y: int) -> int:
    """An x for this y (RFC 8032 section 5.1.3)."""
    square = (y * y - 1) * pow(CURVE * y * y + 1, -1, PRIME) % PRIME
    x = pow(square, (PRIME + 3) // 8, PRIME)
    if x * x % PRIME != square:
        x = x * pow(2, (PRIME - 1) // 4, PRIME) % PRIME
    assert x * x % PRIME == square
    return x


def torsion() -> list[tuple[int, int]]:
    """All points whose order divides 8: the multiples of L times any point that reaches order 8."""
    order = 2**252 + 27742317777372353535851937790883648493
    for y in range(2, 50):
        try:
            point = (recovered(y), y)
        except AssertionError:
            continue
        small, power = (0, 1), point
        for bit in range(order.bit_length()):
            if order >> bit & 1:
                small = add(small, power)
            power = add(power, power)
        points = [(0, 1)]
        while (following := add(points[-1], small)) != (0, 1):
            points.append(following)
        if len(points) == 8:
            return points
    raise AssertionError


def spellings() -> list[bytes]:
    """Every 32-byte spelling of the eight points: both signs, and y + p where it fits."""
    found = {
        (spelled | sign << 255).to_bytes(32, "little")
        for _, y in torsion()
        for spelled in (y, y + PRIME)
        if spelled < 2**255
        for sign in (0, 1)
    }
    return sorted(found)


SPELLINGS = spellings()


def test_there_are_eight_points_of_small_order_and_fourteen_spellings():
    assert len(set(torsion())) == 8
    assert len(SPELLINGS) == 14


@pytest.mark.parametrize("weak", SPELLINGS, ids=bytes.hex)
def test_a_point_of_small_order_is_refused_in_every_spelling(weak):
    with pytest.raises(UntrustedKeyError, match="weak"):
        Keyring(writers=frozenset({weak}), stores=frozenset())
    with pytest.raises(UntrustedKeyError, match="weak"):
        Keyring(writers=frozenset(), stores=frozenset({ALICE.store, weak}))


@pytest.mark.parametrize("y", range(PRIME, 2**255))
def test_a_second_spelling_of_a_coordinate_is_refused(y):
    with pytest.raises(UntrustedKeyError):
        Keyring(frozenset({y.to_bytes(32, "little")}), frozenset())


@pytest.mark.parametrize("key", [b"", b"x" * 31, b"x" * 33, "x" * 32, None], ids=repr)
def test_what_is_no_key_is_refused(key):
    with pytest.raises(UntrustedKeyError, match="32 raw bytes"):
        Keyring(frozenset({key}), frozenset())


def test_a_trusted_signature_passes():
    Keyring.of(ALICE, BOB).verify(BOB.writer, BOB.sign(b"pae"), b"pae")


def test_an_unknown_key_is_named_with_what_to_do():
    with pytest.raises(UntrustedKeyError) as caught:
        Keyring.of(ALICE).verify(BOB.writer, BOB.sign(b"pae"), b"pae")

    assert fingerprint(BOB.writer)[:16] in str(caught.value)
    assert "trust=" in str(caught.value)


def test_a_store_key_does_not_sign_entries_nor_a_writer_notes():
    ring = Keyring.of(ALICE)

    with pytest.raises(UntrustedKeyError):
        ring.verify(ALICE.store, ALICE.sign_note(b"pae"), b"pae")
    with pytest.raises(UntrustedKeyError):
        ring.verify_note(ALICE.writer, ALICE.sign(b"text\n"), b"text\n")


@given(st.integers(0, 511), st.binary(min_size=1, max_size=40))
def test_any_flipped_bit_of_a_signature_is_caught(bit, message):
    signature = int.from_bytes(ALICE.sign(message), "big") ^ 1 << bit

    with pytest.raises(BadSignatureError, match=fingerprint(ALICE.writer)[:16]):
        Keyring.of(ALICE).verify(ALICE.writer, signature.to_bytes(64, "big"), message)


@given(st.binary(max_size=130), st.binary(max_size=70), st.binary(max_size=40))
def test_garbage_gives_only_errors_of_this_package(signature, public, message):
    ring = Keyring.of(ALICE)
    for key in (public, ALICE.writer):
        with pytest.raises(CheckpointStoreError):
            ring.verify(key, signature, message)
    try:
        Keyring(frozenset({public}), frozenset())
    except CheckpointStoreError:
        pass


def test_a_signature_of_someone_else_is_bad():
    with pytest.raises(BadSignatureError):
        Keyring.of(ALICE, BOB).verify(ALICE.writer, BOB.sign(b"pae"), b"pae")


def test_a_writer_is_found_by_its_fingerprint():
    ring = Keyring.of(ALICE, BOB)

    assert ring.writer_named(fingerprint(BOB.writer)) == BOB.writer
    with pytest.raises(UntrustedKeyError):
        ring.writer_named(fingerprint(BOB.store))


def test_rings_are_equal_by_content_and_survive_pickling():
    ring = Keyring.of(ALICE)

    assert ring == Keyring({ALICE.writer}, {ALICE.store})
    assert hash(ring) == hash(Keyring.of(ALICE))
    assert ring != Keyring.of(BOB)
    again = pickle.loads(pickle.dumps(ring))
    again.verify(ALICE.writer, ALICE.sign(b"pae"), b"pae")


def test_the_fingerprint_is_the_sha256_of_the_raw_key():
    assert fingerprint(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
