"""Reads the status of all active runs with one Py4J command.

Py4J needs one command per method call, six per run, and each command costs time in the JVM and in
Python. So a small Java class in the driver's JVM makes the calls.
"""

from __future__ import annotations

from typing import Any

from .driver_class import compile_in_driver
from .living_runs import LivingRuns, parse_living_runs
from .optional_calls import OptionalCalls

NAME = "LivingRuns"
RETRY_SECONDS = 60.0


class SparkLivingRuns:
    """``LivingRuns.java`` in Spark's JVM, compiled at first use; used by one thread.

    A refused call is tried again after ``RETRY_SECONDS``.
    """

    def __init__(
        self,
        jvm: Any,
        executions: Any,
        spark_context: Any,
        details: OptionalCalls,
        *,
        has_context: bool,
    ) -> None:
        self._jvm = jvm
        batch_holder = "getLatestExecutionContext" if has_context else ""
        self._about = executions, batch_holder, spark_context
        self._details = details
        self._java: Any = None
        self._refused_at: float | None = None

    def ask(self, now: float) -> LivingRuns | None:
        """The status of all active runs; None if this Spark refuses the call.

        ``now`` is monotonic seconds.

        Raises:
            Py4JNetworkError, ConnectionError, EOFError: the JVM does not answer.

        """
        if self._refused_at is not None and now - self._refused_at < RETRY_SECONDS:
            return None
        answer = self._details.ask("living_runs", self._report, None)
        self._refused_at = now if answer is None else None
        return answer

    def _report(self) -> LivingRuns:
        if self._java is None:
            self._java = compile_in_driver(self._jvm, NAME).newInstance()
        return parse_living_runs(str(self._java.ask(*self._about)))
