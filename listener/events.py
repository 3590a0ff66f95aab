"""The first signal: Spark's events about a query, and how their JSON is decoded.

Times named ``*_at`` are monotonic seconds, as everywhere in this project; ``timestamp`` is Unix
seconds of Spark's clock. Source: ``org.apache.spark.sql.streaming.StreamingQueryListener``.

There may be thousands of these records and they hold no cycles, so the garbage collector does not
track them (``gc=False``). That saves an eighth of the cost of an event.

The JSON is read in every form that Spark 3.4 to 4.3 writes: absent keys, nulls, -1 rows, rates as
"NaN" strings (event logs) and unknown fields are all normal.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from enum import Enum
from fnmatch import fnmatchcase
from itertools import islice
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import fields, replace

from ..core.redaction import redact
from .foresight.operators import StateOperator, memory_of
from .offsets import Offsets, lag_between, parse_offsets


class EventKind(str, Enum):
    """The four callbacks of a ``StreamingQueryListener``."""

    STARTED = "started"
    PROGRESS = "progress"
    IDLE = "idle"
    TERMINATED = "terminated"

    @property
    def is_lifecycle(self) -> bool:
        """Whether the event is the start or the end of a run, which must not be lost."""
        return self in (EventKind.STARTED, EventKind.TERMINATED)


_WIRE_NAMES = {"query_id": "id", "run_id": "runId", "error_class": "errorClassOnException"}
"""Where Spark's JSON has the same field under another name, it is decoded at once."""


class SourceProgress(msgspec.Struct, frozen=True, gc=False):
    """One source of a batch; a figure that Spark does not report is None.

    ``start`` and ``end`` are where the batch began and ended, ``latest`` the newest offsets when it
    was planned. The first batch of a checkpoint has no ``start``.
    ``backlog_files`` and ``backlog_bytes`` are unread, ``behind_seconds`` is how old its first
    unread record is; Databricks' sources report them. ``lag_offsets`` is in offsets, or in the
    records that the source reports as unread.
    """

    description: str
    lag_offsets: float | None
    end: Offsets | None = None
    latest: Offsets | None = None
    input_rows: int = 0
    backlog_files: float | None = None
    backlog_bytes: float | None = None
    behind_seconds: float | None = None
    start: Offsets | None = None


class Observed(msgspec.Struct, frozen=True, gc=False):
    """One value of ``df.observe()``: the name of the observation, its field, and the number."""

    name: str
    field: str
    value: float


class Started(msgspec.Struct, frozen=True, gc=False):
    """A run began; ``start()`` returns only after every listener has handled this event.

    Spark's event has no ``session``, ``trigger`` (as Spark prints it) and ``checkpoint``: we query
    the run for them, and they are empty when it could not answer in time. ``timestamp`` is Spark's
    start time. ``replaced`` is the id of the run that Spark stopped to start this one on its
    checkpoint (``spark.sql.streaming.stopActiveRunOnRestart``); empty where that was not seen.
    """

    query_id: str
    run_id: str
    name: str | None
    session: str = ""
    trigger: str = ""
    timestamp: float | None = None
    checkpoint: str = ""
    replaced: str = ""


class Progress(msgspec.Struct, frozen=True, gc=False):
    """A trigger ended.

    ``committed`` separates a committed batch from Spark 3.4's idle progress. Figures that
    Spark left out or could not compute (NaN, -1) are None. A ``watermark_timestamp`` of 0
    is a watermark that has never moved; None is a query without a watermark. ``event_time_max`` is
    the newest event time that the batch read, ``timestamp`` the start of its trigger by Spark's
    clock. ``lost_parts`` names what could not be decoded.
    """

    query_id: str
    run_id: str
    name: str | None
    batch_id: int
    committed: bool
    batch_seconds: float | None
    phase_seconds: dict[str, float]
    input_rows: int
    output_rows: int | None
    input_rows_per_second: float | None
    processed_rows_per_second: float | None
    watermark_timestamp: float | None
    state_rows: int | None
    state_memory_bytes: int | None
    late_rows: int
    sources: tuple[SourceProgress, ...]
    sink: str = ""
    event_time_max: float | None = None
    timestamp: float | None = None
    lost_parts: tuple[str, ...] = ()
    late_share: float = 0.0
    """At least this part of its rows was behind the watermark, by their event times, if an
    aggregation dropped some: there, ``late_rows`` are groups, each of any number of rows."""
    operators: tuple[StateOperator, ...] = ()
    """What keeps state; ``state_rows`` and ``state_memory_bytes`` are their sums."""
    observed: tuple[Observed, ...] = ()
    """The values of ``df.observe()`` that the setting ``observed_metrics`` names."""

    @property
    def least_dropped(self) -> int:
        """At least so many of its rows were dropped as late."""
        return max(self.late_rows, round(self.late_share * self.input_rows))


class Idle(msgspec.Struct, frozen=True, gc=False, rename=_WIRE_NAMES):
    """A trigger found nothing to do (Spark 3.5+, at most every 10 s by default)."""

    query_id: str
    run_id: str


class Terminated(msgspec.Struct, frozen=True, gc=False, rename=_WIRE_NAMES):
    """A run ended; ``exception`` is the full Java text, None after a clean stop."""

    query_id: str
    run_id: str
    exception: str | None = None
    error_class: str | None = None


Event = Started | Progress | Idle | Terminated
KIND_OF: dict[type[Event], EventKind] = {
    Started: EventKind.STARTED,
    Progress: EventKind.PROGRESS,
    Idle: EventKind.IDLE,
    Terminated: EventKind.TERMINATED,
}


_Number = float | str | None
# A larger number is not Spark's, and no float may be able to hold it.
_Long = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
# Java's default object name, different in each run (Iceberg's ``SparkMicroBatchStream``).
_IDENTITY = re.compile(r"@[0-9a-f]{1,8}$")
_TIME = re.compile(r"([+-]?\d{4,9})(-.+)(?:Z|\+00:00)", re.ASCII)
SECONDS_OF_400_YEARS = 146_097 * 86_400
_FILES = ("numFilesOutstanding", "approximateQueueSize")
_BYTES = ("numBytesOutstanding", "sizeOfRecordsReadyToProcess", "estimatedTotalBytesBehindLatest")
"""What the sources of Delta, Auto Loader, Pub/Sub and Kafka report on Databricks."""
_AGGREGATIONS = ("stateStoreSave", "sessionWindowStateStoreSaveExec")
"""``shortName`` of the operators that count late rows once these are aggregated."""
_COMMITS = frozenset({"addBatch", "commitOffsets"})
_OF_ANOTHER_SHAPE = (AttributeError, KeyError, TypeError)
_UNREADABLE = (
    msgspec.MsgspecError,
    ValueError,
    OverflowError,
    RecursionError,
    *_OF_ANOTHER_SHAPE,
)
_EVENT_HUBS = "org.apache.spark.sql.eventhubs.EventHubsSource"
"""Event Hubs' native connector. Spark asks such a V1 source for one offset and reports it as the
newest one too, but this one is limited by ``maxEventsPerTrigger`` (EventHubsSource.scala)."""


class DecodeError(ValueError):
    """The text is not an event of the given kind."""


class _Started(msgspec.Struct, gc=False, rename="camel"):
    id: str
    run_id: str
    name: str | None = None
    timestamp: Any = None


class _Source(msgspec.Struct, gc=False, rename="camel"):
    description: str = ""
    start_offset: Any = None
    end_offset: Any = None
    latest_offset: Any = None
    num_input_rows: _Long | None = None
    metrics: Any = None


_NOTHING = msgspec.Raw()
MAX_CUSTOM = 100_000
"""Longer ``customMetrics`` are not Spark's; they would be kept as long as the progress."""


class _StateOperator(msgspec.Struct, gc=False, rename="camel"):
    operator_name: Any = None
    num_rows_total: _Long | None = None
    num_rows_updated: _Long | None = None
    num_rows_removed: _Long | None = None
    num_rows_dropped_by_watermark: _Long | None = None
    memory_used_bytes: _Long | None = None
    num_shuffle_partitions: _Long | None = None
    num_state_store_instances: _Long | None = None
    all_updates_time_ms: _Long | None = None
    all_removals_time_ms: _Long | None = None
    commit_time_ms: _Long | None = None
    custom_metrics: msgspec.Raw = _NOTHING


class _Sink(msgspec.Struct, gc=False, rename="camel"):
    description: str | None = None
    num_output_rows: _Long | None = None


_NO_SINK = _Sink()


class _Progress(msgspec.Struct, gc=False, rename="camel"):
    id: str
    run_id: str
    batch_id: _Long
    name: str | None = None
    timestamp: str | None = None
    batch_duration: _Long | None = None
    num_input_rows: _Long | None = None
    input_rows_per_second: _Number = None
    processed_rows_per_second: _Number = None
    duration_ms: dict[str, float | None] | None = None
    event_time: dict[str, str | None] | None = None
    state_operators: list[_StateOperator] | None = None
    sources: list[_Source] | None = None
    sink: _Sink | None = None


class _ProgressEvent(msgspec.Struct, gc=False):
    progress: _Progress


class _Observing(_Progress, gc=False, rename="camel"):
    observed_metrics: Any = None


class _ObservingEvent(msgspec.Struct, gc=False):
    progress: _Observing


_STARTED = msgspec.json.Decoder(_Started)
_PROGRESS = msgspec.json.Decoder(_ProgressEvent)
_OBSERVING = msgspec.json.Decoder(_ObservingEvent)
_IDLE = msgspec.json.Decoder(Idle)
_TERMINATED = msgspec.json.Decoder(Terminated)


def decode(kind: EventKind, text: str | bytes, observed: Sequence[str] = ()) -> Event:
    """Decode the JSON of one event.

    ``observed`` are patterns ``NAME.FIELD`` of the values of ``df.observe()`` to keep.

    Raises:
        DecodeError: the text is not such an event; the message holds no event data.

    """
    try:
        if kind is EventKind.PROGRESS:
            if observed:
                return _observing(text, observed)
            try:
                return _progress(_PROGRESS.decode(text).progress)
            except _UNREADABLE:
                return _progress_in_parts(text)
        if kind is EventKind.STARTED:
            started = _STARTED.decode(text)
            at = _timestamp(started.timestamp)
            return Started(started.id, started.run_id, started.name, timestamp=at)
        if kind is EventKind.IDLE:
            return _IDLE.decode(text)
        return _TERMINATED.decode(text)
    except _UNREADABLE as error:
        raise DecodeError(f"not a {kind.value} event: {error}") from error


def decode_progress(text: str) -> Progress | None:
    """Decode ``StreamingQueryProgress.json``, which a poll has read; None if it is unreadable."""
    with suppress(DecodeError):
        event = decode(EventKind.PROGRESS, f'{{"progress":{text}}}')
        return event if isinstance(event, Progress) else None
    return None


def _observing(text: str | bytes, patterns: Sequence[str]) -> Progress:
    try:
        wire = _OBSERVING.decode(text).progress
        progress = _progress(wire)
        observations = wire.observed_metrics
    except _UNREADABLE:
        progress = _progress_in_parts(text)
        observations = _parts(text).get("observedMetrics")
    return replace(progress, observed=_observed(observations, patterns))


def _progress_in_parts(text: str | bytes) -> Progress:
    """The progress without the parts of it that are not as Spark writes them."""
    parts = _parts(text)
    fitting, lost = _fitting(_Progress, parts)
    operators = parts.get("stateOperators")
    if "stateOperators" in lost and isinstance(operators, list):
        fitting["state_operators"] = [_operator_in_parts(operator) for operator in operators]
    return replace(_progress(_Progress(**fitting)), lost_parts=tuple(lost))


def _parts(text: str | bytes) -> dict[str, Any]:
    parts: dict[str, Any] = json.loads(text, parse_constant=str)["progress"]
    return parts


def _fitting(kind: type[msgspec.Struct], parts: Any) -> tuple[dict[str, Any], list[str]]:
    """The fields that are as Spark writes them, and the names of the others."""
    fitting = {}
    lost = []
    for part in fields(kind):
        if parts.get(part.encode_name) is None:
            continue
        try:
            # Only what JSON can hold: no lone surrogate, no infinity.
            value = msgspec.json.encode(parts[part.encode_name])
            fitting[part.name] = msgspec.json.decode(value, type=part.type)
        except _UNREADABLE:
            lost.append(part.encode_name)
        else:
            lost += [part.encode_name] if fitting[part.name] is None else []
    return fitting, lost


def _operator_in_parts(operator: Any) -> _StateOperator:
    is_one = isinstance(operator, dict)
    return _StateOperator(**_fitting(_StateOperator, operator)[0]) if is_one else _StateOperator()


def _progress(wire: _Progress) -> Progress:
    # Spark's wall clock may have been set back.
    millis = (wire.duration_ms or {}).items()
    phases = {name: ms / 1000 if ms > 0 else 0.0 for name, ms in millis if ms is not None}
    operators = wire.state_operators or ()
    kept = tuple(map(_operator, operators)) if operators else ()
    input_rows = _input_rows(wire)
    sink = wire.sink or _NO_SINK
    output_rows = sink.num_output_rows
    seconds = phases.pop("triggerExecution", None)
    if wire.batch_duration is not None:
        seconds = max(0.0, wire.batch_duration / 1000)
    return Progress(
        query_id=wire.id,
        run_id=wire.run_id,
        name=wire.name,
        batch_id=wire.batch_id,
        committed=input_rows > 0
        if wire.duration_ms is None
        else not _COMMITS.isdisjoint(wire.duration_ms),
        batch_seconds=seconds,
        phase_seconds=phases,
        input_rows=input_rows,
        # V1 sinks (foreachBatch, file, Delta) report -1 for an unknown count.
        output_rows=None if output_rows is None or output_rows < 0 else output_rows,
        input_rows_per_second=_finite(wire.input_rows_per_second),
        processed_rows_per_second=_finite(wire.processed_rows_per_second),
        watermark_timestamp=_event_time(wire.event_time, "watermark"),
        state_rows=_total([operator.rows for operator in kept]),
        state_memory_bytes=_total([operator.memory_bytes for operator in kept]),
        late_rows=sum([operator.rows_dropped or 0 for operator in kept]),
        sources=tuple(_source(source) for source in wire.sources or ()),
        sink=_described(sink.description or ""),
        event_time_max=_event_time(wire.event_time, "max"),
        timestamp=_timestamp(wire.timestamp),
        late_share=_late_share(kept, wire.event_time) if kept else 0.0,
        operators=kept,
    )


def _operator(wire: _StateOperator) -> StateOperator:
    raw = wire.custom_metrics
    custom = str(raw, "utf-8") if len(memoryview(raw)) <= MAX_CUSTOM else ""
    rows = _count(wire.num_rows_total)
    stores = _count(wire.num_state_store_instances)
    return StateOperator(
        wire.operator_name if isinstance(wire.operator_name, str) else "",
        rows,
        _count(wire.num_rows_updated),
        _count(wire.num_rows_removed),
        _count(wire.num_rows_dropped_by_watermark),
        memory_of(wire.memory_used_bytes, rows, stores, custom),
        _count(wire.num_shuffle_partitions),
        stores,
        _seconds(wire.all_updates_time_ms),
        _seconds(wire.all_removals_time_ms),
        _seconds(wire.commit_time_ms),
        custom,
    )


def _count(number: int | None) -> int | None:
    return None if number is None or number < 0 else number


def _seconds(millis: int | None) -> float | None:
    return None if millis is None or millis < 0 else millis / 1000


def _late_share(
    operators: Sequence[StateOperator], event_time: dict[str, str | None] | None
) -> float:
    """The least part of the rows that is behind the watermark, if an aggregation drops any.

    Their mean is behind it only if so many are: no row is older than the oldest one.
    """
    if not any(operator.rows_dropped and operator.name in _AGGREGATIONS for operator in operators):
        return 0.0
    watermark, oldest, mean = (_event_time(event_time, at) for at in ("watermark", "min", "avg"))
    if watermark is None or oldest is None or mean is None or not oldest <= mean < watermark:
        return 0.0
    return (watermark - mean) / (watermark - oldest)


def _total(figures: list[int | None]) -> int | None:
    """Their sum; None if there are none, or if one is unknown."""
    numbers = [figure for figure in figures if figure is not None]
    return sum(numbers) if numbers and len(numbers) == len(figures) else None


def _input_rows(wire: _Progress) -> int:
    """The rows of all sources; event logs hold no total."""
    if wire.num_input_rows is not None:
        return max(0, wire.num_input_rows)
    return sum(max(0, source.num_input_rows or 0) for source in wire.sources or ())


def _source(wire: _Source) -> SourceProgress:
    end = parse_offsets(wire.end_offset)
    metrics = wire.metrics
    if wire.description.startswith(_EVENT_HUBS):
        latest = None
    elif wire.latest_offset == wire.end_offset:
        latest = end
    else:
        latest = parse_offsets(wire.latest_offset)
    lag = lag_between(end, latest)
    behind_ms = _metric(metrics, "maxMsBehindLatest")
    return SourceProgress(
        description=_described(wire.description),
        lag_offsets=_metric(metrics, "numRecordsReadyToProcess") if lag is None else lag,
        end=end,
        latest=latest,
        input_rows=max(0, wire.num_input_rows or 0),
        backlog_files=_metric(metrics, *_FILES),
        backlog_bytes=_metric(metrics, *_BYTES),
        behind_seconds=None if behind_ms is None else behind_ms / 1000,
        start=end if wire.start_offset == wire.end_offset else parse_offsets(wire.start_offset),
    )


def _described(text: str) -> str:
    return redact(_IDENTITY.sub("", text) if "@" in text else text)


def _metric(metrics: Any, *names: str) -> float | None:
    """The first of these metrics that a source reports; Spark writes all of them as text."""
    if not metrics or not isinstance(metrics, dict):
        return None
    for value in map(metrics.get, names):
        number = _finite(value) if isinstance(value, (str, int, float)) else None
        if number is not None and number >= 0:
            return number
    return None


MAX_OBSERVED = 50
"""Further values of a batch are left out."""
MAX_OBSERVED_NAME = 100


def _observed(observations: Any, patterns: Sequence[str]) -> tuple[Observed, ...]:
    """The numbers among the values whose ``NAME.FIELD`` matches a pattern; booleans are 0 or 1."""
    if not isinstance(observations, dict):
        return ()
    return tuple(islice(_each_observed(observations, patterns), MAX_OBSERVED))


def _each_observed(observations: dict[str, Any], patterns: Sequence[str]) -> Iterator[Observed]:
    for name, row in observations.items():
        for field, value in row.items() if isinstance(row, dict) else ():
            full = f"{name}.{field}"
            is_named = any(fnmatchcase(full, pattern) for pattern in patterns)
            number = _number(value) if is_named and len(full) <= MAX_OBSERVED_NAME else None
            if number is not None:
                yield Observed(name, field, number)


def _number(value: Any) -> float | None:
    """A number, also as text; None if it is not finite, or anything else."""
    return _finite(value) if isinstance(value, (str, int, float)) else None


def _finite(value: _Number) -> float | None:
    try:
        number = float(value) if value is not None else math.nan
    except (OverflowError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _event_time(event_time: dict[str, str | None] | None, name: str) -> float | None:
    seconds = _timestamp((event_time or {}).get(name))
    # Spark reports the epoch until the first watermark is known.
    return None if seconds is None else max(0.0, seconds)


def _timestamp(text: Any) -> float | None:
    """Unix seconds of an ISO 8601 text of any year; None for any other text."""
    parts = _TIME.fullmatch(text) if isinstance(text, str) else None
    if parts is None:
        return None
    year, rest = parts.groups()
    cycles = 0
    if len(year) > len("9999") or year == "0000":
        # The calendar repeats every 400 years. Python's ends in 9999, Spark's in 292278994.
        cycles, remainder = divmod(int(year), 400)
        cycles -= 5
        year = str(2000 + remainder)
    try:
        near = datetime.fromisoformat(f"{year}{rest}+00:00").timestamp()
    except ValueError:
        return None
    return near + cycles * SECONDS_OF_400_YEARS
