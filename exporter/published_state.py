"""What readers get: an immutable state, published by one reference assignment; a row of it is a
query, with its observed state and its evaluated health.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from functools import cache, cached_property
from secrets import token_hex

import msgspec

from ..alerting.alert import Alert
from ..alerting.finding import QueryHealth
from ..alerting.incidents.lifecycle import Inhibited
from ..core.states import QueryState
from ..listener.events import Progress, SourceProgress
from ..listener.foresight.catching_up import CaughtUp, caught_up
from ..listener.foresight.filling import Full
from ..listener.foresight.operators import UploadAge, oldest_uploads
from ..listener.foresight.resources import full_of
from ..listener.foresight.tasks import TaskSums
from ..listener.source_polls import SourcePoll, topic_of
from ..listener.state.flow import Dataset, Flow
from ..listener.state.freshness import Freshness
from ..listener.state.identity import base_label
from ..listener.state.query import Query
from ..listener.state.run import Ended, InFlight, Outcome, Run
from ..listener.state.snapshot import Snapshot


class Timing(msgspec.Struct, frozen=True):
    """A histogram in three figures; ``p99_seconds`` is the bound of a bucket, an upper limit."""

    count: int = 0
    total_seconds: float = 0.0
    p99_seconds: float | None = None


class Buckets(msgspec.Struct, frozen=True):
    """An immutable histogram: adding samples returns a new one.

    ``bounds`` are inclusive upper limits, ascending; ``counts`` has one count for each and one
    more for everything above, not cumulative; ``sum`` is the sum of all samples.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float = 0.0

    @classmethod
    def of(cls, *bounds: float) -> Buckets:
        """A histogram without samples."""
        return cls(bounds, (0,) * (len(bounds) + 1))

    def add(self, samples: Iterable[float]) -> Buckets:
        """Count more samples."""
        counts, total = list(self.counts), self.sum
        for sample in samples:
            counts[bisect_left(self.bounds, sample)] += 1
            total += sample
        return Buckets(self.bounds, tuple(counts), total)

    def timing(self) -> Timing:
        """The same for people: p99 is None without samples, or when it is above all bounds."""
        count = sum(self.counts)
        wanted, seen = max(1, math.ceil(0.99 * count)), 0
        for bound, samples in zip(self.bounds, self.counts, strict=False):
            seen += samples
            if seen >= wanted:
                return Timing(count, self.sum, bound)
        return Timing(count, self.sum)


CALLBACK_BUCKETS = Buckets.of(0.000_01, 0.000_1, 0.001, 0.01, 0.1, 1.0)
"""Bounds for the seconds in a listener callback: an append takes microseconds."""

PROBE_BUCKETS = Buckets.of(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds for the seconds of one probe of Spark."""


class Pushes(msgspec.Struct, frozen=True):
    """What became of the pushes to one target: counts by outcome (``core.states``), and more."""

    outcomes: Mapping[str, int] = {}
    problem: str | None = None
    """Why the last push failed; None after a success."""
    last_success: float | None = None
    """Unix seconds."""


class Risk(msgspec.Struct, frozen=True):
    """What is risky in how the job is set up, and the remedy; ``sidecar/preflight.py`` finds it.

    ``queries`` are the labels of the named ones that it is about; none if it is of the whole job.
    """

    code: str
    text: str
    queries: tuple[str, ...] = ()


class RecordingFolder(msgspec.Struct, frozen=True, kw_only=True):
    """Where the recordings of incidents are, and what is wrong there."""

    place: str | None = None
    """None where they are only in memory."""
    failures: int = 0
    """How often the folder has refused, and how many recordings were given up."""
    left_out: int = 0
    """How many incidents were not recorded, because too many were open."""
    problem: str | None = None
    """Why recordings may not be in the folder."""


class Monitor(msgspec.Struct, frozen=True, kw_only=True):
    """Figures about the monitor itself, as ``/status`` shows them. Counters only grow."""

    heartbeat_timestamp: float | None = None
    """Unix seconds of the newest evaluation."""
    listener_path: str | None = None
    """The event path: ``bus_queue``, ``python_proxy``, ..."""
    listener_registered: bool | None = None
    reregistrations: int = 0
    missing: tuple[str, ...] = ()
    """What the event path and the probe cannot show, a line each."""
    other_listeners: tuple[str, ...] = ()
    """The queues on Spark's listener bus that drop events of other listeners, a line each."""
    mailbox_depth: int = 0
    events: Mapping[str, int] = {}
    """By event kind."""
    events_dropped: Mapping[str, int] = {}
    """By reason."""
    internal_errors: Mapping[str, int] = {}
    """By the component that contained them."""
    probe_age_seconds: float | None = None
    sources_unread: Mapping[str, str] = {}
    """By query: why a source could not be polled."""
    receivers: tuple[str, ...] = ()
    deliveries: Mapping[str, Mapping[str, int]] = {}
    """By receiver and outcome."""
    outbox_pending: Mapping[str, int] = {}
    """By receiver."""
    alerts_lost: Mapping[str, Mapping[str, int]] = {}
    """By receiver and reason."""
    circuits_open: Mapping[str, bool] = {}
    """By receiver: whether sending is paused for a while after repeated failures."""
    spool_problem: str | None = None
    """Why undelivered alerts would be lost with this driver, although they are to be kept."""
    recordings: RecordingFolder = RecordingFolder()
    file_problems: Mapping[str, str] = {}
    """By what the files hold (silences, secrets, http): why what was read last may be old."""
    app_name_problem: str | None = None
    """The effect of an app name that other drivers may share."""
    preflight: tuple[Risk, ...] = ()
    pushes: Mapping[str, Pushes] = {}
    """By target: what became of the pushes of the metrics."""
    callback_duration_seconds: Timing = Timing()
    probe_duration_seconds: Timing = Timing()


Labels = tuple[str, ...]
ALERT_LABELS = ("query", "alertname", "severity")
ENDED_ALERT_SECONDS = 600.0
"""How long an alert that has ended keeps its series, as 0: while a scrape fails, Prometheus cannot
know a series that has gone because the alert ended from one that it did not get."""


def alert_labels(alert: Alert) -> Labels:
    """The values of ``ALERT_LABELS``; its app is the driver's."""
    return tuple(alert.labels[name] for name in ALERT_LABELS)


def alerts_last_open(
    before: Mapping[Labels, float], alerts: Iterable[Alert], now: float
) -> dict[Labels, float]:
    """When each alert was last open: those that are, and those that ended within ten minutes.

    ``before`` is the previous result, ``alerts`` are open at ``now``; monotonic seconds.
    """
    recent = {labels: at for labels, at in before.items() if now - at < ENDED_ALERT_SECONDS}
    return recent | dict.fromkeys(map(alert_labels, alerts), now)


def iso(unix: float) -> str:
    """Unix seconds as ISO 8601 in UTC."""
    return datetime.fromtimestamp(unix, tz=timezone.utc).isoformat(timespec="milliseconds")


class Process(msgspec.Struct, frozen=True):
    """The process that runs a sidecar: one that was started again has another id."""

    id: str = ""
    started_at: str = iso(0.0)
    """When its first sidecar started."""


@cache
def process_of(pid: int) -> Process:
    """The identity of this process, which has this ``pid``: a fork has an identity of its own."""
    return Process(f"{pid}-{token_hex(6)}", iso(time.time()))


class PublishedState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that readers see at one moment; nothing in it changes after publication.

    ``health`` is by the labels of ``snapshot.labels()``, plus expected queries not seen yet;
    ``wall`` is the Unix time of the monotonic ``snapshot.at``.
    """

    app: str
    spark_version: str
    snapshot: Snapshot
    health: Mapping[str, QueryHealth]
    alerts: tuple[Alert, ...]
    monitor: Monitor
    wall: float
    process: Process = Process()
    labels: Mapping[str, str] = {}
    expected: tuple[str, ...] = ()
    inhibited: tuple[Inhibited, ...] = ()
    alerts_last_open: Mapping[Labels, float] = {}
    """See the function of that name."""
    instance: str = ""
    """What distinguishes drivers of one app where metrics are pushed: see ``push.instance_of``."""
    lag_by_partition: bool = False
    flow: Flow = Flow()
    passed: Mapping[str, float] = {}
    """By label: see ``listener/state/end_to_end.py``; monotonic seconds."""
    freshness: Mapping[str, Freshness] = {}
    """By label: of the queries that promise something."""
    callback_durations: Buckets = CALLBACK_BUCKETS
    probe_durations: Buckets = PROBE_BUCKETS

    def unix(self, at: float | None) -> float | None:
        """A monotonic time as Unix seconds; None stays None."""
        return None if at is None else self.wall - (self.snapshot.at - at)

    @property
    def unowned_tasks(self) -> TaskSums | None:
        """What the finished tasks of jobs without a query did; None where they are not counted."""
        probe = self.snapshot.probe
        return None if probe is None else probe.unowned_tasks

    @property
    def cpu_seconds(self) -> float:
        """The CPU time of all finished tasks, of queries and of jobs without one."""
        spent = [query.history.spent for query in self.snapshot.queries]
        sums = [self.unowned_tasks, *(runs.total for runs in spent if runs is not None)]
        return sum(tasks.cpu_seconds for tasks in sums if tasks is not None)

    @property
    def full(self) -> dict[str, Full]:
        """When what fills up in the driver is full."""
        return full_of(self.snapshot.resources, self.snapshot.usage, self.snapshot.at)

    @property
    def queries(self) -> dict[str, Query | None]:
        """All queries by label: first the known ones, then those only evaluated or expected."""
        seen = self.snapshot.labels()
        names = {query.name for query in self.snapshot.queries}
        absent = [base_label(name) for name in self.expected if name not in names]
        return dict.fromkeys([*seen, *self.health, *absent]) | seen

    @property
    def rows(self) -> Iterator[QueryRow]:
        """The rows of all queries.

        They are not kept: a state that refers to them would wait for the garbage collector.
        """
        return (QueryRow(self, label, query) for label, query in self.queries.items())


STALE_POLL_SECONDS = 120.0
"""After this long without a newer poll, a broker's figures are stale."""
OVER = frozenset({"stopped", "completed"})
"""States of a query that ended as intended."""
MAX_NEIGHBOURS = 50
_NOT_EVALUATED = QueryHealth(QueryState.STARTING, reason="not evaluated yet")
_NO_RUN = Run(run_id="", started_at=0.0, ended=Ended(0.0, Outcome.STOPPED, ""))
# Of a query without a batch every figure is unknown.
_NO_PROGRESS = Progress(
    "", "", None, -1, False, None, {}, 0, None, None, None, None, None, None, 0, ()
)


class QueryRow:
    """One query by its label, in one published state.

    An expected query that was not seen yet has a ``query`` without a run: its counters exist, so
    that none starts at 1.
    """

    def __init__(self, published: PublishedState, label: str, query: Query | None) -> None:
        self.published = published
        self.label = label
        self.is_seen = query is not None
        self.query = query or Query(query_id="", name=None, label=label, run=_NO_RUN)
        self.health = published.health.get(label, _NOT_EVALUATED)
        self.state = self.health.state.value
        self.totals = self.query.history.totals
        spent = self.query.history.spent
        self.spent = None if spent is None else spent.total
        self.facts = self.query.run.facts
        self.progress = self.query.run.progress or _NO_PROGRESS
        self.supervised = published.snapshot.supervised.get(label)
        self.freshness = published.freshness.get(label)

    def age(self, at: float | None) -> float | None:
        """Seconds since a monotonic time; None stays None."""
        return None if at is None else self.published.snapshot.at - at

    @property
    def is_expected(self) -> bool:
        """Whether the settings list it as an expected query."""
        expected = self.published.expected
        if self.is_seen:
            return self.query.name in expected
        return any(self.label == base_label(name) for name in expected)

    @property
    def is_needed(self) -> bool:
        """Whether it should keep running, and so should its driver: it neither ended nor will.

        A failed query should keep running too. A query with an unknown trigger counts as one that
        does not end by itself.
        """
        if self.health.ignored or self.state in OVER or self.query.run.stop_expected:
            return False
        return self.facts is None or not self.facts.trigger.ends_by_itself

    @property
    def in_flight(self) -> InFlight | None:
        """The batch in flight; None without one."""
        flight = self.query.run.in_flight if self.query.run.alive else None
        return flight if flight is not None and flight.batch_id is not None else None

    @property
    def batch_in_flight_seconds(self) -> float | None:
        """Seconds since the batch in flight was first seen; None without one."""
        return self.age(self.in_flight.since) if self.in_flight is not None else None

    @property
    def no_progress_seconds(self) -> float | None:
        """Seconds without progress of what the query is doing; None while it waits.

        It is doing a batch, whose tasks finish, or a call to a source.
        """
        snapshot, flight = self.published.snapshot, self.query.run.in_flight
        if flight is None or not self.query.run.alive:
            return None
        return snapshot.watched(flight.moved_at, snapshot.at)

    @property
    def live_progress(self) -> Progress:
        """The last progress while the run is active and the stall window has not passed.

        A dead, hung or idle query has no rate.
        """
        return self.progress if self._is_live(self.query.run.progress_at) else _NO_PROGRESS

    @cached_property
    def live_sources(self) -> tuple[SourceProgress, ...]:
        """Its sources, by index, as Spark reported them after the last batch, while current."""
        times = self.query.run.progress_at, self.query.run.last_idle_at
        return self.progress.sources if any(map(self._is_live, times)) else ()

    def _is_live(self, at: float | None) -> bool:
        """Whether a figure from the time ``at`` is still current."""
        age, window = self.age(at), self.health.window_seconds
        if age is None or not self.query.run.alive:
            return False
        return age <= (STALE_POLL_SECONDS if window is None else window)

    @property
    def error_class(self) -> str | None:
        """The error class of the unrecovered failure."""
        ended = self.query.failure
        return ended.failure.error_class if ended is not None and ended.failure else None

    @property
    def datasets(self) -> tuple[tuple[str, Dataset], ...]:
        """What it writes (``output``), and what it reads (``input``)."""
        flow = self.published.flow
        sides = (("output", flow.outputs), ("input", flow.inputs))
        return tuple((side, dataset) for side, by in sides for dataset in by.get(self.label, ()))

    @property
    def upstream(self) -> tuple[str, ...]:
        """The queries that write what it reads, at most ``MAX_NEIGHBOURS``."""
        return self.published.flow.upstream.get(self.label, ())[:MAX_NEIGHBOURS]

    @property
    def downstream(self) -> tuple[str, ...]:
        """The queries that read what it writes, at most ``MAX_NEIGHBOURS``."""
        return self.published.flow.downstream.get(self.label, ())[:MAX_NEIGHBOURS]

    @property
    def end_to_end_age_seconds(self) -> float | None:
        """The age of the newest data that has passed from the first sources into its table."""
        age = self.age(self.published.passed.get(self.label))
        return None if age is None else max(0.0, age)

    @cached_property
    def fresh_polls(self) -> dict[int, SourcePoll]:
        """The polls that are current: their source answers, or answered a short while ago."""
        polls, oldest = self.query.checkpoint.polls, self.published.snapshot.at - STALE_POLL_SECONDS
        if not self.query.run.source_trouble:
            return polls
        return {index: poll for index, poll in polls.items() if poll.at >= oldest}

    @cached_property
    def lags(self) -> dict[str, float]:
        """Known lags by source index: from the broker if it can be polled, else Spark's.

        By index because two sources may share a description, which may hold a path or a topic
        list of any length. The broker's figure also counts for a failed query. An old poll of a
        broker that no longer answers does not describe the present: then there is none, instead
        of Spark's frozen one.
        """
        lags = {
            str(index): source.lag_offsets
            for index, source in enumerate(self.live_sources)
            if source.lag_offsets is not None and index not in self.query.checkpoint.polls
        }
        for index, poll in self.fresh_polls.items():
            if poll.lag_offsets is not None:
                lags[str(index)] = float(poll.lag_offsets)
        return lags

    @cached_property
    def topic_lags(self) -> dict[str, dict[str, int]]:
        """The lag of each topic by source index, from the broker; a table's topic is empty."""
        return {str(index): poll.lag_by_topic for index, poll in self.fresh_polls.items()}

    @cached_property
    def topic_ages(self) -> dict[str, dict[str, float]]:
        """The age of the first unread record of each topic by source index, if known.

        It is 0 if nothing is unread. Data unread at the poll counts as still unread unless a
        commit was seen since.
        """
        ages: dict[str, dict[str, float]] = {}
        for index, poll in self.fresh_polls.items():
            moved = self.query.run.alive and (self.query.run.last_commit_at or poll.at) > poll.at
            now = poll.wall if moved else self.published.wall
            topics = {topic: 0.0 for topic, lag in self.topic_lags[str(index)].items() if not lag}
            for topic, since in poll.waiting_since_by_topic.items():
                topics[topic] = max(0.0, now - since)
            ages[str(index)] = topics
        return ages

    @cached_property
    def source_ages(self) -> dict[str, float]:
        """The age of the first unread record of each source, if known."""
        reported = {
            str(index): source.behind_seconds
            for index, source in enumerate(self.live_sources)
            if source.behind_seconds is not None
        }
        polled = {index: max(ages.values()) for index, ages in self.topic_ages.items() if ages}
        return reported | polled

    @cached_property
    def caught_up(self) -> CaughtUp | None:
        """When the query has read all that arrived; None if unknown."""
        return caught_up(self.query, self.published.snapshot.at) if self.is_seen else None

    @cached_property
    def oldest_uploads(self) -> dict[str, UploadAge]:
        """The oldest snapshot of each operator of which Spark reports them."""
        progress = self.progress
        first = self.query.run.first_batch
        since = progress.batch_id if first is None else first
        return oldest_uploads(progress.operators, progress.batch_id, since)

    @cached_property
    def topic_retention(self) -> dict[tuple[str, str], tuple[float, float | None]]:
        """By source and topic: the used share of the retention, and the seconds left, if known.

        Both are those of the topic's worst partition.
        """
        worst: dict[tuple[str, str], tuple[float, float | None]] = {}
        now = self.published.snapshot.at
        for index, source in self.query.checkpoint.sources.items():
            for exposure in source.exposures.values():
                place = str(index), topic_of(exposure.partition)
                used, left = worst.get(place, (0.0, None))
                lefts = [s for s in (left, exposure.left_seconds(now)) if s is not None]
                worst[place] = max(used, exposure.used(now)), min(lefts, default=None)
        return worst
