"""Backends for tests, and a child process that holds a lock."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
import traceback

from cpstore.backends.sqlite import SqliteBackend

EPOCH = 1_790_000_000_000_000


def opened(path, **changed):
    options = {
        "create": True,
        "read_only": False,
        "durability": "full",
        "timeout": 10.0,
        "checkpoint": "auto",
        "new_origin": lambda: "cpstore.test/origin",
        "clock": lambda: EPOCH,
    }
    return SqliteBackend.open(str(path), **{**options, **changed})


def in_child(act):
    """Run ``act`` in a forked child and return its exit code."""
    child = os.fork()
    if child == 0:
        code = 9
        try:
            code = act() or 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


WORK = """
import sys
sys.path.insert(0, sys.argv[2])
from sqlite_cases import opened
backend = opened(sys.argv[1])
"""


def work(path, code):
    """Run code on a ``backend`` in a new process."""
    command = [sys.executable, "-c", WORK + textwrap.dedent(code), str(path), os.path.dirname(__file__)]
    subprocess.run(command, check=True)


HOLD = """
import sys
from cpstore.backends.lockfile import LockFile
with LockFile(sys.argv[1]).held(10):
    print("held", flush=True)
    sys.stdin.readline()
print("released", flush=True)
"""


@contextlib.contextmanager
def holder(path):
    """A process that holds the write lock of ``path`` until a line is sent to it, or it is killed."""
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()
