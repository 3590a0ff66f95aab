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
    ]  # fmt: skip


A = "a"
HEALTHY = (0, A, "commits")

SILENT = [
    ("nothing happens", [HEALTHY], 600, []),
    ("a stall in one poll is a glitch", [HEALTHY, (10, A, "StreamingQueryStalled"), (11, A, "commits")], 60, []),
    ("a stall in every other poll is a glitch", [HEALTHY, *[(at, A, "StreamingQueryStalled" if at % 2 else "commits") for at in range(10, 61)]], 90, []),
    ("a glitch of the whole driver", [HEALTHY, (10, "*", "QuerypulseMonitoringDegraded"), (11, "*", "commits")], 60, []),
    ("two glitches of different kinds, one after the other", [HEALTHY, (10, A, "StreamingBatchSlow"), (11, A, "StreamingQueryLagging"), (12, A, "commits")], 60, []),
    ("eight glitches at once", [*all_of(0, "commits"), *all_of(10, "StreamingQueryStalled"), *all_of(11, "commits")], 60, []),
    ("an announced stop", [HEALTHY, (10, A, "stopped")], 300, []),
    ("a query completes", [HEALTHY, (10, A, "completed")], 300, []),
    ("a query is not seen yet", [(0, A, "expected")], 300, []),
    ("a query ends and restarts within the grace", [HEALTHY, (10, A, "ends"), (40, A, "commits")], 300, []),
    *[(f"a query is in condition {calm} for an hour", [(0, A, calm)], 3600, []) for calm in STATES_WITHOUT_ALERT],
]  # fmt: skip

ALREADY_REPORTED = [
    ("a query fails again while it recovers", [HEALTHY, (10, A, "StreamingQueryFailed"), (20, A, "commits"), (40, A, "StreamingQueryFailed")], 90,
     ["10 + StreamingQueryFailed a"]),
    ("a stall that comes and goes every 20 s is one page", [HEALTHY, *[(at, A, "StreamingQueryStalled" if at % 40 else "commits") for at in range(20, 400, 20)]], 390,
     ["21 + StreamingQueryStalled a"]),
    ("a restart alone resolves nothing", [HEALTHY, (10, A, "StreamingQueryFailed"), (20, A, "starts")], 7200, ["10 + StreamingQueryFailed a"]),
    ("29 s of health resolve nothing", [HEALTHY, (10, A, "StreamingQueryFailed"), (20, A, "idle"), (49, A, "starts")], 49, ["10 + StreamingQueryFailed a"]),
    ("one commit resolves nothing", [HEALTHY, (10, A, "StreamingQueryFailed"), (20, A, "commits"), (21, A, "starts")], 300, ["10 + StreamingQueryFailed a"]),
    ("an unannounced end resolves nothing", [HEALTHY, (10, A, "StreamingQueryStalled"), (20, A, "ends")], 300, ["11 + StreamingQueryStalled a"]),
    ("a query that idles and then ends unannounced has not recovered", [HEALTHY, (10, A, "StreamingQueryStalled"), (20, A, "idle"), (40, A, "ends")], 300,
     ["11 + StreamingQueryStalled a"]),
    ("a failure that is not fixed", [HEALTHY, (10, A, "StreamingQueryFailed")], 600, ["10 + StreamingQueryFailed a"]),
    ("a slow batch is not reported while a stall recovers", [HEALTHY, (10, A, "StreamingQueryStalled"), (20, A, "StreamingBatchSlow")], 45, ["11 + StreamingQueryStalled a"]),
    ("a lag that begins and ends while a failure recovers is not reported", [HEALTHY, (10, A, "StreamingQueryFailed"), (20, A, "StreamingQueryLagging"), (30, A, "commits")], 600,
     ["10 + StreamingQueryFailed a", "50 - StreamingQueryFailed a"]),
    ("a stall while the query flaps", [HEALTHY, (10, A, "StreamingQueryFlapping"), (20, A, "StreamingQueryStalled")], 600, ["11 + StreamingQueryFlapping a", "21 + StreamingQueryStalled a"]),
    ("a query that flaps while a stall recovers", [HEALTHY, (10, A, "StreamingQueryStalled"), (20, A, "StreamingQueryFlapping")], 600, ["11 + StreamingQueryStalled a", "21 + StreamingQueryFlapping a"]),
    ("a lag is not reported while the query flaps", [HEALTHY, (10, A, "StreamingQueryFlapping"), (30, A, "StreamingQueryLagging"), (40, A, "commits")], 600,
     ["11 + StreamingQueryFlapping a", "60 - StreamingQueryFlapping a"]),
    ("a danger that alternates between warning and critical opens one more incident", [HEALTHY, *[(at, A, "StreamingDataLossRisk!" if at % 40 else "StreamingDataLossRisk") for at in range(40, 400, 20)]], 390,
     ["41 + StreamingDataLossRisk a", "60 + StreamingDataLossRisk a", "60 - StreamingDataLossRisk a"]),
    ("data in danger in one poll", [HEALTHY, (10, A, "StreamingDataLossRisk"), (11, A, "commits")], 60, []),
    ("a lag is not reported while data is in danger", [HEALTHY, (10, A, "StreamingDataLossRisk!"), (30, A, "StreamingDataLossRisk!+StreamingQueryLagging"), (40, A, "commits")], 600,
     ["11 + StreamingDataLossRisk a", "70 - StreamingDataLossRisk a"]),
    ("data in danger while the driver does not answer", [*all_of(0, "commits"), (10, "*", "StreamingQueryStalled"), (12, A, "StreamingDataLossRisk!"), (90, A, "commits"), (91, "*", "healthy")], 600,
     ["11 + StreamingQueryStalled *", "121 - StreamingQueryStalled *"]),
    ("eight stalls while the driver does not answer", [*all_of(0, "commits"), (10, "*", "StreamingQueryStalled"), *all_of(12, "StreamingOffsetsStalled"), *all_of(100, "commits"), (101, "*", "healthy")], 600,
     ["11 + StreamingQueryStalled *", "131 - StreamingQueryStalled *"]),
    ("a query stops and restarts while the driver does not answer", [*all_of(0, "commits"), (10, "*", "StreamingQueryStalled"), (20, A, "StreamingQueryStopped"), (40, A, "commits"), (90, "*", "healthy")], 600,
     ["11 + StreamingQueryStalled *", "120 - StreamingQueryStalled *"]),
    ("a slow batch while the driver does not answer", [*all_of(0, "commits"), (10, "*", "StreamingQueryStalled"), (20, A, "StreamingBatchSlow"), (40, A, "commits"), (90, "*", "healthy")], 600,
     ["11 + StreamingQueryStalled *", "120 - StreamingQueryStalled *"]),
    ("a failure every twenty minutes, then healthy for 30 min", cycles("StreamingQueryFailed", 0, 1200, 2400, 3600), 3600 + 30 * 60,
     ["0 + StreamingQueryFailed a", "35 - StreamingQueryFailed a", "1200 + StreamingQueryFailed a", "1235 - StreamingQueryFailed a", "2400 + StreamingQueryFailed a"]),
    ("missing signals while the driver does not answer", [*all_of(0, "commits"), (10, "*", "StreamingQueryStalled"), (20, "*", "StreamingQueryStalled+QuerypulseMonitoringDegraded+QuerypulseEventsMissing"), (60, "*", "healthy")], 600,
     ["11 + StreamingQueryStalled *", "90 - StreamingQueryStalled *"]),
    ("stalls that last a moment longer than the stall of their driver", [*all_of(0, "commits"), (10, "*", "StreamingQueryStalled"), (60, "*", "healthy"), *all_of(60, "StreamingQueryStalled"), *all_of(70, "commits")], 600,
     ["11 + StreamingQueryStalled *", "90 - StreamingQueryStalled *"]),
    ("a stall of less than four hours", [HEALTHY, (10, A, "StreamingQueryStalled")], 4 * 3600, ["11 + StreamingQueryStalled a"]),
    ("four hours of recovering", [HEALTHY, (10, A, "StreamingQueryFailed"), (20, A, "starts")], 5 * 3600, ["10 + StreamingQueryFailed a"]),
    ("the third failure within half an hour, then healthy for 14 min", cycles("StreamingQueryFailed", 0, 100, 200), 200 + 14 * 60,
     ["0 + StreamingQueryFailed a", "35 - StreamingQueryFailed a", "100 + StreamingQueryFailed a", "135 - StreamingQueryFailed a", "200 + StreamingQueryFailed a"]),
    ("a failure during the recovery of a flapping alert", cycles("StreamingQueryFailed", 0, 100, 200, 800), 800 + 14 * 60,
     ["0 + StreamingQueryFailed a", "35 - StreamingQueryFailed a", "100 + StreamingQueryFailed a", "135 - StreamingQueryFailed a", "200 + StreamingQueryFailed a"]),
]  # fmt: skip

NOTIFYING = [
    ("a failure is reported at once", [HEALTHY, (10, A, "StreamingQueryFailed")], 10, ["10 + StreamingQueryFailed a"]),
    ("a query that has failed at the first poll", [(0, A, "StreamingQueryFailed")], 5, ["0 + StreamingQueryFailed a"]),
    ("a stall is reported at the second poll", [HEALTHY, (10, A, "StreamingQueryStalled")], 60, ["11 + StreamingQueryStalled a"]),
    ("30 s of commits resolve a failure", [HEALTHY, (10, A, "StreamingQueryFailed"), (20, A, "commits")], 300, ["10 + StreamingQueryFailed a", "50 - StreamingQueryFailed a"]),
    ("30 s of idleness resolve a stall", [HEALTHY, (10, A, "StreamingQueryStalled"), (20, A, "idle")], 300, ["11 + StreamingQueryStalled a", "50 - StreamingQueryStalled a"]),
    ("late commits resolve a failure", [HEALTHY, (10, A, "StreamingQueryFailed"), (20, A, "starts"), (200, A, "commits")], 300, ["10 + StreamingQueryFailed a", "230 - StreamingQueryFailed a"]),
    ("an announced stop of a stalled query", [HEALTHY, (10, A, "StreamingQueryStalled"), (20, A, "stopped")], 300, ["11 + StreamingQueryStalled a", "50 - StreamingQueryStalled a"]),
    ("a query completes while it recovers", [HEALTHY, (10, A, "StreamingQueryFailed"), (20, A, "completed")], 300, ["10 + StreamingQueryFailed a", "50 - StreamingQueryFailed a"]),
    ("a query is forgotten while it recovers", [HEALTHY, (10, A, "StreamingQueryFailed"), (20, A, "forgotten")], 300, ["10 + StreamingQueryFailed a", "50 - StreamingQueryFailed a"]),
    ("the alert of a whole driver resolves by time alone", [(10, "*", "QuerypulseMonitoringDegraded"), (20, "*", "healthy")], 300, ["11 + QuerypulseMonitoringDegraded *", "50 - QuerypulseMonitoringDegraded *"]),
    ("a query fails again after its alert resolved", [HEALTHY, (10, A, "StreamingQueryFailed"), (20, A, "idle"), (60, A, "StreamingQueryFailed")], 90,
     ["10 + StreamingQueryFailed a", "50 - StreamingQueryFailed a", "60 + StreamingQueryFailed a"]),
    ("a stall becomes a failure", [HEALTHY, (10, A, "StreamingQueryStalled"), (20, A, "StreamingQueryFailed")], 300, ["11 + StreamingQueryStalled a", "20 + StreamingQueryFailed a", "20 - StreamingQueryStalled a"]),
    ("a stalled query ends, and the stop was unplanned", [HEALTHY, (10, A, "StreamingQueryStalled"), (20, A, "ends"), (80, A, "StreamingQueryStopped")], 300,
     ["11 + StreamingQueryStalled a", "81 + StreamingQueryStopped a", "81 - StreamingQueryStalled a"]),
    ("a warning becomes another warning", [HEALTHY, (10, A, "StreamingBatchSlow"), (20, A, "StreamingQueryLagging")], 300, ["11 + StreamingBatchSlow a", "21 + StreamingQueryLagging a", "21 - StreamingBatchSlow a"]),
    ("a warning becomes a stall", [HEALTHY, (10, A, "StreamingBatchSlow"), (20, A, "StreamingQueryStalled")], 300, ["11 + StreamingBatchSlow a", "21 + StreamingQueryStalled a", "21 - StreamingBatchSlow a"]),
    ("a lag is reported once the stall is over", [HEALTHY, (10, A, "StreamingQueryStalled"), (20, A, "StreamingQueryLagging+commits")], 300,
     ["11 + StreamingQueryStalled a", "50 + StreamingQueryLagging a", "50 - StreamingQueryStalled a"]),
    ("the third failure is reported, and the flapping", [HEALTHY, (10, A, "StreamingQueryFailed+StreamingQueryFlapping")], 60, ["10 + StreamingQueryFailed a", "11 + StreamingQueryFlapping a"]),
    ("a failure resolves while the flapping lasts", [HEALTHY, (10, A, "StreamingQueryFailed+StreamingQueryFlapping"), (20, A, "StreamingQueryFlapping+commits"), (600, A, "commits")], 700,
     ["10 + StreamingQueryFailed a", "11 + StreamingQueryFlapping a", "50 - StreamingQueryFailed a", "630 - StreamingQueryFlapping a"]),
    ("two queries are two incidents", [*all_of(0, "commits", "ab"), *all_of(10, "StreamingQueryFailed", "ab")], 60, ["10 + StreamingQueryFailed a", "10 + StreamingQueryFailed b"]),
    ("a failure while the driver does not answer", [*all_of(0, "commits"), (10, "*", "StreamingQueryStalled"), (20, A, "StreamingQueryFailed"), (40, "*", "healthy")], 60,
     ["11 + StreamingQueryStalled *", "20 + StreamingQueryFailed a"]),
    ("stalls that clearly outlast the stall of their driver", [*all_of(0, "commits", "ab"), (10, "*", "StreamingQueryStalled"), (60, "*", "healthy"), *all_of(60, "StreamingQueryStalled", "ab")], 600,
     ["11 + StreamingQueryStalled *", "90 + StreamingQueryStalled a", "90 + StreamingQueryStalled b", "90 - StreamingQueryStalled *"]),
    ("a JVM does not answer and then ends", [*all_of(0, "commits"), (10, "*", "StreamingQueryStalled"), (60, "*", "StreamingQueryStopped")], 600,
     ["11 + StreamingQueryStalled *", "61 + StreamingQueryStopped *", "61 - StreamingQueryStalled *"]),
    ("a failure reported before the driver stopped answering stays open", [*all_of(0, "commits"), (5, A, "StreamingQueryFailed"), (10, "*", "StreamingQueryStalled")], 300,
     ["5 + StreamingQueryFailed a", "11 + StreamingQueryStalled *"]),
    ("data in danger is reported beside the stall, although it is a warning", [HEALTHY, (10, A, "StreamingQueryStalled"), (100, A, "StreamingQueryStalled+StreamingDataLossRisk")], 200,
     ["11 + StreamingQueryStalled a", "101 + StreamingDataLossRisk a"]),
    ("a danger that becomes critical is an incident of its own", [HEALTHY, (10, A, "StreamingDataLossRisk"), (50, A, "StreamingDataLossRisk!")], 200,
     ["11 + StreamingDataLossRisk a", "50 + StreamingDataLossRisk a", "50 - StreamingDataLossRisk a"]),
    ("a stall resolves while data is in danger", [HEALTHY, (10, A, "StreamingQueryStalled+StreamingDataLossRisk!"), (50, A, "StreamingDataLossRisk!+commits"), (200, A, "commits")], 400,
     ["11 + StreamingQueryStalled a", "11 + StreamingDataLossRisk a", "80 - StreamingQueryStalled a", "230 - StreamingDataLossRisk a"]),
    ("a stall does not end a danger that recovers, and a danger does not end a stall",
     [HEALTHY, (10, A, "StreamingDataLossRisk!"), (20, A, "StreamingQueryStalled"), (30, A, "StreamingDataLossRisk!"), (40, A, "commits")], 300,
     ["11 + StreamingDataLossRisk a", "21 + StreamingQueryStalled a", "60 - StreamingQueryStalled a", "70 - StreamingDataLossRisk a"]),
    ("a failure with data in danger: both are reported, and both resolve after the restart",
     [HEALTHY, (10, A, "StreamingQueryFailed"), (60, A, "StreamingQueryFailed+StreamingDataLossRisk"), (90, A, "StreamingQueryFailed+StreamingDataLossRisk!"), (120, A, "commits")], 300,
     ["10 + StreamingQueryFailed a", "61 + StreamingDataLossRisk a", "90 + StreamingDataLossRisk a", "90 - StreamingDataLossRisk a", "150 - StreamingQueryFailed a", "150 - StreamingDataLossRisk a"]),
    ("a reminder after four hours", [HEALTHY, (10, A, "StreamingQueryStalled")], 8 * 3600 + 11, ["11 + StreamingQueryStalled a", "14411 ^ StreamingQueryStalled a", "28811 ^ StreamingQueryStalled a"]),
    ("a reminder that was due during recovery is sent when the query fails again",
     [HEALTHY, (10, A, "StreamingQueryFailed"), (14000, A, "starts"), (15000, A, "StreamingQueryFailed")], 16000, ["10 + StreamingQueryFailed a", "15000 ^ StreamingQueryFailed a"]),
    ("the third failure within half an hour, then healthy for 15 min", cycles("StreamingQueryFailed", 0, 100, 200), 200 + 16 * 60,
     ["0 + StreamingQueryFailed a", "35 - StreamingQueryFailed a", "100 + StreamingQueryFailed a", "135 - StreamingQueryFailed a", "200 + StreamingQueryFailed a", "1105 - StreamingQueryFailed a"]),
    ("three failures within more than a day", cycles("StreamingQueryFailed", 0, 100, 90_000), 90_100,
     ["0 + StreamingQueryFailed a", "35 - StreamingQueryFailed a", "100 + StreamingQueryFailed a", "135 - StreamingQueryFailed a", "90000 + StreamingQueryFailed a", "90035 - StreamingQueryFailed a"]),
    ("a failure every twenty minutes is one incident from the third on", cycles("StreamingQueryFailed", *range(0, 8 * 3600, 1200)), 4 * 3600 - 1300,
     ["0 + StreamingQueryFailed a", "35 - StreamingQueryFailed a", "1200 + StreamingQueryFailed a", "1235 - StreamingQueryFailed a", "2400 + StreamingQueryFailed a"]),
    ("eight failures at once are one page", [*all_of(0, "commits"), *all_of(10, "StreamingQueryFailed")], 300, ["10 + StreamingQueryFailed a,b,c,d,e,f,g,h"]),
    ("eight recoveries at once are one resolve", [*all_of(0, "commits"), *all_of(10, "StreamingQueryFailed"), *all_of(20, "idle")], 300,
     ["10 + StreamingQueryFailed a,b,c,d,e,f,g,h", "50 - StreamingQueryFailed a,b,c,d,e,f,g,h"]),
    ("five failures one after the other are five incidents", [*all_of(0, "commits"), *[(10 + n, query, "StreamingQueryFailed") for n, query in enumerate("abcde")]], 300,
     ["10 + StreamingQueryFailed a", "11 + StreamingQueryFailed b", "12 + StreamingQueryFailed c", "13 + StreamingQueryFailed d", "14 + StreamingQueryFailed e"]),
    ("three failures within more than ten seconds are three incidents", [*all_of(0, "commits"), *[(10 + 6 * n, query, "StreamingQueryFailed") for n, query in enumerate("abc")]], 300,
     ["10 + StreamingQueryFailed a", "16 + StreamingQueryFailed b", "22 + StreamingQueryFailed c"]),
    ("three queries with different alerts are three incidents", [*all_of(0, "commits"), (10, "a", "StreamingQueryFailed"), (10, "b", "StreamingQueryStalled"), (10, "c", "StreamingOffsetsStalled")], 300,
     ["10 + StreamingQueryFailed a", "11 + StreamingQueryStalled b", "11 + StreamingOffsetsStalled c"]),
    ("one of a group recovers and fails again", [*all_of(0, "commits", "abc"), *all_of(10, "StreamingQueryFailed", "abc"), (20, "a", "idle"), (90, "a", "StreamingQueryFailed")], 300,
     ["10 + StreamingQueryFailed a,b,c", "90 + StreamingQueryFailed a"]),
    ("one of a group gets a more severe alert", [*all_of(0, "commits", "abc"), *all_of(10, "StreamingQueryStalled", "abc"), (20, "b", "StreamingQueryFailed")], 300,
     ["11 + StreamingQueryStalled a,b,c", "20 + StreamingQueryFailed b"]),
    ("a failure after a group has resolved is an incident of its own", [*all_of(0, "commits", "abc"), *all_of(10, "StreamingQueryFailed", "abc"), *all_of(20, "idle", "abc"), (60, "b", "StreamingQueryFailed")], 300,
     ["10 + StreamingQueryFailed a,b,c", "50 - StreamingQueryFailed a,b,c", "60 + StreamingQueryFailed b"]),
]  # fmt: skip
