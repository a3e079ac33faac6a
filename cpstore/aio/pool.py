"""The threads of one store, and what a cancellation means to a call that one of them has."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import threading
from collections import deque
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from cpstore.errors import CheckpointStoreError, InvalidStateError, StorageError
from cpstore.model.binding import is_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Given = ParamSpec("Given")
Answer = TypeVar("Answer")

THREADS = 4
"""Calls of one store that are carried out at the same time, unless it is opened with another number."""
MOST = 16
"""Items of an iteration that are fetched at once: an iteration that is given up early has not read much more."""


class Pool:
    """A few threads that carry out calls, each whole or not at all.

    A call whose caller is cancelled is withdrawn if no thread has it yet. Otherwise the caller gets its CancelledError
    when the call has ended: whoever looks then sees what came of it, and nothing is still on its way. What the call
    raised is the ``__cause__`` of the CancelledError.
    """

    def __init__(self, threads: int = THREADS) -> None:
        if not is_step(threads) or threads < 1:
            raise InvalidStateError(f"threads is a number from 1 on, not {threads!r:.100}")
        self._calls = ThreadPoolExecutor(threads, "cpstore-aio")
        self._looks = ThreadPoolExecutor(1, "cpstore-aio-wait")
        self._pid = os.getpid()
        self._ended: Future[None] | None = None

    async def run(self, call: Callable[Given, Answer], *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        """Carry out a call in a thread and return its answer. Raises what it raises, StorageError after ``close``."""
        return await _settled(self._hand(self._calls, lambda: call(*args, **kwargs)), withdraw=True)

    async def run_surely(self, call: Callable[Given, Answer], *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        """Carry out a call that says what has happened: it is not withdrawn when its caller is cancelled."""
        return await _settled(self._hand(self._calls, lambda: call(*args, **kwargs)), withdraw=False)

    async def run_or_undo(self, call: Callable[[], Answer], undo: Callable[[Answer], object]) -> Answer:
        """Carry out a call whose answer has to be given back if its caller is cancelled and cannot take it."""
        taken: list[Answer] = []

        def take() -> None:
            taken.append(call())

        try:
            await self.run(take)
        except asyncio.CancelledError as cancelled:
            if taken:
                try:
                    await self.run_surely(undo, taken[0])
                except CheckpointStoreError as problem:
                    raise cancelled from problem
            raise
        return taken.pop()

    async def run_until(self, call: Callable[[], Answer], stop: Callable[[], None]) -> Answer:
        """Carry out a long call that ``stop`` asks to end soon, once its caller is cancelled."""
        return await _settled(self._hand(self._calls, call), withdraw=True, stop=stop)

    async def look(self, call: Callable[Given, Answer], *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        """Carry out a short look of somebody who waits, in a thread that no write is in the way of."""
        return await _settled(self._hand(self._looks, lambda: call(*args, **kwargs)), withdraw=True)

    async def close(self, last: Callable[[], None]) -> None:
        """Let all calls end, carry out ``last`` if this is the first closing, and end the threads.

        Raises what ``last`` raises. A second closing only waits for the first.
        """
        if self._ended is not None:
            with contextlib.suppress(Exception):  # the first closing raises it
                await _settled(self._ended, withdraw=False)
            return
        self._ended = Future()
        self._looks.shutdown(wait=False)  # from now on nothing more is taken
        self._calls.shutdown(wait=False)
        thread = threading.Thread(target=self._end, args=(last, self._ended), name="cpstore-aio-close")
        thread.start()
        try:
            await _settled(self._ended, withdraw=False)
        finally:
            thread.join()  # its last act was to say that it is done

    def _end(self, last: Callable[[], None], ended: Future[None]) -> None:
        self._looks.shutdown()
        self._calls.shutdown()
        _carry_out(ended, last)

    def _hand(self, threads: ThreadPoolExecutor, call: Callable[[], Answer]) -> Future[Answer]:
        """Give a call to the threads, with the caller's context variables."""
        if self._pid != os.getpid():
            raise StorageError("this store was opened before a fork; open it again in the child")
        answer: Future[Answer] = Future()
        context = contextvars.copy_context()
        try:
            threads.submit(context.run, _carry_out, answer, call)
        except RuntimeError as error:  # closed, or the interpreter is ending
            raise StorageError("this store is closed") from error
        return answer


class Items(AsyncIterator[Answer]):
    """An iteration whose items are fetched in a thread, ever more at once.

    A cancellation loses none of them: whoever goes on afterwards gets the next one. Tasks that share it take turns.
    """

    def __init__(self, pool: Pool, start: Callable[[], Iterator[Answer]]) -> None:
        self._pool = pool
        self._start = start
        self._source: Iterator[Answer] | None = None
        self._ready: deque[Answer] = deque()
        self._over = False
        self._problem: Exception | None = None
        self._count = 1
        self._turn = asyncio.Lock()

    async def __anext__(self) -> Answer:
        async with self._turn:
            if not self._ready and not self._over:
                await self._pool.run(self._fetch)
            if self._ready:
                return self._ready.popleft()
            problem, self._problem = self._problem, None
            raise problem or StopAsyncIteration

    def _fetch(self) -> None:
        """Get the next items; what comes before an error is given out first."""
        before = len(self._ready)
        try:
            if self._source is None:
                self._source = self._start()
            self._ready.extend(islice(self._source, self._count))
        except Exception as error:
            self._problem, self._over = error, True
            return
        self._over = len(self._ready) - before < self._count
        self._count = min(2 * self._count, MOST)


def _carry_out(answer: Future[Answer], call: Callable[[], Answer]) -> None:
    """Carry out a call that was not withdrawn, and say what came of it."""
    if not answer.set_running_or_notify_cancel():
        return
    try:
        answer.set_result(call())
    except StopIteration as error:  # an event loop's future cannot hold it
        answer.set_exception(RuntimeError(f"a call raised {error!r}"))
    except BaseException as error:
        answer.set_exception(error)
    finally:
        del answer, call  # the error's traceback has this frame: the two would keep each other


async def _settled(handed: Future[Answer], *, withdraw: bool, stop: Callable[[], None] = lambda: None) -> Answer:
    """Wait until a call has ended, come what may, and return its answer."""
    waiting = asyncio.wrap_future(handed)
    cancelled: asyncio.CancelledError | None = None
    while not waiting.done():
        try:
            await asyncio.wait([waiting])
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
            stop()
            if withdraw and handed.cancel():
                waiting.cancel()
    try:
        if cancelled is None:
            return waiting.result()
        if not waiting.cancelled():
            cancelled.__cause__ = waiting.exception()
        raise cancelled
    finally:
        del cancelled  # its traceback has this frame: the two would keep what the frame has alive
