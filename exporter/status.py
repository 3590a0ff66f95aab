"""The status that ``/status`` serves and ``sidecar.snapshot()`` returns, and what follows from it:
readiness, and what a notebook shows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from html import escape
from typing import TypeVar

import msgspec

from ..alerting.evidence import CatchingUp
from ..alerting.words.evidence import caught_up_text
from ..alerting.words.messages import annotations_of
from ..alerting.words.reasons import JVM_ENDED
from ..core.installed import VERSION
from ..core.text import duration
from ..listener.checkpoints import checkpoint_problem
from ..listener.foresight.operators import StateOperator, UploadAge, labelled
from ..listener.foresight.resources import CONTAINER, HEAP
from ..listener.foresight.tasks import TaskSums
from ..listener.probe_report import Context
from ..listener.state.flow import name_in_namespace, namespace_of
from .published_state import MAX_NEIGHBOURS, Monitor, Process, PublishedState, QueryRow, iso

RecordT = TypeVar("RecordT", bound=msgspec.Struct)
MILLISECONDS = 3
"""Digits of a figure."""
MAX_ROWS = 50
"""How many queries a notebook's table shows."""
UNREADY = frozenset(
    {"failed", "missing", "stopped_unexpectedly", "stalled", "flapping", "rewound", "starting"}
)
"""States in which a query does not work."""


class SupervisedStatus(msgspec.Struct, frozen=True):
    """How ``supervise`` restarts a query."""

    restarts: int
    next_start_seconds: float | None
    """Seconds until its next start is due, negative once that is overdue; None while it runs."""
    failure: str | None
    """Why it was started again last; None before the first failure."""
    given_up: str | None
    """Why it is not restarted any more; None while it is."""


class CaughtUpStatus(msgspec.Struct, frozen=True, kw_only=True):
    """When a query has read all that has arrived; what it never reaches is None.

    ``arrival`` and ``consumption`` are in ``unit`` a second.
    """

    text: str
    """The same in words; empty if it has caught up."""
    at: str | None
    """ISO 8601 in UTC."""
    seconds: float | None
    earliest_seconds: float | None
    latest_seconds: float | None
    never: bool
    """Whether more arrives than is read."""
    unit: str
    arrival: float
    consumption: float
    deletion_seconds: float | None
    """In how many seconds retention begins to delete unread data; None if it does not before."""


class LikelyCauseStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What explains most of the time that a batch takes beyond the usual."""

    cause: str
    """Its code, such as ``skew``."""
    text: str
    """The same in words, which begin with it."""
    explained_seconds: float
    """So much of that time."""
    batch: int | None
    """The batch; None while it is planned."""
    batch_seconds: float
    """How long it took, or has been in flight."""
    usual_seconds: float


class CostStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What finished tasks did since counting began, over all runs of a query."""

    cpu_seconds: float
    """In the executors' JVMs, without Python's workers."""
    cpu_share: float | None
    """Its part of the CPU time of all tasks of this driver; None before the first."""
    run_seconds: float
    gc_seconds: float
    shuffle_wait_seconds: float
    spilled_bytes: int
    shuffle_read_bytes: int
    shuffle_written_bytes: int
    tasks: int


class FreshnessStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How fresh the newest data of a query is, and for how long it was as fresh as promised."""

    age_seconds: float
    allowed_seconds: float
    objective: float
    planned: bool
    """Whether this time does not count: an announced stop, or a silence."""
    good_seconds: float
    total_seconds: float
    """Since counting began; with a spool, also in earlier processes."""
    budget_seconds: float
    """For how long within 30 days the data may be older."""
    budget_left_seconds: float
    """What is left of that; negative if it was older for longer."""


class OperatorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one operator after the last batch; what Spark does not report is None."""

    name: str
    rows: int | None
    bytes: float | None
    """RocksDB's files, else the memory of the state."""
    memory_bytes: int | None
    updated_rows: int | None
    removed_rows: int | None
    commit_seconds: float | None
    snapshot_lag_batches: int | None
    """How many batches are not in the oldest of the uploaded snapshots."""
    snapshot_partition: int | None
    """The partition of that snapshot."""


class DatasetStatus(msgspec.Struct, frozen=True):
    """A folder, table or topic, named after the conventions of OpenLineage."""

    namespace: str
    """Such as ``kafka://broker:9092`` or ``s3://bucket``, ``file``; empty if unknown."""
    name: str


class QueryStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One query; ``id`` and ``run_id`` are None for an expected query that was never seen.

    Times are ISO 8601 in UTC, ages and durations are seconds. What is unknown or absent is None;
    only ``reason`` is an empty text for a state that needs none.
    """

    name: str
    """Its label: its name, else the first 8 characters of its id."""
    id: str | None
    run_id: str | None
    state: str
    reason: str
    last_commit_batch: int | None
    last_commit_age_seconds: float | None
    window_seconds: float | None
    batch_in_flight_seconds: float | None
    lag_offsets: float | None
    error_class: str | None
    expected: bool
    """Whether it is an expected query."""
    ignored: bool
    """Whether the settings exclude it from alerting."""
    started_at: str | None
    """When its current run began, or was first seen."""
    restarts: int
    trigger: str | None
    sink: str | None
    batch_in_flight: int | None
    """The id of the batch in flight."""
    last_idle_age_seconds: float | None
    """Seconds since its run was last seen idle."""
    recent_batch_seconds: tuple[float, ...]
    """Durations of the last batches, at most 30, the newest last."""
    input_rows_per_second: float | None
    processed_rows_per_second: float | None
    """From Spark's progress of the last batch; None once that is older than the stall window."""
    lag_seconds: float | None
    """The age of the first unread record."""
    last_input_age_seconds: float | None
    """Seconds since its run last read rows; None before the first."""
    checkpoint_problem: str | None
    """Why its next start may not find its checkpoint; None if nothing is known to be wrong."""
    upstream: tuple[str, ...] = ()
    """The queries that write what it reads, at most 50."""
    downstream: tuple[str, ...] = ()
    """The queries that read what it writes, at most 50."""
    reads: tuple[DatasetStatus, ...] = ()
    """The datasets that it reads, at most 50."""
    writes: tuple[DatasetStatus, ...] = ()
    """The datasets that it writes, at most 50."""
    complete_by: str | None = None
    """By when its next run must complete, ISO 8601 in UTC; None without such a setting."""
    end_to_end_age_seconds: float | None = None
    """The age of the newest data that has passed from the first sources into its table."""
    caught_up: CaughtUpStatus | None = None
    """None if it is unknown."""
    likely_cause: LikelyCauseStatus | None = None
    """Why its batches are slow, as its alert says it; None if that is unknown."""
    cost: CostStatus | None = None
    """None where its tasks are not counted, and before the first."""
    state_operators: tuple[OperatorStatus, ...] = ()
    freshness: FreshnessStatus | None = None
    """None without ``freshness_seconds``."""
    supervised: SupervisedStatus | None = None
    """None unless the application lets querypulse restart it."""


class HeapStatus(msgspec.Struct, frozen=True):
    """The heap of the driver's JVM."""

    used_bytes: int
    after_gc_bytes: int | None
    """What the last collection left; None before the first one."""
    max_bytes: int
    gc_seconds: float
    """In collections, since the JVM began."""
    full_seconds: float | None
    """In how many seconds it is full; None unless it fills up."""


class ContainerStatus(msgspec.Struct, frozen=True):
    """The memory of the driver's container."""

    used_bytes: int
    """The working set: without what the kernel takes back at once."""
    max_bytes: int
    full_seconds: float | None


class DiskStatus(msgspec.Struct, frozen=True):
    """A local disk, and what of the job is on it."""

    path: str
    holds: tuple[str, ...]
    free_bytes: int
    max_bytes: int
    full_seconds: float | None


class ResourcesStatus(msgspec.Struct, frozen=True):
    """The memory and the disks of the driver; what is not known is None, or missing."""

    heap: HeapStatus | None = None
    container: ContainerStatus | None = None
    disks: tuple[DiskStatus, ...] = ()


class AlertStatus(msgspec.Struct, frozen=True):
    """One firing alert; ``starts_at`` is ISO 8601 in UTC."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts_at: str
    cause: str = ""
    """What is wrong, and where, in the same words in each driver."""


class InhibitedStatus(msgspec.Struct, frozen=True):
    """One suppressed alert, and the alert that suppresses it."""

    alertname: str
    query: str
    reason: str
    by_alertname: str
    by_query: str


class Status(msgspec.Struct, frozen=True):
    """One driver at one moment: its queries, its alerts and the monitor itself.

    ``at`` is that moment, ISO 8601 in UTC.
    """

    app: str
    labels: dict[str, str]
    spark_version: str
    process: Process
    queries: tuple[QueryStatus, ...]
    alerts: tuple[AlertStatus, ...]
    monitor: Monitor
    at: str
    inhibited: tuple[InhibitedStatus, ...] = msgspec.field(default=(), name="suppressed")
    end_expected: bool = False
    """Whether somebody has announced that the whole driver will end now."""
    unowned_cost: CostStatus | None = None
    """What jobs did that belong to no query; None as for a query."""
    version: str = VERSION
    """The version of querypulse."""
    resources: ResourcesStatus = ResourcesStatus()


class Reason(msgspec.Struct, frozen=True):
    """Why the driver is not ready; ``query`` is None for the JVM and for the monitor itself."""

    query: str | None
    state: str
    reason: str


def status(published: PublishedState) -> Status:
    """Convert the published state."""
    cpu_seconds = published.cpu_seconds
    return Status(
        app=published.app,
        labels=dict(published.labels),
        spark_version=published.spark_version,
        process=published.process,
        queries=tuple(_query(row, cpu_seconds) for row in published.rows),
        alerts=tuple(
            AlertStatus(alert.labels, annotations_of(alert), iso(alert.starts_at), alert.cause)
            for alert in published.alerts
        ),
        monitor=_monitor(published.monitor),
        at=iso(published.wall),
        end_expected=published.snapshot.end_expected,
        unowned_cost=_cost(published.unowned_tasks, cpu_seconds),
        resources=_resources(published),
        inhibited=tuple(
            InhibitedStatus(
                alertname=pair.alert.labels["alertname"],
                query=pair.alert.labels["query"],
                reason=pair.alert.annotations.get("reason", ""),
                by_alertname=pair.by.labels["alertname"],
                by_query=pair.by.labels["query"],
            )
            for pair in published.inhibited
        ),
    )


def _resources(published: PublishedState) -> ResourcesStatus:
    read = published.snapshot.resources
    full = {name: answer.seconds for name, answer in published.full.items()}
    heap = container = None
    if read.heap is not None:
        heap = HeapStatus(
            used_bytes=read.heap.used_bytes,
            after_gc_bytes=read.heap.after_gc_bytes,
            max_bytes=read.heap.max_bytes,
            gc_seconds=read.heap.gc_seconds,
            full_seconds=full.get(HEAP),
        )
    if read.container is not None:
        used = read.container.working_set_bytes
        container = ContainerStatus(used, read.container.limit_bytes, full.get(CONTAINER))
    disks = [
        DiskStatus(disk.path, disk.holds, disk.free_bytes, disk.total_bytes, full.get(disk.path))
        for disk in read.disks
    ]
    return ResourcesStatus(heap, container, tuple(disks))


def why_unready(published: PublishedState | None) -> list[Reason]:
    """Check the JVM, and every known or expected query that is not ignored; empty if all work."""
    if published is None:
        return [Reason(None, "starting", "nothing has been evaluated yet")]
    jvm = Reason(None, "missing", JVM_ENDED)
    return [jvm] * (published.snapshot.context is Context.JVM_GONE) + [
        Reason(row.label, row.state, row.health.reason)
        for row in published.rows
        if row.state in UNREADY and not row.health.ignored
    ]


def _query(row: QueryRow, cpu_seconds: float) -> QueryStatus:
    query, facts, progress, flight = row.query, row.facts, row.live_progress, row.in_flight
    began = row.published.unix(query.run.started_at) if row.is_seen else None
    shown = QueryStatus(
        name=row.label,
        id=query.query_id if row.is_seen else None,
        run_id=query.run.run_id if row.is_seen else None,
        state=row.state,
        reason=row.health.reason,
        last_commit_batch=query.checkpoint.last_commit_batch,
        last_commit_age_seconds=row.age(query.run.last_commit_at),
        window_seconds=row.health.window_seconds,
        batch_in_flight_seconds=row.batch_in_flight_seconds,
        lag_offsets=sum(row.lags.values()) if row.lags else None,
        error_class=row.error_class,
        expected=row.is_expected,
        ignored=row.health.ignored,
        started_at=None if began is None else iso(began),
        restarts=row.totals.restarts,
        trigger=None if facts is None else str(facts.trigger),
        sink=None if facts is None else facts.sink,
        batch_in_flight=None if flight is None else flight.batch_id,
        last_idle_age_seconds=row.age(query.run.last_idle_at),
        recent_batch_seconds=tuple(map(_milliseconds, query.history.recent_batches)),
        input_rows_per_second=progress.input_rows_per_second,
        processed_rows_per_second=progress.processed_rows_per_second,
        lag_seconds=max(row.source_ages.values(), default=None),
        last_input_age_seconds=row.age(query.run.last_input_at),
        checkpoint_problem=None if facts is None else checkpoint_problem(facts.checkpoint) or None,
        upstream=row.upstream,
        downstream=row.downstream,
        reads=_datasets(row, "input"),
        writes=_datasets(row, "output"),
        complete_by=None if row.health.due_at is None else iso(row.health.due_at),
        end_to_end_age_seconds=row.end_to_end_age_seconds,
        caught_up=_caught_up(row),
        likely_cause=_likely_cause(row),
        cost=_cost(row.spent, cpu_seconds),
        state_operators=_operators(row),
        freshness=_freshness(row),
        supervised=_supervised(row),
    )
    return _rounded(shown)


def _freshness(row: QueryRow) -> FreshnessStatus | None:
    count = row.freshness
    if count is None:
        return None
    shown = FreshnessStatus(
        age_seconds=count.age_seconds,
        allowed_seconds=count.promise.seconds,
        objective=count.promise.objective,
        planned=count.is_planned,
        good_seconds=count.good_seconds,
        total_seconds=count.total_seconds,
        budget_seconds=count.promise.budget_seconds,
        budget_left_seconds=count.budget_left_seconds(row.published.wall),
    )
    # 0.9995 is not 1.
    return msgspec.structs.replace(_rounded(shown), objective=count.promise.objective)


def _datasets(row: QueryRow, wanted: str) -> tuple[DatasetStatus, ...]:
    """The datasets of one side, ``input`` or ``output``."""
    own = [dataset for side, dataset in row.datasets if side == wanted]
    return tuple(
        DatasetStatus(namespace_of(dataset), name_in_namespace(dataset))
        for dataset in own[:MAX_NEIGHBOURS]
    )


def _operators(row: QueryRow) -> tuple[OperatorStatus, ...]:
    operators = labelled(row.progress.operators).items()
    return tuple(
        _operator(label, operator, row.oldest_uploads.get(label)) for label, operator in operators
    )


def _operator(label: str, operator: StateOperator, upload: UploadAge | None) -> OperatorStatus:
    return OperatorStatus(
        name=label,
        rows=operator.rows,
        bytes=operator.state_bytes,
        memory_bytes=operator.memory_bytes,
        updated_rows=operator.rows_updated,
        removed_rows=operator.rows_removed,
        commit_seconds=operator.commit_seconds,
        snapshot_lag_batches=None if upload is None else upload.batches,
        snapshot_partition=None if upload is None else upload.partition,
    )


def _caught_up(row: QueryRow) -> CaughtUpStatus | None:
    answer = row.caught_up
    if answer is None:
        return None
    wall = row.published.wall
    deletion = answer.deletion
    never = answer.is_never
    shown = CaughtUpStatus(
        text=caught_up_text(CatchingUp(answer, wall)) if answer.seconds else "",
        at=None if never else iso(wall + answer.seconds),
        seconds=None if never else answer.seconds,
        earliest_seconds=None if never else answer.earliest,
        latest_seconds=None if never else answer.latest,
        never=never,
        unit=answer.unit,
        arrival=answer.arrival,
        consumption=answer.consumption,
        deletion_seconds=None if deletion is None else deletion.seconds,
    )
    return _rounded(shown)


def _likely_cause(row: QueryRow) -> LikelyCauseStatus | None:
    slow = row.health.slowness
    if slow is None or slow.cause is None:
        return None
    shown = LikelyCauseStatus(
        cause=slow.cause.cause.value,
        text=row.health.likely_cause,
        explained_seconds=slow.cause.explained_seconds,
        batch=slow.batch_id,
        batch_seconds=slow.seconds,
        usual_seconds=slow.usual_seconds,
    )
    return _rounded(shown)


def _cost(sums: TaskSums | None, cpu_seconds: float) -> CostStatus | None:
    if sums is None:
        return None
    share = sums.cpu_seconds / cpu_seconds if cpu_seconds else None
    return _rounded(CostStatus(cpu_share=share, **msgspec.structs.asdict(sums)))


def _supervised(row: QueryRow) -> SupervisedStatus | None:
    query = row.supervised
    if query is None:
        return None
    due = None if query.due_at is None else query.due_at - row.published.snapshot.at
    failure = query.failure or None
    given_up = query.given_up or None
    return _rounded(SupervisedStatus(query.restarts, due, failure, given_up))


def _monitor(monitor: Monitor) -> Monitor:
    callbacks = monitor.callback_duration_seconds
    probes = monitor.probe_duration_seconds
    return msgspec.structs.replace(
        _rounded(monitor),
        # a callback takes microseconds
        callback_duration_seconds=_rounded(callbacks, digits=6),
        probe_duration_seconds=_rounded(probes),
        pushes={target: _rounded(pushes) for target, pushes in monitor.pushes.items()},
    )


def _rounded(record: RecordT, digits: int = MILLISECONDS) -> RecordT:
    """The record with its own figures rounded: more digits than were measured mislead."""
    fields = msgspec.structs.asdict(record)
    figures = {name: round(v, digits) for name, v in fields.items() if isinstance(v, float)}
    return msgspec.structs.replace(record, **figures)


def _milliseconds(seconds: float) -> float:
    return round(seconds, MILLISECONDS)


def notebook_page(status: Status, url: str | None) -> str:
    """The queries of a status, the unhealthy first, at most ``MAX_ROWS``; all text is escaped."""
    alerts: dict[str, list[str]] = defaultdict(list)
    for alert in status.alerts:
        alerts[alert.labels["query"]].append(alert.labels["alertname"])
    rows = [("query", "state", "reason", "last commit", "alerts")]
    for query in sorted(status.queries, key=lambda query: query.name not in alerts):
        age = query.last_commit_age_seconds
        commit = "" if age is None else f"{duration(age)} ago"
        own = ", ".join(alerts.pop(query.name, []))
        rows.append((query.name, query.state, query.reason, commit, own))
    left_out = len(rows) - 1 - MAX_ROWS
    rows[1 + MAX_ROWS :] = [(f"and {left_out} more", "", "", "", "")] if left_out > 0 else []
    rows += [(name, "", "", "", ", ".join(own)) for name, own in alerts.items()]
    cells = ("".join(f"<td>{escape(text)}</td>" for text in row) for row in rows)
    table = "".join(f"<tr>{row}</tr>" for row in cells)
    link = f' · <a href="{escape(url)}">{escape(url)}</a>' if url else ""
    return f"<div><p><b>querypulse</b> {escape(status.app)}{link}</p><table>{table}</table></div>"
