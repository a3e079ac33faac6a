"""An entry as others can check it: the DSSE v1 encoding that is signed, the log's leaf, the exported envelope.

Formats: DSSE v1.0.2 (https://github.com/secure-systems-lab/dsse), leaf layout of Sigsum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpstore import canonical
from cpstore.digest import digest
from cpstore.errors import CorruptError
from cpstore.signing.base64 import decode64, encode64
from cpstore.signing.keyring import fingerprint

if TYPE_CHECKING:
    from cpstore.signing.keyring import Keyring

PAYLOAD_TYPE = "application/vnd.cpstore.entry.v1+json"
LEAF_SIZE = 128
MAX_ENVELOPE = 16 << 20
"""The longest envelope that is read, in bytes."""

_PREFIX = b"DSSEv1 %d %b" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode("ascii"))


def pae(body: bytes) -> bytes:
    """Return what is signed for ``body``: its DSSE v1 pre-authentication encoding."""
    return b"%b %d %b" % (_PREFIX, len(body), body)


def leaf_data(pae_bytes: bytes, signature: bytes, public: bytes) -> bytes:
    """Return the 128 bytes that the log hashes for an entry.

    They bind the text, the signature and the key: signing the same text again with another key gives another leaf.
    """
    return digest(pae_bytes) + signature + digest(public)


def envelope(body: bytes, signature: bytes, public: bytes) -> bytes:
    """Return the DSSE envelope of a signed body, as canonical JSON."""
    return canonical.encode(
        {
            "payload": encode64(body),
            "payloadType": PAYLOAD_TYPE,
            "signatures": [{"keyid": fingerprint(public), "sig": encode64(signature)}],
        }
    )


def open_envelope(data: bytes, keyring: Keyring) -> bytes:
    """Check an envelope and return its body.

    The key id only picks the key to try, as DSSE demands; the signature decides. Raises CorruptError for anything
    that ``envelope`` would not write, UntrustedKeyError and BadSignatureError as ``Keyring.verify`` does.
    """
    if len(data) > MAX_ENVELOPE:
        msg = f"an envelope of {len(data)} bytes is longer than the {MAX_ENVELOPE} that are read"
        raise CorruptError(msg)
    match canonical.decode(data):
        case {
            "payload": str(payload),
            "payloadType": str(kind),
            "signatures": [{"keyid": str(name), "sig": str(text), **extra}],
            **rest,
        } if not extra and not rest:
            pass
        case _:
            msg = "not an envelope of one signed entry: payload, payloadType and one signature are expected"
            raise CorruptError(msg)
    if kind != PAYLOAD_TYPE:
        msg = f"the envelope holds {kind[:80]!r}, not {PAYLOAD_TYPE!r}"
        raise CorruptError(msg)
    body, signature = decode64(payload), decode64(text)
    keyring.verify(keyring.writer_named(name), signature, pae(body))
    return body
