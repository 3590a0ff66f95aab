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


CountJobs = Callable[[], Mapping[str, JobCounts] | None]
"""Counts by query id, those without a query under ``UNOWNED``; None where nothing counts."""
