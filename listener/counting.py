"""Adds a batch to its query's totals and to its baseline of durations. Pure."""

from __future__ import annotations

from bisect import bisect_left

from msgspec.structs import replace

from .events import Progress
from .query import BASELINE_BATCHES, BUCKETS, RECENT_BATCHES, Totals

BASELINE_GROWTH = 3.0


def learn(baseline: tuple[float, ...], seconds: float | None) -> tuple[float, ...]:
    """Add a batch's duration; one stalled batch raises the baseline threefold at most."""
    if seconds is None:
        return baseline
    if baseline and seconds > BASELINE_GROWTH * baseline[-1]:
        seconds = min(seconds, BASELINE_GROWTH * max(baseline))
    return (*baseline, seconds)[-BASELINE_BATCHES:]


def remember(recent: tuple[float, ...], seconds: float | None) -> tuple[float, ...]:
    """Add a batch's duration unchanged, for display."""
    return recent if seconds is None else (*recent, seconds)[-RECENT_BATCHES:]


def count_batch(totals: Totals, progress: Progress) -> Totals:
    """Add a batch to the totals of its query."""
    buckets, seconds = totals.batch_buckets, totals.batch_seconds
    if progress.batch_seconds is not None:
        slot = bisect_left(BUCKETS, progress.batch_seconds)
        buckets = (*buckets[:slot], buckets[slot] + 1, *buckets[slot + 1 :])
        seconds += progress.batch_seconds
    return replace(
        totals,
        input_rows=totals.input_rows + progress.input_rows,
        output_rows=totals.output_rows + (progress.output_rows or 0),
        late_rows=totals.late_rows + progress.late_rows,
        batch_buckets=buckets,
        batch_seconds=seconds,
    )


def add_totals(one: Totals, other: Totals, *, restarts: int) -> Totals:
    """Add the totals of two queries, and ``restarts``."""
    both = zip(one.batch_buckets, other.batch_buckets, strict=True)
    return Totals(
        commits=one.commits + other.commits,
        input_rows=one.input_rows + other.input_rows,
        output_rows=one.output_rows + other.output_rows,
        late_rows=one.late_rows + other.late_rows,
        restarts=one.restarts + other.restarts + restarts,
        failed=one.failed + other.failed,
        stopped=one.stopped + other.stopped,
        completed=one.completed + other.completed,
        batch_buckets=tuple(mine + its for mine, its in both),
        batch_seconds=one.batch_seconds + other.batch_seconds,
    )
