"""The second witness: asks Spark about all its queries.

One SparkContext holds all sessions' queries in ``SharedState.activeStreamingQueries``;
a run's ``StreamExecution`` still answers after its death. Private but stable in Spark
3.5 to 4.3. A look costs about five Py4J commands a query.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
from py4j.protocol import Py4JError

from .details import Details
from .health_listener import HealthListener
from .probing import (
    Context,
    ListenerHealth,
    ProbedRun,
    ProbeReport,
    RunFacts,
    parse_trigger,
    short_sink,
)
from .redaction import MAX_CHARACTERS
from .spark_listeners import SparkListeners
from .spark_work import SparkWork

KEEP_ENDED_RUNS = 256
FIRST_WITH_EXECUTION_CONTEXT = 4
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class _Status(msgspec.Struct, rename="camel"):
    message: str
    is_data_available: bool
    is_trigger_active: bool


class _Run:
    """A cached handle of one run and what the last look saw."""

    def __init__(self, execution: Any, facts: RunFacts) -> None:
        self.execution = execution
        self.facts = facts
        self.last = ProbedRun(facts, active=True)
        self.busy_since: float | None = None
        self.looked_closely_at = 0.0


class SparkProbe:
    """Looks at the queries of one classic SparkContext; used by one thread.

    A run busy with one thing for ``closer_after_seconds`` is looked at closely, again and
    again at half that interval: it must be well below the shortest stall window.
    """

    def __init__(
        self,
        spark: Any,
        listener: HealthListener,
        closer_after_seconds: float,
    ) -> None:
        self.details = Details()
        self._closer_after = closer_after_seconds
        self._context = spark.sparkContext
        self._jvm = self._context._jvm  # noqa: SLF001 - no public way to the JVM
        self._java_context = self._context._jsc  # noqa: SLF001 - gone after stop()
        java_session = spark._jsparkSession  # noqa: SLF001 - no public way to all sessions
        self._active = java_session.sharedState().activeStreamingQueries()
        self._uuid = getattr(self._jvm, "java.util.UUID")
        major = int(spark.version.partition(".")[0])
        self._has_execution_context = major >= FIRST_WITH_EXECUTION_CONTEXT
        self._living: dict[str, _Run] = {}
        self._ended: dict[str, ProbedRun] = {}
        self._listeners = SparkListeners(listener, java_session.streams())
        self._work = SparkWork(self._java_context, self._jvm, self.details)

    def context(self) -> Context:
        """Whether the SparkContext runs, and if not, whether the application stopped it.

        PySpark's own ``stop()`` drops its reference to the Java context at the end;
        a context that died by itself leaves it in place.
        """
        if self._context._jsc is None:  # noqa: SLF001 - no public way to ask
            return Context.STOPPED_BY_APPLICATION
        return Context.STOPPED if self._java_context.sc().isStopped() else Context.RUNNING

    def look(self, clock: Callable[[], float]) -> ProbeReport:
        """Look at every run once.

        Raises:
            Py4JError: the JVM is gone or refused; the next look starts afresh.

        """
        began_at = clock()
        self._meet_new_runs()
        for query_id, run in list(self._living.items()):
            run.last = self._look_at(run, began_at)
            if not run.last.active:
                del self._living[query_id]
                self._keep_ended(run.last)
        living = tuple(run.last for run in self._living.values())
        return ProbeReport(
            began_at=began_at,
            at=clock(),
            runs=living + tuple(self._ended.values()),
            context=self.context(),
            listener=self._check_listeners(began_at),
        )

    def release(self) -> None:
        """Take the listener out of Spark again, if there still is a Spark."""
        with suppress(Py4JError, OSError):
            self._listeners.remove()

    def _meet_new_runs(self) -> None:
        for query_id in _UUID.findall(self._active.keySet().toString()):
            known = self._living.get(query_id)
            if known is not None and known.execution.isActive():
                continue
            execution = self._active.get(self._uuid.fromString(query_id))
            if execution is None:
                continue
            if known is not None:
                self._keep_ended(self._last_words(known))
            self._meet(query_id, execution)

    def _meet(self, query_id: str, execution: Any) -> None:
        self._living[query_id] = _Run(execution, self._facts(query_id, execution))
        self.details.ask("session", lambda: self._listeners.cover(execution), None)

    def _facts(self, query_id: str, execution: Any) -> RunFacts:
        ask = self.details.ask
        trigger = ask("trigger", lambda: execution.trigger().toString(), "Unknown")
        return RunFacts(
            query_id=query_id,
            run_id=execution.runId().toString(),
            name=execution.name(),
            trigger=parse_trigger(trigger),
            sink=short_sink(ask("sink", lambda: execution.sink().toString(), "")),
            checkpoint=ask("checkpoint", execution.resolvedCheckpointRoot, ""),
        )

    def _look_at(self, run: _Run, now: float) -> ProbedRun:
        execution = run.execution
        if not execution.isActive():
            return self._last_words(run)
        status = msgspec.json.decode(execution.status().json(), type=_Status)
        ask = self.details.ask
        batch_id = ask("batch_id", lambda: self._batch_id(execution), run.last.batch_id)
        offsets = run.last.committed_offsets
        if batch_id != run.last.batch_id or not offsets:
            offsets = ask("offsets", lambda: execution.committedOffsets().toString(), "")
        seen = ProbedRun(
            facts=run.facts,
            active=True,
            message=status.message,
            trigger_active=status.is_trigger_active,
            data_available=status.is_data_available,
            batch_id=batch_id,
            committed_offsets=offsets,
        )
        return self._look_closer(run, seen, now)

    def _look_closer(self, run: _Run, seen: ProbedRun, now: float) -> ProbedRun:
        """Look at jobs, tasks and stacks of a run that is busy with one thing for long."""
        busy = seen.planning or seen.processing
        if not busy or seen.batch_id != run.last.batch_id:
            run.busy_since = now if busy else None
            return seen
        if run.busy_since is None:
            run.busy_since = now
        work, mark = run.last.work, run.last.last_progress_mark
        overdue = now - run.busy_since >= self._closer_after
        if overdue and now - run.looked_closely_at >= self._closer_after / 2:
            run.looked_closely_at = now
            work = self._work.look(run.execution, run.facts.run_id)
            mark = self.details.ask("last_progress", lambda: _progress_mark(run.execution), mark)
        return msgspec.structs.replace(seen, work=work, last_progress_mark=mark)

    def _batch_id(self, execution: Any) -> int:
        if self._has_execution_context:
            return int(execution.getLatestExecutionContext().batchId())
        return int(execution.currentBatchId())

    def _last_words(self, run: _Run) -> ProbedRun:
        option = run.execution.exception()
        exception = error_class = None
        if option.isDefined():
            cause = option.get().cause()
            exception = self.details.ask("exception", lambda: self._text_of(cause), "UnknownError")
            error_class = _error_class(cause)
        return msgspec.structs.replace(
            run.last,
            active=False,
            trigger_active=False,
            exception=exception,
            error_class=error_class,
        )

    def _text_of(self, cause: Any) -> str:
        text = getattr(self._jvm, "org.apache.spark.util.Utils").exceptionString(cause)
        return str(text)[:MAX_CHARACTERS]

    def _keep_ended(self, run: ProbedRun) -> None:
        self._ended[run.facts.run_id] = run
        while len(self._ended) > KEEP_ENDED_RUNS:
            del self._ended[next(iter(self._ended))]

    def _check_listeners(self, now: float) -> ListenerHealth:
        ask, listeners = self.details.ask, self._listeners
        return ask("listeners", lambda: listeners.check(now), listeners.health)


def _error_class(cause: Any) -> str | None:
    """Spark's own error class, which only a ``SparkThrowable`` has."""
    try:
        condition = cause.getErrorClass()
    except Py4JError:
        return None
    return None if condition is None else str(condition)


def _progress_mark(execution: Any) -> str:
    progress = execution.lastProgress()
    return "" if progress is None else str(progress.timestamp())
