"""What a checkpoint held when a run began: its newest commit, and a batch that waits for one.

Pure. ``offsets/N`` is written once, when batch N is planned; a run that repeats the batch leaves it
as it is (``MicroBatchExecution.populateStartOffsets``). So its age is that of the plan, however
many processes have tried the batch since.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

MOST_SECONDS = 366 * 24 * 3600.0
"""A file that is older than this has no time that anybody should believe (some storages say 0)."""
BATCHES_TO_LEARN = 50
STATUS = re.compile(r"/(\d+); isDirectory=false; .*?modification_time=(\d+);", re.ASCII)
"""``FileStatus.toString``, Hadoop 3."""


class Written(msgspec.Struct, frozen=True):
    """A batch in one of the logs, and when its file was written, where the storage says it."""

    batch_id: int
    at: float | None = None
    """Monotonic seconds of this process; less than 0 where this machine started later."""
    wall: float | None = None
    """Unix seconds, as the storage has them."""


class StartingPoint(msgspec.Struct, frozen=True):
    """Where a run began. ``unfinished`` is a batch that was planned and not committed by then.

    ``usual_seconds``: so long its recent batches took from plan to commit, the longest tenth left
    out: in those a restart may have come between.
    """

    committed: Written | None = None
    unfinished: Written | None = None
    usual_seconds: float | None = None


def starting_point(
    offsets: Mapping[int, float | None],
    commits: Mapping[int, float | None],
    now: float,
    wall: float,
) -> StartingPoint:
    """From the times of the files in both logs (Unix seconds), read at ``now`` and ``wall``."""
    planned, committed = max(offsets, default=None), max(commits, default=None)
    is_unfinished = planned is not None and (committed is None or planned > committed)
    return StartingPoint(
        committed=_written(committed, commits, now, wall),
        unfinished=_written(planned, offsets, now, wall) if is_unfinished else None,
        usual_seconds=_usual_seconds(offsets, commits),
    )


def times_in(listing: str) -> dict[int, float | None]:
    """Batch ids and Unix seconds out of a listing of ``FileStatus``es, as Scala prints them.

    Checksums, temporary and foreign files are left out, see ``checkpoint.ids_in``.
    """
    return {int(name): int(millis) / 1000 for name, millis in STATUS.findall(listing)}


def _written(
    batch_id: int | None, times: Mapping[int, float | None], now: float, wall: float
) -> Written | None:
    if batch_id is None:
        return None
    written = times[batch_id]
    # A time to come, and one long past, says that the clocks differ, not how old the file is.
    if written is None or not 0.0 <= wall - written <= MOST_SECONDS:
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
