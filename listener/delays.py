"""Why no task of a batch finishes although the batch does not hang. Pure."""

from __future__ import annotations

from enum import Enum

from .probing import JobActivity


class Delay(str, Enum):
    """What Spark does with the jobs of a batch, or waits for."""

    TASK_RUNNING = "task_running"
    NO_EXECUTORS = "no_executors"
    WAITING_FOR_SLOTS = "waiting_for_slots"


def delay_of(work: JobActivity | None) -> Delay | None:
    """The delay that the newest job poll shows; None without an active job or without data.

    When the slots are unknown, jobs without a running task prove nothing.
    """
    if work is None or not work.jobs.jobs_active:
        return None
    if work.jobs.tasks_active:
        return Delay.TASK_RUNNING
    if work.slots is None:
        return None
    if not work.slots.total:
        return Delay.NO_EXECUTORS
    return Delay.WAITING_FOR_SLOTS if work.slots.taken >= work.slots.total else None
