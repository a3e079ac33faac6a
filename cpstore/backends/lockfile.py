"""The write lock of a store: one lock file beside it, which also gives waiting processes their turn.

``flock`` queues waiters, where SQLite's own busy handler polls and starves them. The file is never removed:
removing a lock file while somebody waits for it makes two holders.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from cpstore.errors import BusyError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator


class LockFile:
    """The lock of one store in this process. Threads take turns, first come first served."""

    def __init__(self, target: str) -> None:
        self.path = f"{os.path.realpath(target)}-lock"
        self._target = target
        self._turns = _Turns()
        self._pid = os.getpid()
        self._fd = -1
        self._locked = False
        self._name = f"pid {self._pid} on {socket.gethostname()}\n".encode("ascii", "replace").ljust(80)

    @contextlib.contextmanager
    def held(self, timeout: float) -> Iterator[None]:
        """Hold the lock for a block. Raises BusyError after ``timeout`` seconds, naming the holder if it is known."""
        if self._pid != os.getpid():
            raise StorageError(f"{self._target}: opened before a fork; open the store again in the child")
        started = time.monotonic()
        if not self._turns.take(timeout):
            raise BusyError(self._target, time.monotonic() - started, "another thread of this process")
        try:
            self._lock(started, timeout)
            self._locked = True
            try:
                yield
            finally:
                self._locked = False
                fcntl.flock(self._fd, fcntl.LOCK_UN)
        finally:
            self._turns.give()

    @property
    def waiting(self) -> int:
        """How many threads of this process wait for their turn."""
        return self._turns.waiting

    @property
    def locked(self) -> bool:
        """Whether this process holds the lock."""
        return self._locked

    def close(self) -> None:
        """Close the file. The lock must not be held."""
        if self._fd >= 0 and self._pid == os.getpid():
            os.close(self._fd)
        self._fd = -1

    def holder(self) -> str:
        """Return who wrote the lock file last: the present or the last holder."""
        try:
            return os.pread(self._open(), 200, 0).split(b"\n")[0].decode("ascii", "replace")
        except OSError:
            return ""

    def _open(self) -> int:
        if self._fd < 0:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            try:
                self._fd = os.open(self.path, flags, 0o600)
            except OSError as error:
                raise StorageError(f"cannot open the lock file {self.path}: {error.strerror}") from error
        return self._fd

    def _lock(self, started: float, timeout: float) -> None:
        fd = self._open()
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN):
                raise StorageError(f"cannot lock {self.path}: {error.strerror}") from error
            self._queue(fd, started, timeout)
        with contextlib.suppress(OSError):  # who holds it is a service to others, not part of the lock
            os.pwrite(fd, self._name, 0)

    def _queue(self, fd: int, started: float, timeout: float) -> None:
        """Wait in the kernel's queue, in a thread of its own, which passes the lock on if nobody wants it any more."""
        wait = _Wait(fd)
        try:
            threading.Thread(target=wait.run, name="cpstore-lock", daemon=True).start()
            if wait.over.wait(max(0.0, timeout - (time.monotonic() - started))) or not wait.abandon():
                wait.check(self.path)
                return
        except BaseException:
            if not wait.abandon():
                fcntl.flock(fd, fcntl.LOCK_UN)
            else:
                self._fd = -1
            raise
        self._fd = -1  # the waiting thread owns the descriptor now and closes it
        raise BusyError(self._target, time.monotonic() - started, self.holder())


class _Wait:
    """One blocking wait for a lock. Its caller may give up; then who gets the lock passes it on at once."""

    def __init__(self, fd: int) -> None:
        self.over = threading.Event()
        self._fd = fd
        self._deciding = threading.Lock()
        self._abandoned = False
        self._failure: OSError | None = None

    def run(self) -> None:
        """Wait for the lock. The body of the waiting thread."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        except OSError as error:
            self._failure = error
        with self._deciding:
            if self._abandoned:
                os.close(self._fd)  # and with it the lock
            else:
                self.over.set()

    def abandon(self) -> bool:
        """Give up. False if the wait is over already: then the lock is the caller's."""
        with self._deciding:
            self._abandoned = self._abandoned or not self.over.is_set()
            return self._abandoned

    def check(self, path: str) -> None:
        """Raise StorageError if the wait ended without the lock."""
        if self._failure is not None:
            raise StorageError(f"cannot lock {path}: {self._failure.strerror}") from self._failure


class _Turns:
    """A mutex whose waiters are served in order."""

    def __init__(self) -> None:
        self._queue: deque[threading.Lock] = deque()
        self._lock = threading.Lock()
        self._taken = False

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def take(self, timeout: float) -> bool:
        with self._lock:
            if not self._taken:
                self._taken = True
                return True
            mine = threading.Lock()
            mine.acquire()
            self._queue.append(mine)
        if mine.acquire(timeout=max(0.0, timeout)):
            return True
        with self._lock:
            if mine in self._queue:
                self._queue.remove(mine)
                return False
        return True  # the turn was given just now

    def give(self) -> None:
        with self._lock:
            if self._queue:
                self._queue.popleft().release()
            else:
                self._taken = False
