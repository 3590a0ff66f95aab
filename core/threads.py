"""Threads that we own, and the time that may be spent waiting for them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NoReturn, TypeVar

from .guard import Guard

T = TypeVar("T")

PAUSE_AFTER_ERROR_SECONDS = 0.2


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
            if not self._guard.attempt(self.name, self._has_stepped, default=False):
                self.stopping.wait(PAUSE_AFTER_ERROR_SECONDS)
        self._guard.attempt(self.name, self._last)

    def _has_stepped(self) -> bool:
        self._step()
        return True


class TimedCalls:
    """Runs calls that may hang, each in a thread of its own, and waits ``seconds`` for the answer.

    An answer that comes later is that of the next call with this ``address``, which until then is
    refused at once: a system that hangs holds one thread, and delays nothing else but once. Used by
    one thread.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._pending: dict[str, SimpleQueue[Callable[[], Any]]] = {}

    def run(self, address: str, call: Callable[[], T]) -> T:
        """The answer of the call, or its error.

        Raises:
            TimeoutError: it has none in time, or the one before it has none yet.

        """
        answers, seconds = self._pending.pop(address, None), 0.0
        if answers is None:
            answers, seconds = SimpleQueue(), self._seconds
            name = f"querypulse-call-{address[-32:]}"
            work = partial(_answer, call, answers)
            threading.Thread(target=work, name=name, daemon=True).start()
        try:
            answer: Callable[[], T] = (
                answers.get(timeout=seconds) if seconds else answers.get_nowait()
            )
        except Empty:
            self._pending[address] = answers
            raise TimeoutError(f"{address} does not answer") from None
        return answer()


def _answer(call: Callable[[], T], answers: SimpleQueue[Callable[[], T]]) -> None:
    try:
        value = call()
    except Exception as error:  # noqa: BLE001 - the caller raises it
        answers.put(partial(_raise, error))
    else:
        answers.put(lambda: value)


def _raise(error: Exception) -> NoReturn:
    raise error


class Deadline:
    """One time budget for several waits: it ends ``seconds`` from now, or at threading's limit."""

    def __init__(self, seconds: float) -> None:
        self._ends_at = time.monotonic() + min(seconds, threading.TIMEOUT_MAX)

    @property
    def left(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, self._ends_at - time.monotonic())
