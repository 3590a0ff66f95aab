"""Asks Spark what all its living runs do with one command, whatever their number.

Py4J takes a command for each method of each object, six for a run, and the JVM and Python pay
for every one. So the driver's JVM gets a small class that does the asking.
"""

from __future__ import annotations

from typing import Any

from .driver_class import compile_in_driver
from .living_runs import LivingRuns, parse_living_runs
from .optional_calls import OptionalCalls

NAME = "LivingRuns"
FIRST_WITH_EXECUTION_CONTEXT = 4
"""Spark 4 keeps the batch's id in its ``getLatestExecutionContext``."""
RETRY_SECONDS = 60.0


class SparkLivingRuns:
    """``LivingRuns.java`` in Spark's JVM, compiled when it is first asked; used by one thread.

    What Spark refuses is tried again after ``RETRY_SECONDS``.
    """

    def __init__(
        self,
        jvm: Any,
        executions: Any,
        spark_context: Any,
        spark_major: int,
        details: OptionalCalls,
    ) -> None:
        self._jvm = jvm
        has_context = spark_major >= FIRST_WITH_EXECUTION_CONTEXT
        batch_holder = "getLatestExecutionContext" if has_context else ""
        self._about = executions, batch_holder, spark_context
        self._details = details
        self._java: Any = None
        self._refused_at: float | None = None

    def ask(self, now: float) -> LivingRuns | None:
        """What all living runs do; None where this Spark does not let us ask so.

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
