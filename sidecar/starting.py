"""Starting a sidecar as one transaction: everything runs, or nothing is left behind."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from ..core.deadline import Deadline
from ..core.guard import Guard
from ..listener.connect.path import open_connect_path
from ..listener.event_path import EventPath
from ..listener.event_paths import open_path
from ..listener.event_queue import EventQueue
from ..listener.health_listener import HealthListener
from ..listener.java_errors import THROWN
from ..listener.spark_versions import UnsupportedSparkError, require_supported
from .runtime import Runtime
from .session import NoSessionError, active_session, is_connect

log = logging.getLogger("querypulse")

ROLLBACK_SECONDS = 2.0


def start_runtime(
    spark: Any,
    listener: HealthListener,
    guard: Guard,
    make: Callable[..., Runtime],
    *,
    by_hand: bool,
) -> Runtime:
    """Listen by the best available event path, then start the runtime that ``make`` returns.

    Raises:
        Exception: what failed; the listener is removed from Spark again and no thread runs.

    """
    path = _opened(spark, listener, guard, by_hand=by_hand)
    try:
        runtime = make(spark=spark, listener=listener, path=path)
        try:
            runtime.start()
        except BaseException:
            guard.attempt("attach", lambda: runtime.stop(Deadline(ROLLBACK_SECONDS)))
            raise
    except BaseException:
        guard.attempt("attach", path.release)
        raise
    return runtime


def report_unmonitored(guard: Guard, error: Exception) -> None:
    """Log why ``attach`` watches nothing, and what it means for the job."""
    if isinstance(error, UnsupportedSparkError):
        log.error("querypulse: %s", error)
    else:
        guard.report("attach", error)
    log.warning("querypulse: this job is not monitored; it continues without querypulse")


def in_background(what: str, guard: Guard, call: Callable[[], None]) -> None:
    """Run ``call`` in a thread of its own, and contain its errors."""
    run = partial(guard.attempt, what, call)
    threading.Thread(target=run, name=f"querypulse-{what}", daemon=True).start()


def idle_listener(spark: Any | None, listener: HealthListener) -> Any:
    """A Java listener that does nothing, for PySpark to add where nothing is watched.

    Raises:
        Py4JError: this driver refuses Java classes and Python listeners.

    """
    try:
        return EventQueue(spark or active_session()).java.sessionListener()
    except (*THROWN, OSError, ValueError, AttributeError, NoSessionError):
        return listener.proxy()[1]


def _opened(spark: Any, listener: HealthListener, guard: Guard, *, by_hand: bool) -> EventPath:
    """Open the event path; an interrupt during the wait leaves no listener behind."""
    opening: Future[EventPath] = Future()

    def run() -> None:
        try:
            opening.set_result(_path(spark, listener, by_hand=by_hand))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            opening.set_exception(error)

    try:
        # Py4J caches a class and its methods for as long as the calling thread lives.
        threading.Thread(target=run, name="querypulse-attach", daemon=True).start()
        return opening.result()
    except BaseException:
        opening.add_done_callback(partial(_release, guard))
        raise


def _path(spark: Any, listener: HealthListener, *, by_hand: bool) -> EventPath:
    if is_connect(spark):
        return open_connect_path(spark)
    require_supported(str(spark.version))
    return open_path(spark, listener, by_hand=by_hand)


def _release(guard: Guard, opening: Future[EventPath]) -> None:
    if opening.exception() is None:
        guard.attempt("attach", opening.result().release)
