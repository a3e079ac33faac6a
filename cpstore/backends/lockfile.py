"""The write lock of a store: one lock file beside it, which also gives waiting processes their turn.

``flock`` queues waiters, where SQLite's own busy handler polls and starves them. The file is never removed:
removing a lock file while somebody waits for it makes two holders.
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import fcntl
import os
import socket
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING

from cpstore.errors import BusyError, CheckpointStoreError, StorageError

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
        self._waiter: _Wait | None = None
        self._locked = False
        self._shut = False
        self._name = f"pid {self._pid} on {socket.gethostname()}"
        _files.add(self)

    @contextlib.contextmanager
    def held(self, timeout: float) -> Iterator[None]:
        """Hold the lock for a block. Raises BusyError after ``timeout`` seconds, naming the holder if it is known."""
        if self._pid != os.getpid():
            raise StorageError(f"{self._target}: opened before a fork; open the store again in the child")
        if self._turns.mine:
            raise CheckpointStoreError(f"{self._target}: this thread holds the write lock already")
        started = time.monotonic()
        try:
            if not self._turns.take(timeout):
                raise BusyError(self._target, time.monotonic() - started, "another thread of this process")
            self._lock(started, timeout)
            self._locked = True
            yield
        finally:
            try:
                self._release()
            except BaseException:
                self._release()  # an interrupt that comes just now must not leave it locked
                raise

    def _release(self) -> None:
        """Unlock what this thread has locked, if it has, and let the next thread have its turn."""
        if self._turns.mine:
            self._locked = False
            if self._fd >= 0 and self._pid == os.getpid():  # a child forked inside the block does not hold it
                fcntl.flock(self._fd, fcntl.LOCK_UN)
        self._turns.give()
        if self._shut:
            self.close()

    @property
    def waiting(self) -> int:
        """How many threads of this process wait for their turn."""
        return self._turns.waiting

    @property
    def locked(self) -> bool:
        """Whether this process holds the lock."""
        return self._locked

    @property
    def mine(self) -> bool:
        """Whether this thread holds the lock."""
        return self._turns.mine and self._locked

    def close(self) -> None:
        """Close the file, or let the thread that holds the lock do so when it is done. It is not opened again."""
        self._shut = True
        if self._pid != os.getpid() or self._turns.mine:
            return
        try:
            if self._turns.take(0):
                fd, self._fd = self._fd, -1
                if fd >= 0:
                    os.close(fd)
        finally:
            self._turns.give()

    def __del__(self) -> None:
        if hasattr(self, "_name"):
            self.close()

    def leave(self) -> None:
        """Close what a forked child has of its parent's lock: the copy would keep it locked when the parent dies."""
        for fd in {self._fd, -1 if self._waiter is None else self._waiter.fd} - {-1}:
            with contextlib.suppress(OSError):
                os.close(fd)
        self._fd, self._waiter = -1, None

    def holder(self) -> str:
        """Return who wrote the lock file last: the present or the last holder."""
        try:
            return os.pread(self._open(), 200, 0).split(b"\n")[0].decode("ascii", "replace")
        except OSError:
            return ""

    def _open(self) -> int:
        if self._fd < 0:
            self._fd = self._opened()
        return self._fd

    def _opened(self) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            try:
                return os.open(self.path, flags)
            except FileNotFoundError:
                pass
            try:
                fd = os.open(self.path, flags | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                return os.open(self.path, flags)  # another process made it just now
            os.fchmod(fd, 0o600)  # whatever the umask
        except OSError as error:
            raise StorageError(f"cannot open the lock file {self.path}: {error.strerror}") from error
        return fd

    def _lock(self, started: float, timeout: float) -> None:
        if self._shut:
            raise StorageError(f"{self._target}: this store is closed")
        try:
            fcntl.flock(self._open(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN):
                raise StorageError(f"cannot lock {self.path}: {error.strerror}") from error
            self._queue(started, timeout)
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with contextlib.suppress(OSError):  # who holds it is a service to others, not part of the lock
            os.pwrite(self._fd, f"{self._name} since {since}\n".encode("ascii", "replace").ljust(110), 0)

    def _queue(self, started: float, timeout: float) -> None:
        """Wait in the kernel's queue, in a thread of its own, which passes the lock on if nobody wants it any more.

        The thread of a call that gave up keeps its place for the next one, so that a process has one at most.
        """
        if timeout <= 0:  # no place in the queue for who does not wait: it would hold the lock for a moment later on
            raise BusyError(self._target, 0.0, self.holder())
        wait = self._waiter
        if wait is None or not wait.adopt():
            wait = self._waiter = _Wait(self._opened())
        try:
            wait.start()
            won = wait.ends(max(0.0, timeout - (time.monotonic() - started))) or not wait.abandon()
            if won and wait.failure is None:
                spare, self._fd, self._waiter = self._fd, wait.fd, None
                os.close(spare)
        except BaseException:
            self._waiter = None  # it may not even have a thread
            if self._fd != wait.fd and not wait.abandon():
                os.close(wait.fd)
            raise
        if not won:
            raise BusyError(self._target, time.monotonic() - started, self.holder())
        if wait.failure is not None:
            self._waiter = None
            os.close(wait.fd)
            raise StorageError(f"cannot lock {self.path}: {wait.failure.strerror}") from wait.failure


class _Wait:
    """One blocking wait for a lock. Its caller may give up; then who gets the lock passes it on at once."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.failure: OSError | None = None
        self._deciding = threading.Lock()
        self._gate = threading.Lock()
        self._gate.acquire()
        self._started = False
        self._over = False
        self._abandoned = False

    def start(self) -> None:
        """Let a thread wait, unless it does already.

        ``threading.Thread.start`` waits for the thread; an interrupt there leaves it unknown whether there is one.
        """
        if not self._started:
            self._started = True
            try:
                _thread.start_new_thread(self._run, ())
            except RuntimeError as error:
                os.close(self.fd)
                raise StorageError("no thread can be started to wait for the write lock") from error

    def ends(self, timeout: float) -> bool:
        """Wait until the wait is over. False if it is not, or not for sure."""
        return self._gate.acquire(timeout=min(timeout, threading.TIMEOUT_MAX))

    def _run(self) -> None:
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX)
        except OSError as error:
            self.failure = error
        with self._deciding:
            self._over = True
            if self._abandoned:
                with contextlib.suppress(OSError):  # closing alone would leave it to a child that was forked meanwhile
                    fcntl.flock(self.fd, fcntl.LOCK_UN)
                os.close(self.fd)
                self.fd = -1
            else:
                self._gate.release()

    def adopt(self) -> bool:
        """Want the lock again. False if it was passed on already."""
        with self._deciding:
            if self.fd < 0:
                return False
            self._abandoned = False
            return True

    def abandon(self) -> bool:
        """Give up. False if the wait is over already: then the lock is the caller's."""
        with self._deciding:
            self._abandoned = self._abandoned or not self._over
            return self._abandoned


class _Turns:
    """A mutex whose waiters are served in order.

    Whose turn it is, is known by the thread and not by what ``take`` returned: an interrupt can come in between.
    """

    def __init__(self) -> None:
        self._queue: deque[tuple[int, threading.Lock]] = deque()
        self._lock = threading.Lock()
        self._owner = 0

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def mine(self) -> bool:
        return self._owner == threading.get_ident()

    def take(self, timeout: float) -> bool:
        """Wait for the turn. Whatever comes of it, ``give`` is to follow."""
        me, gate = threading.get_ident(), threading.Lock()
        gate.acquire()
        with self._lock:
            if not self._owner:
                self._owner = me
                return True
            self._queue.append((me, gate))
        gate.acquire(timeout=min(max(0.0, timeout), threading.TIMEOUT_MAX))
        with self._lock:
            return self._owner == me

    def give(self) -> None:
        """Pass the turn on, or stop waiting for it."""
        me = threading.get_ident()
        with self._lock:
            if self._owner != me:
                self._queue = deque(one for one in self._queue if one[0] != me)
            elif self._queue:
                self._owner, gate = self._queue.popleft()
                gate.release()
            else:
                self._owner = 0


_files: weakref.WeakSet[LockFile] = weakref.WeakSet()


def _leave_all() -> None:
    for file in list(_files):
        file.leave()


os.register_at_fork(after_in_child=_leave_all)
