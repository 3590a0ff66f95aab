"""The third signal: what the logs of a checkpoint show.

Spark writes ``offsets/N`` once, when it plans batch N, and ``commits/N`` when the batch is done
(``OffsetSeqLog``, ``CommitLog``). The files are durable and overrule events and probe. A run that
repeats a batch does not change its plan (``MicroBatchExecution.populateStartOffsets``). So the
file's age is the age of the plan, however many processes have tried the batch since.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

OFFSETS = "offsets"
COMMITS = "commits"
FileTimes = Mapping[int, float | None]
"""The batches of one log, with the Unix seconds of their files where the storage says them."""


class StorageError(Exception):
    """The storage did not answer; the message is short and holds no secret."""


# -- starting point ---------------------------------------------------------------------------
# What a checkpoint held when a run began: its newest commit, and an uncommitted batch.


MOST_SECONDS = 366 * 24 * 3600.0
"""An older file time is not plausible and is ignored (some storages report 0)."""
USUAL_HOURS = 49
"""For so long a batch is remembered: two nightly ones are, until the third is over."""
LEARNED_MOST_SECONDS = 1800.0
"""A longer batch may have failed in process after process, unless half of all take as long."""


class Written(msgspec.Struct, frozen=True):
    """A batch in one of the logs, and when its file was written, if the storage reports it."""

    batch_id: int
    at: float | None = None
    """Monotonic seconds of this process; negative if this machine started later."""


class StartingPoint(msgspec.Struct, frozen=True):
    """Where a run began. ``unfinished`` is a batch that was planned but not committed by then.

    ``longest_seconds`` are the two longest batches of its last 49 hours, from plan to commit; at
    most ``LEARNED_MOST_SECONDS``: a batch that spans two processes counts as long as both.
    """

    committed: Written | None = None
    unfinished: Written | None = None
    longest_seconds: tuple[float, ...] = ()
    begins: dict[int, dict[str, int]] = {}
    """By source index: where the first batch of a new checkpoint begins, for Kafka's sources."""


def starting_point(
    offsets: FileTimes, commits: FileTimes, now: float, wall: float | None
) -> StartingPoint:
    """Derive it from the file times of both logs (Unix seconds), read at ``now`` and ``wall``.

    Without ``wall``, the files have no age.
    """
    planned = max(offsets, default=None)
    committed = max(commits, default=None)
    is_unfinished = planned is not None and (committed is None or planned > committed)
    return StartingPoint(
        committed=_written(committed, commits, now, wall),
        unfinished=_written(planned, offsets, now, wall) if is_unfinished else None,
        longest_seconds=_longest_seconds(offsets, commits),
    )


def without_own_plan(point: StartingPoint, before: StartingPoint | None) -> StartingPoint:
    """The starting point of a run, without a batch that an earlier run of this process planned.

    ``before`` is the starting point of the query's run before it, or what this returned for the
    same run. Only that shows who planned a batch and when: the clocks may have been set since.
    """
    mine = point.unfinished
    earlier = before.unfinished if before is not None else None
    if before is None or mine is None:
        return point
    if earlier is not None and earlier.batch_id == mine.batch_id:
        return replace(point, unfinished=earlier)
    return replace(point, unfinished=None)


def _written(
    batch_id: int | None, times: FileTimes, now: float, wall: float | None
) -> Written | None:
    if batch_id is None:
        return None
    written = times[batch_id]
    # A time in the future or long past means different clocks and does not show the file's age.
    if written is None or wall is None or not 0.0 <= wall - written <= MOST_SECONDS:
        return Written(batch_id)
    return Written(batch_id, now - (wall - written))


def _longest_seconds(offsets: FileTimes, commits: FileTimes) -> tuple[float, ...]:
    newest = max((at for at in commits.values() if at is not None), default=0.0)
    took = []
    for batch_id, done in commits.items():
        began = offsets.get(batch_id)
        if began is None or done is None:
            continue
        is_recent = newest - done <= 3600.0 * USUAL_HOURS
        if is_recent and done >= began:
            took.append(done - began)
    if not took:
        return ()
    took.sort()
    median = took[(len(took) - 1) // 2]
    most = max(LEARNED_MOST_SECONDS, median)
    return tuple(min(seconds, most) for seconds in took[-2:])


# -- sink log ---------------------------------------------------------------------------------
# Spark's file sink has a log of its own, ``_spark_metadata`` in the folder that it writes. It skips
# each batch whose id is not above the newest one there (``FileStreamSink.addBatch``): right for a
# batch that was written and not committed, a loss for a query with a new checkpoint.


SINK_LOG = "_spark_metadata"
CLOCKS_DIFFER_SECONDS = 60.0
"""The clocks of two storages may differ by this much."""


class SinkLog(msgspec.Struct, frozen=True):
    """What the log of a run's sink shows: the newest batch that Spark skips in this run, if any.

    ``first`` is the first one that is known to be skipped. With ``trouble`` it cannot be read.
    """

    newest: int | None = None
    skips_to: int | None = None
    first: int | None = None
    trouble: str = ""

    @property
    def is_behind(self) -> bool:
        """Whether it was read, and had no batch that the run had not written."""
        return self.skips_to is None and not self.trouble


def sink_log(written: FileTimes, offsets: FileTimes, began: float | None) -> SinkLog:
    """Compare the sink's log with ``offsets``, which was read after it (Unix seconds).

    The sink writes a batch after it was planned. So an id that is not planned yet is not of this
    checkpoint; nor is a file that is older than the plan of its batch. A plan counts if it was made
    after the run ``began``, because a copied checkpoint has new files; None for none.
    """
    newest = max(written, default=None)
    planned = max(offsets, default=None)
    if newest is not None and (planned is None or newest > planned):
        return SinkLog(newest, skips_to=newest)
    skipped = []
    for batch, planned_at in offsets.items():
        written_at = written.get(batch)
        if planned_at is None or written_at is None:
            continue
        is_planned_by_run = began is not None and planned_at >= began
        if is_planned_by_run and written_at < planned_at - CLOCKS_DIFFER_SECONDS:
            skipped.append(batch)
    return SinkLog(newest, max(skipped, default=None), min(skipped, default=None))


# -- report -----------------------------------------------------------------------------------


class LoggedBatches(msgspec.Struct, frozen=True):
    """The newest batch ids in a checkpoint's ``offsets`` and ``commits``; None for an empty log."""

    planned: int | None = None
    committed: int | None = None


class LogReport(msgspec.Struct, frozen=True):
    """One round of reading, by run id; ``at`` is when the round began, in monotonic seconds.

    A run without an entry was not read. ``unreadable`` holds the reason for each failed read.
    ``starts`` holds every run whose starting point is known, ``sinks`` every one whose sink has a
    log that was read, or cannot be.
    """

    at: float
    logs: dict[str, LoggedBatches] = {}
    unreadable: dict[str, str] = {}
    starts: dict[str, StartingPoint] = {}
    sinks: dict[str, SinkLog] = {}
