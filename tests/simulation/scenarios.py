"""Known findings as plans, each with the property that breaks; each is a test until it is fixed.

A finding that is fixed makes its test pass: take its mark away there, and its name out of
``exclusions``, so that random plans hold it too.
"""

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
ESCALATIONS = frozenset({"A7", "B1"})
"""At PagerDuty, a warning that becomes critical under its open key notifies nobody (A7)."""
UNKEPT = replace(A, checkpoint="new")


class Scenario(msgspec.Struct, frozen=True):
    """A finding, the plan that shows it, and the property that it breaks."""

    finding: str
    breaks: str
    what: str
    plan: Plan


def _scenario(
    finding: str,
    breaks: str,
    what: str,
    queries: tuple[QuerySpec, ...],
    *steps: Step,
    horizon: float = 420.0,
    setup: Setup | None = None,
    without: frozenset[str] = frozenset(),
) -> Scenario:
    starts = tuple(Step(1.0, "start", one.key) for one in queries)
    plan = Plan(1, horizon, queries, starts + steps, setup or Setup(), without - {finding})
    return Scenario(finding, breaks, what, plan)


def _processes(count: int, *, since: float, every: float = 120.0) -> tuple[Step, ...]:
    """The job fails fast, and its scheduler starts it again five seconds later."""
    ends = [since + every * number for number in range(count)]
    return tuple(step for at in ends for step in (Step(at, "raise"), Step(at + 5.0, "boot")))


SCENARIOS = (
    _scenario(
        "L3", "P1|P2|P3|P4|P5|P6", "a new checkpoint after a failure while the probe remembers the old run",
        (A, B), Step(100, "die", "a"), Step(130, "restart", "a", arg="new"),
    ),
    _scenario(
        "L3", "P2", "expect_stop, stop, and a start with a new checkpoint",
        (A, B), Step(100, "plan_stop", "a"), Step(110, "restart", "a", arg="new"),
    ),
    _scenario(
        "L15", "P4|P6", "two sessions with a query of one name: one dies, the other goes on",
        (A, TWIN), Step(100, "die", "a"), Step(101, "restart", "a", arg="new"),
        Step(160, "die", "twin"), Step(190, "restart", "twin", arg="new"),
    ),
    _scenario(
        "L16", "P2|P3", "a late event of a run more than sixteen runs ago takes the place of a failure",
        (A,), *(Step(20.0 + 6 * n, "restart", "a") for n in range(18)),
        Step(150, "die", "a"), Step(160, "late", "a", arg="18"),
    ),
    _scenario(
        "L23", "P5|P7", "a crash loop of a named query without a fixed checkpoint",
        (UNKEPT, B), Step(100, "crash_loop", "a", 60.0, "2"),
    ),
    _scenario(
        "A2", "P2|P5|P6", "an availableNow loop: a recovered failure comes back after 15 minutes",
        (LOOP, B), Step(100, "die", "a"), Step(160, "plan_stop", "a"), horizon=2400.0,
    ),
    _scenario(
        "A3", "P3", "a once run that completes without any batch does not resolve the failure before",
        (ONCE, B), Step(1.05, "hang", "a", 20.0), Step(8, "die", "a"),
        Step(50, "dry", "a", 60.0), Step(60, "restart", "a"),
    ),
    _scenario(
        "A19", "P2|P6", "an expected query that completed is reported as never seen",
        (replace(ONCE, expected=True),
         *(QuerySpec(f"z{n}", f"z{n}", trigger="Once") for n in range(6))),
        horizon=600.0, setup=Setup(memory=3),
    ),
    _scenario(
        "A20", "P5|P7", "an unnamed query without a checkpoint: one page for each restart",
        (replace(UNNAMED, checkpoint="new"), B), Step(100, "crash_loop", "u", 60.0, "2"),
    ),
    _scenario(
        "A1", "P1", "the SparkContext stops by itself, and the script ends within the grace",
        (A, B), Step(100, "context_dies"), Step(110, "close"), setup=Setup(watched=True),
    ),
    _scenario(
        "A4", "P1", "a run's first batch is retried for ever",
        (A, B), Step(1.05, "crawl", "a", 1400.0), horizon=1400.0,
    ),
    _scenario(
        "A4", "P1", "a batch is retried for ever: a warning is not enough",
        (A, B), Step(100, "crawl", "a", 800.0), horizon=900.0, without=ESCALATIONS,
    ),
    _scenario(
        "A4", "P1", "a batch hangs under a trigger of ten minutes",
        (replace(A, every=600.0), B), Step(590, "hang", "a", 600.0), horizon=1000.0,
    ),
    _scenario(
        "A9", "P2", "one task runs for 75 s (skew, throttled storage)",
        (A, B), Step(100, "skew", "a", 75.0),
    ),
    _scenario(
        "A9", "P2", "one task runs for long in a query with async progress tracking",
        (replace(A, every=2.0, takes=2.0, log_every=15.0), B), Step(150, "skew", "a", 160.0),
    ),
    _scenario(
        "A9", "P2", "a job waits for the slots that a sibling holds, for two minutes",
        (A, B), Step(100, "starve", "a", 120.0),
    ),
    _scenario(
        "A9", "P1", "a task never finishes: a warning is not enough",
        (A, B), Step(100, "skew", "a", 300.0), without=ESCALATIONS,
    ),
    _scenario(
        "A5", "P4", "one query that is stuck while the probe is silent hides the death of another",
        (A, B), Step(90, "probe_refused", "", 300.0), Step(95, "hang", "a", 400.0),
        Step(220, "die", "b"),
    ),
    _scenario(
        "A5", "P4", "a query that fails while it is stalled with all others",
        (A, B, C), Step(90, "probe_refused", "", 400.0), Step(95, "hang", "a", 400.0),
        Step(95, "hang", "b", 400.0), Step(95, "hang", "c", 400.0), Step(250, "die", "c"),
    ),
    _scenario(
        "A6", "P1|P4", "a silenced alert of the whole driver suppresses what is under it",
        (A, B), Step(90, "silence", "*", 600.0, "StreamingQueryStalled"),
        Step(90, "probe_refused", "", 300.0), Step(95, "hang", "a", 400.0),
        Step(220, "die", "b"),
    ),
    _scenario(
        "A7", "P1|P4", "a member of a group recovers and fails again: nobody is paged",
        (A, B, C, D), *(Step(100, "die", key) for key in "abc"),
        Step(102, "restart", "a"), Step(200, "die", "a"),
    ),
    _scenario(
        "A7", "P1|P4", "one more member joins a group whose key is open: nobody is paged",
        (A, B, C, D), *(Step(100, "die", key) for key in "abc"), Step(104, "die", "d"),
    ),
    _scenario(
        "A7", "P1|P4", "a failure comes back before the receiver has taken the end of the last one",
        (A, B), Step(60, "die", "a"), Step(62, "restart", "a"), Step(90, "receiver", "", 60.0, "down"),
        Step(140, "die", "a"),
    ),
    _scenario(
        "A8", "P3|P4", "a second driver of one app name resolves the first one's page",
        (A, replace(A, key="a2", driver="d2")), Step(12, "die", "a"),
        setup=Setup(drivers=("d1", "d2"), app="pyspark-shell", spool=False),
    ),
    _scenario(
        "A8", "P3|P4", "at Alertmanager, a second driver of one app name resolves the first one's page",
        (A, replace(A, key="a2", driver="d2")), Step(12, "die", "a"),
        setup=Setup(("alertmanager",), drivers=("d1", "d2"), spool=False),
    ),
    _scenario(
        "A8", "P1", "two drivers of one app name are killed, one after the other",
        (A, replace(B, driver="d2")), Step(100, "kill", "d1"), Step(150, "kill", "d2"),
        setup=Setup(drivers=("d1", "d2"), watched=True),
    ),
    _scenario(
        "A18", "P1", "a receiver answers 410 for a minute, and a query fails later",
        (A, B), Step(90, "receiver", "", 60.0, "gone"), Step(100, "die", "a"), Step(200, "die", "b"),
    ),
    _scenario(
        "A10", "P5", "a stalled query, and JVM pauses of some seconds: a page for each",
        (A, B), Step(100, "hang", "a", 400.0), Step(200, "jvm_pause", "", 12.0),
        Step(260, "jvm_pause", "", 12.0),
    ),
    _scenario(
        "A11", "P5", "a failure that heals itself, three times an hour: a page each time",
        (replace(A, recovers=2.0),), *(Step(100.0 + 1200 * n, "die", "a") for n in range(4)),
        horizon=4200.0,
    ),
    _scenario(
        "A21", "P3", "without a spool, a slow batch's warning stays open for ever",
        (A, B), Step(100, "crawl", "a", 150.0), Step(200, "kill"), Step(205, "boot"),
        horizon=700.0, setup=Setup(spool=False),
    ),
    _scenario(
        "A21", "P3", "without a spool, a failure stays open when another alert comes first",
        (A, B), Step(100, "die", "a"), Step(110, "kill"), Step(115, "boot"), Step(116, "hang", "a", 150.0),
        horizon=700.0, setup=Setup(spool=False),
    ),
    _scenario(
        "A21", "P3", "without a spool, a group stays open",
        (A, B, C), *(Step(100, "die", key) for key in "abc"), Step(110, "kill"), Step(115, "boot"),
        horizon=420.0, setup=Setup(spool=False),
    ),
    _scenario(
        "B1", "P5", "a start resolves what was never open, all of it at once",
        (A, B, C, D),
    ),
    _scenario(
        "B1", "P5", "a start resolves at Alertmanager what was never open",
        (A, B), setup=Setup(receivers=("alertmanager",)),
    ),
    _scenario(
        "B1", "P1", "a query fails while what an earlier process may have left open is resolved",
        (A, B, C, D), Step(60, "die", "a"),
    ),
    _scenario(
        "400", "P3", "a receiver answers 400 to a resolve",
        (A, B), Step(60, "die", "a"), Step(62, "restart", "a"), Step(70, "poison"), horizon=700.0,
        setup=Setup(("webhook",)),
    ),
    _scenario(
        "400", "P1", "a receiver answers 400 to the alert that queries without a name share",
        (UNNAMED, replace(UNNAMED, key="v")), Step(60, "poison"), Step(70, "die", "u"),
        Step(100, "die", "v"), setup=Setup(("webhook",)),
    ),
    _scenario(
        "N1", "P3", "a stalled query is started again, stalls, and commits: resolved at once",
        (A, B), Step(60, "ask", "a", 270.0), Step(240, "restart", "a"),
    ),
    _scenario(
        "N2", "P5", "watch repeats its start-up resolve, and ends what the driver itself reports",
        (A, B), Step(150, "jvm_crash"),
        setup=Setup(receivers=("alertmanager",), watched=True),
    ),
    _scenario(
        "N2", "P1", "watch sends its start-up resolve late, after the driver has reported its JVM's end",
        (A, B), Step(28, "receiver", "", 20.0, "down"), Step(48, "jvm_crash"), horizon=200.0,
        setup=Setup(watched=True),
    ),
    _scenario(
        "S1", "P3|P5|P9", "a batch fails after two minutes in process after process, without a spool",
        (replace(A, takes=100.0),), Step(150, "bad_batch", "a", 700.0), *_processes(6, since=220.0),
        horizon=1400.0, setup=Setup(spool=False),
    ),
    _scenario(
        "S1", "P3|P5|P9", "a batch hangs for longer than the window, and then fails, in each process",
        (A, B), Step(60, "bad_batch", "a", 900.0),
        Step(61.0, "hang", "a", 135.0), *(Step(207.2 + 160 * n, "hang", "a", 135.0) for n in range(5)),
        *_processes(6, since=201.0, every=160.0), horizon=1400.0, setup=Setup(spool=False),
    ),
    _scenario(
        "S1", "P3|P5|P9", "a batch fails at once in process after process; another query is healthy",
        (replace(A, takes=8.0), B), Step(60, "bad_batch", "a", 700.0),
        *_processes(6, since=80.0), horizon=1200.0, setup=Setup(spool=False),
    ),
    _scenario(
        "S1", "P9", "a job commits and fails after 85 s, in process after process, with a spool",
        (A, B), Step(2, "bad_runs", "a", 900.0, "85"), *_processes(7, since=95.0),
        horizon=1500.0,
    ),
    _scenario(
        "S1", "P9", "the same, and the clock is set: between two processes, and within some",
        (A, B), Step(2, "bad_runs", "a", 900.0, "85"), *_processes(7, since=95.0),
        Step(97, "jump", "", -20.0), Step(150, "jump", "", -400.0), Step(270, "jump", "", 400.0),
        horizon=1500.0,
    ),
    _scenario(
        "S1", "P9", "a batch fails in process after process, with a spool: it is named",
        (replace(A, takes=8.0), B), Step(60, "bad_batch", "a", 700.0),
        *_processes(6, since=80.0), horizon=1200.0,
    ),
    _scenario(
        "S2", "P9", "two failures of other batches, and then one batch fails again and again",
        (replace(A, recovers=2.0),), Step(100, "die", "a"), Step(150, "die", "a"),
        Step(240, "bad_batch", "a", 60.0), horizon=300.0,
    ),
    _scenario(
        "S2", "P9", "the same of a query without a name, at a webhook",
        (replace(UNNAMED, recovers=2.0),), Step(100, "die", "u"), Step(150, "die", "u"),
        Step(240, "bad_batch", "u", 60.0), horizon=300.0, setup=Setup(("webhook",)),
    ),
    _scenario(
        "seed 869342679", "P3", "a failed query without a name whose next process only starts it",
        (UNNAMED, B), Step(100, "die", "u"), Step(101, "hang", "u", 250.0),
        Step(150, "kill"), Step(155, "boot"),
    ),
    _scenario(
        "A20", "P3", "without a spool, a failed query without a name, and another that is healthy",
        (UNNAMED, replace(UNNAMED, key="v")), Step(100, "die", "u"), Step(101, "hang", "u", 110.0),
        Step(150, "kill"), Step(155, "boot"), setup=Setup(spool=False),
    ),
    _scenario(
        "seed 31132", "P5", "a late start of a run that failed at once takes over the living run",
        (replace(A, trigger="Continuous", every=1.0, recovers=40.0),),
        Step(100, "fail_first", "a"), Step(110, "delay", "a", 70.0, "60"),
        Step(114, "die", "a"), Step(117, "restart", "a"), horizon=240.0,
    ),
    _scenario(
        "seed 641992642", "P5", "the clock is set, and a batch fails in the process that planned it",
        (A, B), Step(50, "jump", "", 2900.0), Step(101.5, "die", "a"), Step(110, "restart", "a"),
        horizon=200.0, setup=Setup(("webhook",)),
    ),
    _scenario(
        "seed 41", "P3", "of two that failed together one fails again: the other resolves at Alertmanager",
        (A, B, C), Step(100, "die", "c"), Step(104, "die", "a"), Step(104, "die", "b"),
        Step(106, "restart", "b"), Step(150, "die", "b"), setup=Setup(receivers=("alertmanager",)),
    ),
)  # fmt: skip


def plan_of(finding: str, index: int = 0) -> Plan:
    """The plan of a scenario of a finding."""
    return [one.plan for one in SCENARIOS if one.finding == finding][index]
