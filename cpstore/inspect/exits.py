"""Which exit code says what: one table, by where an error came up and what it is."""

from __future__ import annotations

import contextlib
import enum
from typing import TYPE_CHECKING

from cpstore.errors import (
    BusyError,
    CheckpointStoreError,
    CorruptError,
    NotFoundError,
    SignatureError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

GOOD = 0
DAMAGED = 1
DIFFERS = 1
USAGE = 2
UNVERIFIED = 3
ROLLED_BACK = 4
REFUSED_INPUT = 5
NO_STORE = 10
BUSY = 11
KEY = 12
INTERRUPTED = 130


class Phase(enum.Enum):
    """What the command was doing when an error came up."""

    KEY = "reading or making the key"
    OPEN = "opening the store"
    INPUT = "reading another file"
    ACT = "doing what was asked"


_TABLE: tuple[tuple[Phase | None, type[CheckpointStoreError], int], ...] = (
    (Phase.KEY, CheckpointStoreError, KEY),
    (None, BusyError, BUSY),
    (None, SignatureError, UNVERIFIED),
    (Phase.OPEN, NotFoundError, NO_STORE),
    (Phase.OPEN, CheckpointStoreError, REFUSED_INPUT),
    (Phase.INPUT, CheckpointStoreError, REFUSED_INPUT),
    (Phase.ACT, CorruptError, DAMAGED),
    (Phase.ACT, CheckpointStoreError, USAGE),
)
"""The first row that fits decides; None stands for any phase."""


class Stopped(Exception):  # noqa: N818  (it ends a command, it is not one of the package's errors)
    """A command ends here: with this exit code, because of this error."""

    def __init__(self, code: int, error: CheckpointStoreError) -> None:
        super().__init__(code, error)
        self.code = code
        self.error = error


def exit_code(error: CheckpointStoreError, phase: Phase) -> int:
    """Return the exit code of an error that came up in a phase."""
    return next(code for at, kind, code in _TABLE if at in (None, phase) and isinstance(error, kind))


@contextlib.contextmanager
def during(phase: Phase) -> Iterator[None]:
    """Turn an error of the package into the end of the command, with the code of this phase."""
    try:
        yield
    except CheckpointStoreError as error:
        raise Stopped(exit_code(error, phase), error) from error
