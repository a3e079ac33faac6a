"""Which SQLite this process has, and whether it can be trusted with several writers."""

from __future__ import annotations

import sqlite3

import attrs

OLDEST = (3, 37, 0)
_FIXED = (3, 51, 3)
_BACKPORTS = {(3, 50): 7, (3, 44): 6}


@attrs.frozen
class Verdict:
    """``sound``: free of the WAL-reset bug (SQLite 3.7.0 to 3.51.2). ``accepted``: new enough for this schema."""

    version: str
    sound: bool
    accepted: bool

    @property
    def text(self) -> str:
        """The verdict in one sentence."""
        if not self.accepted:
            return f"SQLite {self.version}: too old, {'.'.join(map(str, OLDEST))} is the oldest accepted"
        if self.sound:
            return f"SQLite {self.version}: sound"
        return (
            f"SQLite {self.version}: has the WAL-reset bug (fixed in 3.51.3); safe here, because cpstore checkpoints "
            "only under its own lock. Let no other program write or checkpoint this file"
        )


def judge(version: tuple[int, int, int]) -> Verdict:
    """Return the verdict on a version of SQLite."""
    patch = _BACKPORTS.get(version[:2])
    sound = version >= _FIXED or (patch is not None and version[2] >= patch)
    return Verdict(".".join(map(str, version)), sound, version >= OLDEST)


def loaded() -> Verdict:
    """Return the verdict on the library that this process has loaded."""
    major, minor, patch = sqlite3.sqlite_version_info
    return judge((major, minor, patch))
