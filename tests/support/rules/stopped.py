"""StreamingQueryStopped and StreamingQueryMissing: a query that nobody has stopped is not there."""

from __future__ import annotations

from support.rules.case import (
    case,
    completed,
    limits,
    query_failed,
    query_missing,
    query_stopped,
    running,
    starting,
    stopped,
    table,
)
from support.rules.stories import ONCE, SHUTDOWN, STOPPED, available_now, dying, steady
from support.story import Story, run

from querypulse.listener.probe_report import Context, SessionEnd

DIED = Context.STOPPED
"""The SparkContext has stopped by itself."""
CUT = {"exception": SHUTDOWN, "context": DIED}
LONG_GRACE = limits("*", gone_grace_seconds=3600.0)
NO_GRACE = limits("*", gone_grace_seconds=0.0)
SERVED = {"session_ends": {}}
"""The driver serves Spark Connect, and no session has ended."""


def called_off():
    return steady(until=900).seen(at=900).expect_stop(until=700).evaluated(at=900)


def ended_by_hand():
    return steady().seen(at=100).ended(at=101)


def as_announced():
    return steady().seen(at=100).expect_stop().ended(at=101)


def taken(**how):
    """Another query was started on the checkpoint of query a."""
    return steady().seen(at=100).takes(at=101, **how)


def just_died():
    return steady().seen(batch=10, at=100).probe(run(batch=10), at=102, context=DIED)


def unknown_trigger():
    return steady().seen(trigger="Unknown", at=100)


def over(*, idle, allowed=60.0, at=101.0, session="s1"):
    """A poll shows that a session of Spark Connect has ended, ``idle`` after its last call."""
    return {"session_ends": {session: SessionEnd(at, "c-1", "ada", idle, allowed)}}


SESSION_EXPIRED = over(idle=61.0)
LEFT = over(idle=0.01)


def served(**how):
    return steady().seen(session="s1", at=100, **how)


def served_until(end, at=101):
    """Its run has ended, and a second later a poll shows what its session did."""
    return served().ended(at=at).probe(at=at + 1, **end)


CASES = table(
    # StreamingQueryStopped
    "stopped, not restarted within the grace",
    query_stopped(ended_by_hand(), at=162),
    "vanished without an event, not restarted",
    query_stopped(steady().seen(at=100).probe(at=101).probe(at=102), at=162),
    "vanished in the last poll before the probe stopped answering",
    query_stopped(steady().seen(at=100).probe(at=101), at=165),
    "the SparkContext died under it",
    query_stopped(steady().seen(at=100).ended(at=101, **CUT).probe(at=102, context=DIED), at=170),
    "idle in a SparkContext that died by itself; Spark still calls it active",
    query_stopped(just_died(), at=170),
    "trigger unknown, but the query is expected",
    query_stopped(steady().ended(at=101), at=162, expected=["a"]),
    "Spark does not name the trigger, but the query is expected",
    query_stopped(unknown_trigger().ended(at=101), at=162, expected=["a"]),
    "another query was started on its checkpoint",
    query_stopped(taken()),
    "another query, which is expected, was started on its checkpoint",
    query_stopped(taken(), at=165, expected=["a", "b"]),
    "another query was started on its checkpoint, in spite of a long grace",
    query_stopped(taken(), at=102, **LONG_GRACE),
    "another query was started on its checkpoint, after a failure that is not resolved",
    query_failed(
        dying(90).started(run=2, at=95).works(number=2, batch=2, at=100).takes(of_run=2, at=101),
        at=102,
    ),
    "it takes the checkpoint back from another query",
    case(
        taken().takes("a", 2, of="b", at=110),
        at=111,
        alerts=("StreamingQueryStopped", "b"),
        state="starting",
    ),
    "started again on its checkpoint, after another query took it and ended",
    starting(taken().takes("a", 2, of="b", at=110, proven=False), at=111),
    "started with another checkpoint, after another query took its own",
    starting(taken().started_again(at=110), at=111),
    "another query was started on its checkpoint after its end",
    starting(taken(proven=False), at=165),
    "it was started on its own checkpoint while it ran",
    starting(steady().seen(at=100).takes("a", 2, at=101), at=165),
    "a query without a name was started on its checkpoint",
    starting(steady().seen(at=100).takes(None, at=101), at=165),
    "its Spark Connect session expired",
    query_stopped(served_until(SESSION_EXPIRED), at=162),
    "no signal showed its end, and its Spark Connect session expired",
    query_stopped(
        served().probe(at=101, **SESSION_EXPIRED).probe(at=102, **SESSION_EXPIRED), at=162
    ),
    "its Spark Connect session expired, and there is no grace",
    query_stopped(served_until(SESSION_EXPIRED), at=103, **NO_GRACE),
    "it was stopped long before its Spark Connect session expired",
    query_stopped(served_until(SERVED).probe(at=150, **over(idle=61.0, at=149.0)), at=162),
    "it was stopped, and its Spark Connect session goes on",
    query_stopped(served_until(SERVED), at=162),
    "it was stopped, its Spark Connect session goes on, and there is no grace",
    query_stopped(served_until(SERVED), at=103, **NO_GRACE),
    "it was stopped, and the client of another Spark Connect session left",
    query_stopped(served_until(over(idle=0.01, session="s2")), at=162),
    "it failed, and its client ended the Spark Connect session",
    query_failed(served().failed(at=101).probe(at=102, **LEFT), at=103),
    "the client ended its Spark Connect session",
    stopped(served_until(LEFT), at=900),
    "the client ended its Spark Connect session, of an expected query",
    stopped(served_until(LEFT), at=900, expected=["a"]),
    "the client ended its Spark Connect session, and no signal showed the end of the run",
    stopped(served().probe(at=101, **LEFT).probe(at=102, **LEFT), at=900),
    "the client ended its Spark Connect session a while after the query was stopped",
    stopped(served_until(SERVED).probe(at=130, **over(idle=0.01, at=130.0)), at=900),
    "the client ended its Spark Connect session after long silence, which had no limit",
    stopped(served_until(over(idle=9000.0, allowed=-0.001)), at=900),
    "without a grace, no poll has shown yet whether the client ended its Spark Connect session",
    stopped(
        served().probe(run(session="s1", batch=9), at=100.5, **SERVED).ended(at=101),
        at=101.2,
        **NO_GRACE,
    ),
    "without a grace, and the probe does not answer any more",
    query_stopped(
        served().probe(run(session="s1", batch=9), at=100.5, **SERVED).ended(at=101),
        at=900,
        **NO_GRACE,
    ),
    "a short grace is over, and no poll has shown whether the client ended its session",
    stopped(
        served().probe(run(session="s1", batch=9), at=100.5, **SERVED).ended(at=101),
        at=103.5,
        **limits("*", gone_grace_seconds=2.0),
    ),
    "its Spark Connect session expired, within the grace",
    stopped(served_until(SESSION_EXPIRED), at=161),
    "its Spark Connect session expired, and another session has started it again",
    running(served_until(SESSION_EXPIRED).started(at=110).commit(batch=11, at=112), at=170),
    "its Spark Connect session expired after an announced stop",
    stopped(served().expect_stop().ended(at=101).probe(at=102, **SESSION_EXPIRED), at=900),
    "availableNow, finished, and its Spark Connect session expired later",
    completed(
        available_now()
        .seen(session="s1", trigger="AvailableNowTrigger", at=1)
        .ended(at=2)
        .probe(at=63, **over(idle=61.0, at=63.0)),
        at=900,
    ),
    "the stop comes within the time for which it was announced",
    stopped(steady().seen(at=100).expect_stop(until=700).ended(at=600), at=9000),
    "announced by the job, and after that from outside for a shorter time",
    stopped(
        steady().seen(at=100).expect_stop().expect_stop(until=200).evaluated(at=300).ended(at=600),
        at=9000,
    ),
    "the poll lacks it first within the time for which its stop was announced",
    stopped(steady().seen(at=100).expect_stop(until=700).probe(at=699).probe(at=702), at=9000),
    "a stop that was announced twice comes within the later time",
    stopped(
        steady()
        .seen(at=100)
        .expect_stop(until=200)
        .until(150)
        .expect_stop(until=700)
        .ended(at=600),
        at=9000,
    ),
    "a stop that was announced until a time does not come",
    running(called_off(), at=900),
    "the stop comes after the time for which it was announced",
    query_stopped(called_off().ended(at=901), at=962),
    "another query was started on its checkpoint, after an announced stop",
    stopped(steady().seen(at=100).expect_stop().takes(at=101), at=165),
    "another query was started on its checkpoint, and that was announced late",
    stopped(taken().expect_stop(), at=165),
    "another query was started on its checkpoint, and supervise restarts it",
    stopped(taken().supervised(due_at=110.0), at=111),
    "once, and another query was started on its checkpoint",
    completed(Story().seen(trigger=ONCE, at=0).takes(at=2), at=165),
    "availableNow, expected, and another query was started on its checkpoint",
    completed(available_now().takes(at=2), at=165, expected=["a"]),
    "another query was started on its checkpoint, then a planned spark.stop()",
    stopped(taken().probe(at=102, context=STOPPED), at=165),
    "trigger unknown, and another query was started on its checkpoint",
    stopped(steady().takes(at=101), at=165),
    "Spark does not name the trigger, and the query ended",
    stopped(unknown_trigger().ended(at=101), at=900),
    "Spark does not name the trigger, and the query vanished",
    stopped(unknown_trigger().probe(at=101).probe(at=102), at=900),
    "Spark does not name the trigger, and the query ended while another one is expected",
    stopped(
        unknown_trigger().started("b", at=100).commit("b", batch=0, at=895).ended(at=101),
        at=900,
        expected=["b"],
    ),
    "a single poll lacked the query, the probe has not answered since, and its batches commit",
    stopped(steady().seen(at=100).probe(at=101).commit(batch=9, at=110), at=900),
    "stopped, within the grace",
    stopped(ended_by_hand(), at=161),
    "stopped and restarted",
    running(ended_by_hand().started(at=110).commit(batch=9, at=112), at=170),
    "trigger unknown, and the query is not expected",
    stopped(steady().ended(at=101), at=500),
    "once, finished",
    completed(Story().seen(trigger=ONCE, at=0).commit(batch=0, at=1).ended(at=2), at=900),
    "availableNow, finished",
    completed(available_now().ended(at=2), at=900),
    "availableNow, expected, finished",
    completed(available_now().ended(at=2), at=900, expected=["a"]),
    "a planned spark.stop()",
    stopped(steady().seen(at=100).probe(at=101, context=STOPPED), at=900),
    "stopped by hand, then a planned spark.stop()",
    stopped(ended_by_hand().probe(at=130, context=STOPPED), at=900),
    "the SparkContext has just died, within the grace",
    stopped(just_died(), at=150),
    "availableNow, finished before its SparkContext died",
    completed(available_now().ended(at=2).probe(at=3, context=DIED), at=900),
    "availableNow, cut off by a SparkContext that stopped by itself",
    query_stopped(available_now().ended(at=2, **CUT).probe(at=3, context=DIED), at=900),
    "availableNow, stopped long before its SparkContext was",
    completed(available_now().ended(at=2).probe(at=300, context=DIED), at=900),
    "availableNow, cut off by the application's own spark.stop()",
    stopped(
        available_now()
        .ended(at=2, exception=SHUTDOWN, context=STOPPED)
        .probe(at=3, context=STOPPED),
        at=900,
    ),
    "frozen during the grace",
    stopped(ended_by_hand().paused(at=160, seconds=50), at=200),
    "a longer grace by pattern",
    stopped(ended_by_hand(), at=900, **LONG_GRACE),
    # StreamingQueryMissing
    "expected, never seen",
    query_missing(Story(), at=301, expected=["a"]),
    "expected and never seen, while others run",
    query_missing(
        Story().started("b", at=0).commit("b", batch=0, at=299), at=301, expected=["a", "b"]
    ),
    "started, then no activity from any signal",
    query_missing(Story().started(at=0), at=301, besides=["StreamingQueryStalled"]),
    "expected, within the start grace",
    starting(Story(), at=300, expected=["a"]),
    "expected and running",
    running(steady(), at=121, expected=["a"]),
    "expected, but ignored",
    starting(Story(), at=500, expected=["a"], **limits("a", ignore=True)),
    "expected, the application has stopped",
    starting(Story().probe(at=50, context=STOPPED), at=500, expected=["a"]),
    "expected, frozen since the start",
    starting(Story().paused(at=500, seconds=450), at=505, expected=["a"]),
    "nothing is expected, nothing runs",
    case(Story(), at=9999, state=None),
    # planned stops
    "an announced stop",
    stopped(as_announced(), at=900),
    "an announced stop of an expected query",
    stopped(as_announced(), at=900, expected=["a"]),
    "it failed although its stop was announced",
    query_failed(steady().expect_stop().failed(at=101), at=102),
    "an announced stop applies to one run",
    query_stopped(as_announced().started(at=102).seen(at=103).ended(at=110), at=172),
)
