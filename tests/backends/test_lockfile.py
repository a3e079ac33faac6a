"""The write lock: one holder, first come first served, never lost by who gave up, died or was interrupted."""

from __future__ import annotations

import os
import stat
import threading
import time

import pytest
from sqlite_cases import holder

from cpstore.backends import lockfile
from cpstore.backends.lockfile import LockFile
from cpstore.errors import BusyError, StorageError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.db"


def test_the_lock_file_is_private_and_stays(path):
    old = os.umask(0)
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


def test_a_wait_that_is_interrupted_leaves_no_lock_behind(path, monkeypatch):
    lock = LockFile(path)

    class Interrupted(threading.Event):
        def wait(self, timeout=None):
            raise KeyboardInterrupt

    with holder(path) as process:
        monkeypatch.setattr(lockfile.threading, "Event", Interrupted)
        with pytest.raises(KeyboardInterrupt), lock.held(10):
            pass
        monkeypatch.undo()
        process.kill()
        process.wait()
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


def until(true):
    """Wait for another thread's visible progress."""
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end
        threading.Event().wait(0.001)
