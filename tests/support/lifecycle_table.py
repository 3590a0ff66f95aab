"""The lifecycle table: stories of queries, and the notifications that a receiver gets.

A row is: what happened; the story (``support.lifecycle_harness``); the second it ends; the
notifications. An alert resolves after 30 s of health, three queries within 10 s are one incident,
a reminder follows every 4 h. The rules are evaluated once a second.
"""

from __future__ import annotations

from support.lifecycle_harness import STATES_WITHOUT_ALERT


def all_of(at: float, what: str, queries: str = "abcdefgh") -> list[tuple[float, str, str]]:
    return [(at, query, what) for query in queries]


def cycles(name: str, *beginnings: float, failing: float = 5, recovery: str = "idle"):
    """Unhealthy for a few seconds at each beginning, then healthy."""
    return [
        entry for at in beginnings for entry in ((at, "a", name), (at + failing, "a", recovery))
    ]


A = "a"
HEALTHY = (0, A, "commits")

SILENT = [
    ("nothing happens", [HEALTHY], 600, []),
    ("a stall in every other poll is a glitch", [HEALTHY, *[(at, A, "StreamingQueryStalled" if at % 2 else "commits") for at in range(10, 61)]], 90, []),
    ("a glitch of the whole driver", [HEALTHY, (10, "*", "QuerypulseMonitoringDegraded"), (11, "*", "commits")], 60, []),
    ("two glitches of different kinds, one after the other", [HEALTHY, (10, A, "StreamingBatchSlow"), (11, A, "StreamingQueryLagging"), (12, A, "commits")], 60, []),
    ("eight glitches at once", [*all_of(0, "commits"), *all_of(10, "StreamingQueryStalled"), *all_of(11, "commits")], 60, []),
    ("a query is not seen yet", [(0, A, "expected")], 300, []),
    ("a query ends and restarts within the grace", [HEALTHY, (10, A, "ends"), (40, A, "commits")], 300, []),
    *[(f"a query is in condition {calm} for an hour", [(0, A, calm)], 3600, []) for calm in STATES_WITHOUT_ALERT],
]  # fmt: skip

ALREADY_REPORTED = [
    ("a stall that comes and goes every 20 s is one page", [HEALTHY, *[(at, A, "StreamingQueryStalled" if at % 40 else "commits") for at in range(20, 400, 20)]], 390,
     ["21 + a Stalled"]),
    ("a restart alone resolves nothing", [HEALTHY, (10, A, "StreamingQueryFailed"), (20, A, "starts")], 7200, ["10 + a Failed"]),
    ("29 s of health resolve nothing", [HEALTHY, (10, A, "StreamingQueryFailed"), (20, A, "idle"), (49, A, "starts")], 49, ["10 + a Failed"]),
    ("one commit resolves nothing", [HEALTHY, (10, A, "StreamingQueryFailed"), (20, A, "commits"), (21, A, "starts")], 300, ["10 + a Failed"]),
    ("an unannounced end resolves nothing", [HEALTHY, (10, A, "StreamingQueryStalled"), (20, A, "ends")], 300, ["11 + a Stalled"]),
    ("a query that idles and then ends unannounced has not recovered", [HEALTHY, (10, A, "StreamingQueryStalled"), (20, A, "idle"), (40, A, "ends")], 300,
     ["11 + a Stalled"]),
    ("a slow batch joins a stall that recovers", [HEALTHY, (10, A, "StreamingQueryStalled"), (20, A, "StreamingBatchSlow")], 45, ["11 + a Stalled"]),
    ("a lag that begins and ends while a failure recovers notifies nobody", [HEALTHY, (10, A, "StreamingQueryFailed"), (20, A, "StreamingQueryLagging"), (30, A, "commits")], 600,
     ["10 + a Failed", "50 - a"]),
    ("a query that flaps while a stall recovers", [HEALTHY, (10, A, "StreamingQueryStalled"), (20, A, "StreamingQueryFlapping")], 600, ["11 + a Stalled"]),
    ("a lag joins the incident of a query that flaps", [HEALTHY, (10, A, "StreamingQueryFlapping"), (30, A, "StreamingQueryLagging"), (40, A, "commits")], 600,
     ["11 + a Flapping", "60 - a"]),
    ("a danger that alternates between warning and critical is notified twice", [HEALTHY, *[(at, A, "StreamingDataLossRisk!" if at % 40 else "StreamingDataLossRisk") for at in range(40, 400, 20)]], 390,
     ["41 + a/warning StreamingDataLossRisk", "60 + a StreamingDataLossRisk", "60 - a/warning"]),
    ("data in danger in one poll", [HEALTHY, (10, A, "StreamingDataLossRisk"), (11, A, "commits")], 60, []),
    ("a lag joins the incident of data in danger", [HEALTHY, (10, A, "StreamingDataLossRisk!"), (30, A, "StreamingDataLossRisk!+StreamingQueryLagging"), (40, A, "commits")], 600,
     ["11 + a StreamingDataLossRisk", "70 - a"]),
    ("data in danger while the driver does not answer", [*all_of(0, "commits"), (10, "*", "StreamingQueryStalled"), (12, A, "StreamingDataLossRisk!"), (90, A, "commits"), (91, "*", "healthy")], 600,
     ["11 + * Stalled", "121 - *"]),
    ("eight stalls while the driver does not answer", [*all_of(0, "commits"), (10, "*", "StreamingQueryStalled"), *all_of(12, "StreamingOffsetsStalled"), *all_of(100, "commits"), (101, "*", "healthy")], 600,
     ["11 + * Stalled", "131 - *"]),
    ("a failure every twenty minutes, then healthy for 30 min", cycles("StreamingQueryFailed", 0, 1200, 2400, 3600), 3600 + 30 * 60,
     ["0 + a Failed", "35 - a", "1200 + a Failed", "1235 - a", "2400 + a Failed"]),
    ("missing signals while the driver does not answer", [*all_of(0, "commits"), (10, "*", "StreamingQueryStalled"), (20, "*", "StreamingQueryStalled+QuerypulseMonitoringDegraded+QuerypulseEventsMissing"), (60, "*", "healthy")], 600,
     ["11 + * Stalled", "90 - *"]),
    ("stalls that last a moment longer than the stall of their driver", [*all_of(0, "commits"), (10, "*", "StreamingQueryStalled"), (60, "*", "healthy"), *all_of(60, "StreamingQueryStalled"), *all_of(70, "commits")], 600,
     ["11 + * Stalled", "90 - *"]),
    ("a stall of less than four hours", [HEALTHY, (10, A, "StreamingQueryStalled")], 4 * 3600, ["11 + a Stalled"]),
    ("four hours of recovering", [HEALTHY, (10, A, "StreamingQueryFailed"), (20, A, "starts")], 5 * 3600, ["10 + a Failed"]),
    ("the third failure within half an hour, then healthy for 14 min", cycles("StreamingQueryFailed", 0, 100, 200), 200 + 14 * 60,
     ["0 + a Failed", "35 - a", "100 + a Failed", "135 - a", "200 + a Failed"]),
    ("a failure during the recovery of a flapping alert", cycles("StreamingQueryFailed", 0, 100, 200, 800), 800 + 14 * 60,
     ["0 + a Failed", "35 - a", "100 + a Failed", "135 - a", "200 + a Failed"]),
]  # fmt: skip

NOTIFYING = [
    ("a query that has failed at the first poll", [(0, A, "StreamingQueryFailed")], 5, ["0 + a Failed"]),
    ("late commits resolve a failure", [HEALTHY, (10, A, "StreamingQueryFailed"), (20, A, "starts"), (200, A, "commits")], 300, ["10 + a Failed", "230 - a"]),
    ("an announced stop of a stalled query", [HEALTHY, (10, A, "StreamingQueryStalled"), (20, A, "stopped")], 300, ["11 + a Stalled", "50 - a"]),
    ("a query completes while it recovers", [HEALTHY, (10, A, "StreamingQueryFailed"), (20, A, "completed")], 300, ["10 + a Failed", "50 - a"]),
    ("a query is forgotten while it recovers", [HEALTHY, (10, A, "StreamingQueryFailed"), (20, A, "forgotten")], 300, ["10 + a Failed", "50 - a"]),
    ("the alert of a whole driver resolves by time alone", [(10, "*", "QuerypulseMonitoringDegraded"), (20, "*", "healthy")], 300, ["11 + */warning QuerypulseMonitoringDegraded", "50 - */warning"]),
    ("a query fails again after its alert resolved", [HEALTHY, (10, A, "StreamingQueryFailed"), (20, A, "idle"), (60, A, "StreamingQueryFailed")], 90,
     ["10 + a Failed", "50 - a", "60 + a Failed"]),
    ("a stalled query ends, and the stop joins the stall", [HEALTHY, (10, A, "StreamingQueryStalled"), (20, A, "ends"), (80, A, "StreamingQueryStopped")], 300,
     ["11 + a Stalled"]),
    ("a warning joins another warning", [HEALTHY, (10, A, "StreamingBatchSlow"), (20, A, "StreamingQueryLagging")], 300, ["11 + a/warning StreamingBatchSlow"]),
    ("a failure resolves, and the incident lasts as long as the flapping", [HEALTHY, (10, A, "StreamingQueryFailed+StreamingQueryFlapping"), (20, A, "StreamingQueryFlapping+commits"), (600, A, "commits")], 700,
     ["10 + a Failed", "630 - a"]),
    ("stalls that clearly outlast the stall of their driver", [*all_of(0, "commits", "ab"), (10, "*", "StreamingQueryStalled"), (60, "*", "healthy"), *all_of(60, "StreamingQueryStalled", "ab")], 600,
     ["11 + * Stalled", "90 + a Stalled", "90 + b Stalled", "90 - *"]),
    ("a stop of all queries joins the stall of the driver", [*all_of(0, "commits"), (10, "*", "StreamingQueryStalled"), (60, "*", "StreamingQueryStopped")], 600,
     ["11 + * Stalled"]),
    ("a failure reported before the driver stopped answering stays open", [*all_of(0, "commits"), (5, A, "StreamingQueryFailed"), (10, "*", "StreamingQueryStalled")], 300,
     ["5 + a Failed", "11 + * Stalled"]),
    ("data in danger joins the stall", [HEALTHY, (10, A, "StreamingQueryStalled"), (100, A, "StreamingQueryStalled+StreamingDataLossRisk")], 200,
     ["11 + a Stalled"]),
    ("a danger that becomes critical ends the warning", [HEALTHY, (10, A, "StreamingDataLossRisk"), (50, A, "StreamingDataLossRisk!")], 200,
     ["11 + a/warning StreamingDataLossRisk", "50 + a StreamingDataLossRisk", "50 - a/warning"]),
    ("a stall resolves while data is in danger", [HEALTHY, (10, A, "StreamingQueryStalled+StreamingDataLossRisk!"), (50, A, "StreamingDataLossRisk!+commits"), (200, A, "commits")], 400,
     ["11 + a Stalled+StreamingDataLossRisk", "230 - a"]),
    ("a danger and a stall are one incident",
     [HEALTHY, (10, A, "StreamingDataLossRisk!"), (20, A, "StreamingQueryStalled"), (30, A, "StreamingDataLossRisk!"), (40, A, "commits")], 300,
     ["11 + a StreamingDataLossRisk", "70 - a"]),
    ("data in danger joins a failure, and both resolve after the restart",
     [HEALTHY, (10, A, "StreamingQueryFailed"), (60, A, "StreamingQueryFailed+StreamingDataLossRisk"), (90, A, "StreamingQueryFailed+StreamingDataLossRisk!"), (120, A, "commits")], 300,
     ["10 + a Failed", "150 - a"]),
    ("a reminder that was due during recovery is sent when the query fails again",
     [HEALTHY, (10, A, "StreamingQueryFailed"), (14000, A, "starts"), (15000, A, "StreamingQueryFailed")], 16000, ["10 + a Failed", "15000 ^ a Failed"]),
    ("the third failure within half an hour, then healthy for 15 min", cycles("StreamingQueryFailed", 0, 100, 200), 200 + 16 * 60,
     ["0 + a Failed", "35 - a", "100 + a Failed", "135 - a", "200 + a Failed", "1105 - a"]),
    ("three failures within more than a day", cycles("StreamingQueryFailed", 0, 100, 90_000), 90_100,
     ["0 + a Failed", "35 - a", "100 + a Failed", "135 - a", "90000 + a Failed", "90035 - a"]),
    ("a failure every twenty minutes is one incident from the third on", cycles("StreamingQueryFailed", *range(0, 8 * 3600, 1200)), 4 * 3600 - 1300,
     ["0 + a Failed", "35 - a", "1200 + a Failed", "1235 - a", "2400 + a Failed"]),
    ("five failures of one cause, one after the other, are the first and a group", [*all_of(0, "commits"), *[(10 + n, query, "StreamingQueryFailed") for n, query in enumerate("abcde")]], 300,
     ["10 + a Failed", "12 + * Failed(b,c)", "13 ^ * Failed(b,c,d)", "14 ^ * Failed(b,c,d,e)"]),
    ("three failures within more than ten seconds are three incidents", [*all_of(0, "commits"), *[(10 + 6 * n, query, "StreamingQueryFailed") for n, query in enumerate("abc")]], 300,
     ["10 + a Failed", "21 + b Failed", "27 + c Failed"]),
    ("three queries with different alerts are three incidents", [*all_of(0, "commits"), (10, "a", "StreamingQueryFailed"), (10, "b", "StreamingQueryStalled"), (10, "c", "StreamingOffsetsStalled")], 300,
     ["10 + a Failed", "11 + b Stalled", "11 + c StreamingOffsetsStalled"]),
    ("one of a group recovers and fails again", [*all_of(0, "commits", "abc"), *all_of(10, "StreamingQueryFailed", "abc"), (20, "a", "idle"), (90, "a", "StreamingQueryFailed")], 300,
     ["10 + * Failed(a,b,c)", "90 + a Failed"]),
    ("one of a stalled group fails, and people are notified again", [*all_of(0, "commits", "abc"), *all_of(10, "StreamingQueryStalled", "abc"), (20, "b", "StreamingQueryFailed")], 300,
     ["11 + * Stalled(a,b,c)", "20 ^ * Failed+Stalled(b,a,c)"]),
    ("a failure after a group has resolved is an incident of its own", [*all_of(0, "commits", "abc"), *all_of(10, "StreamingQueryFailed", "abc"), *all_of(20, "idle", "abc"), (60, "b", "StreamingQueryFailed")], 300,
     ["10 + * Failed(a,b,c)", "50 - *", "60 + b Failed"]),
]  # fmt: skip
