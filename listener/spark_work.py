"""Details of busy queries: their Spark jobs, stream threads and Python lines."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from .job_counts import CountJobs
from .optional_calls import OptionalCalls
from .probing import JobActivity, RunFacts
from .python_frames import foreach_batch_calls
from .spark_jobs import PolledJobs, StatusTracker, TaskSlots

STACK_FRAMES = 5
STACK_DEPTH = 60
# A query waits in this method until the writer of its logs has room.
_LOG_QUEUE_IS_FULL = re.compile(r"AsyncProgressTracking.*\.rejectedExecution\(")
_PLUMBING = re.compile(r"(?:app//)?(?:java\.|jdk\.|sun\.|scala\.|py4j\.)")


class SparkThreads:
    """Reads stacks, and the sessions that batches run in, from Spark's driver."""

    def __init__(self, jvm: Any) -> None:
        self._system = getattr(jvm, "java.lang.System")
        self._throwable = getattr(jvm, "java.lang.Throwable")
        self._utils = getattr(jvm, "org.apache.spark.util.Utils")

    def identity(self, java: Any) -> int:
        """A Java object's identity hash."""
        return int(self._system.identityHashCode(java))

    def stack(self, execution: Any) -> tuple[str, ...]:
        """The stream thread's stack from its top, without the plumbing of sockets and Scala."""
        # As an exception's text it is one command; frame by frame it would be two hundred.
        carrier = self._throwable()
        carrier.setStackTrace(execution.queryExecutionThread().getStackTrace())
        text = self._utils.exceptionString(carrier)
        frames = [line.removeprefix("\tat ") for line in text.splitlines()[1:]][:STACK_DEPTH]
        shown = [frame.removeprefix("app//") for frame in frames if not _PLUMBING.match(frame)]
        return tuple(shown or frames)


class SparkWork:
    """Creates a ``PolledWork`` for each poll."""

    def __init__(
        self, java_context: Any, jvm: Any, count_jobs: CountJobs, details: OptionalCalls
    ) -> None:
        self._tracker = StatusTracker(java_context, jvm, details)
        self._slots = TaskSlots(java_context)
        self._threads = SparkThreads(jvm)
        self._count_jobs = count_jobs
        self._details = details

    def poll(self, run_ids: Collection[str]) -> PolledWork:
        """The details for one poll of the active runs ``run_ids``; makes no call yet."""
        jobs = PolledJobs(
            self._count_jobs, self._tracker, self._slots.count, run_ids, self._details
        )
        return PolledWork(jobs, self._threads, self._details)


class PolledWork:
    """Reads the details of runs; makes calls that concern all runs once, when first needed."""

    def __init__(self, jobs: PolledJobs, threads: SparkThreads, details: OptionalCalls) -> None:
        self._jobs = jobs
        self._threads = threads
        self._ask = details.ask

    def of(self, execution: Any, facts: RunFacts, session: int | None) -> JobActivity:
        """The details of one run, a ``StreamExecution``; its batches run in ``session``."""
        no_stack: tuple[str, ...] = ()
        stack = self._ask("stack", lambda: self._threads.stack(execution), no_stack)
        return replace(
            self._jobs.of(facts),
            jvm_stack=stack[:STACK_FRAMES],
            python_line="" if session is None else self._lines.get(session, ""),
            waits_for_log=any(map(_LOG_QUEUE_IS_FULL.search, stack)),
        )

    def session_of(self, execution: Any) -> int | None:
        """The identity of the session that a run's batches run in; it never changes."""
        unknown: int | None = None
        return self._ask("batch_session", lambda: self._batch_session(execution), unknown)

    @cached_property
    def _lines(self) -> dict[int, str]:
        """The line of each ``foreachBatch`` call in progress, by its batch's session."""
        found: dict[int, str] = {}
        for frame, line in foreach_batch_calls():
            session = self._frame_session(frame)
            if session is not None:
                found[session] = line
        return found

    def _frame_session(self, frame: Any) -> int | None:
        if frame is None:
            return None
        unknown: int | None = None
        identity = self._threads.identity
        return self._ask("python_line", lambda: identity(frame.sparkSession()), unknown)

    def _batch_session(self, execution: Any) -> int:
        return self._threads.identity(execution.sparkSessionForStream())
