"""The Spark jobs and tasks of each query, as counted where Spark's scheduler reports them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

UNOWNED = ""
"""Stands for jobs that name no query: as those of thread pools in ``foreachBatch`` do."""


class JobCounts(msgspec.Struct, frozen=True, gc=False):
    """What has run for one query since counting began; started and completed only grow."""

    jobs_started: int = 0
    jobs_active: int = 0
    tasks_completed: int = 0
    tasks_active: int = 0


class SlotUse(msgspec.Struct, frozen=True, gc=False):
    """How many tasks the executors can run at once, and who else runs tasks now."""

    total: int
    taken: int = 0
    """Tasks of all others that run."""
    holder: str = UNOWNED
    """The id of the query that runs most of these; ``UNOWNED`` for jobs that name no query."""
    held: int = 0
    """How many tasks the holder runs."""


CountJobs = Callable[[], Mapping[str, JobCounts] | None]
"""Counts by query id, those without a query under ``UNOWNED``; None where nothing counts."""
