"""The Spark jobs of each query, from the event channel or from Spark's status tracker."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from .job_counts import NO_JOB, UNOWNED, CountedJobs, CountJobs, JobCounts, SlotUse
from .optional_calls import OptionalCalls
from .probing import JobActivity, RunFacts

NONE = JobCounts()


class StatusTracker:
    """``SparkStatusTracker``: the jobs that Spark still retains (``spark.ui.retainedJobs``).

    It may count a task that begins right after its stage only at the next heartbeat of an executor
    (``spark.executor.heartbeatInterval``); ``TaskSchedulerImpl``, which is asked if no task seems
    to run, knows it at once.
    """

    def __init__(self, java_context: Any, jvm: Any, details: OptionalCalls) -> None:
        self._java = java_context.statusTracker()
        self._context = java_context.sc()
        self._arrays = getattr(jvm, "java.util.Arrays")
        self._ask = details.ask

    def active_jobs(self) -> set[int]:
        """The ids of all active jobs of the application."""
        return self._integers(self._java.getActiveJobIds())

    def jobs_of(self, group: str) -> set[int]:
        """The ids of a job group's jobs; Spark runs a query's jobs in the group of its run id."""
        return self._integers(self._java.getJobIdsForGroup(group))

    def counts(self, known: Collection[int], active: Collection[int]) -> JobCounts:
        """Count the tasks of active jobs; the highest known id counts the started ones."""
        stages = list(self._stages(active))
        completed = sum(stage.numCompletedTasks() for _, stage in stages)
        running = sum(stage.numActiveTasks() for _, stage in stages)
        if stages and not running:
            running = self._ask("running_tasks", lambda: self._scheduled(stages), 0)
        return JobCounts(max(known, default=-1) + 1, len(active), completed, running)

    def _stages(self, jobs: Collection[int]) -> Iterator[tuple[int, Any]]:
        """The stages of these jobs that Spark still retains, by their ids."""
        for job in jobs:
            info = self._java.getJobInfo(job)
            for stage_id in self._integers(info.stageIds()) if info is not None else ():
                stage = self._java.getStageInfo(stage_id)
                if stage is not None:
                    yield stage_id, stage

    def _scheduled(self, stages: Iterable[tuple[int, Any]]) -> int:
        """The running tasks of these stages, as far as the task scheduler knows them."""
        scheduler, running = self._context.taskScheduler(), 0
        for stage_id, stage in stages:
            tasks = scheduler.taskSetManagerForAttempt(stage_id, stage.currentAttemptId())
            running += tasks.get().runningTasks() if tasks.isDefined() else 0
        return running

    # One command for a whole array, not one for each element.
    def _integers(self, array: Any) -> set[int]:
        return {int(number) for number in re.findall(r"\d+", self._arrays.toString(array))}


class TaskSlots:
    """How many tasks all executors of the application can run at once; 0 without executors."""

    def __init__(self, java_context: Any) -> None:
        self._java = java_context.sc()
        self._profile: Any = None

    def count(self) -> int:
        """Read the number from Spark's scheduler."""
        if self._profile is None:
            self._profile = self._java.resourceProfileManager().defaultResourceProfile()
        return int(self._java.maxNumConcurrentTasks(self._profile))


class PolledJobs:
    """The jobs of all active runs at one moment; each call is made once, when first needed."""

    def __init__(
        self,
        count_jobs: CountJobs,
        tracker: StatusTracker,
        count_slots: Callable[[], int],
        run_ids: Collection[str],
        details: OptionalCalls,
    ) -> None:
        self._count_jobs = count_jobs
        self._count_slots = count_slots
        self._tracker = tracker
        self._run_ids = run_ids
        self._ask = details.ask
        self._groups: dict[str, set[int]] = {}

    def of(self, facts: RunFacts) -> JobActivity:
        """The jobs of one run and the jobs without a query id; without stacks."""
        work = self._jobs_of(facts)
        return replace(work, slots=self._slots_beside(work, facts.query_id))

    def _jobs_of(self, facts: RunFacts) -> JobActivity:
        counted = JobActivity()
        if self._counts is not None:
            by_query = self._counts.by_query
            own, unowned = by_query.get(facts.query_id, NONE), by_query.get(UNOWNED, NONE)
            counted = JobActivity(own, unowned, counted=True)
        if counted.jobs.jobs_active or counted.own.jobs_started:
            return counted
        tracked = self._ask("jobs", lambda: self._tracked(facts.run_id), None)
        if tracked is None:
            return counted
        activity = JobActivity(tracked, NONE if tracked.jobs_active else self._unowned)
        return activity if activity.jobs.jobs_active or self._counts is None else counted

    def _slots_beside(self, work: JobActivity, query_id: str) -> SlotUse | None:
        """The use of task slots; read only if jobs are active and none of their tasks runs.

        Without job counts it is unknown which other tasks run.
        """
        waits = work.jobs.jobs_active and not work.jobs.tasks_active
        if not waits or self._slots is None:
            return None
        counts = self._counts.by_query if self._counts is not None else {}
        return slots_beside(counts, query_id, self._slots)

    @cached_property
    def _slots(self) -> int | None:
        unknown: int | None = None
        return self._ask("slots", self._count_slots, unknown)

    @cached_property
    def _counts(self) -> CountedJobs | None:
        return self._ask("job_counts", self._count_jobs, None)

    @cached_property
    def _active(self) -> set[int]:
        """The active jobs that are not counted: all, or those older than the first counted one."""
        first_counted = NO_JOB if self._counts is None else self._counts.first_job
        return {job for job in self._tracker.active_jobs() if job < first_counted}

    @cached_property
    def _unowned(self) -> JobCounts:
        return self._ask("unowned_jobs", self._tracked_unowned, NONE)

    def _tracked(self, run_id: str) -> JobCounts:
        # Active jobs first: a job started after its query's jobs were read would have no query.
        active = self._active
        group = self._group(run_id) if active or self._counts is None else set()
        return self._tracker.counts(group, active & group)

    def _tracked_unowned(self) -> JobCounts:
        """Active jobs that are in no active run's group."""
        left = set(self._active)
        for run_id in self._run_ids:
            if not left:
                break
            left -= self._group(run_id)
        return self._tracker.counts(left, left)

    def _group(self, run_id: str) -> set[int]:
        if run_id not in self._groups:
            self._groups[run_id] = self._tracker.jobs_of(run_id)
        return self._groups[run_id]


def slots_beside(counts: Mapping[str, JobCounts], query_id: str, total: int) -> SlotUse:
    """How many tasks other queries and jobs run, and which of them runs most."""
    others = {one: known.tasks_active for one, known in counts.items() if one != query_id}
    taken = sum(others.values())
    if not taken:
        return SlotUse(total)
    holder = max(others, key=lambda one: others[one])
    return SlotUse(total, taken, holder, others[holder])
