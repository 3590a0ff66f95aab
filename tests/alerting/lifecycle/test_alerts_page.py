"""The table of ``docs/alerts.md``: who is notified of a finding, when, again, and of its end.

A row has the cells of the page, and the story that proves them: what happens, the second it ends,
and the notifications (``support.lifecycle_harness``). In the stories, ``/warning`` is an incident
that is only a warning, ``*`` that of the driver and of groups.
"""

from __future__ import annotations

from support.lifecycle_harness import WALL, LifecycleHarness
from support.lifecycle_table import HEALTHY, all_of, cycles
from support.repository import ROOT

from querypulse.alerting.silences import Silence

A = "a"
FAILS, STALLS, SLOW = "StreamingQueryFailed", "StreamingQueryStalled", "StreamingBatchSlow"
LATE, DECAYS = "StreamingRowsDropped", "StreamingQueryFallingBehind"
NOBODY = ("nobody", "", "", "")
ON_CALL, CHAT = "on call", "chat"
EVERY_4_H = "every 4 h"

ROWS = [
    (("a query failed, or `supervise` has given it up", ON_CALL, "at once", EVERY_4_H, "after 30 s of health"),
     [HEALTHY, (10, A, FAILS), (20000, A, "commits")], 21000, ["10 + a Failed", "14410 ^ a Failed", "20030 - a"]),
    (("it is stalled, stopped or missing (any other critical alert)", ON_CALL, "at the second evaluation", EVERY_4_H, "after 30 s of health"),
     [HEALTHY, (10, A, STALLS), (20000, A, "idle")], 21000, ["11 + a Stalled", "14411 ^ a Stalled", "20030 - a"]),
    (("it is slow, lags, falls behind or drops late rows (a warning)", CHAT, "at the second evaluation", EVERY_4_H, "after 30 s of health"),
     [HEALTHY, (10, A, LATE), (20, A, f"{LATE}+{DECAYS}"), (20000, A, "commits")], 21000,
     ["11 + a/warning StreamingRowsDropped", "14411 ^ a/warning StreamingRowsDropped+FallingBehind", "20030 - a/warning"]),
    (("a warning becomes critical, or a critical alert joins it", ON_CALL, "when it does", EVERY_4_H, "the warning at once, the rest after 30 s of health"),
     [HEALTHY, (10, A, SLOW), (20, A, f"{SLOW}+{STALLS}"), (60, A, "commits")], 300, ["11 + a/warning StreamingBatchSlow", "21 + a Stalled+StreamingBatchSlow", "21 - a/warning", "90 - a"]),
    (("only warnings are left of it", CHAT, "when the last critical alert ends", EVERY_4_H, "the critical incident at once, the rest after 30 s of health"),
     [HEALTHY, (10, A, f"{STALLS}+{SLOW}"), (20, A, f"{SLOW}+commits"), (100, A, "commits")], 300, ["11 + a Stalled+StreamingBatchSlow", "50 + a/warning StreamingBatchSlow", "50 - a", "130 - a/warning"]),
    (("a query that is stalled fails", ON_CALL, "at once, in the open incident", EVERY_4_H, "with the last of its alerts"),
     [HEALTHY, (10, A, STALLS), (20, A, FAILS), (30, A, "commits")], 300, ["11 + a Stalled", "20 ^ a Failed+Stalled", "60 - a"]),
    (("a warning of a stall, or that the main program ended, joins other warnings", CHAT, "at the second evaluation, in the open incident", EVERY_4_H, "with the last of its alerts"),
     [HEALTHY, (10, A, LATE), (60, A, f"{LATE}+{STALLS}"), (90, A, "commits")], 300, ["11 + a/warning StreamingRowsDropped", "61 ^ a/warning Stalled+StreamingRowsDropped", "120 - a/warning"]),
    (("any other alert joins an open incident", *NOBODY[:3], "with the last of its alerts"),
     [HEALTHY, (10, A, FAILS), (20, A, f"{FAILS}+{STALLS}"), (30, A, "commits")], 300, ["10 + a Failed", "60 - a"]),
    (("it fails again while it recovers, in the same batch", *NOBODY[:3], "after 30 s of health"),
     [HEALTHY, (10, A, FAILS), (20, A, "starts"), (400, A, FAILS), (410, A, "commits")], 600, ["10 + a Failed", "440 - a"]),
    (("it fails again while it recovers, in a later batch", ON_CALL, "at once, in the open incident; at most once in 5 min", EVERY_4_H, "after 30 s of health"),
     [HEALTHY, (10, A, FAILS), (20, A, "commits"), (24, A, "starts"), (330, A, FAILS), (400, A, "commits")], 600, ["10 + a Failed", "330 ^ a Failed", "430 - a"]),
    (("it fails for the third time within 24 h", ON_CALL, "at once; not while it is held open", EVERY_4_H, "after as much health as the three took, 15 min to 2 h"),
     cycles(FAILS, 0, 1200, 2400, 3600), 7000, ["0 + a Failed", "35 - a", "1200 + a Failed", "1235 - a", "2400 + a Failed", "6005 - a"]),
    (("three or more queries fail for one cause within 10 s", ON_CALL, "the first at once, the others at the third, as one incident", EVERY_4_H, "each incident after 30 s of health"),
     [*all_of(0, "commits", "abc"), (10, A, FAILS), (12, "b", FAILS), (14, "c", FAILS), *all_of(20, "commits", "abc")], 300, ["10 + a Failed", "14 + * Failed(b,c)", "50 - a", "50 - *"]),
    (("they fail at one evaluation", ON_CALL, "at once, all as one incident", EVERY_4_H, "when all are healthy"),
     [*all_of(0, "commits", "abc"), *all_of(10, FAILS, "abc"), *all_of(20, "commits", "abc")], 300, ["10 + * Failed(a,b,c)", "50 - *"]),
    (("another one does, within 10 s of them", ON_CALL, "at once, in the open incident", EVERY_4_H, "when all are healthy"),
     [*all_of(0, "commits", "abcd"), *all_of(10, FAILS, "abc"), (15, "d", FAILS), *all_of(20, "commits", "abcd")], 300, ["10 + * Failed(a,b,c)", "15 ^ * Failed(a,b,c,d)", "50 - *"]),
    (("only two queries do", ON_CALL, "the first at once, the second 10 s later", EVERY_4_H, "each after 30 s of health"),
     [*all_of(0, "commits", "ab"), *all_of(10, FAILS, "ab"), *all_of(30, "commits", "ab")], 300, ["10 + a Failed", "21 + b Failed", "60 - a", "60 - b"]),
    (("three fail at one place within ten minutes (an outage)", ON_CALL, "each of the first two in its own incident, the third as a group", EVERY_4_H, "each incident after 30 s of health"),
     [*all_of(0, "idle", "abcd"), (10, A, FAILS), (70, "b", FAILS), (130, "c", FAILS), *all_of(200, "idle", "abc")], 300, ["10 + a Failed", "70 + b Failed", "130 + * Failed(c)", "230 - a", "230 - b", "230 - *"]),
    (("another one does, within ten minutes of the last", ON_CALL, "at once, in the open incident", EVERY_4_H, "when all are healthy"),
     [*all_of(0, "idle", "abcd"), *all_of(10, FAILS, "abc"), (600, "d", FAILS), *all_of(700, "idle", "abcd")], 800, ["10 + * Failed(a,b,c)", "600 ^ * Failed(a,b,c,d)", "730 - *"]),
    (("the JVM does not answer (a critical alert of the driver)", ON_CALL, "at the second evaluation", EVERY_4_H, "30 s after it answers"),
     [*all_of(0, "commits", "ab"), (10, "*", STALLS), (60, "*", "healthy")], 300, ["11 + * Stalled", "90 - *"]),
    (("meanwhile, a query stalls, stops or is slow", *NOBODY),
     [*all_of(0, "commits", "ab"), (10, "*", STALLS), (20, A, STALLS), (50, A, "commits"), (60, "*", "healthy")], 300, ["11 + * Stalled", "90 - *"]),
    (("meanwhile, a query fails", ON_CALL, "at once", EVERY_4_H, "after 30 s of health"),
     [*all_of(0, "commits", "ab"), (10, "*", STALLS), (20, A, FAILS), (50, A, "commits"), (60, "*", "healthy")], 300, ["11 + * Stalled", "20 + a Failed", "80 - a", "90 - *"]),
    (("a query fails while it is silenced", ON_CALL, "when the silence ends, if it still fires", EVERY_4_H, "after 30 s of health"),
     [HEALTHY, (3000, A, FAILS), (5000, A, "commits")], 6000, ["4000 + a Failed", "5030 - a"]),
    (("it recovers while it is silenced", *NOBODY),
     [HEALTHY, (3000, A, FAILS), (3100, A, "commits")], 6000, []),
    (("anything but a failure holds at one evaluation only", *NOBODY),
     [HEALTHY, (10, A, STALLS), (11, A, "commits")], 300, []),
    (("a query completes, or is stopped as announced", *NOBODY),
     [HEALTHY, (0, "b", "commits"), (10, A, "completed"), (10, "b", "stopped")], 300, []),
]  # fmt: skip
SILENCED_UNTIL = 4000


def play(finding, story, until):
    harness = LifecycleHarness()
    if "silenced" in finding:
        harness.silences = [Silence("*", WALL + SILENCED_UNTIL)]
    if "warning of a stall" in finding:
        harness.warnings |= {STALLS}
    if "ten minutes" in finding:
        harness.places = dict.fromkeys("abcd", "store:9000")
    return harness.play(story, until).reported


def test_each_row_of_the_table_holds():
    wrong = {
        cells[0]: reported
        for cells, story, until, expected in ROWS
        if (reported := play(cells[0], story, until)) != expected
    }
    assert wrong == {}


def test_page_shows_these_rows():
    _, _, rest = (ROOT / "docs" / "alerts.md").read_text().partition("## Who is notified")
    section, _, _ = rest.partition("\n## ")
    _, _, *shown = [line for line in section.splitlines() if line.startswith("|")]

    assert shown == ["| " + " | ".join(cells) + " |" for cells, *_ in ROWS]
