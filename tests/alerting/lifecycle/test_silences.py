"""A silence mutes the alerts it matches until it ends, and nothing else."""

from __future__ import annotations

import math
from functools import partial

import pytest
from support.lifecycle_harness import WALL, LifecycleHarness
from support.lifecycle_table import HEALTHY, all_of
from support.rules_table import behind_b

from querypulse.alerting.alert import Alert, Silence, why_muted
from querypulse.alerting.alert_text import Guidance
from querypulse.alerting.evaluate import evaluate
from querypulse.alerting.lifecycle import Lifecycle, LifecycleSettings
from querypulse.alerting.policy import Policy


def alert(query="bronze", name="StreamingQueryStalled"):
    labels = {"alertname": name, "app": "etl", "query": query, "severity": "critical"}
    return Alert(labels, {}, WALL)


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


def test_matching_silence_covers_an_alert():
    assert [why for why, one in COVERED if why_muted(alert(), [one], WALL) != str(one)] == []


def test_other_silence_does_not_cover_an_alert():
    assert [why for why, one in NOT_COVERED if why_muted(alert(), [one], WALL)] == []


@pytest.mark.parametrize("pattern", ["bronze", "nightly*", "[a-z]*"])
def test_query_silence_does_not_cover_driver_alerts(pattern):
    assert why_muted(alert("*"), [Silence(pattern, WALL + 1)], WALL) == ""


def test_silence_that_ends_last_wins():
    first, last = Silence("*", WALL + 1), Silence("bronze", WALL + 9)

    assert why_muted(alert(), [first, last, Silence("*", WALL + 5)], WALL) == str(last)


def test_silence_is_described_with_end_and_reason():
    assert str(Silence("*", WALL)) == "silenced until 2023-11-14T22:13:20Z"
    assert str(Silence("*", WALL, reason="deploy")) == "silenced until 2023-11-14T22:13:20Z: deploy"


@pytest.mark.parametrize("until", [math.inf, 1e30])
def test_very_late_end_is_written_as_year_9999(until):
    assert str(Silence("*", until)) == "silenced until 9999-12-31T23:59:59Z"


# -- in the life of an incident ---------------------------------------------------------------


def quiet(until, queries="*", alertname="*"):
    harness = LifecycleHarness(repeat_interval_seconds=100.0)
    harness.silences = [Silence(queries, WALL + until, alertname)]
    return harness


FAILING = [HEALTHY, (10, "a", "StreamingQueryFailed")]


def test_failure_that_recovers_during_a_silence_is_not_reported():
    harness = quiet(100).play([*FAILING, (20, "a", "idle")], 300)

    assert harness.reported == []
    assert [ended.muted != "" for ended in harness.ended] == [True]


def test_alert_outside_the_silence_is_reported():
    assert quiet(60, "b").play(FAILING, 30).reported == ["10 + a Failed"]
    assert quiet(60, "a", "StreamingQueryStalled").play(FAILING, 30).reported == ["10 + a Failed"]


def test_alert_reported_before_the_silence_is_resolved_during_it():
    harness = LifecycleHarness().play(FAILING, 15)
    harness.silences = [Silence("*", WALL + 1000)]
    harness.play([(20, "a", "idle")], 60)

    assert harness.reported == ["10 + a Failed", "50 - a"]


def test_reminders_wait_until_the_silence_ends():
    harness = quiet(0).play(FAILING, 50)
    harness.silences = [Silence("*", WALL + 350)]
    harness.play([], 460)

    assert harness.reported == [
        "10 + a Failed",
        "350 ^ a Failed",
        "450 ^ a Failed",
    ]


def test_unreported_alert_that_recovers_as_the_silence_ends_stays_unreported():
    harness = quiet(15).play([*FAILING, (12, "a", "starts"), (14, "a", "commits")], 300)

    assert harness.reported == []


def test_silenced_failure_beside_a_loud_warning_is_no_page():
    story = [(10, "a", "StreamingQueryFailed+StreamingDataLossRisk")]
    harness = quiet(1000, alertname="StreamingQueryFailed").play(story, 60)

    assert [line.split()[2] for line in harness.reported] == ["a/warning"]


def test_silence_that_begins_later_ends_no_critical_incident():
    story = [(10, "a", "StreamingQueryFailed+StreamingDataLossRisk")]
    harness = LifecycleHarness().play(story, 20)
    harness.silences = [Silence("*", WALL + 900, "StreamingQueryFailed")]

    assert [incident.key for incident in harness.play([], 60).incidents] == ["querypulse/etl/a"]


@pytest.mark.parametrize("silenced", [True, False])
def test_end_of_what_nobody_was_notified_of_is_muted(silenced):
    harness = quiet(1000 if silenced else 0).play([*FAILING, (60, "a", "idle")], 100)

    assert [bool(incident.muted) for incident in harness.ended] == [silenced]


def test_silenced_alert_of_a_group_is_sent_to_nobody():
    story = [*all_of(0, "commits", "abc"), *all_of(10, "StreamingQueryFailed", "abc")]
    harness = quiet(1000, "a").play(story, 60)

    assert [alert.query for alert in harness.incidents[0].alerts] == ["b", "c"]
    assert [alert.muted[:8] for alert in harness.lifecycle.alerts] == ["silenced", "", ""]


def test_group_is_muted_when_only_silenced_alerts_still_fire():
    story = [*all_of(10, "StreamingQueryFailed", "abc"), (20, "c", "idle")]
    harness = quiet(1000, "[ab]").play(story, 115)

    assert (harness.reported, harness.incidents[0].muted[:8]) == (
        ["10 + * Failed(c)"],
        "silenced",
    )


def test_failure_that_joins_a_muted_group_ends_its_silence():
    story = [*all_of(10, "StreamingQueryFailed", "abc"), (15, "d", "StreamingQueryFailed")]

    assert quiet(1000, "[abc]").play(story, 60).reported == ["15 + * Failed(d)"]


def test_later_failure_in_silence_is_reported_when_it_ends():
    harness = LifecycleHarness().play(all_of(10, "StreamingQueryFailed", "abc"), 12)
    harness.silences = [Silence("*", WALL + 60)]
    harness.play([(25, "d", "StreamingQueryFailed")], 90)

    assert harness.reported == ["10 + * Failed(a,b,c)", "60 + d Failed"]


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
