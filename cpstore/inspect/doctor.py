"""The surroundings of a store: database engine, files and their rights, the key, the file system."""

from __future__ import annotations

import argparse  # noqa: TC003
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpstore.inspect.exits import GOOD
from cpstore.inspect.open import file_of
from cpstore.inspect.render import amount, say, table, visible

if TYPE_CHECKING:
    from cpstore.inspect.open import Asked

_REMOTE = ("nfs", "cifs", "smb", "9p", "fuse.sshfs", "afs", "ceph", "gluster", "lustre", "vboxsf", "virtiofs", "drvfs")
_BIG_WAL = 64 << 20
_ALONE = "use a Python with SQLite 3.51.3 or later (or 3.50.7, 3.44.6), then other programs may write the file too"


def add(parser: argparse.ArgumentParser) -> None:
    """It takes no arguments of its own."""


def answer(asked: Asked) -> tuple[dict[str, Any], int]:
    """Return one line for each thing looked at: its name, ``ok`` or ``warn``, what was seen, and what to do."""
    path = Path(file_of(asked.path)).resolve()
    engine = asked.store.engine
    lines = [
        _line("engine", engine, warn="bug" in engine.lower(), advice=_ALONE),
        _rights("store file", path),
        _wal(path),
        _rights("key file", Path(asked.key)),
        _apart(path, Path(asked.key)),
        _file_system(path),
    ]
    return {"store": asked.path, "checks": lines}, GOOD


def show(value: dict[str, Any]) -> None:
    """Print it."""
    table(("", "what", "seen"), [(line["verdict"], line["what"], visible(line["seen"])) for line in value["checks"]])
    advice = [line for line in value["checks"] if line["verdict"] != "ok"]
    if advice:
        say("", *(f"{line['what']}: {visible(line['advice'])}" for line in advice))


def _line(what: str, seen: str, *, warn: bool, advice: str) -> dict[str, Any]:
    return {"what": what, "verdict": "warn" if warn else "ok", "seen": seen, "advice": advice if warn else ""}


def _rights(what: str, path: Path) -> dict[str, Any]:
    found = path.stat()
    mode = stat.S_IMODE(found.st_mode)
    mine = found.st_uid == os.geteuid()
    seen = f"{path}: mode {mode:04o}, {amount(found.st_size)}" + ("" if mine else f", owned by uid {found.st_uid}")
    return _line(what, seen, warn=bool(mode & 0o077) or not mine, advice=f"chmod 600 {path}, as its owner")


def _wal(path: Path) -> dict[str, Any]:
    wal = path.with_name(path.name + "-wal")
    size = wal.stat().st_size if wal.exists() else 0
    advice = "a reader that stays open keeps it from shrinking; close it, the next commit then takes the file back"
    return _line("write-ahead log", amount(size), warn=size > _BIG_WAL, advice=advice)


def _apart(path: Path, key: Path) -> dict[str, Any]:
    beside = key.resolve().parent == path.parent
    advice = "whoever copies the folder can sign as you; keep the key in another folder"
    return _line("key apart from store", "no" if beside else "yes", warn=beside, advice=advice)


def _file_system(path: Path) -> dict[str, Any]:
    kind = file_system(path, _mounts())
    remote = kind.startswith(_REMOTE) or kind.startswith("fuse")
    advice = f"{kind}: locks and shared memory of SQLite's WAL are not reliable there; keep the store on a local disk"
    return _line("file system", kind or "unknown", warn=remote, advice=advice)


def file_system(path: Path, mounts: str) -> str:
    """Return the type of the file system that holds ``path``; ``mounts`` is the text of /proc/self/mountinfo."""
    best, kind = "", ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        parts = left.split(" ")
        if len(parts) < 5 or not right:
            continue
        place = parts[4].encode().decode("unicode_escape")
        if len(place) >= len(best) and (place == "/" or path == Path(place) or Path(place) in path.parents):
            best, kind = place, right.split(" ")[0]
    return kind


def _mounts() -> str:
    try:
        return Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
