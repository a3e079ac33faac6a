"""The write lock: one holder, first come first served, never lost by who gave up, died or was interrupted."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import signal
import stat
import sys
import threading
import time

import pytest
from sqlite_cases import holder

from cpstore.backends import lockfile
from cpstore.backends.lockfile import LockFile
from cpstore.errors import BusyError, CheckpointStoreError, StorageError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.db"


@pytest.mark.parametrize("umask", [0, 0o777])
def test_the_lock_file_is_private_and_stays(path, umask):
    old = os.umask(umask)
    try:
        with LockFile(path).held(1):
            pass
    finally:
        os.umask(old)

    found = os.stat(f"{path}-lock")
    assert stat.S_IMODE(found.st_mode) == 0o600


def test_a_link_in_place_of_the_lock_file_is_refused(path, tmp_path):
    (tmp_path / "elsewhere").write_text("")
    os.symlink(tmp_path / "elsewhere", f"{path}-lock")

    with pytest.raises(StorageError), LockFile(path).held(1):
        pass


def test_a_waiter_that_gives_up_names_the_holder_and_leaves_the_lock_to_others(path):
    lock = LockFile(path)
    with holder(path) as process:
        with pytest.raises(BusyError) as busy, lock.held(0.1):
            pass
        assert f"pid {process.pid} " in busy.value.holder
        assert busy.value.waited >= 0.1
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "released\n"
    # The abandoned wait gets the lock now and passes it on.
    with lock.held(5), pytest.raises(BusyError), LockFile(path).held(0):
        pass


def test_a_waiter_gets_the_lock_when_it_is_released(path):
    with holder(path) as process:
        threading.Timer(0.2, lambda: (process.stdin.write("\n"), process.stdin.flush())).start()
        with LockFile(path).held(10):
            assert process.stdout.readline() == "released\n"


def test_the_lock_of_a_killed_process_is_free(path):
    with holder(path) as process:
        process.kill()
        process.wait()
        with LockFile(path).held(5):
            pass


def test_a_wait_that_is_interrupted_leaves_no_lock_behind(path):
    lock = LockFile(path)
    with holder(path) as process:
        with interrupting(lambda: waiters(path) == 1), pytest.raises(KeyboardInterrupt), lock.held(60):
            pass
        process.kill()
    with LockFile(path).held(5):
        pass
    with lock.held(5):
        pass


def test_a_wait_that_the_system_refuses_is_no_lock(path, monkeypatch):
    lock = LockFile(path)
    real = lockfile.fcntl.flock

    def refuse(fd, how):
        if how == lockfile.fcntl.LOCK_EX:
            raise OSError(37, "No locks available")
        real(fd, how)

    with holder(path):
        monkeypatch.setattr(lockfile.fcntl, "flock", refuse)
        with pytest.raises(StorageError, match="No locks available"), lock.held(5):
            pass


def test_threads_take_turns_in_the_order_in_which_they_came(path):
    lock = LockFile(path)
    order: list[int] = []
    threads = []

    def work(number):
        with lock.held(20):
            order.append(number)

    with lock.held(1):
        for number in range(8):
            thread = threading.Thread(target=work, args=(number,))
            thread.start()
            threads.append(thread)
            until(lambda waiting=number + 1: lock.waiting == waiting)
    for thread in threads:
        thread.join()

    assert list(range(8)) == order


def test_a_thread_that_gives_up_does_not_take_the_turn(path):
    lock = LockFile(path)
    refused = []

    def impatient():
        try:
            with lock.held(0.05):
                pass
        except BusyError as error:
            refused.append(error)

    with lock.held(1):
        thread = threading.Thread(target=impatient)
        thread.start()
        thread.join()
    with lock.held(1):
        pass

    assert refused[0].holder == "another thread of this process"


def test_the_lock_of_a_killed_process_is_free_though_its_forked_child_lives(path):
    reader, writer = os.pipe()
    holding = os.fork()
    if holding == 0:
        with LockFile(path).held(5):
            child = os.fork()
            if child == 0:
                signal.pause()
            os.write(writer, str(child).encode())
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(holding, 0)
    child = int(os.read(reader, 20))
    try:
        with LockFile(path).held(5):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.close(reader)
        os.close(writer)


def test_a_child_that_leaves_its_parents_block_does_not_unlock(path):
    lock = LockFile(path)
    block = lock.held(1)
    block.__enter__()
    child = os.fork()
    if child == 0:
        try:
            block.__exit__(None, None, None)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    with pytest.raises(BusyError), LockFile(path).held(0):
        pass
    block.__exit__(None, None, None)


def test_calls_that_give_up_share_one_place_in_the_queue(path):
    lock = LockFile(path)
    with holder(path):
        for _ in range(10):
            with pytest.raises(BusyError), lock.held(0.001):
                pass
        until(lambda: waiters(path) > 0)
        assert waiters(path) == 1
    with lock.held(5):
        pass


def test_a_call_that_gave_up_is_followed_by_one_that_gets_the_lock(path):
    lock = LockFile(path)
    with holder(path) as process:
        with pytest.raises(BusyError), lock.held(0.001):
            pass
        threading.Timer(0.2, process.kill).start()
        with lock.held(10), pytest.raises(BusyError), LockFile(path).held(0):
            pass
    with LockFile(path).held(5):
        pass


def test_a_turn_that_is_interrupted_goes_to_the_next(path):
    lock = LockFile(path)
    held, release = threading.Event(), threading.Event()

    def hold():
        with lock.held(5):
            held.set()
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        held.wait()
        with interrupting(lambda: lock.waiting == 1), pytest.raises(KeyboardInterrupt), lock.held(60):
            pass
    finally:
        release.set()
        thread.join()
    with lock.held(1):
        pass


def test_closing_while_a_thread_holds_the_lock_leaves_it_locked(path):
    lock = LockFile(path)
    held, release = threading.Event(), threading.Event()

    def hold():
        with lock.held(5):
            held.set()
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    lock.close()
    with pytest.raises(BusyError), LockFile(path).held(0):
        pass
    release.set()
    thread.join()

    with LockFile(path).held(0):
        pass
    with pytest.raises(StorageError, match="closed"), lock.held(0):
        pass


def test_the_holder_is_named_with_the_time_since_when(path):
    with LockFile(path).held(1), pytest.raises(BusyError) as busy, LockFile(path).held(0):
        pass

    assert re.fullmatch(r"pid \d+ on \S+ since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", busy.value.holder)


def interrupted_at(moment, act):
    """Interrupt ``act`` at the n-th moment at which Python may let a signal in; False if it ended before."""
    left = moment

    def count(frame, event, argument):
        nonlocal left
        if event in ("call", "c_return"):
            left -= 1
            if left == 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    sys.setprofile(count)
    try:
        act()
    except KeyboardInterrupt:
        return True
    except BusyError:
        pass
    finally:
        sys.setprofile(None)
    return left <= 0


@pytest.mark.parametrize("contended", ["free", "won after a wait"])
def test_an_interrupt_at_any_moment_leaves_the_lock_free(path, contended, monkeypatch):
    real, moment = lockfile.fcntl.flock, 0
    refused = []

    def flock(fd, how):
        if how == lockfile.fcntl.LOCK_EX | lockfile.fcntl.LOCK_NB and refused:
            refused.pop()
            raise BlockingIOError(11, "somebody holds it, and releases it at once")
        real(fd, how)

    monkeypatch.setattr(lockfile.fcntl, "flock", flock)
    lock = LockFile(path)

    def act():
        with lock.held(5):
            pass

    interrupted = True
    while interrupted:
        moment += 1
        refused[:] = ["once"] if contended != "free" else []
        interrupted = interrupted_at(moment, act)
        refused.clear()
        with LockFile(path).held(1):
            pass
        with lock.held(1):
            pass
    assert moment > 10


def test_an_interrupt_at_any_moment_of_a_wait_that_gives_up_leaves_the_lock_to_others(path):
    lock, moment = LockFile(path), 0

    def act():
        with lock.held(0.001):
            pass

    with holder(path) as process:
        interrupted = True
        while interrupted:
            moment += 1
            interrupted = interrupted_at(moment, act)
        process.kill()
    for _ in range(2):
        with lock.held(5), pytest.raises(BusyError), LockFile(path).held(0):
            pass
        with LockFile(path).held(5):
            pass
    assert moment > 20


def test_a_thread_that_holds_the_lock_is_told_so_at_once_when_it_asks_again(path):
    lock = LockFile(path)

    with lock.held(1):
        with pytest.raises(CheckpointStoreError, match="this thread holds"), lock.held(60):
            pass
        with pytest.raises(BusyError), LockFile(path).held(0):
            pass


def test_a_thread_that_is_refused_leaves_the_lock_to_the_thread_that_holds_it(path):
    lock = LockFile(path)

    def ask():
        with pytest.raises(BusyError), lock.held(0):
            pass

    with lock.held(1):
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        assert lock.locked
        with pytest.raises(BusyError), LockFile(path).held(0):
            pass


def test_who_does_not_wait_takes_no_place_in_the_queue(path, monkeypatch):
    how = []
    real = lockfile.fcntl.flock
    monkeypatch.setattr(lockfile.fcntl, "flock", lambda fd, asked: (how.append(asked), real(fd, asked)))

    with LockFile(path).held(1), pytest.raises(BusyError), LockFile(path).held(0):
        pass

    assert lockfile.fcntl.LOCK_EX not in how


def test_a_holder_that_was_stopped_is_named(path):
    with holder(path) as process:
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        with pytest.raises(BusyError, match=f"pid {process.pid} on "), LockFile(path).held(0.05):
            pass


def test_ten_thousand_turns_leave_no_descriptor_and_no_thread_behind(path):
    lock = LockFile(path)
    with lock.held(1):
        pass
    gc.collect()
    before = len(os.listdir("/proc/self/fd")), threads()
    for _ in range(10_000):
        with lock.held(1):
            pass
    for _ in range(100):
        with LockFile(path).held(1), pytest.raises(BusyError), lock.held(0.001):
            pass
    until(lambda: waiters(path) == 0 and threads() <= before[1])
    with lock.held(1):
        pass
    assert len(os.listdir("/proc/self/fd")) <= before[0]


@contextlib.contextmanager
def interrupting(when):
    """Interrupt the block once, as soon as ``when``: a signal that comes just before a wait does not end it."""
    done, raised = threading.Event(), []

    def interrupt(*_):
        if not raised:
            raised.append(True)
            raise KeyboardInterrupt

    def insist():
        until(when)
        while not done.wait(0.01) and not raised:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    old = signal.signal(signal.SIGUSR1, interrupt)
    thread = threading.Thread(target=insist)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        signal.signal(signal.SIGUSR1, old)


def waiters(path):
    """How many wait for the lock of a file, in any process, by what the kernel says."""
    inode = os.stat(f"{path}-lock").st_ino
    with open("/proc/locks") as locks:
        return sum("->" in line and f":{inode} " in line for line in locks)


def threads():
    return len(os.listdir("/proc/self/task"))


def until(true):
    """Wait for another thread's visible progress."""
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end
        threading.Event().wait(0.001)
