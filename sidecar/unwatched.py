"""A job that nothing watches: the setting ``enabled`` is false, or an internal error came first.

The methods of its sidecar work, so that the job's main program needs no change.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

from ..alerting.finding import WHOLE_DRIVER
from ..alerting.words.reasons import JVM_ENDED
from ..core.redaction import redact
from ..core.threads import Deadline
from ..listener.spark.jvm import NETWORK_ERRORS, THROWN
from .failure import QueryFailure, Returned
from .session import is_connect, is_stopped, watched_by
from .supervise import describe_error

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
    from pyspark.errors import StreamingQueryException

    if is_stopped(watched_by(spark)):
        return "stopped"
    try:
        has_ended = spark.streams.awaitAnyTermination(max(seconds, SHORTEST_WAIT_SECONDS))
        is_over = has_ended and not spark.streams.active
        if is_over:
            # The last one may have failed since the first answer: then the second one raises.
            closed.wait(PAUSE_SECONDS)
            spark.streams.awaitAnyTermination(SHORTEST_WAIT_SECONDS)
    except NETWORK_ERRORS as error:
        raise QueryFailure(WHOLE_DRIVER, JVM_ENDED) from error
    except StreamingQueryException as error:
        if _is_stopping(spark):
            return "stopped"
        raise QueryFailure(WHOLE_DRIVER, redact_ours(redact(str(error)))) from error
    except THROWN as error:
        if _was_stopped(spark, error):
            return "stopped"
        raise QueryFailure(WHOLE_DRIVER, describe_error(error, redact_ours)) from error
    if is_stopped(watched_by(spark)):
        return "stopped"
    if is_over:
        return "completed"
    if has_ended:
        # From now on Spark returns at once, although other queries run.
        closed.wait(min(PAUSE_SECONDS, seconds))
    return None


def _is_stopping(spark: Any) -> bool:
    """Whether the application has stopped Spark, or is about to: asks the JVM.

    Spark ends its queries before PySpark drops its Java context.
    """
    if is_stopped(watched_by(spark)):
        return True
    # Private: PySpark has no public way to ask.
    return not is_connect(spark) and bool(spark._jsc.sc().isStopped())  # noqa: SLF001


def _was_stopped(spark: Any, error: Exception) -> bool:
    """Whether an error comes from the application's ``stop()``; waits a second for its end."""
    if any(name in str(error) for name in OF_A_STOPPED_SESSION):
        return True
    for _ in range(STOP_CHECKS):
        if is_stopped(watched_by(spark)):
            return True
        time.sleep(PAUSE_SECONDS)
    return False
