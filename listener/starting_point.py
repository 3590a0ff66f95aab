"""What a checkpoint held when a run began: its newest commit, and an uncommitted batch.

Pure. Spark writes ``offsets/N`` once, when it plans batch N; a run that repeats the batch does not
change the file (``MicroBatchExecution.populateStartOffsets``). So the file's age is the age of the
plan, however many processes have tried the batch since.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

MOST_SECONDS = 366 * 24 * 3600.0
"""An older file time is not plausible and is ignored (some storages report 0)."""
BATCHES_TO_LEARN = 50
STATUS = re.compile(r"/(\d+); isDirectory=false; .*?modification_time=(\d+);", re.ASCII)
"""``FileStatus.toString``, Hadoop 3."""


class Written(msgspec.Struct, frozen=True):
    """A batch in one of the logs, and when its file was written, if the storage reports it."""

    batch_id: int
    at: float | None = None
    """Monotonic seconds of this process; negative if this machine started later."""
    wall: float | None = None
    """Unix seconds by the storage's clock."""


class StartingPoint(msgspec.Struct, frozen=True):
    """Where a run began. ``unfinished`` is a batch that was planned but not committed by then.

    ``usual_seconds`` is how long recent batches took from plan to commit, without the longest
    tenth, which may include a restart.
    """

    committed: Written | None = None
    unfinished: Written | None = None
    usual_seconds: float | None = None


def starting_point(
    offsets: Mapping[int, float | None],
    commits: Mapping[int, float | None],
    now: float,
    wall: float | None,
) -> StartingPoint:
    """Derive it from the file times of both logs (Unix seconds), read at ``now`` and ``wall``.

    Without ``wall``, the files have no age.
    """
    planned, committed = max(offsets, default=None), max(commits, default=None)
    is_unfinished = planned is not None and (committed is None or planned > committed)
    return StartingPoint(
        committed=_written(committed, commits, now, wall),
        unfinished=_written(planned, offsets, now, wall) if is_unfinished else None,
        usual_seconds=_usual_seconds(offsets, commits),
    )


def without_own_plan(point: StartingPoint, before: StartingPoint | None) -> StartingPoint:
    """The starting point of a run, without a batch that an earlier run of this process planned.

    ``before`` is the starting point of the query's run before it, or what this returned for the
    same run. Only that shows who planned a batch and when: the clocks may have been set since.
    """
    mine, earlier = point.unfinished, before.unfinished if before is not None else None
    if before is None or mine is None:
        return point
    if earlier is not None and earlier.batch_id == mine.batch_id:
        return replace(point, unfinished=earlier)
    return replace(point, unfinished=None)


def times_in(listing: str) -> dict[int, float | None]:
    """Batch ids and Unix seconds from a listing of ``FileStatus`` objects, as Scala prints them.

    Skips checksums, temporary and foreign files, see ``checkpoint.ids_in``.
    """
    return {int(name): int(millis) / 1000 for name, millis in STATUS.findall(listing)}


def _written(
    batch_id: int | None, times: Mapping[int, float | None], now: float, wall: float | None
) -> Written | None:
    if batch_id is None:
        return None
    written = times[batch_id]
    # A time in the future or long past means different clocks and does not show the file's age.
    if written is None or wall is None or not 0.0 <= wall - written <= MOST_SECONDS:
        return Written(batch_id)
    return Written(batch_id, now - (wall - written), written)


def _usual_seconds(
    offsets: Mapping[int, float | None], commits: Mapping[int, float | None]
) -> float | None:
    newest = sorted(offsets.keys() & commits.keys())[-BATCHES_TO_LEARN:]
    pairs = [(offsets[one], commits[one]) for one in newest]
    took = sorted(
        done - began
        for began, done in pairs
        if began is not None and done is not None and done >= began
    )
    kept = took[: len(took) - len(took) // 10]
    return kept[-1] if kept else None
