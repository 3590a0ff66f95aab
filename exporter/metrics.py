"""All metric families: of the queries, of the driver and of the monitor itself.

Each is a row of a table: its name, its meaning, and how it is read at a scrape. A reading is one
figure, figures by further labels, or a histogram; a figure that is unknown (None) is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Generic, NamedTuple, TypeVar

import msgspec

from ..core.installed import VERSION
from ..core.states import LOSS_REASONS, OUTCOMES, STATES
from ..listener.events import EventKind, Progress, SourceProgress
from ..listener.state.query import BUCKETS
from .exposition import Family
from .published_state import (
    ALERT_LABELS,
    Buckets,
    Labels,
    Monitor,
    PublishedState,
    alert_labels,
)
from .query_row import QueryRow, rows

T = TypeVar("T")
Figures = dict[Labels, float | None]
Reading = float | Figures | Buckets | None

QUERY = "spark_streaming_query"
QUERY_LABELS = ("app", "query")
MAX_QUERIES = 1000
"""Each query has about 75 series, besides those of its sources and topics."""
MAX_EDGES = 2000
"""Further edges between queries are only in ``/status``."""
DROP_REASONS = (
    "progress_queue_full",
    "lifecycle_queue_full",
    "failed_in_jvm",
    "connection_lost",
    "progress_mailbox_full",
    "lifecycle_mailbox_full",
    "undecodable",
    "undecodable_part",
    "forged",
)


class Figure(msgspec.Struct, Generic[T], frozen=True):
    """One family; a name that ends in ``_total`` is a counter, one in ``_info`` an info.

    ``labels`` are those besides ``app`` and ``query``.
    """

    name: str
    documentation: str
    read: Callable[[T], Reading]
    labels: Labels = ()
    kind: str = ""


class Scrape(NamedTuple):
    """What the figures of the driver and of the monitor are read from."""

    published: PublishedState
    monitor: Monitor
    queries: Sequence[QueryRow]


def all_families(published: PublishedState | None) -> Iterator[Family]:
    """All families; before the first evaluation only ``querypulse_build_info``."""
    version = Family(
        "querypulse_build_info", "The version of querypulse in this driver.", ("version",)
    )
    version.add((VERSION,), 1)
    yield version
    if published is None:
        return
    app, queries = published.app, rows(published)
    shown = [((app, row.label), row) for row in _most_important(queries)]
    scrape = [((), Scrape(published, published.monitor, queries))]
    yield from (_family(figure, shown, QUERY_LABELS) for figure in QUERY_FIGURES)
    yield _edges(shown)
    yield from (_family(figure, scrape) for figure in DRIVER_FIGURES)
    yield _alerts(published)
    yield from (_family(figure, scrape) for figure in MONITOR_FIGURES)


def _family(figure: Figure[T], subjects: Iterable[tuple[Labels, T]], labels: Labels = ()) -> Family:
    """The family of a figure, with the samples of each subject under the subject's labels."""
    family = Family(figure.name, figure.documentation, (*labels, *figure.labels), kind=figure.kind)
    for own, subject in subjects:
        reading = figure.read(subject)
        if isinstance(reading, Buckets):
            family.add_buckets(own, reading)
        elif isinstance(reading, dict):
            for further, value in reading.items():
                family.add((*own, *further), value)
        else:
            family.add(own, reading)
    return family


def _edges(shown: Sequence[tuple[Labels, QueryRow]]) -> Family:
    family = Family(
        f"{QUERY}_upstream",
        "1 for each query whose output the query reads.",
        (*QUERY_LABELS, "upstream"),
    )
    for labels, row in shown:
        for writer in row.upstream[: MAX_EDGES - len(family.samples)]:
            family.add((*labels, writer), 1.0)
    return family


def _alerts(published: PublishedState) -> Family:
    family = Family(
        "spark_streaming_query_alert",
        "1 while querypulse has this alert open, and 0 for ten minutes after it ended; "
        'query "*" is the whole driver.',
        ALERT_LABELS,
    )
    series = dict.fromkeys(published.alerts_last_open, 0.0)
    series |= dict.fromkeys(map(alert_labels, published.alerts), 1.0)
    for labels, value in series.items():
        family.add(labels, value)
    return family


# -- queries ----------------------------------------------------------------------------------


def _most_important(queries: Sequence[QueryRow]) -> Sequence[QueryRow]:
    """At most ``MAX_QUERIES``: a driver may give each run a new name.

    First expected queries, then those that run, oldest first, then those that should run, and last
    those that have ended as intended; of these two, the newest first.
    """
    return queries if len(queries) <= MAX_QUERIES else sorted(queries, key=_rank)[:MAX_QUERIES]


def _rank(row: QueryRow) -> tuple[int, float]:
    if row.is_expected:
        return 0, 0.0
    if not row.is_seen or row.query.gone_at is None:
        return 1, 0.0
    return 2 if row.is_needed else 3, -row.query.gone_at


def _by_label(values: Mapping[str, float]) -> Figures:
    return {(name,): value for name, value in values.items()}


def _info(row: QueryRow) -> Figures:
    if not row.is_seen:
        return {}
    trigger, sink = (str(row.facts.trigger), row.facts.sink) if row.facts is not None else ("", "")
    return {(row.query.query_id, row.query.run_id, trigger, sink): 1}


def _rate(read: Callable[[Progress], float | None]) -> Callable[[QueryRow], float | None]:
    def figure(row: QueryRow) -> float | None:
        progress = row.live_progress
        return None if progress is None else read(progress)

    return figure


def _by_source(read: Callable[[SourceProgress], float | None]) -> Callable[[QueryRow], Figures]:
    """A figure of each source, by its index, as Spark reported it after the last batch."""

    def figures(row: QueryRow) -> Figures:
        sources = row.progress.sources if row.progress is not None else ()
        return {(str(index),): read(source) for index, source in enumerate(sources)}

    return figures


def _topic_lags(row: QueryRow) -> Figures:
    return {
        (source, topic): lag
        for source, lags in row.topic_lags.items()
        for topic, lag in lags.items()
        if topic
    }


def _partition_lags(row: QueryRow) -> Figures:
    if not row.published.lag_by_partition:
        return {}
    return {
        (str(index), topic, number): lag
        for index, poll in row.fresh_polls.items()
        for partition, lag in poll.lag_by_partition.items()
        for topic, _, number in [partition.rpartition("/")]
        if topic
    }


QUERY_FIGURES: tuple[Figure[QueryRow], ...] = (
    Figure(
        f"{QUERY}_info",
        "The current run of the query.",
        _info,
        ("query_id", "run_id", "trigger", "sink"),
    ),
    Figure(
        f"{QUERY}_failure_info",
        "The query's unrecovered failure.",
        lambda row: {} if row.error_class is None else {(row.error_class,): 1},
        ("error_class",),
    ),
    Figure(
        f"{QUERY}_active",
        "Whether the current run of the query is active.",
        lambda row: float(row.query.alive),
    ),
    Figure(
        f"{QUERY}_alerting_enabled",
        "Whether the query can alert: 0 if the settings ignore it.",
        lambda row: float(not row.health.ignored),
    ),
    Figure(
        f"{QUERY}_start_timestamp_seconds",
        "When the current run began, or was first seen.",
        lambda row: row.published.unix(row.query.started_at) if row.is_seen else None,
    ),
    Figure(
        f"{QUERY}_last_event_timestamp_seconds",
        "When the listener last received an event of the query.",
        lambda row: row.published.unix(row.query.last_event_at),
    ),
    Figure(
        f"{QUERY}_last_commit_timestamp_seconds",
        "When the current run last committed a batch, as far as seen.",
        lambda row: row.published.unix(row.query.last_commit_at),
    ),
    Figure(
        f"{QUERY}_last_input_timestamp_seconds",
        "When the current run last read rows, as far as known; absent before the first.",
        lambda row: row.published.unix(row.query.last_input_at),
    ),
    Figure(
        f"{QUERY}_last_activity_timestamp_seconds",
        "When the current run last committed or was idle; absent before the first time.",
        lambda row: (
            row.published.unix(row.query.last_activity_at) if row.query.activity_seen else None
        ),
    ),
    Figure(
        f"{QUERY}_last_commit_batch_id",
        "The id of the last committed batch.",
        lambda row: row.query.last_commit_batch,
    ),
    Figure(f"{QUERY}_commits_total", "Batches committed.", lambda row: row.totals.commits),
    Figure(
        f"{QUERY}_batches_not_durable",
        "Batches done but not in the commit log yet; only with async progress tracking.",
        lambda row: row.query.batches_not_durable,
    ),
    Figure(
        f"{QUERY}_batch_in_flight_seconds",
        "How long the batch in flight has been running; absent without one.",
        lambda row: row.batch_in_flight_seconds,
    ),
    Figure(
        f"{QUERY}_no_progress_seconds",
        "How long no task of the batch in flight has finished or a source has not answered; "
        "absent while the query waits.",
        lambda row: row.no_progress_seconds,
    ),
    Figure(
        f"{QUERY}_stall_window_seconds",
        "How long the query may go without a commit before it counts as stalled.",
        lambda row: row.health.window_seconds,
    ),
    Figure(
        f"{QUERY}_trigger_interval_seconds",
        "The interval of the query's trigger; absent without one.",
        lambda row: None if row.facts is None else row.facts.trigger.interval_seconds or None,
    ),
    Figure(
        f"{QUERY}_expected_input_seconds",
        "How long the query may read no rows before an alert; absent if no data is expected.",
        lambda row: row.health.expected_input_seconds,
    ),
    Figure(f"{QUERY}_input_rows_total", "Rows read.", lambda row: row.totals.input_rows),
    Figure(
        f"{QUERY}_output_rows_total",
        "Rows written; 0 for sinks that do not count them, such as foreachBatch.",
        lambda row: row.totals.output_rows,
    ),
    Figure(
        f"{QUERY}_input_rows_per_second",
        "The rate at which rows arrived before the last batch; absent once that is older than the "
        "stall window.",
        _rate(lambda progress: progress.input_rows_per_second),
    ),
    Figure(
        f"{QUERY}_processed_rows_per_second",
        "The rate at which rows were processed in the last batch; absent once that is older than "
        "the stall window.",
        _rate(lambda progress: progress.processed_rows_per_second),
    ),
    Figure(
        f"{QUERY}_watermark_timestamp_seconds",
        "Event-time watermark after the last batch.",
        lambda row: None if row.progress is None else row.progress.watermark_timestamp or None,
    ),
    Figure(
        f"{QUERY}_state_rows",
        "Rows in all state stores of the query.",
        lambda row: None if row.progress is None else row.progress.state_rows,
    ),
    Figure(
        f"{QUERY}_state_memory_bytes",
        "Memory used by all state stores of the query.",
        lambda row: None if row.progress is None else row.progress.state_memory_bytes,
    ),
    Figure(
        f"{QUERY}_late_rows_dropped_total",
        "Rows dropped because they were behind the watermark.",
        lambda row: row.totals.late_rows,
    ),
    Figure(
        f"{QUERY}_restarts_total",
        "Runs that followed an earlier run of the query.",
        lambda row: row.totals.restarts,
    ),
    Figure(
        f"{QUERY}_supervised",
        "1 while supervise restarts the query after a failure, 0 once it has given it up.",
        lambda row: None if row.supervised is None else float(not row.supervised.given_up),
    ),
    Figure(
        f"{QUERY}_supervised_restarts_total",
        "How often supervise has started the query again.",
        lambda row: None if row.supervised is None else row.supervised.restarts,
    ),
    Figure(
        f"{QUERY}_state",
        "1 for the state the query is in, 0 for every other.",
        lambda row: {(state,): float(state == row.state) for state in STATES},
        ("state",),
    ),
    Figure(
        f"{QUERY}_phase_duration_seconds",
        "The time that the last batch spent in each phase, by Spark's names (durationMs).",
        lambda row: None if row.progress is None else _by_label(row.progress.phase_seconds),
        ("phase",),
    ),
    Figure(
        f"{QUERY}_terminations_total",
        "Ended runs, by outcome.",
        lambda row: {
            ("failed",): row.totals.failed,
            ("stopped",): row.totals.stopped,
            ("completed",): row.totals.completed,
        },
        ("outcome",),
    ),
    # Databricks' sources report their backlog (Delta and cloudFiles: numFilesOutstanding,
    # numBytesOutstanding); open-source Delta, Iceberg and file sources do not (seen on Delta
    # 4.4.0, Iceberg 1.12.0, Spark 4.3.0).
    Figure(
        "spark_streaming_source_backlog_files",
        "Unread files in each source, by its index; only if the source reports them.",
        _by_source(lambda source: source.backlog_files),
        ("source",),
    ),
    Figure(
        "spark_streaming_source_backlog_bytes",
        "Unread bytes in each source, by its index; only if the source reports them.",
        _by_source(lambda source: source.backlog_bytes),
        ("source",),
    ),
    Figure(
        "spark_streaming_source_lag_offsets",
        "Lag in offsets of each source, by its index: from the broker if it can be polled, else "
        "as Spark reports it while that is current.",
        lambda row: _by_label(row.lags),
        ("source",),
    ),
    Figure(
        "spark_streaming_source_lag_reported_offsets",
        "Lag in offsets of each source when Spark planned the last batch, while that is current: "
        "always 0 if batches have no size limit.",
        lambda row: _by_label(row.reported_lags),
        ("source",),
    ),
    Figure(
        "spark_streaming_source_lag_seconds",
        "Age of the first unread record of each source, by its timestamp; 0 if nothing is unread, "
        "absent if unknown.",
        lambda row: _by_label(row.source_ages),
        ("source",),
    ),
    Figure(
        "spark_streaming_source_last_success_timestamp_seconds",
        "When the broker of each source last answered.",
        lambda row: {(str(index),): poll.wall for index, poll in row.query.polls.items()},
        ("source",),
    ),
    Figure(
        f"{QUERY}_batch_duration_seconds",
        "How long batches took.",
        lambda row: Buckets(BUCKETS, row.totals.batch_buckets, row.totals.batch_seconds),
        kind="histogram",
    ),
    Figure(
        "spark_streaming_topic_lag_offsets",
        "Lag in offsets of each topic, from the broker.",
        _topic_lags,
        ("source", "topic"),
    ),
    Figure(
        "spark_streaming_topic_lag_seconds",
        "Age of the first unread record of each topic, by its timestamp.",
        lambda row: {
            (source, topic): row.topic_ages[source].get(topic) for source, topic in _topic_lags(row)
        },
        ("source", "topic"),
    ),
    Figure(
        "spark_streaming_partition_lag_offsets",
        "Lag in offsets of each partition, with the setting lag_by_partition.",
        _partition_lags,
        ("source", "topic", "partition"),
    ),
    Figure(
        "spark_streaming_topic_retention_used_ratio",
        "How much of the retention the unread data has used, in the worst partition: 0 if nothing "
        "is unread, 1 if unread data is about to be deleted or was deleted.",
        lambda row: {place: used for place, (used, _) in row.topic_retention.items()},
        ("source", "topic"),
    ),
    Figure(
        "spark_streaming_topic_retention_left_seconds",
        "The least time until unread data is deleted if nothing is read, in the worst partition; "
        "absent if unknown.",
        lambda row: {place: left for place, (_, left) in row.topic_retention.items()},
        ("source", "topic"),
    ),
    Figure(
        f"{QUERY}_end_to_end_age_seconds",
        "Age of the newest data that has passed from the first sources, through all queries before "
        "it, into the query's table; absent if unknown.",
        lambda row: row.end_to_end_age_seconds,
    ),
)


# -- driver and monitor -----------------------------------------------------------------------


def _from_zero(names: Iterable[str], counts: Mapping[str, int]) -> Figures:
    """Counts by one label; known names start at 0 before their first event."""
    return _by_label({**dict.fromkeys(names, 0), **counts})


def _by_receiver(
    scrape: Scrape, names: Iterable[str], counts: Mapping[str, Mapping[str, int]]
) -> Figures:
    """Counts by receiver and one more label, whose known names start at 0."""
    figures: dict[Labels, float | None] = dict.fromkeys(product(scrape.monitor.receivers, names), 0)
    for receiver, own in counts.items():
        figures |= {(receiver, kind): count for kind, count in own.items()}
    return figures


# A rule about a vanished driver can only compare the last samples, so both families hold the time
# of the same heartbeat.
DRIVER_FIGURES: tuple[Figure[Scrape], ...] = (
    Figure(
        "querypulse_driver_heartbeat_timestamp_seconds",
        "When the monitor last evaluated the queries, by its app.",
        lambda scrape: {(scrape.published.app,): scrape.monitor.heartbeat_timestamp},
        ("app",),
    ),
    Figure(
        "querypulse_driver_expected_timestamp_seconds",
        "The same time while a query should keep running, so that the driver should not end; "
        "absent otherwise.",
        lambda scrape: (
            {(scrape.published.app,): scrape.monitor.heartbeat_timestamp}
            if any(row.is_needed for row in scrape.queries)
            else {}
        ),
        ("app",),
    ),
)

MONITOR_FIGURES: tuple[Figure[Scrape], ...] = (
    Figure(
        "querypulse_alerts_firing",
        "Alerts firing now.",
        lambda scrape: dict(
            Counter(
                (alert.labels["alertname"], alert.labels["severity"])
                for alert in scrape.published.alerts
            )
        ),
        ("alertname", "severity"),
    ),
    Figure(
        "querypulse_queries_without_series",
        f"Queries beyond the first {MAX_QUERIES}: only /status and their alerts show them.",
        lambda scrape: {(scrape.published.app,): max(0, len(scrape.queries) - MAX_QUERIES)},
        ("app",),
    ),
    Figure(
        "querypulse_heartbeat_timestamp_seconds",
        "When the monitor last evaluated the queries.",
        lambda scrape: scrape.monitor.heartbeat_timestamp,
    ),
    Figure(
        "querypulse_mailbox_depth",
        "Events received but not read yet.",
        lambda scrape: scrape.monitor.mailbox_depth,
    ),
    Figure(
        "querypulse_events_total",
        "Events received.",
        lambda scrape: _from_zero([kind.value for kind in EventKind], scrape.monitor.events),
        ("event",),
    ),
    Figure(
        "querypulse_events_dropped_total",
        "Events, and parts of them, received and then lost, by reason.",
        lambda scrape: _from_zero(DROP_REASONS, scrape.monitor.events_dropped),
        ("reason",),
    ),
    Figure(
        "querypulse_internal_errors_total",
        "Contained errors of the monitor itself, by component.",
        lambda scrape: _by_label(scrape.monitor.internal_errors),
        ("component",),
    ),
    Figure(
        "querypulse_deliveries_total",
        "Attempts to deliver an alert.",
        lambda scrape: _by_receiver(scrape, OUTCOMES, scrape.monitor.deliveries),
        ("receiver", "outcome"),
    ),
    Figure(
        "querypulse_alerts_lost_total",
        "Alerts dropped without delivery, by reason.",
        lambda scrape: _by_receiver(scrape, LOSS_REASONS, scrape.monitor.alerts_lost),
        ("receiver", "reason"),
    ),
    Figure(
        "querypulse_receiver_circuit_open",
        "Whether the receiver, after failures, is tried with only one alert at a time.",
        lambda scrape: _from_zero(scrape.monitor.receivers, scrape.monitor.circuits_open),
        ("receiver",),
    ),
    Figure(
        "querypulse_outbox_pending",
        "Alerts not delivered yet.",
        lambda scrape: _from_zero(scrape.monitor.receivers, scrape.monitor.outbox_pending),
        ("receiver",),
    ),
    Figure(
        "querypulse_callback_duration_seconds",
        "Time that each event takes on Spark's listener thread.",
        lambda scrape: scrape.published.callback_durations,
        kind="histogram",
    ),
    Figure(
        "querypulse_probe_duration_seconds",
        "Time that each probe of Spark took.",
        lambda scrape: scrape.published.probe_durations,
        kind="histogram",
    ),
)

LABEL_NAMES = frozenset(
    {*ALERT_LABELS, "le", "upstream", "version"}.union(
        *(figure.labels for figure in QUERY_FIGURES),
        *(figure.labels for figure in (*DRIVER_FIGURES, *MONITOR_FIGURES)),
    )
)
"""The names of all labels of all families."""
