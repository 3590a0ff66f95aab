"""A silence keeps quiet what it names, for as long as it says, and nothing more."""

from __future__ import annotations

import math

import pytest
from support.lifecycle_harness import WALL, LifecycleHarness
from support.lifecycle_table import HEALTHY, all_of

from querypulse.alerting.alert import Alert
from querypulse.alerting.lifecycle.silences import Silence, silence_of, why_muted


def alert(query="bronze", name="StreamingQueryStalled"):
    labels = {"alertname": name, "app": "etl", "query": query, "severity": "critical"}
    return Alert(labels, {}, WALL)


COVERED = [
    ("its name", Silence("bronze", WALL + 1)),
    ("a pattern", Silence("bro*", WALL + 1)),
    ("everything", Silence("*", WALL + 1)),
    ("its name and the alert's", Silence("bronze", WALL + 1, "StreamingQueryStalled")),
    ("a pattern of alerts", Silence("*", WALL + 1, "*Stalled")),
    ("for ever, as JSON can say", Silence("*", math.inf)),
    ("its app", Silence("*", WALL + 1, app="etl")),
    ("a pattern of apps", Silence("bronze", WALL + 1, app="e*")),
]
NOT_COVERED = [
    ("another name", Silence("silver", WALL + 1)),
    ("a part of the name", Silence("bro", WALL + 1)),
    ("another case", Silence("Bronze", WALL + 1)),
    ("another alert", Silence("bronze", WALL + 1, "StreamingQueryFailed")),
    ("a silence that has just ended", Silence("*", WALL)),
    ("a silence long over", Silence("*", 0.0)),
    ("a silence whose end is no number", Silence("*", math.nan)),
    ("an empty pattern", Silence("", WALL + 1)),
    ("another app", Silence("*", WALL + 1, app="shop")),
    ("a part of the app's name", Silence("*", WALL + 1, app="et")),
]


@pytest.mark.parametrize("silence", [pytest.param(one, id=why) for why, one in COVERED])
def test_what_matches_is_covered(silence):
    assert silence_of(alert(), [silence], WALL) == silence


@pytest.mark.parametrize("silence", [pytest.param(one, id=why) for why, one in NOT_COVERED])
def test_what_does_not_match_is_not(silence):
    assert silence_of(alert(), [silence], WALL) is None


@pytest.mark.parametrize("pattern", ["bronze", "nightly*", "[a-z]*"])
def test_a_silence_of_queries_does_not_cover_the_whole_driver(pattern):
    assert silence_of(alert("*"), [Silence(pattern, WALL + 1)], WALL) is None


def test_of_several_the_one_that_ends_last_counts():
    first, last = Silence("*", WALL + 1), Silence("bronze", WALL + 9)

    assert silence_of(alert(), [first, last, Silence("*", WALL + 5)], WALL) == last


def test_why_it_is_quiet_is_said_in_words():
    assert str(Silence("*", WALL)) == "silenced until 2023-11-14T22:13:20Z"
    assert str(Silence("*", WALL, reason="deploy")) == "silenced until 2023-11-14T22:13:20Z: deploy"


@pytest.mark.parametrize("until", [math.inf, 1e30])
def test_no_end_is_too_far_to_be_written(until):
    assert str(Silence("*", until)) == "silenced until 9999-12-31T23:59:59Z"


def test_several_alerts_are_quiet_when_each_is_and_until_the_first_silence_ends():
    silences = [Silence("a", WALL + 5), Silence("b", WALL + 3)]

    assert why_muted([alert("a"), alert("b")], silences, WALL) == str(silences[1])
    assert why_muted([alert("a"), alert("c")], silences, WALL) == ""
    assert why_muted([], silences, WALL) == ""


# -- in the life of an incident ---------------------------------------------------------------


def quiet(until, queries="*", alertname="*"):
    harness = LifecycleHarness(repeat_interval_seconds=100.0)
    harness.silences = [Silence(queries, WALL + until, alertname)]
    return harness


FAILING = [HEALTHY, (10, "a", "StreamingQueryFailed")]


def test_what_falls_failing_and_gets_well_in_silence_is_never_reported():
    assert quiet(100).play([*FAILING, (20, "a", "idle")], 300).reported == []


def test_what_still_fires_when_the_silence_ends_is_reported():
    assert quiet(60).play(FAILING, 90).reported == ["60 + StreamingQueryFailed a"]


def test_what_the_silence_does_not_name_is_reported():
    assert quiet(60, "b").play(FAILING, 30).reported == ["10 + StreamingQueryFailed a"]
    assert quiet(60, "a", "StreamingQueryStalled").play(FAILING, 30).reported == [
        "10 + StreamingQueryFailed a"
    ]


def test_what_was_reported_before_the_silence_is_still_reported_to_be_over():
    harness = LifecycleHarness().play(FAILING, 15)
    harness.silences = [Silence("*", WALL + 1000)]
    harness.play([(20, "a", "idle")], 60)

    assert harness.reported == ["10 + StreamingQueryFailed a", "50 - StreamingQueryFailed a"]


def test_a_silenced_incident_has_no_reminders_and_one_that_was_due_comes_after():
    harness = quiet(0).play(FAILING, 50)
    harness.silences = [Silence("*", WALL + 350)]
    harness.play([], 460)

    assert harness.reported == [
        "10 + StreamingQueryFailed a",
        "350 ^ StreamingQueryFailed a",
        "450 ^ StreamingQueryFailed a",
    ]


def test_what_recovers_when_its_silence_ends_and_was_reported_to_nobody_stays_so():
    harness = quiet(15).play([*FAILING, (12, "a", "starts"), (14, "a", "commits")], 300)

    assert harness.reported == []


def test_after_a_silence_the_first_reminder_comes_an_interval_later():
    assert quiet(350).play(FAILING, 449).reported == ["350 + StreamingQueryFailed a"]


def test_a_group_of_which_one_is_silenced_is_reported():
    story = [*all_of(0, "commits", "abc"), *all_of(10, "StreamingQueryFailed", "abc")]

    assert quiet(1000, "a").play(story, 60).reported == ["10 + StreamingQueryFailed a,b,c"]


def test_a_group_is_silent_once_only_what_is_silenced_is_still_failing():
    story = [*all_of(10, "StreamingQueryFailed", "abc"), (20, "c", "idle")]
    harness = quiet(1000, "[ab]").play(story, 115)

    assert (harness.reported, harness.incidents[0].muted[:8]) == (
        ["10 + StreamingQueryFailed a,b,c"],
        "silenced",
    )


def test_one_that_fails_later_and_is_not_silenced_is_reported_while_the_group_is_silent():
    story = [*all_of(10, "StreamingQueryFailed", "abc"), (15, "d", "StreamingQueryFailed")]

    assert quiet(1000, "[abc]").play(story, 60).reported == ["15 + StreamingQueryFailed d"]


def test_one_that_fails_later_in_silence_is_reported_when_the_silence_ends():
    harness = LifecycleHarness().play(all_of(10, "StreamingQueryFailed", "abc"), 12)
    harness.silences = [Silence("*", WALL + 60)]
    harness.play([(15, "d", "StreamingQueryFailed")], 90)

    assert harness.reported == ["10 + StreamingQueryFailed a,b,c", "60 + StreamingQueryFailed d"]


def test_the_revision_does_not_grow_in_silence():
    harness = quiet(1000).play(
        [*all_of(10, "StreamingQueryFailed", "abc"), (15, "d", "StreamingQueryFailed")], 900
    )

    assert [incident.revision for incident in harness.incidents] == [0, 0]


def test_a_silenced_alert_is_shown_with_its_silence_and_another_without():
    harness = quiet(1000, "a").play([*FAILING, (10, "b", "StreamingQueryFailed")], 10)
    shown = {one.labels["query"]: one.annotations.get("muted") for one in harness.lifecycle.alerts}

    assert shown == {"a": "silenced until 2023-11-14T22:30:00Z", "b": None}
    assert all("muted" not in one.alerts[0].annotations for one in harness.incidents)
