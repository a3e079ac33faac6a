"""Head notes: a signed statement of the log's size and root, short enough to mail.

Formats: C2SP signed-note (https://c2sp.org/signed-note) and tlog-checkpoint (https://c2sp.org/tlog-checkpoint).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs

from cpstore.digest import EMPTY_ROOT, SIZE, digest
from cpstore.errors import CorruptError, InvalidStateError, SignatureError, UntrustedKeyError
from cpstore.signing.base64 import decode64, encode64

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cpstore.signing.keyring import Keyring
    from cpstore.signing.keys import Signer

MAX_NOTE = 64 << 10
"""The longest note that is read, in bytes: room for a post-quantum signature of each of 16 witnesses."""
MAX_SIGNATURES = 64
MAX_SIZE = (1 << 63) - 1
MAX_ORIGIN = 255
"""The longest origin, in bytes of UTF-8."""

_ED25519 = b"\x01"
_ID_SIZE = 4
_NAME = re.compile(r"[^\s+\x00-\x20\x7f]+")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
_SIGNATURE = re.compile(r"\u2014 ([^\s+]+) ([A-Za-z0-9+/=]+)")
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f]")


@attrs.frozen
class Head:
    """What a note says: the log of ``origin`` had ``size`` leaves, and ``root`` was its 32-byte Merkle root."""

    origin: str
    size: int
    root: bytes


def head_text(origin: str, size: int, root: bytes) -> bytes:
    """Return the text that the store key signs: origin, size and root, a line each.

    Raises InvalidStateError for an origin with white space, control characters or ``+``, an empty or overlong one,
    a size that is not in 0 … 2^63 - 1, or a root that is not 32 bytes.
    """
    _check_origin(origin)
    if not 0 <= size <= MAX_SIZE:
        msg = f"a log of {size} leaves has no head note"
        raise InvalidStateError(msg)
    if len(root) != SIZE:
        msg = f"a root has {SIZE} bytes, not {len(root)}"
        raise InvalidStateError(msg)
    return f"{origin}\n{size}\n{encode64(root)}\n".encode()


def sign_head(signer: Signer, origin: str, size: int, root: bytes) -> bytes:
    """Return the whole note: the text, a blank line and the store key's signature line. Raises as ``head_text``."""
    text = head_text(origin, size, root)
    blob = _key_id(origin, signer.store) + signer.sign_note(text)
    return text + f"\n\u2014 {origin} {encode64(blob)}\n".encode()


def open_head(note: bytes, keyring: Keyring, origin: str) -> Head:
    """Check a note about the store ``origin`` against ``keyring.stores`` and return what it says.

    Signatures of unknown keys (witnesses, for instance) are ignored. Raises CorruptError for a malformed note,
    SignatureError for one about another store, UntrustedKeyError if no known key signed it, and
    BadSignatureError if a line claims a known key that did not sign the text.
    """
    text, lines = _split(note)
    head = _parse(text)
    if head.origin != origin:
        msg = f"the head note is about the store {head.origin!r}, not {origin!r}: ask for the note of this store"
        raise SignatureError(msg)
    known = sorted(keyring.stores)
    signed = False
    for name, blob in lines:
        for public in known:
            if name == origin and blob[:_ID_SIZE] == _key_id(origin, public):
                keyring.verify_note(public, blob[_ID_SIZE:], text)
                signed = True
    if not signed:
        msg = (
            f"no trusted store key signed the head note of {origin!r}; if you know whose key it is, pass it in "
            "trust=, or open the store with the key file of its writer"
        )
        raise UntrustedKeyError(msg)
    return head


def vkey(origin: str, public: bytes) -> str:
    """Return the C2SP verifier key of a store: what witnesses and their tools are configured with.

    Raises InvalidStateError for an origin that ``head_text`` refuses.
    """
    _check_origin(origin)
    return f"{origin}+{_key_id(origin, public).hex()}+{encode64(_ED25519 + public)}"


def _key_id(name: str, public: bytes) -> bytes:
    return digest(name.encode() + b"\n" + _ED25519 + public)[:_ID_SIZE]


def _check_origin(origin: str) -> None:
    problem = ""
    try:
        if not _NAME.fullmatch(origin):
            problem = "an origin is one word without white space, control characters and '+'"
        elif len(origin.encode()) > MAX_ORIGIN:
            problem = f"an origin has at most {MAX_ORIGIN} bytes"
    except UnicodeEncodeError:
        problem = "an origin has no lone surrogates"
    if problem:
        raise InvalidStateError(f"{problem}: {origin[:80]!r}")


def _split(note: bytes) -> tuple[bytes, list[tuple[str, bytes]]]:
    if len(note) > MAX_NOTE:
        msg = f"a head note of {len(note)} bytes is longer than the {MAX_NOTE} that are read"
        raise CorruptError(msg)
    try:
        whole = note.decode("utf-8")
    except UnicodeDecodeError as error:
        msg = "the head note is not UTF-8 text"
        raise CorruptError(msg) from error
    text, blank, signatures = whole.rpartition("\n\n")
    if not blank or not signatures.endswith("\n") or _CONTROL.search(whole):
        msg = "not a signed note: text, a blank line and signature lines are expected"
        raise CorruptError(msg)
    return f"{text}\n".encode(), list(_signatures(signatures.removesuffix("\n").split("\n")))


def _signatures(lines: list[str]) -> Iterator[tuple[str, bytes]]:
    if len(lines) > MAX_SIGNATURES:
        msg = f"a head note has at most {MAX_SIGNATURES} signatures, not {len(lines)}"
        raise CorruptError(msg)
    for line in lines:
        found = _SIGNATURE.fullmatch(line)
        blob = decode64(found[2]) if found else b""
        if found is None or len(blob) <= _ID_SIZE:
            msg = f"not a signature line of a note: {line[:80]!r}"
            raise CorruptError(msg)
        yield found[1], blob


def _parse(text: bytes) -> Head:
    lines = text.decode("utf-8").split("\n")
    # This release signs no extension lines; one head has one text.
    if len(lines) != 4 or lines[3] or not _NAME.fullmatch(lines[0]) or not _NUMBER.fullmatch(lines[1]):
        msg = "not a head note: origin, size and root are expected, a line each"
        raise CorruptError(msg)
    size, root = int(lines[1]), decode64(lines[2])
    if size > MAX_SIZE or len(root) != SIZE:
        msg = f"not a head note: a size below 2^63 and a root of {SIZE} bytes are expected"
        raise CorruptError(msg)
    if size == 0 and root != EMPTY_ROOT:
        msg = "not a head note: an empty log has one root, and this is another"
        raise CorruptError(msg)
    return Head(lines[0], size, root)
