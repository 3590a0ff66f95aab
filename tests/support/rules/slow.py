"""StreamingBatchSlow: a long batch whose tasks finish."""

from __future__ import annotations

from support.rules.case import (
    batch_slow,
    batch_slow_critical,
    limits,
    query_stalled,
    running,
    starting,
    table,
)
from support.rules.stories import (
    TEN_MINUTES,
    counted,
    later,
    one_task,
    polled,
    steady,
    triggered,
    watched,
)
from support.story import Story, processing

from querypulse.listener.probe_report import JobCounts


@later
def live_locked(*, until, first=False, usual=2, jobs=5, since=101, run_number=1, story=None):
    """Batch 10 starts ``jobs`` jobs per poll and never commits; others take ``usual`` jobs."""

    def seen(number, _):
        own = JobCounts(usual * 10 + number * jobs, 1, 40 + number * jobs, 1)
        return processing(number=run_number, batch=10, own=own)

    story = Story().started(at=0) if first else story
    return polled(seen, until=until, since=since, story=story)


@later
def busy_batch(*, until):
    """A batch of which five tasks finish per poll."""
    return polled(lambda number, _: processing(batch=10, tasks=number * 5), until=until)


LAST_TASK = JobCounts(620, 1, 640, 1)


def restarted_at(second):
    return live_locked(until=300).ended(at=400).started(run=2, at=second)


@later
def progressing(story, begin, end, **fields):
    """Tasks of a batch finish between any two polls."""
    for at in range(begin, end, 5):
        story = watched(story, (at, at + 4, processing(**{"batch": 10, **fields}, tasks=at)))
    return story


CASES = table(
    # StreamingBatchSlow
    "a long batch whose tasks finish",
    batch_slow(busy_batch(until=690)),
    "a long batch whose tasks finish, for more than half an hour",
    batch_slow_critical(busy_batch(until=1906)),
    "a long batch works in a thread pool",
    batch_slow_critical(counted(until=1906, unowned=True)),
    "a long batch works in a thread pool, for less than half an hour",
    batch_slow(counted(until=1895, unowned=True)),
    "a batch is retried for ever (MERGE), for 599 s",
    batch_slow(live_locked(until=696), at=700),
    "a batch is retried for ever (MERGE), for 601 s",
    batch_slow_critical(live_locked(until=701), at=702),
    "a batch is retried for ever, within its window of a minute",
    running(live_locked(until=156), at=160),
    "a batch is retried, with a smaller limit for stalls",
    batch_slow_critical(live_locked(until=300), stall_critical_seconds=180.0),
    "a batch is retried, with a larger limit for stalls",
    batch_slow(live_locked(until=1795), stall_critical_seconds=1750.0),
    "a batch is retried within a window that is longer than the limit for stalls",
    running(live_locked(until=800), stall_floor_seconds=900.0),
    "a retried batch finishes and commits",
    running(live_locked(until=690).commit(batch=10, at=695), at=702),
    "a retried batch, in which one task now runs for 75 s",
    query_stalled(watched(live_locked(until=691), (696, 766, processing(batch=10, own=LAST_TASK)))),
    "foreachBatch runs two hundred jobs in each batch, and this batch is long",
    batch_slow(live_locked(until=1795, usual=400)),
    "foreachBatch runs two hundred jobs in each batch, and this one is slow for half an hour",
    batch_slow_critical(live_locked(until=1906, usual=400)),
    "a long batch runs four times the usual jobs",
    batch_slow(live_locked(until=1000, usual=210, jobs=5)),
    "a long batch runs less than ten jobs, though usually one",
    query_stalled(live_locked(until=701, usual=1, jobs=0), at=702),
    "a long batch of many tasks in its only job",
    batch_slow(busy_batch(until=1795)),
    "the first batch of the next run catches up with many more jobs than usual",
    starting(live_locked(until=1095, since=411, run_number=2, story=restarted_at(410)), at=1100),
    "the first batch of a run is retried for less than half an hour",
    starting(live_locked(until=1895, first=True)),
    "the first batch of a run is retried for ever",
    batch_slow_critical(live_locked(until=1906, first=True)),
    "a long batch whose tasks finish, with a larger limit for slow ones",
    batch_slow(busy_batch(until=1906), slow_critical_seconds=3600.0),
    "a batch is retried for long, with larger limits",
    batch_slow(
        live_locked(until=1906), slow_critical_seconds=3600.0, stall_critical_seconds=3600.0
    ),
    "a batch is retried for ever, with a shorter critical limit by pattern",
    batch_slow_critical(live_locked(until=300), **limits("a", slow_critical_seconds=180.0)),
    "a long batch within a window longer than half an hour",
    running(busy_batch(until=2000), stall_floor_seconds=2000.0),
    "one task runs for 75 s in a batch that has been slow for half an hour",
    query_stalled(one_task(since=1890, until=1960, story=live_locked(until=1885))),
    "a long batch whose tasks finish, under a trigger of ten minutes",
    batch_slow(
        progressing(
            triggered(begins=610, until=610, tasks=0), 615, 701, trigger=TEN_MINUTES, batch=1
        ),
        at=700,
    ),
    "a long batch whose tasks finish, while the JVM pauses for some seconds (GC)",
    running(busy_batch(until=900), at=915),
    "a batch whose tasks finish, within the window",
    running(busy_batch(until=150)),
    "long batches whose tasks finish, as always (the window follows the longest recent batch)",
    running(progressing(Story().started(at=0).commit(batch=9, at=100, seconds=90), 101, 330)),
    "a backlog after an outage: the first batch of the run is huge",
    starting(
        progressing(steady().ended(at=101).started(run=2, at=102), 105, 900, number=2), at=900
    ),
)
