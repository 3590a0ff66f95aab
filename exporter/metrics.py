"""All metric families: of the queries, of the driver and of the monitor itself.

Each is an entry of a table: its name and labels, its meaning, and how it is read at a scrape.
A reading is one figure, figures by further labels, or a histogram; a figure that is unknown (None)
is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Generic, TypeVar

import msgspec

from ..core.installed import VERSION
from ..core.states import LOSS_REASONS, OUTCOMES, STATES
from ..listener.events import EventKind, SourceProgress
from ..listener.foresight.operators import (
    StateOperator,
    cache_reads,
    changed_rows,
    labelled,
    sizes,
    step_seconds,
)
from ..listener.foresight.resources import Resources
from ..listener.state.flow import name_in_namespace, namespace_of
from ..listener.state.freshness import Freshness
from ..listener.state.history import BUCKETS
from .exposition import Family
from .published_state import Buckets, Labels, Monitor, PublishedState, QueryRow, alert_labels

T = TypeVar("T")
Figures = dict[Labels, float | None]
Reading = float | Figures | Buckets | None

DRIVER_LABELS = ("app",)
"""Every figure of a driver and of its monitor has this too."""
QUERY_LABELS = ("app", "query")
"""Every figure of a query has these too."""
MAX_QUERIES = 1000
"""Each query has about 80 series, besides those of its sources and topics, and 30 for each operator
that keeps state in RocksDB, 16 of them at most."""
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
    """What the figures of a family mean, and how they are read."""

    documentation: str
    read: Callable[[T], Reading]


Table = dict[str, Figure[T]]
"""By the name of the family, with the labels of its figures (see ``Family``)."""


def all_families(published: PublishedState | None) -> Iterator[Family]:
    """All families; before the first evaluation only ``querypulse_build_info``, without an app."""
    if published is None:
        yield from _families(BUILD_FIGURES, [((), None)])
        return
    driver = [((published.app,), published)]
    yield from _families(BUILD_FIGURES, driver, DRIVER_LABELS)
    rows = _most_important(tuple(published.rows))
    shown = [((published.app, row.label), row) for row in rows]
    yield from _families(QUERY_FIGURES, shown, QUERY_LABELS)
    yield from _families(DRIVER_FIGURES, driver, DRIVER_LABELS)


def _families(
    table: Table[T], subjects: Sequence[tuple[Labels, T]], labels: Labels = ()
) -> Iterator[Family]:
    """The families of a table, with the samples of each subject under the subject's labels."""
    for key, figure in table.items():
        name, further = _name_and_labels(key)
        family = Family(name, figure.documentation, (*labels, *further))
        for own, subject in subjects:
            reading = figure.read(subject)
            if isinstance(reading, Buckets):
                family.add_buckets(own, reading)
            elif isinstance(reading, dict):
                for values, value in reading.items():
                    family.add((*own, *values), value)
            else:
                family.add(own, reading)
        yield family


def _name_and_labels(key: str) -> tuple[str, Labels]:
    name, _, labels = key.rstrip("}").partition("{")
    return name, tuple(filter(None, labels.split(",")))


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
    if not row.is_seen or row.query.run.gone_at is None:
        return 1, 0.0
    return 2 if row.is_needed else 3, -row.query.run.gone_at


def _by_label(values: Mapping[str, float]) -> Figures:
    return {(name,): value for name, value in values.items()}


def _info(row: QueryRow) -> Figures:
    if not row.is_seen:
        return {}
    trigger, sink = (str(row.facts.trigger), row.facts.sink) if row.facts is not None else ("", "")
    return {(row.query.query_id, row.query.run.run_id, trigger, sink): 1}


def _by_source(
    sources: Sequence[SourceProgress], read: Callable[[SourceProgress], float | None]
) -> Figures:
    """A figure of each source, by its index, as Spark reported it after the last batch."""
    return {(str(index),): read(source) for index, source in enumerate(sources)}


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


MAX_DATASETS = 20
"""The most datasets of a query that have a series."""


def _datasets(row: QueryRow) -> Figures:
    """The datasets whose namespace is known: others may be anybody's."""
    figures: Figures = {}
    for direction, dataset in row.datasets:
        namespace = namespace_of(dataset)
        if namespace and len(figures) < MAX_DATASETS:
            figures[direction, namespace, name_in_namespace(dataset)] = 1.0
    return figures


def _by_operator(
    row: QueryRow, read: Callable[[StateOperator], Mapping[str, float | None]]
) -> Figures:
    """Figures of each operator that keeps state, by the name that ``read`` gives them."""
    return {
        (label, name): value
        for label, operator in labelled(row.progress.operators).items()
        for name, value in read(operator).items()
        if value is not None
    }


def _operator_rows(row: QueryRow) -> Figures:
    rows = _by_operator(row, lambda operator: {"": operator.rows})
    return {(label,): value for (label, _), value in rows.items()}


def _snapshot_lags(row: QueryRow) -> Figures:
    return {(label,): float(age.batches) for label, age in row.oldest_uploads.items()}


def _rows(row: QueryRow, count: int) -> int | None:
    """A number of rows; None for a continuous query, of which Spark reports none."""
    trigger = row.query.run.trigger
    return None if trigger is not None and trigger.is_continuous else count


def _trigger_interval(row: QueryRow) -> float | None:
    if row.facts is None:
        return None
    return row.facts.trigger.interval_seconds or None


def _topic_ages(row: QueryRow) -> Figures:
    return {
        (source, topic): row.topic_ages[source].get(topic) for source, topic in _topic_lags(row)
    }


def _of_freshness(read: Callable[[Freshness], float]) -> Callable[[QueryRow], float | None]:
    """A figure of a query that promises something; the others have none."""
    return lambda row: None if row.freshness is None else read(row.freshness)


def _deadline(row: QueryRow) -> float | None:
    count = row.freshness
    if count is None or count.is_planned:
        return None if count is None else 0.0
    return row.published.unix(count.deadline)


FRESHNESS_FIGURES: Table[QueryRow] = {
    "spark_streaming_query_freshness_seconds_total": Figure(
        "The time in which the age of the query's data counted, with freshness_seconds; over "
        "restarts of the driver, too, with a spool.",
        _of_freshness(lambda count: count.total_seconds),
    ),
    "spark_streaming_query_freshness_good_seconds_total": Figure(
        "How much of that time its newest data was at most as old as promised.",
        _of_freshness(lambda count: count.good_seconds),
    ),
    "spark_streaming_query_freshness_objective": Figure(
        "In which share of the time it should be so (freshness_objective).",
        _of_freshness(lambda count: count.promise.objective),
    ),
    "spark_streaming_query_freshness_allowed_seconds": Figure(
        "How old its newest data may be (freshness_seconds).",
        _of_freshness(lambda count: count.promise.seconds),
    ),
    "spark_streaming_query_freshness_age_seconds": Figure(
        "The age of its newest data: since when not all that has arrived is known to be committed.",
        _of_freshness(lambda count: count.age_seconds),
    ),
    "spark_streaming_query_freshness_deadline_timestamp_seconds": Figure(
        "When its data is older than promised, if nothing more is committed; 0 in planned time.",
        _deadline,
    ),
    "spark_streaming_query_freshness_budget_left_seconds": Figure(
        "For how long its data may still be older than promised, of the last 30 days; negative if "
        "it was for longer.",
        lambda row: (
            None if row.freshness is None else row.freshness.budget_left_seconds(row.published.wall)
        ),
    ),
}
QUERY_FIGURES: Table[QueryRow] = {
    "spark_streaming_query_info{query_id,run_id,trigger,sink}": Figure(
        "The current run of the query.", _info
    ),
    "spark_streaming_query_failure_info{error_class}": Figure(
        "The query's unrecovered failure.",
        lambda row: {} if row.error_class is None else {(row.error_class,): 1},
    ),
    "spark_streaming_query_active": Figure(
        "Whether the current run of the query is active.",
        lambda row: float(row.published.snapshot.is_running(row.query)),
    ),
    "spark_streaming_query_alerting_enabled": Figure(
        "Whether the query can alert: 0 if the settings ignore it.",
        lambda row: float(not row.health.ignored),
    ),
    "spark_streaming_query_start_timestamp_seconds": Figure(
        "When the current run began, or was first seen.",
        lambda row: row.published.unix(row.query.run.started_at) if row.is_seen else None,
    ),
    "spark_streaming_query_last_event_timestamp_seconds": Figure(
        "When the listener last received an event of the query.",
        lambda row: row.published.unix(row.query.run.last_event_at),
    ),
    "spark_streaming_query_last_commit_timestamp_seconds": Figure(
        "When the current run last committed a batch, as far as seen.",
        lambda row: row.published.unix(row.query.run.last_commit_at),
    ),
    "spark_streaming_query_last_input_timestamp_seconds": Figure(
        "When the current run last read rows, as far as known; absent before the first.",
        lambda row: row.published.unix(row.query.run.last_input_at),
    ),
    "spark_streaming_query_last_activity_timestamp_seconds": Figure(
        "When the current run last committed or was idle; absent before the first time.",
        lambda row: (
            row.published.unix(row.query.run.last_activity_at)
            if row.query.run.activity_seen
            else None
        ),
    ),
    "spark_streaming_query_last_completed_timestamp_seconds": Figure(
        "When a run of the query last completed, also in an earlier process; absent before that.",
        lambda row: row.published.unix(row.query.completed_at) if row.is_seen else None,
    ),
    "spark_streaming_query_complete_by_timestamp_seconds": Figure(
        "By when the next run must complete; in the past, it is overdue. Absent without a setting.",
        lambda row: row.health.due_at,
    ),
    "spark_streaming_query_last_commit_batch_id": Figure(
        "The id of the last committed batch.", lambda row: row.query.checkpoint.last_commit_batch
    ),
    "spark_streaming_query_commits_total": Figure(
        "Batches committed.", lambda row: row.totals.commits
    ),
    "spark_streaming_query_batches_not_durable": Figure(
        "Batches done but not in the commit log yet; only with async progress tracking.",
        lambda row: row.query.batches_not_durable,
    ),
    "spark_streaming_query_batch_in_flight_seconds": Figure(
        "How long the batch in flight has been running; absent without one.",
        lambda row: row.batch_in_flight_seconds,
    ),
    "spark_streaming_query_no_progress_seconds": Figure(
        "How long no task of the batch in flight has finished or a source has not answered; "
        "absent while the query waits.",
        lambda row: row.no_progress_seconds,
    ),
    "spark_streaming_query_stall_window_seconds": Figure(
        "How long the query may go without a commit before it counts as stalled.",
        lambda row: row.health.window_seconds,
    ),
    "spark_streaming_query_trigger_interval_seconds": Figure(
        "The interval of the query's trigger; absent without one.",
        _trigger_interval,
    ),
    "spark_streaming_query_expected_input_seconds": Figure(
        "How long the query may read no rows before an alert; absent if no data is expected.",
        lambda row: row.health.expected_input_seconds,
    ),
    "spark_streaming_query_input_rows_total": Figure(
        "Rows read; absent for a continuous query, of which Spark reports no rows.",
        lambda row: _rows(row, row.totals.input_rows),
    ),
    "spark_streaming_query_output_rows_total": Figure(
        "Rows written; 0 for sinks that do not count them, such as foreachBatch; absent for a "
        "continuous query.",
        lambda row: _rows(row, row.totals.output_rows),
    ),
    "spark_streaming_query_input_rows_per_second": Figure(
        "The rate at which rows arrived before the last batch; absent once that is older than the "
        "stall window.",
        lambda row: row.live_progress.input_rows_per_second,
    ),
    "spark_streaming_query_processed_rows_per_second": Figure(
        "The rate at which rows were processed in the last batch; absent once that is older than "
        "the stall window.",
        lambda row: row.live_progress.processed_rows_per_second,
    ),
    "spark_streaming_query_watermark_timestamp_seconds": Figure(
        "Event-time watermark after the last batch.",
        lambda row: row.progress.watermark_timestamp or None,
    ),
    "spark_streaming_query_state_rows": Figure(
        "Rows in all state stores of the query.",
        lambda row: row.progress.state_rows,
    ),
    "spark_streaming_query_state_memory_bytes": Figure(
        "Memory used by all state stores of the query.",
        lambda row: row.progress.state_memory_bytes,
    ),
    "spark_streaming_query_state_operator_rows{operator}": Figure(
        "Rows in the state of each operator.", _operator_rows
    ),
    "spark_streaming_query_state_operator_changed_rows{operator,event}": Figure(
        "Rows of state that the last batch updated, removed, or dropped as late.",
        lambda row: _by_operator(row, changed_rows),
    ),
    "spark_streaming_query_state_operator_seconds{operator,phase}": Figure(
        "The time that the tasks of the last batch spent on state, by phase, added up.",
        lambda row: _by_operator(row, step_seconds),
    ),
    "spark_streaming_query_state_operator_bytes{operator,part}": Figure(
        "Bytes of state: memory, the files of RocksDB (sst_files) and what its cache has pinned "
        "(pinned_blocks); and what the last batch read, wrote, compacted and uploaded.",
        lambda row: _by_operator(row, sizes),
    ),
    "spark_streaming_query_state_operator_cache_reads{operator,outcome}": Figure(
        "Reads of state in the last batch that its cache answered (hit), or not (miss).",
        lambda row: _by_operator(row, cache_reads),
    ),
    "spark_streaming_query_state_snapshot_lag_batches{operator}": Figure(
        "How many batches are not in the newest uploaded snapshot of the partition where that is "
        "the oldest: a recovery reads them again. Where none is known, those of this run.",
        _snapshot_lags,
    ),
    "spark_streaming_query_observed{observation}": Figure(
        "A value of df.observe(), by NAME.FIELD, that the setting observed_metrics names.",
        lambda row: {(f"{seen.name}.{seen.field}",): seen.value for seen in row.progress.observed},
    ),
    "spark_streaming_query_late_rows_dropped_total": Figure(
        "Rows dropped because they were behind the watermark; absent for a continuous query.",
        lambda row: _rows(row, row.totals.late_rows),
    ),
    "spark_streaming_query_restarts_total": Figure(
        "Runs that followed an earlier run of the query.", lambda row: row.totals.restarts
    ),
    "spark_streaming_query_supervised": Figure(
        "1 while supervise restarts the query after a failure, 0 once it has given it up.",
        lambda row: None if row.supervised is None else float(not row.supervised.given_up),
    ),
    "spark_streaming_query_supervised_restarts_total": Figure(
        "How often supervise has started the query again.",
        lambda row: None if row.supervised is None else row.supervised.restarts,
    ),
    "spark_streaming_query_state{state}": Figure(
        "1 for the state the query is in, 0 for every other.",
        lambda row: {(state,): float(state == row.state) for state in STATES},
    ),
    # A dashboard that adds 15 weighted series up takes half a minute for 400 queries.
    "spark_streaming_query_state_rank": Figure(
        f"How bad the state is, as a number: {len(STATES)} for {STATES[0]}, the worst, down to 1 "
        f"for {STATES[-1]}.",
        lambda row: float(len(STATES) - STATES.index(row.state)),
    ),
    "spark_streaming_query_phase_duration_seconds{phase}": Figure(
        "The time that the last batch spent in each phase, by Spark's names (durationMs).",
        lambda row: _by_label(row.progress.phase_seconds),
    ),
    "spark_streaming_query_terminations_total{outcome}": Figure(
        "Ended runs, by outcome.",
        lambda row: {
            ("failed",): row.totals.failed,
            ("stopped",): row.totals.stopped,
            ("completed",): row.totals.completed,
        },
    ),
    # Databricks' sources report their backlog (Delta and cloudFiles: numFilesOutstanding,
    # numBytesOutstanding); open-source Delta, Iceberg and file sources do not (seen on Delta
    # 4.4.0, Iceberg 1.12.0, Spark 4.3.0).
    "spark_streaming_source_backlog_files{source}": Figure(
        "Unread files in each source, by its index; only if the source reports them.",
        lambda row: _by_source(row.progress.sources, lambda source: source.backlog_files),
    ),
    "spark_streaming_source_backlog_bytes{source}": Figure(
        "Unread bytes in each source, by its index; only if the source reports them.",
        lambda row: _by_source(row.progress.sources, lambda source: source.backlog_bytes),
    ),
    "spark_streaming_source_lag_offsets{source}": Figure(
        "Lag in offsets of each source, by its index: from the broker if it can be polled, else "
        "as Spark reports it while that is current.",
        lambda row: _by_label(row.lags),
    ),
    "spark_streaming_source_lag_reported_offsets{source}": Figure(
        "Lag in offsets of each source when Spark planned the last batch, while that is current: "
        "always 0 if batches have no size limit.",
        lambda row: _by_source(row.live_sources, lambda source: source.lag_offsets),
    ),
    "spark_streaming_source_lag_seconds{source}": Figure(
        "Age of the first unread record of each source, by its timestamp; 0 if nothing is unread, "
        "absent if unknown.",
        lambda row: _by_label(row.source_ages),
    ),
    "spark_streaming_source_last_success_timestamp_seconds{source}": Figure(
        "When the broker of each source last answered.",
        lambda row: {
            (str(index),): poll.wall for index, poll in row.query.checkpoint.polls.items()
        },
    ),
    "spark_streaming_query_batch_duration_seconds{le}": Figure(
        "How long batches took.",
        lambda row: Buckets(BUCKETS, row.totals.batch_buckets, row.totals.batch_seconds),
    ),
    "spark_streaming_topic_lag_offsets{source,topic}": Figure(
        "Lag in offsets of each topic, from the broker.", _topic_lags
    ),
    "spark_streaming_topic_lag_seconds{source,topic}": Figure(
        "Age of the first unread record of each topic, by its timestamp.",
        _topic_ages,
    ),
    "spark_streaming_partition_lag_offsets{source,topic,partition}": Figure(
        "Lag in offsets of each partition, with the setting lag_by_partition.", _partition_lags
    ),
    "spark_streaming_topic_retention_used_ratio{source,topic}": Figure(
        "How much of the retention the unread data has used, in the worst partition: 0 if nothing "
        "is unread, 1 if unread data is about to be deleted or was deleted.",
        lambda row: {place: used for place, (used, _) in row.topic_retention.items()},
    ),
    "spark_streaming_topic_retention_left_seconds{source,topic}": Figure(
        "The least time until unread data is deleted if nothing is read, in the worst partition; "
        "absent if unknown.",
        lambda row: {place: left for place, (_, left) in row.topic_retention.items()},
    ),
    "spark_streaming_query_caught_up_seconds": Figure(
        "In how many seconds the query has read all that has arrived: 0 if it has, infinite if "
        "more arrives than is read; absent if unknown.",
        lambda row: None if row.caught_up is None else row.caught_up.seconds,
    ),
    "spark_streaming_query_executor_cpu_seconds_total": Figure(
        "CPU time of the query's finished tasks in the executors' JVMs, without Python's workers; "
        "absent where tasks are not counted, as the next five.",
        lambda row: None if row.spent is None else row.spent.cpu_seconds,
    ),
    "spark_streaming_query_executor_run_seconds_total": Figure(
        "How long the query's finished tasks ran, Python's workers included: slots that it held.",
        lambda row: None if row.spent is None else row.spent.run_seconds,
    ),
    "spark_streaming_query_executor_gc_seconds_total": Figure(
        "Pauses for garbage collection while the query's finished tasks ran; each task that ran "
        "meanwhile counts the same pause.",
        lambda row: None if row.spent is None else row.spent.gc_seconds,
    ),
    "spark_streaming_query_executor_spilled_bytes_total": Figure(
        "Bytes that the query's finished tasks spilled to disk.",
        lambda row: None if row.spent is None else row.spent.spilled_bytes,
    ),
    "spark_streaming_query_executor_shuffle_read_bytes_total": Figure(
        "Bytes that the query's finished tasks read from shuffles.",
        lambda row: None if row.spent is None else row.spent.shuffle_read_bytes,
    ),
    "spark_streaming_query_executor_shuffle_written_bytes_total": Figure(
        "Bytes that the query's finished tasks wrote for shuffles.",
        lambda row: None if row.spent is None else row.spent.shuffle_written_bytes,
    ),
    "spark_streaming_query_end_to_end_age_seconds": Figure(
        "Age of the newest data that has passed from the first sources, through all queries before "
        "it, into the query's table; absent if unknown.",
        lambda row: row.end_to_end_age_seconds,
    ),
    # Not "namespace" and "name": targets on Kubernetes have a namespace of their own.
    "spark_streaming_query_dataset{direction,dataset_namespace,dataset_name}": Figure(
        f"1 for each dataset that the query reads (input) or writes (output), at most "
        f"{MAX_DATASETS}, by OpenLineage's names: kafka://broker:9092 and topic, s3://bucket and "
        "path, file and path, catalog://name and table.",
        _datasets,
    ),
    "spark_streaming_query_datasets_without_series": Figure(
        f"Datasets of the query beyond these {MAX_DATASETS}, or whose brokers or file system are "
        "not known.",
        lambda row: float(len(row.datasets) - len(_datasets(row))),
    ),
    "spark_streaming_query_upstream{upstream}": Figure(
        "1 for each query whose output the query reads.",
        lambda row: dict.fromkeys(((writer,) for writer in row.upstream), 1.0),
    ),
    **FRESHNESS_FIGURES,
}


# -- driver and monitor -----------------------------------------------------------------------


def _from_zero(names: Iterable[str], counts: Mapping[str, int]) -> Figures:
    """Counts by one label; known names start at 0 before their first event."""
    return _by_label({**dict.fromkeys(names, 0), **counts})


def _by_receiver(
    monitor: Monitor, names: Iterable[str], counts: Mapping[str, Mapping[str, int]]
) -> Figures:
    """Counts by receiver and one more label, whose known names start at 0."""
    figures: dict[Labels, float | None] = dict.fromkeys(product(monitor.receivers, names), 0)
    for receiver, own in counts.items():
        figures |= {(receiver, kind): count for kind, count in own.items()}
    return figures


def _driver_needed(published: PublishedState) -> float | None:
    """The time of the last evaluation, while a query should keep running."""
    if not any(row.is_needed for row in published.rows):
        return None
    return published.monitor.heartbeat_timestamp


def _alerts(published: PublishedState) -> Figures:
    """1 for each open alert, and 0 for those that ended a short while ago."""
    figures: Figures = dict.fromkeys(published.alerts_last_open, 0.0)
    for alert in published.alerts:
        figures[alert_labels(alert)] = 1.0
    return figures


def _alert_starts(published: PublishedState) -> Figures:
    return {alert_labels(alert): alert.starts_at for alert in published.alerts}


def _alerts_firing(published: PublishedState) -> Figures:
    names = [(alert.labels["alertname"], alert.labels["severity"]) for alert in published.alerts]
    return dict(Counter(names))


def _resources(published: PublishedState) -> Resources:
    return published.snapshot.resources


def _heap(published: PublishedState) -> Figures:
    heap = _resources(published).heap
    if heap is None:
        return {}
    figures = _by_label({"used": heap.used_bytes, "max": heap.max_bytes})
    return figures | {("after_gc",): heap.after_gc_bytes}


def _container(published: PublishedState) -> Figures:
    container = _resources(published).container
    if container is None:
        return {}
    return _by_label({"used": container.working_set_bytes, "max": container.limit_bytes})


def _disks(published: PublishedState) -> Figures:
    figures: Figures = {}
    for disk in _resources(published).disks:
        figures[disk.path, "free"] = disk.free_bytes
        figures[disk.path, "max"] = disk.total_bytes
    return figures


BUILD_FIGURES: Table[PublishedState | None] = {
    "querypulse_build_info{version}": Figure(
        "The version of querypulse in this driver.", lambda _: {(VERSION,): 1}
    ),
}
DRIVER_FIGURES: Table[PublishedState] = {
    # A rule about a vanished driver can only compare the last samples, so both families hold the
    # time of the same heartbeat.
    "querypulse_driver_heartbeat_timestamp_seconds": Figure(
        "When the monitor last evaluated the queries.",
        lambda published: published.monitor.heartbeat_timestamp,
    ),
    "querypulse_driver_expected_timestamp_seconds": Figure(
        "The same time while a query should keep running, so that the driver should not end; "
        "absent otherwise.",
        _driver_needed,
    ),
    "spark_streaming_query_alert{query,alertname,severity}": Figure(
        "1 while querypulse has this alert open, and 0 for ten minutes after it ended; "
        'query "*" is the whole driver.',
        _alerts,
    ),
    "spark_streaming_query_alert_cause{query,alertname,cause}": Figure(
        "1 for the cause of each open alert, in words that all drivers share.",
        lambda published: {
            (alert.query, alert.name, alert.cause): 1.0 for alert in published.alerts if alert.cause
        },
    ),
    # A sum over the samples of the alert would count its earlier episodes, too.
    "spark_streaming_query_alert_start_timestamp_seconds{query,alertname,severity}": Figure(
        "When this alert began; absent once it has ended.", _alert_starts
    ),
    "querypulse_unowned_executor_cpu_seconds_total": Figure(
        "CPU time of the finished tasks of jobs that belong to no query; absent where tasks are "
        "not counted.",
        lambda published: (
            None if published.unowned_tasks is None else published.unowned_tasks.cpu_seconds
        ),
    ),
    "querypulse_unowned_executor_run_seconds_total": Figure(
        "How long the finished tasks of jobs that belong to no query ran.",
        lambda published: (
            None if published.unowned_tasks is None else published.unowned_tasks.run_seconds
        ),
    ),
    "querypulse_alerts_firing{alertname,severity}": Figure("Alerts firing now.", _alerts_firing),
    "querypulse_queries_without_series": Figure(
        f"Queries beyond the first {MAX_QUERIES}: only /status and their alerts show them.",
        lambda published: max(0, len(published.queries) - MAX_QUERIES),
    ),
    "spark_streaming_driver_heap_bytes{part}": Figure(
        "The heap of the driver: in use, what the last garbage collection left (after_gc), and its "
        "maximum (max).",
        _heap,
    ),
    "spark_streaming_driver_gc_seconds_total": Figure(
        "Time that the driver's threads stood still for garbage collections.",
        lambda published: None if (heap := _resources(published).heap) is None else heap.gc_seconds,
    ),
    "spark_streaming_driver_container_bytes{part}": Figure(
        "The memory of the driver's container: the working set (used) and its limit (max).",
        _container,
    ),
    "spark_streaming_driver_disk_bytes{path,part}": Figure(
        "The local disks with checkpoints, working files or the spool: free, and the size (max).",
        _disks,
    ),
    "spark_streaming_driver_full_seconds{resource}": Figure(
        "In how many seconds the heap, the container or a disk is full; absent unless it fills up.",
        lambda published: {(resource,): full.seconds for resource, full in published.full.items()},
    ),
    "querypulse_mailbox_depth": Figure(
        "Events received but not read yet.", lambda published: published.monitor.mailbox_depth
    ),
    "querypulse_events_total{event}": Figure(
        "Events received.",
        lambda published: _from_zero([kind.value for kind in EventKind], published.monitor.events),
    ),
    "querypulse_events_dropped_total{reason}": Figure(
        "Events, and parts of them, received and then lost, by reason.",
        lambda published: _from_zero(DROP_REASONS, published.monitor.events_dropped),
    ),
    "querypulse_internal_errors_total{component}": Figure(
        "Contained errors of the monitor itself, by component.",
        lambda published: _by_label(published.monitor.internal_errors),
    ),
    "querypulse_deliveries_total{receiver,outcome}": Figure(
        "Attempts to deliver an alert.",
        lambda published: _by_receiver(published.monitor, OUTCOMES, published.monitor.deliveries),
    ),
    "querypulse_alerts_lost_total{receiver,reason}": Figure(
        "Alerts dropped without delivery, by reason.",
        lambda published: _by_receiver(
            published.monitor, LOSS_REASONS, published.monitor.alerts_lost
        ),
    ),
    "querypulse_receiver_circuit_open{receiver}": Figure(
        "Whether the receiver, after failures, is tried with only one alert at a time.",
        lambda published: _from_zero(published.monitor.receivers, published.monitor.circuits_open),
    ),
    "querypulse_outbox_pending{receiver}": Figure(
        "Alerts not delivered yet.",
        lambda published: _from_zero(published.monitor.receivers, published.monitor.outbox_pending),
    ),
    "querypulse_callback_duration_seconds{le}": Figure(
        "Time that each event takes on Spark's listener thread.",
        lambda published: published.callback_durations,
    ),
    "querypulse_probe_duration_seconds{le}": Figure(
        "Time that each probe of Spark took.", lambda published: published.probe_durations
    ),
}
LABEL_NAMES = frozenset(QUERY_LABELS).union(
    *(_name_and_labels(key)[1] for key in (*BUILD_FIGURES, *QUERY_FIGURES, *DRIVER_FIGURES))
)
"""The names of all labels of all families."""
