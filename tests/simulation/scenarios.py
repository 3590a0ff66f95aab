"""Bugs that were found once, as plans: none of them breaks a property any more."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from .plan import Plan, QuerySpec, Setup, Step

A = QuerySpec("a", "a")
B = QuerySpec("b", "b")
C = QuerySpec("c", "c")
D = QuerySpec("d", "d")
UNNAMED = QuerySpec("u", None)
TWIN = replace(A, key="twin", session="s2")
LOOP = QuerySpec("a", "a", trigger="AvailableNow", loop=20.0)
ONCE = QuerySpec("a", "a", trigger="Once")
UNKEPT = replace(A, checkpoint="new")


class Scenario(msgspec.Struct, frozen=True):
    """What happens, the plan of it, and the properties that it broke once."""

    breaks: str
    what: str
    plan: Plan


def _scenario(
    breaks: str,
    what: str,
    queries: tuple[QuerySpec, ...],
    *steps: Step,
    horizon: float = 420.0,
    setup: Setup | None = None,
    idle: str = "",
) -> Scenario:
    """The scenario in which all queries but the ``idle`` ones are started in the first second."""
    starts = tuple(
        Step(1.0, "start", query.key) for query in queries if query.key not in idle.split()
    )
    return Scenario(breaks, what, Plan(1, horizon, queries, starts + steps, setup or Setup()))


def _processes(count: int, *, since: float, every: float = 120.0) -> tuple[Step, ...]:
    """Steps of a job that fails fast and whose scheduler restarts it five seconds later."""
    ends = [since + every * number for number in range(count)]
    return tuple(step for at in ends for step in (Step(at, "raise"), Step(at + 5.0, "boot")))


SCENARIOS = (
    _scenario(
        "P1|P2|P3|P4|P5|P6", "a new checkpoint after a failure while the probe remembers the old run",
        (A, B), Step(100, "die", "a"), Step(130, "restart", "a", arg="new"),
    ),
    _scenario(
        "P2", "expect_stop, stop, and a start with a new checkpoint",
        (A, B), Step(100, "plan_stop", "a"), Step(110, "restart", "a", arg="new"),
    ),
    _scenario(
        "P4|P6", "two sessions with a query of one name: one fails, the other runs on",
        (A, TWIN), Step(100, "die", "a"), Step(101, "restart", "a", arg="new"),
        Step(160, "die", "twin"), Step(190, "restart", "twin", arg="new"),
    ),
    _scenario(
        "P1|P2|P6", "the name of a query is known only from its second run: a silence of the name",
        (A, B), Step(20.9, "fail_first", "a"), Step(21.0, "drop", "a", 0.003), Step(21.0, "start", "a"),
        Step(40, "restart", "a"), Step(120, "silence", "a", 200.0), Step(150, "die", "a"),
        horizon=300.0, idle="a",
    ),
    _scenario(
        "P6", "the first poll takes 3 s: the query fails and has a new checkpoint when it shows the name",
        (A, B), Step(15.7, "die", "a"), Step(16.7, "restart", "a", arg="new"),
        horizon=240.0, setup=Setup(polls=3.0, attach_at=15.0),
    ),
    _scenario(
        "P2|P3", "a late event of a run more than sixteen runs ago replaces a failure",
        (A,), *(Step(20.0 + 6 * n, "restart", "a") for n in range(18)),
        Step(150, "die", "a"), Step(160, "late", "a", arg="18"),
    ),
    _scenario(
        "P5|P7", "a crash loop of a named query without a fixed checkpoint",
        (UNKEPT, B), Step(100, "crash_loop", "a", 60.0, "2"),
    ),
    _scenario(
        "P2|P5|P6", "an availableNow loop: a recovered failure reappears after 15 minutes",
        (LOOP, B), Step(100, "die", "a"), Step(160, "plan_stop", "a"), horizon=2400.0,
    ),
    _scenario(
        "P3", "a once run that completes without a batch does not resolve the failure before",
        (ONCE, B), Step(1.05, "hang", "a", 20.0), Step(8, "die", "a"),
        Step(50, "dry", "a", 60.0), Step(60, "restart", "a"),
    ),
    _scenario(
        "P2|P6", "an expected query that completed is reported as never seen",
        (replace(ONCE, expected=True),
         *(QuerySpec(f"z{n}", f"z{n}", trigger="Once") for n in range(6))),
        horizon=600.0, setup=Setup(memory=3),
    ),
    _scenario(
        "P5|P7", "an unnamed query without a checkpoint: one page for each restart",
        (replace(UNNAMED, checkpoint="new"), B), Step(100, "crash_loop", "u", 60.0, "2"),
    ),
    _scenario(
        "P1", "the SparkContext stops by itself, and the script ends within the grace",
        (A, B), Step(100, "context_dies"), Step(110, "close"), setup=Setup(watched=True),
    ),
    _scenario(
        "P1", "the first batch of a run is retried for ever",
        (A, B), Step(1.05, "crawl", "a", 1400.0), horizon=1400.0, setup=Setup(slow_critical=900.0),
    ),
    _scenario(
        "P1", "a batch is retried for ever: a warning is not enough",
        (A, B), Step(100, "crawl", "a", 800.0), horizon=900.0, setup=Setup(slow_critical=600.0),
    ),
    _scenario(
        "P1|P3", "the thread of a batch works for long: it is slow, and no page before it is critical",
        (A, B), Step(100, "compute", "a", 500.0), Step(800, "compute", "b", 800.0), horizon=1700.0,
        setup=Setup(slow_critical=600.0),
    ),
    _scenario(
        "P1", "a batch hangs under a trigger of ten minutes",
        (replace(A, every=600.0), B), Step(590, "hang", "a", 600.0), horizon=1000.0,
    ),
    _scenario(
        "P1", "a batch hangs while the jobs of another query run in a pool of threads",
        (A, B), Step(95, "fan_out", "b", 320.0), Step(100, "hang", "a", 300.0),
    ),
    _scenario(
        "P1", "one task runs for twelve minutes",
        (A, B), Step(100, "skew", "a", 720.0), horizon=840.0,
    ),
    _scenario(
        "P1", "a checkpoint that decides about the health of its query cannot be read",
        (replace(A, trigger="Continuous"), B), Step(60, "unreadable", "a", 380.0), horizon=480.0,
    ),
    _scenario(
        "P2", "one task runs for 75 s (skew, throttled storage)",
        (A, B), Step(100, "skew", "a", 75.0),
    ),
    _scenario(
        "P2", "one task runs for long in a query with async progress tracking",
        (replace(A, every=2.0, takes=2.0, log_every=15.0), B), Step(150, "skew", "a", 160.0),
    ),
    _scenario(
        "P2", "a job waits for the slots that a sibling holds, for two minutes",
        (A, B), Step(100, "starve", "a", 120.0),
    ),
    _scenario(
        "P1", "a task never finishes: a warning is not enough",
        (A, B), Step(100, "crawl", "a", 300.0), setup=Setup(slow_critical=240.0),
    ),
    _scenario(
        "P4", "one stuck query while the probe is silent hides the failure of another",
        (A, B), Step(90, "probe_refused", "", 300.0), Step(95, "hang", "a", 400.0),
        Step(220, "die", "b"),
    ),
    _scenario(
        "P4", "a query that fails while it is stalled with all others",
        (A, B, C), Step(90, "probe_refused", "", 400.0), Step(95, "hang", "a", 400.0),
        Step(95, "hang", "b", 400.0), Step(95, "hang", "c", 400.0), Step(250, "die", "c"),
    ),
    _scenario(
        "P1|P4", "a silenced alert of the whole driver suppresses alerts of its queries",
        (A, B), Step(90, "silence", "*", 600.0, "StreamingQueryStalled"),
        Step(90, "probe_refused", "", 300.0), Step(95, "hang", "a", 400.0),
        Step(220, "die", "b"),
    ),
    _scenario(
        "P1|P4", "a silenced stall of the whole driver suppresses that a query has stopped",
        (A, B, C), Step(90, "silence", "*", 600.0, "StreamingQueryStalled"),
        Step(90, "probe_refused", "", 450.0), Step(95, "hang", "a", 400.0),
        Step(95, "hang", "c", 400.0), Step(220, "stop", "b"),
    ),
    _scenario(
        "P1|P4", "a member of a group recovers and fails again: nobody is paged",
        (A, B, C, D), *(Step(100, "die", key) for key in "abc"),
        Step(102, "restart", "a"), Step(200, "die", "a"),
    ),
    _scenario(
        "P1|P4", "one more member joins a group whose key is open: nobody is paged",
        (A, B, C, D), *(Step(100, "die", key) for key in "abc"), Step(104, "die", "d"),
    ),
    _scenario(
        "P1|P4", "a failure recurs before the receiver has accepted the resolve of the last one",
        (A, B), Step(60, "die", "a"), Step(62, "restart", "a"), Step(90, "receiver", "", 60.0, "down"),
        Step(140, "die", "a"),
    ),
    _scenario(
        "P3|P4", "a second driver with the same app name resolves the page of the first",
        (A, replace(A, key="a2", driver="d2")), Step(12, "die", "a"),
        setup=Setup(drivers=("d1", "d2"), app="pyspark-shell", spool=False),
    ),
    _scenario(
        "P3|P4", "at Alertmanager, a second driver with the same app name resolves the page of the first",
        (A, replace(A, key="a2", driver="d2")), Step(12, "die", "a"),
        setup=Setup(("alertmanager",), drivers=("d1", "d2"), spool=False),
    ),
    _scenario(
        "P1", "two drivers with one app name are killed, one after the other",
        (A, replace(B, driver="d2")), Step(100, "kill", "d1"), Step(150, "kill", "d2"),
        setup=Setup(drivers=("d1", "d2"), watched=True),
    ),
    _scenario(
        "P1", "a warning becomes critical, and its key is open",
        (A, B), Step(100, "crawl", "a", 300.0), setup=Setup(slow_critical=240.0),
    ),
    _scenario(
        "P2", "the application stops its SparkContext, which takes longer than the grace",
        (A, B), Step(100, "app_stops", "", 90.0),
    ),
    _scenario(
        "P2", "Spark dropped events before the attach",
        (A, B), Step(5, "drop", "*", 8.0), setup=Setup(attach_at=15.0),
    ),
    _scenario(
        "P7", "a query has a name of 10,000 characters, and fails",
        (replace(A, name="a" * 10_000), B), Step(100, "die", "a"), horizon=200.0,
    ),
    _scenario(
        "P1|P8", "a rule raises, and a query fails",
        (A, B), Step(100, "die", "a"), horizon=200.0, setup=Setup(broken_rule="query_lagging"),
    ),
    _scenario(
        "P2|P4|P6", "a new checkpoint, while the session of the first run is not known yet",
        (replace(A, every=1.0, takes=0.2, expected=True), B), Step(0.9, "probe_refused", "", 5.0),
        Step(0.95, "drop", "a", 0.1), Step(2.85, "drop", "a", 0.1), Step(2.9, "stop", "a"),
        Step(3.0, "restart", "a", arg="new"), horizon=200.0,
    ),
    _scenario(
        "P1", "a receiver answers 410 for a minute, and a query fails later",
        (A, B), Step(90, "receiver", "", 60.0, "gone"), Step(100, "die", "a"), Step(200, "die", "b"),
    ),
    _scenario(
        "P5", "a stalled query, and JVM pauses of some seconds: a page per pause",
        (A, B), Step(100, "hang", "a", 400.0), Step(200, "jvm_pause", "", 12.0),
        Step(260, "jvm_pause", "", 12.0),
    ),
    _scenario(
        "P5", "a stalled query, and a probe that is refused for minutes: a page each time",
        (A, B), Step(100, "hang", "a", 400.0), Step(200, "probe_refused", "", 120.0),
        Step(380, "probe_refused", "", 120.0), horizon=600.0,
    ),
    _scenario(
        "P5", "a failure that recovers by itself, three times an hour: a page each time",
        (replace(A, recovers=2.0),), *(Step(100.0 + 1200 * n, "die", "a") for n in range(4)),
        horizon=4200.0,
    ),
    _scenario(
        "P10", "a query fails, restarts, and hangs while its incident is open: another page",
        (replace(A, recovers=2.0), B), Step(60, "die", "a"), Step(70, "hang", "a", 200.0),
        setup=Setup(("webhook",)),
    ),
    _scenario(
        "P5", "the same in a new process each time, with a spool",
        (replace(A, every=20.0, takes=2.0),),
        *(step for n in range(4) for step in (
            Step(100.0 + 1200 * n, "die", "a"), Step(102.0 + 1200 * n, "raise"),
            Step(107.0 + 1200 * n, "boot"))),
        horizon=4200.0,
    ),
    _scenario(
        "P5", "the same at Alertmanager",
        (replace(A, every=20.0, takes=2.0),),
        *(step for n in range(4) for step in (
            Step(100.0 + 1200 * n, "die", "a"), Step(102.0 + 1200 * n, "raise"),
            Step(107.0 + 1200 * n, "boot"))),
        horizon=4200.0, setup=Setup(("alertmanager",)),
    ),
    _scenario(
        "P5", "a planned restart of the driver while the alert is held open",
        (replace(A, recovers=2.0),), *(Step(100.0 + 1200 * n, "die", "a") for n in range(4)),
        Step(2800.0, "close"), Step(2805.0, "boot"), horizon=4200.0,
    ),
    _scenario(
        "P1", "a failure no longer recovers by itself, and its alert is held open",
        (A,), *(step for n in range(3) for step in (
            Step(100.0 + 1200 * n, "die", "a"), Step(102.0 + 1200 * n, "restart", "a"))),
        Step(3700.0, "die", "a"), horizon=4200.0,
    ),
    _scenario(
        "P1", "the same at Alertmanager, whose alert has the same labels",
        (A,), *(step for n in range(3) for step in (
            Step(100.0 + 1200 * n, "die", "a"), Step(102.0 + 1200 * n, "restart", "a"))),
        Step(3700.0, "die", "a"), Step(4000.0, "restart", "a"), Step(4300.0, "die", "a"),
        horizon=4800.0, setup=Setup(("alertmanager",)),
    ),
    _scenario(
        "P3", "without a spool, the warning of a slow batch stays open for ever",
        (A, B), Step(100, "crawl", "a", 150.0), Step(200, "kill"), Step(205, "boot"),
        horizon=700.0, setup=Setup(spool=False),
    ),
    _scenario(
        "P3", "without a spool, a failure stays open when another alert comes first",
        (A, B), Step(100, "die", "a"), Step(110, "kill"), Step(115, "boot"), Step(116, "hang", "a", 150.0),
        horizon=700.0, setup=Setup(spool=False),
    ),
    _scenario(
        "P3", "without a spool, a group stays open",
        (A, B, C), *(Step(100, "die", key) for key in "abc"), Step(110, "kill"), Step(115, "boot"),
        horizon=700.0, setup=Setup(spool=False),
    ),
    _scenario(
        "P5", "a start resolves all incidents at once, which were never open",
        (A, B, C, D),
    ),
    _scenario(
        "P5", "a start resolves incidents at Alertmanager that were never open",
        (A, B), setup=Setup(receivers=("alertmanager",)),
    ),
    _scenario(
        "P1", "a query fails while stale resolves are being sent",
        (A, B, C, D), Step(60, "die", "a"),
    ),
    _scenario(
        "P3", "a receiver answers 400 to a resolve",
        (A, B), Step(60, "die", "a"), Step(62, "restart", "a"), Step(70, "poison"), horizon=700.0,
        setup=Setup(("webhook",)),
    ),
    _scenario(
        "P1", "a receiver answers 400 to the shared alert of unnamed queries",
        (UNNAMED, replace(UNNAMED, key="v")), Step(60, "poison"), Step(70, "die", "u"),
        Step(100, "die", "v"), setup=Setup(("webhook",)),
    ),
    _scenario(
        "P3", "a stalled query restarts, stalls, and commits: resolved at once",
        (A, B), Step(60, "ask", "a", 270.0), Step(240, "restart", "a"),
    ),
    _scenario(
        "P5", "watch repeats its start-up resolve, and resolves what the driver itself reports",
        (A, B), Step(150, "jvm_crash"),
        setup=Setup(receivers=("alertmanager",), watched=True),
    ),
    _scenario(
        "P3", "a resolve of watch waits for its receiver, and closes what the driver reports meanwhile",
        (A, B), Step(15, "receiver", "", 60.0, "down"), Step(75, "jvm_crash"), horizon=200.0,
        setup=Setup(watched=True),
    ),
    _scenario(
        "P3", "watch ends the incident of a driver that is back, with a group of queries still in it",
        (A, B, C), *(Step(100, "die", key) for key in "abc"), Step(102, "restart", "a"),
        Step(180, "kill"), Step(210, "boot"), Step(211, "die", "b"), Step(211, "die", "c"),
        setup=Setup(watched=True),
    ),
    _scenario(
        "P3|P5|P9", "a batch fails after two minutes in process after process, without a spool",
        (replace(A, takes=100.0),), Step(150, "bad_batch", "a", 700.0), *_processes(6, since=220.0),
        horizon=1400.0, setup=Setup(spool=False),
    ),
    _scenario(
        "P3|P5|P9", "a batch hangs for longer than the window, and then fails, in each process",
        (A, B), Step(60, "bad_batch", "a", 900.0),
        Step(61.0, "hang", "a", 135.0), *(Step(207.2 + 160 * n, "hang", "a", 135.0) for n in range(5)),
        *_processes(6, since=201.0, every=160.0), horizon=1400.0, setup=Setup(spool=False),
    ),
    _scenario(
        "P3|P5|P9", "a batch fails at once in process after process; another query is healthy",
        (replace(A, takes=8.0), B), Step(60, "bad_batch", "a", 700.0),
        *_processes(6, since=80.0), horizon=1200.0, setup=Setup(spool=False),
    ),
    _scenario(
        "P9", "a job commits and fails after 85 s, in process after process, with a spool",
        (A, B), Step(2, "bad_runs", "a", 900.0, "85"), *_processes(7, since=95.0),
        horizon=1500.0,
    ),
    _scenario(
        "P9", "a job commits and fails after 85 s in each process, and the clock is set in between",
        (A, B), Step(2, "bad_runs", "a", 900.0, "85"), *_processes(7, since=95.0),
        Step(97, "jump", "", -20.0), Step(150, "jump", "", -400.0), Step(270, "jump", "", 400.0),
        horizon=1500.0,
    ),
    _scenario(
        "P9", "a batch fails in process after process, with a spool: it is named",
        (replace(A, takes=8.0), B), Step(60, "bad_batch", "a", 700.0),
        *_processes(6, since=80.0), horizon=1200.0,
    ),
    _scenario(
        "P9", "two failures in other batches, then one batch fails repeatedly",
        (replace(A, recovers=2.0),), Step(100, "die", "a"), Step(150, "die", "a"),
        Step(240, "bad_batch", "a", 60.0), horizon=300.0,
    ),
    _scenario(
        "P9", "an unnamed query fails in two batches, then one batch fails repeatedly, at a webhook",
        (replace(UNNAMED, recovers=2.0),), Step(100, "die", "u"), Step(150, "die", "u"),
        Step(240, "bad_batch", "u", 60.0), horizon=300.0, setup=Setup(("webhook",)),
    ),
    _scenario(
        "P3", "a failed unnamed query whose next process only starts it",
        (UNNAMED, B), Step(100, "die", "u"), Step(101, "hang", "u", 250.0),
        Step(150, "kill"), Step(155, "boot"),
    ),
    _scenario(
        "P3", "without a spool, one unnamed query has failed, and another is healthy",
        (UNNAMED, replace(UNNAMED, key="v")), Step(100, "die", "u"), Step(101, "hang", "u", 110.0),
        Step(150, "kill"), Step(155, "boot"), setup=Setup(spool=False),
    ),
    _scenario(
        "P5", "a late start event of a run that failed at once replaces the running one",
        (replace(A, trigger="Continuous", every=1.0, recovers=40.0),),
        Step(100, "fail_first", "a"), Step(110, "delay", "a", 70.0, "60"),
        Step(114, "die", "a"), Step(117, "restart", "a"), horizon=240.0,
    ),
    _scenario(
        "P5", "the clock is set, and a batch fails in the process that planned it",
        (A, B), Step(50, "jump", "", 2900.0), Step(101.5, "die", "a"), Step(110, "restart", "a"),
        horizon=200.0, setup=Setup(("webhook",)),
    ),
    _scenario(
        "P3", "two queries fail together, one fails again: the other resolves at Alertmanager",
        (A, B, C), Step(100, "die", "c"), Step(104, "die", "a"), Step(104, "die", "b"),
        Step(106, "restart", "b"), Step(150, "die", "b"), setup=Setup(receivers=("alertmanager",)),
    ),
    _scenario(
        "P2", "a single poll lacks a running query, and the probe is refused afterwards",
        (A, B), Step(101, "probe_misses", "a", 2.0), Step(103, "probe_refused", "", 80.0),
    ),
    _scenario(
        "P2", "a failure under a silence recovers slowly, and its driver restarts meanwhile",
        (replace(A, every=60.0, takes=0.2),), Step(50, "silence", "*", 140.0, "StreamingQueryFailed"),
        Step(68, "die", "a"), Step(70, "restart", "a"), Step(90, "kill"), Step(95, "boot"),
    ),
    _scenario(
        "P1", "slow polls show late that the SparkContext has cut off a finite run",
        (replace(LOOP, every=20.0, takes=5.0, loop=5.0),), Step(90.3, "context_dies"),
        horizon=240.0, setup=Setup(polls=3.0),
    ),
    _scenario(
        "P2", "an alert that the watcher repeats after its driver resolved it",
        (A,), Step(5.5, "jvm_crash"), Step(8.5, "kill"), Step(98.5, "boot"),
        Step(221.3, "restart", "a"), horizon=330.0,
        setup=Setup(("alertmanager",), watched=True), idle="a",
    ),
    _scenario(
        "P5", "a warning that becomes critical as the JVM answers again",
        (replace(A, every=20.0, takes=0.2, log_every=10.0), replace(B, every=20.0, takes=5.0),
         replace(C, trigger="Once", takes=5.0, loop=30.0)),
        Step(4, "start", "a"), Step(9, "start", "c"), Step(12, "start", "b"),
        Step(213.6, "skew", "a", 90.0), Step(309.4, "jvm_pause", "", 86.9),
        horizon=480.0, idle="a b c",
    ),
    _scenario(
        "P5", "batches that wait for an executor, and then a pause of the JVM",
        (replace(A, every=20.0, takes=5.0), replace(B, every=1.0, takes=5.0), UNNAMED),
        Step(160.4, "no_executors", "d1", 160.0), Step(164.4, "crash_loop", "u", 23.2, "2"),
        Step(227, "jvm_pause", "", 67.0),
    ),
    _scenario(
        "P3", "a process that is killed as it sends, before its spool has stored it",
        (replace(A, trigger="Continuous", every=2.0),), Step(19.0, "kill_within", "d1", 0.0, "17"),
        Step(27.7, "die", "a"), Step(37.5, "boot", "d1"), horizon=200.0,
    ),
    _scenario(
        "P1", "a driver that is killed just after its pause, with a late resolve",
        (A,), Step(23.6, "receiver", "", 100.0, "down"), Step(140.4, "pause", "", 47.7),
        Step(194.0, "kill"), horizon=300.0, setup=Setup(watched=True),
    ),
    _scenario(
        "P3", "a failed namesake whose label the next process gives to no query",
        (A, TWIN), Step(198, "die", "twin"), Step(228, "restart", "twin", 0.0, "new"),
        Step(240, "raise"), Step(243, "boot"),
    ),
    _scenario(
        "P6", "a namesake that a slow poll shows first, after the other one failed",
        (A, TWIN), Step(20.0, "delay", "twin", 30.0, "60"), Step(34.5, "start", "twin"),
        Step(38.0, "die", "a"), setup=Setup(polls=3.0), idle="twin",
    ),
    _scenario(
        "P6", "a failure without a known start, of a query that failed before and is known by its name",
        (replace(UNKEPT, every=2.0, takes=2.0, recovers=2.0),), Step(68.9, "bad_batch", "a", 160.0),
        Step(147.2, "drop", "a", 3.0), Step(147.5, "die", "a"), horizon=200.0, setup=Setup(polls=1.5),
    ),
    _scenario(
        "P1", "a start-up resolve gets 410, and its query fails once the receiver works again",
        (A,), Step(35.0, "receiver", "", 60.0, "gone"), Step(236.9, "die", "a"),
    ),
    _scenario(
        "P1", "memory for one ended query: one stops by surprise, and another as planned",
        (A, B, C), Step(112, "stop", "a"), Step(114, "plan_stop", "b"), setup=Setup(memory=1),
    ),
)  # fmt: skip


def plan_of(what: str) -> Plan:
    """The plan of a scenario."""
    return next(scenario.plan for scenario in SCENARIOS if scenario.what == what)
