"""The second signal: polls all queries of a Spark application."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .event_channel import EventChannel
from .java_errors import THROWN
from .optional_calls import OptionalCalls
from .probing import Context, ListenerHealth, ProbeReport
from .spark_context import SparkContextState
from .spark_queries import SparkQueries


class SparkProbe:
    """Polls the queries of one classic SparkContext; used by one thread.

    Once a run is busy with the same batch for ``closer_after_seconds``, its jobs and stacks are
    polled too, every half of that interval. It must be far below the shortest stall window.
    """

    def __init__(self, spark: Any, channel: EventChannel, closer_after_seconds: float) -> None:
        self.details = OptionalCalls()
        self._channel = channel
        self._context = SparkContextState(spark.sparkContext)
        self._queries: SparkQueries | None = SparkQueries(
            spark, channel, closer_after_seconds, self.details
        )
        self._listener = ListenerHealth()

    def context(self) -> Context:
        """Whether the SparkContext runs, and if not, what stopped it; any thread may call this.

        Raises:
            Py4JError: the JVM is gone or refuses to answer.

        """
        return self._context.ask()

    def poll(self, clock: Callable[[], float]) -> ProbeReport:
        """Poll every run once.

        Raises:
            Py4JError, ConnectionError, EOFError: the JVM is gone or refuses to answer.
            RuntimeError: the probe was released.

        """
        if self._queries is None:
            raise RuntimeError("the probe was released")
        began_at = clock()
        stopped = self._queries.poll(began_at)
        self._listener = self.details.ask(
            "listeners", lambda: self._channel.check(began_at), self._listener
        )
        context = self._context.ask(stopped=stopped)
        return ProbeReport(
            began_at=began_at,
            at=clock(),
            runs=self._queries.report(began_at),
            context=context,
            listener=self._listener,
        )

    def release(self) -> None:
        """Remove the listener from Spark, if Spark still exists, and release Spark's objects."""
        with suppress(*THROWN, OSError):
            self._channel.release()
        self._queries = None
        self._context.release()
