"""StreamingQueryGivenUp and StreamingQueryFlapping: a query that fails again and again."""

from __future__ import annotations

from support.rules.case import (
    alert,
    case,
    completed,
    limits,
    query_failed,
    query_failed_warning,
    query_missing,
    running,
    starting,
    stopped,
    table,
)
from support.rules.stories import AVAILABLE_NOW, STOPPED, dying, later, steady, watched
from support.story import Story, run

given_up = alert("StreamingQueryGivenUp", state="failed")
flapping = alert("StreamingQueryFlapping", state="failed")

failed_and_flapping = alert("StreamingQueryFailed", "StreamingQueryFlapping", state="failed")
OF_A_FAILURE = {"besides": ["StreamingQueryFailed"]}


def failed_three_times(**how):
    return dying(100, 150, 200, **how)


@later
def restarted_at(*times):
    """The query is stopped at each time, starts again a second later, and commits."""
    story = steady()
    for batch, at in enumerate(times, 10):
        story.ended(at=at).started(at=at + 1).commit(batch=batch, at=at + 2)
    return story


CASES = table(
    # StreamingQueryGivenUp
    "supervise has given it up",
    given_up(steady().failed(at=101).supervised(given_up="11 failures"), at=102, **OF_A_FAILURE),
    "it has never started, and was given up",
    given_up(Story().supervised(given_up="11 failures, the last: its start failed"), at=5),
    "stopped again and again, and given up",
    given_up(
        watched(steady(), (100, 105, run())).ended(at=106).supervised(given_up="11 failures"),
        at=300,
        besides=["StreamingQueryStopped"],
    ),
    "given up, then started by hand",
    running(
        steady()
        .failed(at=101)
        .supervised(given_up="11 failures")
        .started(at=150)
        .commit(batch=11, at=155),
        at=160,
    ),
    "supervised, and healthy",
    running(steady().supervised(restarts=3, failure="boom"), at=105),
    "its restart is due in four minutes",
    query_failed_warning(steady().failed(at=101).supervised(due_at=400.0), at=300),
    "its restart has been due for longer than the start grace",
    query_failed(steady().failed(at=101).supervised(due_at=110.0), at=411),
    "failed, and supervise has not noticed for longer than the start grace",
    query_failed(steady().failed(at=101).supervised(), at=402),
    "it stopped, and its restart is due",
    stopped(watched(steady(), (100, 105, run())).ended(at=106).supervised(due_at=200.0), at=190),
    "its first start is due",
    starting(Story().supervised(due_at=0.0), at=100),
    "its first start hangs",
    query_missing(Story().supervised(due_at=0.0), at=301),
    "it is expected, and its next start is due",
    starting(Story().supervised(due_at=300.0, failure="its start failed"), at=290, expected=["a"]),
    "it is expected, its first start has returned, and no signal shows it",
    query_missing(Story().supervised(started_at=500.0), at=801, expected=["a"]),
    "it is expected, and its first start has just returned",
    starting(Story().supervised(started_at=500.0), at=501, expected=["a"]),
    "it is not expected, and may run where nothing is watched",
    starting(Story().supervised(started_at=500.0), at=900),
    "it failed three times, and is restarted",
    case(
        failed_three_times().supervised(due_at=220.0),
        at=206,
        alerts=[("StreamingQueryFlapping", "a", "warning")],
        state="failed",
        **OF_A_FAILURE,
    ),
    "it failed three times, and its restart has been due for longer than the start grace",
    flapping(failed_three_times().supervised(due_at=220.0), at=521, **OF_A_FAILURE),
    "it failed three times, was given up, and starts by hand",
    case(
        failed_three_times().supervised(given_up="11 failures").started(at=205),
        at=206,
        alerts=["StreamingQueryFailed", ("StreamingQueryFlapping", "a", "warning")],
        state="failed",
    ),
    "given up under ignore",
    starting(Story().supervised(given_up="11 failures"), at=5, **limits("a*", ignore=True)),
    "the application stops Spark before its first start",
    starting(Story().supervised(due_at=0.0).probe(at=1, context=STOPPED), at=300),
    # StreamingQueryFlapping
    "fails three times; a successful restart does not refill the budget",
    case(
        failed_three_times(alive_after=True),
        at=206,
        alerts="StreamingQueryFlapping",
        state="flapping",
    ),
    "its third failure is reported as flapping",
    flapping(failed_three_times(), at=201, besides=["StreamingQueryFailed"]),
    "fails in the same batch again and again (poison_batch)",
    failed_and_flapping(dying(100, 500, 1000, 1500, batch=7), at=1501),
    "failed for an hour since its third failure",
    flapping(failed_three_times(), at=3800, besides=["StreamingQueryFailed"]),
    "fails twice",
    running(dying(100, 150, alive_after=True), at=160),
    "fails three times in half an hour",
    running(dying(100, 1000, 1900, alive_after=True), at=1910),
    "failed three times, then healthy for ten minutes",
    running(failed_three_times(alive_after=True).commit(run=4, batch=9, at=840), at=850),
    "flapped long ago, not recovered since, and now fails for another reason",
    query_failed(
        failed_three_times().started(at=1500).ended(at=1900, exception="java.io.IOException: gone"),
        at=1901,
    ),
    "a larger budget",
    running(failed_three_times(alive_after=True), at=206, restart_budget=5),
    "different batches fail over days (no poison batch)",
    running(dying(100, 5000, 9000, alive_after=True), at=9010),
    "a second start stops the first run (stopActiveRunOnRestart), whose end arrives late",
    running(
        steady().started(run=2, at=101).ended(run=1, at=102).commit(run=2, batch=10, at=105),
        at=162,
        expected=["a"],
    ),
    "three failures, each reported after its restart: each one counts",
    case(
        steady()
        .started(run=2, at=101)
        .failed(run=1, at=102)
        .started(run=3, at=111)
        .failed(run=2, at=112)
        .started(run=4, at=121)
        .failed(run=3, at=122),
        at=123,
        alerts=["StreamingQueryFailed", "StreamingQueryFlapping"],
        state="failed",
    ),
    "the batch that failed three times succeeds at last",
    running(dying(100, 500, 1000, batch=7).started(at=2001).commit(batch=7, at=2005), at=2006),
    "planned restarts, every minute",
    running(restarted_at(101, 160, 220), at=225),
    "availableNow in a loop",
    completed(
        Story()
        .seen(trigger=AVAILABLE_NOW, at=0)
        .ended(at=2)
        .seen(number=2, trigger=AVAILABLE_NOW, at=10)
        .ended(run=2, at=12)
        .seen(number=3, trigger=AVAILABLE_NOW, at=20)
        .ended(run=3, at=22),
        at=30,
    ),
)
