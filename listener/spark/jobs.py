"""Details of busy queries: their Spark jobs, stream threads and Python lines.

Jobs come from the event path's counts, or from Spark's status tracker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from ..probe import (
    NO_JOB,
    UNOWNED,
    CountedJobs,
    JobActivity,
    JobCounts,
    RunFacts,
    SlotUse,
)
from ..python_frames import ForeachBatchCall, foreach_batch_calls
from .jvm import OptionalCalls

NONE = JobCounts()
STACK_FRAMES = 5
STACK_DEPTH = 60
# A query waits in this method until the writer of its logs has room.
_LOG_QUEUE_IS_FULL = re.compile(r"AsyncProgressTracking.*\.rejectedExecution\(")
_PLUMBING = re.compile(r"(?:app//)?(?:java\.|jdk\.|sun\.|scala\.|py4j\.)")


class SparkWork:
    """Reads jobs, task slots, stacks, and the sessions that batches run in, from Spark's driver.

    ``SparkStatusTracker`` knows the jobs that Spark still retains (``spark.ui.retainedJobs``). It
    may count a task that begins right after its stage only at the next heartbeat of an executor
    (``spark.executor.heartbeatInterval``); ``TaskSchedulerImpl``, which is asked if no task seems
    to run, knows it at once.
    """

    def __init__(
        self,
        java_context: Any,
        jvm: Any,
        count_jobs: Callable[[], CountedJobs | None],
        details: OptionalCalls,
    ) -> None:
        self.count_jobs = count_jobs
        self.ask = details.ask
        self._tracker = java_context.statusTracker()
        self._context = java_context.sc()
        self._arrays = getattr(jvm, "java.util.Arrays")
        self._system = getattr(jvm, "java.lang.System")
        self._throwable = getattr(jvm, "java.lang.Throwable")
        self._utils = getattr(jvm, "org.apache.spark.util.Utils")

    def active_jobs(self) -> set[int]:
        """The ids of all active jobs of the application."""
        return self._integers(self._tracker.getActiveJobIds())

    def jobs_of(self, group: str) -> set[int]:
        """The ids of a job group's jobs; Spark runs a query's jobs in the group of its run id."""
        return self._integers(self._tracker.getJobIdsForGroup(group))

    def counts(self, jobs: Collection[int], active: Collection[int]) -> JobCounts:
        """Count the tasks of active jobs; the highest id of a job counts the started ones."""
        stages = list(self._stages(active))
        completed = sum(stage.numCompletedTasks() for _, stage in stages)
        running = sum(stage.numActiveTasks() for _, stage in stages)
        if stages and not running:
            running = self.ask("running_tasks", lambda: self._scheduled(stages), 0)
        return JobCounts(max(jobs, default=-1) + 1, len(active), completed, running)

    def slots(self) -> int:
        """How many tasks all executors of the application can run at once; 0 without executors."""
        profile = self._context.resourceProfileManager().defaultResourceProfile()
        return int(self._context.maxNumConcurrentTasks(profile))

    def identity(self, java: Any) -> int:
        """A Java object's identity hash."""
        return int(self._system.identityHashCode(java))

    def stack(self, execution: Any) -> tuple[str, ...]:
        """The stream thread's stack from its top, without the plumbing of sockets and Scala."""
        # As an exception's text it is one command; frame by frame it would be two hundred.
        carrier = self._throwable()
        carrier.setStackTrace(execution.queryExecutionThread().getStackTrace())
        text = self._utils.exceptionString(carrier)
        frames = [line.removeprefix("\tat ") for line in text.splitlines()[1:]][:STACK_DEPTH]
        shown = [frame.removeprefix("app//") for frame in frames if not _PLUMBING.match(frame)]
        return tuple(shown or frames)

    def _stages(self, jobs: Collection[int]) -> Iterator[tuple[int, Any]]:
        """The stages of these jobs that Spark still retains, by their ids."""
        for job in jobs:
            info = self._tracker.getJobInfo(job)
            for stage_id in self._integers(info.stageIds()) if info is not None else ():
                stage = self._tracker.getStageInfo(stage_id)
                if stage is not None:
                    yield stage_id, stage

    def _scheduled(self, stages: Collection[tuple[int, Any]]) -> int:
        """The running tasks of these stages, as far as the task scheduler knows them."""
        scheduler, running = self._context.taskScheduler(), 0
        for stage_id, stage in stages:
            tasks = scheduler.taskSetManagerForAttempt(stage_id, stage.currentAttemptId())
            running += tasks.get().runningTasks() if tasks.isDefined() else 0
        return running

    # One command for a whole array, not one for each element.
    def _integers(self, array: Any) -> set[int]:
        return {int(number) for number in re.findall(r"\d+", self._arrays.toString(array))}


class PolledWork:
    """The work of all active runs at one moment; what concerns all runs is read once, if needed."""

    def __init__(self, spark: SparkWork, run_ids: Collection[str]) -> None:
        self._spark = spark
        self._run_ids = run_ids
        self._ask = spark.ask
        self._groups: dict[str, set[int]] = {}

    def of(self, execution: Any, facts: RunFacts, session: int | None) -> JobActivity:
        """The details of one run, a ``StreamExecution``; its batches run in ``session``."""
        call = None if session is None else self._calls.get(session)
        stack = self._ask("stack", lambda: self._spark.stack(execution), ())
        activity = self._activity_of(facts)
        return replace(
            activity,
            slots=self._slots_beside(activity, facts.query_id),
            jvm_stack=stack[:STACK_FRAMES],
            python_line="" if call is None else call.line,
            python_cpu_seconds=None if call is None else call.cpu_seconds,
            waits_for_log=any(map(_LOG_QUEUE_IS_FULL.search, stack)),
        )

    def _activity_of(self, facts: RunFacts) -> JobActivity:
        """The jobs of one run and the jobs without a query id."""
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

    def _slots_beside(self, activity: JobActivity, query_id: str) -> SlotUse | None:
        """How many tasks other queries and jobs run, and which of them runs most.

        Read only if jobs are active and none of their tasks runs. Without job counts it is
        unknown which other tasks run.
        """
        waits = activity.jobs.jobs_active and not activity.jobs.tasks_active
        if not waits or self._slots is None:
            return None
        counts = self._counts.by_query if self._counts is not None else {}
        others = {key: jobs.tasks_active for key, jobs in counts.items() if key != query_id}
        taken = sum(others.values())
        if not taken:
            return SlotUse(self._slots)
        holder = max(others, key=lambda key: others[key])
        return SlotUse(self._slots, taken, holder, others[holder])

    @cached_property
    def _slots(self) -> int | None:
        return self._ask("slots", self._spark.slots, None)

    @cached_property
    def _counts(self) -> CountedJobs | None:
        return self._ask("job_counts", self._spark.count_jobs, None)

    @cached_property
    def _active(self) -> set[int]:
        """The active jobs that are not counted: all, or those older than the first counted one."""
        first_counted = NO_JOB if self._counts is None else self._counts.first_job
        return {job for job in self._spark.active_jobs() if job < first_counted}

    @cached_property
    def _unowned(self) -> JobCounts:
        return self._ask("unowned_jobs", self._tracked_unowned, NONE)

    def _tracked(self, run_id: str) -> JobCounts:
        # Active jobs first: a job started after its query's jobs were read would have no query.
        active = self._active
        group = self._group(run_id) if active or self._counts is None else set()
        return self._spark.counts(group, active & group)

    def _tracked_unowned(self) -> JobCounts:
        """Active jobs that are in no active run's group."""
        left = set(self._active)
        for run_id in self._run_ids:
            if not left:
                break
            left -= self._group(run_id)
        return self._spark.counts(left, left)

    def _group(self, run_id: str) -> set[int]:
        if run_id not in self._groups:
            self._groups[run_id] = self._spark.jobs_of(run_id)
        return self._groups[run_id]

    @cached_property
    def _calls(self) -> dict[int, ForeachBatchCall]:
        """Each ``foreachBatch`` call in progress, by its batch's session."""
        calls: dict[int, ForeachBatchCall] = {}
        for call in foreach_batch_calls():
            session = self._frame_session(call.jdf)
            if session is not None:
                calls[session] = call
        return calls

    def _frame_session(self, frame: Any) -> int | None:
        if frame is None:
            return None
        identity = self._spark.identity
        return self._ask("python_line", lambda: identity(frame.sparkSession()), None)
