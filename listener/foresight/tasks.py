"""What the finished tasks of a query did: sums that its cost and its slowness are read from.

``TaskCounter.java`` keeps them; no Python runs for a task. A failed attempt counts, too: it cost as
much. Spark names the query and the batch of a job in its local properties
(``sql.streaming.queryId`` and ``streaming.sql.batchId``, ``MicroBatchExecution``).
"""

from __future__ import annotations

from operator import add, sub

import msgspec
from msgspec.structs import astuple, replace


class TaskSums(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Sums over finished tasks, as ``TaskMetrics`` has them; they only grow."""

    tasks: int = 0
    run_seconds: float = 0.0
    """``executorRunTime``: that of all tasks, side by side or not."""
    cpu_seconds: float = 0.0
    gc_seconds: float = 0.0
    """``jvmGCTime``: the executor's pauses, which each task that ran meanwhile counts."""
    shuffle_wait_seconds: float = 0.0
    """``fetchWaitTime``: blocked on blocks of other executors."""
    spilled_bytes: int = 0
    """``diskBytesSpilled``."""
    shuffle_read_bytes: int = 0
    shuffle_written_bytes: int = 0


class StageSpread(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """How long the tasks of a stage took, and where the longest one ran."""

    stage: int
    tasks: int
    median_seconds: float
    longest_seconds: float
    partition: int
    host: str


class BatchTasks(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What the finished tasks of one batch did."""

    batch_id: int
    sums: TaskSums = TaskSums()
    waited_seconds: float = 0.0
    """In which a stage of it was submitted and had not begun, and none of its tasks ran: no slot
    was free."""
    spread: StageSpread | None = None
    """Of the stage whose longest task exceeds the median by most."""


class QueryTasks(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The tasks of one query, or of the jobs that name none, since counting began."""

    sums: TaskSums = TaskSums()
    batches: tuple[BatchTasks, ...] = ()
    """The newest two, in order; of jobs that name no query, none."""


class Spent(msgspec.Struct, frozen=True, gc=False):
    """What all runs of a query have spent, and the sums of its id when it was counted last."""

    total: TaskSums = TaskSums()
    counted: TaskSums = TaskSums()


def follow_sums(spent: Spent | None, sums: TaskSums) -> Spent:
    """Add what newer sums of the same id show; sums that have fallen are counted from zero."""
    spent = spent or Spent()
    before = spent.counted
    if any(now < then for now, then in zip(astuple(sums), astuple(before), strict=True)):
        before = TaskSums()
    return Spent(add_sums(spent.total, TaskSums(*map(sub, astuple(sums), astuple(before)))), sums)


def of_new_id(spent: Spent | None) -> Spent | None:
    """What a query has spent, when its next run has another id."""
    return None if spent is None else replace(spent, counted=TaskSums())


def taken_over(spent: Spent | None, holder: Spent | None) -> Spent | None:
    """What a query has spent that takes over the id of ``holder``, which keeps what it spent."""
    return spent if holder is None else replace(spent or Spent(), counted=holder.counted)


def joined(older: Spent | None, newer: Spent | None, *, is_same_id: bool) -> Spent | None:
    """What two records of one query have spent; of the same id, the newer counted both."""
    if older is None or newer is None or is_same_id:
        return newer or older
    return replace(newer, total=add_sums(older.total, newer.total))


def add_sums(one: TaskSums, other: TaskSums) -> TaskSums:
    """Both together."""
    return TaskSums(*map(add, astuple(one), astuple(other)))
