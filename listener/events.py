"""Spark's events about a query, as frozen records.

Times named ``*_at`` are monotonic seconds, as everywhere in this project; ``timestamp`` is
Unix seconds of Spark's clock. Source: ``org.apache.spark.sql.streaming.StreamingQueryListener``.

There may be thousands of these records and they hold no cycles, so the garbage collector does
not track them (``gc=False``). That saves an eighth of the cost of an event.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from .offsets import Offsets


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


class SourceProgress(msgspec.Struct, frozen=True, gc=False):
    """One source of a batch; a figure that Spark does not report is None.

    ``end`` is where the batch ended, ``latest`` the newest offsets when it was planned.
    ``backlog_files`` and ``backlog_bytes`` are unread; Databricks' sources report them.
    """

    description: str
    lag_offsets: float | None
    end: Offsets | None = None
    latest: Offsets | None = None
    input_rows: int = 0
    backlog_files: float | None = None
    backlog_bytes: float | None = None


class Started(msgspec.Struct, frozen=True, gc=False):
    """A run began; ``start()`` returns only after every listener has handled this event.

    Spark's event has no ``session`` and no ``trigger`` (as Spark prints it): we query the run for
    them, and they are empty when it could not answer in time. ``timestamp`` is Spark's start time.
    """

    query_id: str
    run_id: str
    name: str | None
    session: str = ""
    trigger: str = ""
    timestamp: float | None = None


class Progress(msgspec.Struct, frozen=True, gc=False):
    """A trigger ended.

    ``committed`` separates a committed batch from Spark 3.4's idle progress. Figures that
    Spark left out or could not compute (NaN, -1) are None. A ``watermark_timestamp`` of 0
    is a watermark that has never moved; None is a query without a watermark.
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


class Idle(msgspec.Struct, frozen=True, gc=False):
    """A trigger found nothing to do (Spark 3.5+, at most every 10 s by default)."""

    query_id: str
    run_id: str


class Terminated(msgspec.Struct, frozen=True, gc=False):
    """A run ended; ``exception`` is the full Java text, None after a clean stop."""

    query_id: str
    run_id: str
    exception: str | None
    error_class: str | None


Event = Started | Progress | Idle | Terminated
KIND_OF: dict[type[Event], EventKind] = {
    Started: EventKind.STARTED,
    Progress: EventKind.PROGRESS,
    Idle: EventKind.IDLE,
    Terminated: EventKind.TERMINATED,
}
