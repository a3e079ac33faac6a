"""Keys derived from a seed, and the file that keeps it."""

from __future__ import annotations

import copy
import hashlib
import hmac
import os
import pickle
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from cpstore.errors import (
    CheckpointStoreError,
    ConflictError,
    CorruptError,
    NotFoundError,
    SignatureError,
    StorageError,
    UntrustedKeyError,
)
from cpstore.signing import keys
from cpstore.signing.keys import Signer, create_key, default_key_path, load_key, load_or_create_key

if TYPE_CHECKING:
    from pathlib import Path

SEED = bytes(range(32))
WRITER = "135d123279cd2ba31996d7c17e6e1befdb1a24cd8e1419496a95b94e31c3bf8a"
STORE = "d7b150ae96a2f1dcd9d1077877ac45fd3201614a9d626041646f166ea22ad1d9"


def pem(key: object, encryption: object = None) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption())  # type: ignore[attr-defined]


def put(path: Path, content: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_a_seed_gives_these_two_keys():
    signer = Signer.from_seed(SEED)

    assert (signer.writer.hex(), signer.store.hex()) == (WRITER, STORE)


@pytest.mark.parametrize(("label", "public"), [(b"cpstore/v1/writer", WRITER), (b"cpstore/v1/store", STORE)])
def test_the_keys_are_hkdf_sha256_of_the_seed_as_rfc_5869_spells_it(label, public):
    extracted = hmac.digest(bytes(32), SEED, hashlib.sha256)
    expanded = hmac.digest(extracted, label + b"\x01", hashlib.sha256)

    assert public == Ed25519PrivateKey.from_private_bytes(expanded).public_key().public_bytes_raw().hex()


def test_each_key_signs_its_own_role():
    signer = Signer(SEED)

    assert len(signer.sign(b"x")) == 64
    assert signer.sign(b"x") != signer.sign_note(b"x")
    assert signer.sign(b"x") == Signer(SEED).sign(b"x")


def test_generated_signers_differ():
    assert Signer.generate().writer != Signer.generate().writer


@pytest.mark.parametrize("length", [0, 31, 33, 64])
def test_a_seed_of_another_length_is_refused(length):
    with pytest.raises(SignatureError, match="32 bytes"):
        Signer.from_seed(bytes(length))


def test_a_signer_does_not_show_its_seed():
    shown = repr(Signer(SEED)) + str(Signer(SEED))

    assert SEED.hex() not in shown
    assert repr(SEED) not in shown
    assert not hasattr(Signer(SEED), "__dict__")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_signer_refuses_pickling(protocol):
    with pytest.raises(TypeError, match="private keys"):
        pickle.dumps(Signer(SEED), protocol)


def test_a_signer_refuses_copying():
    with pytest.raises(TypeError, match="private keys"):
        copy.deepcopy(Signer(SEED))


def test_a_created_key_is_read_back(tmp_path):
    made = create_key(tmp_path / "key.pem")

    assert load_key(tmp_path / "key.pem").writer == made.writer
    assert load_key(str(tmp_path / "key.pem")).store == made.store


def test_the_file_is_a_pkcs8_key_whose_raw_bytes_are_the_seed(tmp_path):
    path = put(tmp_path / "key.pem", pem(Ed25519PrivateKey.from_private_bytes(SEED)))

    assert load_key(path).writer.hex() == WRITER
    assert create_key(tmp_path / "other.pem").writer.hex() != WRITER
    assert (tmp_path / "other.pem").read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----\n")


def test_openssl_reads_a_created_key(tmp_path):
    create_key(tmp_path / "key.pem")

    try:
        done = subprocess.run(
            ["openssl", "pkey", "-in", str(tmp_path / "key.pem"), "-noout", "-text"], capture_output=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("no openssl program")
    assert b"ED25519 Private-Key" in done.stdout.replace(b"Ed25519", b"ED25519")


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o277, 0o777])
def test_file_and_folders_are_private_under_any_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        create_key(tmp_path / "a" / "b" / "key.pem")
    finally:
        os.umask(before)

    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "a/b", "a/b/key.pem")]
    assert modes == [0o700, 0o700, 0o600]
    assert [child.name for child in (tmp_path / "a" / "b").iterdir()] == ["key.pem"]


def test_creating_never_overwrites(tmp_path):
    path = put(tmp_path / "key.pem", b"precious")

    with pytest.raises(ConflictError, match=r"key\.pem.*another name"):
        create_key(path)
    assert path.read_bytes() == b"precious"
    assert list(tmp_path.iterdir()) == [path]


def test_creating_does_not_write_through_a_dangling_link(tmp_path):
    (tmp_path / "key.pem").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(ConflictError):
        create_key(tmp_path / "key.pem")
    assert not (tmp_path / "elsewhere").exists()


def test_creating_below_a_file_says_where_it_failed(tmp_path):
    put(tmp_path / "file", b"")

    with pytest.raises(StorageError, match=r"key\.pem"):
        create_key(tmp_path / "file" / "key.pem")


def test_a_crash_between_write_and_link_leaves_no_key(tmp_path, monkeypatch):
    def crash(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link", crash)
    with pytest.raises(StorageError, match="No space left"):
        create_key(tmp_path / "key.pem")
    assert list(tmp_path.iterdir()) == []


def test_loading_or_creating_is_the_same_key_twice(tmp_path):
    path = tmp_path / "new" / "key.pem"

    assert load_or_create_key(path).writer == load_or_create_key(path).writer


RACE = """
import os, sys
from cpstore.signing.keys import load_or_create_key

gate, opener = os.pipe()
answers, teller = os.pipe()
for _ in range(16):
    if os.fork() == 0:
        os.close(opener)
        os.read(gate, 1)  # returns when the parent closes its end: all start at once
        os.write(teller, load_or_create_key(sys.argv[1]).writer)
        os._exit(0)
os.close(opener)
codes = {os.wait()[1] for _ in range(16)}
os.close(teller)
told = b"".join(iter(lambda: os.read(answers, 32), b""))
print(codes, len(told), {told[at : at + 32].hex() for at in range(0, len(told), 32)})
"""


@pytest.mark.parametrize("number", range(5))
def test_sixteen_racing_processes_end_with_one_key(tmp_path, number):
    path = tmp_path / "new" / "keys" / f"{number}.pem"

    done = subprocess.run([sys.executable, "-c", RACE, str(path)], capture_output=True, check=False, text=True)

    codes, length, keys_told = done.stdout.split()
    assert (codes, length) == ("{0}", str(16 * 32)), done.stderr
    assert keys_told == str({load_key(path).writer.hex()})
    assert list(path.parent.iterdir()) == [path]


def test_a_missing_file_is_not_found(tmp_path):
    with pytest.raises(NotFoundError, match="cpstore keygen"):
        load_key(tmp_path / "key.pem")


def test_a_dangling_link_is_not_found(tmp_path):
    (tmp_path / "key.pem").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(NotFoundError):
        load_key(tmp_path / "key.pem")


def other_keys() -> dict[str, bytes]:
    small = Ed25519PrivateKey.from_private_bytes(SEED)
    return {
        "rsa": pem(rsa.generate_private_key(65537, 2048)),
        "p256": pem(ec.generate_private_key(ec.SECP256R1())),
        "encrypted": pem(small, BestAvailableEncryption(b"secret")),
    }


@pytest.mark.parametrize(("kind", "said"), [("rsa", "Ed25519"), ("p256", "Ed25519"), ("encrypted", "encrypted")])
def test_another_kind_of_key_is_refused(tmp_path, kind, said):
    path = put(tmp_path / "key.pem", other_keys()[kind])

    with pytest.raises(SignatureError, match=said):
        load_or_create_key(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage",
        bytes(64),
        b"\xff" * 100,
        b"-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n",
        b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        pem(Ed25519PrivateKey.from_private_bytes(SEED))[:-40],
        Ed25519PrivateKey.from_private_bytes(SEED)
        .public_key()
        .public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
    ],
    ids=["empty", "text", "zeros", "ones", "no-body", "short-body", "cut", "public"],
)
def test_a_bad_file_is_refused_and_never_made_anew(tmp_path, content):
    path = put(tmp_path / "key.pem", content)

    with pytest.raises(CorruptError, match=r"key\.pem"):
        load_or_create_key(path)
    assert path.read_bytes() == content


def test_a_file_that_is_too_long_is_not_parsed(tmp_path):
    path = put(tmp_path / "key.pem", pem(Ed25519PrivateKey.from_private_bytes(SEED)) + b"\n" * keys.MAX_FILE)

    with pytest.raises(CorruptError, match="longer than"):
        load_key(path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644, 0o601, 0o610])
def test_a_file_that_others_may_use_is_refused(tmp_path, mode):
    create_key(tmp_path / "key.pem")
    (tmp_path / "key.pem").chmod(mode)

    with pytest.raises(UntrustedKeyError, match="chmod 600"):
        load_key(tmp_path / "key.pem")


def test_a_read_only_file_of_the_user_is_accepted(tmp_path):
    made = create_key(tmp_path / "key.pem")
    (tmp_path / "key.pem").chmod(0o400)

    assert load_key(tmp_path / "key.pem").writer == made.writer


def test_a_link_of_the_user_is_followed(tmp_path):
    made = create_key(tmp_path / "real" / "key.pem")
    (tmp_path / "two").symlink_to("real/key.pem")
    (tmp_path / "one").symlink_to(tmp_path / "two")

    assert load_key(tmp_path / "one").writer == made.writer


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("depth", [1, 2])
def test_a_link_of_another_user_is_refused(tmp_path, depth):
    create_key(tmp_path / "key.pem")
    (tmp_path / "link1").symlink_to("key.pem")
    (tmp_path / "link2").symlink_to("link1")
    os.lchown(tmp_path / "link1", 12345, 12345)

    with pytest.raises(UntrustedKeyError, match="uid 12345"):
        load_key(tmp_path / f"link{depth}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_refused(tmp_path):
    create_key(tmp_path / "key.pem")
    os.chown(tmp_path / "key.pem", 12345, 12345)

    with pytest.raises(UntrustedKeyError, match="uid 12345"):
        load_key(tmp_path / "key.pem")


def test_links_in_a_circle_are_refused(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")

    with pytest.raises(SignatureError):
        load_key(tmp_path / "a")


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(CorruptError, match="regular file"):
        load_or_create_key(tmp_path)


def test_a_fifo_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "key.pem", 0o600)

    with pytest.raises(CorruptError, match="regular file"):
        load_key(tmp_path / "key.pem")


def test_a_name_with_a_null_byte_is_refused():
    with pytest.raises(SignatureError):
        load_key("key\0.pem")
    with pytest.raises(StorageError):
        create_key("key\0.pem")


UNPRIVILEGED = """
import os, sys
os.setgid(12345), os.setuid(12345)
from cpstore.errors import SignatureError
from cpstore.signing.keys import load_key
try:
    load_key(sys.argv[1])
except SignatureError as error:
    print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_file_that_another_user_may_not_read_is_refused(tmp_path):
    create_key(tmp_path / "key.pem")
    code = UNPRIVILEGED.replace("os.setgid", "sys.path[:0] = sys.argv[2:]; import cpstore.signing.keys; os.setgid", 1)
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "key.pem"), *filter(None, sys.path)],
        capture_output=True,
        check=False,
        text=True,
    )

    assert "cannot read the key file (Permission denied)" in done.stdout, done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_refused(tmp_path):
    create_key(tmp_path / "key.pem")
    (tmp_path / "key.pem").chmod(0)

    with pytest.raises(SignatureError, match=r"cannot read the key file \(Permission denied\)"):
        load_or_create_key(tmp_path / "key.pem")


def test_the_default_key_lies_in_the_users_data_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    assert default_key_path().parts[-3:] == ("cpstore", "keys", "default.pem")


@given(st.binary(max_size=300), st.integers(0, 200), st.booleans())
def test_garbage_gives_only_errors_of_this_package(tmp_path_factory, noise, at, inside):
    whole = pem(Ed25519PrivateKey.from_private_bytes(SEED))
    path = put(tmp_path_factory.mktemp("keys") / "key.pem", whole[:at] + noise + whole[at:] if inside else noise)

    try:
        signer = load_key(path)
    except CheckpointStoreError:
        return
    assert signer.writer.hex() == WRITER
