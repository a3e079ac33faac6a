"""Head notes: what is signed, what is read, what is refused."""

from __future__ import annotations

from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpstore.digest import EMPTY_ROOT, digest
from cpstore.errors import (
    BadSignatureError,
    CheckpointStoreError,
    CorruptError,
    InvalidStateError,
    SignatureError,
    UntrustedKeyError,
)
from cpstore.signing.keyring import Keyring
from cpstore.signing.keys import Signer
from cpstore.signing.note import MAX_NOTE, MAX_SIGNATURES, Head, head_text, open_head, sign_head, vkey

SIGNER, STRANGER = Signer(bytes(range(32))), Signer(b"x" * 32)
RING = Keyring.of(SIGNER)
ORIGIN = "cpstore.example/1"
ROOT = bytes.fromhex("fee97c47483c0f5fbdb5aea9b24489349dc11f66bb5cdec84f923883fbce43e5")
NOTE = (
    "cpstore.example/1\n1\n/ul8R0g8D1+9ta6pskSJNJ3BH2a7XN7IT5I4g/vOQ+U=\n\n\u2014 cpstore.example/1 "
    "eDIYxh9gO7yZ7KkURrHPaYjgPxVQGRt+IPkpcgWGC1Bg4m7qQCpgk23HCRv5MsAHQc8pa/ZZ0L84AObYOaq88g3UaQ8=\n"
).encode()
TEXT, LINE = NOTE.decode().split("\n\n")
WITNESS = "\u2014 witness.example/w " + b64encode(b"wwww" + bytes(72)).decode() + "\n"


def signed(text: str, signer: Signer = SIGNER, name: str = ORIGIN) -> bytes:
    """A note over any text, with a good signature under the key id of ``name``."""
    blob = digest(name.encode() + b"\n\x01" + signer.store)[:4] + signer.sign_note(text.encode())
    return f"{text}\n\u2014 {name} {b64encode(blob).decode()}\n".encode()


def test_the_note_of_this_head_never_changes():
    assert sign_head(SIGNER, ORIGIN, 1, ROOT) == NOTE
    assert open_head(NOTE, RING, ORIGIN) == Head(ORIGIN, 1, ROOT)
    assert len(NOTE) < 230


def test_the_helper_of_these_tests_signs_as_the_store_does():
    assert signed(TEXT + "\n") == NOTE


def test_the_verifier_key_of_the_go_documentation_is_spelled_the_same():
    known = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"

    assert vkey("PeterNeumann", b64decode(known.split("+", 2)[2])[1:]) == known


def test_the_signature_of_the_go_documentation_is_good():
    public = b64decode("ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW")[1:]
    text = b"If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
    blob = b64decode("x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=")

    assert vkey("PeterNeumann", public).split("+")[1] == blob[:4].hex()
    Keyring(frozenset(), frozenset({public})).verify_note(public, blob[4:], text)


@given(st.integers(1, 2**63 - 1), st.binary(min_size=32, max_size=32))
def test_what_is_signed_is_read(size, root):
    assert open_head(sign_head(SIGNER, ORIGIN, size, root), RING, ORIGIN) == Head(ORIGIN, size, root)


def test_an_empty_log_has_a_head():
    assert open_head(sign_head(SIGNER, ORIGIN, 0, EMPTY_ROOT), RING, ORIGIN).size == 0


@pytest.mark.parametrize(
    "origin", ["", "two words", "a+b", "a\nb", "a\tb", "a\x7f", "\u00a0", "a\x00", "\ud800", "x" * 256]
)
def test_an_origin_that_a_note_cannot_name_is_refused(origin):
    with pytest.raises(InvalidStateError, match="origin"):
        head_text(origin, 1, ROOT)
    with pytest.raises(InvalidStateError, match="origin"):
        vkey(origin, SIGNER.store)


@pytest.mark.parametrize(("size", "root"), [(-1, ROOT), (2**63, ROOT), (1, b""), (1, ROOT + b"x")])
def test_an_impossible_head_is_not_signed(size, root):
    with pytest.raises(InvalidStateError):
        sign_head(SIGNER, ORIGIN, size, root)


@pytest.mark.parametrize("note", [NOTE + WITNESS.encode(), f"{TEXT}\n\n{WITNESS}{LINE}".encode()])
def test_lines_of_unknown_keys_are_ignored(note):
    assert open_head(note, RING, ORIGIN).size == 1


def test_another_name_with_a_known_key_id_is_an_unknown_key():
    note = signed(TEXT + "\n").replace(f"\u2014 {ORIGIN}".encode(), "\u2014 somebody.else".encode())

    with pytest.raises(UntrustedKeyError):
        open_head(note, RING, ORIGIN)


def test_a_note_that_only_strangers_signed_is_refused():
    with pytest.raises(UntrustedKeyError, match="trust="):
        open_head(sign_head(STRANGER, ORIGIN, 1, ROOT), RING, ORIGIN)


def test_a_writer_key_does_not_sign_heads():
    swapped = Keyring(writers=frozenset({SIGNER.store}), stores=frozenset({SIGNER.writer}))

    with pytest.raises(UntrustedKeyError):
        open_head(NOTE, swapped, ORIGIN)


def test_one_bad_line_of_a_known_key_spoils_good_ones():
    bad = signed(TEXT.replace("\n1\n", "\n2\n") + "\n").decode().split("\n\n")[1]

    for note in (f"{TEXT}\n\n{LINE}{bad}", f"{TEXT}\n\n{bad}{LINE}"):
        with pytest.raises(BadSignatureError):
            open_head(note.encode(), RING, ORIGIN)


def test_a_note_with_both_keys_during_a_key_change_is_read_by_either():
    both = NOTE + signed(TEXT + "\n", STRANGER).split(b"\n\n")[1]

    for ring in (RING, Keyring.of(STRANGER), Keyring.of(SIGNER, STRANGER)):
        assert open_head(both, ring, ORIGIN).root == ROOT


def test_the_note_of_another_store_is_refused():
    with pytest.raises(SignatureError, match=r"about the store 'other\.example/1'"):
        open_head(sign_head(SIGNER, "other.example/1", 1, ROOT), RING, ORIGIN)


B64 = b64encode(ROOT).decode()


@pytest.mark.parametrize(
    "text",
    [
        f"{ORIGIN}\n01\n{B64}\n",
        f"{ORIGIN}\n+1\n{B64}\n",
        f"{ORIGIN}\n-1\n{B64}\n",
        f"{ORIGIN}\n1_0\n{B64}\n",
        f"{ORIGIN}\n \u0661\n{B64}\n",
        f"{ORIGIN}\n\u0661\n{B64}\n",
        f"{ORIGIN}\n{2**63}\n{B64}\n",
        f"{ORIGIN}\n\n{B64}\n",
        f"{ORIGIN}\n1\n{B64[:-1]}\n",
        f"{ORIGIN}\n1\n{B64[:-2]}V=\n",
        f"{ORIGIN}\n1\n{b64encode(ROOT[:31]).decode()}\n",
        f"{ORIGIN}\n1\n{ROOT.hex()}\n",
        f"{ORIGIN}\n0\n{B64}\n",
        f"{ORIGIN}\n1\n",
        f"{ORIGIN}\n",
        f"{ORIGIN}\n1\n{B64}\nextension\n",
        f"{ORIGIN} \n1\n{B64}\n",
        f"\n1\n{B64}\n",
        f"{ORIGIN}\r\n1\r\n{B64}\r\n",
    ],
)
def test_a_malformed_head_is_corrupt_even_under_a_good_signature(text):
    with pytest.raises(CorruptError):
        open_head(signed(text), RING, ORIGIN)


@pytest.mark.parametrize(
    "note",
    [
        b"",
        b"\n\n",
        TEXT.encode(),
        TEXT.encode() + b"\n\n",
        TEXT.encode() + b"\n\n\n",
        NOTE[:-1],
        NOTE + b"\n",
        NOTE + b"x\n",
        NOTE.replace("\u2014".encode(), b"-"),
        NOTE.replace(b"8=\n", b"8=\r\n"),
        NOTE.replace(b"8=\n", b"8= \n"),
        NOTE.replace(b"8=\n", b"9=\n"),
        NOTE.replace(b"\n\n", b"\n\t\n"),
        NOTE + "\u2014 short AAAA\n".encode(),
        NOTE + "\u2014 a+b AAAAAAAA\n".encode(),
        NOTE + b"\xff\n",
        NOTE + WITNESS.replace("witness", "wit\x01ness").encode(),
        NOTE + WITNESS.encode() * MAX_SIGNATURES,
    ],
)
def test_a_malformed_note_is_corrupt(note):
    with pytest.raises(CorruptError):
        open_head(note, RING, ORIGIN)


def test_a_note_that_is_too_long_is_not_parsed():
    with pytest.raises(CorruptError, match="longer than"):
        open_head(NOTE + b"x" * MAX_NOTE, RING, ORIGIN)


def test_sixty_four_signatures_are_read():
    assert open_head(NOTE + WITNESS.encode() * (MAX_SIGNATURES - 1), RING, ORIGIN).size == 1


@given(st.integers(0, len(NOTE) - 1), st.integers(0, 255))
def test_any_changed_byte_is_caught(at, byte):
    note = NOTE[:at] + bytes([byte]) + NOTE[at + 1 :]
    if note == NOTE:
        return

    with pytest.raises(CheckpointStoreError):
        open_head(note, RING, ORIGIN)


@given(st.binary(max_size=300) | st.text().map(lambda text: (text + "\n\n\u2014 a b\n").encode("utf-8", "replace")))
def test_garbage_gives_only_errors_of_this_package(note):
    with pytest.raises(CheckpointStoreError):
        open_head(note, RING, ORIGIN)
