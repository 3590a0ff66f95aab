"""Beginning to watch as one transaction: all of it, or nothing is left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from ..listener.event_path import EventPath
from ..listener.event_paths import open_path
from ..listener.guard import Guard
from ..listener.health_listener import HealthListener
from .deadline import Deadline
from .runtime import Runtime

ROLLBACK_SECONDS = 2.0


def start_parts(
    spark: Any,
    listener: HealthListener,
    guard: Guard,
    make: Callable[..., Runtime],
    *,
    by_hand: bool,
) -> Runtime:
    """Listen by the best way there is, then start what ``make(path=...)`` makes around it.

    Raises:
        Exception: whatever failed; the listener is out of Spark again and no thread runs.

    """
    path = _opened(spark, listener, guard, by_hand=by_hand)
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


def _opened(spark: Any, listener: HealthListener, guard: Guard, *, by_hand: bool) -> EventPath:
    """Listen; an interrupt of the wait for it leaves no listener behind."""
    opening: Future[EventPath] = Future()

    def run() -> None:
        try:
            opening.set_result(open_path(spark, listener, by_hand=by_hand))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            opening.set_exception(error)

    try:
        # Py4J remembers the methods of a class, and so the class, for as long as a thread lives.
        threading.Thread(target=run, name="querypulse-attach", daemon=True).start()
        return opening.result()
    except BaseException:
        opening.add_done_callback(partial(_release, guard))
        raise


def _release(guard: Guard, opening: Future[EventPath]) -> None:
    if opening.exception() is None:
        guard.attempt("attach", opening.result().release)
