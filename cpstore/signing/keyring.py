"""The public keys that a reader trusts, and the check of a signature against them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from cpstore.digest import digest
from cpstore.errors import BadSignatureError, UntrustedKeyError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cpstore.signing.keys import Signer

KEY_SIZE = 32
SIGNATURE_SIZE = 64

_PRIME = (1 << 255) - 19
_SIGN_BIT = 1 << 255
_ORDER_EIGHT = int.from_bytes(
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little"
)
# The y coordinates of the eight points whose order divides 8: 1 (order 1), -1 (2), 0 (4), and two of order 8.
# OpenSSL accepts such keys, and under the neutral element one signature fits every message.
_SMALL_ORDER = frozenset({0, 1, _PRIME - 1, _ORDER_EIGHT, _PRIME - _ORDER_EIGHT})


def fingerprint(public: bytes) -> str:
    """Return the name of a key: the SHA-256 of its raw bytes, 64 hex digits (Sigsum's key hash)."""
    return digest(public).hex()


def short(public: bytes) -> str:
    """Return the first 16 hex digits of the fingerprint, for people to compare."""
    return fingerprint(public)[:16]


def _frozen(keys: Iterable[bytes]) -> frozenset[bytes]:
    return frozenset(keys)


def _names(keys: Iterable[bytes]) -> str:
    return "{" + ", ".join(sorted(short(key) for key in keys)) + "}"


def _by_fingerprint(ring: Keyring) -> dict[str, bytes]:
    return {fingerprint(public): public for public in ring.writers}


def _opened(ring: Keyring) -> dict[bytes, Ed25519PublicKey]:
    return {public: _open(public) for public in ring.writers | ring.stores}


@attrs.frozen
class Keyring:
    """Two sets of raw 32-byte Ed25519 public keys: ``writers`` sign entries, ``stores`` sign head notes.

    Raises UntrustedKeyError if one of them is no Ed25519 key, is spelled in a second way, or is a point of
    small order, under which anyone can sign.
    """

    writers: frozenset[bytes] = attrs.field(converter=_frozen, repr=_names)
    stores: frozenset[bytes] = attrs.field(converter=_frozen, repr=_names)
    _keys: dict[bytes, Ed25519PublicKey] = attrs.field(
        init=False, repr=False, eq=False, default=attrs.Factory(_opened, takes_self=True)
    )
    _named: dict[str, bytes] = attrs.field(
        init=False, repr=False, eq=False, default=attrs.Factory(_by_fingerprint, takes_self=True)
    )

    @classmethod
    def of(cls, *signers: Signer) -> Keyring:
        """Return the ring that trusts exactly these signers."""
        return cls(
            writers=frozenset(signer.writer for signer in signers),
            stores=frozenset(signer.store for signer in signers),
        )

    def __reduce__(self) -> tuple[type[Keyring], tuple[frozenset[bytes], frozenset[bytes]]]:
        return Keyring, (self.writers, self.stores)  # the opened keys cannot be pickled; they are made again

    def verify(self, public: bytes, signature: bytes, pae: bytes, what: str = "the entry") -> None:
        """Check that the writer ``public`` made the 64-byte ``signature`` over ``pae``; ``what`` names that in errors.

        Raises UntrustedKeyError if the key is not one of ``writers``, BadSignatureError if it did not sign this.
        """
        if public not in self.writers:
            raise UntrustedKeyError(_unknown(what, public))
        self._check(public, signature, pae, what)

    def verify_note(self, public: bytes, signature: bytes, text: bytes) -> None:
        """Check that the store key ``public`` made the 64-byte ``signature`` over the text of a note.

        Raises UntrustedKeyError if the key is not one of ``stores``, BadSignatureError if it did not sign this.
        """
        if public not in self.stores:
            raise UntrustedKeyError(_unknown("the head note", public))
        self._check(public, signature, text, "the head note")

    def writer_named(self, name: str) -> bytes:
        """Return the writer with this fingerprint. Raises UntrustedKeyError if there is none."""
        try:
            return self._named[name]
        except KeyError:
            raise UntrustedKeyError(_unknown_name("the entry", name[:16])) from None

    def _check(self, public: bytes, signature: bytes, message: bytes, what: str) -> None:
        try:
            if len(signature) == SIGNATURE_SIZE:
                self._keys[public].verify(signature, message)
                return
        except InvalidSignature:
            pass
        msg = (
            f"{what} was not signed by key {short(public)} as it stands: it was changed after signing; "
            "run `cpstore inspect STORE verify` and restore the damaged part from a copy"
        )
        raise BadSignatureError(msg)


def _unknown(what: str, public: bytes) -> str:
    return _unknown_name(what, short(public))


def _unknown_name(what: str, name: str) -> str:
    return (
        f"{what} names key {name}, which is not trusted here; if you know whose key it is, "
        "pass it in trust=, or open the store with the key file of its writer"
    )


def _open(public: bytes) -> Ed25519PublicKey:
    if not isinstance(public, bytes) or len(public) != KEY_SIZE:
        msg = f"not an Ed25519 public key: it must be {KEY_SIZE} raw bytes"
        raise UntrustedKeyError(msg)
    y = int.from_bytes(public, "little") & (_SIGN_BIT - 1)
    if y >= _PRIME or y in _SMALL_ORDER:
        msg = f"key {short(public)} is a weak Ed25519 key: anyone can sign under it; remove it from the trusted keys"
        raise UntrustedKeyError(msg)
    return Ed25519PublicKey.from_public_bytes(public)
