"""How long tests wait for what must happen.

It happens on a machine of any speed, so no test asserts how long it took: the deadline only ends a
test that would wait for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.01


def until(condition: Callable[[], T], what: str, seconds: float = PATIENCE_SECONDS) -> T:
    """Wait until a condition is true, and return its value; fail with ``what`` after the deadline."""
    ends = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < ends, f"never happened: {what}"
        time.sleep(POLL_SECONDS)
    return value
