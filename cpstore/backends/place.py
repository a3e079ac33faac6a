"""Where a store's file lies, seen from outside: opening a live file here would drop the locks SQLite has on it."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from cpstore.errors import CorruptError, NotFoundError, StorageError

Stamp = tuple[int, int, int]


def look(path: str, *, create: bool) -> bool:
    """Say whether there is a store's file, by its kind and size alone: opening it here would drop SQLite's locks."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        if create:
            return False
        raise NotFoundError(f"there is no store at {path}; make it with create=True, or check the path") from None
    except (OSError, ValueError) as error:
        raise StorageError(f"cannot look at {path}: {error}") from error
    if stat.S_ISDIR(found.st_mode):
        raise StorageError(f"{path} is a folder; a store is a file: name one inside it")
    if not stat.S_ISREG(found.st_mode):
        raise StorageError(f"{path} is not a regular file; it was left alone")
    if found.st_size:
        return True
    if not create or Path(path + "-wal").exists():
        raise CorruptError(f"{path} is empty; if it was a store, its content is gone: restore a backup")
    return False


def at_rest(path: str) -> Stamp | None:
    """Return what a file that nobody has open for writing looks like, None if it has a log or is not there."""
    found = stamp(path)
    return None if Path(path + "-wal").exists() else found


def stamp(path: str) -> Stamp | None:
    """Return which file it is, its size and when it was changed; None if it is not there."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def size(path: str) -> int:
    """Return the bytes of a file, 0 if it is not there."""
    found = stamp(path)
    return 0 if found is None else found[1]


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, for this user only."""
    try:
        for parent in reversed([folder, *folder.parents]):
            if not parent.exists():
                with contextlib.suppress(FileExistsError):
                    parent.mkdir(mode=0o700)
                    parent.chmod(0o700)  # whatever the umask
    except OSError as error:
        raise StorageError(f"cannot make the folder {folder}: {error.strerror}") from error


def remove_draft(draft: str) -> None:
    """Remove what a killed process left of a file that it was making."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        Path(draft + suffix).unlink(missing_ok=True)


def sync(folder: Path) -> None:
    """Make a new name in a folder survive power loss, where the file system can."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
