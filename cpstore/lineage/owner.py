"""Which process carries an effect out, and whether it still runs. Linux says so exactly; elsewhere ``ps`` is asked."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
from hashlib import sha256
from pathlib import Path

from cpstore.model.effect import Owner
from cpstore.rules.effects import Liveness

_PROC = Path("/proc")
_BOOT = _PROC / "sys/kernel/random/boot_id"


def myself() -> Owner:
    """Return the owner that this process is."""
    return _myself(os.getpid())


def liveness(owner: Owner) -> Liveness:
    """Tell whether an owner still runs. A process of another machine, boot or container cannot be looked at."""
    me = myself()
    if owner == me:
        return Liveness.ALIVE
    if owner.boot != me.boot:
        # The same machine after a restart is told by its name, which the label of a boot begins with.
        same = owner.boot.partition("/")[0] == me.boot.partition("/")[0]
        return Liveness.GONE if same and owner.space == me.space else Liveness.UNSEEN
    if owner.space != me.space:
        return Liveness.UNSEEN
    return Liveness.ALIVE if _started(owner.pid) == owner.started else Liveness.GONE


@functools.cache
def _myself(pid: int) -> Owner:
    return Owner(_boot(), _space(), pid, _started(pid) or 0)


@functools.cache
def _boot() -> str:
    """Return a label of this machine and this run of it: a name that stays, and one that a restart changes."""
    try:
        run = _BOOT.read_text().strip()
    except OSError:
        run = _ask("sysctl", "-n", "kern.bootsessionuuid") or _ask("sysctl", "-n", "kern.boottime")
    return f"{_short(platform.node())}/{_short(run)}"


@functools.cache
def _space() -> str:
    """Return the process id space: containers that share a file do not share their ids."""
    try:
        return _short(os.readlink(_PROC / "self/ns/pid"))  # noqa: PTH115 - not a path
    except OSError:
        return ""


def _started(pid: int) -> int | None:
    """Return when a process started, in units that only equality is asked of; None if there is none."""
    try:
        line = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        if _PROC.joinpath("self").exists():
            return None
        said = _ask("ps", "-o", "lstart=", "-p", str(pid))
        return int.from_bytes(sha256(said.encode()).digest()[:6], "big") if said else None
    fields = line.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])


def _ask(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout.strip()  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return ""


def _short(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:12]
