"""The metrics of each query: its figures, and the families that are built of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from ..core.states import STATES
from ..listener.events import Progress, SourceProgress
from ..listener.query import BUCKETS, Query
from ..listener.source_polls import topic_of
from .exposition import Family, histogram
from .published_state import Buckets
from .query_row import QueryRow, end_to_end_age_seconds, upstream

# -- query figures ----------------------------------------------------------------------------
# The list of a query's figures: name, meaning, and how to read each one.


PREFIX = "spark_streaming_query"


class Figure(NamedTuple):
    """One figure of a query; None is left out. A name that ends in ``_total`` is a counter."""

    name: str
    documentation: str
    read: Callable[[QueryRow], float | None]


class Split(NamedTuple):
    """A figure of a query split by one more label."""

    name: str
    label: str
    documentation: str
    read: Callable[[QueryRow], Mapping[str, float]]


def _moment(at: Callable[[Query], float | None]) -> Callable[[QueryRow], float | None]:
    """Read a monotonic time of the query as Unix seconds."""
    return lambda row: row.published.unix(at(row.query)) if row.query is not None else None


def _progress(
    read: Callable[[Progress], float | None], *, live: bool = False
) -> Callable[[QueryRow], float | None]:
    """Read the last progress of the query's current run.

    If ``live``, only within its window: a dead, hung or idle query has no rate.
    """

    def figure(row: QueryRow) -> float | None:
        progress = row.live_progress if live else row.progress
        return read(progress) if progress is not None else None

    return figure


def _phases(row: QueryRow) -> Mapping[str, float]:
    return row.progress.phase_seconds if row.progress is not None else {}


def _trigger_interval(row: QueryRow) -> float | None:
    return row.facts.trigger.interval_seconds or None if row.facts is not None else None


FIGURES = (
    Figure(
        f"{PREFIX}_active",
        "Whether the current run of the query is active.",
        lambda row: float(row.query is not None and row.query.alive),
    ),
    Figure(
        f"{PREFIX}_alerting_enabled",
        "Whether the query can alert: 0 if the settings ignore it.",
        lambda row: float(not row.health.ignored),
    ),
    Figure(
        f"{PREFIX}_start_timestamp_seconds",
        "When the current run began, or was first seen.",
        _moment(lambda query: query.started_at),
    ),
    Figure(
        f"{PREFIX}_last_event_timestamp_seconds",
        "When the listener last received an event of the query.",
        _moment(lambda query: query.last_event_at),
    ),
    Figure(
        f"{PREFIX}_last_commit_timestamp_seconds",
        "When the current run last committed a batch, as far as seen.",
        _moment(lambda query: query.last_commit_at),
    ),
    Figure(
        f"{PREFIX}_last_input_timestamp_seconds",
        "When the current run last read rows, as far as known; absent before the first.",
        _moment(lambda query: query.last_input_at),
    ),
    Figure(
        f"{PREFIX}_last_activity_timestamp_seconds",
        "When the current run last committed or was idle; absent before the first time.",
        _moment(lambda query: query.last_activity_at if query.activity_seen else None),
    ),
    Figure(
        f"{PREFIX}_last_commit_batch_id",
        "The id of the last committed batch.",
        lambda row: row.query.last_commit_batch if row.query is not None else None,
    ),
    Figure(
        f"{PREFIX}_commits_total",
        "Batches committed.",
        lambda row: row.totals.commits,
    ),
    Figure(
        f"{PREFIX}_batches_not_durable",
        "Batches done but not in the commit log yet; only with async progress tracking.",
        lambda row: row.query.batches_not_durable if row.query is not None else None,
    ),
    Figure(
        f"{PREFIX}_batch_in_flight_seconds",
        "How long the batch in flight has been running; absent without one.",
        lambda row: row.batch_in_flight_seconds,
    ),
    Figure(
        f"{PREFIX}_no_progress_seconds",
        "How long no task of the batch in flight has finished or a source has not answered; "
        "absent while the query waits.",
        lambda row: row.no_progress_seconds,
    ),
    Figure(
        f"{PREFIX}_stall_window_seconds",
        "How long the query may go without a commit before it counts as stalled.",
        lambda row: row.health.window_seconds,
    ),
    Figure(
        f"{PREFIX}_trigger_interval_seconds",
        "The interval of the query's trigger; absent without one.",
        _trigger_interval,
    ),
    Figure(
        f"{PREFIX}_lag_allowed_offsets",
        "How large the query's lag may be before it counts as lagging.",
        lambda row: row.health.lag_allowed_offsets,
    ),
    Figure(
        f"{PREFIX}_restart_budget",
        "How many failures within restart_window_seconds make the query count as flapping.",
        lambda row: row.health.restart_budget,
    ),
    Figure(
        f"{PREFIX}_expected_input_seconds",
        "How long the query may read no rows before an alert; absent if no data is expected.",
        lambda row: row.health.expected_input_seconds,
    ),
    Figure(
        f"{PREFIX}_input_rows_total",
        "Rows read.",
        lambda row: row.totals.input_rows,
    ),
    Figure(
        f"{PREFIX}_output_rows_total",
        "Rows written; 0 for sinks that do not count them, such as foreachBatch.",
        lambda row: row.totals.output_rows,
    ),
    Figure(
        f"{PREFIX}_input_rows_per_second",
        "The rate at which rows arrived before the last batch; absent once that is older than the "
        "stall window.",
        _progress(lambda progress: progress.input_rows_per_second, live=True),
    ),
    Figure(
        f"{PREFIX}_processed_rows_per_second",
        "The rate at which rows were processed in the last batch; absent once that is older than "
        "the stall window.",
        _progress(lambda progress: progress.processed_rows_per_second, live=True),
    ),
    Figure(
        f"{PREFIX}_watermark_timestamp_seconds",
        "Event-time watermark after the last batch.",
        _progress(lambda progress: progress.watermark_timestamp or None),
    ),
    Figure(
        f"{PREFIX}_state_rows",
        "Rows in all state stores of the query.",
        _progress(lambda progress: progress.state_rows),
    ),
    Figure(
        f"{PREFIX}_state_memory_bytes",
        "Memory used by all state stores of the query.",
        _progress(lambda progress: progress.state_memory_bytes),
    ),
    Figure(
        f"{PREFIX}_late_rows_dropped_total",
        "Rows dropped because they were behind the watermark.",
        lambda row: row.totals.late_rows,
    ),
    Figure(
        f"{PREFIX}_restarts_total",
        "Runs that followed an earlier run of the query.",
        lambda row: row.totals.restarts,
    ),
    Figure(
        f"{PREFIX}_supervised",
        "1 while supervise restarts the query after a failure, 0 once it has given it up.",
        lambda row: float(not row.supervised.given_up) if row.supervised is not None else None,
    ),
    Figure(
        f"{PREFIX}_supervised_restarts_total",
        "How often supervise has started the query again.",
        lambda row: row.supervised.restarts if row.supervised is not None else None,
    ),
)

SPLITS = (
    Split(
        f"{PREFIX}_state",
        "state",
        "1 for the state the query is in, 0 for every other.",
        lambda row: {state: float(state == row.state) for state in STATES},
    ),
    Split(
        f"{PREFIX}_phase_duration_seconds",
        "phase",
        "The time that the last batch spent in each phase, by Spark's names (durationMs).",
        _phases,
    ),
    Split(
        f"{PREFIX}_terminations_total",
        "outcome",
        "Ended runs, by outcome.",
        lambda row: {
            "failed": row.totals.failed,
            "stopped": row.totals.stopped,
            "completed": row.totals.completed,
        },
    ),
)


# -- backlog figures --------------------------------------------------------------------------
# The unread backlog of a source in files and bytes, as the source reports it after each batch.
#
# Databricks' sources report it (Delta and ``cloudFiles``: ``numFilesOutstanding``,
# ``numBytesOutstanding``); open-source Delta, Iceberg and file sources do not (seen on Delta 4.4.0,
# Iceberg 1.12.0, Spark 4.3.0).


def _by_source(
    read: Callable[[SourceProgress], float | None],
) -> Callable[[QueryRow], Mapping[str, float]]:
    """A figure of each source by its index."""

    def figures(row: QueryRow) -> Mapping[str, float]:
        sources = row.progress.sources if row.progress is not None else ()
        reported = {str(index): read(source) for index, source in enumerate(sources)}
        return {index: figure for index, figure in reported.items() if figure is not None}

    return figures


BACKLOG = (
    Split(
        "spark_streaming_source_backlog_files",
        "source",
        "Unread files in each source, by its index; only if the source reports them.",
        _by_source(lambda source: source.backlog_files),
    ),
    Split(
        "spark_streaming_source_backlog_bytes",
        "source",
        "Unread bytes in each source, by its index; only if the source reports them.",
        _by_source(lambda source: source.backlog_bytes),
    ),
)


# -- lag figures ------------------------------------------------------------------------------
# The lag of each source, topic and, on request, partition.
#
# The broker's figure also counts for a failed query. An old poll of a broker that no longer answers
# does not describe the present: then there is no figure, instead of Spark's frozen one.


SOURCE_LABELS = ("app", "query", "source")
LAG = (
    Split(
        "spark_streaming_source_lag_offsets",
        "source",
        "Lag in offsets of each source, by its index: from the broker if it can be polled, else "
        "as Spark reports it while that is current.",
        lambda row: row.lag_by_source,
    ),
    Split(
        "spark_streaming_source_lag_reported_offsets",
        "source",
        "Lag in offsets of each source when Spark planned the last batch, while that is current: "
        "always 0 if batches have no size limit.",
        lambda row: row.reported_lag_by_source,
    ),
    Split(
        "spark_streaming_source_lag_seconds",
        "source",
        "Age of the first unread record of each source, by its timestamp; 0 if nothing is unread, "
        "absent if unknown.",
        lambda row: row.lag_seconds_by_source,
    ),
    Split(
        "spark_streaming_source_last_success_timestamp_seconds",
        "source",
        "When the broker of each source last answered.",
        lambda row: {str(index): poll.wall for index, poll in row.polls.items()},
    ),
)


def lag_families(app: str, rows: Sequence[QueryRow], *, by_partition: bool) -> Iterator[Family]:
    """The lag by topic and by partition; partitions are empty unless requested."""
    yield from _topic_families(app, rows)
    partitions = Family(
        "spark_streaming_partition_lag_offsets",
        "Lag in offsets of each partition, with the setting lag_by_partition.",
        (*SOURCE_LABELS, "topic", "partition"),
    )
    for row in rows if by_partition else ():
        for index, poll in row.fresh_polls.items():
            for name, lag in poll.lag_by_partition.items():
                topic, _, number = name.rpartition("/")
                if topic:
                    partitions.add((app, row.label, str(index), topic, number), lag)
    yield partitions


def _topic_families(app: str, rows: Sequence[QueryRow]) -> Iterator[Family]:
    offsets = Family(
        "spark_streaming_topic_lag_offsets",
        "Lag in offsets of each topic, from the broker.",
        (*SOURCE_LABELS, "topic"),
    )
    seconds = Family(
        "spark_streaming_topic_lag_seconds",
        "Age of the first unread record of each topic, by its timestamp.",
        (*SOURCE_LABELS, "topic"),
    )
    for row in rows:
        for index, poll in row.fresh_polls.items():
            ages = row.lag_seconds_by_topic(poll)
            for topic, lag in poll.lag_by_topic.items():
                if topic:
                    labels = app, row.label, str(index), topic
                    offsets.add(labels, lag)
                    seconds.add(labels, ages.get(topic))
    yield offsets
    yield seconds


# -- query families ---------------------------------------------------------------------------
# The metric families ``spark_streaming_*``, built for every scrape.


QUERY_LABELS = ("app", "query")


def query_families(app: str, rows: Sequence[QueryRow]) -> Iterator[Family]:
    """All families of all queries."""
    yield _info(app, rows)
    yield _failure_info(app, rows)
    for figure in FIGURES:
        family = Family(figure.name, figure.documentation, QUERY_LABELS)
        for row in rows:
            family.add((app, row.label), figure.read(row))
        yield family
    for split in (*SPLITS, *BACKLOG, *LAG):
        family = Family(split.name, split.documentation, (*QUERY_LABELS, split.label))
        for row in rows:
            for part, value in split.read(row).items():
                family.add((app, row.label, part), value)
        yield family
    yield _batch_duration(app, rows)


def _info(app: str, rows: Sequence[QueryRow]) -> Family:
    family = Family(f"{PREFIX}_info", "The current run of the query.", QUERY_LABELS)
    for row in rows:
        if row.query is not None:
            facts = row.facts
            run = {
                "query_id": row.query.query_id,
                "run_id": row.query.run_id,
                "trigger": str(facts.trigger) if facts is not None else "",
                "sink": facts.sink if facts is not None else "",
            }
            family.add_info((app, row.label), run)
    return family


def _failure_info(app: str, rows: Sequence[QueryRow]) -> Family:
    family = Family(f"{PREFIX}_failure_info", "The query's unrecovered failure.", QUERY_LABELS)
    for row in rows:
        if row.error_class is not None:
            family.add_info((app, row.label), {"error_class": row.error_class})
    return family


def _batch_duration(app: str, rows: Sequence[QueryRow]) -> Family:
    family = histogram(f"{PREFIX}_batch_duration_seconds", "How long batches took.", QUERY_LABELS)
    for row in rows:
        totals = row.totals
        buckets = Buckets(BUCKETS, totals.batch_buckets, totals.batch_seconds)
        family.add_buckets((app, row.label), buckets)
    return family


# -- retention figures ------------------------------------------------------------------------
# How much of each topic's retention the unread data has used.


TOPIC_LABELS = ("app", "query", "source", "topic")


class TopicRetention(msgspec.Struct, frozen=True):
    """One topic of one source: the figures of its worst partitions."""

    used_ratio: float
    left_seconds: float | None


def retention_families(app: str, rows: Sequence[QueryRow]) -> Iterator[Family]:
    """Both families, for all topics with known figures."""
    used = Family(
        "spark_streaming_topic_retention_used_ratio",
        "How much of the retention the unread data has used, in the worst partition: 0 if nothing "
        "is unread, 1 if unread data is about to be deleted or was deleted.",
        TOPIC_LABELS,
    )
    left = Family(
        "spark_streaming_topic_retention_left_seconds",
        "The least time until unread data is deleted if nothing is read, in the worst partition; "
        "absent if unknown.",
        TOPIC_LABELS,
    )
    for row in rows:
        for (source, topic), figures in _by_topic(row).items():
            used.add((app, row.label, source, topic), figures.used_ratio)
            left.add((app, row.label, source, topic), figures.left_seconds)
    yield used
    yield left


def _by_topic(row: QueryRow) -> dict[tuple[str, str], TopicRetention]:
    """The figures by source index and topic."""
    found: dict[tuple[str, str], TopicRetention] = {}
    if row.query is None:
        return found
    now = row.published.snapshot.at
    for index in row.query.polls:
        known = row.query.retention.get(index)
        for one in known.exposures.values() if known is not None else ():
            key = str(index), topic_of(one.partition)
            before = found.get(key, TopicRetention(0.0, None))
            lefts = [s for s in (before.left_seconds, one.left_seconds(now)) if s is not None]
            found[key] = TopicRetention(
                max(before.used_ratio, one.used(now)), min(lefts, default=None)
            )
    return found


# -- flow families ----------------------------------------------------------------------------
# Metric families of the graph of queries.


MAX_SERIES = 2000
"""Further edges are only in ``/status``."""


def flow_families(app: str, rows: Sequence[QueryRow]) -> Iterator[Family]:
    """The edges between queries, and the age of the data at the end of each chain."""
    age = Family(
        f"{PREFIX}_end_to_end_age_seconds",
        "Age of the newest data that has passed from the first sources, through all queries before "
        "it, into the query's table; absent if unknown.",
        ("app", "query"),
    )
    edges = Family(
        f"{PREFIX}_upstream",
        "1 for each query whose output the query reads.",
        ("app", "query", "upstream"),
    )
    for row in rows:
        age.add((app, row.label), end_to_end_age_seconds(row))
        for writer in upstream(row)[: MAX_SERIES - len(edges.samples)]:
            edges.add((app, row.label, writer), 1.0)
    yield age
    yield edges


# -- query limit ------------------------------------------------------------------------------
# Which queries have series of their own: a driver may give each run a new name.


MAX_QUERIES = 1000
"""Each query has about 75 series, besides those of its sources and topics."""


def limited(rows: Sequence[QueryRow]) -> Sequence[QueryRow]:
    """At most ``MAX_QUERIES`` rows.

    First expected queries, then those that run, oldest first, then those that should run, and last
    those that have ended as intended; of these two, the newest first.
    """
    if len(rows) <= MAX_QUERIES:
        return rows
    return sorted(rows, key=_rank)[:MAX_QUERIES]


def overflow(app: str, rows: Sequence[QueryRow]) -> Family:
    """How many of all queries have no series; their alerts have."""
    family = Family(
        "querypulse_queries_without_series",
        f"Queries beyond the first {MAX_QUERIES}: only /status and their alerts show them.",
        ("app",),
    )
    family.add((app,), max(0, len(rows) - MAX_QUERIES))
    return family


def _rank(row: QueryRow) -> tuple[int, float]:
    if row.is_expected:
        return 0, 0.0
    if row.query is None or row.query.gone_at is None:
        return 1, 0.0
    return 2 if row.is_needed else 3, -row.query.gone_at
