"""Time in tests: how long they wait for what must happen, and a clock that only they advance.

It happens on a machine of any speed, so no test asserts how long it took: the deadline only ends a
test that would wait for ever.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.01
WALL = 1_700_000_000.0
"""Unix seconds when the clock of a test shows 0."""
NEVER = threading.TIMEOUT_MAX
"""A timeout that does not come while tests run."""


def until(condition: Callable[[], T], what: str, seconds: float = PATIENCE_SECONDS) -> T:
    """Wait until a condition is true, and return its value; fail with ``what`` after the deadline."""
    ends = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < ends, f"never happened: {what}"
        time.sleep(POLL_SECONDS)
    return value


def ended(call: Callable[[], T]) -> T:
    """What the call returns or raises; fail if it does not end."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return outcome.result(PATIENCE_SECONDS)


class Clock:
    """A callable that returns monotonic seconds."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
