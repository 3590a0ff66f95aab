"""The list of a query's figures: name, meaning, and how to read each one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ..core.states import STATES
from ..listener.events import Progress
from ..listener.query import Query
from .row import QueryRow

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
