"""Open the store that a command looks at: read only, and never made."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import attrs

from cpstore.errors import InvalidStateError, NotFoundError
from cpstore.inspect.exits import Phase, during
from cpstore.inspect.render import visible
from cpstore.signing.keyring import short
from cpstore.signing.keys import default_key_path, load_key, load_or_create_key
from cpstore.store import open_store

if TYPE_CHECKING:
    import argparse

    from cpstore.signing.keys import Signer
    from cpstore.store import Store


@attrs.frozen
class Asked:
    """What a command was asked: about which open store, at which path, trusting which key, with which arguments.

    ``key`` is the path of the key file, ``writer`` the short fingerprint of its public key.
    """

    store: Store
    path: str
    key: str
    writer: str
    args: argparse.Namespace

    @property
    def namespace(self) -> str:
        """The namespace that lineages are looked up in."""
        return self.args.namespace or "default"


def file_of(target: str) -> str:
    """Return the path that a target names."""
    return target.removeprefix("sqlite:///") if target.startswith("sqlite:///") else target


def check_file(target: str) -> str:
    """Return the path of an existing regular file, or raise: nothing else is ever opened.

    A named pipe would block, a directory or a device is no store. Raises NotFoundError, InvalidStateError.
    """
    path = file_of(target)
    try:
        found = os.stat(path)  # noqa: PTH116  (follows links, opens nothing)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(f"{visible(path)}: there is no store; `cpstore init {visible(path)}` makes one") from None
    except (OSError, ValueError) as error:
        raise InvalidStateError(f"{visible(path)}: cannot be looked at ({error})") from error
    if not stat.S_ISREG(found.st_mode):
        kind = "a directory" if stat.S_ISDIR(found.st_mode) else "not a regular file"
        raise InvalidStateError(f"{visible(path)}: is {kind}, a store is one file", advice="name the file itself")
    return path


def signer_of(key: str | None, *, create: bool = False) -> tuple[Signer, str]:
    """Return the signer of a key file (default: this user's) and its path. ``create`` makes the default one."""
    with during(Phase.KEY):
        path = default_key_path() if key is None else key
        return (load_or_create_key if create and key is None else load_key)(path), str(path)


def look(target: str, key: str | None) -> tuple[Store, str, str]:
    """Open an existing store for reading; returns it, the key file that was used and the key's short fingerprint."""
    with during(Phase.OPEN):
        check_file(target)
    signer, key_path = signer_of(key)
    with during(Phase.OPEN):
        store = open_store(target, create=False, read_only=True, signer=signer)
    return store, key_path, short(signer.writer)
