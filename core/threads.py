"""Threads that we own, and the time that may be spent waiting for them."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from numbers import Real
from queue import SimpleQueue
from typing import Generic, TypeVar

from .guard import Guard

T = TypeVar("T")

PAUSE_AFTER_ERROR_SECONDS = 0.2
END_OF_IDLE_THREAD_SECONDS = 1.0


class Loop:
    """A named daemon thread that calls ``step`` repeatedly until it is stopped.

    An error in a step is contained, counted under ``name`` and followed by a short pause, so a
    broken step can neither end the thread nor spin. ``wake`` ends the pause of a step, if it has
    one; it never waits. The thread calls ``last`` once at the end. A forked child has no such
    thread, so the loop does nothing there.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], object],
        guard: Guard,
        last: Callable[[], object] = lambda: None,
        wake: Callable[[], object] = lambda: None,
    ) -> None:
        self.name = name
        self.stopping = threading.Event()
        self._step = step
        self._last = last
        self._wake = wake
        self._guard = guard
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    @property
    def is_forked(self) -> bool:
        """Whether this is a forked child, whose copies of locks and sockets are the parent's."""
        return os.getpid() != self._pid

    def start(self) -> None:
        """Start the thread; a second call does nothing."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=f"querypulse-{self.name}", daemon=True)
            thread.start()
            self._thread = thread

    def stop(self) -> None:
        """Make the loop end after its current step."""
        self.stopping.set()
        self._wake()

    def join(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds for the end; False when a step still runs."""
        thread = self._thread
        if thread is None or self.is_forked or thread is threading.current_thread():
            return True
        thread.join(max(0.0, timeout))
        return not thread.is_alive()

    def _run(self) -> None:
        while not self.stopping.is_set():
            if not self._guard.attempt(self.name, self._make_step, default=False):
                self.stopping.wait(PAUSE_AFTER_ERROR_SECONDS)
        self._guard.attempt(self.name, self._last)

    def _make_step(self) -> bool:
        """Make one step; return True, which an error does not."""
        self._step()
        return True


class TimedCalls:
    """Makes calls that may hang, in a thread of its own, one after the other; used by one thread.

    A call that takes too long keeps its thread, and the next one gets another. No other call is
    made to its place before it has returned: a place that hangs holds one thread and costs one
    wait, however many ask it. A thread is kept as long as possible, because Py4J opens a connection
    for each.
    """

    def __init__(self, name: str) -> None:
        self._name = f"querypulse-{name}"
        self._queue: SimpleQueue[Callable[[], None] | None] | None = None
        self._thread: threading.Thread | None = None
        self._late: dict[str, Callable[[], bool]] = {}
        """By place: whether its last call that took too long has returned."""

    def begin(self, call: Callable[[], T]) -> Future[T]:
        """Call, and return the future answer."""
        if self._queue is None:
            self._queue = SimpleQueue()
            arguments = (self._queue,)
            thread = threading.Thread(target=_serve, args=arguments, name=self._name, daemon=True)
            thread.start()
            self._thread = thread
        answer: Future[T] = Future()
        self._queue.put(partial(_answer, call, answer))
        return answer

    def is_held(self, place: str) -> bool:
        """Whether a call to a place has taken too long, and has not returned yet."""
        has_returned = self._late.get(place)
        return has_returned is not None and not has_returned()

    def hold(self, place: str, answer: Future[T]) -> None:
        """Make no other call to a place before the answer of this one, which takes too long."""
        self._late[place] = answer.done
        self._leave_thread()

    def close(self) -> None:
        """End the thread, unless it is held by a call, and wait for its end."""
        thread = self._thread
        self._leave_thread()
        if thread is not None:
            thread.join(END_OF_IDLE_THREAD_SECONDS)

    def _leave_thread(self) -> None:
        """Let the thread end after its call; the next call gets another one."""
        if self._queue is not None:
            self._queue.put(None)
        self._queue = self._thread = None


class HeldError(TimeoutError):
    """Another call to the same place has not returned, so this one was not made."""


class TimedCall(Generic[T]):
    """One call to a place that is made again and again, and waited for at most ``seconds``.

    One that takes longer is not made again before it has returned; that answer counts, too.
    """

    def __init__(self, calls: TimedCalls, place: str, seconds: float) -> None:
        self._calls = calls
        self._place = place
        self._seconds = seconds
        self._late: Future[T] | None = None

    def run(self, call: Callable[[], T]) -> T:
        """The answer of the call, or its error.

        Raises:
            TimeoutError: it has no answer in time, or the one before it has none yet.
            HeldError: nor has another call to its place.

        """
        answer = self._late
        if answer is None:
            if self._calls.is_held(self._place):
                raise HeldError
            answer = self._calls.begin(call)
            if not wait((answer,), self._seconds).done:
                self._calls.hold(self._place, answer)
        if not answer.done():
            self._late = answer
            raise TimeoutError
        self._late = None
        return answer.result()


def _serve(queue: SimpleQueue[Callable[[], None] | None]) -> None:
    while (call := queue.get()) is not None:
        call()
        # A call holds its source, and so a run that may be released meanwhile.
        del call


def _answer(call: Callable[[], T], answer: Future[T]) -> None:
    try:
        answer.set_result(call())
    except BaseException as error:  # noqa: BLE001 - raised where the answer is read
        answer.set_exception(error)


class Deadline:
    """One time budget for several waits: it ends ``seconds`` from now, or at threading's limit.

    Raises:
        ValueError: ``seconds`` is no number.

    """

    def __init__(self, seconds: float) -> None:
        is_number = isinstance(seconds, Real) and not isinstance(seconds, bool)
        if not is_number or math.isnan(seconds):
            raise ValueError(f"a timeout must be a number of seconds, given {seconds!r}")
        self._ends_at = time.monotonic() + min(seconds, threading.TIMEOUT_MAX)

    @property
    def left(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, self._ends_at - time.monotonic())
