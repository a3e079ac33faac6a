"""The DSSE encoding, the leaf of the log, and the exported envelope."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from cpstore.digest import digest, leaf_hash
from cpstore.errors import BadSignatureError, CheckpointStoreError, CorruptError, UntrustedKeyError
from cpstore.signing.envelope import MAX_ENVELOPE, PAYLOAD_TYPE, envelope, leaf_data, open_envelope, pae
from cpstore.signing.keyring import Keyring, fingerprint
from cpstore.signing.keys import Signer

SIGNER = Signer(bytes(range(32)))
RING = Keyring.of(SIGNER)
BODY = b'{"seq":1}'
SIGNATURE = (
    "e03af0de8e7e08d80273d8c933262bde5a22359a9658377bfee80a52b8195dad"
    "146f9dd416439d148d3c19859e52a686006b979603118053e8198b054fe6620a"
)
LEAF = "fee97c47483c0f5fbdb5aea9b24489349dc11f66bb5cdec84f923883fbce43e5"
ENVELOPE = (
    b'{"payload":"eyJzZXEiOjF9","payloadType":"application/vnd.cpstore.entry.v1+json","signatures":[{"keyid":'
    b'"fe2fe8e61de6681a82db0a18c3253e93e92b123bef5e2aeb580e551ecc970715","sig":"4Drw3o5+CNgCc9jJMyYr3loiNZqWWDd7'
    b'/ugKUrgZXa0Ub53UFkOdFI08GYWeUqaGAGuXlgMRgFPoGYsFT+ZiCg=="}]}'
)


def sealed(body: bytes = BODY, signer: Signer = SIGNER) -> bytes:
    return envelope(body, signer.sign(pae(body)), signer.writer)


def changed(**fields: object) -> bytes:
    return json.dumps(json.loads(ENVELOPE) | fields, sort_keys=True, separators=(",", ":")).encode()


def test_the_encoding_of_this_body_never_changes():
    assert pae(BODY) == b'DSSEv1 37 application/vnd.cpstore.entry.v1+json 9 {"seq":1}'
    assert SIGNER.sign(pae(BODY)).hex() == SIGNATURE
    assert leaf_hash(leaf_data(pae(BODY), bytes.fromhex(SIGNATURE), SIGNER.writer)).hex() == LEAF
    assert sealed() == ENVELOPE


@given(st.binary(max_size=200))
def test_the_encoding_is_that_of_securesystemslib(body):
    dsse = pytest.importorskip("securesystemslib.dsse")

    assert dsse.Envelope(body, PAYLOAD_TYPE, {}).pae() == pae(body)


@given(st.binary(max_size=200))
def test_securesystemslib_reads_the_envelope(body):
    dsse = pytest.importorskip("securesystemslib.dsse")
    signer = pytest.importorskip("securesystemslib.signer")
    public = Ed25519PublicKey.from_public_bytes(SIGNER.writer)
    name = fingerprint(SIGNER.writer)

    key = signer.SSlibKey.from_crypto(public, keyid=name)
    read = dsse.Envelope.from_dict(json.loads(sealed(body)))
    assert read.payload == body
    assert list(read.verify([key], 1)) == [name]


def test_a_leaf_binds_text_signature_and_key():
    pae_bytes, signature = pae(BODY), bytes.fromhex(SIGNATURE)
    leaf = leaf_data(pae_bytes, signature, SIGNER.writer)

    assert leaf == digest(pae_bytes) + signature + digest(SIGNER.writer)
    assert len(leaf) == 128


@given(st.binary(max_size=200))
def test_an_envelope_gives_its_body_back(body):
    assert open_envelope(sealed(body), RING) == body


def test_an_envelope_of_a_stranger_is_refused():
    with pytest.raises(UntrustedKeyError):
        open_envelope(sealed(signer=Signer(b"x" * 32)), RING)


def test_a_stranger_under_a_trusted_key_id_is_refused():
    forged = envelope(BODY, Signer(b"x" * 32).sign(pae(BODY)), SIGNER.writer)

    with pytest.raises(BadSignatureError):
        open_envelope(forged, RING)


def test_the_body_of_one_envelope_does_not_fit_the_signature_of_another():
    with pytest.raises(BadSignatureError):
        open_envelope(changed(payload=b64encode(b'{"seq":2}').decode()), RING)


def test_a_signature_over_the_bare_body_is_refused():
    with pytest.raises(BadSignatureError):
        open_envelope(envelope(BODY, SIGNER.sign(BODY), SIGNER.writer), RING)


SIGNATURES = json.loads(ENVELOPE)["signatures"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'"x"',
        ENVELOPE + b"\n",
        b" " + ENVELOPE,
        ENVELOPE.replace(b":", b": ", 1),
        b'{"payload":"",' + ENVELOPE[1:],
        changed(extra=1),
        changed(payload=None),
        changed(payload="eyJzZXEiOjF"),
        changed(payload="eyJzZXEiOjF9\n"),
        changed(payload="eyJzZXEiOjF-"),
        changed(payloadType="application/vnd.in-toto+json"),
        changed(signatures=[]),
        changed(signatures=SIGNATURES * 2),
        changed(signatures=[SIGNATURES[0] | {"extra": ""}]),
        changed(signatures=[{"sig": SIGNATURES[0]["sig"]}]),
        changed(signatures=[SIGNATURES[0] | {"sig": SIGNATURES[0]["sig"].rstrip("=")}]),
        changed(signatures="x"),
        b"[" * 100_000,
    ],
)
def test_anything_but_the_one_spelling_is_corrupt(data):
    with pytest.raises(CorruptError):
        open_envelope(data, RING)


def test_an_envelope_that_is_too_long_is_not_parsed():
    with pytest.raises(CorruptError, match="longer than"):
        open_envelope(b" " * (MAX_ENVELOPE + 1), RING)


@given(st.integers(0, len(ENVELOPE) - 1), st.integers(0, 255))
def test_any_changed_byte_is_caught(at, byte):
    data = ENVELOPE[:at] + bytes([byte]) + ENVELOPE[at + 1 :]
    if data == ENVELOPE:
        return

    with pytest.raises(CheckpointStoreError):
        open_envelope(data, RING)


@given(st.binary(max_size=300) | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_garbage_gives_only_errors_of_this_package(data):
    with pytest.raises(CheckpointStoreError):
        open_envelope(data, RING)


def test_the_payload_is_plain_base64():
    assert b64decode(json.loads(ENVELOPE)["payload"]) == BODY
