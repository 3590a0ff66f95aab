"""StreamingBatchSlow, and what holds a batch: tasks, slots, executors."""

from __future__ import annotations

from support.rules.case import (
    batch_slow,
    batch_slow_critical,
    joined,
    limits,
    query_stalled,
    query_stalled_warning,
    running,
    starting,
    table,
)
from support.rules.stories import (
    TEN_MINUTES,
    counted,
    in_a_pool,
    later,
    one_task,
    polled,
    steady,
    triggered,
    watched,
)
from support.story import Story, processing, run

from querypulse.listener.probe_report import JobCounts, LongTask, LostExecutors, SlotUse


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


SLOW = table(
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


@later
def no_slot(*, until, taken=4, story=None):
    """The job of batch 10 has no running task; query b holds three slots, others hold the rest."""
    slots = SlotUse(4, taken, "id-b", min(taken, 3))
    return one_task(until=until, story=story, running=0, slots=slots)


@later
def no_executor(*, until, **fields):
    return one_task(until=until, running=0, slots=SlotUse(0), **fields)


@later
def then_equipped(*, bare_until, until, finishing=False, story=None):
    """Batch 10 waits for executors until ``bare_until``; then one task runs, or many finish."""
    story = story or no_executor(until=bare_until)
    for at in range(bare_until + 1, until + 1):
        tasks = 40 + (at if finishing else 0)
        story.works(batch=10, own=JobCounts(5, 1, tasks, 1), slots=SlotUse(4, 1), at=at)
    return story.until(until)


@later
def lossy(*, until, lost_every=10, finishing=False, bare_every=2, orderly=False):
    """Batch 10 has executors at one of ``bare_every`` polls; they run a task, and are lost.

    ``finishing``: the tasks finish for the first time. ``orderly``: no executor counts as lost.
    """

    def seen(number, at):
        has_none = bool(number % bare_every)
        own = JobCounts(4, 1, 40 + (number if finishing else 0), 0 if has_none else 1)
        losses = range(0 if orderly else (at - 101) // lost_every)
        lost = LostExecutors(tuple(at - 101.0 - loss * lost_every for loss in losses), SPOT)
        slots = SlotUse(0) if has_none else None
        return processing(batch=10, own=own, slots=slots, lost=lost)

    return polled(seen, until=until)


@later
def lost_at(*losses, until, longest=False, **fields):
    """Executors were lost at these times; batch 10 runs one task from 101 s on, or none."""

    def seen(_, at):
        lost = LostExecutors(tuple(float(at - loss) for loss in losses if loss <= at), SPOT)
        task = LongTask(4, 17, "host-3", at - 101.0, 2.1) if longest else None
        own = JobCounts(4, 1, 40, 0 if "slots" in fields else 1, task)
        return processing(batch=10, own=own, lost=lost, **fields)

    return polled(seen, until=until)


def committing(*, until):
    """Batches commit, while an executor is lost every five seconds."""
    story = Story().started(at=0)
    for number, at in enumerate(range(10, until + 1, 10)):
        lost = LostExecutors(tuple(float(ago) for ago in range(0, at, 5)), SPOT)
        own = JobCounts(4 + number, 1, 40 + number, 1)
        story.probe(processing(batch=number, own=own, lost=lost), at=at - 5)
        story.commit(batch=number, at=at, seconds=10)
    return story.until(until)


@later
def then_nothing(*, delayed_until, until):
    """A task of batch 10 runs until ``delayed_until``; after that the query does nothing."""
    story = one_task(until=delayed_until)
    nothing = processing(batch=10, own=JobCounts(4, 0, 40, 0))
    return watched(story, (delayed_until + 5, until, nothing))


SPOT = "Command exited with code 137"
LISTS_ITS_TABLE = run(
    message="Getting offsets from DeltaSource", busy=True, batch=10, own=JobCounts(4, 1, 40, 1)
)

TASKS = table(
    # an ordinary cause: a warning at W, critical after ten minutes, and never before W
    "one task runs for 75 s (skew, throttled storage)",
    query_stalled_warning(one_task(until=180)),
    "one task runs, within the window",
    running(one_task(until=160)),
    "one task runs for almost ten minutes",
    query_stalled_warning(one_task(until=695)),
    "one task never finishes",
    query_stalled(one_task(until=706)),
    "one task runs for long, with a larger limit",
    query_stalled_warning(one_task(until=990), stall_critical_seconds=900.0),
    "one task runs for less than a window that is longer than ten minutes",
    running(one_task(until=1290), stall_floor_seconds=1200.0),
    "one task runs for longer than a window that is longer than ten minutes",
    query_stalled(one_task(until=1310), stall_floor_seconds=1200.0),
    "one task of the first batch runs, within the start grace",
    starting(one_task(since=5, until=300, story=Story().started(at=0), batch=0)),
    "one task of the first batch runs for six minutes",
    query_stalled_warning(one_task(since=5, until=360, story=Story().started(at=0), batch=0)),
    "one task of the first batch never finishes",
    query_stalled(one_task(since=5, until=610, story=Story().started(at=0), batch=0)),
    "one task of a thread pool runs for 75 s",
    query_stalled_warning(in_a_pool(until=180, running=1)),
    "a job that names no query waits for an unknown reason",
    query_stalled(in_a_pool(until=180, running=0)),
    "a task runs although its job has ended (cancelled)",
    query_stalled(one_task(until=180, active=0)),
    "one task runs for 75 s, then the driver's own code hangs",
    query_stalled_warning(then_nothing(delayed_until=176, until=230)),
    "one task runs for 75 s, then the driver's own code hangs for a window",
    query_stalled(then_nothing(delayed_until=176, until=240)),
    "no executor for five minutes (an autoscaler)",
    running(no_executor(until=400)),
    "no executor for five minutes, then a task runs",
    running(then_equipped(bare_until=400, until=440)),
    "no executor for five minutes, then tasks finish for half a minute",
    running(then_equipped(bare_until=400, until=430, finishing=True)),
    "no executor for five minutes, then a task never finishes",
    query_stalled_warning(then_equipped(bare_until=400, until=470)),
    "no executor for five minutes, then tasks finish for longer than the window",
    batch_slow(then_equipped(bare_until=400, until=470, finishing=True)),
    "no executor for seven minutes",
    query_stalled_warning(no_executor(until=530)),
    "no executor for long, and a poll that is late by a pause of the JVM",
    query_stalled_warning(no_executor(until=480), at=490),
    "no executor for four minutes (first batch)",
    starting(no_executor(since=5, until=245, story=Story().started(at=0), batch=0)),
    "no executor for nine minutes (first batch, an autoscaler)",
    query_stalled_warning(no_executor(since=5, until=545, story=Story().started(at=0), batch=0)),
    "no executor ever",
    query_stalled(no_executor(until=706)),
    "the driver waits for a lock, there is no executor, and the batch has no job",
    query_stalled(no_executor(until=180, active=0)),
    "a sibling holds all slots (FIFO)",
    query_stalled_warning(no_slot(until=180)),
    "a sibling held all slots for twelve minutes, then a task runs",
    running(then_equipped(bare_until=820, until=850, story=no_slot(until=820))),
    "a sibling held all slots for twelve minutes, then tasks finish for half a minute",
    running(then_equipped(bare_until=820, until=850, story=no_slot(until=820), finishing=True)),
    "a sibling held all slots for twelve minutes, then tasks finish for longer than the window",
    batch_slow(then_equipped(bare_until=820, until=890, story=no_slot(until=820), finishing=True)),
    "a sibling held all slots for twelve minutes, then a task never finishes",
    query_stalled(then_equipped(bare_until=820, until=1430, story=no_slot(until=820))),
    "a sibling holds all slots, within the window",
    running(no_slot(until=155)),
    "others never free the slots",
    query_stalled(no_slot(until=706)),
    "its job waits although slots are free",
    query_stalled(no_slot(until=180, taken=2)),
    "its job waits, and Spark does not say how many slots there are",
    query_stalled(one_task(until=180, running=0)),
    "a job with one long task polls the source (the first snapshot of a table)",
    query_stalled_warning(watched(steady(), (101, 180, LISTS_ITS_TABLE))),
)

LOST = table(
    # executors that are lost again and again
    "executors are lost every few seconds while batches commit",
    running(committing(until=400)),
    "executors are lost every few seconds, within the window",
    running(lossy(until=160)),
    "executors are lost every few seconds, for two minutes, half of it without one",
    running(lossy(until=215)),
    "an executor is lost once, and a task of the batch runs, within the window",
    running(lost_at(130, until=160)),
    "three executors are lost together, and a task runs, within the window",
    running(lost_at(110, 110, 110, until=160)),
    "all executors are lost together, and an autoscaler needs five minutes",
    running(lost_at(101, 101, 101, 101, until=440, slots=SlotUse(0))),
    "an autoscaler takes executors away in order, and gives some, within the window",
    running(lossy(until=160, orderly=True)),
    "executors are lost every few seconds, and no task finishes for a window",
    query_stalled_warning(lossy(until=235)),
    "executors are lost every few seconds, no task finishes, and there is none at that moment",
    query_stalled_warning(lossy(until=240)),
    "executors are lost, and no task finishes, without an executor for most of the time",
    query_stalled_warning(lossy(until=390, bare_every=4)),
    "executors are lost before a task finishes, and each next one comes late, for six minutes",
    running(lossy(until=440, lost_every=90, bare_every=18)),
    "executors are lost before a task finishes, and each next one comes late",
    query_stalled_warning(lossy(until=480, lost_every=90, bare_every=18)),
    "executors are lost before a task finishes, and each next one comes late, for ten minutes",
    query_stalled(lossy(until=710, lost_every=90, bare_every=18)),
    "executors are lost every few seconds, and no task finishes for ten minutes",
    query_stalled(lossy(until=710)),
    "executors are lost every few seconds, and tasks finish, for longer than the window",
    batch_slow(lossy(until=235, finishing=True)),
    "executors are lost while tasks finish, and there is none at that moment",
    batch_slow(lossy(until=240, finishing=True)),
    "executors are lost every few seconds, and tasks finish, for half an hour",
    batch_slow_critical(lossy(until=1910, finishing=True)),
    "tasks are lost as an autoscaler takes executors away in order",
    query_stalled_warning(lossy(until=235, orderly=True)),
    "executors are lost beside a task that runs for 75 s",
    query_stalled_warning(lost_at(130, 140, 150, until=180, longest=True)),
    "an executor is lost once, and a task runs for 75 s",
    query_stalled_warning(lost_at(130, until=180)),
)

CASES = joined(SLOW, TASKS, LOST)
