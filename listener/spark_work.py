"""A closer look at one busy query: its Spark jobs, its stream thread, its Python line."""

from __future__ import annotations

import re
from typing import Any

from .probing import Work
from .python_frames import foreach_batch_calls

STACK_FRAMES = 5
_PLUMBING = re.compile(r"^(?:java\.|jdk\.|sun\.|scala\.|py4j\.|app//py4j\.|java\.base)")
_FRAME = re.compile(r"[^\[\],\s][^\[\]]*?\([^()]*\)")


def look_closely(jsc: Any, jvm: Any, execution: Any, run_id: str) -> Work:
    """Ask Spark about a run; Spark runs a query's jobs under the job group of its run id.

    Raises:
        Py4JError: the JVM refused.

    """
    arrays = getattr(jvm, "java.util.Arrays")
    tracker = jsc.statusTracker()
    group = _integers(arrays.toString(tracker.getJobIdsForGroup(run_id)))
    running = sorted(set(_integers(arrays.toString(tracker.getActiveJobIds()))) & set(group))
    completed, active = _count_tasks(tracker, arrays, running)
    return Work(
        jobs=f"{len(group)} known, newest {max(group)}" if group else "",
        tasks_completed=completed,
        tasks_active=active,
        jvm_stack=_stack(arrays, execution),
        python_line=_python_line(execution),
    )


def _count_tasks(tracker: Any, arrays: Any, jobs: list[int]) -> tuple[int, int]:
    completed = active = 0
    for job in jobs:
        info = tracker.getJobInfo(job)
        stages = _integers(arrays.toString(info.stageIds())) if info is not None else []
        for stage in (tracker.getStageInfo(stage) for stage in stages):
            if stage is not None:
                completed += stage.numCompletedTasks()
                active += stage.numActiveTasks()
    return completed, active


def _stack(arrays: Any, execution: Any) -> tuple[str, ...]:
    text = arrays.toString(execution.queryExecutionThread().getStackTrace())
    frames = [frame.removeprefix("app//") for frame in _FRAME.findall(text)]
    telling = [frame for frame in frames if not _PLUMBING.match(frame)]
    return tuple((telling or frames)[:STACK_FRAMES])


def _python_line(execution: Any) -> str:
    for frame, line in foreach_batch_calls():
        if frame is not None and frame.sparkSession().equals(execution.sparkSessionForStream()):
            return line
    return ""


def _integers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]
