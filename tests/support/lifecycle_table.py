"""The lifecycle table: stories of queries, and the notifications that a receiver gets.

Words and rows alternate; a row is the story (``support.lifecycle_harness``), the second it ends, and
the notifications. An alert resolves after 30 s of health, three queries within 10 s are one incident,
a reminder follows every 4 h. The rules are evaluated once a second.
"""

from __future__ import annotations

from typing import NamedTuple

from support.lifecycle_harness import STATES_WITHOUT_ALERT

Condition = tuple[float, str, str]
FAILED = "StreamingQueryFailed"
STALLED = "StreamingQueryStalled"
FLAPPING = "StreamingQueryFlapping"
SLOW = "StreamingBatchSlow"
LAGGING = "StreamingQueryLagging"
AT_RISK = "StreamingDataLossRisk"
LOSING = "StreamingDataLossRisk!"
DEGRADED = "QuerypulseMonitoringDegraded"


class Row(NamedTuple):
    """A story up to a second, and what people are notified of."""

    story: list[Condition]
    until: float
    notes: list[str]


def row(*conditions: Condition, until: float, notes: str = "") -> Row:
    """The row of a story that begins with a healthy query ``a``."""
    return story(HEALTHY, *conditions, until=until, notes=notes)


def story(*conditions: Condition, until: float, notes: str = "") -> Row:
    """The row of any story; its ``notes`` are separated by ``, ``."""
    return Row(list(conditions), until, notes.split(", ") if notes else [])


def rows(*parts: str | Row) -> dict[str, Row]:
    """The rows by their words, which come before each."""
    found = dict(zip(parts[::2], parts[1::2], strict=True))
    assert len(found) == len(parts) // 2, "two rows have the same words"
    return found


def all_of(at: float, what: str, queries: str = "abcdefgh") -> list[tuple[float, str, str]]:
    return [(at, query, what) for query in queries]


def cycles(name: str, *beginnings: float, failing: float = 5, recovery: str = "idle"):
    """Unhealthy for a few seconds at each beginning, then healthy."""
    return [
        entry for at in beginnings for entry in ((at, "a", name), (at + failing, "a", recovery))
    ]


A = "a"
HEALTHY = (0, A, "commits")

SILENT = rows(
    "nothing happens",
    row(until=600),
    "a stall in every other poll is a glitch",
    row(*[(at, A, STALLED if at % 2 else "commits") for at in range(10, 61)], until=90),
    "a glitch of the whole driver",
    row((10, "*", DEGRADED), (11, "*", "commits"), until=60),
    "two glitches of different kinds, one after the other",
    row((10, A, SLOW), (11, A, LAGGING), (12, A, "commits"), until=60),
    "eight glitches at once",
    story(*all_of(0, "commits"), *all_of(10, STALLED), *all_of(11, "commits"), until=60),
    "a query is not seen yet",
    story((0, A, "expected"), until=300),
    "a query ends and restarts within the grace",
    row((10, A, "ends"), (40, A, "commits"), until=300),
)
SILENT |= {
    f"a query is in condition {calm} for an hour": story((0, A, calm), until=3600)
    for calm in STATES_WITHOUT_ALERT
}

ALREADY_REPORTED = rows(
    "a stall that comes and goes every 20 s is one page",
    row(
        *[(at, A, STALLED if at % 40 else "commits") for at in range(20, 400, 20)],
        until=390,
        notes="21 + a Stalled",
    ),
    "a restart alone resolves nothing",
    row((10, A, FAILED), (20, A, "starts"), until=7200, notes="10 + a Failed"),
    "29 s of health resolve nothing",
    row((10, A, FAILED), (20, A, "idle"), (49, A, "starts"), until=49, notes="10 + a Failed"),
    "one commit resolves nothing",
    row((10, A, FAILED), (20, A, "commits"), (21, A, "starts"), until=300, notes="10 + a Failed"),
    "an unannounced end resolves nothing",
    row((10, A, STALLED), (20, A, "ends"), until=300, notes="11 + a Stalled"),
    "a query that idles and then ends unannounced has not recovered",
    row((10, A, STALLED), (20, A, "idle"), (40, A, "ends"), until=300, notes="11 + a Stalled"),
    "a slow batch joins a stall that recovers",
    row((10, A, STALLED), (20, A, SLOW), until=45, notes="11 + a Stalled"),
    "a lag that begins and ends while a failure recovers notifies nobody",
    row(
        (10, A, FAILED),
        (20, A, LAGGING),
        (30, A, "commits"),
        until=600,
        notes="10 + a Failed, 50 - a",
    ),
    "a query that flaps while a stall recovers",
    row((10, A, STALLED), (20, A, FLAPPING), until=600, notes="11 + a Stalled"),
    "a lag joins the incident of a query that flaps",
    row(
        (10, A, FLAPPING),
        (30, A, LAGGING),
        (40, A, "commits"),
        until=600,
        notes="11 + a Flapping, 60 - a",
    ),
    "a danger that alternates between warning and critical is notified twice",
    row(
        *[(at, A, LOSING if at % 40 else AT_RISK) for at in range(40, 400, 20)],
        until=390,
        notes="41 + a/warning StreamingDataLossRisk, 60 + a StreamingDataLossRisk, 60 - a/warning",
    ),
    "data in danger in one poll",
    row((10, A, AT_RISK), (11, A, "commits"), until=60),
    "a lag joins the incident of data in danger",
    row(
        (10, A, LOSING),
        (30, A, "StreamingDataLossRisk!+StreamingQueryLagging"),
        (40, A, "commits"),
        until=600,
        notes="11 + a StreamingDataLossRisk, 70 - a",
    ),
    "data in danger while the driver does not answer",
    story(
        *all_of(0, "commits"),
        (10, "*", STALLED),
        (12, A, LOSING),
        (90, A, "commits"),
        (91, "*", "healthy"),
        until=600,
        notes="11 + * Stalled, 121 - *",
    ),
    "eight stalls while the driver does not answer",
    story(
        *all_of(0, "commits"),
        (10, "*", STALLED),
        *all_of(12, "StreamingOffsetsStalled"),
        *all_of(100, "commits"),
        (101, "*", "healthy"),
        until=600,
        notes="11 + * Stalled, 131 - *",
    ),
    "a failure every twenty minutes, then healthy for 30 min",
    story(
        *cycles(FAILED, 0, 1200, 2400, 3600),
        until=3600 + 30 * 60,
        notes="0 + a Failed, 35 - a, 1200 + a Failed, 1235 - a, 2400 + a Failed",
    ),
    "missing signals while the driver does not answer",
    story(
        *all_of(0, "commits"),
        (10, "*", STALLED),
        (20, "*", "StreamingQueryStalled+QuerypulseMonitoringDegraded+QuerypulseEventsMissing"),
        (60, "*", "healthy"),
        until=600,
        notes="11 + * Stalled, 90 - *",
    ),
    "stalls that last a moment longer than the stall of their driver",
    story(
        *all_of(0, "commits"),
        (10, "*", STALLED),
        (60, "*", "healthy"),
        *all_of(60, STALLED),
        *all_of(70, "commits"),
        until=600,
        notes="11 + * Stalled, 90 - *",
    ),
    "a stall of less than four hours",
    row((10, A, STALLED), until=4 * 3600, notes="11 + a Stalled"),
    "four hours of recovering",
    row((10, A, FAILED), (20, A, "starts"), until=5 * 3600, notes="10 + a Failed"),
    "the third failure within half an hour, then healthy for 14 min",
    story(
        *cycles(FAILED, 0, 100, 200),
        until=200 + 14 * 60,
        notes="0 + a Failed, 35 - a, 100 + a Failed, 135 - a, 200 + a Failed",
    ),
    "a failure during the recovery of a flapping alert",
    story(
        *cycles(FAILED, 0, 100, 200, 800),
        until=800 + 14 * 60,
        notes="0 + a Failed, 35 - a, 100 + a Failed, 135 - a, 200 + a Failed",
    ),
)

NOTIFYING = rows(
    "a query that has failed at the first poll",
    story((0, A, FAILED), until=5, notes="0 + a Failed"),
    "late commits resolve a failure",
    row(
        (10, A, FAILED),
        (20, A, "starts"),
        (200, A, "commits"),
        until=300,
        notes="10 + a Failed, 230 - a",
    ),
    "an announced stop of a stalled query",
    row((10, A, STALLED), (20, A, "stopped"), until=300, notes="11 + a Stalled, 50 - a"),
    "a query completes while it recovers",
    row((10, A, FAILED), (20, A, "completed"), until=300, notes="10 + a Failed, 50 - a"),
    "a query is forgotten while it recovers",
    row((10, A, FAILED), (20, A, "forgotten"), until=300, notes="10 + a Failed, 50 - a"),
    "the alert of a whole driver resolves by time alone",
    story(
        (10, "*", DEGRADED),
        (20, "*", "healthy"),
        until=300,
        notes="11 + */warning QuerypulseMonitoringDegraded, 50 - */warning",
    ),
    "a query fails again after its alert resolved",
    row(
        (10, A, FAILED),
        (20, A, "idle"),
        (60, A, FAILED),
        until=90,
        notes="10 + a Failed, 50 - a, 60 + a Failed",
    ),
    "a stalled query ends, and the stop joins the stall",
    row(
        (10, A, STALLED),
        (20, A, "ends"),
        (80, A, "StreamingQueryStopped"),
        until=300,
        notes="11 + a Stalled",
    ),
    "a warning joins another warning",
    row((10, A, SLOW), (20, A, LAGGING), until=300, notes="11 + a/warning StreamingBatchSlow"),
    "a failure resolves, and the incident lasts as long as the flapping",
    row(
        (10, A, "StreamingQueryFailed+StreamingQueryFlapping"),
        (20, A, "StreamingQueryFlapping+commits"),
        (600, A, "commits"),
        until=700,
        notes="10 + a Failed, 630 - a",
    ),
    "stalls that clearly outlast the stall of their driver",
    story(
        *all_of(0, "commits", "ab"),
        (10, "*", STALLED),
        (60, "*", "healthy"),
        *all_of(60, STALLED, "ab"),
        until=600,
        notes="11 + * Stalled, 90 + a Stalled, 90 + b Stalled, 90 - *",
    ),
    "a stop of all queries joins the stall of the driver",
    story(
        *all_of(0, "commits"),
        (10, "*", STALLED),
        (60, "*", "StreamingQueryStopped"),
        until=600,
        notes="11 + * Stalled",
    ),
    "a failure reported before the driver stopped answering stays open",
    story(
        *all_of(0, "commits"),
        (5, A, FAILED),
        (10, "*", STALLED),
        until=300,
        notes="5 + a Failed, 11 + * Stalled",
    ),
    "data in danger joins the stall",
    row(
        (10, A, STALLED),
        (100, A, "StreamingQueryStalled+StreamingDataLossRisk"),
        until=200,
        notes="11 + a Stalled",
    ),
    "a danger that becomes critical ends the warning",
    row(
        (10, A, AT_RISK),
        (50, A, LOSING),
        until=200,
        notes="11 + a/warning StreamingDataLossRisk, 50 + a StreamingDataLossRisk, 50 - a/warning",
    ),
    "a stall resolves while data is in danger",
    row(
        (10, A, "StreamingQueryStalled+StreamingDataLossRisk!"),
        (50, A, "StreamingDataLossRisk!+commits"),
        (200, A, "commits"),
        until=400,
        notes="11 + a Stalled+StreamingDataLossRisk, 230 - a",
    ),
    "a danger and a stall are one incident",
    row(
        (10, A, LOSING),
        (20, A, STALLED),
        (30, A, LOSING),
        (40, A, "commits"),
        until=300,
        notes="11 + a StreamingDataLossRisk, 70 - a",
    ),
    "data in danger joins a failure, and both resolve after the restart",
    row(
        (10, A, FAILED),
        (60, A, "StreamingQueryFailed+StreamingDataLossRisk"),
        (90, A, "StreamingQueryFailed+StreamingDataLossRisk!"),
        (120, A, "commits"),
        until=300,
        notes="10 + a Failed, 150 - a",
    ),
    "a reminder that was due during recovery is sent when the query fails again",
    row(
        (10, A, FAILED),
        (14000, A, "starts"),
        (15000, A, FAILED),
        until=16000,
        notes="10 + a Failed, 15000 ^ a Failed",
    ),
    "the third failure within half an hour, then healthy for 15 min",
    story(
        *cycles(FAILED, 0, 100, 200),
        until=200 + 16 * 60,
        notes="0 + a Failed, 35 - a, 100 + a Failed, 135 - a, 200 + a Failed, 1105 - a",
    ),
    "three failures within more than a day",
    story(
        *cycles(FAILED, 0, 100, 90_000),
        until=90_100,
        notes="0 + a Failed, 35 - a, 100 + a Failed, 135 - a, 90000 + a Failed, 90035 - a",
    ),
    "a failure every twenty minutes is one incident from the third on",
    story(
        *cycles(FAILED, *range(0, 8 * 3600, 1200)),
        until=4 * 3600 - 1300,
        notes="0 + a Failed, 35 - a, 1200 + a Failed, 1235 - a, 2400 + a Failed",
    ),
    "five failures of one cause, one after the other, are the first and a group",
    story(
        *all_of(0, "commits"),
        *[(10 + n, query, FAILED) for n, query in enumerate("abcde")],
        until=300,
        notes="10 + a Failed, 12 + * Failed(b,c), 13 ^ * Failed(b,c,d), 14 ^ * Failed(b,c,d,e)",
    ),
    "three failures within more than ten seconds are three incidents",
    story(
        *all_of(0, "commits"),
        *[(10 + 6 * n, query, FAILED) for n, query in enumerate("abc")],
        until=300,
        notes="10 + a Failed, 21 + b Failed, 27 + c Failed",
    ),
    "three queries with different alerts are three incidents",
    story(
        *all_of(0, "commits"),
        (10, "a", FAILED),
        (10, "b", STALLED),
        (10, "c", "StreamingOffsetsStalled"),
        until=300,
        notes="10 + a Failed, 11 + b Stalled, 11 + c StreamingOffsetsStalled",
    ),
    "one of a group recovers and fails again",
    story(
        *all_of(0, "commits", "abc"),
        *all_of(10, FAILED, "abc"),
        (20, "a", "idle"),
        (90, "a", FAILED),
        until=300,
        notes="10 + * Failed(a,b,c), 90 + a Failed",
    ),
    "one of a stalled group fails, and people are notified again",
    story(
        *all_of(0, "commits", "abc"),
        *all_of(10, STALLED, "abc"),
        (20, "b", FAILED),
        until=300,
        notes="11 + * Stalled(a,b,c), 20 ^ * Failed+Stalled(b,a,c)",
    ),
    "a failure after a group has resolved is an incident of its own",
    story(
        *all_of(0, "commits", "abc"),
        *all_of(10, FAILED, "abc"),
        *all_of(20, "idle", "abc"),
        (60, "b", FAILED),
        until=300,
        notes="10 + * Failed(a,b,c), 50 - *, 60 + b Failed",
    ),
)
