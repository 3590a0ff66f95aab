"""What the finished tasks of a query did: sums that its cost and its slowness are read from.

``JobCounter.java`` keeps them; no Python runs for a task. A failed attempt counts, too: it cost as
much. Spark names the query and the batch of a job in its local properties
(``sql.streaming.queryId`` and ``streaming.sql.batchId``, ``MicroBatchExecution``).
"""

from __future__ import annotations

import msgspec


class TaskSums(msgspec.Struct, frozen=True, gc=False):
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


class StageSpread(msgspec.Struct, frozen=True, gc=False):
    """How long the tasks of a stage took, and where the longest one ran."""

    stage: int
    tasks: int
    median_seconds: float
    longest_seconds: float
    partition: int
    host: str


class BatchTasks(msgspec.Struct, frozen=True, gc=False):
    """What the finished tasks of one batch did."""

    batch_id: int
    sums: TaskSums = TaskSums()
    waited_seconds: float = 0.0
    """In which its stages were submitted and none of their tasks had begun: no slot was free."""
    spread: StageSpread | None = None
    """Of the stage whose longest task exceeds the median by most."""


class QueryTasks(msgspec.Struct, frozen=True, gc=False):
    """The tasks of one query, or of the jobs that name none, since counting began."""

    sums: TaskSums = TaskSums()
    batches: tuple[BatchTasks, ...] = ()
    """The newest two, in order; of jobs that name no query, none."""
