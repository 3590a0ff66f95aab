"""A closer look at one busy query: its Spark jobs, its stream thread, its Python line."""

from __future__ import annotations

import re
from typing import Any

from .details import Details
from .probing import Work
from .python_frames import foreach_batch_calls

STACK_FRAMES = 5
STACK_DEPTH = 60
# A query waits in here until the writer of its logs takes more.
_LOG_QUEUE_IS_FULL = re.compile(r"AsyncProgressTracking.*\.rejectedExecution\(")
_PLUMBING = re.compile(r"(?:app//)?(?:java\.|jdk\.|sun\.|scala\.|py4j\.)")


class SparkWork:
    """Asks Spark's status tracker and threads; a look costs some twenty Py4J commands."""

    def __init__(self, java_context: Any, jvm: Any, details: Details) -> None:
        self._tracker = java_context.statusTracker()
        self._arrays = getattr(jvm, "java.util.Arrays")
        self._throwable = getattr(jvm, "java.lang.Throwable")
        self._utils = getattr(jvm, "org.apache.spark.util.Utils")
        self._details = details

    def look(self, execution: Any, run_id: str) -> Work:
        """Look at a run; Spark runs a query's jobs under the job group of its run id."""
        ask = self._details.ask
        no_jobs: tuple[int, ...] = ()
        no_stack: tuple[str, ...] = ()
        jobs = ask("jobs", lambda: self._jobs_of(run_id), no_jobs)
        completed, active = ask("tasks", lambda: self._count_tasks(jobs), (0, 0))
        stack = ask("stack", lambda: self._stack(execution), no_stack)
        return Work(
            jobs_known=len(jobs),
            newest_job=max(jobs, default=-1),
            tasks_completed=completed,
            tasks_active=active,
            jvm_stack=stack[:STACK_FRAMES],
            python_line=ask("python_line", lambda: _python_line(execution), ""),
            waits_for_log=any(map(_LOG_QUEUE_IS_FULL.search, stack)),
        )

    def _jobs_of(self, run_id: str) -> tuple[int, ...]:
        return self._integers(self._tracker.getJobIdsForGroup(run_id))

    def _count_tasks(self, jobs: tuple[int, ...]) -> tuple[int, int]:
        completed = active = 0
        for job in set(self._integers(self._tracker.getActiveJobIds())) & set(jobs):
            info = self._tracker.getJobInfo(job)
            for stage_id in self._integers(info.stageIds()) if info is not None else ():
                stage = self._tracker.getStageInfo(stage_id)
                if stage is not None:
                    completed += stage.numCompletedTasks()
                    active += stage.numActiveTasks()
        return completed, active

    def _stack(self, execution: Any) -> tuple[str, ...]:
        """The stream thread's stack from its top, without the plumbing of sockets and Scala."""
        # As an exception's it is one text; frame by frame it would be two hundred commands.
        carrier = self._throwable()
        carrier.setStackTrace(execution.queryExecutionThread().getStackTrace())
        text = self._utils.exceptionString(carrier)
        frames = [line.removeprefix("\tat ") for line in text.splitlines()[1:]][:STACK_DEPTH]
        telling = [frame.removeprefix("app//") for frame in frames if not _PLUMBING.match(frame)]
        return tuple(telling or frames)

    # One command for a whole array, not one for each element.
    def _integers(self, array: Any) -> tuple[int, ...]:
        return tuple(int(number) for number in re.findall(r"\d+", self._arrays.toString(array)))


def _python_line(execution: Any) -> str:
    for frame, line in foreach_batch_calls():
        if frame is not None and frame.sparkSession().equals(execution.sparkSessionForStream()):
            return line
    return ""
