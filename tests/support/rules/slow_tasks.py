"""StreamingQueryStalled: what has an ordinary cause warns first, and is critical after ten minutes."""

from __future__ import annotations

from support.rules.case import (
    batch_slow,
    query_stalled,
    query_stalled_warning,
    running,
    starting,
    table,
)
from support.rules.stories import in_a_pool, later, one_task, steady, watched
from support.story import Story, processing, run

from querypulse.listener.probe_report import JobCounts, SlotUse


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
def then_nothing(*, delayed_until, until):
    """A task of batch 10 runs until ``delayed_until``; after that the query does nothing."""
    story = one_task(until=delayed_until)
    nothing = processing(batch=10, own=JobCounts(4, 0, 40, 0))
    return watched(story, (delayed_until + 5, until, nothing))


LISTS_ITS_TABLE = run(
    message="Getting offsets from DeltaSource", busy=True, batch=10, own=JobCounts(4, 1, 40, 1)
)

CASES = table(
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
    batch_slow(then_equipped(bare_until=820, until=850, story=no_slot(until=820))),
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
