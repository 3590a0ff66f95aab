"""The lifecycle table: how queries fare, and who is told what of it.

A row is: what happened; the story (``support.ward``); the second it ends; what a receiver was
told. Terms: an alert ends after 30 s of health, three queries within 10 s are one incident, a
reminder comes every 4 h. Judged once a second.
"""

from __future__ import annotations

from support.ward import CALM_STATES


def all_of(at: float, what: str, queries: str = "abcdefgh") -> list[tuple[float, str, str]]:
    return [(at, query, what) for query in queries]


def cycles(name: str, *beginnings: float, sick: float = 5, cure: str = "idle"):
    """Sick for a few seconds at each beginning, then well."""
    return [
        entry for at in beginnings for entry in ((at, "a", name), (at + sick, "a", cure))
    ]  # fmt: skip


A = "a"
WELL = (0, A, "commits")

SILENT = [
    ("nothing ever happens", [WELL], 600, []),
    ("a stall seen at one look only is a glitch", [WELL, (10, A, "CommitStalled"), (11, A, "commits")], 60, []),
    ("a glitch every other look stays one", [WELL, *[(at, A, "CommitStalled" if at % 2 else "commits") for at in range(10, 61)]], 90, []),
    ("a glitch of the whole driver", [WELL, (10, "*", "MonitorBlind"), (11, "*", "commits")], 60, []),
    ("two glitches of different kinds, one after the other", [WELL, (10, A, "BatchSlow"), (11, A, "QueryLagging"), (12, A, "commits")], 60, []),
    ("eight glitches at once", [*all_of(0, "commits"), *all_of(10, "CommitStalled"), *all_of(11, "commits")], 60, []),
    ("a query is stopped as announced", [WELL, (10, A, "stopped")], 300, []),
    ("a query completes", [WELL, (10, A, "completed")], 300, []),
    ("a query is not seen yet", [(0, A, "expected")], 300, []),
    ("a query ends and is back within the grace", [WELL, (10, A, "ends"), (40, A, "commits")], 300, []),
    *[(f"a query {calm} for an hour", [(0, A, calm)], 3600, []) for calm in CALM_STATES],
]  # fmt: skip

SILENT_BESIDES = [
    ("a death found again while it recovers", [WELL, (10, A, "QueryFailed"), (20, A, "commits"), (40, A, "QueryFailed")], 90,
     ["10 + QueryFailed a"]),
    ("a stall that comes and goes each 20 s is one page", [WELL, *[(at, A, "CommitStalled" if at % 40 else "commits") for at in range(20, 400, 20)]], 390,
     ["21 + CommitStalled a"]),
    ("a start alone ends nothing", [WELL, (10, A, "QueryFailed"), (20, A, "starts")], 7200, ["10 + QueryFailed a"]),
    ("health of 29 s ends nothing", [WELL, (10, A, "QueryFailed"), (20, A, "idle"), (49, A, "starts")], 49, ["10 + QueryFailed a"]),
    ("one commit ends nothing", [WELL, (10, A, "QueryFailed"), (20, A, "commits"), (21, A, "starts")], 300, ["10 + QueryFailed a"]),
    ("an end that nobody announced is no health", [WELL, (10, A, "CommitStalled"), (20, A, "ends")], 300, ["11 + CommitStalled a"]),
    ("a query that idles and then ends unannounced is not well", [WELL, (10, A, "CommitStalled"), (20, A, "idle"), (40, A, "ends")], 300,
     ["11 + CommitStalled a"]),
    ("a death that nobody cures", [WELL, (10, A, "QueryFailed")], 600, ["10 + QueryFailed a"]),
    ("a slow batch is held back while a stall recovers", [WELL, (10, A, "CommitStalled"), (20, A, "BatchSlow")], 45, ["11 + CommitStalled a"]),
    ("a lag is held back while a failure recovers, and vanishes untold", [WELL, (10, A, "QueryFailed"), (20, A, "QueryLagging"), (30, A, "commits")], 600,
     ["10 + QueryFailed a", "50 - QueryFailed a"]),
    ("a stall while the query flaps", [WELL, (10, A, "QueryFlapping"), (20, A, "CommitStalled")], 600, ["11 + QueryFlapping a", "21 + CommitStalled a"]),
    ("a query that flaps while a stall recovers", [WELL, (10, A, "CommitStalled"), (20, A, "QueryFlapping")], 600, ["11 + CommitStalled a", "21 + QueryFlapping a"]),
    ("a lag held back while the query flaps", [WELL, (10, A, "QueryFlapping"), (30, A, "QueryLagging"), (40, A, "commits")], 600,
     ["11 + QueryFlapping a", "60 - QueryFlapping a"]),
    ("what swings about critical opens one incident more, not one each time", [WELL, *[(at, A, "DataLossRisk!" if at % 40 else "DataLossRisk") for at in range(40, 400, 20)]], 390,
     ["41 + DataLossRisk a", "60 + DataLossRisk a", "60 - DataLossRisk a"]),
    ("data in danger at one look only", [WELL, (10, A, "DataLossRisk"), (11, A, "commits")], 60, []),
    ("a lag held back while data is in danger", [WELL, (10, A, "DataLossRisk!"), (30, A, "DataLossRisk!+QueryLagging"), (40, A, "commits")], 600,
     ["11 + DataLossRisk a", "70 - DataLossRisk a"]),
    ("data in danger beneath a driver that does not answer", [*all_of(0, "commits"), (10, "*", "CommitStalled"), (12, A, "DataLossRisk!"), (90, A, "commits"), (91, "*", "well")], 600,
     ["11 + CommitStalled *", "121 - CommitStalled *"]),
    ("siblings of a driver that does not answer", [*all_of(0, "commits"), (10, "*", "CommitStalled"), *all_of(12, "OffsetStalled"), *all_of(100, "commits"), (101, "*", "well")], 600,
     ["11 + CommitStalled *", "131 - CommitStalled *"]),
    ("a query that is gone beneath a driver that does not answer, and back before it answers", [*all_of(0, "commits"), (10, "*", "CommitStalled"), (20, A, "QueryGone"), (40, A, "commits"), (90, "*", "well")], 600,
     ["11 + CommitStalled *", "120 - CommitStalled *"]),
    ("a slow batch beneath a driver that does not answer", [*all_of(0, "commits"), (10, "*", "CommitStalled"), (20, A, "BatchSlow"), (40, A, "commits"), (90, "*", "well")], 600,
     ["11 + CommitStalled *", "120 - CommitStalled *"]),
    ("a death every twenty minutes, well for 30 min", cycles("QueryFailed", 0, 1200, 2400, 3600), 3600 + 30 * 60,
     ["0 + QueryFailed a", "35 - QueryFailed a", "1200 + QueryFailed a", "1235 - QueryFailed a", "2400 + QueryFailed a"]),
    ("witnesses beneath a driver that does not answer", [*all_of(0, "commits"), (10, "*", "CommitStalled"), (20, "*", "CommitStalled+MonitorBlind+ListenerDeaf"), (60, "*", "well")], 600,
     ["11 + CommitStalled *", "90 - CommitStalled *"]),
    ("stalls that last a moment longer than their driver's", [*all_of(0, "commits"), (10, "*", "CommitStalled"), (60, "*", "well"), *all_of(60, "CommitStalled"), *all_of(70, "commits")], 600,
     ["11 + CommitStalled *", "90 - CommitStalled *"]),
    ("less than four hours of misery", [WELL, (10, A, "CommitStalled")], 4 * 3600, ["11 + CommitStalled a"]),
    ("four hours of recovering", [WELL, (10, A, "QueryFailed"), (20, A, "starts")], 5 * 3600, ["10 + QueryFailed a"]),
    ("the third death within half an hour, well for 14 min", cycles("QueryFailed", 0, 100, 200), 200 + 14 * 60,
     ["0 + QueryFailed a", "35 - QueryFailed a", "100 + QueryFailed a", "135 - QueryFailed a", "200 + QueryFailed a"]),
    ("a death during the calm of a flapping alert", cycles("QueryFailed", 0, 100, 200, 800), 800 + 14 * 60,
     ["0 + QueryFailed a", "35 - QueryFailed a", "100 + QueryFailed a", "135 - QueryFailed a", "200 + QueryFailed a"]),
]  # fmt: skip

TELLING = [
    ("a death is told at once", [WELL, (10, A, "QueryFailed")], 10, ["10 + QueryFailed a"]),
    ("a query that is dead from the first look", [(0, A, "QueryFailed")], 5, ["0 + QueryFailed a"]),
    ("a stall is told at the second look", [WELL, (10, A, "CommitStalled")], 60, ["11 + CommitStalled a"]),
    ("well for 30 s with commits", [WELL, (10, A, "QueryFailed"), (20, A, "commits")], 300, ["10 + QueryFailed a", "50 - QueryFailed a"]),
    ("well for 30 s and idle", [WELL, (10, A, "CommitStalled"), (20, A, "idle")], 300, ["11 + CommitStalled a", "50 - CommitStalled a"]),
    ("late commits are health too", [WELL, (10, A, "QueryFailed"), (20, A, "starts"), (200, A, "commits")], 300, ["10 + QueryFailed a", "230 - QueryFailed a"]),
    ("stopped as announced while it stalled", [WELL, (10, A, "CommitStalled"), (20, A, "stopped")], 300, ["11 + CommitStalled a", "50 - CommitStalled a"]),
    ("completed while it recovers", [WELL, (10, A, "QueryFailed"), (20, A, "completed")], 300, ["10 + QueryFailed a", "50 - QueryFailed a"]),
    ("forgotten while it recovers", [WELL, (10, A, "QueryFailed"), (20, A, "forgotten")], 300, ["10 + QueryFailed a", "50 - QueryFailed a"]),
    ("the whole driver needs time only", [(10, "*", "MonitorBlind"), (20, "*", "well")], 300, ["11 + MonitorBlind *", "50 - MonitorBlind *"]),
    ("it dies again after it was told well", [WELL, (10, A, "QueryFailed"), (20, A, "idle"), (60, A, "QueryFailed")], 90,
     ["10 + QueryFailed a", "50 - QueryFailed a", "60 + QueryFailed a"]),
    ("a stall that becomes a death", [WELL, (10, A, "CommitStalled"), (20, A, "QueryFailed")], 300, ["11 + CommitStalled a", "20 + QueryFailed a", "20 - CommitStalled a"]),
    ("an end during a stall that turns out unplanned", [WELL, (10, A, "CommitStalled"), (20, A, "ends"), (80, A, "QueryGone")], 300,
     ["11 + CommitStalled a", "81 + QueryGone a", "81 - CommitStalled a"]),
    ("a warning that becomes another", [WELL, (10, A, "BatchSlow"), (20, A, "QueryLagging")], 300, ["11 + BatchSlow a", "21 + QueryLagging a", "21 - BatchSlow a"]),
    ("a warning that becomes a stall", [WELL, (10, A, "BatchSlow"), (20, A, "CommitStalled")], 300, ["11 + BatchSlow a", "21 + CommitStalled a", "21 - BatchSlow a"]),
    ("a lag after a stall is told once the stall is over", [WELL, (10, A, "CommitStalled"), (20, A, "QueryLagging+commits")], 300,
     ["11 + CommitStalled a", "50 + QueryLagging a", "50 - CommitStalled a"]),
    ("the third death is told, and that the query flaps", [WELL, (10, A, "QueryFailed+QueryFlapping")], 60, ["10 + QueryFailed a", "11 + QueryFlapping a"]),
    ("a death is over while the flapping lasts", [WELL, (10, A, "QueryFailed+QueryFlapping"), (20, A, "QueryFlapping+commits"), (600, A, "commits")], 700,
     ["10 + QueryFailed a", "11 + QueryFlapping a", "50 - QueryFailed a", "630 - QueryFlapping a"]),
    ("each query for itself", [*all_of(0, "commits", "ab"), *all_of(10, "QueryFailed", "ab")], 60, ["10 + QueryFailed a", "10 + QueryFailed b"]),
    ("a death beneath a driver that does not answer", [*all_of(0, "commits"), (10, "*", "CommitStalled"), (20, A, "QueryFailed"), (40, "*", "well")], 60,
     ["11 + CommitStalled *", "20 + QueryFailed a"]),
    ("stalls that outlast their driver's by more", [*all_of(0, "commits", "ab"), (10, "*", "CommitStalled"), (60, "*", "well"), *all_of(60, "CommitStalled", "ab")], 600,
     ["11 + CommitStalled *", "90 + CommitStalled a", "90 + CommitStalled b", "90 - CommitStalled *"]),
    ("a JVM that does not answer and then is gone", [*all_of(0, "commits"), (10, "*", "CommitStalled"), (60, "*", "QueryGone")], 600,
     ["11 + CommitStalled *", "61 + QueryGone *", "61 - CommitStalled *"]),
    ("a death known before the driver fell silent stays open", [*all_of(0, "commits"), (5, A, "QueryFailed"), (10, "*", "CommitStalled")], 300,
     ["5 + QueryFailed a", "11 + CommitStalled *"]),
    ("data in danger is told beside the stall, though a warning", [WELL, (10, A, "CommitStalled"), (100, A, "CommitStalled+DataLossRisk")], 200,
     ["11 + CommitStalled a", "101 + DataLossRisk a"]),
    ("a danger that becomes acute is an incident of its own", [WELL, (10, A, "DataLossRisk"), (50, A, "DataLossRisk!")], 200,
     ["11 + DataLossRisk a", "50 + DataLossRisk a", "50 - DataLossRisk a"]),
    ("a stall that is over while data is in danger", [WELL, (10, A, "CommitStalled+DataLossRisk!"), (50, A, "DataLossRisk!+commits"), (200, A, "commits")], 400,
     ["11 + CommitStalled a", "11 + DataLossRisk a", "80 - CommitStalled a", "230 - DataLossRisk a"]),
    ("a stall ends no danger that recovers, nor the other way round",
     [WELL, (10, A, "DataLossRisk!"), (20, A, "CommitStalled"), (30, A, "DataLossRisk!"), (40, A, "commits")], 300,
     ["11 + DataLossRisk a", "21 + CommitStalled a", "60 - CommitStalled a", "70 - DataLossRisk a"]),
    ("a death with data in danger: both, and both are over once it is back",
     [WELL, (10, A, "QueryFailed"), (60, A, "QueryFailed+DataLossRisk"), (90, A, "QueryFailed+DataLossRisk!"), (120, A, "commits")], 300,
     ["10 + QueryFailed a", "61 + DataLossRisk a", "90 + DataLossRisk a", "90 - DataLossRisk a", "150 - QueryFailed a", "150 - DataLossRisk a"]),
    ("a reminder after four hours", [WELL, (10, A, "CommitStalled")], 8 * 3600 + 11, ["11 + CommitStalled a", "14411 ^ CommitStalled a", "28811 ^ CommitStalled a"]),
    ("a reminder that was due while it recovered comes when it falls sick again",
     [WELL, (10, A, "QueryFailed"), (14000, A, "starts"), (15000, A, "QueryFailed")], 16000, ["10 + QueryFailed a", "15000 ^ QueryFailed a"]),
    ("the third death within half an hour, well for 15 min", cycles("QueryFailed", 0, 100, 200), 200 + 16 * 60,
     ["0 + QueryFailed a", "35 - QueryFailed a", "100 + QueryFailed a", "135 - QueryFailed a", "200 + QueryFailed a", "1105 - QueryFailed a"]),
    ("three deaths within more than a day", cycles("QueryFailed", 0, 100, 90_000), 90_100,
     ["0 + QueryFailed a", "35 - QueryFailed a", "100 + QueryFailed a", "135 - QueryFailed a", "90000 + QueryFailed a", "90035 - QueryFailed a"]),
    ("a death every twenty minutes is one incident from the third on", cycles("QueryFailed", *range(0, 8 * 3600, 1200)), 4 * 3600 - 1300,
     ["0 + QueryFailed a", "35 - QueryFailed a", "1200 + QueryFailed a", "1235 - QueryFailed a", "2400 + QueryFailed a"]),
    ("eight deaths at once are one page", [*all_of(0, "commits"), *all_of(10, "QueryFailed")], 300, ["10 + QueryFailed a,b,c,d,e,f,g,h"]),
    ("and one all-clear", [*all_of(0, "commits"), *all_of(10, "QueryFailed"), *all_of(20, "idle")], 300,
     ["10 + QueryFailed a,b,c,d,e,f,g,h", "50 - QueryFailed a,b,c,d,e,f,g,h"]),
    ("five deaths one after the other", [*all_of(0, "commits"), *[(10 + n, query, "QueryFailed") for n, query in enumerate("abcde")]], 300,
     ["10 + QueryFailed a", "11 + QueryFailed b", "12 + QueryFailed c", "13 + QueryFailed d", "14 + QueryFailed e"]),
    ("three deaths within more than ten seconds", [*all_of(0, "commits"), *[(10 + 6 * n, query, "QueryFailed") for n, query in enumerate("abc")]], 300,
     ["10 + QueryFailed a", "16 + QueryFailed b", "22 + QueryFailed c"]),
    ("three queries sick of different things", [*all_of(0, "commits"), (10, "a", "QueryFailed"), (10, "b", "CommitStalled"), (10, "c", "OffsetStalled")], 300,
     ["10 + QueryFailed a", "11 + CommitStalled b", "11 + OffsetStalled c"]),
    ("one of a group gets well and falls sick again", [*all_of(0, "commits", "abc"), *all_of(10, "QueryFailed", "abc"), (20, "a", "idle"), (90, "a", "QueryFailed")], 300,
     ["10 + QueryFailed a,b,c", "90 + QueryFailed a"]),
    ("one of a group falls sick of worse", [*all_of(0, "commits", "abc"), *all_of(10, "CommitStalled", "abc"), (20, "b", "QueryFailed")], 300,
     ["11 + CommitStalled a,b,c", "20 + QueryFailed b"]),
    ("after a group is over the next death is told by itself", [*all_of(0, "commits", "abc"), *all_of(10, "QueryFailed", "abc"), *all_of(20, "idle", "abc"), (60, "b", "QueryFailed")], 300,
     ["10 + QueryFailed a,b,c", "50 - QueryFailed a,b,c", "60 + QueryFailed b"]),
]  # fmt: skip
