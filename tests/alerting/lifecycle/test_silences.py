"""A silence mutes the alerts it matches until it ends, and nothing else."""

from __future__ import annotations

import math
from functools import partial

import pytest
from support.lifecycle_harness import WALL, LifecycleHarness
from support.lifecycle_table import HEALTHY, all_of
from support.receiver_incidents import alert
from support.rules.stalled import behind_b, many_behind_b

from querypulse.alerting.evaluate import evaluate
from querypulse.alerting.incidents.lifecycle import Lifecycle, LifecycleSettings
from querypulse.alerting.policy import Policy
from querypulse.alerting.silences import NO_END, Silence, end_text, why_muted
from querypulse.alerting.words.messages import Guidance
from querypulse.core.wall_time import parse_window

STALLED, OF_DRIVER = alert(name="StreamingQueryStalled"), alert("*")
COVERED = [
    ("exact name", Silence("bronze", WALL + 1)),
    ("query pattern", Silence("bro*", WALL + 1)),
    ("everything", Silence("*", WALL + 1)),
    ("query and alert name", Silence("bronze", WALL + 1, "StreamingQueryStalled")),
    ("alert pattern", Silence("*", WALL + 1, "*Stalled")),
    ("infinite end", Silence("*", math.inf)),
    ("exact app", Silence("*", WALL + 1, app="etl")),
    ("app pattern", Silence("bronze", WALL + 1, app="e*")),
]
NOT_COVERED = [
    ("another query", Silence("silver", WALL + 1)),
    ("a part of the name", Silence("bro", WALL + 1)),
    ("another case", Silence("Bronze", WALL + 1)),
    ("another alert", Silence("bronze", WALL + 1, "StreamingQueryFailed")),
    ("a silence that has just ended", Silence("*", WALL)),
    ("a silence that ended long ago", Silence("*", 0.0)),
    ("a silence whose end is NaN", Silence("*", math.nan)),
    ("an empty pattern", Silence("", WALL + 1)),
    ("another app", Silence("*", WALL + 1, app="shop")),
    ("a part of the app's name", Silence("*", WALL + 1, app="et")),
]


def test_silence_covers_the_alerts_that_it_matches_and_no_others():
    assert [why for why, one in COVERED if why_muted(STALLED, [one], WALL) != str(one)] == []
    assert [why for why, one in NOT_COVERED if why_muted(STALLED, [one], WALL)] == []
    of_queries = [Silence(pattern, WALL + 1) for pattern in ("bronze", "nightly*", "[a-z]*")]
    assert why_muted(OF_DRIVER, of_queries, WALL) == ""


WINDOW = parse_window("17:00-19:00")
BEGIN, END = WINDOW.window(WALL)


@pytest.mark.parametrize(
    ("silence", "wall", "muted_until"),
    [
        (Silence("*", NO_END, every=WINDOW), BEGIN - 1, None),
        (Silence("*", NO_END, every=WINDOW), BEGIN, END),
        (Silence("*", NO_END, every=WINDOW), END - 1, END),
        (Silence("*", NO_END, every=WINDOW), END, None),
        (Silence("*", NO_END, every=WINDOW), BEGIN + 86_400, END + 86_400),
        (Silence("*", BEGIN + 60, every=WINDOW), BEGIN, BEGIN + 60),
        (Silence("*", BEGIN + 60, every=WINDOW), BEGIN + 60, None),
        (Silence("*", BEGIN + 60, every=WINDOW), BEGIN + 86_400, None),
        (Silence("silver", NO_END, every=WINDOW), BEGIN, None),
    ],
)
def test_silence_that_recurs_mutes_until_its_window_ends(silence, wall, muted_until):
    text = "" if muted_until is None else f"silenced until {end_text(muted_until)}"

    assert why_muted(STALLED, [silence], wall) == text


def test_window_that_ends_last_wins():
    recurs = Silence("*", NO_END, every=WINDOW, reason="restarts")
    shorter, longer = Silence("*", END - 1), Silence("*", END + 1)

    assert why_muted(STALLED, [shorter, recurs], BEGIN) == recurs.text(END)
    assert why_muted(STALLED, [longer, recurs], BEGIN) == str(longer)


def test_silence_that_ends_last_wins():
    first, last = Silence("*", WALL + 1), Silence("bronze", WALL + 9)

    assert why_muted(STALLED, [first, last, Silence("*", WALL + 5)], WALL) == str(last)


@pytest.mark.parametrize(
    ("silence", "text"),
    [
        (Silence("*", WALL), "silenced until 2023-11-14T22:13:20Z"),
        (Silence("*", WALL, reason="deploy"), "silenced until 2023-11-14T22:13:20Z: deploy"),
        (Silence("*", math.inf), "silenced until 9999-12-31T23:59:59Z"),
        (Silence("*", 1e30), "silenced until 9999-12-31T23:59:59Z"),
    ],
)
def test_silence_is_described_with_end_and_reason(silence, text):
    assert str(silence) == text


def quiet(until, queries="*", alertname="*"):
    harness = LifecycleHarness(repeat_interval_seconds=100.0)
    harness.silences = [Silence(queries, WALL + until, alertname)]
    return harness


A = "a"
FAILING = [HEALTHY, (10, A, "StreamingQueryFailed")]
IN_DANGER = [(10, A, "StreamingQueryFailed+StreamingDataLossRisk")]
GROUP = all_of(10, "StreamingQueryFailed", "abc")
FROM_THE_START = [
    (
        "a failure that recovers during it is not reported",
        (100,),
        [*FAILING, (20, A, "idle")],
        300,
        [],
    ),
    (
        "one that recovers as it ends is not reported",
        (15,),
        [*FAILING, (12, A, "starts"), (14, A, "commits")],
        300,
        [],
    ),
    ("another query", (60, "b"), FAILING, 30, ["10 + a Failed"]),
    ("another alert", (60, A, "StreamingQueryStalled"), FAILING, 30, ["10 + a Failed"]),
    (
        "a silenced failure beside a loud warning is no page",
        (1000, "*", "StreamingQueryFailed"),
        IN_DANGER,
        60,
        ["11 + a/warning StreamingDataLossRisk"],
    ),
    (
        "a group of which only silenced alerts still fire",
        (1000, "[ab]"),
        [*GROUP, (20, "c", "idle")],
        115,
        ["10 + * Failed(c)"],
    ),
    (
        "a failure that joins a muted group ends its silence",
        (1000, "[abc]"),
        [*GROUP, (15, "d", "StreamingQueryFailed")],
        60,
        ["15 + * Failed(d)"],
    ),
]
LATER = [
    (
        "what was reported before is resolved during it",
        FAILING,
        15,
        1000,
        [(20, A, "idle")],
        60,
        ["10 + a Failed", "50 - a"],
    ),
    (
        "a reminder waits until it ends",
        FAILING,
        50,
        14_600,
        [],
        14_700,
        ["10 + a Failed", "14600 ^ a Failed"],
    ),
    (
        "a later failure is reported when it ends",
        GROUP,
        12,
        60,
        [(25, "d", "StreamingQueryFailed")],
        90,
        ["10 + * Failed(a,b,c)", "60 + d Failed"],
    ),
]


def test_nobody_is_notified_of_what_is_silenced_from_the_start():
    reported = [
        quiet(*silence).play(story, until).reported
        for _, silence, story, until, _ in FROM_THE_START
    ]

    assert reported == [expected for *_, expected in FROM_THE_START]


def test_silence_that_begins_later_hides_no_end():
    for what, before, at, ends, after, until, expected in LATER:
        harness = LifecycleHarness().play(before, at)
        harness.silences = [Silence("*", WALL + ends)]
        assert harness.play(after, until).reported == expected, what


def test_silence_that_begins_later_ends_no_critical_incident():
    harness = LifecycleHarness().play(IN_DANGER, 20)
    harness.silences = [Silence("*", WALL + 900, "StreamingQueryFailed")]

    assert [incident.key for incident in harness.play([], 60).incidents] == ["querypulse/etl/a"]


def test_failure_that_was_known_before_its_silence_is_no_news_when_that_ends():
    flaps = (10, "a", "StreamingQueryFailed+StreamingQueryFlapping")
    harness = LifecycleHarness().play([HEALTHY, flaps], 20)
    harness.silences = [Silence("a", WALL + 60, "StreamingQueryFailed")]

    assert harness.play([], 120).reported == ["10 + a Failed"]


@pytest.mark.parametrize("lasts", [True, False])
def test_failure_that_ends_and_comes_again_in_a_silence_is_news_when_that_ends(lasts):
    begin = [*all_of(0, "commits", "abc"), *all_of(10, "StreamingQueryFailed", "abc")]
    recovers = [] if lasts else [(120, "b", "commits"), (250, "b", "StreamingQueryFailed")]
    harness = LifecycleHarness()
    harness.places = dict.fromkeys("abc", "store:9000")
    harness.play(begin, 100)
    harness.silences = [Silence("*", WALL + 400)]

    news = [] if lasts else ["400 ^ * Failed(a,c,b)"]
    assert harness.play(recovers, 500).reported == ["10 + * Failed(a,b,c)", *news]


@pytest.mark.parametrize("silenced", [True, False])
def test_end_of_what_nobody_was_notified_of_is_muted(silenced):
    harness = quiet(1000 if silenced else 0).play([*FAILING, (60, "a", "idle")], 100)

    assert [bool(incident.muted) for incident in harness.ended] == [silenced]


def test_silenced_alert_of_a_group_is_sent_to_nobody():
    story = [*all_of(0, "commits", "abc"), *all_of(10, "StreamingQueryFailed", "abc")]
    harness = quiet(1000, "a").play(story, 60)

    assert [alert.query for alert in harness.incidents[0].alerts] == ["b", "c"]
    assert [alert.muted[:8] for alert in harness.lifecycle.alerts] == ["silenced", "", ""]


@pytest.mark.parametrize(
    ("silenced", "reported"), [("nobody", {"b"}), ("b", set("acd")), ("a", {"b"})]
)
def test_silenced_holder_for_whom_many_wait_hides_none_of_them(silenced, reported):
    story, life = (
        many_behind_b(*"acd", until=180),
        Lifecycle("etl", Guidance("x"), LifecycleSettings()),
    )
    snapshot, silences = story.snapshot(180), [Silence(silenced, WALL + 60)]
    is_silenced = partial(life.is_silenced, silences=silences, wall=WALL)
    for _ in range(2):
        evaluation = evaluate(snapshot, 180, Policy(), is_silenced)
        life.update(evaluation, snapshot, 180, WALL, silences)

    assert {alert.labels["query"] for alert in life.alerts if not alert.muted} == reported


@pytest.mark.parametrize(("silenced", "paged"), [("c", "b"), ("b", "a"), ("[ab]", None)])
def test_silenced_holder_of_the_slots_does_not_silence_who_waits_for_them(silenced, paged):
    story, life = behind_b(until=1906), Lifecycle("etl", Guidance("x"), LifecycleSettings())
    snapshot, silences = story.snapshot(1906), [Silence(silenced, WALL + 60)]
    is_silenced = partial(life.is_silenced, silences=silences, wall=WALL)
    for _ in range(2):
        evaluation = evaluate(snapshot, 1906, Policy(), is_silenced)
        life.update(evaluation, snapshot, 1906, WALL, silences)
    loud = {alert.labels["query"] for alert in life.alerts if alert.is_critical and not alert.muted}

    assert loud == ({paged} if paged else set())
