"""Beginning to watch as one transaction: all of it, or nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..listener.event_paths import open_path
from ..listener.guard import Guard
from ..listener.health_listener import HealthListener
from .deadline import Deadline
from .parts import Parts

ROLLBACK_SECONDS = 2.0


def start_parts(
    spark: Any,
    listener: HealthListener,
    guard: Guard,
    make: Callable[..., Parts],
    *,
    by_hand: bool,
) -> Parts:
    """Listen by the best way there is, then start what ``make(path=...)`` makes around it.

    Raises:
        Exception: whatever failed; the listener is out of Spark again and no thread runs.

    """
    # Py4J remembers the methods of a class, and so the class, for as long as a thread lives.
    with ThreadPoolExecutor(1, "querypulse-attach") as thread:
        path = thread.submit(open_path, spark, listener, by_hand=by_hand).result()
    try:
        parts = make(path=path)
        try:
            parts.start()
        except BaseException:
            guard.attempt("attach", lambda: parts.stop(Deadline(ROLLBACK_SECONDS)))
            raise
    except BaseException:
        guard.attempt("attach", path.release)
        raise
    return parts
