"""All queries of one SparkContext, in all sessions, as Spark reports them.

``SharedState.activeStreamingQueries`` holds them; a run's ``StreamExecution`` still answers after
the run has ended. Private, but stable in Spark 3.5 to 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .event_channel import EventChannel
from .living_runs import LivingRun, LivingRuns, UnreadRun
from .optional_calls import OptionalCalls
from .probing import ProbedRun
from .spark_execution import SparkExecution
from .spark_living_runs import SparkLivingRuns
from .spark_run import SparkRun
from .spark_versions import has_execution_context
from .spark_work import PolledWork, SparkWork

KEEP_REPORTED = 256
"""How many ended runs are kept after they were reported."""
KEEP_SECONDS = 10.0
"""How long each one is kept: only the newest report is read, so one may be missed."""
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class EndedRuns:
    """Keeps each run until it is reported, and the newest of the reported runs."""

    def __init__(self) -> None:
        self._runs: dict[str, ProbedRun] = {}
        self._reported_at: dict[str, float] = {}
        self.has_news = False
        """Whether a run was added since the last report."""

    def add(self, run: ProbedRun) -> None:
        """Add the last poll of a run."""
        self._runs[run.facts.run_id] = run
        self.has_news = True

    def report(self, now: float) -> tuple[ProbedRun, ...]:
        """All runs that are kept, oldest first; ``now`` is monotonic seconds."""
        self.has_news = False
        runs = tuple(self._runs.values())
        for run_id in [run.facts.run_id for run in runs[:-KEEP_REPORTED]]:
            if now - self._reported_at.setdefault(run_id, now) >= KEEP_SECONDS:
                del self._runs[run_id], self._reported_at[run_id]
        return runs


class SparkQueries:
    """Polls all queries with one call, whatever their number.

    If Spark refuses that call, each run is polled on its own, and so is a run that Spark cannot
    describe. A run that does not answer keeps its last poll and does not affect the others.
    """

    def __init__(
        self, spark: Any, channel: EventChannel, closer_after_seconds: float, details: OptionalCalls
    ) -> None:
        context = spark.sparkContext
        self._jvm = context._jvm  # noqa: SLF001 - no public way to the JVM
        java_context = context._jsc  # noqa: SLF001 - no public way to the status tracker
        java_session = spark._jsparkSession  # noqa: SLF001 - no public way to all sessions
        self._active = java_session.sharedState().activeStreamingQueries()
        self._uuid = getattr(self._jvm, "java.util.UUID")
        self._has_context = has_execution_context(spark.version)
        self._channel = channel
        self._closer_after = closer_after_seconds
        self._details = details
        self._living_runs = SparkLivingRuns(
            self._jvm, self._active, java_context.sc(), details, has_context=self._has_context
        )
        self._work = SparkWork(java_context, self._jvm, channel.job_counts, details)
        self._living: dict[str, SparkRun] = {}
        self._ended = EndedRuns()

    def poll(self, now: float) -> bool | None:
        """Poll every run once; ``now`` is monotonic seconds.

        Returns whether the SparkContext is stopped; None if that must be read again, because a
        run has ended and the context may have stopped since.

        Raises:
            Py4JNetworkError, ConnectionError, EOFError: the JVM does not answer.

        """
        reported = self._report(now)
        for query_id, about in reported.runs.items():
            self._contain(query_id, self._add_if_new, query_id, about)
        work = self._work.poll([run.facts.run_id for run in self._living.values()])
        for query_id in list(self._living):
            self._contain(
                query_id, self._poll_run, query_id, reported.runs.get(query_id), now, work
            )
        return None if self._ended.has_news else reported.context_stopped

    def report(self, now: float) -> tuple[ProbedRun, ...]:
        """All runs, active and recently ended."""
        return tuple(run.last for run in self._living.values()) + self._ended.report(now)

    def _report(self, now: float) -> LivingRuns:
        """The status of each query's run, from one answer for all of them."""
        reported = self._living_runs.ask(now)
        if reported is not None:
            return reported
        listed = self._details.ask("query_ids", self._query_ids, list(self._living))
        return LivingRuns(dict.fromkeys(listed, UnreadRun()))

    def _query_ids(self) -> list[str]:
        return _UUID.findall(self._active.keySet().toString())

    def _contain(self, query_id: str, step: Callable[..., None], *args: object) -> None:
        """Contain errors of one run, so that they do not affect the others."""
        self._details.ask(f"run of query {query_id}", lambda: step(*args), None)

    def _add_if_new(self, query_id: str, about: LivingRun | UnreadRun) -> None:
        if isinstance(about, UnreadRun) and about.reason:
            self._details.miss("living_run", f"query {query_id}: {about.reason}")
        known = self._living.get(query_id)
        if known is not None and not known.is_over(about):
            return
        java = self._active.get(self._uuid.fromString(query_id))
        if java is None:
            return
        execution = SparkExecution(java, self._jvm, self._details, has_context=self._has_context)
        facts = execution.facts(query_id, about.run_id)
        if known is not None:
            self._ended.add(known.final_poll())
        self._living[query_id] = SparkRun(execution, facts, self._details)
        self._details.ask("session", lambda: self._channel.cover(java), None)

    def _poll_run(
        self, query_id: str, about: LivingRun | UnreadRun | None, now: float, work: PolledWork
    ) -> None:
        run = self._living[query_id]
        reported = run.current(about)
        if reported is None:
            self._ended.add(run.final_poll())
            del self._living[query_id]
        else:
            run.poll(reported, now, self._closer_after, work)
