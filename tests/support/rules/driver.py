"""The driver: events and probe, the end of Spark, and one cause of what happens to all queries."""

from __future__ import annotations

from support.rules.case import (
    alert,
    case,
    completed,
    idle,
    limits,
    query_failed,
    query_stalled,
    query_stalled_warning,
    running,
    stopped,
    table,
)
from support.rules.stories import (
    AVAILABLE_NOW,
    HOURLY,
    ONCE,
    STOPPED,
    batches,
    commits_unseen,
    epochs,
    hung_batch,
    later,
    steady,
    three_queries,
    watched,
    with_b,
)
from support.story import Story, processing, run

from querypulse.listener.mailbox import ProgramEnd
from querypulse.listener.probe_report import Context, FullQueue, JobCounts, SchedulerLoop, SlotUse

JVM_GONE = Context.JVM_GONE
FULL = (FullQueue("streams", 95, "com.acme.Slow", ("com.acme.Slow",)),)
SCRIPT_ENDED = ProgramEnd("the main program ended")
SCRIPT_FAILED = ProgramEnd(
    "the main program ended with ValueError: negative amount", has_failed=True
)
SCRIPT_WAS_INFORMED = ProgramEnd("the main program ended", is_explained=True)
SCRIPT_MAY_END = ProgramEnd("the main program ended", may_be_meant=True)
CUT_OFF = ("StreamingQueryStopped", "*")
CUT_OFF_MILDLY = [("StreamingQueryStopped", "*", "warning")]


@later
def both_until(at):
    """Queries a and b run; the probe sees them for the last time."""
    return with_b().probe(run(batch=10), run("b"), at=at)


def dropping(story, *, at, dropped=37, **listener):
    """The next poll says that Spark has dropped 37 events."""
    return story.probe(run(batch=10), at=at, dropped=dropped, **listener)


@later
def waits_for(slots, *, until):
    """The job of batch 10 has no running task."""
    waits = processing(batch=10, own=JobCounts(4, 1, 40, 0), slots=slots)
    return watched(steady(), (101, until, waits), scheduler=SchedulerLoop())


ENDED = SchedulerLoop(alive=False)
BUSY_FOR_29_S = SchedulerLoop(waits_seconds=29.0)
IN_A_TASK = processing(batch=10, own=JobCounts(4, 1, 40, 1))
PROBED = {"probe_expected": True}
BLOCKED = SchedulerLoop(waits_seconds=69.0)


@later
def both_hang(*, until, scheduler, b=None, **fields):
    """Batch 10 of a and a batch of b are in flight from 101 s on; Spark's scheduler is as given."""
    runs = processing(batch=10, **fields), b or processing("b", batch=1)
    story = with_b()
    for at in range(101, until + 1, 5):
        story.probe(*runs, at=at, scheduler=scheduler)
    return story.until(until)


def after_a_loss(story=None):
    """YARN has started this attempt because the one before it died."""
    return (story or Story()).lost_attempt()


@later
def works_after_a_loss(*, at):
    """Its query commits at 10 s, and all is evaluated at ``at``, as each second."""
    return after_a_loss(Story().started(at=1)).commit(batch=10, at=10).evaluated(at=at)


attempt_lost = alert(("StreamingDriverDown", "*"), state="starting")
driver_down = alert(("StreamingDriverDown", "*"), state="stopped")
program_ended = alert(("StreamingQueryStopped", "*"), state="running")
program_ended_warning = alert(("StreamingQueryStopped", "*", "warning"), state="running")
all_stalled = alert(
    ("StreamingQueryStalled", "*"), state="stalled", besides=["StreamingQueryStalled"]
)
failed_before = alert("StreamingQueryFailed", state="failed", besides=["StreamingQueryStopped"])
context_died = alert(
    ("StreamingQueryStopped", "*"), state="stopped_unexpectedly", besides=["StreamingQueryStopped"]
)
unanswered = alert(
    "StreamingQueryStalled", state="stalled", besides=["QuerypulseMonitoringDegraded"], **PROBED
)
events_missing = alert(("QuerypulseEventsMissing", "*"), state="running")
monitoring_degraded = alert(("QuerypulseMonitoringDegraded", "*"), state="running", **PROBED)

CASES = table(
    # QuerypulseEventsMissing
    "the probe sees commits, no events arrive (listener removed)",
    events_missing(commits_unseen(until=200)),
    "the first poll sees a batch whose event preceded the attach, then the next batch hangs",
    query_stalled(watched(Story(), (1, 1, run(batch=5)), (6, 71, processing(batch=6))), at=72),
    "Spark's listener queue drops events",
    events_missing(steady().seen(batch=10, at=90).probe(run(batch=10), at=101, dropped=37), at=105),
    "Spark drops only events of other listeners",
    running(dropping(steady().seen(batch=10, at=90), at=101, dropped=0, full_queues=FULL), at=105),
    "events are half a minute late (a slow neighbour on the bus)",
    running(watched(steady(), (101, 125, processing(batch=11))).commit(batch=10, at=130), at=135),
    "events were dropped before the attach",
    running(dropping(steady().probe(run(batch=10), at=100, dropped=37), at=105), at=106),
    "events were dropped a while ago",
    idle(dropping(steady().seen(batch=10, at=90), at=101).probe(run(batch=10), at=170, dropped=37)),
    "Continuous has no progress events",
    running(epochs(until=900, log_until=900), probe_expected=True),
    # QuerypulseMonitoringDegraded
    "events arrive, the probe does not report",
    monitoring_degraded(steady(steady().seen(batch=3, at=30), until=200)),
    "no probe report ever",
    monitoring_degraded(steady(), at=105),
    "a Continuous query's checkpoint cannot be read",
    case(
        epochs(until=400, log_until=0, unreadable=True),
        alerts=("QuerypulseMonitoringDegraded", "*"),
        state="starting",
        probe_expected=True,
    ),
    "no probe report in a replay, where none is expected",
    running(steady(), at=105),
    "the probe did not report for half a minute (GC)",
    running(steady().seen(batch=8, at=75), at=105, probe_expected=True),
    "the process was frozen",
    running(
        steady().seen(batch=10, at=100).paused(at=800, seconds=699), at=801, probe_expected=True
    ),
    "the application has stopped its SparkContext, so the probe has ended",
    stopped(
        steady().seen(batch=10, at=100).probe(at=101, context=STOPPED), at=900, probe_expected=True
    ),
    "the checkpoint of an ordinary query cannot be read: it is not needed",
    running(steady().seen(batch=10, at=104).log(at=104, unreadable="denied"), at=105, **PROBED),
    # StreamingDriverDown
    "the JVM of a query has ended",
    driver_down(steady().seen(batch=10, at=100).probe(at=101, context=JVM_GONE), at=102),
    "the JVM of three queries has ended",
    driver_down(three_queries().probe(at=101, context=JVM_GONE), at=102, probe_expected=True),
    "the JVM ended long ago: still one alert",
    driver_down(
        three_queries().probe(at=101, context=JVM_GONE).probe(at=3600, context=JVM_GONE),
        at=3601,
        expected=["a", "b"],
        **PROBED,
    ),
    "a query failed, then the JVM ended",
    case(
        three_queries().failed(at=101).probe(at=102, context=JVM_GONE),
        at=900,
        alerts=["StreamingQueryFailed", ("StreamingDriverDown", "*")],
        state="failed",
    ),
    "a query hung until the JVM ended",
    driver_down(hung_batch(until=170).probe(at=171, context=JVM_GONE), at=172),
    "three queries run",
    running(three_queries(), at=102, probe_expected=True),
    "three queries, and the application has stopped",
    stopped(three_queries().probe(at=101, context=STOPPED), at=900, probe_expected=True),
    "three queries, and the SparkContext has just stopped by itself",
    stopped(three_queries().probe(at=101, context=Context.STOPPED), at=150, probe_expected=True),
    "the JVM has not answered for a while, and may still run",
    running(three_queries(), at=150, probe_expected=True),
    "the attempt before was lost, and its query starts again",
    attempt_lost(after_a_loss(Story().started(at=1)), at=100),
    "the attempt before was lost, and its query is in its first batch",
    attempt_lost(
        watched(after_a_loss(Story().started(at=1)), (2, 40, processing(batch=10))), at=41
    ),
    "the attempt before was lost, and the query fails before it works again",
    case(
        after_a_loss(Story().started(at=1)).failed(at=5),
        at=6,
        alerts=["StreamingQueryFailed", ("StreamingDriverDown", "*")],
        state="failed",
    ),
    "the attempt before was lost, and its query commits again",
    running(works_after_a_loss(at=11), at=12),
    "the attempt before was lost, and its query is idle again",
    idle(after_a_loss(Story().started(at=1)).idle(at=10).evaluated(at=11), at=12),
    "the attempt before was lost, and its query failed after it had worked again",
    query_failed(works_after_a_loss(at=11).failed(at=20), at=21),
    "the attempt before was lost, and its query starts again after it had worked",
    running(works_after_a_loss(at=11).ended(at=20).started(at=21).commit(batch=11, at=22), at=23),
    # the main program ends
    "nobody has announced anything, and the program runs",
    running(three_queries(), at=102, expected=["a"]),
    "the program ends after the application has stopped Spark",
    stopped(three_queries().probe(at=101, context=STOPPED), at=102, program=SCRIPT_FAILED),
    "the program ends after a signal to the JVM",
    stopped(
        three_queries().probe(at=101, context=Context.TERMINATED), at=102, program=SCRIPT_FAILED
    ),
    "the program ends after query.stop()",
    stopped(steady().seen(at=100).ended(at=101), at=102, program=SCRIPT_ENDED),
    "the program fails after query.stop()",
    stopped(steady().seen(at=100).ended(at=101), at=102, program=SCRIPT_FAILED),
    "the JVM ends within the time for which the end of the driver was announced",
    stopped(three_queries().expect_end(until=700).probe(at=101, context=JVM_GONE), at=102),
    "the same, and Python goes on for a minute",
    stopped(three_queries().expect_end(until=700).probe(at=101, context=JVM_GONE), at=161),
    "the same, and Python was frozen for ten minutes of that",
    stopped(
        three_queries()
        .expect_end(until=700)
        .probe(at=101, context=JVM_GONE)
        .paused(at=740, seconds=600),
        at=741,
    ),
    "the same, and Python goes on for longer",
    driver_down(three_queries().expect_end(until=700).probe(at=101, context=JVM_GONE), at=162),
    "the end of the driver was announced, and does not come",
    running(three_queries().expect_end(until=700), at=102),
    "the JVM ends after the time for which the end of the driver was announced",
    driver_down(three_queries().expect_end(until=100.5).probe(at=101, context=JVM_GONE), at=102),
    "the JVM ends after only the stop of a query was announced",
    driver_down(three_queries().expect_stop("b").probe(at=101, context=JVM_GONE), at=102),
    "a query fails although the end of the driver was announced",
    query_failed(three_queries().expect_stop().expect_end(until=700).failed(at=101), at=102),
    "the program ends after expect_stop of its only query",
    running(steady().seen(at=100).expect_stop(), at=102, program=SCRIPT_ENDED),
    "the program ends while an availableNow query works",
    idle(
        Story().started(at=0).seen(trigger=AVAILABLE_NOW, batch=0, at=1),
        at=2,
        program=SCRIPT_FAILED,
    ),
    "the program ends while a query with trigger once works",
    idle(Story().started(at=0).seen(trigger=ONCE, batch=0, at=1), at=2, program=SCRIPT_ENDED),
    "the program ends once its availableNow query has completed",
    completed(
        Story().started(at=0).seen(trigger=AVAILABLE_NOW, batch=0, at=1).ended(at=2),
        at=3,
        program=SCRIPT_ENDED,
    ),
    "the program ends, and nobody knows the trigger of its query",
    running(steady(), at=102, program=SCRIPT_FAILED),
    "the program ends, and its query is ignored",
    running(
        steady().seen(batch=10, at=100), at=102, program=SCRIPT_FAILED, **limits("a", ignore=True)
    ),
    "the program ends because a query failed: that is reported",
    failed_before(three_queries().failed(at=101), at=102, program=SCRIPT_FAILED),
    "the program ends within a minute of a failure",
    failed_before(three_queries().failed(at=101), at=145, program=SCRIPT_ENDED),
    "the program ends because its only query hangs: that is reported",
    query_stalled(
        hung_batch(until=170), at=171, besides=["StreamingQueryStopped"], program=SCRIPT_FAILED
    ),
    "the program ends because the SparkContext died: that is reported",
    context_died(
        both_until(100).probe(run(batch=10), run("b"), at=102, context=Context.STOPPED),
        at=170,
        program=SCRIPT_FAILED,
    ),
    "the program ends because the JVM died: that is reported",
    driver_down(three_queries().probe(at=101, context=JVM_GONE), at=102, program=SCRIPT_FAILED),
    "the program ends because await_any_failure() has raised",
    running(three_queries(), at=102, program=SCRIPT_WAS_INFORMED, expected=["a"]),
    "the program ends by itself while three queries run",
    program_ended_warning(three_queries(), at=102, program=SCRIPT_ENDED),
    "the program ends by itself while its only query runs",
    program_ended_warning(steady().seen(batch=10, at=100), at=102, program=SCRIPT_ENDED),
    "the program ends while an hourly query waits",
    program_ended_warning(
        steady().seen(batch=10, trigger=HOURLY, at=100), at=102, program=SCRIPT_ENDED
    ),
    "the program ends while an expected query runs",
    program_ended(three_queries(), at=102, program=SCRIPT_ENDED, expected=["b"]),
    "the program ends after expect_stop of the expected query only",
    program_ended_warning(
        three_queries().expect_stop("b"), at=102, program=SCRIPT_ENDED, expected=["b"]
    ),
    "the program ends, and it is only known that its query is expected",
    program_ended(steady(), at=102, program=SCRIPT_ENDED, expected=["a"]),
    "an exception ends the program just after a failure that is ignored",
    case(
        three_queries().failed(at=101),
        at=102,
        alerts=CUT_OFF,
        state="failed",
        program=SCRIPT_FAILED,
        **limits("a", ignore=True),
    ),
    "an exception ends the program",
    program_ended(three_queries(), at=102, program=SCRIPT_FAILED),
    "an exception ends the program two minutes after a query failed: the others end with it",
    case(
        three_queries()
        .failed(at=101)
        .probe(run("b"), run("c"), at=160)
        .probe(run("b"), run("c"), at=220),
        at=222,
        alerts=["StreamingQueryFailed", CUT_OFF],
        state="failed",
        program=SCRIPT_FAILED,
    ),
    "the program may have ended as somebody wanted: a test, or a handler of SIGTERM",
    program_ended_warning(three_queries(), at=102, program=SCRIPT_MAY_END, expected=["a"]),
    # one cause, one incident
    "the SparkContext of two queries died",
    context_died(
        both_until(100).probe(run(batch=10), run("b"), at=102, context=Context.STOPPED), at=170
    ),
    "a query stopped, then the SparkContext of two queries died",
    case(
        both_until(100).ended(at=110).probe(run("b"), at=200, context=Context.STOPPED),
        at=270,
        alerts=["StreamingQueryStopped", ("StreamingQueryStopped", "*")],
        state="stopped_unexpectedly",
    ),
    "the JVM of two queries does not answer",
    case(
        both_until(100),
        at=170,
        alerts=("StreamingQueryStalled", "*"),
        state="stalled",
        besides=["StreamingQueryStalled", "QuerypulseMonitoringDegraded"],
        probe_expected=True,
    ),
    "the JVM does not answer, and only one of two queries has stalled so far",
    unanswered(both_until(100), at=170, **limits("b", stall_floor_seconds=300.0)),
    "the JVM of one query does not answer",
    unanswered(steady().seen(batch=10, at=100), at=170),
    "a query stalls while only the probe is silent: batches of another commit",
    case(
        batches(*[2] * 39, story=both_until(100), begin=100, query="b"),
        alerts=["StreamingQueryStalled", ("QuerypulseMonitoringDegraded", "*")],
        state="stalled",
        probe_expected=True,
    ),
    "Spark's event loop has ended: all queries hang, wherever they wait",
    all_stalled(
        both_hang(until=170, scheduler=ENDED, own=JobCounts(4), line="/jobs/a.py:3 in merge")
    ),
    "Spark's event loop has ended while tasks ran",
    all_stalled(both_hang(until=170, scheduler=ENDED, own=JobCounts(4, 1, 40, 1))),
    "Spark's event loop has ended, and its executors went idle and away",
    all_stalled(
        both_hang(until=170, scheduler=ENDED, own=JobCounts(4, 1, 40, 0), slots=SlotUse(0))
    ),
    "Spark's event loop is blocked",
    all_stalled(both_hang(until=170, scheduler=BLOCKED)),
    "Spark's event loop has ended, and only one of two queries has a batch so far",
    all_stalled(
        both_hang(until=170, scheduler=ENDED, b=run("b", batch=1)),
        **limits("b", stall_floor_seconds=300.0),
    ),
    "Spark's event loop has ended under one query",
    query_stalled(watched(steady(), (101, 170, processing(batch=10)), scheduler=ENDED)),
    "Spark's event loop has ended, and the first task should be done within the window",
    running(both_hang(until=155, scheduler=ENDED), at=158),
    "Spark's event loop handles one event for 29 s",
    running(watched(with_b(), (101, 170, IN_A_TASK), scheduler=BUSY_FOR_29_S), at=140),
    "Spark's event loop works, and a task of one query runs for 75 s",
    query_stalled_warning(watched(steady(), (101, 180, IN_A_TASK), scheduler=SchedulerLoop())),
    "Spark's event loop works, and others hold all slots",
    query_stalled_warning(waits_for(SlotUse(4, 4), until=180)),
    "Spark's event loop works, and there is no executor for five minutes",
    running(waits_for(SlotUse(0), until=400)),
    "Spark's event loop works, and one of two queries is blocked in its own Python",
    query_stalled_warning(
        both_hang(
            until=171,
            scheduler=SchedulerLoop(waits_seconds=1.0),
            own=JobCounts(4),
            line="/jobs/a.py:3 in merge",
            b=run("b", batch=1),
        ).commit("b", batch=1, at=165),
        at=172,
    ),
    "an idle query after Spark's event loop has ended: its next batch shows it",
    idle(
        watched(with_b(), (101, 170, run(batch=10)), scheduler=ENDED)
        .idle(at=165)
        .idle("b", at=165),
        at=172,
    ),
    "Spark's event loop ends because the SparkContext was stopped",
    stopped(
        both_hang(until=105, scheduler=ENDED).probe(
            run(batch=10), run("b"), at=106, context=STOPPED, scheduler=ENDED
        ),
        at=170,
    ),
    "Spark's event loop was blocked for long, and works again",
    running(
        both_hang(until=150, scheduler=BLOCKED).probe(
            processing(batch=11), processing("b", batch=2), at=155, scheduler=SchedulerLoop()
        ),
        at=160,
    ),
)
