"""The event paths, the ways in which Spark's events reach us, best first.

==================  ====================================  ================================
``bus_queue``       a Java listener on a queue of our     all sessions, from their start;
                    own on Spark's listener bus           no Python on Spark's threads
``python_proxy``    Py4J's proxy of a Python object in    other sessions once the probe
                    each session, where our Java or       finds them; a thread and a socket
                    the bus is refused                    for each run; a port without token
==================  ====================================  ================================
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JError, Py4JJavaError

from ...core.redaction import redact
from ..events import EventKind
from ..foresight.tasks import BatchTasks, QueryTasks, StageSpread, TaskSums
from ..mailbox import LIFECYCLE_CAPACITY, Mailbox, Received
from ..probe_report import (
    CountedJobs,
    FullQueue,
    JobCounts,
    ListenerHealth,
    LongTask,
    LostExecutors,
)
from ..state.snapshot import ALONE, Ownership, parse_watchers
from .health_listener import WRAPPER, HealthListener
from .jvm import (
    FIELD,
    NETWORK_ERRORS,
    RECORD,
    THROWN,
    compile_in_driver,
    reason_of,
)

log = logging.getLogger("querypulse")

CHECK_EVERY_SECONDS = 5.0
PROGRESS_CAPACITY = 2000
MAX_QUERIES = 2000
"""Whose tasks are kept; the JVM keeps a thousand, and all that run."""
REASON_CHARACTERS = 300
PROCESS = uuid4().hex
"""Names this process among those that monitor the same JVM."""
_NANOS = 1e9
_MILLIS = 1e3
_SHARED_QUEUE = "streams"


class NotListeningError(RuntimeError):
    """Spark accepted our listener but does not list it."""


class EventPath:
    """One event path; the attaching thread makes it, the probe's thread does the rest.

    Each method raises Py4JError if Spark refuses to answer.
    """

    name: str
    source: EventQueue | Mailbox[Received]
    """Where the reader takes the events from."""
    shows_shutdown = False
    """Whether ``terminated`` becomes true when a signal ends the JVM."""
    terminated = False
    """Whether the JVM reported that a signal ends it."""
    ownership: Ownership = ALONE
    """Which queries this process alerts for."""
    java_listener: Any = None
    """The object for PySpark's ``addListener``."""
    java: Any = None
    """``EventQueue.java``; None where our Java is refused, and once released."""
    executions: Any = None
    """All active runs of the JVM by query id, a Java ``Map``; None where our Java is refused."""
    health = ListenerHealth(registered=True)
    """What the last check has shown."""
    _checked_at = float("-inf")
    _logged: frozenset[tuple[str, str]] = frozenset()
    """The queues that drop events of others, and who was at work."""

    def check(self, now: float) -> ListenerHealth:
        """Every few seconds: whether our listener is registered; again if Spark dropped it.

        ``now`` is monotonic seconds.
        """
        if now - self._checked_at >= CHECK_EVERY_SECONDS:
            self._checked_at = now
            self.health = self._check()
            for queue in self.health.full_queues:
                if (queue.name, queue.busy) not in self._logged:
                    log.warning("querypulse: %s", queue)
                    self._logged |= {(queue.name, queue.busy)}
        return self.health

    def _check(self) -> ListenerHealth:
        return self.health

    def cover(self, execution: Any) -> None:
        """Listen to the session of a newly found run, a ``StreamExecution``, if necessary."""

    def living_runs(self) -> str | None:
        """All active runs as ``LivingRuns.java`` writes them, in one command."""
        java = self.java
        return None if java is None else str(java.livingRuns())

    def job_counts(self) -> CountedJobs | None:
        """Jobs and tasks by query id, in one Py4J command; None where nothing counts them."""
        return None

    def tasks(self) -> Mapping[str, QueryTasks] | None:
        """What finished tasks did, by query id, in one command; None where nothing counts them."""
        return None

    def release(self) -> None:
        """Remove our listener from Spark."""
        raise NotImplementedError


class EventQueue(EventPath):
    """A listener-bus queue of our own: Python's end of ``EventQueue.java``.

    One thread calls ``take``.

    Raises:
        OSError: our Java sources are not installed.
        Py4JError: this driver forbids compiling them.

    """

    name = "bus_queue"
    shows_shutdown = True

    def __init__(
        self, spark: Any, listener: HealthListener, clock: Callable[[], float] = time.monotonic
    ) -> None:
        # Private: PySpark has no public way to the JVM, to the bus, or to a session's id.
        context = spark._jsc.sc()  # noqa: SLF001
        session = spark._jsparkSession  # noqa: SLF001
        own = session.sharedState().activeStreamingQueries()
        made = compile_in_driver(spark.sparkContext._jvm).newInstance()  # noqa: SLF001
        made.prepare(own, context, PROCESS, PROGRESS_CAPACITY, LIFECYCLE_CAPACITY)
        self.java = made
        self.executions = made.executions()
        self.source = self
        self.java_listener = made.sessionListener()
        self.depth = 0
        self.drops: dict[str, int] = {}
        self._listener = listener
        self._clock = clock
        self._offset = float("inf")
        """Seconds from the JVM's clock to ours; the fastest answer so far is the most exact."""
        self._taken = 0
        self._watchers = ""
        self._bus: Any = None
        self._tasks: dict[str, QueryTasks] = {}
        self._tasks_version = 0

    def listen(self, spark: Any) -> None:
        """Start; a ``java_listener`` that the user adds only claims that session.

        Raises:
            NotListeningError: Spark's bus does not list the listener just added.

        """
        self._bus = spark._jsc.sc().listenerBus()  # noqa: SLF001
        # The JVM's clock is known from the first answer on; until then nothing was reported.
        claims = str(self.java.claim(str(spark._jsparkSession.sessionUUID())))  # noqa: SLF001
        self.ownership = ALONE.updated(parse_watchers(claims, lambda _: float("-inf")))
        if not self.java.listenOnBus(self._bus):
            raise NotListeningError("Spark's listener bus does not list the listener just added")

    def take(self, timeout: float) -> list[Received]:
        """All queued events, oldest first; waits up to ``timeout`` seconds for the first one.

        Raises:
            Py4JError: the JVM that holds the queue does not answer.
            ValueError: the answer is none of ``EventQueue.java``.

        """
        java = self.java
        if java is None:
            return []
        head, *records = str(java.take(int(timeout * 1000))).split(RECORD)[:-1]
        received_at = self._clock()
        now, waiting, given, progress, lifecycle, failed, terminated, watchers = head.split(FIELD)
        self.depth = int(waiting)
        self.terminated = terminated == "true"
        self._taken += len(records)
        self.drops = {
            "progress_queue_full": int(progress),
            "lifecycle_queue_full": int(lifecycle),
            "failed_in_jvm": int(failed),
            # A lost answer loses its events.
            "connection_lost": int(given) - self._taken,
        }
        offset = self._offset = min(self._offset, received_at - int(now) / _NANOS)
        if watchers and watchers != self._watchers:
            self._watchers = watchers
            claims = parse_watchers(watchers, lambda nanos: nanos / _NANOS + offset)
            self.ownership = self.ownership.updated(claims)
        return [_received(record, offset) for record in records]

    def wake(self) -> None:
        """Make a waiting ``take`` return at once."""
        java = self.java
        if java is not None:
            java.wake()

    def _check(self) -> ListenerHealth:
        head, *records = str(self.java.busHealth()).split(RECORD)
        registered, dropped = head.split(FIELD)
        again = self.health.reregistrations
        if registered != "true":
            log.warning("querypulse: the listener is not on Spark's bus; it is added again")
            registered = str(self.java.listenOnBus(self._bus)).lower()
            again += 1
        full = tuple(_full_queue(record) for record in records)
        return ListenerHealth(registered == "true", again, int(dropped), full_queues=full)

    def job_counts(self) -> CountedJobs:
        """Jobs and tasks by query id, since counting began.

        Raises:
            ValueError: the answer is none of ``EventQueue.java``.

        """
        head, *records = str(self.java.jobCounts()).split(RECORD)[:-1]
        first_job, *lost = head.split(FIELD)
        counts = {}
        for record in records:
            query_id, started, active, completed, tasks, *longest = record.split(FIELD)
            counts[query_id] = JobCounts(
                int(started), int(active), int(completed), int(tasks), _long_task(longest)
            )
        return CountedJobs(counts, int(first_job), _lost_executors(lost))

    def tasks(self) -> Mapping[str, QueryTasks]:
        """What finished tasks did, since counting began; only what has changed is sent.

        Raises:
            ValueError: the answer is none of ``TaskCounter.java``.

        """
        version, *records = str(self.java.taskSums(self._tasks_version)).split(RECORD)[:-1]
        for query_id, tasks in map(_query_tasks, records):
            self._tasks.pop(query_id, None)
            self._tasks[query_id] = tasks
        for longest_unchanged in list(self._tasks)[:-MAX_QUERIES]:
            del self._tasks[longest_unchanged]
        self._tasks_version = int(version)
        return self._tasks

    def release(self) -> None:
        """Leave the bus; our classes can be collected once no session has ``java_listener``.

        Keep ``java_listener`` where the user added it and may want to remove it.
        """
        if not self._listener.wirings:
            self.java_listener = None
        self._bus = None
        java = self.java
        self.java = self.executions = None
        if java is not None:
            java.close()


def _received(record: str, offset: float) -> Received:
    kind, at, *of_start, text = record.split(FIELD)
    session, trigger, checkpoint, replaced = of_start
    received_at = int(at) / _NANOS + offset
    return Received(EventKind(kind), text, received_at, session, trigger, checkpoint, replaced)


def _full_queue(record: str) -> FullQueue:
    name, dropped, busy, *listeners = record.split(FIELD)
    return FullQueue(name, int(dropped), busy, tuple(listeners))


def _lost_executors(fields: list[str]) -> LostExecutors:
    reason, *ages = fields or [""]
    # A cluster manager writes what it likes, over many lines.
    said = next(filter(None, map(str.strip, redact(reason).splitlines())), "")
    return LostExecutors(tuple(int(age) / _NANOS for age in ages), said[:REASON_CHARACTERS])


def _long_task(fields: list[str]) -> LongTask | None:
    if not fields:
        return None
    stage, partition, host, runs, usual, as_long = fields
    seconds = int(runs) / _NANOS
    usual_seconds = int(usual) / _NANOS if usual else None
    return LongTask(int(stage), int(partition), host, seconds, usual_seconds, int(as_long))


_SUMS = len(TaskSums.__struct_fields__)
_BATCH = 1 + _SUMS + 1 + len(StageSpread.__struct_fields__)
"""How many fields describe a batch: its id, its sums, how long it waited, and a spread."""


def _query_tasks(record: str) -> tuple[str, QueryTasks]:
    query_id, *fields = record.split(FIELD)
    starts = range(_SUMS, len(fields), _BATCH)
    batches = tuple(_batch_tasks(fields[start : start + _BATCH]) for start in starts)
    return query_id, QueryTasks(_task_sums(fields[:_SUMS]), batches)


def _batch_tasks(fields: list[str]) -> BatchTasks:
    batch_id, *sums = fields[: _SUMS + 1]
    waited, *spread = fields[_SUMS + 1 :]
    return BatchTasks(int(batch_id), _task_sums(sums), int(waited) / _MILLIS, _spread(spread))


def _task_sums(fields: list[str]) -> TaskSums:
    tasks, run, cpu, gc, shuffle_wait, spilled, read, written = map(int, fields)
    return TaskSums(
        tasks,
        run / _MILLIS,
        cpu / _NANOS,
        gc / _MILLIS,
        shuffle_wait / _MILLIS,
        spilled,
        read,
        written,
    )


def _spread(fields: list[str]) -> StageSpread | None:
    stage, tasks, median, longest, partition, host = fields
    if not stage:
        return None
    return StageSpread(
        stage=int(stage),
        tasks=int(tasks),
        median_seconds=int(median) / _MILLIS,
        longest_seconds=int(longest) / _MILLIS,
        partition=int(partition),
        host=host,
    )


class ProxyPath(EventPath):
    """A Python listener behind Py4J's proxy, in each session that has queries.

    Each session has its own listener bus, and Spark permanently removes a listener when a query
    is stopped while its ``onQueryStarted`` runs (``ListenerBus.removeListenerOnError``). Unless
    PySpark adds the listener ``by_hand``, this starts Py4J's callback server, as it does.

    Raises:
        NotListeningError: Spark does not list the listener just added.

    """

    name = "python_proxy"

    def __init__(self, spark: Any, listener: HealthListener, *, by_hand: bool) -> None:
        self._listener = listener
        self.source = listener.mailbox
        self.java_listener = listener.proxy()
        # Private: as PySpark's addListener does, and there is no public way to the drop counter.
        self._context = spark._jsc  # noqa: SLF001
        first = spark._jsparkSession.streams()  # noqa: SLF001
        self._managers: dict[int, Any] = {first.hashCode(): first}
        """The ``StreamingQueryManager`` of each session; None where the user removed us."""
        self._wirings_seen: int | None = None
        """At the last check."""
        self._dropped_before: int | None = None
        """At the first check."""
        if by_hand:
            return
        from pyspark import java_gateway

        ensure_started: Any = java_gateway.ensure_callback_server_started
        ensure_started(spark.sparkContext._gateway)  # noqa: SLF001
        first.addListener(self.java_listener)
        if not self._is_registered(first):
            raise NotListeningError("Spark's session does not list the listener just added")

    def cover(self, execution: Any) -> None:
        """Register in the session of a newly found query, unless it is registered there."""
        manager = execution.sparkSession().streams()
        key = manager.hashCode()
        if key not in self._managers:
            self._managers[key] = manager
            if not self._is_registered(manager):
                manager.addListener(self.java_listener)

    def _check(self) -> ListenerHealth:
        # Not at first: PySpark may be about to add the listener, which would then be there twice.
        is_first = self._wirings_seen is None
        wirings = self._listener.wirings
        lost = {
            key: manager
            for key, manager in self._managers.items()
            if not is_first and manager is not None and not self._is_registered(manager)
        }
        again = self.health.reregistrations
        # PySpark reads the listener once to add it and once to remove it.
        if wirings != self._wirings_seen:
            self._managers.update(dict.fromkeys(lost))
        else:
            for manager in lost.values():
                manager.addListener(self.java_listener)
                log.warning("querypulse: Spark dropped the listener; it is registered again")
            again += len(lost)
        self._wirings_seen = wirings
        registered = any(manager is not None for manager in self._managers.values())
        dropped = self._dropped_events()
        full = self._full_queues(dropped)
        return ListenerHealth(registered, again, dropped, full_queues=full)

    def release(self) -> None:
        """Leave every session and release it."""
        for manager in self._managers.values():
            with suppress(Py4JJavaError):
                while manager is not None and self._is_registered(manager):
                    manager.removeListener(self.java_listener)
        self._managers.clear()
        self.java_listener = self.java = self.executions = self._context = None

    def _is_registered(self, manager: Any) -> bool:
        return any(listener.equals(self.java_listener) for listener in manager.listListeners())

    def _dropped_events(self) -> int | None:
        """Events that Spark's queue of streaming listeners has dropped since its start."""
        try:
            registry = self._context.sc().listenerBus().metrics().metricRegistry()
            return int(registry.counter(f"queue.{_SHARED_QUEUE}.numDroppedEvents").getCount())
        except NETWORK_ERRORS:
            raise
        except Py4JError:
            return None

    def _full_queues(self, dropped: int | None) -> tuple[FullQueue, ...]:
        """The queue that we share, if it drops events of other listeners too."""
        known = self.health.full_queues
        if dropped is None:
            return known
        if self._dropped_before is None:
            self._dropped_before = dropped
        since = dropped - self._dropped_before
        if since == sum(queue.dropped for queue in known):
            return known
        names = {
            _listener_name(str(listener.getClass().getName()))
            for manager in self._managers.values()
            if manager is not None
            for listener in manager.listListeners()
            if not listener.equals(self.java_listener)
        } - {""}
        return (FullQueue(_SHARED_QUEUE, since, "", tuple(sorted(names))),) if names else ()


def _listener_name(java_class: str) -> str:
    """How a listener is named; empty for Spark's own."""
    if java_class == WRAPPER:
        return "a Python listener"
    return "" if java_class.startswith("org.apache.spark.") else java_class


def open_path(spark: Any, listener: HealthListener, *, by_hand: bool) -> EventPath:
    """Listen on the best path that this driver allows.

    Raises:
        Py4JError: the driver allows no path, or the JVM does not answer.
        NotListeningError: Spark does not list the listener just added.

    """
    queue = None
    try:
        queue = EventQueue(spark, listener)
        queue.listen(spark)
    except Exception as error:
        java, executions = (None, None) if queue is None else (queue.java, queue.executions)
        if queue is not None:
            with suppress(*THROWN, OSError):
                queue.release()
        is_refused = isinstance(error, (*THROWN, OSError, ValueError, NotListeningError))
        if not is_refused or isinstance(error, NETWORK_ERRORS):
            raise
        log.warning("querypulse: this driver refuses %s: %s", EventQueue.name, reason_of(error))
        proxy = ProxyPath(spark, listener, by_hand=by_hand)
        # It shows the runs, and the CPU time of their threads, also off the bus.
        proxy.java, proxy.executions = java, executions
        return proxy
    return queue
