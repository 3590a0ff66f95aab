"""What Spark says of a query, as frozen records.

Times named ``*_at`` are monotonic seconds, as everywhere in this project;
``timestamp`` is Unix seconds of Spark's own clock. Events of
``org.apache.spark.sql.streaming.StreamingQueryListener``.

What there may be thousands of holds no cycles, so the garbage collector need not know of it
(``gc=False``): an eighth of what an event costs.
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
        """Whether losing such an event would lose a birth or a death."""
        return self in (EventKind.STARTED, EventKind.TERMINATED)


class SourceProgress(msgspec.Struct, frozen=True, gc=False):
    """One source of a batch; what Spark does not tell is None.

    ``end`` is where the batch ended, ``latest`` what the source had when it was planned.
    ``backlog_files`` and ``backlog_bytes`` wait to be read, as Databricks' sources tell.
    """

    description: str
    lag_offsets: float | None
    end: Offsets | None = None
    latest: Offsets | None = None
    input_rows: int = 0
    backlog_files: float | None = None
    backlog_bytes: float | None = None


class Started(msgspec.Struct, frozen=True, gc=False):
    """A run began: Spark waits in ``start()`` until every listener has seen this.

    ``session`` and ``trigger`` (as Spark prints it) stand in no event of Spark's: they are
    empty where nobody asked the run for them in time. ``timestamp`` is Spark's own time of the
    start.
    """

    query_id: str
    run_id: str
    name: str | None
    session: str = ""
    trigger: str = ""
    timestamp: float | None = None


class Progress(msgspec.Struct, frozen=True, gc=False):
    """A trigger ended.

    ``committed`` tells a committed batch from Spark 3.4's idle progress; figures that
    Spark left out or could not compute (NaN, -1) are None. A ``watermark_timestamp`` of 0
    is a watermark that has never moved, None a query without one.
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
