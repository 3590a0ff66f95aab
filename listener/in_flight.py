"""What a busy run does, from one probe poll to the next, and what delays its batch. Pure."""

from __future__ import annotations

from enum import Enum

from msgspec.structs import replace

from .probing import JobActivity, ProbedRun
from .query import InFlight, Query

UNSEEN_SECONDS = 5.0
"""Polls further apart than this have a pause between them."""
BATCHES_TO_LEARN = 3
"""After this many committed batches the number of jobs per batch is known."""


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


def in_flight(query: Query, run: ProbedRun, at: float) -> InFlight | None:
    """The run's current activity: the same as before, a new one, or none."""
    if not (run.planning or run.processing):
        return None
    batch_id = run.batch_id if run.processing else None
    before = query.in_flight
    if before is None or before.batch_id != batch_id:
        return InFlight(since=at, moved_at=at, batch_id=batch_id)
    before = _unseen(before, query.probed_at, at)
    last_work = query.probed.work if query.probed is not None else None
    if run.work is None:
        return before
    if last_work is not None and run.work.moved_since(last_work):
        before = replace(before, moved_at=at)
    if delay_of(run.work) is not None:
        before = replace(before, delayed_at=at)
    if before.jobs_before is None and run.work.counted:
        before = replace(before, jobs_before=run.work.own.jobs_started)
    return before


def _unseen(before: InFlight, polled_at: float | None, at: float) -> InFlight:
    """Move ``delayed_at`` past a pause of the JVM: nothing is known about that time."""
    if before.delayed_at is None or polled_at is None or at - polled_at <= UNSEEN_SECONDS:
        return before
    return replace(before, delayed_at=before.delayed_at + at - polled_at)


def jobs_per_batch(query: Query) -> float | None:
    """How many jobs a batch runs, by the jobs counted before the batch in flight took long.

    The count may include jobs of an earlier run: too many do no harm, too few would seem retries.
    """
    flight = query.in_flight
    commits = query.totals.commits - query.commits_before_run
    if flight is None or flight.jobs_before is None or commits < BATCHES_TO_LEARN:
        return query.jobs_per_batch
    return flight.jobs_before / commits
