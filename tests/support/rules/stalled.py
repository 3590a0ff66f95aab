"""StreamingQueryStalled, and the window after which a query is stalled."""

from __future__ import annotations

from support.rules.case import (
    alert,
    batch_slow,
    batch_slow_critical,
    idle,
    joined,
    limits,
    query_stalled,
    query_stalled_warning,
    running,
    starting,
    stopped,
    table,
)
from support.rules.stories import (
    HOURLY,
    STOPPED,
    batches,
    counted,
    epochs,
    hung_batch,
    in_a_pool,
    later,
    polled,
    steady,
    triggered,
    watched,
    working,
)
from support.story import Story, processing, run

from querypulse.listener.probe_report import JobCounts, LostExecutors, SlotUse

LONG_B = {"overrides": [("b", {"stall_floor_seconds": 7200.0})]}
LONG_BE = {"overrides": [("[be]", {"stall_floor_seconds": 7200.0})]}


@later
def trying(*, until, driver=0.0003, **how):
    """Spark's own thread uses a little CPU time from poll to poll: by default as for a lock."""
    return working(until=until, driver=driver, line="", **how)


@later
def listing(*, until, driver=0.01, since=0, **seen):
    """The query asks its source for offsets for the first time, such as the files of a folder."""
    asks = {"message": "Getting offsets from FileStreamSource", "batch": -1, "line": ""}
    return working(story=Story(), until=until, since=since, driver=driver, **{**asks, **seen})


@later
def behind_b(*, until, every=10_000, losses=()):
    """The job of batch 10 waits for the slots that query b holds, whose batches take ``every`` s.

    Executors were lost at the times ``losses``, and replaced.
    """
    story = steady().started("b", at=0).commit("b", batch=0, at=99)
    own, slots = JobCounts(4, 1, 40, 0), SlotUse(4, 4, "id-b", 3)
    for at in range(101, until + 1, 5):
        holds = JobCounts(4, 1, at, 4)
        batch = 1 + (at - 101) // every
        if batch > 1 and (at - 101) % every < 5:
            story.commit("b", batch=batch - 1, at=at)
        lost = LostExecutors(tuple(float(at - loss) for loss in losses if loss <= at))
        story.probe(
            processing(batch=10, own=own, slots=slots, lost=lost),
            processing("b", batch=batch, own=holds, lost=lost),
            at=at,
        )
    return story.until(until)


@later
def many_behind_b(
    *waiting,
    until,
    since=101,
    holder="b",
    seen_b=None,
    stopping=(),
    held_until=10_000,
    every=10_000,
    ends_at=10_000,
):
    """As above, for the queries ``waiting``: their jobs have no slot from ``since`` on."""
    story = Story().started("b", at=0).commit("b", batch=0, at=1)
    for query in waiting:
        story.started(query, at=0)
        steady_of(story, query, until=since - 1)
    own, held = JobCounts(4, 1, 40, 0), SlotUse(4, 4, f"id-{holder}", 4)
    for at in range(since, until + 1, 5):
        batch = 1 + (at - since) // every
        if batch > 1 and (at - since) % every < 5:
            story.commit("b", batch=batch - 1, at=at)
        runs = [seen_b or processing("b", batch=batch, own=JobCounts(4, 1, at, 4))]
        if at > ends_at:
            runs = []
        for query in waiting:
            jobs, slots = (own, held) if at < held_until else (JobCounts(4, 1, at, 1), None)
            is_stopping = query in stopping
            runs.append(processing(query, batch=10, own=jobs, slots=slots, stopping=is_stopping))
        story.probe(*runs, at=at)
        if at <= ends_at < at + 5:
            story.ended("b", at=ends_at)
    return story.until(until)


@later
def behind_two(*, until, turn):
    """As above, for a, c and d: b and e hold most of the slots for ``turn`` s each, in turns."""
    story = Story().started("b", at=0).started("e", at=0)
    for query in "acd":
        story.started(query, at=0)
        steady_of(story, query, until=100)
    for at in range(101, until + 1, 5):
        holder = "be"[(at - 101) // turn % 2]
        runs = [
            processing(query, batch=0, own=JobCounts(1, 1, at, 3 if query == holder else 2))
            for query in "be"
        ]
        slots = SlotUse(5, 5, f"id-{holder}", 3)
        waits = {"own": JobCounts(4, 1, 40, 0), "slots": slots}
        story.probe(*runs, *(processing(query, batch=10, **waits) for query in "acd"), at=at)
    return story.until(until)


@later
def behind_b_in_between(*, until):
    """As above, for a and c; d, whose batches are short, waits at every other poll."""
    story = Story().started("b", at=0)
    for query in "acd":
        story.started(query, at=0)
        steady_of(story, query, until=100)
    waits = {"own": JobCounts(4, 1, 40, 0), "slots": SlotUse(4, 4, "id-b", 4)}
    for number, at in enumerate(range(101, until + 1, 5)):
        batch = 10 + number // 2
        if number % 2:
            story.commit("d", batch=batch, at=at, seconds=1.0)
        of_d = run("d") if number % 2 else processing("d", batch=batch, **waits)
        holds = processing("b", batch=0, own=JobCounts(1, 1, at, 4))
        story.probe(holds, of_d, *(processing(query, batch=10, **waits) for query in "ac"), at=at)
    return story.until(until)


def steady_of(story, query, *, until):
    for number, at in enumerate(range(10, until + 1, 10)):
        story.commit(query, batch=number, at=at)


@later
def on_connect(*, until, **seen):
    """Batch 10 is in flight on Spark Connect, where nothing counts its jobs."""
    seen = processing(batch=10, trigger="Unknown") if not seen else run(busy=True, **seen)
    return watched(steady(), (101, until, seen), missing=("jobs",))


@later
def asynchronous(*, until, log_until, batches_until=None, idle=True, interval=1.0, empty=False):
    """Async progress tracking: events report a batch every 2 s; the log is read every 6 s."""
    story = Story()
    batches_until = until if batches_until is None else batches_until
    batch = 0
    for at in range(0, until + 1, 2):
        if at <= batches_until:
            story.commit(batch=batch, at=at)
            batch += 1
        busy = at <= batches_until or not idle
        seen = {"batch": batch, "busy": busy, "data": busy}
        story.seen(async_progress=True, log_interval=interval, **seen, at=at)
        if at % 6 == 0:
            committed = None if empty else min(at, log_until) // 2 - 1
            story.log(at=at, planned=None, committed=committed)
    return story.until(until)


@later
def asynchronous_and_slow(*, until):
    """Async progress tracking with a log that is rarely written; then a long batch."""
    story = asynchronous(until=160, log_until=100, interval=60.0)
    for number, at in enumerate(range(161, until + 1, 5)):
        seen = {"async_progress": True, "log_interval": 60.0}
        story.works(batch=81, tasks=number * 5, **seen, at=at)
        story.log(at=at, planned=None, committed=49)
    return story.until(until)


ASKS = {"message": "Getting offsets from Kafka"}
CONTINUOUS = {"trigger": "ContinuousTrigger(1000)", "message": "Running"}
REAL_TIME = {"trigger": "RealTimeTrigger(300000)"}
WAITS_IN_VAIN = {"own": JobCounts(4, 1, 40, 0), "slots": SlotUse(4, 2, "id-b", 2)}
"""Its job has no running task, although slots are free."""
stalled_behind_b = alert(
    ("StreamingQueryStalled", "a", "warning"), ("StreamingBatchSlow", "b"), state="stalled"
)
stalled_behind_b_for_long = alert(
    ("StreamingQueryStalled", "a", "warning"),
    ("StreamingBatchSlow", "b", "critical"),
    state="stalled",
)


def fewer_tasks(number, _):
    """Spark forgets tasks that have finished."""
    return processing(batch=10, tasks=max(0, 40 - 3 * number))


def stays(seen):
    """The probe sees the same for more than a minute."""
    return watched(steady(), (101, 170, seen))


def recovered_at(second):
    return steady().commit(batch=10, at=second, seconds=900)


def committed_in_real_time(second):
    return Story().seen(at=0, **REAL_TIME).commit(batch=0, at=second, seconds=300)


def then_waits(*, until):
    """Spark's thread tries again for a while, then it waits."""
    return trying(until=until, since=206, driver=0.0, story=trying(until=201))


def idle_since_206():
    return asynchronous(until=600, log_until=200, batches_until=206).idle(at=600)


def next_run(*polls):
    """The probe sees the next run; no event of it arrives."""
    return watched(steady().ended(at=101), *polls)


def of_run_2(batch):
    return processing(number=2, batch=batch)


STALLED = table(
    # StreamingQueryStalled
    "a batch hangs",
    query_stalled(hung_batch(until=170)),
    "a batch hangs in Spark tasks that never finish",
    query_stalled(hung_batch(until=170, tasks=3)),
    "a batch hangs while Spark forgets its old jobs and stages",
    query_stalled(polled(fewer_tasks, until=170)),
    "the first batch ever hangs",
    query_stalled(watched(Story(), (0, 305, processing(batch=0))), at=306),
    "a source does not answer Spark",
    query_stalled(stays(run(message="Getting offsets from Kafka", busy=True, batch=10))),
    "initialises for ever",
    query_stalled(watched(Story(), (0, 305, run(message="Initializing sources"))), at=306),
    "no trigger comes",
    query_stalled(stays(run(message="Waiting for next trigger", data=True, batch=10))),
    "first seen by a commit, then no activity (a log whose beginning is cut off)",
    query_stalled(Story().commit(batch=5, at=10), at=75),
    "events stop and there is no probe",
    query_stalled(steady(), at=161),
    "hung, and then the JVM also pauses for some seconds: no false recovery",
    query_stalled(hung_batch(until=170), at=180),
    "the JVM does not answer",
    query_stalled(steady().seen(batch=10, at=100), at=170),
    "hangs after a stall that recovered: what happened once is no usual batch",
    query_stalled(watched(recovered_at(1000), (1001, 1070, processing(batch=11)))),
    # what moves is not hung
    "foreachBatch calls an API row by row (a hundred times the rows)",
    batch_slow(working(python=0.01, until=170)),
    "foreachBatch calls an API row by row, within the window",
    running(working(python=0.01, until=155), at=160),
    "foreachBatch calls an API row by row, for almost half an hour",
    batch_slow(working(python=0.01, until=1895)),
    "foreachBatch calls an API row by row, for more than half an hour",
    batch_slow_critical(working(python=0.01, until=1906)),
    "foreachBatch calls an API row by row in the first batch",
    starting(working(python=0.01, until=290, since=1, story=Story().started(at=0), batch=0)),
    "foreachBatch is blocked",
    query_stalled_warning(working(until=170)),
    "foreachBatch is blocked for less than three minutes",
    query_stalled_warning(working(until=275), at=280),
    "foreachBatch is blocked for more than three minutes",
    query_stalled(working(until=286)),
    "foreachBatch is blocked for less than a window of five minutes",
    running(working(until=396), at=400, stall_floor_seconds=300.0),
    "foreachBatch is blocked for more than a window of five minutes",
    query_stalled(working(until=406), stall_floor_seconds=300.0),
    "foreachBatch wakes up now and then and waits on: no work",
    query_stalled(working(python=0.0001, until=286)),
    "foreachBatch works for a minute and is blocked then",
    query_stalled_warning(working(until=230, since=166, story=working(python=0.01, until=161))),
    "the first listing of a folder works",
    batch_slow(listing(until=310)),
    "the first listing of a folder works, within the start grace",
    starting(listing(until=290)),
    "the first listing of a folder does not move",
    query_stalled(listing(until=310, driver=0.0)),
    "a later listing works for long",
    batch_slow(
        working(until=170, driver=0.01, line="", message="Getting offsets from FileStreamSource")
    ),
    "each poll of an idle query finds it asking for offsets",
    idle(
        working(until=885, driver=0.01, line="", last_progress_mark="1", **ASKS).seen(
            busy=True, batch=10, own=JobCounts(4), last_progress_mark="2", at=890, **ASKS
        ),
        at=900,
    ),
    # a thread of Spark that tries again: it waits for a lock for ever, or for a remote job
    "Spark's thread tries each five seconds to get a lock, within the window",
    running(trying(until=155), at=160),
    "Spark's thread tries each five seconds to get a lock",
    query_stalled_warning(trying(until=170)),
    "Spark's thread tries each five seconds to get a lock, for less than three minutes",
    query_stalled_warning(trying(until=275), at=280),
    "Spark's thread tries each five seconds to get a lock, for more than three minutes",
    query_stalled(trying(until=286)),
    "Spark's thread tries again for less than a window of five minutes",
    running(trying(until=396), at=400, stall_floor_seconds=300.0),
    "Spark's thread tries again for more than a window of five minutes",
    query_stalled(trying(until=406), stall_floor_seconds=300.0),
    "Spark's thread tries again until three minutes are over, and gets its lock",
    running(trying(until=280).commit(batch=10, at=281, seconds=180.0), at=300),
    "Spark's thread tries again, and the poll is late by a pause of the JVM",
    query_stalled_warning(trying(until=166), at=175),
    "Spark's thread tries again, and has waited since for less than the window",
    query_stalled_warning(then_waits(until=256), at=260),
    "Spark's thread tries again, and has waited since for longer than the window",
    query_stalled(then_waits(until=266)),
    "Spark's thread wakes up each five seconds and waits on: no try",
    query_stalled(trying(until=170, driver=0.0001)),
    "Spark's thread tries again to ask a source for its offsets",
    query_stalled_warning(trying(until=170, message="Getting offsets from Kafka")),
    "a thread tries again while its job waits although slots are free",
    query_stalled(trying(until=170, **WAITS_IN_VAIN)),
    "Spark's thread asks each second for a remote job, in little CPU time",
    query_stalled_warning(trying(until=280, driver=0.0004, every=1)),
    "Spark's thread asks each second for a remote job, in much CPU time",
    batch_slow(trying(until=286, driver=0.0006, every=1)),
    "Spark's thread sends a slow request each five seconds",
    batch_slow(working(until=170, driver=0.003, line="")),
    "commit work in the driver: a log is written, files are renamed",
    batch_slow(working(until=1895, driver=0.01, line="")),
    "Spark's own code does not move",
    query_stalled(working(until=170, line="")),
    "its job waits although slots are free, and some thread of it works",
    query_stalled(working(until=170, driver=0.01, **WAITS_IN_VAIN)),
    "twenty queries start at once on two cores: each waits for its share, and moves",
    starting(
        working(until=60, python=0.002, since=1, story=Story().started(at=0), batch=0),
        stall_floor_seconds=15.0,
        start_grace_seconds=75.0,
    ),
    # a sibling holds the slots: the page is about the sibling
    "query b holds all slots, for almost half an hour",
    stalled_behind_b(behind_b(until=1895)),
    "query b holds all slots, for more than half an hour",
    stalled_behind_b_for_long(behind_b(until=1906)),
    "query b holds all slots in a batch as long as usual, for almost half an hour",
    query_stalled_warning(behind_b(until=1895), **LONG_B),
    "query b holds all slots in a batch as long as usual, for more than half an hour",
    stalled_behind_b_for_long(behind_b(until=1906), **LONG_B),
    "query b holds all slots, and executors were lost meanwhile, for almost half an hour",
    query_stalled_warning(behind_b(until=1895, losses=(110, 120, 130)), **LONG_B),
    "query b holds all slots, and executors were lost meanwhile, for more than half an hour",
    stalled_behind_b_for_long(behind_b(until=1906, losses=(110, 120, 130)), **LONG_B),
    "query b holds all slots, and is none of ours",
    query_stalled(behind_b(until=1906), **limits("b", ignore=True)),
    "some batch of query b holds all slots at each poll, for almost half an hour",
    query_stalled_warning(behind_b(until=1895, every=30), **LONG_B),
    "some batch of query b holds all slots at each poll, for more than half an hour",
    query_stalled(behind_b(until=1906, every=30), **LONG_B),
    # a stop() that does not return
    "stopped, and foreachBatch goes on for more than three minutes",
    query_stalled(working(until=286, stopping=True)),
    "stopped as announced, and foreachBatch is blocked",
    query_stalled_warning(working(until=170, stopping=True).expect_stop()),
    "stopped, and its last batch goes on within the window",
    running(working(until=150, stopping=True)),
    "stopped as announced: its last batch takes as long as usual, and ends",
    stopped(
        working(until=130, stopping=True).expect_stop().seen(active=False, at=135).ended(at=135),
        at=900,
    ),
    "a batch hangs in Python, and no job is active",
    query_stalled(in_a_pool(until=170, running=0, active=0)),
    "a batch hangs, and one task that may be its own runs: its job names no query",
    query_stalled_warning(counted(until=170)),
    "a batch hangs for ten minutes, and one task that may be its own runs",
    query_stalled(counted(until=706)),
    "a batch hangs in its own task while jobs that name no query progress",
    query_stalled(counted(until=706, active=1, unowned=True)),
    "one task of its own runs for 75 s while jobs that name no query progress",
    query_stalled_warning(counted(until=175, active=1, unowned=True)),
    "a batch works in a thread pool, within the window",
    running(counted(until=150, unowned=True)),
    "a first batch works in a thread pool for a long time",
    starting(counted(Story(), until=590, unowned=True), at=600),
    "the jobs of a first batch progress for a long time",
    starting(counted(Story(), until=590, own=True, active=1), at=600),
    # Spark Connect shows no jobs
    "a batch is in flight on Spark Connect, within the window",
    running(on_connect(until=160)),
    "a batch is in flight on Spark Connect for longer than the window",
    query_stalled_warning(on_connect(until=695)),
    "a batch is in flight on Spark Connect for ten minutes",
    query_stalled(on_connect(until=706)),
    "a batch is in flight on Spark Connect for ten minutes, and more are allowed",
    query_stalled_warning(on_connect(until=895), stall_critical_seconds=800.0),
    "a query on Spark Connect asks its source for its offsets for longer than the window",
    query_stalled(on_connect(until=170, message="Getting offsets from K")),
    # the trigger's interval does not count once the batch has begun
    "a batch hangs under a ten-minute trigger",
    query_stalled(triggered(begins=610, until=680)),
    "a batch under a ten-minute trigger, within its window",
    running(triggered(begins=610, until=665)),
    "waits for its ten-minute trigger",
    running(triggered(begins=1700, until=1000), at=1000),
    "its ten-minute trigger is late",
    running(triggered(begins=1700, until=1000), at=1700),
    "its ten-minute trigger does not fire for half an hour",
    query_stalled(triggered(begins=1850, until=1000), at=1850),
    "the JVM does not answer while a batch under a ten-minute trigger is in flight",
    running(triggered(begins=610, until=615), at=700),
    "a batch in flight, window not over",
    running(hung_batch(until=160)),
    "a huge first batch whose tasks finish",
    starting(Story().works(batch=0, tasks=0, at=0).works(batch=0, tasks=5, at=590), at=600),
    "the first batch within the start grace",
    starting(watched(Story(), (0, 115, processing(batch=0))), at=118),
    "Continuous: it has no batches, and its log is not read",
    starting(watched(Story(), (0, 900, run(busy=True, **CONTINUOUS)))),
    "RealTime commits once in a long batch",
    running(watched(committed_in_real_time(300), (301, 1190, processing(batch=1, **REAL_TIME)))),
    "the application has stopped its SparkContext",
    stopped(hung_batch(until=150).probe(processing(batch=10), at=151, context=STOPPED), at=300),
    "a stalled query commits again",
    running(hung_batch(until=170).commit(batch=10, at=171), at=172),
    "frozen while the batch was in flight",
    running(hung_batch(until=130).paused(at=600, seconds=465).works(batch=10, at=601)),
    "Continuous: the log's epochs stop",
    query_stalled(epochs(until=300, log_until=200)),
    "Continuous: epochs go on",
    running(epochs(until=900, log_until=900)),
    "Continuous: the log has not been read for a while, which proves no stall",
    running(epochs(until=200, log_until=200).seen(busy=True, at=299, **CONTINUOUS), at=300),
    "Continuous: its first epoch within the start grace",
    starting(epochs(until=100, log_until=0)),
    "async tracking: the log does not advance while batches run",
    query_stalled(asynchronous(until=180, log_until=100)),
    "async tracking: the log was never written while batches run",
    query_stalled(asynchronous(until=180, log_until=100, empty=True)),
    "async tracking: a long batch whose tasks finish, and no log is written meanwhile",
    batch_slow(asynchronous_and_slow(until=260)),
    "async tracking: the log follows, always a little behind",
    running(asynchronous(until=600, log_until=600)),
    "async tracking: idle, the last batches are never written (facts of Spark: asyncProgressTracking)",
    idle(idle_since_206()),
    "async tracking: the log has not advanced, but not for the window yet",
    running(asynchronous(until=150, log_until=100)),
    "async tracking: the log has not been read for a while, which proves no stall",
    running(asynchronous(until=130, log_until=80), at=150),
    "async tracking: the log does not advance, and Spark blocks because its writer's queue is full",
    query_stalled(asynchronous(until=240, log_until=100, batches_until=160, idle=False)),
    "async tracking: the log is written every minute (asyncProgressTrackingCheckpointIntervalMs)",
    running(asynchronous(until=180, log_until=100, interval=60.0)),
    "async tracking: the first batch after long idleness, its log not read again yet",
    running(idle_since_206().commit(batch=999, at=601), at=602),
    "the commit log proves commits that neither events nor the probe report",
    running(
        steady().log(at=101, planned=10, committed=9).log(at=150, planned=14, committed=13), at=205
    ),
    "a restored checkpoint: the next run commits lower batch ids",
    running(
        steady().ended(at=101).started(at=102).commit(batch=3, at=150).commit(batch=4, at=220),
        at=230,
    ),
    "a restored checkpoint, seen by the probe only",
    running(
        next_run((105, 150, of_run_2(4)), (155, 180, of_run_2(5)), (185, 205, of_run_2(6))), at=210
    ),
    "a run has initialised again: its batch id proves no commit",
    query_stalled(
        next_run(
            (105, 150, run(number=2, message="Initializing sources", batch=-1)),
            (155, 460, of_run_2(10)),
        )
    ),
)


DAY_AND_NIGHT = (*[60] * 1400, 2400)
"""Batches of a minute, and one of forty minutes each night."""


@later
def then_hangs(*seconds, after, **fields):
    """After batches of these lengths the next one hangs, for ``after`` seconds."""
    story = batches(*seconds, **fields)
    at = story.ends_at
    hangs = processing(batch=len(seconds))
    return watched(story, (int(at) + 1, int(at + after), hangs)).until(at + after)


@later
def then_works(*seconds, after):
    """After batches of these lengths, tasks of the next one finish all the time."""
    story = batches(*seconds)
    at = story.ends_at
    seen = lambda number, _: processing(batch=len(seconds), own=JobCounts(4, 1, number, 1))
    return polled(seen, since=at + 1, until=at + after, story=story)


@later
def after_long_batches(seconds, *, python=0.0, driver=0.0, line="", own=None):
    """Catches up in two batches of twenty minutes; then a batch is in flight for ``seconds``."""
    story = batches(1200, 1200, *[10] * 10)
    at = story.ends_at

    def seen(number, _):
        used = None if python is None else number * python
        jobs = own or JobCounts(4)
        return processing(batch=12, line=line, own=jobs, python_cpu=used, jvm_cpu=number * driver)

    return polled(seen, since=at, until=at + seconds, story=story)


def as_its_checkpoint_says(usual):
    return Story().started(at=0).began(at=1, usual=usual)


def restarted():
    return batches(120, 120).ended(at=241).started(run=2, at=242).idle(run=2, at=250)


def stepped_forward():
    """The driver's clock stepped by thirty hours in two batches."""
    story = Story().started(at=-99).commit(batch=90, at=-20, seconds=108_000.0)
    return story.commit(batch=91, at=-10, seconds=108_000.0)


def stepped_back():
    return Story().started(at=-9).commit(batch=90, at=-1, seconds=-3600.0)


WINDOW = table(
    # the window: three times the second longest batch of the last 49 hours
    "hangs after a first batch of two hours and two of ten seconds",
    query_stalled(then_hangs(7200, 10, 10, after=70)),
    "hangs after a first batch of two hours",
    query_stalled(then_hangs(7200, after=306)),
    "its second batch is shorter than the start grace, after a first one of two hours",
    running(then_hangs(7200, after=295)),
    "the second of its tenth batches takes 40 s among batches of 1 s",
    query_stalled(then_hangs(*[1] * 9, 40, *[1] * 9, after=30), stall_floor_seconds=15.0),
    "the third of its tenth batches takes 40 s",
    running(then_hangs(*[*[1] * 9, 40] * 2, *[1] * 9, after=40), stall_floor_seconds=15.0),
    "the twentieth of its tenth batches takes 40 s",
    running(then_hangs(*[*[1] * 9, 40] * 19, *[1] * 9, after=110), stall_floor_seconds=15.0),
    "every fiftieth batch runs OPTIMIZE, for the third time",
    running(then_hangs(*[*[20] * 49, 700] * 2, *[20] * 49, after=2000)),
    "hangs where every fiftieth batch runs OPTIMIZE",
    query_stalled(then_hangs(*[*[20] * 49, 700] * 2, *[20] * 49, after=2120)),
    "hangs after long batches, and its thread uses no CPU time",
    query_stalled(after_long_batches(605)),
    "hangs after long batches, and its thread uses no CPU time for ten minutes",
    running(after_long_batches(595)),
    "hangs after long batches where fifteen minutes are allowed",
    running(after_long_batches(895), stall_critical_seconds=900.0),
    "works in the driver after long batches",
    running(after_long_batches(3500, driver=0.01)),
    "tries again in the driver after long batches",
    running(after_long_batches(3500, driver=0.0003)),
    "tries again in the driver after long batches, for longer than the window",
    query_stalled(after_long_batches(3605, driver=0.0003)),
    "works in Python after long batches",
    running(after_long_batches(3500, python=0.01, line="/jobs/sync.py:12 in f")),
    "is blocked in Python after long batches",
    query_stalled(after_long_batches(605, line="/jobs/sync.py:12 in f")),
    "is in Python after long batches, and its CPU time is not known",
    running(after_long_batches(3500, python=None, line="/jobs/sync.py:12 in f")),
    "its job runs after long batches",
    running(after_long_batches(3500, own=JobCounts(4, 1, 40, 1))),
    "hangs after two outages of hours, as its checkpoint says",
    query_stalled(
        working(
            story=as_its_checkpoint_says(1800.0).idle(at=5), since=6, until=611, line="", batch=0
        )
    ),
    "two batches took twenty minutes, two days and two hours ago",
    query_stalled(then_hangs(1200, 1200, *[60] * 3000, after=190)),
    "two batches took twenty minutes, two days ago",
    running(then_hangs(1200, 1200, *[60] * 2850, after=3500)),
    "the second night with a batch of forty minutes",
    batch_slow_critical(then_works(*DAY_AND_NIGHT, *[60] * 1400, after=2390)),
    "the third night with a batch of forty minutes",
    running(then_works(*DAY_AND_NIGHT * 2, *[60] * 1400, after=2390)),
    "the third night, and the batch comes an hour late",
    running(then_works(*DAY_AND_NIGHT * 2, *[60] * 1459, after=2390)),
    "the third night, and the batch takes three times as long",
    batch_slow_critical(then_works(*DAY_AND_NIGHT * 2, *[60] * 1400, after=7210)),
    "a query whose batches take two minutes was restarted in this process",
    running(watched(restarted(), (251, 600, processing(number=2, batch=2)))),
    "batches of an hourly trigger take ten minutes, as its checkpoint says",
    starting(
        watched(as_its_checkpoint_says(600.0), (2, 1790, processing(batch=7, trigger=HOURLY))),
        at=1795,
    ),
    "the driver's clock stepped by 30 hours in two batches",
    query_stalled(then_hangs(10, 10, after=70, story=stepped_forward())),
    "the driver's clock stepped back: a batch of less than no time",
    running(then_hangs(10, after=55, story=stepped_back())),
)

CONTINUOUS_B = run(
    "b",
    trigger="ContinuousTrigger(1000)",
    message="Running",
    busy=True,
    own=JobCounts(1, 1, 0, 4),
)
HELD = ("StreamingBatchSlow", "b", "warning")
HELD_CRITICAL = ("StreamingBatchSlow", "b", "critical")
WAITS = ("StreamingQueryStalled", "a", "warning")
all_wait = alert(
    WAITS,
    ("StreamingQueryStalled", "c", "warning"),
    ("StreamingQueryStalled", "d", "warning"),
    state="stalled",
)
held_by_b = alert(HELD, state="stalled", besides=["StreamingQueryStalled"])
held_by_b_critical = alert(HELD_CRITICAL, state="stalled", besides=["StreamingQueryStalled"])

SLOTS = table(
    # one query holds the slots that others wait for; b has long batches without being slow
    "three queries wait for the slots of a neighbour, within the window",
    running(many_behind_b("a", "c", "d", until=155), **LONG_B),
    "three queries waited for the slots of a neighbour that held them for a short time",
    running(many_behind_b("a", "c", "d", until=158, held_until=140), **LONG_B),
    "three queries waited for the slots of one that has just ended",
    running(many_behind_b("a", "c", "d", until=180, ends_at=178), **LONG_B),
    "three queries wait for the slots of one that ended a window ago, and whose tasks go on",
    alert(
        ("StreamingQueryStopped", "b"),
        WAITS,
        ("StreamingQueryStalled", "c", "warning"),
        ("StreamingQueryStalled", "d", "warning"),
        state="stalled",
    )(many_behind_b("a", "c", "d", until=240, ends_at=178), **LONG_B),
    "three queries wait for the slots of jobs that name no query",
    all_wait(many_behind_b("a", "c", "d", until=180, holder="nobody"), **LONG_B),
    "two queries wait for the slots of one",
    alert(WAITS, ("StreamingQueryStalled", "c", "warning"), state="stalled")(
        many_behind_b("a", "c", until=180), **LONG_B
    ),
    "three queries wait for the slots of one that the settings ignore",
    all_wait(many_behind_b("a", "c", "d", until=180), **limits("b", ignore=True)),
    "three queries wait for the slots of one, and one of these was stopped and still runs",
    alert(WAITS, HELD, state="stalled")(
        many_behind_b("a", "c", "d", until=180, stopping=["a"]), **LONG_B
    ),
    "three queries wait for slots that two others hold in turns, of seconds each",
    all_wait(behind_two(until=181, turn=5), **LONG_BE),
    "three queries wait for slots that two others hold in turns, of half a minute each",
    held_by_b(behind_two(until=181, turn=30), **LONG_BE),
    "two queries wait for the slots of one, and a third at every other poll",
    alert(WAITS, ("StreamingQueryStalled", "c", "warning"), state="stalled")(
        behind_b_in_between(until=181), **LONG_B
    ),
    "three queries wait for the slots of one",
    held_by_b(many_behind_b("a", "c", "d", until=180), **LONG_B),
    "ten queries wait for the slots of a continuous one",
    held_by_b(many_behind_b("a", *"cdefghijk", until=180, seen_b=CONTINUOUS_B), **LONG_B),
    "three queries wait for the slots of one whose batches commit (a backfill)",
    held_by_b(many_behind_b("a", "c", "d", until=180, every=20), **LONG_B),
    "three queries wait for the slots of one for almost half an hour",
    held_by_b(many_behind_b("a", "c", "d", until=1880), **LONG_B),
    "three queries wait for the slots of one for half an hour",
    held_by_b_critical(many_behind_b("a", "c", "d", until=1920), **LONG_B),
    "three queries wait for the slots of a continuous one for half an hour",
    held_by_b_critical(many_behind_b("a", "c", "d", until=1920, seen_b=CONTINUOUS_B), **LONG_B),
    "three queries wait for the slots of one that is slow itself",
    held_by_b(many_behind_b("a", "c", "d", until=180)),
)

CASES = joined(STALLED, WINDOW, SLOTS)
