"""Details of busy queries: their Spark jobs, stream threads and Python lines.

Jobs come from the event path's counts, or from Spark's status tracker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property, partial
from typing import Any

from msgspec.structs import replace

from ..foresight.phases import Phase
from ..foresight.tasks import QueryTasks
from ..probe_report import NO_JOB, UNOWNED, CountedJobs, JobActivity, JobCounts, RunFacts, SlotUse
from ..python_frames import ForeachBatchCall, foreach_batch_calls
from .jvm import OptionalCalls

NONE = JobCounts()
STACK_FRAMES = 5
# A query waits in this method until the writer of its logs has room.
_LOG_QUEUE_IS_FULL = re.compile(r"AsyncProgressTracking.*\.rejectedExecution\(")
_PLUMBING = re.compile(r"(?:app//)?(?:java\.|jdk\.|sun\.|scala\.|py4j\.)")


class PolledWork:
    """The work of all active runs at one moment; what concerns all runs is read once, if needed.

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
        run_ids: Collection[str],
        *,
        tasks: Mapping[str, QueryTasks],
    ) -> None:
        self._context = java_context
        self._jvm = jvm
        self._count_jobs = count_jobs
        self._ask = details.ask
        self._run_ids = run_ids
        self.tasks = tasks
        """What finished tasks did, by query id, as far as they are counted."""
        self._groups: dict[str, set[int]] = {}

    def of(self, execution: Any, facts: RunFacts, session: int | None) -> JobActivity:
        """The details of one run, a ``StreamExecution``; its batches run in ``session``."""
        call = None if session is None else self._calls.get(session)
        stack = self._ask("stack", lambda: self._stack(execution), ())
        waits_outside = call is not None and call.waits_outside
        activity = replace(self._activity_of(facts), waits_outside=waits_outside)
        return replace(
            activity,
            slots=self._slots_beside(activity, facts.query_id),
            jvm_stack=stack[:STACK_FRAMES],
            phase=phase_of(stack),
            python_line="" if call is None else call.line,
            python_cpu_seconds=None if call is None else call.cpu_seconds,
            waits_for_log=any(map(_LOG_QUEUE_IS_FULL.search, stack)),
        )

    def _stack(self, execution: Any) -> tuple[str, ...]:
        """The stream thread's stack from its top, without the plumbing of sockets and Scala."""
        # As an exception's text it is one command; frame by frame it would be two hundred.
        carrier = getattr(self._jvm, "java.lang.Throwable")()
        carrier.setStackTrace(execution.queryExecutionThread().getStackTrace())
        text = getattr(self._jvm, "org.apache.spark.util.Utils").exceptionString(carrier)
        frames = [line.removeprefix("\tat ") for line in text.splitlines()[1:]]
        shown = [frame.removeprefix("app//") for frame in frames if not _PLUMBING.match(frame)]
        return tuple(shown or frames)

    # -- jobs and tasks -----------------------------------------------------------------------

    def _activity_of(self, facts: RunFacts) -> JobActivity:
        """The jobs of one run and the jobs without a query id."""
        counted = JobActivity()
        if self._counts is not None:
            by_query = self._counts.by_query
            own = by_query.get(facts.query_id, NONE)
            unowned = by_query.get(UNOWNED, NONE)
            counted = JobActivity(own, unowned, counted=True, lost=self._counts.lost)
        if counted.jobs.jobs_active or counted.own.jobs_started:
            return counted
        tracked = self._ask("jobs", lambda: self._tracked(facts.run_id), None)
        if tracked is None:
            return counted
        activity = JobActivity(tracked, NONE if tracked.jobs_active else self._unowned)
        return activity if activity.jobs.jobs_active or self._counts is None else counted

    @cached_property
    def _counts(self) -> CountedJobs | None:
        return self._ask("job_counts", self._count_jobs, None)

    @cached_property
    def _tracker(self) -> Any:
        return self._context.statusTracker()

    @cached_property
    def _active(self) -> set[int]:
        """The active jobs that are not counted: all, or those older than the first counted one."""
        first_counted = NO_JOB if self._counts is None else self._counts.first_job
        return {job for job in self._ids(self._tracker.getActiveJobIds()) if job < first_counted}

    def _tracked(self, run_id: str) -> JobCounts:
        # Active jobs first: a job started after its query's jobs were read would have no query.
        active = self._active
        group = self._group(run_id) if active or self._counts is None else set()
        return self._count(group, active & group)

    @cached_property
    def _unowned(self) -> JobCounts:
        return self._ask("unowned_jobs", self._tracked_unowned, NONE)

    def _tracked_unowned(self) -> JobCounts:
        """Active jobs that are in no active run's group."""
        left = set(self._active)
        for run_id in self._run_ids:
            if not left:
                break
            left -= self._group(run_id)
        return self._count(left, left)

    def _group(self, run_id: str) -> set[int]:
        """The jobs of a run: Spark runs them in the job group of its run id."""
        if run_id not in self._groups:
            self._groups[run_id] = self._ids(self._tracker.getJobIdsForGroup(run_id))
        return self._groups[run_id]

    def _count(self, jobs: Collection[int], active: Collection[int]) -> JobCounts:
        """Count the tasks of active jobs; the highest id of a job counts the started ones."""
        stages = list(self._stages(active))
        completed = sum(stage.numCompletedTasks() for _, stage in stages)
        running = sum(stage.numActiveTasks() for _, stage in stages)
        if stages and not running:
            running = self._ask("running_tasks", lambda: self._scheduled(stages), 0)
        return JobCounts(max(jobs, default=-1) + 1, len(active), completed, running)

    def _stages(self, jobs: Collection[int]) -> Iterator[tuple[int, Any]]:
        """The stages of these jobs that Spark still retains, by their ids."""
        for job in jobs:
            info = self._tracker.getJobInfo(job)
            for stage_id in self._ids(info.stageIds()) if info is not None else ():
                stage = self._tracker.getStageInfo(stage_id)
                if stage is not None:
                    yield stage_id, stage

    def _scheduled(self, stages: Collection[tuple[int, Any]]) -> int:
        """The running tasks of these stages, as far as the task scheduler knows them."""
        scheduler = self._context.sc().taskScheduler()
        running = 0
        for stage_id, stage in stages:
            tasks = scheduler.taskSetManagerForAttempt(stage_id, stage.currentAttemptId())
            running += tasks.get().runningTasks() if tasks.isDefined() else 0
        return running

    def _ids(self, array: Any) -> set[int]:
        """The numbers of a Java array, in one command."""
        text = getattr(self._jvm, "java.util.Arrays").toString(array)
        return {int(number) for number in re.findall(r"\d+", text)}

    # -- slots of executors -------------------------------------------------------------------

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
        holder = max(others, key=others.__getitem__, default=UNOWNED)
        taken = sum(others.values())
        return (
            SlotUse(self._slots, taken, holder, others[holder]) if taken else SlotUse(self._slots)
        )

    @cached_property
    def _slots(self) -> int | None:
        """How many tasks all executors can run at once; 0 without executors."""

        def ask() -> int:
            context = self._context.sc()
            profile = context.resourceProfileManager().defaultResourceProfile()
            return int(context.maxNumConcurrentTasks(profile))

        return self._ask("slots", ask, None)

    # -- lines of Python ----------------------------------------------------------------------

    @cached_property
    def _calls(self) -> dict[int, ForeachBatchCall]:
        """Each ``foreachBatch`` call in progress, by its batch's session."""
        calls: dict[int, ForeachBatchCall] = {}
        for call in foreach_batch_calls():
            session = self._ask("python_line", partial(self._session, call.jdf), None)
            if session is not None:
                calls[session] = call
        return calls

    def _session(self, frame: Any) -> int | None:
        return None if frame is None else identity(self._jvm, frame.sparkSession())


_FRAMES_OF_PHASES = (
    # Methods of MicroBatchExecution in Spark 3.5 to 4.3, and what it calls.
    (Phase.WAL_COMMIT, re.compile(r"\bmarkMicroBatchStart\b")),
    (Phase.COMMIT_OFFSETS, re.compile(r"\bmarkMicroBatchEnd\b")),
    (Phase.LATEST_OFFSET, re.compile(r"\bconstructNextBatch\b")),
    (Phase.ADD_BATCH, re.compile(r"\.addBatch\(|\.SQLExecution\$")),
    (Phase.GET_BATCH, re.compile(r"\.getBatch\(")),
    (Phase.PLANNING, re.compile(r"\.IncrementalExecution\b|\.QueryExecution\b")),
)


def phase_of(stack: Collection[str]) -> Phase | None:
    """Return the phase of a batch that the whole stack of its thread shows; None outside of one.

    Only the whole one shows it: a function of ``foreachBatch`` plans, too.
    """
    text = "\n".join(stack).replace("$anonfun$", "$anonfun ")
    if "MicroBatchExecution" not in text:
        return None
    return next((phase for phase, frame in _FRAMES_OF_PHASES if frame.search(text)), None)


def identity(jvm: Any, java: Any) -> int:
    """A Java object's identity hash."""
    return int(getattr(jvm, "java.lang.System").identityHashCode(java))
