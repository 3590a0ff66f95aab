"""StreamingQueryFailed, ...Flapping and ...GivenUp."""

from __future__ import annotations

from support.rules.case import (
    alert,
    case,
    completed,
    idle,
    joined,
    limits,
    query_failed,
    query_failed_warning,
    query_missing,
    query_stopped,
    running,
    starting,
    stopped,
    table,
)
from support.rules.stories import (
    AVAILABLE_NOW,
    SHUTDOWN,
    STOPPED,
    available_now,
    dying,
    later,
    lost,
    steady,
    three_queries,
    watched,
    with_b,
)
from support.story import CONFLICT, Story, run

from querypulse.listener.probe_report import Context

EVOLVES = (
    "org.apache.spark.sql.catalyst.util.UnknownFieldException: "
    "[UNKNOWN_FIELD_EXCEPTION.NEW_FIELDS_IN_RECORD_WITH_FILE_PATH] Encountered unknown fields"
)
EXPECTED = {"expected_errors": ["UNKNOWN_FIELD_EXCEPTION*"]}


@later
def session_ended(story, *runs, at=101):
    """The session ends without the job's wish; ``runs`` ended with it, or shortly before."""
    return story.probe(*runs, at=at, context=Context.SESSION_ENDED)


@later
def crash_loop(seconds, exception=EVOLVES):
    """A new process fails in the batch that an earlier one planned so many seconds ago."""
    story = Story().started(at=1).began(at=2, unfinished=(7, 20 - seconds), committed=(6, -seconds))
    return story.works(batch=7, at=5).ended(at=20, exception=exception)


def evolved():
    return steady().ended(at=101, exception=EVOLVES)


EXPECTED_ERRORS = table(
    # an error that is part of the job's life
    "schema evolution ends it, as expected",
    query_failed_warning(evolved(), at=102),
    "schema evolution ended it five minutes ago",
    query_failed_warning(evolved(), at=400),
    "schema evolution ended it, and it has not come back",
    query_failed(evolved(), at=402),
    "schema evolution ended it, within a longer grace",
    query_failed_warning(evolved(), at=600, failed_grace_seconds=600.0),
    "schema evolution ended it, and it is back",
    running(evolved().started(at=110).commit(batch=11, at=115), at=116),
    "schema evolution ends it again before it recovers: the grace counts from the first",
    query_failed(evolved().started(at=110).ended(at=390, exception=EVOLVES), at=402),
    "schema evolution ends it in each new process, for seven minutes",
    query_failed(crash_loop(400.0), at=21),
    "schema evolution ends it in each new process, for five minutes",
    query_failed_warning(crash_loop(270.0), at=21),
    "another error than the expected one",
    query_failed(steady().failed(at=101), at=102),
    **EXPECTED,
)

OTHER_ERRORS = table(
    # StreamingQueryFailed
    "fails, reported by the event",
    query_failed(steady().failed(at=101)),
    "fails, reported by the probe while the event is stuck in the bus",
    query_failed(steady().seen(at=100).seen(active=False, exception=CONFLICT, at=101)),
    "fails before its first batch",
    query_failed(Story().started(at=0).failed(at=1)),
    "failed a day ago",
    query_failed(steady().failed(at=101), at=86_000),
    "restarted, not healthy yet",
    query_failed(steady().failed(at=101).started(at=103), at=104),
    "restarted under a new id, not healthy yet (checkpoint deleted)",
    query_failed(steady().failed(at=101).started_again(at=103), at=104),
    "fails under availableNow",
    query_failed(available_now().failed(at=1), at=2),
    "fails a moment before spark.stop()",
    query_failed(steady().ended(at=101, exception=CONFLICT, context=STOPPED), at=102),
    "restarted and committing",
    running(steady().failed(at=101).started(at=103).commit(batch=10, at=110), at=111),
    "restarted and idle",
    idle(steady().failed(at=101).started(at=103).idle(at=113), at=114),
    "the failure of the old run arrives after the new run began (restart by user code)",
    running(
        steady().started(run=2, at=101).commit(run=2, batch=10, at=102).failed(run=1, at=103),
        at=104,
    ),
    "killed by a planned spark.stop()",
    stopped(steady().ended(at=101, exception=SHUTDOWN, context=Context.STOPPED), at=102),
    "a query fails that was never seen",
    case(Story().failed(at=5), at=6, alerts=("StreamingQueryFailed", "unnamed"), state=None),
    "two queries fail, which are too few for a group",
    case(
        with_b().failed(at=101).failed("b", at=101),
        at=102,
        alerts=["StreamingQueryFailed", ("StreamingQueryFailed", "b")],
        state="failed",
    ),
    "a sibling fails",
    case(
        steady().started("b", at=0).commit("b", batch=0, at=99).failed("b", at=100),
        at=101,
        alerts=("StreamingQueryFailed", "b"),
        state="running",
    ),
    # the Spark Connect session ends without the job's wish
    "its session ended",
    query_failed(session_ended(steady(), lost()), at=102),
    "its session ended long ago",
    query_failed(session_ended(steady(), lost()), at=3600, expected=["a"]),
    "its session ended under availableNow",
    query_failed(session_ended(available_now(), lost(trigger=AVAILABLE_NOW), at=2), at=3),
    "three queries of a session that ended: one incident",
    case(
        session_ended(three_queries(), lost(), lost("b"), lost("c")),
        at=102,
        alerts=("StreamingQueryFailed", "*"),
        state="failed",
    ),
    "a query failed, then the session of two others ended",
    case(
        session_ended(three_queries().failed(at=100.5), lost("b"), lost("c")),
        at=102,
        alerts=["StreamingQueryFailed", ("StreamingQueryFailed", "*")],
        state="failed",
    ),
    "a query failed although its stop was announced, then its session ended",
    query_failed(
        session_ended(steady().expect_stop(), run(active=False, exception=CONFLICT)), at=102
    ),
    "a query stopped, then its session ended: the stop keeps its grace",
    stopped(session_ended(steady().seen(at=100).ended(at=100.5)), at=150),
    "a query stopped and is not back, nor is its session",
    query_stopped(session_ended(steady().seen(at=100).ended(at=100.5)), at=170),
    "its stop was announced before its session ended",
    stopped(session_ended(steady().expect_stop(), lost()), at=900),
    "it was stopped as announced, then its session ended",
    stopped(session_ended(steady().seen(at=100).expect_stop().ended(at=100.5)), at=900),
    "it completed, then its session ended",
    completed(session_ended(available_now().ended(at=2)), at=900, expected=["a"]),
    "its session ended, and it is ignored",
    case(session_ended(steady(), lost()), at=900, state="failed", **limits("a", ignore=True)),
    "its session ended, within its grace",
    case(session_ended(steady(), lost()), at=150, state="failed", failed_grace_seconds=60.0),
    "its session made way for a new one, where it commits",
    running(steady().probe(lost(), at=101).started(at=103).commit(batch=10, at=110), at=111),
    "the session lives, the network is interrupted",
    running(steady().seen(batch=10, at=100), at=130, probe_expected=True),
    "it fails in each new process, for longer than the grace",
    query_failed(crash_loop(400.0, CONFLICT), at=21, failed_grace_seconds=300.0),
    "it fails in each new process, within the grace",
    case(crash_loop(400.0, CONFLICT), at=21, state="failed", failed_grace_seconds=600.0),
    "an expected error, by the name of the exception",
    query_failed_warning(steady().failed(at=101), at=102, expected_errors=["Concurrent*Exception"]),
    "an expected error in another case",
    query_failed(steady().failed(at=101), at=102, expected_errors=["concurrent*"]),
    "schema evolution, which nobody expects",
    query_failed(evolved(), at=102),
)


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


FLAPPING = table(
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
    "fails twice, and then its session ends",
    query_failed(session_ended(dying(100, 150, alive_after=True), lost(number=3), at=200), at=201),
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

CASES = joined(EXPECTED_ERRORS, OTHER_ERRORS, FLAPPING)
