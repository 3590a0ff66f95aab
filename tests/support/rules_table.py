"""The rules table: stories on a fake clock, and the one correct result of each.

A row is a ``Case``: what happened; the story; the moment; settings; the alerts (the name of an alert
of query ``a``, or pairs of alert and query, with the severity where it is not the usual one); the
state of ``a``; and rules that also hold but are not reported.
Default limits: floor 60 s, start grace 300 s, gone grace 60 s, stalls critical after 600 s, slow batches
after 1800 s, trend window 300 s,
restart budget 3 in 600 s. A false alarm that users of another monitor reported names its source.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from support.reading import OTHER, TEMPORARY, Reads, TableReads, read_to, table_read_to
from support.story import CONFLICT, IdStory, Story, processing, progress, run, source
from support.story import polled as polled_run

from querypulse.listener.commit_log import LogReport, SinkLog
from querypulse.listener.failure import SESSION_ENDED
from querypulse.listener.mailbox import ProgramEnd
from querypulse.listener.probe_report import Context, JobCounts, SchedulerLoop, SlotUse

WARNINGS = frozenset({
    "StreamingDataLossRisk", "StreamingOffsetsRewound", "StreamingBatchSlow", "StreamingQueryLagging",
    "StreamingQueryFallingBehind", "StreamingWatermarkStuck", "StreamingRowsDropped",
    "StreamingInputMissing", "QuerypulseEventsMissing", "QuerypulseMonitoringDegraded",
})  # fmt: skip
"""Alerts that are usually warnings; the others are usually critical."""
FAILED_MILDLY = [("StreamingQueryFailed", "a", "warning")]
STALLED_MILDLY = [("StreamingQueryStalled", "a", "warning")]
SLOW_FOR_LONG = [("StreamingBatchSlow", "a", "critical")]
STOPPED = Context.STOPPED_BY_APPLICATION
EVOLVES = (
    "org.apache.spark.sql.catalyst.util.UnknownFieldException: "
    "[UNKNOWN_FIELD_EXCEPTION.NEW_FIELDS_IN_RECORD_WITH_FILE_PATH] Encountered unknown fields"
)
DAY_AND_NIGHT = (*[60] * 1400, 2400)
"""Batches of a minute, and one of forty minutes each night."""
LONG_B = {"overrides": [("b", {"stall_floor_seconds": 7200.0})]}
EXPECTED = {"expected_errors": ["UNKNOWN_FIELD_EXCEPTION*"]}
JVM_GONE = Context.JVM_GONE
ONCE = "OneTimeTrigger"
AVAILABLE_NOW = "AvailableNowTrigger"
HOURLY = "ProcessingTimeTrigger(3600000)"
MINUTELY = "ProcessingTimeTrigger(60000)"
AT_ONCE = "ProcessingTimeTrigger(0)"
GROWING = range(45, 265, 10)
"""Twenty-two batches, the first two of which are no longer than a minute."""
NIGHT_AND_NOON = (*[70] * 600, *[280] * 158)
"""Batches of a day that always outlast a trigger of a minute."""
LONGER_RUNS = (75, 100, 131, 170, 219, 280, 356, 452, 571, 600, 620)
TEN_MINUTES = "ProcessingTimeTrigger(600000)"
SESSION_CLOSED = (
    "the Spark Connect server has closed the session (it expired, or was released elsewhere)"
)
SCRIPT_ENDED = ProgramEnd("the main program ended")
SCRIPT_FAILED = ProgramEnd(
    "the main program ended with ValueError: negative amount", has_failed=True
)
SCRIPT_WAS_INFORMED = ProgramEnd("the main program ended", is_explained=True)
SCRIPT_MAY_END = ProgramEnd("the main program ended", may_be_meant=True)
CUT_OFF = ("StreamingQueryStopped", "*")
CUT_OFF_MILDLY = [("StreamingQueryStopped", "*", "warning")]
SHUTDOWN = "org.apache.spark.SparkException: Job 1 cancelled because SparkContext was shut down"


def steady(story=None, *, until=100):
    """Query a commits every 10 s up to ``until``; its events arrive."""
    story = story or Story().started(at=0)
    for number, at in enumerate(range(10, until + 1, 10)):
        story.commit(batch=number, at=at)
    return story


def watched(story, *polls, **how):
    """The probe polls every 5 s: (from, to, run)."""
    for begin, end, seen in polls:
        for at in range(begin, end + 1, 5):
            story.probe(seen, at=at, **how)
    return story


def hung_batch(*, until, tasks=None, batch=10):
    return watched(steady(), (101, until, processing(batch=batch, tasks=tasks)))


def polled(seen, *, until, since=101, story=None, every=5):
    """Polls of query a: ``seen`` gives its run, by the number and the time of the poll."""
    story = story or steady()
    for number, at in enumerate(range(since, until + 1, every)):
        story.probe(seen(number, at), at=at)
    return story


def counted(story=None, *, until, own=False, active=0, unowned=False):
    """Batch 10 from 101 s on; its own tasks, or those of jobs that name no query, may finish."""

    def seen(number, _):
        jobs = JobCounts(4, active, number if own else 0, active)
        others = JobCounts(9, 1, number if unowned else 0, 1)
        return processing(batch=10, own=jobs, unowned=others)

    return polled(seen, until=until, story=story)


IN_FLIGHT = {"message": "Processing new data", "busy": True, "data": True, "batch": 10}


def working(
    *,
    until,
    python=0.0,
    driver=0.0,
    line="/jobs/sync.py:12 in call_api",
    story=None,
    since=101,
    every=5,
    **fields,
):
    """Batch 10 has no job; its threads use this many seconds of CPU time from poll to poll."""

    def seen(number, _):
        used = {"python_cpu": number * python, "jvm_cpu": number * driver, "line": line}
        return run(**{**IN_FLIGHT, "own": JobCounts(4), **used, **fields})

    return polled(seen, until=until, since=since, story=story, every=every)


def trying(*, until, driver=0.0003, **how):
    """Spark's own thread uses a little CPU time from poll to poll: by default as for a lock."""
    return working(until=until, driver=driver, line="", **how)


def listing(*, until, driver=0.01, since=0, **seen):
    """The query asks its source for offsets for the first time, such as the files of a folder."""
    asks = {"message": "Getting offsets from FileStreamSource", "batch": -1, "line": ""}
    return working(story=Story(), until=until, since=since, driver=driver, **{**asks, **seen})


def batches(*seconds, story=None, begin=0, query="a"):
    """A query commits batches of these lengths, one after another; returns the time too."""
    story, at = story or Story().started(at=begin), begin
    for number, taken in enumerate(seconds):
        at += taken
        story.commit(query, batch=number, at=at, seconds=taken)
    return story, at


def then_hangs(*seconds, after, **fields):
    """After batches of these lengths the next one hangs: the story, and ``after`` seconds of it."""
    story, at = batches(*seconds, **fields)
    hangs = processing(batch=len(seconds))
    return watched(story, (int(at) + 1, int(at + after), hangs)), at + after


def then_works(*seconds, after):
    """After batches of these lengths, tasks of the next one finish all the time."""
    story, at = batches(*seconds)
    seen = lambda number, _: processing(batch=len(seconds), own=JobCounts(4, 1, number, 1))
    return polled(seen, since=at + 1, until=at + after, story=story), at + after


def after_long_batches(seconds, *, python=0.0, driver=0.0, line="", own=None):
    """Catches up in two batches of twenty minutes; then a batch is in flight for ``seconds``."""
    story, at = batches(1200, 1200, *[10] * 10)

    def seen(number, _):
        used = None if python is None else number * python
        jobs = own or JobCounts(4)
        return processing(batch=12, line=line, own=jobs, python_cpu=used, jvm_cpu=number * driver)

    return polled(seen, since=at, until=at + seconds, story=story), at + seconds


def behind_b(*, until, every=10_000):
    """The job of batch 10 waits for the slots that query b holds, whose batches take ``every`` s."""
    story = steady().started("b", at=0).commit("b", batch=0, at=99)
    own, slots = JobCounts(4, 1, 40, 0), SlotUse(4, 4, "id-b", 3)
    for at in range(101, until + 1, 5):
        holds = JobCounts(4, 1, at, 4)
        batch = 1 + (at - 101) // every
        if batch > 1 and (at - 101) % every < 5:
            story.commit("b", batch=batch - 1, at=at)
        story.probe(
            processing(batch=10, own=own, slots=slots),
            processing("b", batch=batch, own=holds),
            at=at,
        )
    return story


def one_task(*, since=101, until, story=None, running=1, active=1, slots=None, **fields):
    """A batch (10 by default) whose own job has ``running`` running tasks; none of them finishes."""
    own = JobCounts(4, active, 40, running)
    seen = processing(**{"batch": 10, **fields}, own=own, slots=slots)
    return watched(story or steady(), (since, until, seen))


def no_slot(*, until, taken=4, story=None):
    """The job of batch 10 has no running task; query b holds three slots, others hold the rest."""
    slots = SlotUse(4, taken, "id-b", min(taken, 3))
    return one_task(until=until, story=story, running=0, slots=slots)


def no_executor(*, until, **fields):
    return one_task(until=until, running=0, slots=SlotUse(0), **fields)


def then_equipped(*, bare_until, until, finishing=False, story=None):
    """Batch 10 waits for executors until ``bare_until``; then one task runs, or many finish."""
    story = story or no_executor(until=bare_until)
    for at in range(bare_until + 1, until + 1):
        tasks = 40 + (at if finishing else 0)
        story.probe(processing(batch=10, own=JobCounts(5, 1, tasks, 1), slots=SlotUse(4, 1)), at=at)
    return story


def on_connect(*, until, **seen):
    """Batch 10 is in flight on Spark Connect, where nothing counts its jobs."""
    seen = processing(batch=10, trigger="Unknown") if not seen else run(busy=True, **seen)
    return watched(steady(), (101, until, seen), missing=("jobs",))


def in_a_pool(*, until, running, active=1):
    """Batch 10 has no job of its own; a job that names no query has running tasks."""
    unowned = JobCounts(9, active, 7, running)
    return watched(steady(), (101, until, processing(batch=10, own=JobCounts(4), unowned=unowned)))


def then_nothing(*, delayed_until, until):
    """A task of batch 10 runs until ``delayed_until``; after that the query does nothing."""
    story = one_task(until=delayed_until)
    nothing = processing(batch=10, own=JobCounts(4, 0, 40, 0))
    return watched(story, (delayed_until + 5, until, nothing))


def triggered(*, begins, until, **fields):
    """Commits at 10 s and waits for its ten-minute trigger; then its batch is in flight."""
    waiting = run(trigger=TEN_MINUTES, message="Waiting for next trigger", data=True, batch=1)
    story = watched(Story().started(at=0).commit(batch=0, at=10), (15, begins - 5, waiting))
    return watched(story, (begins, until, processing(trigger=TEN_MINUTES, batch=1, **fields)))


def live_locked(*, until, first=False, usual=2, jobs=5, since=101, run_number=1, story=None):
    """Batch 10 starts ``jobs`` jobs per poll and never commits; others take ``usual`` jobs."""

    def seen(number, _):
        own = JobCounts(usual * 10 + number * jobs, 1, 40 + number * jobs, 1)
        return processing(number=run_number, batch=10, own=own)

    story = Story().started(at=0) if first else story
    return polled(seen, until=until, since=since, story=story)


def busy_batch(*, until):
    """A batch of which five tasks finish per poll."""
    return polled(lambda number, _: processing(batch=10, tasks=number * 5), until=until)


def kafka(*ends, latest, every=10, first=10, batch=0, story=None, rows=10, **fields):
    """Query a commits one batch after another, ending at ``ends``; ``latest`` per batch or for all."""
    story = story or Story().started(at=0)
    for number, end in enumerate(ends):
        newest = latest[number] if isinstance(latest, list) else latest
        at = first + number * every
        story.commit(
            batch=batch + number, at=at, sources=(source(end, newest, rows=rows),), **fields
        )
    return story


def topic(*offsets):
    return {"t": {str(partition): offset for partition, offset in enumerate(offsets)}}


def with_b():
    """Query b runs beside a."""
    return steady(Story().started(at=0).started("b", at=0).commit("b", batch=0, at=99))


def both_until(at):
    """Queries a and b run; the probe sees them for the last time."""
    return with_b().probe(run(batch=10), run("b"), at=at)


ENDED = SchedulerLoop(alive=False)
BLOCKED = SchedulerLoop(waits_seconds=69.0)


def both_hang(*, until, scheduler, b=None, **fields):
    """Batch 10 of a and a batch of b are in flight from 101 s on; Spark's scheduler is as given."""
    runs = processing(batch=10, **fields), b or processing("b", batch=1)
    story = with_b()
    for at in range(101, until + 1, 5):
        story.probe(*runs, at=at, scheduler=scheduler)
    return story


def three_queries():
    """Queries a, b and c run; the probe sees them at 100 s."""
    story = steady()
    for other in "bc":
        story.started(other, at=0).commit(other, batch=0, at=90)
    return story.probe(run(batch=10), run("b"), run("c"), at=100)


def lost(query="a", **fields):
    """The last poll of a run that has ended with its Spark Connect session."""
    return run(query, active=False, exception=SESSION_CLOSED, error_class=SESSION_ENDED, **fields)


def session_ended(story, *runs, at=101):
    """The session ends without the job's wish; ``runs`` ended with it, or shortly before."""
    return story.probe(*runs, at=at, context=Context.SESSION_ENDED)


def lagging(*lags, every=60, rows=10, **fields):
    """Query a commits every minute, with these lags."""
    ends = range(0, 1000 * len(lags), 1000)
    latest = [topic(end + lag) for end, lag in zip(ends, lags, strict=True)]
    return kafka(*map(topic, ends), latest=latest, every=every, input_rows=rows, **fields)


def reporting(unit, *figures, every=60, kafka="", unread=0, story=None):
    """Query a commits every minute; its source reports its own backlog, and no latest offset.

    With ``kafka`` it joins a topic of which ``unread`` records are always unread, as Spark
    ("reported") or the broker ("polled") says.
    """
    story = story or Story().started(at=0)
    for number, figure in enumerate(figures):
        at, end = 10 + number * every, 10 * number
        behind = source({"seqNum": number, "path": "/in"}, None, **{unit: figure})
        first = (source(topic(end), topic(end + unread)),) if kafka else ()
        if kafka == "polled":
            story.ask(at=at - 1, committed=end, latest=end + unread)
        story.commit(batch=number, at=at, sources=(*first, behind))
    return story


def looping(*lags, every=60, lasts=5, rows=10, batches=1, reads=1000, files=False):
    """Query a runs for five seconds of each minute (availableNow), with these lags after each run.

    Each of its ``batches`` in a run halves the lag that it found, and the run ``reads`` so many
    offsets. With ``files`` its source reports files instead.
    """
    story, number = Story(), 0
    for count, lag in enumerate(lags, 1):
        began = (count - 1) * every
        story.started(run=count, at=began)
        story.probe(run(number=count, trigger=AVAILABLE_NOW, batch=number), at=began + 1)
        for left in range(batches - 1, -1, -1):
            end, unread = number * reads // batches, lag * 2**left
            seen = source(topic(end), topic(end + unread), rows=rows)
            if files:
                seen = source({"seqNum": number, "path": "/in"}, rows=rows, backlog_files=unread)
            at = began + lasts - 1 - left / 2
            story.commit(run=count, batch=number, at=at, sources=(seen,), input_rows=rows)
            number += 1
        story.ended(run=count, at=began + lasts)
    return story


def runs_of(*lengths, rest=5, every=0, batches=1, fails=(), goes_on=False):
    """Query a runs for these seconds (availableNow), again and again, with a rest between.

    With ``every`` its runs begin so many seconds apart. The runs ``fails`` end with an exception.
    If it ``goes_on``, another run has begun.
    """
    story, at, number = Story(), 0, 0
    for count, seconds in enumerate(lengths, 1):
        began = at if not every else (count - 1) * every
        story.started(run=count, at=began)
        story.probe(run(number=count, trigger=AVAILABLE_NOW, batch=number), at=began + 1)
        for part in range(1, batches + 1):
            at = began + part * seconds / batches
            story.commit(run=count, batch=number, at=at, seconds=seconds / batches)
            number += 1
        story.ended(run=count, at=at, exception=CONFLICT if count in fails else None)
        at += rest
    if goes_on:
        story.started(run=count + 1, at=at)
        story.probe(run(number=count + 1, trigger=AVAILABLE_NOW, batch=number), at=at + 1)
    return story


def batches_of(*lengths, trigger=MINUTELY, at=0, lags=()):
    """Query a commits batches of these lengths in seconds, each when the trigger or the last is due.

    ``lags`` is what each of them leaves unread; not known by default.
    """
    story = Story().started(at=at)
    for number, seconds in enumerate(lengths):
        story.probe(run(trigger=trigger, batch=number), at=at)
        at += seconds
        behind = lags[number : number + 1]
        sources = tuple(source(topic(number), topic(number + lag)) for lag in behind)
        story.commit(batch=number, at=at, seconds=seconds, sources=sources)
        at += 0 if trigger != MINUTELY else max(0, 60 - seconds)
    return story


def snapshots(count):
    """The end offsets of batches on an Iceberg table, a snapshot each."""
    return [{"version": 1, "snapshot_id": 7 + number, "position": 1} for number in range(count)]


def transacted(*, stable, log_end, until=400, **polls):
    """An idle read_committed query whose broker is polled every 15 s."""
    idle = steady().idle(at=until)
    return asked(idle, 15, until, committed=stable, latest=stable, log_end=log_end, **polls)


def bursts(rows):
    """The end offset where so many rows arrive in the first minute of each ten."""
    return lambda t: rows * (t // 600) + rows * min(t % 600, 60) / 60


def topic_deleted(*, until):
    """Query a reads two topics; one is deleted, then the other one grows faster than it is read."""
    story = Story().started(at=0)
    for number, at in enumerate(range(20, until, 20), 1):
        committed, latest = {"new/0": 1000 * number}, {"new/0": 1000 * number}
        if number < 30:
            committed["old/0"] = latest["old/0"] = 10**9
        else:
            latest["new/0"] += 3000 * (number - 30)
        story.commit(batch=number, at=at).ask(at=at + 1, committed=committed, latest=latest)
    return story


def at_broker(latest, committed, *, seconds=420, poll_every=15, asked_until=9999, spark_says=0):
    """Query a commits every minute; its broker is polled more often.

    ``latest`` and ``committed`` give the end and the committed offset at a time. The lag that Spark
    itself reports grows by ``spark_says`` each second.
    """
    story = Story().started(at=0)
    commits = [(float(at), "commit") for at in range(10, seconds, 60)]
    polls = [
        (at, "poll")
        for n in range(seconds)
        if (at := 11 + n * poll_every) < min(seconds, asked_until)
    ]
    done = None
    for number, (at, what) in enumerate(sorted(commits + polls)):
        if what == "poll":
            if done is not None:
                story.ask(at=at, committed=done, latest=int(latest(at)))
            continue
        done = int(committed(at))
        behind = source(topic(done), topic(done + int(spark_says * at)))
        story.commit(batch=number, at=at, sources=(behind,))
    return story


def watermarks(
    *marks,
    newest=None,
    clock=None,
    late=0,
    state=None,
    every=60,
    rows=(10,),
    first=10,
    loops=False,
    lost=None,
):
    """Query a commits every minute: one watermark per batch, a number of rows per source.

    ``newest`` is the newest event time, ``clock`` Spark's clock and ``late`` the rows dropped, of all
    batches or by batch, as ``rows`` is. If it ``loops``, each batch has a run of its own (availableNow).
    The event of the batch ``lost`` does not arrive.
    """
    story = Story() if loops else Story().started(at=0)
    for number, mark in enumerate(marks):
        if number == lost:
            continue
        run_number, began = 1 + number * loops, first + number * every - 3
        if loops:
            finite = run(number=run_number, trigger=AVAILABLE_NOW, batch=number)
            story.started(run=run_number, at=began).probe(finite, at=began + 1)
        counts = rows[number] if isinstance(rows, list) else rows
        fed = tuple(source(number, None, rows=count) for count in counts)
        said = {"event_time_max": newest, "timestamp": clock, "late_rows": late}
        story.commit(
            run=run_number,
            batch=number,
            at=first + number * every,
            watermark_timestamp=mark,
            sources=fed,
            input_rows=sum(counts),
            state_rows=state,
            **{
                name: value[number] if isinstance(value, list) else value
                for name, value in said.items()
            },
        )
        if loops:
            story.ended(run=run_number, at=began + 4)
    return story


def of_the_hour(until, *, since=0, late=1800, ends=2**40, idles=2**40):
    """Event times of the hour of two sources, each five minutes; the second is ``late``.

    From ``ends`` on its event times are the same, from ``idles`` on it has no rows.
    """
    times, year = range(since, until, 300), 3600 * 300_000
    second = [year + (min(at, ends, idles) - late) // 3600 * 3600 for at in times]
    return watermarks(
        *(event_time - 600.0 for event_time in (second[0], *second[:-1])),
        newest=[year + at // 3600 * 3600.0 for at in times],
        rows=[(10, 10 * (at < idles)) for at in times],
        every=300,
    )


def dying(*times, batch=None, alive_after=False):
    """Query a fails at each time, always in ``batch`` or after a commit, and restarts."""
    story = Story()
    for number, at in enumerate(times, 1):
        story.started(run=number, at=at - 8)
        if batch is None:
            story.commit(run=number, batch=number, at=at - 5)
        else:
            story.probe(processing(number=number, batch=batch), at=at - 5)
        story.ended(run=number, at=at, exception=CONFLICT)
    if alive_after:
        number = len(times) + 1
        story.started(run=number, at=times[-1] + 2)
        story.commit(run=number, batch=number, at=times[-1] + 5)
    return story


def crash_loop(seconds, exception=EVOLVES):
    """A new process fails in the batch that an earlier one planned so many seconds ago."""
    story = Story().started(at=1).began(at=2, unfinished=(7, 20 - seconds), committed=(6, -seconds))
    return story.probe(processing(batch=7), at=5).ended(at=20, exception=exception)


def epochs(*, until, log_until, unreadable=False):
    """A Continuous query: the probe sees it run, its log gets an epoch per second."""
    story = Story()
    seen = run(trigger="ContinuousTrigger(1000)", message="Running", busy=True)
    for at in range(0, until + 1, 5):
        story.probe(seen, at=at)
        if unreadable:
            story.log(at=at, unreadable="FileNotFoundException")
        else:
            epoch = min(at, log_until)
            story.log(at=at, planned=epoch + 1, committed=epoch)
    return story


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
        story.probe(run(async_progress=True, log_interval=interval, **seen), at=at)
        if at % 6 == 0:
            committed = None if empty else min(at, log_until) // 2 - 1
            story.log(at=at, planned=None, committed=committed)
    return story


def asynchronous_and_slow(*, until):
    """Async progress tracking with a log that is rarely written; then a long batch."""
    story = asynchronous(until=160, log_until=100, interval=60.0)
    for number, at in enumerate(range(161, until + 1, 5)):
        seen = {"async_progress": True, "log_interval": 60.0}
        story.probe(processing(batch=81, tasks=number * 5, **seen), at=at)
        story.log(at=at, planned=None, committed=49)
    return story


def idle_with(end, latest):
    """The probe sees a waiting query and the offsets of its source."""
    waiting = progress(batch=10, committed=False, sources=(source(end, latest),))
    return watched(steady(), (101, 300, run(batch=10, idle_progress=waiting)))


def asked(story, begin, until, *, every=15, **says):
    """The broker is polled every 15 s; its answers may be functions of the time."""
    for at in range(begin, until + 1, every):
        reported = {name: said(at) if callable(said) else said for name, said in says.items()}
        story.ask(at=at, **reported)
    return story


def end(at):
    """The end offset of a topic that receives ten records per second."""
    return 100_000 + 10 * at


def edge(at):
    """The topic keeps a thousand seconds; retention deletes a hundred seconds at a time."""
    return end((at - 1000) // 100 * 100)


def reader(*, begins, speed=1.0, since=100):
    """The position of a query that began ``begins`` seconds behind: offset, time of the record."""

    def position(at):
        return min(at, since - begins + (at - since) * speed)

    return {"committed": lambda at: int(end(position(at))), "since": position}


STUCK = {"committed": end(100), "since": 100}
BY_TIME = {"latest": end, "earliest": edge, "keeps": 1000}
BY_SIZE = {"latest": end, "earliest": edge, "keeps": 604_800, "sized": True}
UNKNOWN_RETENTION = {"latest": end, "earliest": edge}
LAG_IS_FINE = {"lag_allowed_offsets": 1e9}
HEALTHY = {"committed": end, "since": None}


def near_the_edge(until, *, kept=BY_TIME, story=None, begin=15, **answers):
    """Polls of the broker of a query that stays where it was at 100 s by default."""
    return asked(story or hung_batch(until=until), begin, until, **{**kept, **STUCK, **answers})


def alive_at(until, *, behind, kept=BY_TIME, **how):
    """Polls of the broker of a query that commits and is ``behind`` seconds late at 100 s."""
    story = steady(until=until)
    return asked(story, 100, until, **{**kept, **reader(begins=behind, **how)})


def dead_at(until, **says):
    return near_the_edge(until, story=steady().ended(at=101, exception=CONFLICT), **says)


def restarted(*, read):
    """Dead for long, restarted at 900 s; its first batch reads all but the last minute."""
    story = dead_at(890).started(run=2, at=900)
    if not read:
        return near_the_edge(
            990, story=story.probe(processing(number=2, batch=10), at=985), run=2, begin=905
        )
    at_work = {"run": 2, "committed": lambda at: end(at - 60), "since": lambda at: at - 60}
    story.commit(run=2, batch=10, at=940).commit(run=2, batch=11, at=980)
    return asked(story, 945, 990, **BY_TIME, **at_work)


def delta(version, index=-1, table="r"):
    """The end offset of a batch that reads from Delta."""
    return {"reservoirId": table, "reservoirVersion": version, "index": index}


def on_table(*ends, reads, newest, trigger=None):
    """Query a commits a batch each 10 s from a Delta table, which is polled every 5 s."""
    story = Story().started(at=0)
    for number, end in enumerate(ends):
        at = 10 + number * 10
        if trigger is not None:
            story.probe(run(trigger=trigger, batch=number), at=at - 6)
        for poll in (at - 5, at):
            here, there = (
                value[number] if isinstance(value, list) else value for value in (reads, newest)
            )
            story.table(at=poll, read=here, end=there)
        story.commit(batch=number, at=at, sources=(source(end, rows=0),), input_rows=5)
    return story


def polled_at(story, *polls):
    """Polls of the Delta table of query a: (at, read, end)."""
    for at, read, end in polls:
        story.table(at=at, read=read, end=end)
    return story


def on_delta(story, until, *, begin=100, every=15, **answers):
    """Polls of the Delta table of query a; the answers may be functions of the time."""
    for at in range(begin, until + 1, every):
        story.table(
            at=at, **{name: said(at) if callable(said) else said for name, said in answers.items()}
        )
    return story


def unread_table(until, *, story=None, **answers):
    """The same of a query that hangs since 100 s, or of another: it leaves version 7 of 9 unread."""
    usual = {"read": 7, "kept_from": 7, "end": 10, "since": 100, "keeps": 1000}
    return on_delta(story or hung_batch(until=until), until, **{**usual, **answers})


def failed_reader():
    return steady().ended(at=101, exception=CONFLICT)


def unread(
    wait, *, seconds=900, every=30, written=None, ends=end, asked_until=9999, story=None, sources=()
):
    """Query a commits every 30 s; its broker is polled after each commit and in between.

    ``wait`` gives for a time how many seconds ago the first unread record arrived; ``written``
    gives another timestamp for that record.
    """
    story = story or Story().started(at=0)
    for batch, at in enumerate(range(10, seconds, every)):
        began = at - wait(at)
        said = began if written is None else written(at)
        story.commit(batch=batch, at=at, sources=sources(batch) if sources else ())
        for asked_at in (at + 1, at + 16):
            if asked_at < min(asked_until, seconds):
                story.ask(
                    at=asked_at, committed=int(ends(began)), latest=ends(asked_at), since=said
                )
    return story


def beside_transaction():
    """The first unread record of t/1 waits ever longer; one transaction of t/0 is open since 390 s."""
    story = Story().started(at=0)
    for batch in range(1, 790 // 15 + 1):
        at, stable = 15 * batch, 10 * min(batch, 26)
        story.commit(batch=batch, at=at).ask(
            at=at + 1,
            committed={"t/0": stable, "t/1": batch},
            latest={"t/0": stable, "t/1": 50 * batch},
            log_end={"t/0": 10 * batch + 5, "t/1": 50 * batch},
            since={"t/1": at / 50},
        )
    return story


def gone_back(batch):
    """The only source of a batch; batches after the first end below its end offset."""
    return (source(topic(900 if batch == 0 else batch), None),)


NEWER = [600.0 + 60 * number for number in range(9)]
SLOWLY = {"stall_floor_seconds": 400.0}
STEADY = [500.0 + 60 * number for number in range(8)]
EMPTY = {"latest": None, "rows": 0, "input_rows": 0}
INPUT = {"expected_input_seconds": 600.0}
ALLOWED = {"lag_allowed_offsets": 1e9, "lag_allowed_seconds": 60.0}
ALLOWED_200 = ALLOWED | {"lag_allowed_seconds": 200.0}
"""Ten minutes of lag are three times as much, and critical."""
FILES, HUDI, DELTA = "FileSink[file:/out]", "HoodieStreamingSink[/t]", "DeltaSink[file:/t]"
"""Sinks that remember batch ids: in a log of their own, in a table, by the id of the query."""
FED = {"description": "KafkaV2[Subscribe[fed]]"}
DRY = {"description": "KafkaV2[Subscribe[dry]]"}


def writing(sink=FILES, *, until=100, **log):
    """Query a writes to this sink, and at 2 s its log was read."""
    story = Story().started(at=0).probe(run(sink=sink), at=1)
    return steady(story.sink(at=2, **log) if log else story, until=until)


def restored(sink, *, batch=3, new_id=False, **log):
    """After batch 9 the next run, which may have a new query id, commits this batch."""
    story, query_id = IdStory(), "id-new" if new_id else "id"
    story.start("id", "run-1", "a", at=0).commits("id", "run-1", batch=9, at=50)
    story.probe(polled_run("id", "run-1", "a", sink=sink), at=55).ends("id", "run-1", at=60)
    story.start(query_id, "run-2", "a", at=61)
    story.probe(polled_run(query_id, "run-2", "a", sink=sink), at=62)
    if log:
        story.state.apply_commit_log(LogReport(63, sinks={"run-2": SinkLog(**log)}))
    return story.commits(query_id, "run-2", batch=batch, at=70)


def united(*dry, until=700, story=None, run=1, begin=10, first=0, **fields):
    """Each 10 s a batch has rows of one source; of the other one at the times ``dry``."""
    story = story or Story().started(at=0)
    for number, at in enumerate(range(begin, until + 1, 10)):
        rows = 10 if at in dry else 0
        sources = (
            source(topic(at), **FED),
            source(topic(sum(t <= at for t in dry)), rows=rows, **DRY),
        )
        story.commit(
            run=run,
            batch=first + number,
            at=at,
            sources=sources,
            **{"input_rows": 10 + rows, **fields},
        )
    return story


def over_restart(*dry, until):
    """The query of ``united`` is restarted at 301 s; the other source has rows at ``dry``."""
    story = united(*dry, until=300).ended(at=301, exception=CONFLICT).started(run=2, at=303)
    return united(*dry, until=until, story=story, run=2, begin=310, first=30)


def swapped(*, until=900):
    """After a restart at 450 s the sources come in another order; each has rows in one run only."""
    story = united(*range(10, 441, 10), until=440).ended(at=445).started(run=2, at=450)
    for number, at in enumerate(range(460, until + 1, 10)):
        sources = (source(topic(at), **DRY), source(topic(at), rows=10, **FED))
        story.commit(run=2, batch=44 + number, at=at, sources=sources, input_rows=20)
    return story


def uncounted(every=9999, *, until=700):
    """Two folders; Spark 3.5 counts rows only in the batches, ``every`` so often, that read both."""
    story, dry = Story().started(at=0), 0
    for number, at in enumerate(range(0, until + 1, 10)):
        reads_both = number % every == 0
        dry += reads_both
        rows = 10 if reads_both else 0
        sources = (
            source({"logOffset": number}, rows=rows, description="FileStreamSource[file:/fed]"),
            source({"logOffset": dry}, rows=rows, description="FileStreamSource[file:/dry]"),
        )
        story.commit(batch=number, at=at, sources=sources, input_rows=2 * rows)
    return story


def counting_nothing(*, until, moves=True):
    """One of two sources, whose rows Spark does not count; its offsets move."""
    story = Story().started(at=0)
    for number, at in enumerate(range(10, until + 1, 10)):
        other = source({"cursor": at if moves else 0}, rows=0, description="PythonSource")
        story.commit(batch=number, at=at, sources=(source(topic(at), **FED), other))
    return story


def folder_polls(*gone, until, story=None, run=1, begin=5):
    """The folder of query a is polled each 15 s while it idles; it is gone within these times."""
    story = story or steady(until=20)
    for at in range(begin, until + 1, 15):
        story.folder(run=run, at=at, gone=any(since <= at < end for since, end in gone))
    return story.idle(run=run, at=until)


DATA_IS_LOST = [("StreamingDataLossRisk", "a", "critical")]
TENTH_OF_RETENTION = {"overrides": [("a", {"data_loss_warning_ratio": 0.1})]}
STALLS_AND_LOSES = [("StreamingQueryStalled", "a"), *DATA_IS_LOST]
FAILED_AND_LOSES = [("StreamingQueryFailed", "a"), *DATA_IS_LOST]
EXPIRED = {"unit": "snapshot", "gone": "the snapshot 7, up to which it has read, has expired"}
LAGS_CRITICALLY = [("StreamingQueryLagging", "a", "critical")]
CONTINUOUS_IS_FINE = epochs(until=900, log_until=900)


class Case(NamedTuple):
    """A row of the table; see the head of this file."""

    what: str
    story: Story
    at: float
    settings: dict[str, Any]
    reported: str | tuple[str, ...] | list[tuple[str, ...]] | None
    state: str | None
    besides: Sequence[str] = ()


@cache
def cases() -> tuple[Case, ...]:
    """The table; its stories take a moment to make, which a test that reads none should not wait."""
    rows = [
        # -- healthy ------------------------------------------------------------------------------
        ("just started", Story().started(at=0), 1, {}, None, "starting"),
        ("commits", steady(), 105, {}, None, "running"),
        ("commits up to the last second of its window", steady(), 160, {}, None, "running"),
        ("idle, by its events (Burrow #38: idle topic)", Story().started(at=0).commit(batch=0, at=1).idle(at=500), 520, {}, None, "idle"),
        ("idle, by the probe; no events at all (listener lost)",
         watched(steady(), (101, 900, run(batch=10))), 900, {}, None, "idle"),
        ("first data after long idleness (Burrow #303)",
         watched(steady().idle(at=5000), (5001, 5041, processing(batch=10))), 5045, {}, None, "running"),
        ("only the probe sees the commits, events are minutes late (clogged listener bus)",
         watched(steady(), (101, 150, processing(batch=11)), (155, 200, processing(batch=12)), (205, 250, processing(batch=14))), 200, {}, None, "running"),
        ("commits once an hour under an hourly trigger",
         Story().probe(run(trigger=HOURLY, data=True), at=0).commit(batch=0, at=10), 10 + 3 * 3600, {}, None, "running"),
        ("batches take long, as they always did (FLINK-34131)",
         Story().started(at=0).commit(batch=0, at=100, seconds=90), 100 + 269, {}, None, "running"),
        ("the monitor itself was frozen (SIGSTOP)", steady().paused(at=800, seconds=690), 805, {}, None, "running"),
        ("no activity for a minute, with a larger floor", steady(), 300, {"stall_floor_seconds": 300}, None, "running"),
        ("ignored by pattern", Story().started(at=0).ended(at=1, exception=CONFLICT), 2,
         {"overrides": [("a*", {"ignore": True})]}, None, "failed"),
        ("planning under trigger 0, but Spark records idle progress",
         Story().probe(run(message="Getting offsets from Kafka", last_progress_mark="1"), at=0)
         .probe(run(message="Getting offsets from Kafka", last_progress_mark="2"), at=290), 300, {}, None, "idle"),
        # -- StreamingQueryGivenUp ------------------------------------------------------------------------
        ("supervise has given it up", steady().ended(at=101, exception=CONFLICT).supervised(given_up="11 failures"), 102, {},
         "StreamingQueryGivenUp", "failed", ["StreamingQueryFailed"]),
        ("it has never started, and was given up", Story().supervised(given_up="11 failures, the last: its start failed"), 5, {},
         "StreamingQueryGivenUp", "failed"),
        ("stopped again and again, and given up", watched(steady(), (100, 105, run())).ended(at=106).supervised(given_up="11 failures"), 300, {},
         "StreamingQueryGivenUp", "failed", ["StreamingQueryStopped"]),
        ("given up, then started by hand", steady().ended(at=101, exception=CONFLICT).supervised(given_up="11 failures")
         .started(run=2, at=150).commit(run=2, batch=11, at=155), 160, {}, None, "running"),
        ("supervised, and healthy", steady().supervised(restarts=3, failure="boom"), 105, {}, None, "running"),
        ("its restart is due in four minutes", steady().ended(at=101, exception=CONFLICT).supervised(due_at=400.0), 300, {}, FAILED_MILDLY, "failed"),
        ("its restart has been due for longer than the start grace", steady().ended(at=101, exception=CONFLICT).supervised(due_at=110.0), 411, {},
         "StreamingQueryFailed", "failed"),
        ("failed, and supervise has not noticed for longer than the start grace", steady().ended(at=101, exception=CONFLICT).supervised(), 402, {},
         "StreamingQueryFailed", "failed"),
        ("it stopped, and its restart is due", watched(steady(), (100, 105, run())).ended(at=106).supervised(due_at=200.0), 190, {}, None, "stopped"),
        ("its first start is due", Story().supervised(due_at=0.0), 100, {}, None, "starting"),
        ("its first start hangs", Story().supervised(due_at=0.0), 301, {}, "StreamingQueryMissing", "missing"),
        ("it is expected, and its next start is due", Story().supervised(due_at=300.0, failure="its start failed"), 290, {"expected": ["a"]}, None, "starting"),
        ("it is expected, its first start has returned, and no signal shows it", Story().supervised(started_at=500.0), 801, {"expected": ["a"]},
         "StreamingQueryMissing", "missing"),
        ("it is expected, and its first start has just returned", Story().supervised(started_at=500.0), 501, {"expected": ["a"]}, None, "starting"),
        ("it is not expected, and may run where nothing is watched", Story().supervised(started_at=500.0), 900, {}, None, "starting"),
        ("it failed three times, and is restarted", dying(100, 150, 200).supervised(due_at=220.0), 206, {},
         [("StreamingQueryFlapping", "a", "warning")], "failed", ["StreamingQueryFailed"]),
        ("it failed three times, and its restart has been due for longer than the start grace", dying(100, 150, 200).supervised(due_at=220.0), 521, {},
         "StreamingQueryFlapping", "failed", ["StreamingQueryFailed"]),
        ("it failed three times, was given up, and starts by hand", dying(100, 150, 200).supervised(given_up="11 failures").started(run=4, at=205), 206, {},
         [("StreamingQueryFailed", "a"), ("StreamingQueryFlapping", "a", "warning")], "failed"),
        ("given up under ignore", Story().supervised(given_up="11 failures"), 5, {"overrides": [("a*", {"ignore": True})]}, None, "starting"),
        ("the application stops Spark before its first start", Story().supervised(due_at=0.0).probe(at=1, context=STOPPED), 300, {}, None, "starting"),
        # -- StreamingQueryFailed --------------------------------------------------------------------------
        ("fails, reported by the event", steady().ended(at=101, exception=CONFLICT), 101, {}, "StreamingQueryFailed", "failed"),
        ("fails, reported by the probe while the event is stuck in the bus",
         steady().probe(run(), at=100).probe(run(active=False, exception=CONFLICT), at=101), 101, {}, "StreamingQueryFailed", "failed"),
        ("fails before its first batch", Story().started(at=0).ended(at=1, exception=CONFLICT), 1, {}, "StreamingQueryFailed", "failed"),
        ("failed a day ago", steady().ended(at=101, exception=CONFLICT), 86_000, {}, "StreamingQueryFailed", "failed"),
        ("restarted, not healthy yet",
         steady().ended(at=101, exception=CONFLICT).started(run=2, at=103), 104, {}, "StreamingQueryFailed", "failed"),
        ("restarted under a new id, not healthy yet (checkpoint deleted)",
         steady().ended(at=101, exception=CONFLICT).started_again(at=103), 104, {}, "StreamingQueryFailed", "failed"),
        ("fails under availableNow", Story().probe(run(trigger=AVAILABLE_NOW), at=0).ended(at=1, exception=CONFLICT), 2, {}, "StreamingQueryFailed", "failed"),
        ("fails a moment before spark.stop()", steady().ended(at=101, exception=CONFLICT, context=STOPPED), 102, {}, "StreamingQueryFailed", "failed"),
        ("restarted and committing",
         steady().ended(at=101, exception=CONFLICT).started(run=2, at=103).commit(run=2, batch=10, at=110), 111, {}, None, "running"),
        ("restarted and idle",
         steady().ended(at=101, exception=CONFLICT).started(run=2, at=103).idle(run=2, at=113), 114, {}, None, "idle"),
        ("the failure of the old run arrives after the new run began (restart by user code)",
         steady().started(run=2, at=101).commit(run=2, batch=10, at=102).ended(run=1, at=103, exception=CONFLICT), 104, {}, None, "running"),
        ("killed by a planned spark.stop()", steady().ended(at=101, exception=SHUTDOWN, context=Context.STOPPED), 102, {}, None, "stopped"),
        ("a query fails that was never seen", Story().ended(at=5, exception=CONFLICT), 6, {}, ("StreamingQueryFailed", "unnamed"), None),
        ("two queries fail, which are too few for a group", with_b().ended(at=101, exception=CONFLICT).ended("b", at=101, exception=CONFLICT), 102, {},
         [("StreamingQueryFailed", "a"), ("StreamingQueryFailed", "b")], "failed"),
        ("a sibling fails", steady().started("b", at=0).commit("b", batch=0, at=99).ended("b", at=100, exception=CONFLICT), 101, {}, ("StreamingQueryFailed", "b"), "running"),
        # the Spark Connect session ends without the job's wish
        ("its session ended", session_ended(steady(), lost()), 102, {}, "StreamingQueryFailed", "failed"),
        ("its session ended long ago", session_ended(steady(), lost()), 3600, {"expected": ["a"]}, "StreamingQueryFailed", "failed"),
        ("its session ended under availableNow", session_ended(Story().probe(run(trigger=AVAILABLE_NOW), at=0), lost(trigger=AVAILABLE_NOW), at=2), 3, {},
         "StreamingQueryFailed", "failed"),
        ("three queries of a session that ended: one incident", session_ended(three_queries(), lost(), lost("b"), lost("c")), 102, {},
         ("StreamingQueryFailed", "*"), "failed"),
        ("a query failed, then the session of two others ended",
         session_ended(three_queries().ended(at=100.5, exception=CONFLICT), lost("b"), lost("c")), 102, {},
         [("StreamingQueryFailed", "a"), ("StreamingQueryFailed", "*")], "failed"),
        ("a query failed although its stop was announced, then its session ended",
         session_ended(steady().expect_stop(), run(active=False, exception=CONFLICT)), 102, {}, "StreamingQueryFailed", "failed"),
        ("a query stopped, then its session ended: the stop keeps its grace", session_ended(steady().probe(run(), at=100).ended(at=100.5)), 150, {}, None, "stopped"),
        ("a query stopped and is not back, nor is its session", session_ended(steady().probe(run(), at=100).ended(at=100.5)), 170, {},
         "StreamingQueryStopped", "stopped_unexpectedly"),
        ("its stop was announced before its session ended", session_ended(steady().expect_stop(), lost()), 900, {}, None, "stopped"),
        ("it was stopped as announced, then its session ended", session_ended(steady().probe(run(), at=100).expect_stop().ended(at=100.5)), 900, {}, None, "stopped"),
        ("it completed, then its session ended", session_ended(Story().probe(run(trigger=AVAILABLE_NOW), at=0).ended(at=2)), 900, {"expected": ["a"]}, None, "completed"),
        ("its session ended, and it is ignored", session_ended(steady(), lost()), 900, {"overrides": [("a", {"ignore": True})]}, None, "failed"),
        ("its session ended, within its grace", session_ended(steady(), lost()), 150, {"failed_grace_seconds": 60.0}, None, "failed"),
        ("its session made way for a new one, where it commits",
         steady().probe(lost(), at=101).started(run=2, at=103).commit(run=2, batch=10, at=110), 111, {}, None, "running"),
        ("the session lives, the network is interrupted", steady().probe(run(batch=10), at=100), 130, {"probe_expected": True}, None, "running"),
        # an error that is part of the job's life
        ("schema evolution ends it, as expected", steady().ended(at=101, exception=EVOLVES), 102, EXPECTED, FAILED_MILDLY, "failed"),
        ("schema evolution ended it five minutes ago", steady().ended(at=101, exception=EVOLVES), 400, EXPECTED, FAILED_MILDLY, "failed"),
        ("schema evolution ended it, and it has not come back", steady().ended(at=101, exception=EVOLVES), 402, EXPECTED, "StreamingQueryFailed", "failed"),
        ("schema evolution ended it, within a longer grace", steady().ended(at=101, exception=EVOLVES), 600, EXPECTED | {"failed_grace_seconds": 600.0}, FAILED_MILDLY, "failed"),
        ("schema evolution ended it, and it is back", steady().ended(at=101, exception=EVOLVES).started(run=2, at=110).commit(run=2, batch=11, at=115), 116, EXPECTED, None, "running"),
        ("schema evolution ends it again before it recovers: the grace counts from the first",
         steady().ended(at=101, exception=EVOLVES).started(run=2, at=110).ended(run=2, at=390, exception=EVOLVES), 402, EXPECTED, "StreamingQueryFailed", "failed"),
        ("schema evolution ends it in each new process, for seven minutes", crash_loop(400.0), 21, EXPECTED, "StreamingQueryFailed", "failed"),
        ("schema evolution ends it in each new process, for five minutes", crash_loop(270.0), 21, EXPECTED, FAILED_MILDLY, "failed"),
        ("it fails in each new process, for longer than the grace", crash_loop(400.0, CONFLICT), 21, {"failed_grace_seconds": 300.0}, "StreamingQueryFailed", "failed"),
        ("it fails in each new process, within the grace", crash_loop(400.0, CONFLICT), 21, {"failed_grace_seconds": 600.0}, None, "failed"),
        ("another error than the expected one", steady().ended(at=101, exception=CONFLICT), 102, EXPECTED, "StreamingQueryFailed", "failed"),
        ("an expected error, by the name of the exception", steady().ended(at=101, exception=CONFLICT), 102, {"expected_errors": ["Concurrent*Exception"]}, FAILED_MILDLY, "failed"),
        ("an expected error in another case", steady().ended(at=101, exception=CONFLICT), 102, {"expected_errors": ["concurrent*"]}, "StreamingQueryFailed", "failed"),
        ("schema evolution, which nobody expects", steady().ended(at=101, exception=EVOLVES), 102, {}, "StreamingQueryFailed", "failed"),
        # -- StreamingQueryStopped ----------------------------------------------------------------------------
        ("stopped, not restarted within the grace", steady().probe(run(), at=100).ended(at=101), 162, {}, "StreamingQueryStopped", "stopped_unexpectedly"),
        ("vanished without an event, not restarted", steady().probe(run(), at=100).probe(at=101).probe(at=102), 162, {}, "StreamingQueryStopped", "stopped_unexpectedly"),
        ("vanished in the last poll before the probe stopped answering", steady().probe(run(), at=100).probe(at=101), 165, {},
         "StreamingQueryStopped", "stopped_unexpectedly"),
        ("the SparkContext died under it", steady().probe(run(), at=100).ended(at=101, exception=SHUTDOWN, context=Context.STOPPED)
         .probe(at=102, context=Context.STOPPED), 170, {}, "StreamingQueryStopped", "stopped_unexpectedly"),
        ("idle in a SparkContext that died by itself; Spark still calls it active",
         steady().probe(run(batch=10), at=100).probe(run(batch=10), at=102, context=Context.STOPPED), 170, {}, "StreamingQueryStopped", "stopped_unexpectedly"),
        ("trigger unknown, but the query is expected", steady().ended(at=101), 162, {"expected": ["a"]}, "StreamingQueryStopped", "stopped_unexpectedly"),
        ("Spark does not name the trigger, but the query is expected", steady().probe(run(trigger="Unknown"), at=100).ended(at=101), 162, {"expected": ["a"]}, "StreamingQueryStopped", "stopped_unexpectedly"),
        ("another query was started on its checkpoint", steady().probe(run(), at=100).takes(at=101), 101, {}, "StreamingQueryStopped", "stopped_unexpectedly"),
        ("another query, which is expected, was started on its checkpoint", steady().probe(run(), at=100).takes(at=101), 165, {"expected": ["a", "b"]}, "StreamingQueryStopped", "stopped_unexpectedly"),
        ("another query was started on its checkpoint, in spite of a long grace", steady().probe(run(), at=100).takes(at=101), 102,
         {"overrides": [("*", {"gone_grace_seconds": 3600.0})]}, "StreamingQueryStopped", "stopped_unexpectedly"),
        ("another query was started on its checkpoint, after a failure that is not resolved",
         dying(90).started(run=2, at=95).probe(processing(number=2, batch=2), at=100).takes(of_run=2, at=101), 102, {}, "StreamingQueryFailed", "failed"),
        ("it takes the checkpoint back from another query", steady().probe(run(), at=100).takes(at=101).takes("a", 2, of="b", at=110), 111, {},
         ("StreamingQueryStopped", "b"), "starting"),
        ("started again on its checkpoint, after another query took it and ended", steady().probe(run(), at=100).takes(at=101).takes("a", 2, of="b", at=110, proven=False), 111, {},
         None, "starting"),
        ("started with another checkpoint, after another query took its own", steady().probe(run(), at=100).takes(at=101).started_again(at=110), 111, {}, None, "starting"),
        ("another query was started on its checkpoint after its end", steady().probe(run(), at=100).takes(at=101, proven=False), 165, {}, None, "starting"),
        ("it was started on its own checkpoint while it ran", steady().probe(run(), at=100).takes("a", 2, at=101), 165, {}, None, "starting"),
        ("a query without a name was started on its checkpoint", steady().probe(run(), at=100).takes(None, at=101), 165, {}, None, "starting"),
        ("another query was started on its checkpoint, after an announced stop", steady().probe(run(), at=100).expect_stop().takes(at=101), 165, {}, None, "stopped"),
        ("another query was started on its checkpoint, and that was announced late", steady().probe(run(), at=100).takes(at=101).expect_stop(), 165, {}, None, "stopped"),
        ("another query was started on its checkpoint, and supervise restarts it", steady().probe(run(), at=100).takes(at=101).supervised(due_at=110.0), 111, {}, None, "stopped"),
        ("once, and another query was started on its checkpoint", Story().probe(run(trigger=ONCE), at=0).takes(at=2), 165, {}, None, "completed"),
        ("availableNow, expected, and another query was started on its checkpoint", Story().probe(run(trigger=AVAILABLE_NOW), at=0).takes(at=2), 165, {"expected": ["a"]}, None, "completed"),
        ("another query was started on its checkpoint, then a planned spark.stop()",
         steady().probe(run(), at=100).takes(at=101).probe(at=102, context=STOPPED), 165, {}, None, "stopped"),
        ("trigger unknown, and another query was started on its checkpoint", steady().takes(at=101), 165, {}, None, "stopped"),
        ("Spark does not name the trigger, and the query ended", steady().probe(run(trigger="Unknown"), at=100).ended(at=101), 900, {}, None, "stopped"),
        ("Spark does not name the trigger, and the query vanished", steady().probe(run(trigger="Unknown"), at=100).probe(at=101).probe(at=102), 900, {}, None, "stopped"),
        ("Spark does not name the trigger, and the query ended while another one is expected",
         steady().probe(run(trigger="Unknown"), at=100).started("b", at=100).commit("b", batch=0, at=895).ended(at=101), 900, {"expected": ["b"]}, None, "stopped"),
        ("a single poll lacked the query, the probe has not answered since, and its batches commit",
         steady().probe(run(), at=100).probe(at=101).commit(batch=9, at=110), 900, {}, None, "stopped"),
        ("stopped, within the grace", steady().probe(run(), at=100).ended(at=101), 161, {}, None, "stopped"),
        ("stopped and restarted", steady().probe(run(), at=100).ended(at=101).started(run=2, at=110).commit(run=2, batch=9, at=112), 170, {}, None, "running"),
        ("trigger unknown, and the query is not expected", steady().ended(at=101), 500, {}, None, "stopped"),
        ("once, finished", Story().probe(run(trigger=ONCE), at=0).commit(batch=0, at=1).ended(at=2), 900, {}, None, "completed"),
        ("availableNow, finished", Story().probe(run(trigger=AVAILABLE_NOW), at=0).ended(at=2), 900, {}, None, "completed"),
        ("availableNow, expected, finished", Story().probe(run(trigger=AVAILABLE_NOW), at=0).ended(at=2), 900, {"expected": ["a"]}, None, "completed"),
        ("a planned spark.stop()", steady().probe(run(), at=100).probe(at=101, context=STOPPED), 900, {}, None, "stopped"),
        ("stopped by hand, then a planned spark.stop()", steady().probe(run(), at=100).ended(at=101).probe(at=130, context=STOPPED), 900, {}, None, "stopped"),
        ("the SparkContext has just died, within the grace",
         steady().probe(run(batch=10), at=100).probe(run(batch=10), at=102, context=Context.STOPPED), 150, {}, None, "stopped"),
        ("availableNow, finished before its SparkContext died",
         Story().probe(run(trigger=AVAILABLE_NOW), at=0).ended(at=2).probe(at=3, context=Context.STOPPED), 900, {}, None, "completed"),
        ("availableNow, cut off by a SparkContext that stopped by itself",
         Story().probe(run(trigger=AVAILABLE_NOW), at=0).ended(at=2, exception=SHUTDOWN, context=Context.STOPPED).probe(at=3, context=Context.STOPPED), 900, {}, "StreamingQueryStopped", "stopped_unexpectedly"),
        ("availableNow, stopped long before its SparkContext was",
         Story().probe(run(trigger=AVAILABLE_NOW), at=0).ended(at=2).probe(at=300, context=Context.STOPPED), 900, {}, None, "completed"),
        ("availableNow, cut off by the application's own spark.stop()",
         Story().probe(run(trigger=AVAILABLE_NOW), at=0).ended(at=2, exception=SHUTDOWN, context=STOPPED).probe(at=3, context=STOPPED), 900, {}, None, "stopped"),
        ("frozen during the grace", steady().probe(run(), at=100).ended(at=101).paused(at=160, seconds=50), 200, {}, None, "stopped"),
        ("a longer grace by pattern", steady().probe(run(), at=100).ended(at=101), 900, {"overrides": [("*", {"gone_grace_seconds": 3600.0})]}, None, "stopped"),
        # -- StreamingQueryMissing -------------------------------------------------------------------------
        ("expected, never seen", Story(), 301, {"expected": ["a"]}, "StreamingQueryMissing", "missing"),
        ("expected and never seen, while others run", Story().started("b", at=0).commit("b", batch=0, at=299), 301, {"expected": ["a", "b"]}, "StreamingQueryMissing", "missing"),
        ("started, then no activity from any signal", Story().started(at=0), 301, {}, "StreamingQueryMissing", "missing", ["StreamingQueryStalled"]),
        ("expected, within the start grace", Story(), 300, {"expected": ["a"]}, None, "starting"),
        ("expected and running", steady(), 121, {"expected": ["a"]}, None, "running"),
        ("expected, but ignored", Story(), 500, {"expected": ["a"], "overrides": [("a", {"ignore": True})]}, None, "starting"),
        ("expected, the application has stopped", Story().probe(at=50, context=STOPPED), 500, {"expected": ["a"]}, None, "starting"),
        ("expected, frozen since the start", Story().paused(at=500, seconds=450), 505, {"expected": ["a"]}, None, "starting"),
        ("nothing is expected, nothing runs", Story(), 9999, {}, None, None),
        # -- StreamingQueryStalled ------------------------------------------------------------------------
        ("a batch hangs", hung_batch(until=170), 170, {}, "StreamingQueryStalled", "stalled"),
        ("a batch hangs in Spark tasks that never finish", hung_batch(until=170, tasks=3), 170, {}, "StreamingQueryStalled", "stalled"),
        ("a batch hangs while Spark forgets its old jobs and stages", polled(lambda number, _: processing(batch=10, tasks=max(0, 40 - 3 * number)), until=170), 170, {}, "StreamingQueryStalled", "stalled"),
        ("the first batch ever hangs", watched(Story(), (0, 305, processing(batch=0))), 306, {}, "StreamingQueryStalled", "stalled"),
        ("a source does not answer Spark", watched(steady(), (101, 170, run(message="Getting offsets from Kafka", busy=True, batch=10))), 170, {}, "StreamingQueryStalled", "stalled"),
        ("initialises for ever", watched(Story(), (0, 305, run(message="Initializing sources"))), 306, {}, "StreamingQueryStalled", "stalled"),
        ("no trigger comes", watched(steady(), (101, 170, run(message="Waiting for next trigger", data=True, batch=10))), 170, {}, "StreamingQueryStalled", "stalled"),
        ("first seen by a commit, then no activity (a log whose beginning is cut off)", Story().commit(batch=5, at=10), 75, {}, "StreamingQueryStalled", "stalled"),
        ("events stop and there is no probe", steady(), 161, {}, "StreamingQueryStalled", "stalled"),
        ("hung, and then the JVM also pauses for some seconds: no false recovery", hung_batch(until=170), 180, {}, "StreamingQueryStalled", "stalled"),
        ("the JVM does not answer", steady().probe(run(batch=10), at=100), 170, {}, "StreamingQueryStalled", "stalled"),
        ("hangs after a stall that recovered: what happened once is no usual batch",
         watched(steady().commit(batch=10, at=1000, seconds=900), (1001, 1070, processing(batch=11))), 1070, {}, "StreamingQueryStalled", "stalled"),
        # the window: three times the second longest batch of the last 49 hours
        ("hangs after a first batch of two hours and two of ten seconds", *then_hangs(7200, 10, 10, after=70), {}, "StreamingQueryStalled", "stalled"),
        ("hangs after a first batch of two hours", *then_hangs(7200, after=306), {}, "StreamingQueryStalled", "stalled"),
        ("its second batch is shorter than the start grace, after a first one of two hours", *then_hangs(7200, after=295), {}, None, "running"),
        ("the second of its tenth batches takes 40 s among batches of 1 s", *then_hangs(*[1] * 9, 40, *[1] * 9, after=30), {"stall_floor_seconds": 15.0}, "StreamingQueryStalled", "stalled"),
        ("the third of its tenth batches takes 40 s", *then_hangs(*[*[1] * 9, 40] * 2, *[1] * 9, after=40), {"stall_floor_seconds": 15.0}, None, "running"),
        ("the twentieth of its tenth batches takes 40 s", *then_hangs(*[*[1] * 9, 40] * 19, *[1] * 9, after=110), {"stall_floor_seconds": 15.0}, None, "running"),
        ("every fiftieth batch runs OPTIMIZE, for the third time", *then_hangs(*[*[20] * 49, 700] * 2, *[20] * 49, after=2000), {}, None, "running"),
        ("hangs where every fiftieth batch runs OPTIMIZE", *then_hangs(*[*[20] * 49, 700] * 2, *[20] * 49, after=2120), {}, "StreamingQueryStalled", "stalled"),
        ("hangs after long batches, and its thread uses no CPU time", *after_long_batches(605), {}, "StreamingQueryStalled", "stalled"),
        ("hangs after long batches, and its thread uses no CPU time for ten minutes", *after_long_batches(595), {}, None, "running"),
        ("hangs after long batches where fifteen minutes are allowed", *after_long_batches(895), {"stall_critical_seconds": 900.0}, None, "running"),
        ("works in the driver after long batches", *after_long_batches(3500, driver=0.01), {}, None, "running"),
        ("tries again in the driver after long batches", *after_long_batches(3500, driver=0.0003), {}, None, "running"),
        ("tries again in the driver after long batches, for longer than the window", *after_long_batches(3605, driver=0.0003), {}, "StreamingQueryStalled", "stalled"),
        ("works in Python after long batches", *after_long_batches(3500, python=0.01, line="/jobs/sync.py:12 in f"), {}, None, "running"),
        ("is blocked in Python after long batches", *after_long_batches(605, line="/jobs/sync.py:12 in f"), {}, "StreamingQueryStalled", "stalled"),
        ("is in Python after long batches, and its CPU time is not known", *after_long_batches(3500, python=None, line="/jobs/sync.py:12 in f"), {}, None, "running"),
        ("its job runs after long batches", *after_long_batches(3500, own=JobCounts(4, 1, 40, 1)), {}, None, "running"),
        ("hangs after two outages of hours, as its checkpoint says",
         working(story=Story().started(at=0).began(at=1, usual=1800.0).idle(at=5), since=6, until=611, line="", batch=0), 611, {}, "StreamingQueryStalled", "stalled"),
        ("two batches took twenty minutes, two days and two hours ago", *then_hangs(1200, 1200, *[60] * 3000, after=190), {}, "StreamingQueryStalled", "stalled"),
        ("two batches took twenty minutes, two days ago", *then_hangs(1200, 1200, *[60] * 2850, after=3500), {}, None, "running"),
        ("the second night with a batch of forty minutes", *then_works(*DAY_AND_NIGHT, *[60] * 1400, after=2390), {}, SLOW_FOR_LONG, "slow"),
        ("the third night with a batch of forty minutes", *then_works(*DAY_AND_NIGHT * 2, *[60] * 1400, after=2390), {}, None, "running"),
        ("the third night, and the batch comes an hour late", *then_works(*DAY_AND_NIGHT * 2, *[60] * 1459, after=2390), {}, None, "running"),
        ("the third night, and the batch takes three times as long", *then_works(*DAY_AND_NIGHT * 2, *[60] * 1400, after=7210), {}, SLOW_FOR_LONG, "slow"),
        ("a query whose batches take two minutes was restarted in this process",
         watched(batches(120, 120)[0].ended(at=241).started(run=2, at=242).idle(run=2, at=250), (251, 600, processing(number=2, batch=2))), 600, {}, None, "running"),
        ("batches of an hourly trigger take ten minutes, as its checkpoint says",
         watched(Story().started(at=0).began(at=1, usual=600.0), (2, 1790, processing(batch=7, trigger=HOURLY))), 1795, {}, None, "starting"),
        ("the driver's clock stepped by 30 hours in two batches", *then_hangs(10, 10, after=70, story=Story().started(at=-99).commit(batch=90, at=-20, seconds=108_000.0).commit(batch=91, at=-10, seconds=108_000.0)), {}, "StreamingQueryStalled", "stalled"),
        ("the driver's clock stepped back: a batch of less than no time", *then_hangs(10, after=55, story=Story().started(at=-9).commit(batch=90, at=-1, seconds=-3600.0)), {}, None, "running"),
        # what moves is not hung
        ("foreachBatch calls an API row by row (a hundred times the rows)", working(python=0.01, until=170), 170, {}, "StreamingBatchSlow", "slow"),
        ("foreachBatch calls an API row by row, within the window", working(python=0.01, until=155), 160, {}, None, "running"),
        ("foreachBatch calls an API row by row, for almost half an hour", working(python=0.01, until=1895), 1895, {}, "StreamingBatchSlow", "slow"),
        ("foreachBatch calls an API row by row, for more than half an hour", working(python=0.01, until=1906), 1906, {}, SLOW_FOR_LONG, "slow"),
        ("foreachBatch calls an API row by row in the first batch", working(python=0.01, until=290, since=1, story=Story().started(at=0), batch=0), 290, {}, None, "starting"),
        ("foreachBatch is blocked", working(until=170), 170, {}, STALLED_MILDLY, "stalled"),
        ("foreachBatch is blocked for less than three minutes", working(until=275), 280, {}, STALLED_MILDLY, "stalled"),
        ("foreachBatch is blocked for more than three minutes", working(until=286), 286, {}, "StreamingQueryStalled", "stalled"),
        ("foreachBatch is blocked for less than a window of five minutes", working(until=396), 400, {"stall_floor_seconds": 300.0}, None, "running"),
        ("foreachBatch is blocked for more than a window of five minutes", working(until=406), 406, {"stall_floor_seconds": 300.0}, "StreamingQueryStalled", "stalled"),
        ("foreachBatch wakes up now and then and waits on: no work", working(python=0.0001, until=286), 286, {}, "StreamingQueryStalled", "stalled"),
        ("foreachBatch works for a minute and is blocked then", working(until=230, since=166, story=working(python=0.01, until=161)), 230, {}, STALLED_MILDLY, "stalled"),
        ("the first listing of a folder works", listing(until=310), 310, {}, "StreamingBatchSlow", "slow"),
        ("the first listing of a folder works, within the start grace", listing(until=290), 290, {}, None, "starting"),
        ("the first listing of a folder does not move", listing(until=310, driver=0.0), 310, {}, "StreamingQueryStalled", "stalled"),
        ("a later listing works for long", working(until=170, driver=0.01, message="Getting offsets from FileStreamSource", line=""), 170, {}, "StreamingBatchSlow", "slow"),
        ("each poll of an idle query finds it asking for offsets", working(until=885, driver=0.01, message="Getting offsets from Kafka", line="", last_progress_mark="1")
         .probe(run(message="Getting offsets from Kafka", busy=True, batch=10, own=JobCounts(4), last_progress_mark="2"), at=890), 900, {}, None, "idle"),
        # a thread of Spark that tries again: it waits for a lock for ever, or for a remote job
        ("Spark's thread tries each five seconds to get a lock, within the window", trying(until=155), 160, {}, None, "running"),
        ("Spark's thread tries each five seconds to get a lock", trying(until=170), 170, {}, STALLED_MILDLY, "stalled"),
        ("Spark's thread tries each five seconds to get a lock, for less than three minutes", trying(until=275), 280, {}, STALLED_MILDLY, "stalled"),
        ("Spark's thread tries each five seconds to get a lock, for more than three minutes", trying(until=286), 286, {}, "StreamingQueryStalled", "stalled"),
        ("Spark's thread tries again for less than a window of five minutes", trying(until=396), 400, {"stall_floor_seconds": 300.0}, None, "running"),
        ("Spark's thread tries again for more than a window of five minutes", trying(until=406), 406, {"stall_floor_seconds": 300.0}, "StreamingQueryStalled", "stalled"),
        ("Spark's thread tries again until three minutes are over, and gets its lock", trying(until=280).commit(batch=10, at=281, seconds=180.0), 300, {}, None, "running"),
        ("Spark's thread tries again, and the poll is late by a pause of the JVM", trying(until=166), 175, {}, STALLED_MILDLY, "stalled"),
        ("Spark's thread tries again, and has waited since for less than the window", trying(until=256, since=206, driver=0.0, story=trying(until=201)), 260, {}, STALLED_MILDLY, "stalled"),
        ("Spark's thread tries again, and has waited since for longer than the window", trying(until=266, since=206, driver=0.0, story=trying(until=201)), 266, {}, "StreamingQueryStalled", "stalled"),
        ("Spark's thread wakes up each five seconds and waits on: no try", trying(until=170, driver=0.0001), 170, {}, "StreamingQueryStalled", "stalled"),
        ("Spark's thread tries again to ask a source for its offsets", trying(until=170, message="Getting offsets from Kafka"), 170, {}, STALLED_MILDLY, "stalled"),
        ("a thread tries again while its job waits although slots are free", trying(until=170, own=JobCounts(4, 1, 40, 0), slots=SlotUse(4, 2, "id-b", 2)), 170, {}, "StreamingQueryStalled", "stalled"),
        ("Spark's thread asks each second for a remote job, in little CPU time", trying(until=280, driver=0.0004, every=1), 280, {}, STALLED_MILDLY, "stalled"),
        ("Spark's thread asks each second for a remote job, in much CPU time", trying(until=286, driver=0.0006, every=1), 286, {}, "StreamingBatchSlow", "slow"),
        ("Spark's thread sends a slow request each five seconds", working(until=170, driver=0.003, line=""), 170, {}, "StreamingBatchSlow", "slow"),
        ("commit work in the driver: a log is written, files are renamed", working(until=1895, driver=0.01, line=""), 1895, {}, "StreamingBatchSlow", "slow"),
        ("Spark's own code does not move", working(until=170, line=""), 170, {}, "StreamingQueryStalled", "stalled"),
        ("its job waits although slots are free, and some thread of it works",
         working(until=170, driver=0.01, own=JobCounts(4, 1, 40, 0), slots=SlotUse(4, 2, "id-b", 2)), 170, {}, "StreamingQueryStalled", "stalled"),
        ("twenty queries start at once on two cores: each waits for its share, and moves",
         working(until=60, python=0.002, since=1, story=Story().started(at=0), batch=0), 60, {"stall_floor_seconds": 15.0, "start_grace_seconds": 75.0}, None, "starting"),
        # a sibling holds the slots: the page is about the sibling
        ("query b holds all slots, for almost half an hour", behind_b(until=1895), 1895, {}, [*STALLED_MILDLY, ("StreamingBatchSlow", "b")], "stalled"),
        ("query b holds all slots, for more than half an hour", behind_b(until=1906), 1906, {}, [*STALLED_MILDLY, ("StreamingBatchSlow", "b", "critical")], "stalled"),
        ("query b holds all slots in a batch as long as usual, for almost half an hour", behind_b(until=1895), 1895, LONG_B, STALLED_MILDLY, "stalled"),
        ("query b holds all slots in a batch as long as usual, for more than half an hour", behind_b(until=1906), 1906, LONG_B, [*STALLED_MILDLY, ("StreamingBatchSlow", "b", "critical")], "stalled"),
        ("query b holds all slots, and is none of ours", behind_b(until=1906), 1906, {"overrides": [("b", {"ignore": True})]}, "StreamingQueryStalled", "stalled"),
        ("some batch of query b holds all slots at each poll, for almost half an hour", behind_b(until=1895, every=30), 1895, LONG_B, STALLED_MILDLY, "stalled"),
        ("some batch of query b holds all slots at each poll, for more than half an hour", behind_b(until=1906, every=30), 1906, LONG_B, "StreamingQueryStalled", "stalled"),
        # a stop() that does not return
        ("stopped, and foreachBatch goes on for more than three minutes", working(until=286, stopping=True), 286, {}, "StreamingQueryStalled", "stalled"),
        ("stopped as announced, and foreachBatch is blocked", working(until=170, stopping=True).expect_stop(), 170, {}, STALLED_MILDLY, "stalled"),
        ("stopped, and its last batch goes on within the window", working(until=150, stopping=True), 150, {}, None, "running"),
        ("stopped as announced: its last batch takes as long as usual, and ends",
         working(until=130, stopping=True).expect_stop().probe(run(active=False), at=135).ended(at=135), 900, {}, None, "stopped"),
        ("a batch hangs in Python, and no job is active", in_a_pool(until=170, running=0, active=0), 170, {}, "StreamingQueryStalled", "stalled"),
        ("a batch hangs, and one task that may be its own runs: its job names no query", counted(until=170), 170, {}, STALLED_MILDLY, "stalled"),
        ("a batch hangs for ten minutes, and one task that may be its own runs", counted(until=706), 706, {}, "StreamingQueryStalled", "stalled"),
        ("a batch hangs in its own task while jobs that name no query progress", counted(until=706, active=1, unowned=True), 706, {}, "StreamingQueryStalled", "stalled"),
        ("one task of its own runs for 75 s while jobs that name no query progress", counted(until=175, active=1, unowned=True), 175, {}, STALLED_MILDLY, "stalled"),
        ("a batch works in a thread pool, within the window", counted(until=150, unowned=True), 150, {}, None, "running"),
        ("a first batch works in a thread pool for a long time", counted(Story(), until=590, unowned=True), 600, {}, None, "starting"),
        ("the jobs of a first batch progress for a long time", counted(Story(), until=590, own=True, active=1), 600, {}, None, "starting"),
        # Spark Connect shows no jobs
        ("a batch is in flight on Spark Connect, within the window", on_connect(until=160), 160, {}, None, "running"),
        ("a batch is in flight on Spark Connect for longer than the window", on_connect(until=695), 695, {}, STALLED_MILDLY, "stalled"),
        ("a batch is in flight on Spark Connect for ten minutes", on_connect(until=706), 706, {}, "StreamingQueryStalled", "stalled"),
        ("a batch is in flight on Spark Connect for ten minutes, and more are allowed", on_connect(until=895), 895, {"stall_critical_seconds": 800.0}, STALLED_MILDLY, "stalled"),
        ("a query on Spark Connect asks its source for its offsets for longer than the window",
         on_connect(until=170, message="Getting offsets from K"), 170, {}, "StreamingQueryStalled", "stalled"),
        # an ordinary cause: a warning at W, critical after ten minutes, and never before W
        ("one task runs for 75 s (skew, throttled storage)", one_task(until=180), 180, {}, STALLED_MILDLY, "stalled"),
        ("one task runs, within the window", one_task(until=160), 160, {}, None, "running"),
        ("one task runs for almost ten minutes", one_task(until=695), 695, {}, STALLED_MILDLY, "stalled"),
        ("one task never finishes", one_task(until=706), 706, {}, "StreamingQueryStalled", "stalled"),
        ("one task runs for long, with a larger limit", one_task(until=990), 990, {"stall_critical_seconds": 900.0}, STALLED_MILDLY, "stalled"),
        ("one task runs for less than a window that is longer than ten minutes", one_task(until=1290), 1290, {"stall_floor_seconds": 1200.0}, None, "running"),
        ("one task runs for longer than a window that is longer than ten minutes", one_task(until=1310), 1310, {"stall_floor_seconds": 1200.0}, "StreamingQueryStalled", "stalled"),
        ("one task of the first batch runs, within the start grace", one_task(since=5, until=300, story=Story().started(at=0), batch=0), 300, {}, None, "starting"),
        ("one task of the first batch runs for six minutes", one_task(since=5, until=360, story=Story().started(at=0), batch=0), 360, {}, STALLED_MILDLY, "stalled"),
        ("one task of the first batch never finishes", one_task(since=5, until=610, story=Story().started(at=0), batch=0), 610, {}, "StreamingQueryStalled", "stalled"),
        ("one task of a thread pool runs for 75 s", in_a_pool(until=180, running=1), 180, {}, STALLED_MILDLY, "stalled"),
        ("a job that names no query waits for an unknown reason", in_a_pool(until=180, running=0), 180, {}, "StreamingQueryStalled", "stalled"),
        ("a task runs although its job has ended (cancelled)", one_task(until=180, active=0), 180, {}, "StreamingQueryStalled", "stalled"),
        ("one task runs for 75 s, then the driver's own code hangs", then_nothing(delayed_until=176, until=230), 230, {}, STALLED_MILDLY, "stalled"),
        ("one task runs for 75 s, then the driver's own code hangs for a window", then_nothing(delayed_until=176, until=240), 240, {}, "StreamingQueryStalled", "stalled"),
        ("no executor for five minutes (an autoscaler)", no_executor(until=400), 400, {}, None, "running"),
        ("no executor for five minutes, then a task runs", then_equipped(bare_until=400, until=440), 440, {}, None, "running"),
        ("no executor for five minutes, then tasks finish for half a minute", then_equipped(bare_until=400, until=430, finishing=True), 430, {}, None, "running"),
        ("no executor for five minutes, then a task never finishes", then_equipped(bare_until=400, until=470), 470, {}, STALLED_MILDLY, "stalled"),
        ("no executor for five minutes, then tasks finish for longer than the window", then_equipped(bare_until=400, until=470, finishing=True), 470, {}, "StreamingBatchSlow", "slow"),
        ("no executor for seven minutes", no_executor(until=530), 530, {}, STALLED_MILDLY, "stalled"),
        ("no executor for long, and a poll that is late by a pause of the JVM", no_executor(until=480), 490, {}, STALLED_MILDLY, "stalled"),
        ("no executor for four minutes (first batch)", no_executor(since=5, until=245, story=Story().started(at=0), batch=0), 245, {}, None, "starting"),
        ("no executor for nine minutes (first batch, an autoscaler)", no_executor(since=5, until=545, story=Story().started(at=0), batch=0), 545, {}, STALLED_MILDLY, "stalled"),
        ("no executor ever", no_executor(until=706), 706, {}, "StreamingQueryStalled", "stalled"),
        ("the driver waits for a lock, there is no executor, and the batch has no job", no_executor(until=180, active=0), 180, {}, "StreamingQueryStalled", "stalled"),
        ("a sibling holds all slots (FIFO)", no_slot(until=180), 180, {}, STALLED_MILDLY, "stalled"),
        ("a sibling held all slots for twelve minutes, then a task runs", then_equipped(bare_until=820, until=850, story=no_slot(until=820)), 850, {}, [("StreamingBatchSlow", "a", "warning")], "slow"),
        ("a sibling held all slots for twelve minutes, then a task never finishes", then_equipped(bare_until=820, until=1430, story=no_slot(until=820)), 1430, {}, "StreamingQueryStalled", "stalled"),
        ("a sibling holds all slots, within the window", no_slot(until=155), 155, {}, None, "running"),
        ("others never free the slots", no_slot(until=706), 706, {}, "StreamingQueryStalled", "stalled"),
        ("its job waits although slots are free", no_slot(until=180, taken=2), 180, {}, "StreamingQueryStalled", "stalled"),
        ("its job waits, and Spark does not say how many slots there are", one_task(until=180, running=0), 180, {}, "StreamingQueryStalled", "stalled"),
        ("a job with one long task polls the source (the first snapshot of a table)",
         watched(steady(), (101, 180, run(message="Getting offsets from DeltaSource", busy=True, batch=10, own=JobCounts(4, 1, 40, 1)))), 180, {}, STALLED_MILDLY, "stalled"),
        # the trigger's interval does not count once the batch has begun
        ("a batch hangs under a ten-minute trigger", triggered(begins=610, until=680), 680, {}, "StreamingQueryStalled", "stalled"),
        ("a batch under a ten-minute trigger, within its window", triggered(begins=610, until=665), 665, {}, None, "running"),
        ("waits for its ten-minute trigger", triggered(begins=1700, until=1000), 1000, {}, None, "running"),
        ("its ten-minute trigger is late", triggered(begins=1700, until=1000), 1700, {}, None, "running"),
        ("its ten-minute trigger does not fire for half an hour", triggered(begins=1850, until=1000), 1850, {}, "StreamingQueryStalled", "stalled"),
        ("the JVM does not answer while a batch under a ten-minute trigger is in flight", triggered(begins=610, until=615), 700, {}, None, "running"),
        ("a batch in flight, window not over", hung_batch(until=160), 160, {}, None, "running"),
        ("a huge first batch whose tasks finish",
         Story().probe(processing(batch=0, tasks=0), at=0).probe(processing(batch=0, tasks=5), at=590), 600, {}, None, "starting"),
        ("the first batch within the start grace", watched(Story(), (0, 115, processing(batch=0))), 118, {}, None, "starting"),
        ("Continuous: it has no batches, and its log is not read", watched(Story(), (0, 900, run(trigger="ContinuousTrigger(1000)", message="Running", busy=True))), 900, {}, None, "starting"),
        ("RealTime commits once in a long batch",
         watched(Story().probe(run(trigger="RealTimeTrigger(300000)"), at=0).commit(batch=0, at=300, seconds=300),
                 (301, 1190, processing(trigger="RealTimeTrigger(300000)", batch=1))), 1190, {}, None, "running"),
        ("the application has stopped its SparkContext", hung_batch(until=150).probe(processing(batch=10), at=151, context=STOPPED), 300, {}, None, "stopped"),
        ("a stalled query commits again", hung_batch(until=170).commit(batch=10, at=171), 172, {}, None, "running"),
        ("frozen while the batch was in flight", hung_batch(until=130).paused(at=600, seconds=465).probe(processing(batch=10), at=601), 601, {}, None, "running"),
        ("Continuous: the log's epochs stop", epochs(until=300, log_until=200), 300, {}, "StreamingQueryStalled", "stalled"),
        ("Continuous: epochs go on", CONTINUOUS_IS_FINE, 900, {}, None, "running"),
        ("Continuous: the log has not been read for a while, which proves no stall",
         epochs(until=200, log_until=200).probe(run(trigger="ContinuousTrigger(1000)", message="Running", busy=True), at=299), 300, {}, None, "running"),
        ("Continuous: its first epoch within the start grace", epochs(until=100, log_until=0), 100, {}, None, "starting"),
        ("async tracking: the log does not advance while batches run", asynchronous(until=180, log_until=100), 180, {}, "StreamingQueryStalled", "stalled"),
        ("async tracking: the log was never written while batches run",
         asynchronous(until=180, log_until=100, empty=True), 180, {}, "StreamingQueryStalled", "stalled"),
        ("async tracking: a long batch whose tasks finish, and no log is written meanwhile",
         asynchronous_and_slow(until=260), 260, {}, "StreamingBatchSlow", "slow"),
        ("async tracking: the log follows, always a little behind", asynchronous(until=600, log_until=600), 600, {}, None, "running"),
        ("async tracking: idle, the last batches are never written (facts of Spark: asyncProgressTracking)",
         asynchronous(until=600, log_until=200, batches_until=206).idle(at=600), 600, {}, None, "idle"),
        ("async tracking: the log has not advanced, but not for the window yet", asynchronous(until=150, log_until=100), 150, {}, None, "running"),
        ("async tracking: the log has not been read for a while, which proves no stall", asynchronous(until=130, log_until=80), 150, {}, None, "running"),
        ("async tracking: the log does not advance, and Spark blocks because its writer's queue is full",
         asynchronous(until=240, log_until=100, batches_until=160, idle=False), 240, {}, "StreamingQueryStalled", "stalled"),
        ("async tracking: the log is written every minute (asyncProgressTrackingCheckpointIntervalMs)",
         asynchronous(until=180, log_until=100, interval=60.0), 180, {}, None, "running"),
        ("async tracking: the first batch after long idleness, its log not read again yet",
         asynchronous(until=600, log_until=200, batches_until=206).idle(at=600).commit(batch=999, at=601), 602, {}, None, "running"),
        ("the commit log proves commits that neither events nor the probe report",
         steady().log(at=101, planned=10, committed=9).log(at=150, planned=14, committed=13), 205, {}, None, "running"),
        ("a restored checkpoint: the next run commits lower batch ids",
         steady().ended(at=101).started(run=2, at=102).commit(run=2, batch=3, at=150).commit(run=2, batch=4, at=220), 230, {}, None, "running"),
        ("a restored checkpoint, seen by the probe only",
         watched(steady().ended(at=101), (105, 150, processing(number=2, batch=4)), (155, 180, processing(number=2, batch=5)), (185, 205, processing(number=2, batch=6))),
         210, {}, None, "running"),
        ("a run has initialised again: its batch id proves no commit",
         watched(steady().ended(at=101), (105, 150, run(number=2, message="Initializing sources", batch=-1)), (155, 460, processing(number=2, batch=10))),
         460, {}, "StreamingQueryStalled", "stalled"),
        # -- StreamingBatchSlow ----------------------------------------------------------------------------
        ("a long batch whose tasks finish", busy_batch(until=690), 690, {}, "StreamingBatchSlow", "slow"),
        ("a long batch whose tasks finish, for more than half an hour", busy_batch(until=1906), 1906, {}, SLOW_FOR_LONG, "slow"),
        ("a long batch works in a thread pool", counted(until=1906, unowned=True), 1906, {}, SLOW_FOR_LONG, "slow"),
        ("a long batch works in a thread pool, for less than half an hour", counted(until=1895, unowned=True), 1895, {}, "StreamingBatchSlow", "slow"),
        ("a batch is retried for ever (MERGE), for 599 s", live_locked(until=696), 700, {}, "StreamingBatchSlow", "slow"),
        ("a batch is retried for ever (MERGE), for 601 s", live_locked(until=701), 702, {}, SLOW_FOR_LONG, "slow"),
        ("a batch is retried for ever, within its window of a minute", live_locked(until=156), 160, {}, None, "running"),
        ("a batch is retried, with a smaller limit for stalls", live_locked(until=300), 300, {"stall_critical_seconds": 180.0}, SLOW_FOR_LONG, "slow"),
        ("a batch is retried, with a larger limit for stalls", live_locked(until=1795), 1795, {"stall_critical_seconds": 1750.0}, "StreamingBatchSlow", "slow"),
        ("a batch is retried within a window that is longer than the limit for stalls", live_locked(until=800), 800, {"stall_floor_seconds": 900.0}, None, "running"),
        ("a retried batch finishes and commits", live_locked(until=690).commit(batch=10, at=695), 702, {}, None, "running"),
        ("a retried batch, in which one task now runs for 75 s",
         watched(live_locked(until=691), (696, 766, processing(batch=10, own=JobCounts(620, 1, 640, 1)))), 766, {}, "StreamingQueryStalled", "stalled"),
        ("foreachBatch runs two hundred jobs in each batch, and this batch is long", live_locked(until=1795, usual=400), 1795, {}, "StreamingBatchSlow", "slow"),
        ("foreachBatch runs two hundred jobs in each batch, and this one is slow for half an hour", live_locked(until=1906, usual=400), 1906, {}, SLOW_FOR_LONG, "slow"),
        ("a long batch runs four times the usual jobs", live_locked(until=1000, usual=210, jobs=5), 1000, {}, "StreamingBatchSlow", "slow"),
        ("a long batch runs less than ten jobs, though usually one", live_locked(until=701, usual=1, jobs=0), 702, {}, "StreamingQueryStalled", "stalled"),
        ("a long batch of many tasks in its only job", busy_batch(until=1795), 1795, {}, "StreamingBatchSlow", "slow"),
        ("the first batch of the next run catches up with many more jobs than usual",
         live_locked(until=1095, since=411, run_number=2, story=live_locked(until=300).ended(at=400).started(run=2, at=410)), 1100, {}, None, "starting"),
        ("the first batch of a run is retried for less than half an hour", live_locked(until=1895, first=True), 1895, {}, None, "starting"),
        ("the first batch of a run is retried for ever", live_locked(until=1906, first=True), 1906, {}, SLOW_FOR_LONG, "slow"),
        ("a long batch whose tasks finish, with a larger limit for slow ones", busy_batch(until=1906), 1906, {"slow_critical_seconds": 3600.0}, "StreamingBatchSlow", "slow"),
        ("a batch is retried for long, with larger limits", live_locked(until=1906), 1906, {"slow_critical_seconds": 3600.0, "stall_critical_seconds": 3600.0}, "StreamingBatchSlow", "slow"),
        ("a batch is retried for ever, with a shorter critical limit by pattern", live_locked(until=300), 300, {"overrides": [("a", {"slow_critical_seconds": 180.0})]}, SLOW_FOR_LONG, "slow"),
        ("a long batch within a window longer than half an hour", busy_batch(until=2000), 2000, {"stall_floor_seconds": 2000.0}, None, "running"),
        ("one task runs for 75 s in a batch that has been slow for half an hour",
         one_task(since=1890, until=1960, story=live_locked(until=1885)), 1960, {}, "StreamingQueryStalled", "stalled"),
        ("a long batch whose tasks finish, under a trigger of ten minutes",
         watched(triggered(begins=610, until=610, tasks=0), *((at, at + 4, processing(trigger=TEN_MINUTES, batch=1, tasks=at)) for at in range(615, 701, 5))), 700, {}, "StreamingBatchSlow", "slow"),
        ("a long batch whose tasks finish, while the JVM pauses for some seconds (GC)", busy_batch(until=900), 915, {}, None, "running"),
        ("a batch whose tasks finish, within the window", busy_batch(until=150), 150, {}, None, "running"),
        ("long batches whose tasks finish, as always (the window follows the longest recent batch)",
         watched(Story().started(at=0).commit(batch=9, at=100, seconds=90), *((at, at + 4, processing(batch=10, tasks=at)) for at in range(101, 330, 5))), 330, {}, None, "running"),
        ("a backlog after an outage: the first batch of the run is huge",
         watched(steady().ended(at=101).started(run=2, at=102), *((at, at + 4, processing(number=2, batch=10, tasks=at)) for at in range(105, 900, 5))), 900, {}, None, "starting"),
        # -- StreamingOffsetsStalled ------------------------------------------------------------------------
        ("one partition is stuck with unread data, the other advances (Burrow rule 4)",
         kafka(*(topic(5, 100 + n) for n in range(10)), latest=topic(9, 999)), 105, {}, "StreamingOffsetsStalled", "stalled"),
        ("a Delta source is stuck while stateful batches run",
         kafka(*[delta(4)] * 10, latest=delta(9), rows=0, input_rows=0),
         105, {}, "StreamingOffsetsStalled", "stalled"),
        ("one of a Python source's numbered partitions is stuck with unread data", kafka(*({"part-0": n, "part-1": 5} for n in range(10)), latest={"part-0": 10, "part-1": 9}),
         105, {}, "StreamingOffsetsStalled", "stalled"),
        ("offsets that are text differ from the latest at every poll (commit time, cursor)",
         kafka(*[{"lsn": "2a", "commit_time": "10:00:00"}] * 10, latest=[{"lsn": "2a", "commit_time": f"10:00:{n:02}"} for n in range(10)]), 105, {}, None, "running"),
        ("offsets that are text fall behind the latest", kafka(*["tok-1"] * 10, latest="tok-7"), 105, {}, None, "running"),
        ("numbers that are no partitions stay behind (a time, a version)", kafka(*[{"offset": 3, "timestamp": 7}] * 10, latest={"offset": 4, "timestamp": 9}), 105, {}, None, "running"),
        ("availableNow has read one source to its target; Spark reports later data, another source continues (Python sources since 4.2)",
         kafka(*[{"offset": 50}] * 10, latest=[{"offset": 60 + 10 * n} for n in range(10)], story=Story().probe(run(trigger=AVAILABLE_NOW), at=0)), 105, {}, None, "running"),
        ("an idle topic under no-data batches (Burrow #38, #94, #140)", kafka(*[topic(5)] * 10, latest=topic(5), rows=0, input_rows=0), 105, {}, None, "running"),
        ("the first message after long idleness (Burrow #303)",
         kafka(*[topic(5)] * 10, latest=[topic(5)] * 9 + [topic(6)]), 105, {}, None, "running"),
        ("unread data remains after every batch, but offsets advance (maxOffsetsPerTrigger)",
         kafka(*(topic(n) for n in range(10)), latest=topic(10_000)), 105, {}, None, "running"),
        ("offsets advance without rows (transaction markers, compaction: Burrow #570)",
         kafka(*(topic(n) for n in range(10)), latest=topic(10_000), rows=0, input_rows=0), 105, {}, None, "running"),
        ("a new partition: known to the source, not to the query yet (kafka_exporter #28)",
         kafka(*[topic(5)] * 10, latest=topic(5, 1000)), 105, {}, None, "running"),
        ("the latest offset is older than the end offset (read at different times: kafka_exporter #76; RealTime)",
         kafka(*[topic(9)] * 10, latest=topic(5)), 105, {}, None, "running"),
        ("the source does not report its latest offset (file source)", kafka(*[{"logOffset": 3}] * 10, latest=None), 105, {}, None, "running"),
        ("stuck for only two batches: too few samples", kafka(*[topic(5)] * 2, latest=topic(9), every=80), 95, {}, None, "running"),
        ("stuck, but not for the window yet", kafka(*[topic(5)] * 5, latest=topic(9)), 60, {}, None, "running"),
        ("stuck, then it advanced", kafka(*[topic(5)] * 9, topic(9), latest=topic(9)), 105, {}, None, "running"),
        ("stuck for some batches, then idle: the source holds back (minOffsetsPerTrigger)",
         kafka(*[topic(5)] * 5, latest=topic(9)).idle(at=290), 300, {}, None, "idle"),
        ("its Delta table grows, it is stuck while another source drives its batches",
         on_table(*[delta(4)] * 10, reads=4, newest=list(range(5, 15))), 105, {}, "StreamingOffsetsStalled", "stalled"),
        ("its Delta table grows, and it follows", on_table(*(delta(n + 1) for n in range(10)), reads=list(range(10)), newest=list(range(1, 11))), 105, {}, None, "running"),
        ("its Delta table is far ahead, and it reads file by file (maxFilesPerTrigger)",
         on_table(*(delta(4, n) for n in range(10)), reads=4, newest=900), 105, {}, None, "running"),
        ("its Delta table is quiet while another source drives its batches", on_table(*[delta(4)] * 10, reads=4, newest=4), 105, {}, None, "running"),
        ("availableNow has read its Delta table as of its start; another source continues, and the table grows",
         on_table(*[delta(4)] * 10, reads=4, newest=list(range(5, 15)), trigger=AVAILABLE_NOW), 105, {}, None, "running"),
        ("the first version after long quietness", on_table(*[delta(4)] * 10, reads=4, newest=[4] * 9 + [5]), 105, {}, None, "running"),
        # -- StreamingOffsetsRewound ------------------------------------------------------------------------
        ("its Delta table was replaced by a shorter one, so it idles for ever (seen on Delta 4.4.0)",
         polled_at(steady().idle(at=300), (110, 5, 5), (125, 5, 2), (190, 5, 2), (200, 5, 3)), 301, {}, "StreamingOffsetsRewound", "rewound"),
        ("its Delta table ends before it, but not for the window yet", polled_at(steady().idle(at=300), (240, 5, 2), (300, 5, 2)), 301, {}, None, "idle"),
        ("its Delta table ended before it at the only poll (later polls fail)", polled_at(steady().idle(at=300), (125, 5, 2)), 301, {}, None, "idle"),
        ("its Delta table ended before it at one poll, then no more (a late listing)",
         polled_at(steady().idle(at=300), (110, 5, 2), (125, 5, 5), (290, 5, 2), (300, 5, 2)), 301, {}, None, "idle"),
        ("its Delta table ends where the query has read up to", polled_at(steady().idle(at=300), (110, 5, 5), (300, 5, 5)), 301, {}, None, "idle"),
        ("restarted on the table that replaced its own",
         polled_at(polled_at(steady().idle(at=200), (110, 5, 2), (190, 5, 2)).ended(at=200).started(run=2, at=201).idle(run=2, at=300)), 301, {}, None, "idle"),
        ("an end offset went down and stays down (Burrow rule 2; a recreated topic)",
         kafka(topic(900), *(topic(n) for n in range(10)), latest=None), 105, {}, "StreamingOffsetsRewound", "rewound"),
        ("a Delta table was restored to an older version, and stays there",
         kafka(delta(9, 3), *[delta(4, 3)] * 9, latest=None), 105, {}, "StreamingOffsetsRewound", "rewound"),
        ("the topic was recreated with little data: one batch there, then idle",
         kafka(topic(900), topic(1), latest=None).idle(at=30).idle(at=100), 105, {}, "StreamingOffsetsRewound", "rewound"),
        ("the topic was recreated with little data, not for the window yet", kafka(topic(900), topic(1), latest=None).idle(at=30), 75, {}, None, "idle"),
        ("an end offset went down, and newer data is held back (minOffsetsPerTrigger)",
         watched(kafka(topic(900), topic(1), latest=None), (25, 100, run(batch=2, idle_progress=progress(batch=2, committed=False, sources=(source(topic(1), topic(5)),))))), 105, {}, None, "waiting"),
        ("an end offset went down for one batch, then beyond", kafka(topic(9), topic(5), *(topic(10 + n) for n in range(8)), latest=None), 105, {}, None, "running"),
        ("an end offset went down, not for the window yet", kafka(topic(900), *(topic(n) for n in range(5)), latest=None), 65, {}, None, "running"),
        ("a restart repeats its last batches (async tracking), then passes them",
         kafka(*(topic(n) for n in range(8, 16)), latest=None, first=110, batch=8, story=kafka(*(topic(n) for n in range(10)), latest=None)), 185, {}, None, "running"),
        ("a partition is gone", kafka(topic(5, 5), *[topic(6)] * 9, latest=None), 105, {}, None, "running"),
        ("the query reads another table (Delta's reservoirId)",
         kafka(delta(9, 3), *[delta(1, 3, table="s")] * 9, latest=None), 105, {}, None, "running"),
        ("a change of its Delta table's schema (Delta writes the base index -100 as -1)",
         kafka(delta(8), delta(8, -20), delta(8, -19), latest=None).idle(at=100), 105, {}, None, "idle"),
        ("offsets of unknown shape change", kafka(*(f"tok-{9 - n}" for n in range(10)), latest=None), 105, {}, None, "running"),
        # -- StreamingQueryLagging -------------------------------------------------------------------------
        ("lag rises for the whole window", lagging(*(2000 + 100 * n for n in range(7))), 372, {}, "StreamingQueryLagging", "lagging"),
        ("lag rises from nothing, with a batch every two seconds",
         lagging(*(60 * n for n in range(200)), every=2), 410, {}, "StreamingQueryLagging", "lagging"),
        ("lag rises from nothing, with a batch every two seconds, not for the window yet",
         lagging(*(60 * n for n in range(160)), every=2), 330, {}, None, "running"),
        ("lag rises, the window is shorter by pattern", lagging(2000, 2100, 2200, 2300), 192, {"overrides": [("a", {"trend_window_seconds": 120.0})]}, "StreamingQueryLagging", "lagging"),
        ("lag is huge and falls: catching up after an outage (Burrow rule 5)", lagging(*(90_000 - 100 * n for n in range(7))), 372, {}, None, "running"),
        ("lag is steady (transaction markers: Burrow #461)", lagging(*[5000] * 7), 372, {}, None, "running"),
        ("lag is steady, then rises a little", lagging(*[5000] * 6, 5050), 372, {}, None, "running"),
        ("lag rises a little in each window, on and on", lagging(*(5000 + 10 * n for n in range(40))), 2352, {}, "StreamingQueryLagging", "lagging"),
        ("lag rises a little in each window and has not risen by much yet", lagging(*(5000 + 10 * n for n in range(20))), 1152, {}, None, "running"),
        ("lag rises, but is small (DBR: small non-zero lag is healthy)", lagging(*(10 + n for n in range(7))), 372, {}, None, "running"),
        ("lag crossed the limit within the window", lagging(500, 700, 900, 1100, 1300, 1500, 1700), 372, {}, None, "running"),
        ("lag rose, fell once, rises again", lagging(2000, 2100, 2200, 2150, 2250, 2350, 2450), 372, {}, None, "running"),
        ("lag rises for four minutes (a burst)", lagging(2000, 3000, 4000, 5000, 6000), 252, {}, None, "running"),
        ("lag rises without input: not falling behind", lagging(*(2000 + 100 * n for n in range(7)), rows=0), 372, {}, None, "running"),
        ("more arrives than is processed, seen at the broker between commits", at_broker(lambda t: 2000 + 100 * t, lambda t: 85 * t, seconds=720), 722, {}, "StreamingQueryLagging", "lagging"),
        ("more arrives than is processed, in bursts of a minute each ten minutes", at_broker(bursts(660_000), lambda t: min(bursts(660_000)(t - 20), 1000 * t), seconds=7200), 7202, {}, "StreamingQueryLagging", "lagging"),
        ("bursts of a minute each ten minutes are read before the next one", at_broker(bursts(540_000), lambda t: min(bursts(540_000)(t - 20), 1000 * t), seconds=7200), 7202, {}, None, "running"),
        ("every batch reads all there is; the rate rises all morning", at_broker(lambda t: t * t / 10, lambda t: (t - 30) ** 2 / 10, seconds=7200), 7202, {}, None, "running"),
        ("one of its topics was deleted, then more arrives than is processed", topic_deleted(until=1600), 1602, {}, "StreamingQueryLagging", "lagging"),
        ("more arrives than is processed, says Spark; the broker has stopped answering", at_broker(lambda t: 1000 * t, lambda t: 1000 * t, seconds=1500, asked_until=120, spark_says=200), 1502, {}, "StreamingQueryLagging", "lagging"),
        ("more arrives than is processed while Spark reports no lag, the window is shorter by pattern", at_broker(lambda t: 4000 + 100 * t, lambda t: 70 * t, seconds=240), 242, {"overrides": [("a", {"trend_window_seconds": 120.0})]}, "StreamingQueryLagging", "lagging"),
        ("every batch reads all there is; as much arrives between commits", at_broker(lambda t: 1000 * t, lambda t: 1000 * (t - 30)), 422, {}, None, "running"),
        ("polls drift against the batches: the lag only seems to rise", at_broker(lambda t: 1000 * t, lambda t: 1000 * (t - 30), poll_every=15.2), 422, {}, None, "running"),
        ("the lag at the broker rose once, when batches found their pace, and is steady since", at_broker(lambda t: 1000 * t, lambda t: 1000 * (t - min(t / 5, 30))), 422, {}, None, "running"),
        ("polls drift against the batches, one poll per batch", at_broker(lambda t: 1000 * t, lambda t: 1000 * (t - 30), poll_every=60.5), 422, {}, None, "running"),
        ("lag rises by no more than what arrives between two polls", at_broker(lambda t: 100 * t, lambda t: 97 * t - 2000), 422, {}, None, "running"),
        ("the lag at the broker is huge and falls: catching up", at_broker(lambda t: 900_000 + 100 * t, lambda t: 300 * t), 422, {}, None, "running"),
        ("the lag at the broker rises, but is small", at_broker(lambda t: 100 + t, lambda t: 0.5 * t), 422, {}, None, "running"),
        ("a burst at the broker, processed since", at_broker(lambda t: 100 * t + (90_000 if t > 150 else 0), lambda t: 100 * t + max(0, t - 160) * 300 - 1500), 422, {}, None, "running"),
        ("the lag at the broker is tiny, whatever Spark reports", at_broker(lambda t: 10 * t, lambda t: 10 * t, spark_says=5000), 422, {}, None, "running"),
        ("the lag at the broker rose, then the broker does not answer for long", at_broker(lambda t: 2000 + 100 * t, lambda t: 85 * t, asked_until=200), 422, {}, None, "running"),
        ("lag is not known", kafka(*(topic(n) for n in range(8)), latest=None, every=50), 362, {}, None, "running"),
        ("lag rises, but stays below the limit", lagging(*(2000 + 100 * n for n in range(7))), 372, {"lag_allowed_offsets": 50_000.0}, None, "running"),
        # what a source reports by itself, an open transaction, runs in a loop
        ("files outstanding grow from 100 to 3,050 (Auto Loader)", reporting("backlog_files", *range(100, 3100, 400)), 432, {}, "StreamingQueryLagging", "lagging"),
        ("files outstanding only grow, a hundred in each batch", reporting("backlog_files", *range(100, 900, 100)), 432, {}, "StreamingQueryLagging", "lagging"),
        ("the records of a source grow late by minutes (Kinesis)", reporting("behind_seconds", *range(310, 710, 50)), 432, {}, "StreamingQueryLagging", "lagging"),
        ("a source is always 100 s late, 60 s are allowed", reporting("behind_seconds", *[100] * 8), 432, ALLOWED, "StreamingQueryLagging", "lagging"),
        ("a source is always 200 s late, 60 s are allowed", reporting("behind_seconds", *[200] * 8), 432, ALLOWED, [("StreamingQueryLagging", "a", "critical")], "lagging"),
        ("files outstanding grow beside a topic that is read to its end", reporting("backlog_files", *range(100, 3100, 400), kafka="reported"), 432, {}, "StreamingQueryLagging", "lagging"),
        ("files outstanding grow beside a topic whose broker is polled", reporting("backlog_files", *range(100, 3100, 400), kafka="polled"), 432, {}, "StreamingQueryLagging", "lagging"),
        ("a source is always 200 s late beside a topic whose broker is polled, 60 s are allowed",
         reporting("behind_seconds", *[200] * 8, kafka="polled"), 432, ALLOWED, [("StreamingQueryLagging", "a", "critical")], "lagging"),
        ("records are ever later by minutes beside a topic with a steady lag", reporting("behind_seconds", *range(310, 710, 50), kafka="reported", unread=5000), 432, {}, "StreamingQueryLagging", "lagging"),
        ("files outstanding fall beside a topic whose broker is polled", reporting("backlog_files", *range(3100, 100, -400), kafka="polled"), 432, {}, None, "running"),
        ("files outstanding are steady beside a topic with a steady lag", reporting("backlog_files", *[2000] * 8, kafka="reported", unread=5000), 432, {}, None, "running"),
        ("files outstanding are few and grow beside a topic with a steady lag", reporting("backlog_files", *range(10, 90, 10), kafka="polled", unread=5000), 432, {}, None, "running"),
        ("a source is always 20 s late beside a topic whose broker is polled, 60 s are allowed", reporting("behind_seconds", *[20] * 8, kafka="polled"), 432, ALLOWED, None, "running"),
        ("a source catches up beside a topic whose broker is polled", reporting("behind_seconds", *range(3600, 400, -400), kafka="polled"), 432, ALLOWED, None, "running"),
        ("files outstanding fall: catching up", reporting("backlog_files", *range(3100, 100, -400)), 432, {}, None, "running"),
        ("files outstanding are steady", reporting("backlog_files", *[2000] * 8), 432, {}, None, "running"),
        ("files outstanding grow, but are few", reporting("backlog_files", *range(10, 90, 10)), 432, {}, None, "running"),
        ("files outstanding grow for four minutes (a burst)", reporting("backlog_files", *range(100, 2100, 400)), 252, {}, None, "running"),
        ("files outstanding grow, but more are allowed", reporting("backlog_files", *range(100, 3100, 400)), 432, LAG_IS_FINE, None, "running"),
        ("files outstanding grew, then fell once", reporting("backlog_files", 100, 500, 900, 1300, 1700, 2100, 2500, 2400), 432, {}, None, "running"),
        ("unread bytes alone have no limit", reporting("backlog_bytes", *range(10**6, 9 * 10**6, 10**6)), 432, {}, None, "running"),
        ("a source is a few seconds late, and ever later", reporting("behind_seconds", *range(8)), 432, {}, None, "running"),
        ("a source is an hour late and catches up", reporting("behind_seconds", *range(3600, 400, -400)), 432, ALLOWED, None, "running"),
        ("a source is always 400 s late, and no limit is set", reporting("behind_seconds", *[400] * 8), 432, {}, None, "running"),
        ("a source is always 20 s late, 60 s are allowed", reporting("behind_seconds", *[20] * 8), 432, ALLOWED, None, "running"),
        ("the log grows behind an open transaction; Spark says idle, the lag is 0", transacted(stable=200, log_end=lambda at: 200 + 4 * at, until=930), 930, {}, "StreamingQueryLagging", "lagging"),
        ("transactions of ten minutes (Flink), and the first one since the driver started has been open for nine", transacted(stable=200, log_end=lambda at: 200 + 4 * at, until=555), 555, {}, None, "idle"),
        ("transactions of ten minutes (Flink), and the driver started within one",
         transacted(stable=lambda at: (at + 100) // 600 * 6000, log_end=lambda at: 10 * at + 1000, until=1085), 1085, {}, None, "idle"),
        ("transactions of ten minutes (Flink), and the driver started at the end of one",
         transacted(stable=lambda at: (at + 550) // 600 * 6000, log_end=lambda at: 10 * at + 5500, until=640), 640, {}, None, "idle"),
        ("a few records wait behind an open transaction, for an hour", transacted(stable=200, log_end=203, until=3600), 3600, {}, "StreamingQueryLagging", "lagging"),
        ("transactions of seconds, one after another", transacted(stable=lambda at: 4 * at - 40, log_end=lambda at: 4 * at), 400, {}, None, "idle"),
        ("transactions of ten minutes, one after another (Flink)",
         transacted(stable=lambda at: at // 600 * 6000, log_end=lambda at: 10 * at, until=7190), 7190, {}, None, "idle"),
        ("transactions of ten minutes, then one has been open for 25", transacted(stable=lambda at: min(at // 600, 6) * 6000, log_end=lambda at: 10 * at, until=5100), 5100, {}, None, "idle"),
        ("transactions of ten minutes, then one has been open for 35", transacted(stable=lambda at: min(at // 600, 6) * 6000, log_end=lambda at: 10 * at, until=5700), 5700, {}, "StreamingQueryLagging", "lagging"),
        ("transactions of seconds, then one has been open for six minutes", transacted(stable=lambda at: min(at, 240) * 4 - 40, log_end=lambda at: 4 * at, until=600), 600, {}, "StreamingQueryLagging", "lagging"),
        ("a transaction was open for an hour; the one since is for half an hour", transacted(stable=lambda at: at // 3600, log_end=9000, until=5400), 5400, {}, None, "idle"),
        ("a transaction was open for an hour once, others since for seconds; now one is for six minutes",
         transacted(stable=lambda at: min(at, 3900) if at > 3600 else 0, log_end=9000, until=4280), 4280, {}, "StreamingQueryLagging", "lagging"),
        ("a transaction hangs for an hour, 60 s are allowed", transacted(stable=200, log_end=203, until=3600), 3600, ALLOWED, LAGS_CRITICALLY, "lagging"),
        ("a record has waited for thirteen minutes, and in another partition a transaction has been open for seven", beside_transaction(), 790, ALLOWED_200, LAGS_CRITICALLY, "lagging"),
        ("transactions of seconds, then one has been open for nine minutes, 200 s are allowed",
         transacted(stable=lambda at: min(at, 240) * 4 - 40, log_end=lambda at: 4 * at, until=780), 780, ALLOWED_200, "StreamingQueryLagging", "lagging"),
        ("transactions of ten minutes, one after another, 200 s are allowed",
         transacted(stable=lambda at: at // 600 * 6000, log_end=lambda at: 10 * at, until=7190), 7190, ALLOWED_200, None, "idle"),
        ("a transaction of four minutes, 60 s are allowed", transacted(stable=200, log_end=900, until=255), 255, ALLOWED, None, "idle"),
        ("transactions of seconds, one after another, 60 s are allowed", transacted(stable=lambda at: 4 * at - 40, log_end=lambda at: 4 * at), 400, ALLOWED, None, "idle"),
        ("a transaction hangs for an hour, 60 s are allowed, and the query was stopped", transacted(stable=200, log_end=203, until=3600).expect_stop().ended(at=3601), 3602, ALLOWED, None, "stopped"),
        ("a transaction of four minutes", transacted(stable=lambda at: 200 if at < 250 else 1200, log_end=1200), 400, {}, None, "idle"),
        ("nothing is open", transacted(stable=200, log_end=200), 400, {}, None, "idle"),
        ("uncommitted records are read, too", asked(steady().idle(at=400), 15, 400, committed=200, latest=200), 400, {}, None, "idle"),
        ("an open transaction was seen by one poll only; the broker has not answered since",
         transacted(stable=200, log_end=900, until=15).idle(at=400), 400, {}, None, "idle"),
        ("an open transaction, and the query was stopped", transacted(stable=200, log_end=900).expect_stop().ended(at=401), 402, {}, None, "stopped"),
        ("availableNow in a loop: the lag after each run grows", looping(*range(2000, 9000, 1000)), 365, {}, "StreamingQueryLagging", "lagging"),
        ("availableNow in a loop: several batches in each run, and the lag after each run grows",
         looping(*range(2000, 9000, 1000), batches=3), 366, {}, "StreamingQueryLagging", "lagging"),
        ("availableNow in a loop, hourly: the lag after each run grows, and no run reads what the one before left",
         looping(*range(2000, 9000, 1000), every=3600, lasts=60), 21_665, {}, "StreamingQueryLagging", "lagging"),
        ("availableNow in a loop: each run reads all that was there, and more arrives each time", looping(*range(2000, 9000, 1000), reads=9000), 365, {}, None, "completed"),
        ("availableNow in a loop, hourly: each run reads all that was there, and more arrives each time (a morning)",
         looping(2000, 2000, 5000, 8000, 12_000, every=3600, lasts=120, reads=100_000), 14_525, {}, None, "completed"),
        ("availableNow in a loop, hourly: the same of files", looping(200, 200, 500, 800, 1200, every=3600, lasts=120, files=True), 14_525, {}, None, "completed"),
        ("availableNow in a loop: the next run begins far behind",
         looping(*[2000] * 7).started(run=8, at=420).probe(run(number=8, trigger=AVAILABLE_NOW, batch=7), at=421)
         .commit(run=8, batch=7, at=424, sources=(source(topic(7500), topic(90_000)),)), 425, {}, None, "running"),
        ("availableNow in a loop: the lag falls", looping(*range(9000, 2000, -1000)), 365, {}, None, "completed"),
        ("availableNow in a loop: each run begins far behind and ends as the one before", looping(*[2000] * 7, batches=3), 366, {}, None, "completed"),
        ("availableNow in a loop: four runs", looping(*range(2000, 6000, 1000)), 186, {}, None, "completed"),
        ("availableNow in a loop that has ended", looping(*range(2000, 9000, 1000)), 700, {}, None, "completed"),
        ("availableNow, once, with many batches that read less than arrives",
         lagging(*(2000 + 100 * n for n in range(7)), story=Story().probe(run(trigger=AVAILABLE_NOW), at=0)), 372, {}, None, "running"),
        # lag in seconds, where it is limited
        ("the first unread record always waits for 100 s, 60 s are allowed", unread(lambda _: 100), 900, ALLOWED, "StreamingQueryLagging", "lagging"),
        ("the first unread record waits longer and longer", unread(lambda t: t / 4, seconds=700), 700, ALLOWED, "StreamingQueryLagging", "lagging"),
        ("the first unread record waits longer and longer, three times the limit", unread(lambda t: t / 4), 900, ALLOWED, [("StreamingQueryLagging", "a", "critical")], "lagging"),
        ("the first unread record had waited for an hour at the start, and the query does not catch up", unread(lambda _: 3600), 900, ALLOWED, [("StreamingQueryLagging", "a", "critical")], "lagging"),
        ("the first unread record waits for 100 s, and its timestamp is in 1970", unread(lambda _: 100, written=lambda _: 0), 900, ALLOWED, "StreamingQueryLagging", "lagging"),
        ("the first unread record waits for 100 s, and its timestamp is tomorrow", unread(lambda _: 100, written=lambda t: t + 86_400), 900, ALLOWED, "StreamingQueryLagging", "lagging"),
        ("the first unread record waits for 100 s, the limit is set by pattern", unread(lambda _: 100), 900, LAG_IS_FINE | {"overrides": [("a", {"lag_allowed_seconds": 60.0})]}, "StreamingQueryLagging", "lagging"),
        ("the first unread record waits for three times the limit; rewound offsets are only a warning",
         unread(lambda t: t / 4, sources=gone_back), 900, ALLOWED, [("StreamingQueryLagging", "a", "critical")], "lagging", ["StreamingOffsetsRewound"]),
        ("the first unread record waits for twice the limit; the rule for rewound offsets comes first",
         unread(lambda t: t / 6, sources=gone_back), 900, ALLOWED, "StreamingOffsetsRewound", "rewound", ["StreamingQueryLagging"]),
        ("the first unread record waits for 100 s, and no limit is set", unread(lambda _: 100), 900, LAG_IS_FINE, None, "running"),
        ("the first unread record waits for 50 s, 60 s are allowed", unread(lambda _: 50), 900, ALLOWED, None, "running"),
        ("the first unread record waits for 100 s, more is allowed by pattern", unread(lambda _: 100), 900, ALLOWED | {"overrides": [("a", {"lag_allowed_seconds": 600.0})]}, None, "running"),
        ("the first unread record waits for too long, not for the window yet", unread(lambda t: 30 if t < 650 else 100), 900, ALLOWED, None, "running"),
        ("the first unread record waited for too long for four minutes (a burst)", unread(lambda t: 200 if 500 < t < 740 else 5), 790, ALLOWED, None, "running"),
        ("the query catches up after an outage", unread(lambda t: max(20, 1500 - t)), 900, ALLOWED, None, "running"),
        ("the query catches up slowly", unread(lambda t: 1500 - t / 3), 900, ALLOWED, None, "running"),
        ("records have old timestamps and are read at once (a replayed log)", unread(lambda _: 5, written=lambda t: t - 86_400), 900, ALLOWED, None, "running"),
        ("records have no timestamp", unread(lambda _: 100, written=lambda _: None), 900, ALLOWED, None, "running"),
        ("the topic is idle", asked(steady().idle(at=890), 15, 900, committed=500, latest=500), 900, ALLOWED, None, "idle"),
        ("one record every ten minutes, read at once", unread(lambda _: 0, ends=lambda t: 100 + int(t) // 600), 900, ALLOWED, None, "running"),
        ("the producer pauses, and the query has read everything",
         asked(steady(unread(lambda _: 5, seconds=400), until=900), 400, 900, committed=end(400), latest=end(400)), 900, ALLOWED, None, "running"),
        ("only transaction markers are unread", asked(steady(until=900), 15, 900, committed=499, latest=500, first_waiting=500), 900, ALLOWED, None, "running"),
        ("an hourly trigger: each commit reads all there is",
         unread(lambda _: 0, seconds=14_400, every=3600, story=Story().probe(run(trigger=HOURLY, data=True), at=0)), 14_000, ALLOWED, None, "running"),
        ("the source holds data back (minOffsetsPerTrigger)", asked(steady().idle(at=890), 15, 900, committed=0, latest=500, since=20), 900, ALLOWED, None, "idle"),
        ("the first unread record waited for 100 s, then the broker stopped answering", unread(lambda _: 100, asked_until=500), 900, ALLOWED, None, "running"),
        ("the query hangs: another rule reports it", asked(hung_batch(until=900), 15, 900, latest=end, committed=end(100), since=100), 900, ALLOWED, "StreamingQueryStalled", "stalled"),
        ("the driver was frozen for ten minutes, and the query catches up",
         unread(lambda t: 5 if t < 400 else max(5, 1600 - t), seconds=1090, story=Story().started(at=0).paused(at=1000, seconds=600)), 1090, ALLOWED, None, "running"),
        ("the topic was recreated, and is read at once", unread(lambda _: 3, ends=lambda t: int(end(t)) if t < 600 else int(10 * (t - 600))), 900, ALLOWED, None, "running"),
        # -- StreamingQueryFlapping ------------------------------------------------------------------------
        ("fails three times; a successful restart does not refill the budget", dying(100, 150, 200, alive_after=True), 206, {}, "StreamingQueryFlapping", "flapping"),
        ("its third failure is reported as flapping", dying(100, 150, 200), 201, {}, "StreamingQueryFlapping", "failed", ["StreamingQueryFailed"]),
        ("fails in the same batch again and again (poison_batch)", dying(100, 500, 1000, 1500, batch=7), 1501, {},
         [("StreamingQueryFailed", "a"), ("StreamingQueryFlapping", "a")], "failed"),
        ("failed for an hour since its third failure", dying(100, 150, 200), 3800, {}, "StreamingQueryFlapping", "failed", ["StreamingQueryFailed"]),
        ("fails twice", dying(100, 150, alive_after=True), 160, {}, None, "running"),
        ("fails three times in half an hour", dying(100, 1000, 1900, alive_after=True), 1910, {}, None, "running"),
        ("failed three times, then healthy for ten minutes", dying(100, 150, 200, alive_after=True).commit(run=4, batch=9, at=840), 850, {}, None, "running"),
        ("flapped long ago, not recovered since, and now fails for another reason",
         dying(100, 150, 200).started(run=4, at=1500).ended(run=4, at=1900, exception="java.io.IOException: gone"), 1901, {}, "StreamingQueryFailed", "failed"),
        ("a larger budget", dying(100, 150, 200, alive_after=True), 206, {"restart_budget": 5}, None, "running"),
        ("different batches fail over days (no poison batch)", dying(100, 5000, 9000, alive_after=True), 9010, {}, None, "running"),
        ("a second start stops the first run (stopActiveRunOnRestart), whose end arrives late",
         steady().started(run=2, at=101).ended(run=1, at=102).commit(run=2, batch=10, at=105), 162, {"expected": ["a"]}, None, "running"),
        ("three failures, each reported after its restart: each one counts",
         steady().started(run=2, at=101).ended(run=1, at=102, exception=CONFLICT).started(run=3, at=111).ended(run=2, at=112, exception=CONFLICT)
         .started(run=4, at=121).ended(run=3, at=122, exception=CONFLICT), 123, {}, [("StreamingQueryFailed", "a"), ("StreamingQueryFlapping", "a")], "failed"),
        ("the batch that failed three times succeeds at last", dying(100, 500, 1000, batch=7).started(run=4, at=2001).commit(run=4, batch=7, at=2005), 2006, {}, None, "running"),
        ("planned restarts, every minute", steady().ended(at=101).started(run=2, at=102).commit(run=2, batch=10, at=103).ended(run=2, at=160)
         .started(run=3, at=161).commit(run=3, batch=11, at=162).ended(run=3, at=220).started(run=4, at=221).commit(run=4, batch=12, at=222), 225, {}, None, "running"),
        ("availableNow in a loop", Story().probe(run(trigger=AVAILABLE_NOW), at=0).ended(at=2).probe(run(number=2, trigger=AVAILABLE_NOW), at=10).ended(run=2, at=12)
         .probe(run(number=3, trigger=AVAILABLE_NOW), at=20).ended(run=3, at=22), 30, {}, None, "completed"),
        # -- StreamingDataLossRisk -------------------------------------------------------------------------
        ("hangs, the first unread record has used up 3/4 of its retention time", near_the_edge(850), 850, {},
         [("StreamingQueryStalled", "a"), ("StreamingDataLossRisk", "a")], "stalled"),
        ("failed, and not restarted", dead_at(850), 850, {}, [("StreamingQueryFailed", "a"), ("StreamingDataLossRisk", "a")], "failed"),
        ("failed, and its broker does not answer: records still expire", dead_at(300), 950, {}, [("StreamingQueryFailed", "a"), ("StreamingDataLossRisk", "a")], "failed"),
        ("flaps and stays failed: the danger is reported, the third failure is not",
         near_the_edge(1000, story=dying(50, 75, 101), run=3), 1000, {}, [("StreamingQueryFlapping", "a"), *DATA_IS_LOST], "failed", ["StreamingQueryFailed"]),
        ("vanished", near_the_edge(850, story=steady().probe(run(), at=100).probe(at=101).probe(at=102)), 850, {},
         [("StreamingQueryStopped", "a"), ("StreamingDataLossRisk", "a")], "stopped_unexpectedly"),
        ("hangs, and the topic is bounded by size (retention.bytes strikes first)", near_the_edge(850, kept=BY_SIZE), 850, {},
         [("StreamingQueryStalled", "a"), ("StreamingDataLossRisk", "a")], "stalled"),
        ("hangs, and the topic's retention may not be read", near_the_edge(850, kept=UNKNOWN_RETENTION), 850, {},
         [("StreamingQueryStalled", "a"), ("StreamingDataLossRisk", "a")], "stalled"),
        ("hangs until retention has passed it", near_the_edge(1300), 1300, {}, [("StreamingQueryStalled", "a"), *DATA_IS_LOST], "stalled"),
        ("hangs, 69.9% of the retention time are used up", near_the_edge(799), 799, {}, "StreamingQueryStalled", "stalled"),
        ("hangs, 70.1% of the retention time are used up", near_the_edge(801), 801, {}, [("StreamingQueryStalled", "a"), ("StreamingDataLossRisk", "a")], "stalled"),
        ("hangs, 89.9% of the retention time are used up", near_the_edge(999), 999, {}, [("StreamingQueryStalled", "a"), ("StreamingDataLossRisk", "a")], "stalled"),
        ("hangs, 90.1% of the retention time are used up", near_the_edge(1001), 1001, {}, [("StreamingQueryStalled", "a"), *DATA_IS_LOST], "stalled"),
        ("failed, 15% of the retention time are used up, and a tenth is the limit by pattern", dead_at(250), 250, TENTH_OF_RETENTION, [("StreamingQueryFailed", "a"), ("StreamingDataLossRisk", "a")], "failed"),
        ("failed, 69% of the retention time are used up, and a tenth is the limit by pattern", dead_at(790), 790, TENTH_OF_RETENTION, [("StreamingQueryFailed", "a"), ("StreamingDataLossRisk", "a")], "failed"),
        ("failed, 71% of the retention time are used up, and a tenth is the limit by pattern", dead_at(810), 810, TENTH_OF_RETENTION, [("StreamingQueryFailed", "a"), *DATA_IS_LOST], "failed"),
        ("failed, 25% of the retention time are used up, and a tenth is the limit of another query", dead_at(350), 350, {"overrides": [("b", {"data_loss_warning_ratio": 0.1})]}, "StreamingQueryFailed", "failed"),
        ("commits, but retention has passed it (restarted after a long outage)",
         asked(steady(until=200), 195, 200, **BY_TIME, committed=end(-950), since=None), 200, {}, DATA_IS_LOST, "lagging"),
        ("commits, but too slowly: 3/4 of the retention time, and growing", alive_at(400, behind=650, speed=0.5), 400, LAG_IS_FINE, "StreamingDataLossRisk", "lagging"),
        ("commits, but too slowly for a topic that is bounded by size", alive_at(700, behind=650, speed=0.7, kept=BY_SIZE), 700, LAG_IS_FINE, "StreamingDataLossRisk", "lagging"),
        ("read as fast as data arrived, 3/4 of the retention behind, and has just failed",
         alive_at(400, behind=750).ended(at=401, exception=CONFLICT), 402, {}, [("StreamingQueryFailed", "a"), ("StreamingDataLossRisk", "a")], "failed"),
        ("hangs, and its broker answers only since lately", near_the_edge(850, begin=830), 850, {}, [("StreamingQueryStalled", "a"), ("StreamingDataLossRisk", "a")], "stalled"),
        ("caught up for a while, and now falls behind again",
         asked(asked(steady(until=700), 100, 400, **BY_TIME, **reader(begins=990, speed=2.0)), 415, 700, **BY_TIME, **reader(begins=690, speed=0.5, since=400)), 700, LAG_IS_FINE, "StreamingDataLossRisk", "lagging"),
        ("reads on, but one partition is stuck and near its retention limit",
         asked(steady(until=850), 100, 850, keeps=1000, committed=lambda at: {"t/0": end(100), "t/1": end(at)},
               earliest=lambda at: {"t/0": edge(at), "t/1": edge(at)}, latest=lambda at: {"t/0": end(at), "t/1": end(at)}, since={"t/0": 100}),
         850, LAG_IS_FINE, "StreamingDataLossRisk", "lagging"),
        ("catches up from the beginning of the topic", alive_at(400, behind=990, speed=2.0), 400, {}, None, "running"),
        ("catches up, and the topic is bounded by size", alive_at(700, behind=990, speed=1.3, kept=BY_SIZE), 700, {}, None, "running"),
        ("catches up faster than retention deletes, which happens in steps", alive_at(407, behind=900, speed=1.2, kept=UNKNOWN_RETENTION), 407, {}, None, "running"),
        ("is near the retention limit and gains on it slowly", alive_at(400, behind=900, speed=1.05), 400, {}, None, "running"),
        ("everything is read, while old records expire", asked(steady(until=900), 15, 900, **BY_TIME, **HEALTHY), 900, {}, None, "running"),
        ("everything is read, and the topic is empty (kafka-lag-exporter #37: idle topic and retention)",
         asked(steady().idle(at=890), 15, 900, committed=500, latest=500, earliest=lambda at: 500 if at > 300 else 0, keeps=200), 900, {}, None, "idle"),
        ("the first record after long idleness, in an otherwise empty topic",
         asked(asked(steady().idle(at=890), 15, 840, committed=500, latest=500, earliest=lambda at: min(500, at // 60 * 50), sized=True),
               855, 900, committed=500, latest=501, earliest=500, sized=True, since=850), 900, {}, None, "idle"),
        ("holds back the whole topic for less than the window (minOffsetsPerTrigger)",
         asked(steady().idle(at=890), 870, 900, committed=0, latest=500, keeps=1000, since=100), 900, {}, None, "idle"),
        ("records wait for a while, as usual in a busy topic",
         asked(steady(until=900), 15, 900, **BY_TIME, committed=lambda at: end(at - 20), since=lambda at: at - 20), 900, {}, None, "running"),
        ("reads as fast as data arrives, half of the retention behind", alive_at(400, behind=500), 400, {}, None, "running"),
        ("failed, with half of the retention time left", dead_at(600), 600, {}, "StreamingQueryFailed", "failed"),
        ("failed, in a compacted topic: nothing expires by age", dead_at(2000, kept={"latest": end, "earliest": 0}), 2000, {}, "StreamingQueryFailed", "failed"),
        ("hangs, in a topic that keeps everything", near_the_edge(2000, kept={"latest": end, "earliest": 7}), 2000, {}, "StreamingQueryStalled", "stalled"),
        ("hangs from the beginning of a new topic, bounded by size: nothing has expired yet",
         near_the_edge(400, kept={"latest": end, "earliest": 100_000, "sized": True}, committed=100_000), 400, {}, "StreamingQueryStalled", "stalled"),
        ("the topic was recreated: the old offset is beyond its end",
         asked(asked(steady(until=900), 15, 300, **BY_TIME, **HEALTHY), 315, 900, committed=end(300), earliest=0, latest=lambda at: at, keeps=1000), 900, {}, "StreamingOffsetsRewound", "rewound"),
        ("failed, and the broker was polled only once", near_the_edge(850, begin=850, story=steady().ended(at=101, exception=CONFLICT)), 850, {}, "StreamingQueryFailed", "failed"),
        ("unread records grew old while the driver was frozen",
         asked(asked(steady(until=190), 15, 195, **BY_TIME, committed=lambda at: end(at - 20), since=lambda at: at - 20).paused(at=800, seconds=605),
               801, 801, latest=end, keeps=800, committed=end(175), since=175), 802, {}, None, "running"),
        ("the broker was polled only once", asked(steady(until=200), 200, 200, **BY_TIME, **reader(begins=950)), 200, {}, None, "running"),
        ("the broker has been polled for less than the window", asked(steady(until=200), 155, 200, **BY_TIME, **reader(begins=880, speed=0.1)), 200, {}, None, "running"),
        ("near the retention limit at the last poll, and commits since: the position is unknown",
         steady(alive_at(400, behind=650, speed=0.5), until=900), 900, {}, None, "running"),
        ("its broker has not answered for long, it committed, then it failed: the position is unknown",
         steady(alive_at(400, behind=650, speed=0.5), until=900).ended(at=901, exception=CONFLICT), 905, {}, "StreamingQueryFailed", "failed"),
        ("the age of the unread records is known only since lately",
         asked(steady(until=400), 100, 400, **BY_TIME, committed=reader(begins=750, speed=0.9)["committed"], since=lambda at: None if at < 380 else at - 780),
         400, LAG_IS_FINE, None, "running"),
        ("records without sensible timestamps, of a query that commits",
         asked(steady(until=900), 15, 900, latest=end, earliest=0, keeps=1000, committed=lambda at: end(at - 10), since=0), 900, {}, None, "running"),
        ("records with timestamps in the future", asked(steady(until=900), 15, 900, latest=end, earliest=0, keeps=1000, committed=lambda at: end(at - 10), since=9e9), 900, {}, None, "running"),
        ("a partition that the topic has and the query does not know yet",
         asked(steady(until=900), 15, 900, keeps=1000, committed=end, earliest=lambda at: {"t/0": edge(at), "t/1": edge(at)},
               latest=lambda at: {"t/0": end(at), "t/1": end(at)}, since={"t/1": 100}), 900, {}, None, "running"),
        ("the broker does not report where the partition begins",
         asked(steady(until=900), 15, 900, latest=end, earliest=None, keeps=1000, committed=end(-900), since=-900), 900, {}, None, "running"),
        ("only transaction markers are unread, and they are as old as the topic",
         asked(steady().idle(at=990), 15, 1000, committed=499, latest=500, first_waiting=500, earliest=lambda at: at // 300 * 10, keeps=100, sized=True), 1000, {}, None, "idle"),
        ("stopped, and the stop was announced", near_the_edge(900, story=steady().probe(run(), at=100).expect_stop().ended(at=101)), 900, {}, None, "stopped"),
        ("the application has stopped", near_the_edge(900, story=steady().probe(run(), at=100).probe(at=101, context=STOPPED)), 900, {}, None, "stopped"),
        ("availableNow, finished", near_the_edge(900, story=Story().probe(run(trigger=AVAILABLE_NOW), at=0).commit(batch=0, at=1).ended(at=2)), 900, {}, None, "completed"),
        ("in danger, but ignored", dead_at(850), 850, {"overrides": [("a", {"ignore": True})]}, None, "failed"),
        ("a larger ratio is set", alive_at(400, behind=650, speed=0.5), 400, LAG_IS_FINE | {"data_loss_warning_ratio": 0.95}, None, "running"),
        ("restarted after a long outage, and it has read nothing yet", restarted(read=False), 990, {}, [("StreamingQueryFailed", "a"), ("StreamingDataLossRisk", "a")], "failed"),
        ("restarted after a long outage, and it reads on", restarted(read=True), 990, {}, None, "running"),
        # -- StreamingDataLossRisk: batches that the sink skips -------------------------------------------
        ("a new checkpoint on an old output: the sink's log is ahead", writing(newest=49, skips_to=49), 105, {}, DATA_IS_LOST, "lagging"),
        ("the sink's log is ahead, and no batch has been committed yet", Story().started(at=0).probe(run(sink=FILES), at=1).sink(at=2, newest=49, skips_to=49), 3, {}, DATA_IS_LOST, "lagging"),
        ("the sink has skipped five batches in a moment, and writes again", writing(newest=4, skips_to=4), 105, {}, DATA_IS_LOST, "lagging"),
        ("the sink skips the next batch: another query writes to the same folder", writing(newest=9).sink(at=103, newest=10, skips_to=10), 105, {}, DATA_IS_LOST, "lagging"),
        ("the only batch of availableNow was skipped, and it is over",
         Story().started(at=0).probe(run(sink=FILES, trigger=AVAILABLE_NOW), at=1).commit(batch=0, at=2).ended(at=3).sink(at=4, newest=0, skips_to=0, first=0), 5, {}, DATA_IS_LOST, "lagging"),
        ("the sink has skipped batches, and writes again since more than a trend window", writing(newest=4, skips_to=4, until=400), 405, {}, None, "running"),
        ("the sink has skipped batches, then the query was stopped on purpose, long ago",
         writing(newest=49, skips_to=49).probe(run(), at=100).expect_stop().ended(at=101), 900, {}, None, "stopped"),
        ("the sink's log is where the query is", writing(newest=9), 105, {}, None, "running"),
        ("the sink has no log yet", writing(newest=None), 105, {}, None, "running"),
        ("the sink's log cannot be read, and batch ids go on", writing(trouble="denied"), 105, {}, None, "running"),
        ("the sink's log is ahead, but ignored", writing(newest=49, skips_to=49), 105, {"overrides": [("a", {"ignore": True})]}, None, "running"),
        ("a checkpoint was restored, and Hudi remembers newer ids", restored(HUDI), 71, {}, "StreamingDataLossRisk", "lagging"),
        ("a new checkpoint, and Hudi remembers the ids of the old one", restored(HUDI, new_id=True, batch=0), 71, {}, "StreamingDataLossRisk", "lagging"),
        ("a checkpoint was restored, and Delta remembers newer ids of this query", restored(DELTA), 71, {}, "StreamingDataLossRisk", "lagging"),
        ("a checkpoint was restored, and the log of its file sink cannot be read", restored(FILES, trouble="denied"), 71, {}, "StreamingDataLossRisk", "lagging"),
        ("a new checkpoint: Delta remembers ids by the query's, which is new", restored(DELTA, new_id=True, batch=0), 71, {}, None, "running"),
        ("a checkpoint was restored, and the log of its file sink is where the query is", restored(FILES, newest=3), 71, {}, None, "running"),
        ("a checkpoint was restored, and the log of its file sink was not read yet", restored(FILES), 71, {}, None, "running"),
        ("a new checkpoint on purpose, with foreachBatch", restored("ForeachBatchSink", new_id=True, batch=0), 71, {}, None, "running"),
        ("a checkpoint was restored, of a query that writes to Kafka", restored("KafkaSourceProvider$KafkaTable"), 71, {}, None, "running"),
        ("Hudi repeats the batch that was not committed", restored(HUDI, batch=9), 71, {}, None, "running"),
        ("Hudi has passed the ids of the old checkpoint", restored(HUDI).commits("id", "run-2", batch=9, at=75), 76, {}, None, "running"),
        ("hangs, and the next version of its table has used up 3/4 of the log's retention", unread_table(850), 850, {},
         [("StreamingQueryStalled", "a"), ("StreamingDataLossRisk", "a")], "stalled"),
        ("failed, and the next version of its table is older than the log is kept", unread_table(1200, story=failed_reader()), 1200, {}, FAILED_AND_LOSES, "failed"),
        ("hangs, and the log of its table was cleaned up past the next version", unread_table(400, kept_from=8), 400, {}, STALLS_AND_LOSES, "stalled"),
        ("failed, and the snapshot of its offset has expired", unread_table(400, story=failed_reader(), since=None, keeps=None, **EXPIRED), 400, {}, FAILED_AND_LOSES, "failed"),
        ("hangs, all rows are read, and the snapshot of its offset has expired after a compaction",
         unread_table(400, read=10, since=None, keeps=None, **EXPIRED), 400, {}, STALLS_AND_LOSES, "stalled"),
        ("reads its table too slowly: 3/4 of the log's retention, and growing",
         unread_table(400, story=steady(until=400), read=lambda at: at // 10, end=1000, kept_from=1, since=lambda at: at / 2 - 550), 400, {}, "StreamingDataLossRisk", "lagging"),
        ("failed, has read all of a table that nobody writes", unread_table(9000, story=failed_reader(), read=10, kept_from=10, since=None), 9000, {}, "StreamingQueryFailed", "failed"),
        ("failed, and the newest version is unread, however old: it is always kept",
         unread_table(9000, story=failed_reader(), read=9, kept_from=9, keeps=None), 9000, {}, "StreamingQueryFailed", "failed"),
        ("failed, and the log of its table is never cleaned up, or its settings are not known", unread_table(9000, story=failed_reader(), keeps=None), 9000, {}, "StreamingQueryFailed", "failed"),
        ("hangs, and the log of its table was cleaned up to what it has read", unread_table(400, kept_from=lambda at: min(7, at // 50)), 400, {}, "StreamingQueryStalled", "stalled"),
        ("hangs, the settings of its table are not known, and old versions are deleted",
         unread_table(400, keeps=None, kept_from=lambda at: min(6, at // 50)), 400, {}, "StreamingQueryStalled", "stalled"),
        ("failed, and half of the log's retention is left", unread_table(600, story=failed_reader()), 600, {}, "StreamingQueryFailed", "failed"),
        ("failed, and its table was polled once", unread_table(1000, begin=990, story=failed_reader()), 1000, {}, "StreamingQueryFailed", "failed"),
        ("begins at the oldest version on purpose, and catches up", unread_table(400, story=steady(until=400), read=lambda at: at // 10, end=100, kept_from=1, since=lambda at: 2 * at - 1000), 400, {}, None, "running"),
        ("reads one large version file by file, which has used up the log's retention",
         unread_table(400, story=steady(until=400), since=-900, within=lambda at: at), 400, {}, None, "running"),
        ("reads on while the snapshot of its last offset has expired: the batch in flight is beyond it",
         unread_table(400, story=steady(until=400), since=None, keeps=None, **EXPIRED), 400, {}, None, "running"),
        ("idle, and its table was compacted (Iceberg) or optimized (Delta): newer versions have no rows",
         unread_table(900, story=steady().idle(at=890), read=7, end=7, kept_from=0, since=None, unit="snapshot"), 900, {}, None, "idle"),
        ("idle, and old versions that it has read are deleted", unread_table(900, story=steady().idle(at=890), read=10, kept_from=lambda at: at // 100, since=None), 900, {}, None, "idle"),
        ("a version is unread for less than the window, in a table that is rarely written",
         unread_table(890, begin=880, every=5, story=steady().idle(at=885), since=880), 890, {}, None, "idle"),
        ("stopped as planned, with an expired snapshot", unread_table(400, story=steady().expect_stop().ended(at=101), **EXPIRED), 400, {}, None, "stopped"),
        ("in danger on its table, but ignored", unread_table(850, story=failed_reader()), 850, {"overrides": [("a", {"ignore": True})]}, None, "failed"),
        # -- StreamingDataLossRisk: records that were passed over -----------------------------------
        ("a new checkpoint begins at the latest offset, behind the last end", read_to().run(OTHER, begins=600).asks(600).waits(9), 40, {}, DATA_IS_LOST, "idle"),
        ("the same, and where it begins is known only after the poll", read_to().run(OTHER).asks(600).began(600).waits(9), 40, {}, DATA_IS_LOST, "idle"),
        ("the same, in one of two partitions",
         read_to({"0": 100, "1": 50}, latest={"0": 100, "1": 50}).run(OTHER, begins={"0": 100, "1": 90}).asks({"0": 100, "1": 90}, latest={"0": 100, "1": 90}).waits(9), 40, {}, DATA_IS_LOST, "idle"),
        ("the same, and the run under the new checkpoint is over", read_to().run(OTHER, begins=600).asks(600).waits(9).stops(), 45, {}, DATA_IS_LOST, "stopped"),
        ("the same, and the next run goes on under the new checkpoint", read_to().run(OTHER, begins=600).asks(600).waits(9).stops().run(OTHER).asks(600).waits(9), 60, {}, DATA_IS_LOST, "idle"),
        ("the same, a day ago but for a minute", read_to().run(OTHER, begins=600).asks(600).waits(86_340), 86_370, {}, DATA_IS_LOST, "idle"),
        ("a new checkpoint begins at the first retained offset, which is behind the last end",
         read_to().run(OTHER, begins=500).asks(500, earliest=500).waits(9), 40, {}, DATA_IS_LOST, "idle"),
        ("the topic was deleted and created again, longer than the committed offset", Reads().run().reads(100).asks(topic_id="A").waits(5).asks(100, topic_id="B", latest=150).waits(9), 30, {}, DATA_IS_LOST, "idle"),
        ("the same, and its records behind that offset have been read", Reads().run().reads(100).asks(topic_id="A").reads(150, start=100, rows=50).asks(topic_id="B", latest=150).waits(9), 30, {}, DATA_IS_LOST, "idle"),
        ("the same, between two runs", read_to(topic_id="A").run().asks(100, topic_id="B", latest=150).waits(9), 40, {}, DATA_IS_LOST, "idle"),
        ("records were deleted during a planned stop, and a poll shows it before the first batch",
         read_to().run().asks(100, earliest=500, at_rest=True).reads(600, start=100, rows=100).asks(earliest=500).waits(9), 40, {}, DATA_IS_LOST, "idle"),
        ("the same, and the first batch shows it", read_to().run().reads(600, start=100, rows=100).asks(earliest=500).waits(9), 40, {}, DATA_IS_LOST, "idle"),
        ("the same, and nothing is left in the topic", read_to().run().reads(500, start=100, rows=0).asks(earliest=500, latest=500).waits(9), 40, {}, DATA_IS_LOST, "idle"),
        ("the same, and nothing is known of the run before", Reads().run().reads(600, start=100, rows=100).asks(earliest=500).waits(9), 30, {}, DATA_IS_LOST, "idle"),
        ("records were deleted before a batch that was planned earlier had read them",
         read_to().run().asks(100, latest=600).asks(100, latest=600, earliest=500).reads(600, start=100, rows=100).asks(earliest=500).waits(9), 40, {}, DATA_IS_LOST, "idle"),
        ("a new checkpoint begins where the old one ended", read_to().run(OTHER, begins=100).asks(100).waits(9), 40, {}, None, "idle"),
        ("a new checkpoint begins with the topic, to read it once more", read_to().run(OTHER, begins=0).asks(0).waits(9), 40, {}, None, "idle"),
        ("a new checkpoint begins at the latest offset, which was read", read_to(latest=100).run(OTHER, begins=100).asks(100, latest=100).waits(9), 40, {}, None, "idle"),
        ("the same, and all records have expired", read_to(latest=100).run(OTHER, begins=100).asks(100, earliest=100, latest=100, at_rest=True).waits(9), 40, {}, None, "idle"),
        ("records were passed over, and a run has read them after all",
         read_to().run(OTHER, begins=600).asks(600).waits(9).stops().run("third", begins=100).asks(100).waits(9), 60, {}, None, "idle"),
        ("the same, from the beginning of the topic", read_to().run(OTHER, begins=600).asks(600).waits(9).stops().run("third", begins=0).asks(600).waits(9), 60, {}, None, "idle"),
        ("the same, with the old checkpoint", read_to().run(OTHER, begins=600).asks(600).waits(9).stops().run("cp").goes_on(1).asks(100).waits(9), 60, {}, None, "idle"),
        ("records were passed over, and a run has read those that are left",
         read_to().run(OTHER, begins=600).asks(600).waits(9).stops().run("third", begins=300).asks(300, earliest=300).waits(9), 60, {}, DATA_IS_LOST, "idle"),
        ("records were passed over a day ago", read_to().run(OTHER, begins=600).asks(600).waits(86_400), 86_430, {}, None, "idle"),
        ("a new checkpoint, and where it begins is not known", read_to().run(OTHER).asks(600).reads(700, rows=100).asks().waits(9), 40, {}, None, "idle"),
        ("a new checkpoint, and the source was not polled", read_to().run(OTHER, begins=600).reads(700, rows=100).waits(9), 40, {}, None, "idle"),
        ("a new checkpoint, and the broker does not answer", read_to().run(OTHER, begins=600).asks({}, latest={}).waits(9), 40, {}, None, "idle"),
        ("a new checkpoint, and another cluster", read_to().run(OTHER, begins=600).asks(600, system="mirror:9092").waits(9), 40, {}, None, "idle"),
        ("a new checkpoint, and the topic was created again", read_to(topic_id="A").run(OTHER, begins=600).asks(600, topic_id="B").waits(9), 40, {}, None, "idle"),
        ("the same name in another session", read_to(session="s1").run(OTHER, begins=600, session="s2").asks(600).waits(9), 40, {}, None, "idle"),
        ("neither run has a checkpoint of its own", read_to(place=TEMPORARY).run(OTHER, begins=600, place=TEMPORARY).asks(600).waits(9), 40, {}, None, "idle"),
        ("a planned rename, with the checkpoint", read_to(topic_id="A").run(name="b").asks(100, topic_id="A").waits(9), 40, {}, None, "idle"),
        ("partitions were added", read_to().run().asks({"0": 100, "1": 500}, earliest={"0": 0, "1": 500}, latest={"0": 100, "1": 500}).waits(9), 40, {}, None, "idle"),
        ("the last batch was committed, and its event was lost: the end may be older than it was",
         Reads().run().reads(100).asks().probe(polled_run("cp", "run-1", "a", batch=5), at=20).stops(after=10).run(OTHER, begins=600).asks(600).waits(9), 50, {}, None, "idle"),
        ("the same, but what was written after its end was not read",
         Reads().run().reads(100).asks().probe(polled_run("cp", "run-1", "a", batch=5), at=20).stops(after=10).run(OTHER, begins=600).asks(600, written_since=400).waits(9), 50, {}, DATA_IS_LOST, "idle"),
        ("the same, and nothing was written after its end",
         Reads().run().reads(100).asks().probe(polled_run("cp", "run-1", "a", batch=5), at=20).stops(after=10).run(OTHER, begins=600).asks(600, written_since=600).waits(9), 50, {}, None, "idle"),
        ("the last batch was committed, and nothing shows it: a stop came before its event",
         Reads().run(begins=0).asks(0).reads(100).stops().run(OTHER, begins=150).asks(150).waits(9), 40, {}, None, "idle"),
        ("the same, but what was written after the stop was not read",
         Reads().run(begins=0).asks(0).reads(100).stops().run(OTHER, begins=150).asks(150, written_since=120).waits(9), 40, {}, DATA_IS_LOST, "idle"),
        ("the same, and it was seen in flight after a poll",
         Reads().run(begins=0).reads(100).asks().probe(polled_run("cp", "run-1", "a", batch=1, busy=True, message="Processing new data"), at=14).stops().run(OTHER, begins=150).asks(150).waits(9), 40, {}, None, "idle"),
        ("it was idle before the stop", Reads().run(begins=0).asks(0).reads(100).waits(1).stops().run(OTHER, begins=150).asks(150).waits(9), 40, {}, DATA_IS_LOST, "idle"),
        ("it failed in its next batch", Reads().run(begins=0).asks(0).reads(100).stops(planned=False, exception="x").run(OTHER, begins=150).asks(150).waits(9), 40, {}, DATA_IS_LOST, "idle"),
        ("the start of the next run overtakes the event of the last batch", Reads().run(begins=0).asks(0, latest=0).reads(100).asks().overtaken(600).run(OTHER, after=1, begins=600).asks(600).late(end=600).asks(600).waits(9), 40, {}, None, "idle"),
        ("the same, and the query had not read all", Reads().run(begins=0).asks(0, latest=0).reads(100).asks().overtaken(300).run(OTHER, after=1, begins=600).asks(600).late(end=300).asks(600).waits(9), 40, {}, DATA_IS_LOST, "idle"),
        ("the same, and its end is not reported", Reads().run(begins=0).asks(0, latest=0).reads(100).asks().overtaken(600).run(OTHER, after=1, begins=600).asks(600, written_since=600).waits(99).asks(600, written_since=600), 140, {}, None, "idle"),
        ("the broker does not report ids, and the topic was created again", Reads().run().reads(100).asks().waits(5).asks(100, latest=150).waits(9), 30, {}, None, "idle"),
        ("the broker reports an id only now and then", Reads().run().reads(100).asks(topic_id="A").asks().asks(topic_id="A").waits(9), 30, {}, None, "idle"),
        ("the topic was created again before anything was read", Reads().run(begins=0).asks(0, topic_id="A", latest=0).asks(0, topic_id="B", latest=150).waits(9), 30, {}, None, "idle"),
        ("records that were read expire at once", Reads().run().reads(600, start=100, rows=500).asks(earliest=500).waits(9), 30, {}, None, "idle"),
        ("a batch of transactions, of which a part was deleted after it was read", Reads().run().reads(600, start=100, rows=250).asks(earliest=500).waits(9), 30, {}, None, "idle"),
        ("a batch of transactions", Reads().run().reads(600, start=100, rows=250).asks().waits(9), 30, {}, None, "idle"),
        ("a batch of nothing but aborted transactions", Reads().run().reads(600, start=100, rows=0).asks().waits(9), 30, {}, None, "idle"),
        ("foreachBatch does not read its batches, next to the retention edge",
         Reads().run().reads(50, start=40, rows=0).asks().reads(60, start=50, rows=0).asks(earliest=60).waits(9), 30, {}, None, "idle"),
        ("a batch of markers, and the broker answers again only after they have expired", Reads().run().reads(600, start=500, rows=0).asks(after=90, earliest=600).waits(9), 120, {}, None, "idle"),
        ("a compacted topic", Reads().run().reads(600, start=100, rows=3).asks(earliest=100).waits(9), 30, {}, None, "idle"),
        ("the query was rewound", Reads().run().reads(600).asks().reads(50, start=600, rows=0).asks().reads(600, start=50, rows=550).asks().waits(9), 40, {}, None, "idle"),
        ("a batch in flight may have read what is deleted now", Reads().run().reads(600, start=100, rows=500).asks(600, earliest=700, latest=900).asks(600, earliest=700, latest=900).reads(900, start=600, rows=300).asks(earliest=700).waits(9), 30, {}, None, "idle"),
        ("availableNow, again and again", read_to().run().reads(200, start=100, rows=100).asks(earliest=90).stops().run().reads(300, start=200, rows=100).asks(earliest=190).waits(9), 60, {}, None, "idle"),
        ("a new checkpoint begins at the latest version of its table, behind the last end, and nothing is committed",
         table_read_to().run(OTHER, begins=10).asks({}, latest=10, begins=10).waits(9), 40, {}, DATA_IS_LOST, "idle"),
        ("the same, and its first batch has ended", table_read_to().run(OTHER, begins=10).reads(12).asks(begins=10).waits(9), 40, {}, DATA_IS_LOST, "idle"),
        ("versions were deleted during a planned stop, and a poll shows it before the first batch",
         table_read_to().run().asks(7, earliest=9, oldest=9, at_rest=True).reads(12, start=7).asks().waits(9), 40, {}, DATA_IS_LOST, "idle"),
        ("the same, and the first batch had passed over them", table_read_to().run().reads(12, start=7).asks(passed=(7, 9), oldest=9).asks(passed=(7, 9), oldest=9).waits(9), 40, {}, DATA_IS_LOST, "idle"),
        ("the same, and nothing is known of the run before", TableReads().run().reads(12, start=7).asks(passed=(7, 9), oldest=9).waits(9), 30, {}, DATA_IS_LOST, "idle"),
        ("a new checkpoint begins with the next version of its table", table_read_to().run(OTHER, begins=7).asks({}, begins=7).reads(12).asks(begins=7).waits(9), 40, {}, None, "idle"),
        ("a new checkpoint begins with the snapshot of its table", table_read_to().run(OTHER, begins=0).asks({}, begins=0).reads(12).asks(begins=0).waits(9), 40, {}, None, "idle"),
        ("a new checkpoint begins with an older version of its table", table_read_to().run(OTHER, begins=3).asks({}, begins=3).reads(12).asks(begins=3).waits(9), 40, {}, None, "idle"),
        ("a new checkpoint, and the table does not show where it begins", table_read_to().run(OTHER, begins=10).asks({}).reads(12).asks().waits(9), 40, {}, None, "idle"),
        ("a new checkpoint on another table", table_read_to().run(OTHER, begins=10).asks({}, begins=10, table="U").waits(9), 40, {}, None, "idle"),
        ("a new checkpoint, and the last process was killed while it read the table",
         TableReads().run().reads(7).asks().probe(polled_run("cp", "run-1", "a", batch=5), at=20).stops(after=10).run(OTHER, begins=10).asks({}, begins=10).waits(9), 50, {}, None, "idle"),
        ("versions were passed over, and a run has read them after all",
         table_read_to().run(OTHER, begins=10).asks({}, begins=10).waits(9).stops().run("third", begins=7).asks({}, begins=7).waits(9), 60, {}, None, "idle"),
        ("versions were passed over, and a run has read the snapshot of the table",
         table_read_to().run(OTHER, begins=10).asks({}, begins=10).waits(9).stops().run("third", begins=0).asks({}, begins=0).waits(9), 60, {}, None, "idle"),
        ("versions were passed over a day ago, and are still in each poll", TableReads().run().reads(12, start=7).asks(passed=(7, 9), oldest=9).waits(86_400).asks(passed=(7, 9), oldest=9).waits(9), 86_430, {}, None, "idle"),
        ("versions are deleted, and a batch in flight may have read them", table_read_to().run().asks(7, earliest=9, oldest=9).reads(12, start=7).asks().waits(9), 40, {}, None, "idle"),
        ("versions without a row", table_read_to().run().reads(12, start=7, rows=0).asks().waits(9), 40, {}, None, "idle"),
        ("versions that were read are deleted", table_read_to().run().asks(7, oldest=7).reads(12, start=7).asks(oldest=12).waits(9), 40, {}, None, "idle"),
        # -- StreamingQueryFallingBehind -------------------------------------------------------------------
        ("batches grow from 30 s to 270 s, at a trigger of a minute", batches_of(*range(30, 280, 10)), 3810, {}, "StreamingQueryFallingBehind", "slow"),
        ("batches grow, each begins when the last has ended, and the lag rises",
         batches_of(*GROWING, trigger=AT_ONCE, lags=range(100, 540, 20)), 3305, {}, "StreamingQueryFallingBehind", "slow"),
        ("batches of 70 s take three times as long as a day ago", batches_of(*[20] * 1440, *[70] * 10), 87_110, {}, "StreamingQueryFallingBehind", "slow"),
        ("batches of 70 s take three times as long as a day ago, and as long as two days ago",
         batches_of(*[60] * 240, *[20] * 2640, *[70] * 10), 173_510, {}, "StreamingQueryFallingBehind", "slow"),
        ("batches of 70 s take three times as long as two days ago, and as long as a day ago",
         batches_of(*[20] * 1380, *[60] * 180, *[20] * 1320, *[70] * 10), 173_510, {}, None, "running"),
        ("batches take more than three times as long as a day ago, and each begins when the last has ended",
         batches_of(*[20] * 4300, *[70] * 10, trigger=AT_ONCE), 86_705, {}, "StreamingQueryFallingBehind", "slow"),
        ("batches outlast their trigger all day, and at noon they take half as long again as at noon a day ago",
         batches_of(*NIGHT_AND_NOON, *[70] * 600, *[430] * 5), 130_395, {}, "StreamingQueryFallingBehind", "slow"),
        ("batches outlast their trigger all day, and take longer at noon, as a day ago", batches_of(*NIGHT_AND_NOON, *[70] * 600, *[280] * 10), 131_045, {}, None, "running"),
        ("batches outlast their trigger all day, and on the first day they take twice as long at noon", batches_of(*range(70, 140)), 7250, {}, None, "running"),
        ("batches grow by the time of day, a little more than a day ago", batches_of(*NIGHT_AND_NOON, *[70] * 600, *[400] * 10), 132_245, {}, None, "running"),
        ("batches take twice as long as a day ago, and each begins when the last has ended", batches_of(*[35] * 2460, *[70] * 10, trigger=AT_ONCE), 86_805, {}, None, "running"),
        ("batches grow from 30 s to 170 s, at a trigger of a minute, on the first day", batches_of(*range(30, 180, 10)), 1600, {}, None, "running"),
        ("batches always outlast their trigger, and do not grow", batches_of(*[90] * 15), 1360, {}, None, "running"),
        ("batches outlast their trigger, as a day ago", batches_of(*[90] * 970), 87_310, {}, None, "running"),
        ("batches take twice as long as a day ago", batches_of(*[35] * 1440, *[70] * 10), 87_110, {}, None, "running"),
        ("batches grow, and fit into their trigger interval", batches_of(*range(5, 58, 2)), 1625, {}, None, "running"),
        ("batches grow by the time of day, and each begins when the last has ended: the lag is not known", batches_of(*GROWING, trigger=AT_ONCE), 3305, {}, None, "running"),
        ("batches grow by the time of day, and each reads all there is", batches_of(*GROWING, trigger=AT_ONCE, lags=[0] * 22), 3305, {}, None, "running"),
        ("batches grow, each begins when the last has ended, and the lag is steady", batches_of(*GROWING, trigger=AT_ONCE, lags=[900] * 22), 3305, {}, None, "running"),
        ("batches grow, each begins when the last has ended, and the lag falls", batches_of(*GROWING, trigger=AT_ONCE, lags=range(900, 460, -20)), 3305, {}, None, "running"),
        ("batches grow, each begins when the last has ended, and the lag rose once", batches_of(*GROWING, trigger=AT_ONCE, lags=[100] * 4 + [900] * 18), 3305, {}, None, "running"),
        ("batches grow, and take less than a minute, without a trigger interval", batches_of(*range(1, 58), trigger=AT_ONCE), 1655, {}, None, "running"),
        ("batches grow a little", batches_of(*range(90, 105)), 1460, {}, None, "running"),
        ("batches grew for a while, and the last one fits again", batches_of(*range(30, 180, 10), 50), 1650, {}, None, "running"),
        ("batches grow, four of them so far", batches_of(*[30] * 5, *range(70, 190, 30)), 765, {}, None, "running"),
        ("each tenth batch runs OPTIMIZE, for ever longer", batches_of(*(80 + 20 * n if n % 10 == 9 else 30 for n in range(41))), 3300, {}, None, "running"),
        ("a backlog is read in ever shorter batches", batches_of(*range(180, 60, -10)), 1445, {}, None, "running"),
        ("availableNow has much to read, and its batches grow", batches_of(*range(40, 190, 10), trigger=AVAILABLE_NOW), 1640, {}, None, "running"),
        ("availableNow in a loop: its runs take longer and longer, and the next one runs", runs_of(*LONGER_RUNS, goes_on=True), 3650, {}, "StreamingQueryFallingBehind", "slow"),
        ("availableNow in a loop: its runs take longer and longer, between two of them", runs_of(*LONGER_RUNS), 3630, {}, "StreamingQueryFallingBehind", "slow"),
        ("availableNow in a loop: its runs of many short batches take longer and longer",
         runs_of(*LONGER_RUNS, batches=30, goes_on=True), 3650, {}, "StreamingQueryFallingBehind", "slow"),
        ("availableNow in a loop: its runs take twice as long as at first", runs_of(*range(75, 165, 10), 150), 1120, {}, None, "completed"),
        ("availableNow in a loop: its runs are always long", runs_of(*[400] * 12), 4862, {}, None, "completed"),
        ("availableNow in a loop: its runs take longer and longer, and the last one was short", runs_of(*LONGER_RUNS, 50, goes_on=True), 3690, {}, None, "idle"),
        ("availableNow in a loop: its runs take longer and longer, and less than a minute", runs_of(*range(5, 58, 2)), 970, {}, None, "completed"),
        ("availableNow in a loop: its runs took longer and longer, and one failed", runs_of(*LONGER_RUNS, fails=(10,)), 3630, {}, None, "completed"),
        ("availableNow in a loop: a run is five times as long as the others", runs_of(*[100] * 8, 500, 100), 1450, {}, None, "completed"),
        ("availableNow each hour: its runs take longer and longer in the morning, and it rests between them",
         runs_of(*range(200, 1800, 200), every=3600), 26_900, {}, None, "completed"),
        ("availableNow has caught up in ever longer runs, and runs as a stream since", runs_of(*LONGER_RUNS).started(run=12, at=3700).probe(run(number=12, batch=11), at=3701).commit(run=12, batch=11, at=3702),
         3703, {}, None, "running"),
        ("it grew, restarted, and has had one batch since", batches_of(*range(30, 180, 10)).ended(at=1600, exception=CONFLICT).started(run=2, at=1610).commit(run=2, batch=15, at=1790, seconds=175),
         1800, {}, None, "running"),
        # -- StreamingWatermarkStuck -----------------------------------------------------------------------
        ("newer rows arrive, the watermark does not advance (Dataflow: data freshness)",
         watermarks(440.0, *[500.0] * 8, newest=NEWER), 492, {}, "StreamingWatermarkStuck", "watermark_stuck"),
        ("the watermark never advances, although event times do: the other source has none",
         watermarks(*[0.0] * 8, newest=1.7e9, rows=(10, 10)), 432, {}, "StreamingWatermarkStuck", "watermark_stuck"),
        ("stuck since before the driver started, and event times have moved on by hours",
         watermarks(*[500.0] * 8, newest=[600.0, *[8000.0] * 7]), 432, {}, "StreamingWatermarkStuck", "watermark_stuck"),
        ("one row from 2099: the watermark is ahead, all rows are late, and none is counted",
         watermarks(*[4e9] * 9, newest=NEWER, clock=700.0), 492, {}, "StreamingWatermarkStuck", "watermark_stuck"),
        ("one row from the year 292278994, and the rows are dropped",
         watermarks(*[9e15] * 8, newest=600.0, clock=700.0, late=9), 432, {}, "StreamingWatermarkStuck", "watermark_stuck", ["StreamingRowsDropped"]),
        ("an event was lost when the watermark advanced; newer rows arrive since, and it does not advance",
         watermarks(0.0, *[3000.0] * 3, *[6600.0] * 8, newest=[3600.0] * 3 + [7200.0] + [11_000.0] * 8, lost=3), 672, {}, "StreamingWatermarkStuck", "watermark_stuck"),
        ("event times of the hour, and the event was lost in which it changed",
         watermarks(0.0, *[3000.0] * 3, *[6600.0] * 8, newest=[3600.0] * 3 + [7200.0] * 9, lost=3), 672, {}, None, "running"),
        ("event times of the hour, which wait for two hours, and the event was lost in which it changed",
         watermarks(0.0, *[28_800.0] * 3, *[32_400.0] * 8, newest=[36_000.0] * 3 + [39_600.0] * 9, lost=3), 672, {}, None, "running"),
        ("event times of the hour, and the event was lost in which it changed for the first time",
         watermarks(*[3000.0] * 2, *[6600.0] * 8, newest=[3600.0] + [7200.0] * 9, lost=1), 552, {}, None, "running"),
        ("event times of the hour, and the event was lost in which the watermark advanced",
         watermarks(0.0, *[3000.0] * 3, *[6600.0] * 9, newest=[3600.0] * 3 + [7200.0] * 10, lost=4), 732, {}, None, "running"),
        ("availableNow in a loop: newer rows arrive, the watermark does not advance",
         watermarks(440.0, *[500.0] * 8, newest=NEWER, loops=True), 492, {}, "StreamingWatermarkStuck", "watermark_stuck"),
        ("availableNow in a loop: the watermark advances", watermarks(*(500.0 + n for n in range(9)), newest=NEWER, loops=True), 492, {}, None, "completed"),
        ("availableNow in a loop: event time of the hour", watermarks(440.0, *[500.0] * 8, newest=[600.0] * 9, loops=True), 492, {}, None, "completed"),
        ("availableNow in a loop that has ended, and the watermark did not advance", watermarks(440.0, *[500.0] * 8, newest=NEWER, loops=True), 820, {}, None, "completed"),
        ("availableNow in a loop: the watermark did not advance, then a run failed",
         watermarks(440.0, *[500.0] * 8, newest=NEWER, loops=True).started(run=10, at=495).ended(run=10, at=496, exception=CONFLICT), 497, {}, "StreamingQueryFailed", "failed"),
        ("event time of the hour: the watermark is the same for an hour", watermarks(440.0, *[500.0] * 8, newest=[600.0] * 9), 492, {}, None, "running"),
        ("event time of the hour, and the next hour has just begun", watermarks(440.0, *[500.0] * 8, newest=[600.0] * 7 + [4200.0] * 2), 492, {}, None, "running"),
        ("one device's clock is ahead, and the others follow", watermarks(440.0, *[3500.0] * 8, newest=[3600.0, *NEWER[:8]]), 492, {}, None, "running"),
        ("one device's clock was ahead before the driver started", watermarks(*[3500.0] * 9, newest=NEWER), 492, {}, None, "running"),
        ("old rows are sent again, and the watermark has no reason to advance", watermarks(440.0, *[500.0] * 8, newest=[600.0, *range(590, 510, -10)]), 492, {}, None, "running"),
        ("event times of the hour, of which the first advance was seen",
         watermarks(440.0, 440.0, *[500.0] * 7, newest=[540.0, 600.0, *[600.0] * 7]), 492, {}, None, "running"),
        ("event times begin in 1970, within the delay", watermarks(*[0.0] * 9, newest=NEWER), 492, {}, None, "running"),
        ("rows without event time, or none after a filter", watermarks(*[0.0] * 8), 432, {}, None, "running"),
        ("event times are in the future by nature (forecasts): the watermark follows them",
         watermarks(*[4e9] * 8, newest=4e9 + 60, clock=700.0), 432, {}, None, "running"),
        ("the watermark advances", watermarks(*(500.0 + n for n in range(9)), newest=NEWER), 492, {}, None, "running"),
        ("a join waits for its other side", watermarks(440.0, *[500.0] * 8, rows=(10, 0), newest=NEWER), 492, {}, None, "running"),
        ("no rows, only no-data batches", watermarks(440.0, *[500.0] * 8, rows=(0,), newest=NEWER), 492, {}, None, "running"),
        ("two sources, and the event times of one end", watermarks(*STEADY, *[920.0] * 8, newest=[600.0 + 60 * n for n in range(16)], rows=(10, 10)),
         912, {}, "StreamingWatermarkStuck", "watermark_stuck"),
        ("event times of the hour, and those of the second source end", of_the_hour(21_600, ends=7200), 21_602, SLOWLY, "StreamingWatermarkStuck", "watermark_stuck"),
        *((f"event times of the hour, and those of the second source come {late // 60} minutes later, since minute {since // 60}",
           of_the_hour(until, late=late, since=since), until - since + 2, SLOWLY, None, "running")
          for late in (600, 1800, 3300) for since in (1500, 3000, late - 300) for until in (3600 + late, 7200 + late, 14_400 + late)),
        ("event times of the hour, and the second source has no rows since the third hour", of_the_hour(36_000, idles=9600), 36_002, SLOWLY, None, "running"),
        ("two sources, and one has no rows any more", watermarks(*STEADY, *[920.0] * 8, newest=[600.0 + 60 * n for n in range(16)], rows=[(10, 10)] * 9 + [(10, 0)] * 7),
         912, {}, None, "running"),
        ("a query without a watermark", watermarks(*[None] * 9, newest=NEWER), 492, {}, None, "running"),
        ("the watermark does not advance, not for the window yet", watermarks(440.0, *[500.0] * 5, newest=NEWER), 312, {}, None, "running"),
        ("the watermark was stuck, then it advanced", watermarks(440.0, *[500.0] * 7, 501.0, newest=NEWER), 492, {}, None, "running"),
        # -- StreamingRowsDropped --------------------------------------------------------------------------
        ("nine of ten rows are late, in each batch, while the watermark advances", watermarks(*STEADY, late=9), 432, {}, "StreamingRowsDropped", "lagging"),
        ("each batch drops rows; Spark counts few of them, after aggregation", watermarks(*STEADY, late=1), 432, {}, "StreamingRowsDropped", "lagging"),
        ("a backfill: the newest event time is an hour behind the watermark, and nothing is counted",
         watermarks(*[5000.0] * 8, newest=1400.0, state=7), 432, {}, "StreamingRowsDropped", "lagging"),
        ("an old file is read, of a query that keeps no state and drops nothing", watermarks(*[5000.0] * 8, newest=1400.0), 432, {}, None, "running"),
        ("the newest event time is a little behind the watermark", watermarks(*[5000.0] * 8, newest=4900.0, state=7), 432, {}, None, "running"),
        ("each batch of a million rows drops one", watermarks(*STEADY, late=1, rows=(1_000_000,)), 432, {}, None, "running"),
        ("rows are dropped now and then: what a watermark is for", watermarks(*STEADY, late=[9, 9, 0, 9, 9, 9, 0, 9]), 432, {}, None, "running"),
        ("rows were dropped for a while (a phone came back), then no more", watermarks(*STEADY, late=[9] * 7 + [0]), 432, {}, None, "running"),
        ("availableNow in a loop: each run drops rows", watermarks(*STEADY, late=9, loops=True), 432, {}, "StreamingRowsDropped", "lagging"),
        ("availableNow in a loop: the last run drops none", watermarks(*STEADY, late=[9] * 7 + [0], loops=True), 432, {}, None, "completed"),
        ("availableNow in a loop: some runs drop rows", watermarks(*STEADY, late=[9, 9, 0, 9, 9, 9, 0, 9], loops=True), 432, {}, None, "completed"),
        ("availableNow in a loop: runs drop rows, not for the window yet", watermarks(*STEADY[:5], late=9, loops=True), 252, {}, None, "completed"),
        ("availableNow in a loop that has ended, and each run dropped rows", watermarks(*STEADY, late=9, loops=True), 760, {}, None, "completed"),
        ("availableNow in a loop: each run dropped rows, then it began with a new checkpoint",
         watermarks(*STEADY, late=9, loops=True).started_again(at=440), 445, {}, None, "starting"),
        ("availableNow in a loop: the next run has begun, and read nothing yet", watermarks(*STEADY, late=9, loops=True).started(run=9, at=440), 445, {}, None, "starting"),
        ("rows are dropped, not for the window yet", watermarks(*STEADY[:5], late=9), 252, {}, None, "running"),
        ("two huge batches drop rows: too few samples", watermarks(*STEADY[:2], late=9, every=400), 412, {"stall_floor_seconds": 100.0}, None, "running"),
        ("no rows, so no late ones", watermarks(*STEADY, rows=(0,), late=9), 432, {}, None, "running"),
        ("rows were dropped, then the query failed", watermarks(*STEADY, late=9).ended(at=433, exception=CONFLICT), 434, {}, "StreamingQueryFailed", "failed"),
        ("rows are dropped, but ignored", watermarks(*STEADY, late=9), 432, {"overrides": [("a", {"ignore": True})]}, None, "running"),
        # -- StreamingInputMissing ----------------------------------------------------------------
        ("no rows for longer than expected", steady().idle(at=690), 710, INPUT, "StreamingInputMissing", "idle"),
        ("no rows for longer than expected, seen by the probe only", watched(steady(), (101, 705, run(batch=10))), 710, INPUT, "StreamingInputMissing", "idle"),
        ("batches without rows, again and again", kafka(*[topic(5)] * 61, latest=topic(5), rows=0, input_rows=0, first=110, batch=10, story=steady()), 715, INPUT, "StreamingInputMissing", "idle"),
        ("no rows since its run began", Story().started(at=0).idle(at=600), 610, INPUT, "StreamingInputMissing", "idle"),
        ("no rows for an hour, the limit is set by pattern", steady().idle(at=3690), 3710, {"overrides": [("a", {"expected_input_seconds": 3600.0})]}, "StreamingInputMissing", "idle"),
        ("no rows since its restart",
         steady().ended(at=101, exception=CONFLICT).started(run=2, at=103).idle(run=2, at=700), 710, INPUT, "StreamingInputMissing", "idle"),
        ("restarted a minute ago, and only starting since", steady().probe(run(), at=690).expect_stop().ended(at=691).started(run=2, at=695), 750, INPUT, "StreamingInputMissing", "starting"),
        ("no rows before its restart; since then, the probe has seen commits whose events are late",
         steady().idle(at=690).probe(run(batch=10), at=695).ended(at=696, exception=CONFLICT).probe(run(number=2, batch=11), at=700).probe(run(number=2, batch=13), at=702),
         710, INPUT, None, "running"),
        ("no rows reported, but the event of the batch that completed the run before is late",
         Story().started(at=0).probe(processing(batch=0, tasks=0, trigger=AVAILABLE_NOW), at=650)
         .probe(run(batch=1, trigger=AVAILABLE_NOW, active=False), at=660).started(run=2, at=695), 710, INPUT, None, "starting"),
        ("no rows reported, and the run before was stopped within a batch",
         Story().started(at=0).probe(processing(batch=0, tasks=0), at=650).expect_stop().ended(at=660).started(run=2, at=695), 710, INPUT, None, "starting"),
        ("availableNow runs that read no rows, again and again",
         Story().started(at=0).probe(run(trigger=AVAILABLE_NOW), at=1).idle(at=2).ended(at=550)
         .started(run=2, at=560).probe(run(number=2, trigger=AVAILABLE_NOW), at=561).ended(run=2, at=690).started(run=3, at=695), 710, INPUT, "StreamingInputMissing", "starting"),
        ("availableNow in a loop, between two runs that read no rows", looping(*[0] * 12, rows=0), 670, INPUT, "StreamingInputMissing", "idle"),
        ("availableNow in a loop: one run of the last ten minutes read rows",
         looping(*[0] * 3, rows=0).started(run=4, at=180).commit(run=4, batch=3, at=184).ended(run=4, at=185).probe(run(number=5, trigger=AVAILABLE_NOW), at=700), 710, INPUT, None, "idle"),
        ("a hundred batches in a row move the offsets and read no row (Iceberg after a compaction)", kafka(*snapshots(101), **EMPTY), 1011, {}, "StreamingInputMissing", "idle"),
        ("ninety batches in a row move the offsets and read no row", kafka(*snapshots(90), **EMPTY), 901, {}, None, "running"),
        ("a hundred batches move the offsets and read no row, within a minute", kafka(*snapshots(101), **EMPTY, every=0.5), 62, {}, None, "running"),
        ("two hundred batches, and each reads rows", kafka(*snapshots(200), latest=None), 2001, {}, None, "running"),
        ("stateful batches at an end that does not move", kafka(*snapshots(1) * 200, **EMPTY), 2001, {}, None, "running"),
        ("offsets that are text move in each trigger of an idle source (MongoDB: the cluster's time)",
         kafka(*({"version": 1, "offset": {"$timestamp": {"t": n}}} for n in range(200)), **EMPTY), 2001, {}, None, "running"),
        ("one number moves in each trigger of an idle source: a time", kafka(*({"at": n} for n in range(200)), **EMPTY), 2001, {}, None, "running"),
        ("no rows, and none are expected", steady().idle(at=9990), 10_000, {}, None, "idle"),
        ("no rows, not for long enough", steady().idle(at=690), 699, INPUT, None, "idle"),
        ("rows arrived a moment ago", steady().idle(at=690).commit(batch=10, at=705), 710, INPUT, None, "running"),
        ("every batch has rows", steady(until=900), 905, INPUT, None, "running"),
        ("no rows before its restart, and none since",
         steady().idle(at=640).ended(at=650, exception=CONFLICT).started(run=2, at=655).idle(run=2, at=700), 710, INPUT, "StreamingInputMissing", "idle"),
        ("no rows before two restarts, and none since",
         steady().ended(at=400, exception=CONFLICT).started(run=2, at=405).ended(run=2, at=650, exception=CONFLICT)
         .started(run=3, at=655).idle(run=3, at=715), 720, INPUT, "StreamingInputMissing", "idle"),
        ("failed long ago, restarted lately, and idle since",
         steady().ended(at=101, exception=CONFLICT).started(run=2, at=695).idle(run=2, at=705), 710, INPUT, None, "idle"),
        ("started, within the limit", Story().started(at=0).idle(at=500), 510, INPUT, None, "idle"),
        ("a day is allowed by pattern", steady().idle(at=890), 900, INPUT | {"overrides": [("a", {"expected_input_seconds": 86_400.0})]}, None, "idle"),
        ("it is stalled: another rule reports it", hung_batch(until=900), 900, INPUT, "StreamingQueryStalled", "stalled"),
        ("it has failed: another rule reports it", steady().ended(at=101, exception=CONFLICT), 900, INPUT, "StreamingQueryFailed", "failed"),
        ("it was stopped, and the stop was announced", steady().probe(run(), at=100).expect_stop().ended(at=101), 900, INPUT, None, "stopped"),
        ("availableNow, finished", Story().probe(run(trigger=AVAILABLE_NOW), at=0).commit(batch=0, at=1).ended(at=2), 900, INPUT, None, "completed"),
        ("a batch is in flight, and may have rows",
         watched(steady().idle(at=690), (695, 710, processing(batch=10, tasks=3))), 712, INPUT, None, "running"),
        ("batches take ten minutes, and have rows", Story().started(at=0).commit(batch=0, at=600, seconds=590).commit(batch=1, at=1200, seconds=590),
         1790, {"expected_input_seconds": 300.0}, None, "running"),
        ("an hourly trigger",
         Story().probe(run(trigger=HOURLY, data=True), at=0).commit(batch=0, at=10), 3500, INPUT, None, "running"),
        ("only the probe sees the commits: their rows are unknown",
         watched(steady(), *((at, at + 5, processing(batch=11 + at // 10)) for at in range(101, 715, 10))), 715, INPUT, ("QuerypulseEventsMissing", "*"), "running"),
        ("only the commit log shows a commit, whose event is late: its rows are unknown",
         steady().probe(run(batch=10), at=101).log(committed=9, at=102).log(committed=10, at=700).probe(run(batch=11), at=701), 710, INPUT, None, "idle"),
        ("the first reading of the commit log shows the commit, whose event is late",
         steady().probe(run(batch=10), at=101).log(committed=10, at=700).probe(run(batch=11), at=701), 710, INPUT, None, "idle"),
        ("Continuous has no events that count rows", CONTINUOUS_IS_FINE, 900, INPUT, None, "running"),
        ("Continuous, just restarted", epochs(until=900, log_until=900).started(run=2, at=902), 903, INPUT, None, "running"),
        ("only the probe sees the commits, then a restart",
         watched(steady(), *((at, at + 5, processing(batch=11 + at // 10)) for at in range(101, 715, 10))).started(run=2, at=716).idle(run=2, at=718),
         719, INPUT, None, "idle"),
        ("the driver was frozen", steady().idle(at=105).paused(at=800, seconds=690), 805, INPUT, None, "idle"),
        ("the application has stopped its SparkContext", steady().probe(run(), at=100).probe(at=101, context=STOPPED), 900, INPUT, None, "stopped"),
        ("ignored", steady().idle(at=890), 900, INPUT | {"overrides": [("a", {"ignore": True})]}, None, "idle"),
        # -- StreamingInputMissing: one source of several -----------------------------------------
        ("one of two sources has no rows any more", united(10, 20, 30), 705, INPUT, "StreamingInputMissing", "idle"),
        ("one of two sources has had no rows since the run began", united(), 705, INPUT, "StreamingInputMissing", "idle"),
        ("one of two sources has no rows any more, and a batch is always in flight",
         watched(united(10, 20, 30), (701, 705, processing(batch=70))), 706, INPUT, "StreamingInputMissing", "idle"),
        ("one of two sources had no rows before a restart, and has none since", over_restart(10, 50, until=700), 705, INPUT, "StreamingInputMissing", "idle"),
        ("one of two sources had no rows before a restart, and has some since", over_restart(10, 50, 400, until=700), 705, INPUT, None, "running"),
        ("one of two sources has rows from time to time", united(10, 300, 600), 705, INPUT, None, "running"),
        ("two sources, and both have rows", united(*range(10, 701, 10)), 705, INPUT, None, "running"),
        ("one of two sources has no rows, and none are expected", united(10), 705, {}, None, "running"),
        ("one of two sources has no rows, not for long enough", united(10, until=600), 605, INPUT, None, "running"),
        ("one of two sources has no rows, and the rows of a batch add up to none of them", united(10, 650, input_rows=50), 705, INPUT, None, "running"),
        ("the same source is read twice, and Spark counts its rows once",
         kafka(*map(topic, range(71)), latest=None, story=Story().started(at=0)), 712, INPUT, None, "running"),
        ("one of two folders has no files, so that Spark 3.5 counts no rows of the other one", uncounted(), 705, INPUT, "StreamingInputMissing", "idle"),
        ("one of two folders has no files now and then, so that Spark 3.5 counts no rows of the other one", uncounted(50), 705, INPUT, None, "running"),
        ("none of two folders has files any more", uncounted(until=100).idle(at=700), 705, INPUT, "StreamingInputMissing", "idle"),
        ("a source that never counts rows advances", counting_nothing(until=700), 705, INPUT, None, "running"),
        ("a source that never counts rows does not advance", counting_nothing(until=700, moves=False), 705, INPUT, "StreamingInputMissing", "idle"),
        ("the sources have other places after a restart, and both have rows", swapped(), 905, INPUT, None, "running"),
        # -- StreamingInputMissing: the folder is gone --------------------------------------------
        ("its input folder has not been there for longer than a trend window", folder_polls((100, 9999), until=500), 505, {}, "StreamingInputMissing", "idle"),
        ("its input folder is gone, not for long enough", folder_polls((300, 9999), until=500), 505, {}, None, "idle"),
        ("its input folder was gone for some minutes, and is back", folder_polls((100, 390), until=500), 505, {}, None, "idle"),
        ("its input folder is gone again and again, for some minutes each", folder_polls((100, 300), (310, 500), until=500), 505, {}, None, "idle"),
        ("its input folder was gone, then its storage did not answer", folder_polls((100, 9999), until=200).idle(at=890), 900, {}, None, "idle"),
        ("its input folder is there", folder_polls(until=900), 905, {}, None, "idle"),
        ("its input folder was gone before a restart, and is there",
         folder_polls(until=900, begin=520, run=2, story=folder_polls((100, 9999), until=390).ended(at=400).started(run=2, at=510)), 905, {}, None, "idle"),
        ("its input folder is gone, and it was stopped on purpose",
         folder_polls((100, 9999), until=500).probe(run(), at=501).expect_stop().ended(at=502), 505, {}, None, "stopped"),
        # -- QuerypulseEventsMissing -------------------------------------------------------------------------
        ("the probe sees commits, no events arrive (listener removed)",
         watched(steady(), *((at, at + 5, processing(batch=11 + at // 10)) for at in range(101, 200, 10))), 200, {}, ("QuerypulseEventsMissing", "*"), "running"),
        ("the first poll sees a batch whose event preceded the attach, then the next batch hangs",
         watched(Story(), (1, 1, run(batch=5)), (6, 71, processing(batch=6))), 72, {}, "StreamingQueryStalled", "stalled"),
        ("Spark's listener queue drops events", steady().probe(run(batch=10), at=90).probe(run(batch=10), at=101, dropped=37), 105, {}, ("QuerypulseEventsMissing", "*"), "running"),
        ("events are half a minute late (a slow neighbour on the bus)",
         watched(steady(), (101, 125, processing(batch=11))).commit(batch=10, at=130), 135, {}, None, "running"),
        ("events were dropped before the attach", steady().probe(run(batch=10), at=100, dropped=37).probe(run(batch=10), at=105, dropped=37), 106, {}, None, "running"),
        ("events were dropped a while ago", steady().probe(run(batch=10), at=90).probe(run(batch=10), at=101, dropped=37).probe(run(batch=10), at=170, dropped=37), 170, {}, None, "idle"),
        ("Continuous has no progress events", CONTINUOUS_IS_FINE, 900, {"probe_expected": True}, None, "running"),
        # -- QuerypulseMonitoringDegraded -------------------------------------------------------------------------
        ("events arrive, the probe does not report", steady(steady().probe(run(batch=3), at=30), until=200), 200, {"probe_expected": True}, ("QuerypulseMonitoringDegraded", "*"), "running"),
        ("no probe report ever", steady(), 105, {"probe_expected": True}, ("QuerypulseMonitoringDegraded", "*"), "running"),
        ("a Continuous query's checkpoint cannot be read", epochs(until=400, log_until=0, unreadable=True), 400, {"probe_expected": True}, ("QuerypulseMonitoringDegraded", "*"), "starting"),
        ("no probe report in a replay, where none is expected", steady(), 105, {}, None, "running"),
        ("the probe did not report for half a minute (GC)", steady().probe(run(batch=8), at=75), 105, {"probe_expected": True}, None, "running"),
        ("the process was frozen", steady().probe(run(batch=10), at=100).paused(at=800, seconds=699), 801, {"probe_expected": True}, None, "running"),
        ("the application has stopped its SparkContext, so the probe has ended",
         steady().probe(run(batch=10), at=100).probe(at=101, context=STOPPED), 900, {"probe_expected": True}, None, "stopped"),
        ("the checkpoint of an ordinary query cannot be read: it is not needed", steady().probe(run(batch=10), at=104).log(at=104, unreadable="denied"), 105, {"probe_expected": True}, None, "running"),
        # -- StreamingDriverDown ---------------------------------------------------------------------------
        ("the JVM of a query has ended", steady().probe(run(batch=10), at=100).probe(at=101, context=JVM_GONE), 102, {}, ("StreamingDriverDown", "*"), "stopped"),
        ("the JVM of three queries has ended", three_queries().probe(at=101, context=JVM_GONE), 102, {"probe_expected": True}, ("StreamingDriverDown", "*"), "stopped"),
        ("the JVM ended long ago: still one alert", three_queries().probe(at=101, context=JVM_GONE).probe(at=3600, context=JVM_GONE), 3601,
         {"probe_expected": True, "expected": ["a", "b"]}, ("StreamingDriverDown", "*"), "stopped"),
        ("a query failed, then the JVM ended", three_queries().ended(at=101, exception=CONFLICT).probe(at=102, context=JVM_GONE), 900, {},
         [("StreamingQueryFailed", "a"), ("StreamingDriverDown", "*")], "failed"),
        ("a query hung until the JVM ended", hung_batch(until=170).probe(at=171, context=JVM_GONE), 172, {}, ("StreamingDriverDown", "*"), "stopped"),
        ("three queries run", three_queries(), 102, {"probe_expected": True}, None, "running"),
        ("three queries, and the application has stopped", three_queries().probe(at=101, context=STOPPED), 900, {"probe_expected": True}, None, "stopped"),
        ("three queries, and the SparkContext has just stopped by itself", three_queries().probe(at=101, context=Context.STOPPED), 150, {"probe_expected": True}, None, "stopped"),
        ("the JVM has not answered for a while, and may still run", three_queries(), 150, {"probe_expected": True}, None, "running"),
        # -- the main program ends ------------------------------------------------------------------------
        ("nobody has announced anything, and the program runs", three_queries(), 102, {"expected": ["a"]}, None, "running"),
        ("the program ends after the application has stopped Spark", three_queries().probe(at=101, context=STOPPED), 102, {"program": SCRIPT_FAILED}, None, "stopped"),
        ("the program ends after a signal to the JVM", three_queries().probe(at=101, context=Context.TERMINATED), 102, {"program": SCRIPT_FAILED}, None, "stopped"),
        ("the program ends after query.stop()", steady().probe(run(), at=100).ended(at=101), 102, {"program": SCRIPT_ENDED}, None, "stopped"),
        ("the program fails after query.stop()", steady().probe(run(), at=100).ended(at=101), 102, {"program": SCRIPT_FAILED}, None, "stopped"),
        ("the program ends after expect_stop of its only query", steady().probe(run(), at=100).expect_stop(), 102, {"program": SCRIPT_ENDED}, None, "running"),
        ("the program ends while an availableNow query works",
         Story().started(at=0).probe(run(trigger=AVAILABLE_NOW, batch=0), at=1), 2, {"program": SCRIPT_FAILED}, None, "idle"),
        ("the program ends while a query with trigger once works", Story().started(at=0).probe(run(trigger=ONCE, batch=0), at=1), 2, {"program": SCRIPT_ENDED}, None, "idle"),
        ("the program ends once its availableNow query has completed",
         Story().started(at=0).probe(run(trigger=AVAILABLE_NOW, batch=0), at=1).ended(at=2), 3, {"program": SCRIPT_ENDED}, None, "completed"),
        ("the program ends, and nobody knows the trigger of its query", steady(), 102, {"program": SCRIPT_FAILED}, None, "running"),
        ("the program ends, and its query is ignored", steady().probe(run(batch=10), at=100), 102,
         {"program": SCRIPT_FAILED, "overrides": [("a", {"ignore": True})]}, None, "running"),
        ("the program ends because a query failed: that is reported", three_queries().ended(at=101, exception=CONFLICT), 102, {"program": SCRIPT_FAILED},
         "StreamingQueryFailed", "failed", ["StreamingQueryStopped"]),
        ("the program ends within a minute of a failure", three_queries().ended(at=101, exception=CONFLICT), 145,
         {"program": SCRIPT_ENDED}, "StreamingQueryFailed", "failed", ["StreamingQueryStopped"]),
        ("the program ends because its only query hangs: that is reported", hung_batch(until=170), 171, {"program": SCRIPT_FAILED}, "StreamingQueryStalled", "stalled", ["StreamingQueryStopped"]),
        ("the program ends because the SparkContext died: that is reported", both_until(100).probe(run(batch=10), run("b"), at=102, context=Context.STOPPED), 170,
         {"program": SCRIPT_FAILED}, CUT_OFF, "stopped_unexpectedly", ["StreamingQueryStopped"]),
        ("the program ends because the JVM died: that is reported", three_queries().probe(at=101, context=JVM_GONE), 102, {"program": SCRIPT_FAILED},
         ("StreamingDriverDown", "*"), "stopped"),
        ("the program ends because await_any_failure() has raised", three_queries(), 102, {"program": SCRIPT_WAS_INFORMED, "expected": ["a"]}, None, "running"),
        ("the program ends by itself while three queries run", three_queries(), 102, {"program": SCRIPT_ENDED}, CUT_OFF_MILDLY, "running"),
        ("the program ends by itself while its only query runs", steady().probe(run(batch=10), at=100), 102, {"program": SCRIPT_ENDED}, CUT_OFF_MILDLY, "running"),
        ("the program ends while an hourly query waits", steady().probe(run(batch=10, trigger=HOURLY), at=100), 102, {"program": SCRIPT_ENDED}, CUT_OFF_MILDLY, "running"),
        ("the program ends while an expected query runs", three_queries(), 102, {"program": SCRIPT_ENDED, "expected": ["b"]}, CUT_OFF, "running"),
        ("the program ends after expect_stop of the expected query only", three_queries().expect_stop("b"), 102, {"program": SCRIPT_ENDED, "expected": ["b"]},
         CUT_OFF_MILDLY, "running"),
        ("the program ends, and it is only known that its query is expected", steady(), 102, {"program": SCRIPT_ENDED, "expected": ["a"]}, CUT_OFF, "running"),
        ("an exception ends the program just after a failure that is ignored", three_queries().ended(at=101, exception=CONFLICT), 102,
         {"program": SCRIPT_FAILED, "overrides": [("a", {"ignore": True})]}, CUT_OFF, "failed"),
        ("an exception ends the program", three_queries(), 102, {"program": SCRIPT_FAILED}, CUT_OFF, "running"),
        ("an exception ends the program two minutes after a query failed: the others end with it",
         three_queries().ended(at=101, exception=CONFLICT).probe(run("b"), run("c"), at=160).probe(run("b"), run("c"), at=220), 222, {"program": SCRIPT_FAILED},
         [("StreamingQueryFailed", "a"), CUT_OFF], "failed"),
        ("the program may have ended as somebody wanted: a test, or a handler of SIGTERM", three_queries(), 102,
         {"program": SCRIPT_MAY_END, "expected": ["a"]}, CUT_OFF_MILDLY, "running"),
        # -- idle needs proof ---------------------------------------------------------------------
        ("the source holds data back (minOffsetsPerTrigger, maxTriggerDelay)", idle_with(topic(5), topic(9)), 300, {}, None, "waiting"),
        ("the source has no new data", idle_with(topic(5), topic(5)), 300, {}, None, "idle"),
        ("the source does not report its latest offset, but found nothing", idle_with({"logOffset": 5}, None), 300, {}, None, "idle"),
        # -- planned stops ------------------------------------------------------------------------
        ("an announced stop", steady().probe(run(), at=100).expect_stop().ended(at=101), 900, {}, None, "stopped"),
        ("an announced stop of an expected query", steady().probe(run(), at=100).expect_stop().ended(at=101), 900, {"expected": ["a"]}, None, "stopped"),
        ("it failed although its stop was announced", steady().expect_stop().ended(at=101, exception=CONFLICT), 102, {}, "StreamingQueryFailed", "failed"),
        ("an announced stop applies to one run", steady().probe(run(), at=100).expect_stop().ended(at=101).started(run=2, at=102)
         .probe(run(number=2), at=103).ended(run=2, at=110), 172, {}, "StreamingQueryStopped", "stopped_unexpectedly"),
        # -- one cause, one incident --------------------------------------------------------------
        ("the SparkContext of two queries died", both_until(100).probe(run(batch=10), run("b"), at=102, context=Context.STOPPED), 170, {},
         ("StreamingQueryStopped", "*"), "stopped_unexpectedly", ["StreamingQueryStopped"]),
        ("a query stopped, then the SparkContext of two queries died", both_until(100).ended(at=110).probe(run("b"), at=200, context=Context.STOPPED), 270, {},
         [("StreamingQueryStopped", "a"), ("StreamingQueryStopped", "*")], "stopped_unexpectedly"),
        ("the JVM of two queries does not answer", both_until(100), 170,
         {"probe_expected": True}, ("StreamingQueryStalled", "*"), "stalled", ["StreamingQueryStalled", "QuerypulseMonitoringDegraded"]),
        ("the JVM does not answer, and only one of two queries has stalled so far", both_until(100), 170,
         {"probe_expected": True, "overrides": [("b", {"stall_floor_seconds": 300.0})]}, "StreamingQueryStalled", "stalled", ["QuerypulseMonitoringDegraded"]),
        ("the JVM of one query does not answer", steady().probe(run(batch=10), at=100), 170,
         {"probe_expected": True}, "StreamingQueryStalled", "stalled", ["QuerypulseMonitoringDegraded"]),
        ("a query stalls while only the probe is silent: batches of another commit", batches(*[2] * 39, story=both_until(100), begin=100, query="b")[0], 178,
         {"probe_expected": True}, [("StreamingQueryStalled", "a"), ("QuerypulseMonitoringDegraded", "*")], "stalled"),
        ("Spark's event loop has ended: all queries hang, wherever they wait", both_hang(until=170, scheduler=ENDED, own=JobCounts(4), line="/jobs/a.py:3 in merge"), 170, {},
         ("StreamingQueryStalled", "*"), "stalled", ["StreamingQueryStalled"]),
        ("Spark's event loop has ended while tasks ran", both_hang(until=170, scheduler=ENDED, own=JobCounts(4, 1, 40, 1)), 170, {},
         ("StreamingQueryStalled", "*"), "stalled", ["StreamingQueryStalled"]),
        ("Spark's event loop has ended, and its executors went idle and away", both_hang(until=170, scheduler=ENDED, own=JobCounts(4, 1, 40, 0), slots=SlotUse(0)), 170, {},
         ("StreamingQueryStalled", "*"), "stalled", ["StreamingQueryStalled"]),
        ("Spark's event loop is blocked", both_hang(until=170, scheduler=BLOCKED), 170, {},
         ("StreamingQueryStalled", "*"), "stalled", ["StreamingQueryStalled"]),
        ("Spark's event loop has ended, and only one of two queries has a batch so far", both_hang(until=170, scheduler=ENDED, b=run("b", batch=1)), 170, {"overrides": [("b", {"stall_floor_seconds": 300.0})]},
         ("StreamingQueryStalled", "*"), "stalled", ["StreamingQueryStalled"]),
        ("Spark's event loop has ended under one query", watched(steady(), (101, 170, processing(batch=10)), scheduler=ENDED), 170, {}, "StreamingQueryStalled", "stalled"),
        ("Spark's event loop has ended, and the first task should be done within the window", both_hang(until=155, scheduler=ENDED), 158, {}, None, "running"),
        ("Spark's event loop handles one event for 29 s", watched(with_b(), (101, 170, processing(batch=10, own=JobCounts(4, 1, 40, 1))), scheduler=SchedulerLoop(waits_seconds=29.0)), 140, {}, None, "running"),
        ("Spark's event loop works, and a task of one query runs for 75 s", watched(steady(), (101, 180, processing(batch=10, own=JobCounts(4, 1, 40, 1))), scheduler=SchedulerLoop()), 180, {}, STALLED_MILDLY, "stalled"),
        ("Spark's event loop works, and others hold all slots", watched(steady(), (101, 180, processing(batch=10, own=JobCounts(4, 1, 40, 0), slots=SlotUse(4, 4))), scheduler=SchedulerLoop()), 180, {}, STALLED_MILDLY, "stalled"),
        ("Spark's event loop works, and there is no executor for five minutes", watched(steady(), (101, 400, processing(batch=10, own=JobCounts(4, 1, 40, 0), slots=SlotUse(0))), scheduler=SchedulerLoop()), 400, {}, None, "running"),
        ("Spark's event loop works, and one of two queries is blocked in its own Python", both_hang(until=171, scheduler=SchedulerLoop(waits_seconds=1.0), own=JobCounts(4), line="/jobs/a.py:3 in merge", b=run("b", batch=1)).commit("b", batch=1, at=165), 172, {}, STALLED_MILDLY, "stalled"),
        ("an idle query after Spark's event loop has ended: its next batch shows it", watched(with_b(), (101, 170, run(batch=10)), scheduler=ENDED).idle(at=165).idle("b", at=165), 172, {}, None, "idle"),
        ("Spark's event loop ends because the SparkContext was stopped", both_hang(until=105, scheduler=ENDED).probe(run(batch=10), run("b"), at=106, context=STOPPED, scheduler=ENDED), 170, {}, None, "stopped"),
        ("Spark's event loop was blocked for long, and works again", both_hang(until=150, scheduler=BLOCKED).probe(processing(batch=11), processing("b", batch=2), at=155, scheduler=SchedulerLoop()), 160, {}, None, "running"),
    ]  # fmt: skip
    return tuple(Case(*row) for row in rows)
