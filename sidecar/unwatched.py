"""A job that nothing watches: the setting ``enabled`` is false, or an internal error came first.

The methods of its sidecar work, so that the job's main program needs no change.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import Any

from pyspark.errors import StreamingQueryException

from ..alerting.finding import WHOLE_DRIVER
from ..alerting.words.reasons import JVM_ENDED
from ..core.redaction import redact
from ..core.threads import Deadline
from ..listener.spark.jvm import NETWORK_ERRORS
from .failure import QueryFailure, Returned
from .session import is_connect, is_stopped, watched_by
from .supervise import Starts, describe_error, started_by

log = logging.getLogger("querypulse")

SPARK_WAIT_SECONDS = 1.0
SHORTEST_WAIT_SECONDS = 0.01
"""Spark refuses a time of 0."""
PAUSE_SECONDS = 0.2
STOP_CHECKS = 5
"""How often to ask whether the application has stopped Spark, which takes a moment."""
OF_A_STOPPED_SESSION = ("INVALID_HANDLE.SESSION_CLOSED", "NO_ACTIVE_SESSION")
"""Error classes of Spark Connect, where they are only in the message: on the server, in PySpark."""


def wait_in_spark(
    spark: Any,
    timeout: float | None,
    redact_ours: Callable[[str], str],
    closed: threading.Event,
) -> Returned:
    """Wait for the queries of a session by Spark's own means, for where nothing is watched.

    ``redact_ours`` hides our own secrets, and ``closed`` ends the wait. Spark keeps the first
    failure since the session began, or since its ``resetTerminated``, so that none is lost between
    two of our calls.

    Raises:
        QueryFailure: a query of the session failed, or Spark does not answer.

    """
    deadline = Deadline(math.inf if timeout is None else timeout)
    why: Returned | None = None
    while why is None:
        seconds = min(SPARK_WAIT_SECONDS, deadline.left)
        why = _wait_for_an_end(spark, seconds, redact_ours, closed)
        if why is None and closed.is_set():
            why = "closed"
        if why is None and not deadline.left:
            why = "timeout"
    return why


def _wait_for_an_end(
    spark: Any, seconds: float, redact_ours: Callable[[str], str], closed: threading.Event
) -> Returned | None:
    """Why no query is left, after at most so many seconds; None if one may be.

    Raises:
        QueryFailure: a query of the session failed, or Spark does not answer.

    """
    if is_stopped(watched_by(spark)):
        return "stopped"
    try:
        is_over = _wait_for_the_last(spark, seconds, closed)
    except NETWORK_ERRORS as error:
        raise QueryFailure(WHOLE_DRIVER, JVM_ENDED) from error
    except Exception as error:
        # Any: while a channel closes, also a ValueError or one of gRPC.
        if _comes_from_stop(error, spark, closed):
            return "stopped"
        raise QueryFailure(WHOLE_DRIVER, _reason_of(error, redact_ours)) from error
    if is_stopped(watched_by(spark)):
        return "stopped"
    return "completed" if is_over else None


def _reason_of(error: Exception, redact_ours: Callable[[str], str]) -> str:
    if isinstance(error, StreamingQueryException):
        # All of it: Spark names the cause at the end.
        return redact_ours(redact(str(error)))
    return describe_error(error, redact_ours)


def _wait_for_the_last(spark: Any, seconds: float, closed: threading.Event) -> bool:
    """Wait at most so many seconds; return whether a query has ended and none is active.

    Raises:
        Exception: a query failed, or Spark does not answer.

    """
    streams = spark.streams
    if not streams.awaitAnyTermination(max(seconds, SHORTEST_WAIT_SECONDS)):
        return False
    if streams.active:
        # From now on Spark returns at once, although other queries run.
        closed.wait(min(PAUSE_SECONDS, seconds))
        return False
    # The last one may have failed since that answer: then Spark raises its failure now.
    closed.wait(PAUSE_SECONDS)
    streams.awaitAnyTermination(SHORTEST_WAIT_SECONDS)
    return True


def _comes_from_stop(error: Exception, spark: Any, closed: threading.Event) -> bool:
    """Whether the application has stopped Spark, or is about to; may wait a second for that."""
    if isinstance(error, StreamingQueryException):
        return _is_stopping(spark)
    if any(name in str(error) for name in OF_A_STOPPED_SESSION):
        return True
    for _ in range(STOP_CHECKS):
        if is_stopped(watched_by(spark)):
            return True
        closed.wait(PAUSE_SECONDS)
    return False


def _is_stopping(spark: Any) -> bool:
    """Whether the application has stopped Spark, or is about to: asks the JVM.

    Spark ends its queries before PySpark drops its Java context.
    """
    if is_stopped(watched_by(spark)):
        return True
    # Private: PySpark has no public way to ask.
    return not is_connect(spark) and bool(spark._jsc.sc().isStopped())  # noqa: SLF001


def run_unwatched(
    spark: Any, starts: Starts, redact_ours: Callable[[str], str], closed: threading.Event
) -> None:
    """Start each query once, and wait until none is active, or the application stops Spark.

    ``redact_ours`` hides our own secrets, and ``closed`` ends the wait.

    Raises:
        QueryFailure: the first of those that did not start, or that failed.

    """
    failures: list[QueryFailure] = []

    def note_failure(name: str, error: Exception) -> None:
        failure = QueryFailure(name, describe_error(error, redact_ours))
        failure.__cause__ = error
        failures.append(failure)
        log.error("querypulse: %s, and nothing restarts it", failure)

    queries = {}
    for name, start in starts.items():
        try:
            queries[name] = started_by(start)
        except Exception as error:  # noqa: BLE001, PERF203 - a start function may raise anything
            note_failure(name, error)
    for name, query in queries.items():
        try:
            _wait_for(query, closed)
        except Exception as error:  # noqa: BLE001, PERF203 - the other queries go on
            if not _comes_from_stop(error, spark, closed):
                note_failure(name, error)
    if failures:
        raise failures[0]


def _wait_for(query: Any, closed: threading.Event) -> None:
    has_ended = False
    while not has_ended and not closed.is_set():
        has_ended = query.awaitTermination(SPARK_WAIT_SECONDS)
