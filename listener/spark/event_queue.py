"""Python's end of the event queue inside the JVM, ``EventQueue.java``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import msgspec

from ..events import EventKind
from ..mailbox import Received
from ..probe import CountedJobs, JobCounts, LongTask
from ..state.snapshot import ALONE, Ownership, parse_watchers
from .jvm import FIELD, RECORD, compile_in_driver, parse_flag

PROGRESS_CAPACITY = 2000
LIFECYCLE_CAPACITY = 10_000
NANOS = 1e9
PROCESS = uuid4().hex
"""Names this process among those that monitor the same JVM."""
_SOURCES = ("EventQueue", "JobCounter", "Watchers", "BusQueueName")


class QueueBatch(msgspec.Struct, frozen=True):
    """One answer of the JVM: its clock in nanoseconds, its counts, and the events."""

    now: int
    waiting: int
    given: int
    """How many events the JVM has handed out so far, these included."""
    dropped_progress: int
    dropped_lifecycle: int
    failed: int
    terminated: bool
    """Whether the JVM is shutting down after a signal."""
    watchers: str
    events: list[list[str]]


class EventQueue:
    """Takes events from the JVM; one thread calls ``take``, any thread the rest.

    Raises:
        OSError: our Java sources are not installed.
        Py4JError: this driver forbids compiling them.

    """

    def __init__(self, spark: Any, clock: Callable[[], float] = time.monotonic) -> None:
        context = spark.sparkContext
        executions = spark._jsparkSession.sharedState().activeStreamingQueries()  # noqa: SLF001
        # Private: PySpark has no public way to the JVM.
        made = compile_in_driver(context._jvm, *_SOURCES).newInstance()  # noqa: SLF001
        made.prepare(executions, PROCESS, PROGRESS_CAPACITY, LIFECYCLE_CAPACITY)
        self.java: Any = made
        """The Java object; None once closed."""
        self.depth = 0
        self.terminated = False
        """Whether the JVM reported that it is shutting down after a signal."""
        self.ownership: Ownership = ALONE
        """Which queries this process alerts for, as of the last answer."""
        self.drops: dict[str, int] = {}
        self._clock = clock
        self._offset: float | None = None
        self._taken = 0
        self._watchers = ""

    def take(self, timeout: float) -> list[Received]:
        """All queued events, oldest first; waits up to ``timeout`` seconds for the first one.

        Raises:
            Py4JError: the JVM that holds the queue does not answer.

        """
        java = self.java
        if java is None:
            return []
        answer = parse_answer(str(java.take(int(timeout * 1000))))
        received_at = self._clock()
        self.depth = answer.waiting
        self.terminated = answer.terminated
        self._taken += len(answer.events)
        self.drops = {
            "progress_queue_full": answer.dropped_progress,
            "lifecycle_queue_full": answer.dropped_lifecycle,
            "failed_in_jvm": answer.failed,
            # A lost answer loses its events.
            "connection_lost": answer.given - self._taken,
        }
        offset = self._clock_offset(received_at, answer.now)
        if answer.watchers and answer.watchers != self._watchers:
            self._watchers = answer.watchers
            claims = parse_watchers(answer.watchers, lambda nanos: nanos / NANOS + offset)
            self.ownership = self.ownership.updated(claims)
        return [_received(fields, offset) for fields in answer.events]

    def wake(self) -> None:
        """Make a waiting ``take`` return at once."""
        java = self.java
        if java is not None:
            java.wake()

    def claim(self, session: str) -> None:
        """Claim a session's queries for this process, and read the other processes' claims."""
        # The JVM's clock is known from the first answer on; until then nothing was reported.
        claims = parse_watchers(str(self.java.claim(session)), lambda _: float("-inf"))
        self.ownership = self.ownership.updated(claims)

    def job_counts(self) -> CountedJobs:
        """Jobs and tasks by query id, since counting began."""
        return parse_job_counts(str(self.java.jobCounts()))

    def close(self) -> None:
        """Stop receiving and release everything in the JVM."""
        java, self.java = self.java, None
        if java is not None:
            java.close()

    def _clock_offset(self, received_at: float, jvm_now: int) -> float:
        """Seconds from the JVM's clock to ours; the fastest answer so far is the most exact."""
        offset = received_at - jvm_now / NANOS
        self._offset = offset if self._offset is None else min(offset, self._offset)
        return self._offset


def parse_answer(text: str) -> QueueBatch:
    """Read what ``EventQueue.take`` writes.

    Raises:
        ValueError: it is no such answer.

    """
    head, *records = text.split(RECORD)[:-1]
    now, waiting, given, progress, lifecycle, failed, terminated, watchers = head.split(FIELD)
    return QueueBatch(
        now=int(now),
        waiting=int(waiting),
        given=int(given),
        dropped_progress=int(progress),
        dropped_lifecycle=int(lifecycle),
        failed=int(failed),
        terminated=parse_flag(terminated),
        watchers=watchers,
        events=[record.split(FIELD) for record in records],
    )


def parse_job_counts(text: str) -> CountedJobs:
    """Read what ``EventQueue.jobCounts`` writes.

    Raises:
        ValueError: it is no such answer.

    """
    first_job, *records = text.split(RECORD)[:-1]
    counts = {}
    for record in records:
        query_id, started, active, completed, tasks, *longest = record.split(FIELD)
        counts[query_id] = JobCounts(
            int(started), int(active), int(completed), int(tasks), _long_task(longest)
        )
    return CountedJobs(counts, int(first_job))


def _long_task(fields: list[str]) -> LongTask | None:
    if not fields:
        return None
    stage, partition, host, runs, usual = fields
    usual_seconds = int(usual) / NANOS if usual else None
    return LongTask(int(stage), int(partition), host, int(runs) / NANOS, usual_seconds)


def _received(fields: list[str], offset: float) -> Received:
    kind, at, session, trigger, text = fields
    return Received(EventKind(kind), text, int(at) / NANOS + offset, session, trigger)
