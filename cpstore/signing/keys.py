"""The two private keys of a store, and the file that holds their seed."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from cpstore.errors import ConflictError, CorruptError, NotFoundError, SignatureError, StorageError, UntrustedKeyError
from cpstore.signing.keyring import short

if TYPE_CHECKING:
    from typing import SupportsIndex

SEED_SIZE = 32
MAX_FILE = 16 << 10
"""The longest key file that is read, in bytes."""

_WRITER = b"cpstore/v1/writer"
_STORE = b"cpstore/v1/store"
_MAX_LINKS = 40
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Signer:
    """Two Ed25519 private keys made from one seed: one signs entries, the other signs head notes.

    They are HKDF-SHA256 (RFC 5869, no salt) of the seed under two labels, so that a signature of one role never
    counts in the other. ``writer`` and ``store`` are the raw 32-byte public keys. A signer may be shared between
    threads; it refuses pickling, so that no secret leaves the process by accident.
    """

    __slots__ = ("_store_key", "_writer_key", "store", "writer")

    def __init__(self, seed: bytes) -> None:
        """Derive both keys from ``seed``, 32 secret bytes. Raises SignatureError for another length."""
        if len(seed) != SEED_SIZE:
            msg = f"the seed of a signer has {SEED_SIZE} bytes, not {len(seed)}"
            raise SignatureError(msg)
        self._writer_key = _derive(seed, _WRITER)
        self._store_key = _derive(seed, _STORE)
        self.writer: bytes = self._writer_key.public_key().public_bytes_raw()
        self.store: bytes = self._store_key.public_key().public_bytes_raw()

    @classmethod
    def from_seed(cls, seed: bytes) -> Signer:
        """Return the signer of a seed. Raises SignatureError unless it has 32 bytes."""
        return cls(seed)

    @classmethod
    def generate(cls) -> Signer:
        """Return a new signer whose seed nobody keeps: it cannot be saved."""
        return cls(secrets.token_bytes(SEED_SIZE))

    def sign(self, pae: bytes) -> bytes:
        """Return the writer key's 64-byte signature over an entry's pre-authentication encoding."""
        return self._writer_key.sign(pae)

    def sign_note(self, text: bytes) -> bytes:
        """Return the store key's 64-byte signature over the text of a note."""
        return self._store_key.sign(text)

    def __repr__(self) -> str:
        return f"<Signer writer={short(self.writer)} store={short(self.store)}>"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        msg = "a Signer holds private keys and is not pickled or copied; pass the path of its key file instead"
        raise TypeError(msg)


def default_key_path() -> Path:
    """Return where this user's key is kept: ``keys/default.pem`` in the user's data folder."""
    import platformdirs  # only where no key was named

    return platformdirs.user_data_path("cpstore") / "keys" / "default.pem"


def load_key(path: str | os.PathLike[str]) -> Signer:
    """Read a key file: an unencrypted PKCS#8 PEM (RFC 8410) of an Ed25519 key, whose raw bytes are the seed.

    Raises NotFoundError if there is none, UntrustedKeyError if others may read or could have replaced it,
    SignatureError if this process may not read it, if it is encrypted or another kind of key, CorruptError if it
    is no key at all. A bad file is never replaced.
    """
    name = Path(path)
    raw = _read(name)
    try:
        key = load_pem_private_key(raw, password=None)
    except TypeError as error:
        msg = f"{name}: the key is encrypted; store it unencrypted with mode 600, or pass signer="
        raise SignatureError(msg) from error
    except UnsupportedAlgorithm as error:
        raise SignatureError(_wrong_kind(name)) from error
    except ValueError as error:
        msg = f"{name}: not a private key in PEM; put the right file back, it is never made anew"
        raise CorruptError(msg) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise SignatureError(_wrong_kind(name))
    return Signer(key.private_bytes_raw())


def create_key(path: str | os.PathLike[str]) -> Signer:
    """Make a new key file with mode 0600 and return its signer; missing folders are made with mode 0700.

    The file appears whole or not at all, and is on disk when this returns. Raises ConflictError if the name is
    taken (nothing is ever overwritten) and StorageError if the file cannot be written.
    """
    name = Path(path)
    seed = secrets.token_bytes(SEED_SIZE)
    pem = Ed25519PrivateKey.from_private_bytes(seed).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        _make_folders(name.parent)
        _publish(name, pem)
    except FileExistsError as error:
        msg = f"{name}: there is a file already and it is left as it is; load it, or choose another name"
        raise ConflictError(msg) from error
    except (OSError, ValueError) as error:
        msg = f"{name}: cannot write the key file ({_reason(error)}); choose a folder that you may write to"
        raise StorageError(msg) from error
    return Signer(seed)


def load_or_create_key(path: str | os.PathLike[str]) -> Signer:
    """Return the signer of a key file, made now if there is none; all processes that race get the same one.

    Raises what ``load_key`` and ``create_key`` raise: a file that is there but bad is an error, not a reason to
    make another.
    """
    try:
        return load_key(path)
    except NotFoundError:
        pass
    try:
        return create_key(path)
    except ConflictError:
        return load_key(path)  # another process was first


def _derive(seed: bytes, label: bytes) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(HKDF(SHA256(), 32, None, label).derive(seed))


def _wrong_kind(name: Path) -> str:
    return f"{name}: not an Ed25519 private key; make one with `cpstore keygen`"


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _read(name: Path) -> bytes:
    try:
        real = _follow(name)
        # O_NONBLOCK: a FIFO put in place of the file must not hang the process.
        handle = os.open(real, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            _check_file(name, os.fstat(handle))
            raw = os.read(handle, MAX_FILE + 1)
        finally:
            os.close(handle)
    except (FileNotFoundError, NotADirectoryError) as error:
        msg = f"{name}: there is no key file; make one with `cpstore keygen`, or put it back from a copy"
        raise NotFoundError(msg) from error
    except (OSError, ValueError) as error:
        msg = f"{name}: cannot read the key file ({_reason(error)}); make it readable for this user (chmod 600)"
        raise SignatureError(msg) from error
    if len(raw) > MAX_FILE:
        msg = f"{name}: longer than the {MAX_FILE} bytes of any key file; name the right file"
        raise CorruptError(msg)
    return raw


def _follow(name: Path) -> Path:
    """Resolve symbolic links at the end of ``name``, each of which must belong to this user."""
    place = name
    for _ in range(_MAX_LINKS):
        found = place.lstat()
        if not stat.S_ISLNK(found.st_mode):
            return place
        if found.st_uid != os.geteuid():
            msg = f"{name}: {place} is a symbolic link of another user (uid {found.st_uid}); name the file itself"
            raise UntrustedKeyError(msg)
        place = place.parent / place.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _check_file(name: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        msg = f"{name}: not a regular file; name a key file"
        raise CorruptError(msg)
    if found.st_uid not in {os.geteuid(), 0}:
        msg = f"{name}: belongs to another user (uid {found.st_uid}), who knows the key; use a key of your own"
        raise UntrustedKeyError(msg)
    if found.st_mode & _OTHERS:
        msg = (
            f"{name}: others may use the file (mode {stat.S_IMODE(found.st_mode):o}); run chmod 600 on it, and "
            "make a new key if somebody could have read it"
        )
        raise UntrustedKeyError(msg)


def _make_folders(folder: Path) -> None:
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        try:
            new.mkdir(mode=0o700)
        except FileExistsError:
            continue  # another process was first
        new.chmod(0o700)  # the umask may have taken the owner's own rights
        _sync(new.parent)


def _publish(name: Path, content: bytes) -> None:
    draft = name.parent / f".{name.name}.{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    handle = os.open(draft, flags, 0o600)
    try:
        with open(handle, "wb") as file:  # noqa: PTH123  (a descriptor, not a path)
            os.fchmod(handle, 0o600)
            file.write(content)
            file.flush()
            os.fsync(handle)
        os.link(draft, name)  # unlike a rename, this never replaces what has the name
    finally:
        draft.unlink()
    _sync(name.parent)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
