"""The Spark jobs and tasks of each query, as Spark's scheduler reports them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

UNOWNED = ""
"""The key of jobs without a query id, such as jobs of thread pools in ``foreachBatch``."""


NO_JOB = 2**31 - 1
"""Larger than the id of any job."""


class JobCounts(msgspec.Struct, frozen=True, gc=False):
    """One query's jobs and tasks since counting began; started and completed only grow."""

    jobs_started: int = 0
    jobs_active: int = 0
    tasks_completed: int = 0
    tasks_active: int = 0


class CountedJobs(msgspec.Struct, frozen=True, gc=False):
    """The counts by query id, ``UNOWNED`` for jobs without one."""

    by_query: Mapping[str, JobCounts] = {}
    first_job: int = NO_JOB
    """The id of the first counted job; older jobs, which may still run, are not counted."""


class SlotUse(msgspec.Struct, frozen=True, gc=False):
    """How many tasks the executors can run at once, and which other tasks run now."""

    total: int
    taken: int = 0
    """Running tasks of all other queries and jobs."""
    holder: str = UNOWNED
    """The id of the query that runs most of these; ``UNOWNED`` for jobs without a query id."""
    held: int = 0
    """How many tasks the holder runs."""


CountJobs = Callable[[], CountedJobs | None]
"""None where nothing counts them."""
