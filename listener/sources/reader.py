"""The sources as a signal: polls the systems that queries read from, in a thread of its own.

A broker may be slow, down or unreachable, so nothing waits for this thread; ``latest`` shows the
age of each poll.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from ...core.guard import Guard
from ...core.redaction import redact
from ...core.threads import HeldError, TimedCall, TimedCalls
from ..probe_report import Context
from ..source_polls import (
    SourceError,
    SourcePoll,
    SourceReport,
    SourceSilentError,
    StoreSilentError,
)
from ..spark.jvm import active_runs
from ..state.query import Query
from ..state.run import Outcome
from ..state.snapshot import Snapshot
from ..stores import store_of
from .delta import DeltaSource
from .folder import FolderSource, folder_of
from .iceberg import IcebergSource
from .kafka import KafkaJava, KafkaSource, SharedClients, java_errors

log = logging.getLogger("querypulse")

TABLE_SECONDS = 4.0
"""How long one poll of a table may take."""
FOLDER_SECONDS = 1.0
FIND_EVERY_SECONDS = 1.0
MAX_DEAD_RUNS = 100
"""Spark's objects of a failed run stay in the driver's memory for as long as it is polled."""
RETRY_INTERVALS = 2
"""A source that does not answer is not polled for this many intervals."""
_OFFSET_READERS = {
    "KafkaMicroBatchStream": "kafkaOffsetReader",
    "KafkaContinuousStream": "offsetReader",
}
"""By the simple name of the stream's class: the method whose result holds the consumer options."""
_TABLES: dict[str, type[DeltaSource | IcebergSource]] = {
    "DeltaSource": DeltaSource,
    "SparkMicroBatchStream": IcebergSource,
}
"""By the simple name of the stream's class."""


class TimedSource:
    """A table or folder whose polls are limited in time; Kafka's clients limit theirs themselves.

    A file system of Hadoop may retry for minutes, and then no other source would be polled. One
    that takes longer is silent, and is not polled again before its poll has returned; that answer
    counts, too. Until then nothing else in its ``store`` is polled, because it would hang as well.
    """

    def __init__(
        self,
        source: DeltaSource | IcebergSource | FolderSource,
        calls: TimedCalls,
        store: str,
        seconds: float,
    ) -> None:
        self.address = source.address
        self._source = source
        self._call: TimedCall[SourcePoll] = TimedCall(calls, store, seconds)
        self._silence = f"{redact(source.address)} has not answered for {seconds:.0f} s"
        self._silence_of_store = f"{redact(store)} does not answer"

    def poll(self, _written_since: float | None = None) -> SourcePoll:
        """Poll it; only Kafka shows what was written since a time.

        Raises:
            SourceError: it refused; ``SourceSilentError``: it did not answer in time;
                ``StoreSilentError``: another one in its store has not answered.

        """
        try:
            return self._call.run(self._source.poll)
        except HeldError:
            raise StoreSilentError(self._silence_of_store) from None
        except TimeoutError:
            raise SourceSilentError(self._silence) from None

    def close(self) -> None:
        """Release what the source holds."""
        self._source.close()


Source = TimedSource | KafkaSource


class _Source:
    """One source of a run: when it is due, its last poll, and its last error."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.due_at = 0.0
        self.last: SourcePoll | None = None
        self.trouble = ""


class _Run:
    """One run, and its sources once Spark shows them."""

    query: Query

    def __init__(self) -> None:
        self.sources: dict[int, _Source] | None = None
        self.due_at = 0.0
        """When Spark is asked for them again."""
        self.refusal = ""
        self.is_logged = False

    @property
    def polls(self) -> dict[int, SourcePoll]:
        """The newest poll of each source."""
        sources = (self.sources or {}).items()
        return {index: source.last for index, source in sources if source.last is not None}

    @property
    def trouble(self) -> str:
        """Why some sources have not answered; empty when all have."""
        troubles = [self.refusal, *(source.trouble for source in (self.sources or {}).values())]
        return "; ".join(dict.fromkeys(filter(None, troubles)))


class SourceReader:
    """Finds the sources of new runs every second and polls each every ``interval_seconds``.

    Used by one thread, which polls for at most half of the time: with very many sources, each is
    polled less often. A system that does not answer is listed in the report and not polled for
    some time, so that its timeouts do not delay the others. An error of ours in one source affects
    no other: the guard counts it, once until it is over.
    """

    def __init__(
        self,
        sources: SparkSources,
        latest_snapshot: Callable[[], Snapshot],
        on_report: Callable[[], None],
        guard: Guard,
        *,
        interval_seconds: float,
        find_every_seconds: float = FIND_EVERY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.latest: SourceReport | None = None
        self._sources = sources
        self._latest_snapshot = latest_snapshot
        self._on_report = on_report
        self._guard = guard
        self._interval = interval_seconds
        self._retry = RETRY_INTERVALS * interval_seconds
        self._find_every = min(find_every_seconds, interval_seconds)
        self._clock = clock
        self._runs: dict[str, _Run] = {}
        self._silent: dict[str, tuple[float, str]] = {}
        self._rests_until = 0.0
        self._stopping = threading.Event()

    def step(self) -> None:
        """Poll the sources that are due, then wait."""
        began = self._clock()
        try:
            self._choose()
            for run in self._runs.values():
                if run.sources is None and self._clock() >= run.due_at:
                    self._open(run)
                if began >= self._rests_until:
                    self._poll(run)
                trouble = run.trouble
                if trouble and not run.is_logged:
                    name = run.query.label
                    log.warning("querypulse: cannot ask the sources of %s: %s", name, trouble)
                # Once, until all have answered.
                run.is_logged = bool(trouble)
            self._report()
        finally:
            took = self._clock() - began
            if took > self._interval / 2:
                self._rests_until = self._clock() + took
            self._stopping.wait(self._find_every)

    def stop(self) -> None:
        """Stop polling, and end the wait."""
        self._stopping.set()

    def close(self) -> None:
        """Close all sources; called by the thread that polls."""
        for run_id in list(self._runs):
            self._release(run_id)
        self._sources.close()

    def _choose(self) -> None:
        """Keep the runs to be polled and release all others."""
        chosen = {query.run.run_id: query for query in queries_to_poll(self._latest_snapshot())}
        for run_id in self._runs.keys() - chosen.keys():
            self._release(run_id)
        for run_id, query in chosen.items():
            self._runs.setdefault(run_id, _Run()).query = query

    def _release(self, run_id: str) -> None:
        for source in (self._runs.pop(run_id).sources or {}).values():
            source.source.close()
        self._sources.release(run_id)

    def _open(self, run: _Run) -> None:
        """Ask Spark for a run's sources; a failed run without sources will never have any."""
        try:
            opened = self._sources.open(run.query)
            run.refusal = ""
        except Exception as error:  # noqa: BLE001 - other runs do not depend on it
            run.refusal = self._reason(error, run.refusal)
            run.due_at = self._clock() + self._retry
            return
        if opened is not None or not run.query.run.alive:
            run.sources = {index: _Source(source) for index, source in (opened or {}).items()}

    def _poll(self, run: _Run) -> None:
        """Poll a run's due sources, except those of systems that do not answer."""
        for polled in (run.sources or {}).values():
            now = self._clock()
            if self._stopping.is_set():
                return
            if polled.due_at > now:
                continue
            retry_at, reason = self._silent.get(polled.source.address, (now, ""))
            if now < retry_at:
                polled.trouble = reason
                polled.due_at = retry_at
                continue
            polled.due_at = now + self._interval
            try:
                polled.last = polled.source.poll(_unsure_since(run.query))
                polled.trouble = ""
            except StoreSilentError as error:
                # The next step tries it again, which costs nothing until the store has answered.
                polled.trouble = str(error)
                polled.due_at = now
            except Exception as error:  # noqa: BLE001 - other sources do not depend on it
                polled.trouble = self._reason(error, polled.trouble)
                polled.due_at = self._clock() + self._retry
                if isinstance(error, SourceSilentError):
                    self._silent[polled.source.address] = polled.due_at, polled.trouble

    def _reason(self, error: Exception, before: str) -> str:
        """Why a source has no answer; counts an error of ours unless it was the reason before."""
        if isinstance(error, SourceError):
            return str(error)
        reason = f"internal error: {type(error).__name__}"
        if reason != before:
            self._guard.report("sources", error)
        return reason

    def _report(self) -> None:
        report = SourceReport(
            at=self._clock(),
            polls={run_id: run.polls for run_id, run in self._runs.items() if run.polls},
            unreadable={run_id: run.trouble for run_id, run in self._runs.items() if run.trouble},
        )
        last = self.latest or SourceReport(report.at)
        if (report.polls, report.unreadable) != (last.polls, last.unreadable):
            self.latest = report
            self._on_report()


def _unsure_since(query: Query) -> float | None:
    """The Unix time of ``Reading.unsure_since``."""
    since = query.history.reading.unsure_since
    return None if since is None else since - time.monotonic() + time.time()


def queries_to_poll(snapshot: Snapshot) -> list[Query]:
    """The queries whose run is active, and the newest ``MAX_DEAD_RUNS`` whose run has failed.

    A stopped or completed run needs no polls.
    """
    if snapshot.context is not Context.RUNNING:
        return []
    living = [query for query in snapshot.queries if query.run.alive]
    failed = [
        query
        for query in snapshot.queries
        if not query.run.alive
        and (query.run.ended is None or query.run.ended.outcome is Outcome.FAILED)
    ]
    failed.sort(key=lambda query: -(query.run.gone_at or 0.0))
    return living + failed[:MAX_DEAD_RUNS]


class SparkSources:
    """The sources of all queries of one classic SparkContext; used by one thread.

    A run's ``StreamExecution`` is held from the start until its sources are known or the run is
    released, because Spark lists only active runs. ``StreamExecution.sources`` is private, but
    stable in Spark 3.5 to 4.3; it is empty until the run has planned its query.
    """

    def __init__(self, spark: Any, active: Any = None) -> None:
        self._jvm = spark.sparkContext._jvm  # noqa: SLF001 - no public way to the JVM
        self._kafka = KafkaJava(self._jvm)
        self._admins = SharedClients(self._kafka)
        self._active = active_runs(spark) if active is None else active
        self._uuid = getattr(self._jvm, "java.util.UUID")
        self._held: dict[str, Any] = {}
        self._calls = TimedCalls("sources")

    def open(self, query: Query) -> dict[int, Source] | None:
        """The sources by index as in Spark's progress; None while the run has none.

        Raises:
            SourceError: Spark refuses to list them.

        """
        with java_errors():
            execution = self._held.get(query.run.run_id)
            if execution is None:
                execution = self._active.get(self._uuid.fromString(query.query_id))
                if execution is None or execution.runId().toString() != query.run.run_id:
                    return None
                self._held[query.run.run_id] = execution
            streams = execution.sources().distinct()
            count = int(streams.size())
            if not count and query.run.alive:
                return None
            del self._held[query.run.run_id]
            return {
                index: source
                for index in range(count)
                if (source := self._source(query, execution, streams, index)) is not None
            }

    def release(self, run_id: str) -> None:
        """Forget a run that will not be opened again."""
        self._held.pop(run_id, None)

    def close(self) -> None:
        """End the thread that polls tables and folders."""
        self._calls.close()

    def _source(self, query: Query, execution: Any, streams: Any, index: int) -> Source | None:
        stream = streams.apply(index)
        kind = stream.getClass().getSimpleName()
        if kind == "FileStreamSource":
            path = folder_of(str(stream.toString()))
            folder = FolderSource(self._jvm, execution, stream, path)
            store = store_of(path)
            return TimedSource(folder, self._calls, store, FOLDER_SECONDS) if path else None
        if kind in _TABLES:
            table = _TABLES[kind](self._jvm, execution, stream)
            store = store_of(table.location if isinstance(table, IcebergSource) else table.address)
            return TimedSource(table, self._calls, store, TABLE_SECONDS)
        name = _OFFSET_READERS.get(kind)
        if name is None:
            return None
        reader = getattr(stream, name)()
        return KafkaSource(
            self._kafka,
            self._admins,
            execution,
            stream,
            reader=reader,
            name=f"querypulse-{query.run.run_id[:8]}-{index}",
        )
