"""From findings to incidents: one notification each, reminders, and the end."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.lifecycle_harness import WALL, LifecycleHarness
from support.lifecycle_table import (
    ALREADY_REPORTED,
    DEGRADED,
    HEALTHY,
    NOTIFYING,
    SILENT,
    SLOW,
    STALLED,
    all_of,
    cycles,
    rows,
    story,
)

from querypulse.alerting.alert import (
    Alert,
    End,
    GoesOn,
    Incident,
    incident_key,
    incident_labels,
)
from querypulse.alerting.incidents import lifecycle
from querypulse.alerting.incidents.lifecycle import Opened
from querypulse.alerting.receivers.webhook import message_id
from querypulse.alerting.silences import Silence
from querypulse.alerting.words.messages import alert_of
from querypulse.listener.state.snapshot import Pause

DAY = 24 * 3600
FAILS = (10, "a", "StreamingQueryFailed")


STORIES = {**SILENT, **ALREADY_REPORTED, **NOTIFYING}


def notified(row):
    return LifecycleHarness().play(row.story, row.until).reported


@pytest.mark.parametrize("words", STORIES)
def test_story_notifies_as_its_row_says(words):
    assert notified(STORIES[words]) == STORIES[words].notes


# -- the content of an alert ------------------------------------------------------------------


def test_alert_has_its_first_start_and_the_newest_annotations_also_during_recovery():
    harness = LifecycleHarness().play([HEALTHY, (10, "a", "StreamingQueryStalled")], 29)
    harness.reason = "found again"
    harness.play([(35, "a", "starts")], 60)
    (alert,) = harness.incidents[0].alerts

    assert alert.starts_at == harness.incidents[0].starts_at == WALL + 10
    assert (alert.annotations["reason"], alert.annotations["at"]) == ("found again", "34")


def test_alert_keeps_the_cause_with_which_it_was_found_until_its_end_and_in_the_next_process():
    """Alertmanager knows an alert by its labels, and the cause may be one."""
    harness = LifecycleHarness()
    harness.causes["a"], harness.places["a"] = "ReadError", "lake.orders"
    harness.play([HEALTHY, FAILS], 20)
    harness.causes["a"], harness.places["a"] = "WriteError", "lake.sums"
    harness.play([(30, "a", "starts"), (35, "a", "StreamingQueryFailed")], 40)
    (open_incident,) = harness.incidents
    later = LifecycleHarness()
    later.lifecycle.restore([open_incident], now=0.0)
    later.causes, later.places = harness.causes, harness.places
    later.play([(1, "a", "StreamingQueryFailed")], 10)
    harness.play([(50, "a", "idle")], 90)

    (before,) = open_incident.alerts
    assert before.cause == "failed: ReadError at lake.orders"
    assert before.annotations["reason"].startswith("WriteError")
    assert later.incidents[0].alerts[0].cause == before.cause
    assert harness.ended[0].alerts[0].cause == before.cause


def test_next_alert_of_a_query_has_a_cause_of_its_own():
    harness = LifecycleHarness()
    harness.places["a"] = "lake.orders"
    harness.play([HEALTHY, FAILS, (20, "a", "idle")], 100)
    harness.places["a"] = "lake.sums"
    harness.play([(120, "a", "StreamingQueryFailed")], 130)

    assert harness.incidents[0].alerts[0].cause == "failed: OutOfMemoryError at lake.sums"


def test_resolved_incident_is_returned_once_with_its_end():
    harness = LifecycleHarness().play([HEALTHY, FAILS, (20, "a", "idle")], 50)

    assert harness.incidents[0].ends_at == WALL + 50
    assert harness.lifecycle.alerts == ()
    assert harness.tick() == ()


@pytest.mark.fault(
    "Time and pauses", "The wall clock goes back in an incident", "It does not end before it starts"
)
def test_incident_never_ends_before_it_starts_even_if_the_wall_clock_goes_back():
    harness = LifecycleHarness(resolve_after_seconds=0.0).play([HEALTHY, FAILS], 10)
    harness.wall_jump = -3600.0
    harness.play([(11, "a", "idle")], 12)

    assert harness.ended[-1].ends_at == harness.ended[-1].starts_at == WALL + 10


def test_flapping_alert_states_how_long_it_is_held():
    harness = LifecycleHarness().play(cycles("StreamingQueryFailed", 0, 100), 110)
    assert harness.incidents[0].alerts[0].calm_seconds == 0
    harness.play([(200, "a", "StreamingQueryFailed"), (205, "a", "idle")], 300)

    assert harness.incidents[0].alerts[0].calm_seconds == 15 * 60


def test_unreported_alert_takes_the_newest_severity():
    harness = LifecycleHarness().play(
        [(0, "a", "StreamingDataLossRisk!"), (1, "a", "StreamingDataLossRisk")], 60
    )

    assert harness.incidents[0].severity == "warning"


def test_warning_that_only_recovers_ends_with_the_critical_incident():
    """Nobody is notified of what is left; at Alertmanager, its alert must not stay open."""
    stops, slow = (10, "a", "StreamingQueryStopped"), (20, "a", "StreamingBatchSlow+commits")
    harness = LifecycleHarness().play([HEALTHY, stops, slow, (45, "a", "commits")], 100)
    end = harness.ended[0]

    assert harness.reported == ["11 + a Stopped", "50 - a"]
    assert {alert.name for alert in end.alerts} == {"StreamingQueryStopped", "StreamingBatchSlow"}
    assert all(alert.end.goes_on is None for alert in end.alerts)


def test_warning_that_becomes_critical_opens_an_incident_and_ends_the_warning():
    """The new incident has its own key, because a trigger on an open key would notify nobody."""
    harness = LifecycleHarness().play([HEALTHY, (10, "a", "StreamingBatchSlow")], 20)
    harness.warnings = frozenset()
    warning, critical = harness.play([], 21).incidents

    assert (warning.is_over, critical.is_over) == (True, False)
    assert [alert.end.goes_on for alert in warning.alerts] == [GoesOn.CRITICAL_ALERT]
    assert (warning.severity, warning.key) == ("warning", "querypulse/etl/a/warning")
    assert (critical.severity, critical.key) == ("critical", "querypulse/etl/a")
    assert critical.starts_at == warning.starts_at
    assert critical.recording == warning.recording != ""


def test_next_incident_of_a_query_and_that_of_another_have_recordings_of_their_own():
    harness = LifecycleHarness().play(
        [HEALTHY, (10, "a", "StreamingQueryFailed"), (20, "b", "StreamingQueryFailed")], 25
    )
    first, other = harness.incidents
    again = harness.play([(30, "a", "commits"), (200, "a", "StreamingQueryFailed")], 210)
    later = next(incident for incident in again.incidents if incident.query == "a")

    assert len({first.recording, other.recording, later.recording}) == 3


def test_restored_incident_goes_on_with_its_recording():
    assert successor(left()).tick()[0].recording == left().recording


def test_alert_that_goes_on_in_the_incident_of_the_other_severity_says_so_and_no_other_ends():
    harness = LifecycleHarness().play(
        [HEALTHY, (10, "a", "StreamingBatchSlow"), (20, "a", "StreamingQueryStalled")], 21
    )
    warning = next(incident for incident in harness.incidents if incident.is_over)

    assert [(alert.name, alert.is_superseded) for alert in warning.alerts] == [
        ("StreamingBatchSlow", True)
    ]


def test_warning_that_is_left_of_a_critical_incident_is_another_message():
    """A receiver that knows the first message of this key would take it as a repetition."""
    harness = LifecycleHarness().play([HEALTHY, (10, "a", "StreamingBatchSlow+commits")], 15)
    (before,) = harness.incidents
    harness.play([(20, "a", "StreamingQueryFailed+StreamingBatchSlow")], 25)
    harness.play([(30, "a", "StreamingBatchSlow+commits")], 65)
    (after,) = harness.incidents

    assert (after.key, after.starts_at) == (before.key, before.starts_at)
    assert message_id(after) != message_id(before)


def test_labels_of_the_settings_are_in_the_key_and_on_each_alert():
    labels = {"team": "pay ments", "env": "prod"}
    harness = LifecycleHarness(labels=labels).play([(0, "a", "StreamingQueryFailed")], 1)
    (incident,) = harness.incidents

    assert incident.key == "querypulse/etl;env=prod;team=pay%20ments/a"
    assert incident.labels.items() >= labels.items()
    assert incident.alerts[0].labels.items() >= labels.items()


def test_headline_is_the_most_prominent_alert():
    """What fires before what recovers, facts before inferences, critical before warnings."""
    stalls = (10, "a", "StreamingQueryStalled+StreamingDataLossRisk")
    story = [(0, "a", "StreamingBatchSlow"), stalls, (20, "a", "StreamingQueryFailed")]
    harness = LifecycleHarness().play(story, 30)
    names = [alert.name for alert in harness.incidents[0].firing]

    assert names[:2] == ["StreamingQueryFailed", "StreamingQueryStalled"]
    assert set(names[2:]) == {"StreamingBatchSlow", "StreamingDataLossRisk"}


# -- groups -----------------------------------------------------------------------------------


def failing(at, queries, name="StreamingQueryFailed"):
    return all_of(at, name, queries)


GROUPS = rows(
    "eight at once",
    story(*failing(10, "abcdefgh"), until=100, notes="10 + * Failed(a,b,c,d,e,f,g,h)"),
    "one, then two within the time",
    story(
        *failing(10, "a"), *failing(20, "bc"), until=100, notes="10 + a Failed, 20 + * Failed(b,c)"
    ),
    "a stall at the second evaluation",
    story(*failing(10, "abc", STALLED), until=100, notes="11 + * Stalled(a,b,c)"),
    "a fourth warning joins a group of warnings",
    story(
        *failing(10, "abc", SLOW),
        *failing(14, "d", SLOW),
        until=100,
        notes="11 + */warning StreamingBatchSlow(a,b,c), 15 ^ */warning StreamingBatchSlow(a,b,c,d)",
    ),
    "one of a group is slow, and fails again",
    story(
        *failing(10, "abc"),
        (20, "c", "StreamingBatchSlow+commits"),
        *failing(60, "c"),
        until=100,
        notes="10 + * Failed(a,b,c), 60 ^ * Failed+StreamingBatchSlow(a,b,c)",
    ),
    "a failure that is gone before its group could form",
    story(
        *failing(10, "a"),
        *failing(11, "b"),
        (15, "b", "starts"),
        until=100,
        notes="10 + a Failed, 15 + b Failed",
    ),
    "queries that had a warning each",
    story(
        *failing(0, "abc", "StreamingBatchSlow+commits"),
        *failing(60, "abc"),
        until=100,
        notes="1 + */warning StreamingBatchSlow(a,b,c), 60 + * Failed+StreamingBatchSlow(a,b,c), 60 - */warning",
    ),
    "a fourth that comes later",
    story(
        *failing(10, "abc"),
        *failing(21, "d"),
        until=100,
        notes="10 + * Failed(a,b,c), 21 + d Failed",
    ),
    "three more that come later",
    story(
        *failing(10, "abc"),
        *failing(30, "def"),
        until=100,
        notes="10 + * Failed(a,b,c), 30 + d Failed, 30 + e Failed, 30 + f Failed",
    ),
    "three names",
    story(
        *failing(10, "a"),
        *failing(10, "b", "StreamingQueryGivenUp"),
        *failing(9, "c", STALLED),
        until=100,
        notes="10 + c Stalled, 10 + a Failed, 10 + b GivenUp",
    ),
    "three alerts of the driver",
    story(
        *failing(
            10, "*", "QuerypulseMonitoringDegraded+QuerypulseEventsMissing+StreamingQueryStopped"
        ),
        until=100,
        notes="11 + * Stopped+QuerypulseMonitoringDegraded+QuerypulseEventsMissing",
    ),
    "three that fail while the driver is suspected",
    story(
        *failing(10, "*", STALLED),
        *failing(20, "abc"),
        until=100,
        notes="11 + * Stalled, 20 + a Failed, 20 + b Failed, 20 + c Failed",
    ),
    "three warnings while the driver has another one",
    story(
        *failing(10, "*", DEGRADED),
        *failing(60, "abc", SLOW),
        until=100,
        notes="11 + */warning QuerypulseMonitoringDegraded, 61 + a/warning StreamingBatchSlow, 61 + b/warning StreamingBatchSlow, 61 + c/warning StreamingBatchSlow",
    ),
)


@pytest.mark.parametrize("words", GROUPS)
def test_queries_that_fail_together_for_one_cause_are_one_incident_of_the_driver(words):
    assert notified(GROUPS[words]) == GROUPS[words].notes


@pytest.mark.parametrize(
    ("causes", "reported"),
    [
        (
            {"a": "OutOfMemoryError", "b": "ConnectException", "c": "ValueError"},
            ["10 + a Failed", "10 + b Failed", "10 + c Failed"],
        ),
        (
            dict.fromkeys("abc", "OutOfMemoryError") | dict.fromkeys("def", "ValueError"),
            ["10 + * Failed(a,b,c)", "10 + d Failed", "10 + e Failed", "10 + f Failed"],
        ),
    ],
    ids=["three causes", "two groups"],
)
def test_failures_with_several_causes_are_not_one_incident(causes, reported):
    harness = LifecycleHarness()
    harness.causes = causes

    assert harness.play(failing(10, "".join(causes)), 100).reported == reported


def test_end_of_the_process_waits_for_no_group():
    harness = LifecycleHarness().play(failing(10, "ab"), 12)
    harness.is_last = True
    harness.play([], 13)

    assert harness.reported == ["10 + a Failed", "13 + b Failed"]


def test_group_ends_with_its_last_member_and_lists_the_ends_of_the_others():
    story = [*failing(10, "abc"), (20, "a", "idle"), (40, "b", "idle"), (60, "c", "idle")]
    harness = LifecycleHarness().play(story, 89)
    assert [alert.ends_at for alert in harness.incidents[0].alerts] == [None, WALL + 50, WALL + 70]
    assert harness.lifecycle.alerts[0].incident == "*"
    harness.play([], 90)

    assert harness.reported == ["10 + * Failed(a,b,c)", "90 - *"]


# -- what an alert of the driver suppresses -----------------------------------------------------


DRIVER_STALLS = (10, "*", "StreamingQueryStalled")
BESIDE_THE_DRIVER = [
    ("a stop", [DRIVER_STALLS, (20, "a", "StreamingQueryStopped")], []),
    ("a warning", [DRIVER_STALLS, (20, "a", "StreamingBatchSlow")], []),
    (
        "missing signals",
        [DRIVER_STALLS, (20, "*", "StreamingQueryStalled+QuerypulseMonitoringDegraded")],
        [],
    ),
    (
        "shortly after it",
        [
            DRIVER_STALLS,
            (20, "*", "healthy"),
            (20, "a", "StreamingQueryStopped"),
            (40, "a", "idle"),
        ],
        ["50 - *"],
    ),
    ("a failure", [DRIVER_STALLS, (20, "a", "StreamingQueryFailed")], ["20 + a Failed"]),
    (
        "a query that is given up",
        [DRIVER_STALLS, (20, "a", "StreamingQueryGivenUp")],
        ["20 + a GivenUp"],
    ),
    (
        "the end of the driver",
        [DRIVER_STALLS, (20, "*", "StreamingDriverDown")],
        ["20 ^ * StreamingDriverDown+Stalled"],
    ),
    (
        "long after it",
        [DRIVER_STALLS, (20, "*", "healthy"), (60, "a", "StreamingQueryStopped")],
        ["50 - *", "61 + a Stopped"],
    ),
    (
        "under a warning of the driver",
        [(10, "*", "QuerypulseMonitoringDegraded"), (20, "a", "StreamingQueryStopped")],
        ["21 + a Stopped"],
    ),
    (
        "under what the driver foresees",
        [(10, "*", "StreamingDiskFilling"), (20, "a", "StreamingQueryStopped")],
        ["21 + a Stopped"],
    ),
    (
        "a driver that hangs while its disk is full",
        [
            (10, "*", "StreamingDiskFilling"),
            (20, "*", "StreamingDiskFilling+StreamingQueryStalled"),
        ],
        ["21 ^ * Stalled+StreamingDiskFilling"],
    ),
    (
        "a driver that stops while its disk is full",
        [
            (10, "*", "StreamingDiskFilling"),
            (20, "*", "StreamingDiskFilling+StreamingQueryStopped"),
        ],
        ["21 ^ * Stopped+StreamingDiskFilling"],
    ),
    (
        "a full disk while the driver hangs",
        [DRIVER_STALLS, (20, "*", "StreamingQueryStalled+StreamingDiskFilling")],
        ["21 ^ * Stalled+StreamingDiskFilling"],
    ),
    (
        "another query's",
        [(10, "b", "StreamingQueryStalled"), (20, "a", "StreamingQueryStopped")],
        ["21 + a Stopped"],
    ),
]


def test_inference_is_suppressed_while_the_driver_is_suspected_and_a_fact_is_not():
    wrong = {
        what: reported
        for what, story, expected in BESIDE_THE_DRIVER
        if (reported := LifecycleHarness().play(story, 80).reported[1:]) != expected
    }

    assert wrong == {}


def test_suppressed_alert_is_listed_with_its_suppressor():
    harness = LifecycleHarness().play([DRIVER_STALLS, (20, "a", "StreamingOffsetsStalled")], 25)
    (pair,) = harness.lifecycle.inhibited

    assert (pair.alert.name, pair.alert.query) == ("StreamingOffsetsStalled", "a")
    assert (pair.by.name, pair.by.query) == ("StreamingQueryStalled", "*")


@pytest.mark.parametrize(("silenced", "at"), [(False, 51), (True, 21)])
def test_warning_becomes_critical_only_after_the_alert_of_the_driver(silenced, at):
    """What is silenced suppresses nothing."""
    harness = LifecycleHarness().condition("a", "StreamingBatchSlow+commits").play([], 5)
    if silenced:
        harness.silences = [Silence("*", WALL + 1000, alertname="StreamingQueryStalled")]
    harness.play([(6, "*", "StreamingQueryStalled")], 20)
    harness.warnings = frozenset()
    harness.play([(20, "*", "healthy")], 100)

    assert f"{at} + a StreamingBatchSlow" in harness.reported


# -- alerts that keep coming back ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("minutes", "held"),
    [((0, 1), 0), ((0, 1, 2), 15), ((2, 3, 30), 28), ((3, 30, 60), 57), ((30, 60, 600), 120)],
)
def test_hold_time_is_what_the_last_three_firings_took_15_min_to_2_h(minutes, held):
    opened = Opened("n", "a", tuple(minute * 60.0 for minute in minutes))

    assert opened.calm_seconds == held * 60


def test_next_process_knows_how_often_an_alert_has_fired():
    """It restores the times; the alert that was left open is held as long as before."""
    before = LifecycleHarness().play(cycles("StreamingQueryFailed", 0, 1200, 2400), 2450)
    after = LifecycleHarness()
    after.now = 2460.0
    after.lifecycle.restore(before.incidents, after.now)
    after.lifecycle.restore_opened(before.lifecycle.opened, after.now)
    after.play([(0, "a", "idle")], 4800)
    assert after.incidents[0].ends_at is None
    after.play([], 4900)

    assert after.incidents == ()
    assert after.lifecycle.opened == before.lifecycle.opened


def test_of_many_alerts_those_that_opened_last_are_remembered(monkeypatch):
    monkeypatch.setattr(lifecycle, "MAX_REMEMBERED", 2)
    fails = [(10 + at, query, "StreamingQueryFailed") for at, query in enumerate("abc")]
    harness = LifecycleHarness().play([*all_of(0, "commits", "abc"), *fails], 60)

    assert [opened.query for opened in harness.lifecycle.opened] == ["b", "c"]


def test_end_of_a_driver_is_never_held_open():
    """``querypulse watch`` reports the next one under the same key."""
    harness = LifecycleHarness()
    for at in range(0, 400, 100):
        harness.lifecycle.restore_opened((), harness.now)
        harness.play([(at, "*", "StreamingDriverDown"), (at + 5, "*", "healthy")], at + 99)

    assert harness.incidents == ()


# -- time -------------------------------------------------------------------------------------


def test_frozen_time_does_not_count_as_healthy():
    harness = LifecycleHarness().play([HEALTHY, FAILS, (20, "a", "idle")], 25)
    harness.now = 625.0
    harness.pauses = (Pause(at=625.0, seconds=598.0),)
    harness.tick()
    assert harness.incidents[0].ends_at is None
    harness.now = 660.0
    harness.tick()

    assert harness.incidents[0].ends_at is not None


# -- restored from an earlier driver ----------------------------------------------------------


def left(
    query="a", name="StreamingQueryFailed", *, revision=2, severity="critical", **fields
) -> Incident:
    labels = {"alertname": name, "app": "etl", "query": query, "severity": severity}
    own = incident_labels("etl", query, {})
    alerts = (Alert(labels, {"reason": "before"}, WALL - 500, **fields),)
    return Incident(incident_key(own, severity), own, severity, alerts, revision, recording="r")


def successor(*incidents) -> LifecycleHarness:
    harness = LifecycleHarness()
    harness.lifecycle.restore(incidents, 0.0)
    return harness


@pytest.mark.parametrize(
    ("left_open", "others", "story", "ends"),
    [
        ("bronze-8ecb3ceb", {"bronze": "commits", "bronze-11111111": "commits"}, [], True),
        ("bronze-8ecb3ceb", {"bronze": "commits", "bronze-11111111": "starts"}, [], False),
        ("bronze-8ecb3ceb", {"bronze": "commits", "bronze-11111111": "ends"}, [], False),
        (
            "bronze-8ecb3ceb",
            {"bronze": "commits", "bronze-11111111": "StreamingQueryStalled"},
            [],
            False,
        ),
        (
            "bronze-8ecb3ceb",
            {"bronze": "commits", "bronze-11111111": "completed"},
            [(5, "bronze", "StreamingQueryFailed"), (10, "bronze-11111111", "forgotten")],
            False,
        ),
        (
            "bronze-8ecb3ceb",
            {"bronze": "commits", "bronze-11111111": "commits"},
            [(10, "bronze-11111111", "forgotten")],
            False,
        ),
        ("bronze-8ecb3ceb", {"bronze": "commits"}, [], False),
        ("bronze-8ecb3ceb", {"bronze": "commits", "bronze-raw": "commits"}, [], False),
        ("bronze-eu", {"bronze": "commits", "bronze-11111111": "commits"}, [], False),
    ],
    ids=[
        "both commit",
        "starts",
        "ends",
        "stalls",
        "forgotten",
        "forgotten as it recovers",
        "one query has the name",
        "another name",
        "no id at the end",
    ],
)
def test_restored_alert_of_a_namesake_ends_once_every_query_of_that_name_is_healthy(
    left_open, others, story, ends
):
    harness = successor(left(left_open))
    for label, what in others.items():
        harness.condition(label, what, name=label.removesuffix("-11111111"))
    harness.play(story, 600)

    assert (f"30 - {left_open}" in harness.reported) is ends
    assert (f"- {left_open}" in " ".join(harness.reported)) is ends


RESTORED = [
    ("the driver's waits for a query", left("*"), [(100, "b", "starts")], 131, ["130 - *"]),
    (
        "the driver's suppresses nothing before it is found again",
        left("*", "StreamingQueryStalled"),
        [(5, "a", "StreamingQueryStalled")],
        6,
        ["6 + a Stalled"],
    ),
    (
        "one that is still found after a day does not expire",
        left(name="StreamingQueryMissing"),
        [(0, "a", "StreamingQueryMissing")],
        DAY + 60,
        ["14400 ^ a Missing"],
    ),
    (
        "one that is found again does not notify",
        left(),
        [(10, "a", "StreamingQueryFailed")],
        20,
        [],
    ),
    ("a reminder that is due is sent", left(), [], 4 * 3600 + 60, ["14400 ^ a Failed"]),
]


def test_restored_alert_goes_on_as_if_this_process_had_opened_it():
    wrong = {
        what: reported
        for what, incident, story, until, expected in RESTORED
        if (reported := successor(incident).play(story, until).reported[1:2]) != expected
    }

    assert wrong == {}


def test_restored_alert_fires_at_once_and_when_it_is_found_again_has_the_newest_texts():
    harness = successor(left())
    assert harness.tick() == (left(),)
    (alert,) = harness.play([(10, "a", "StreamingQueryFailed")], 20).incidents[0].alerts

    assert (alert.annotations["reason"], alert.starts_at) == ("as found", WALL - 500)


@pytest.mark.parametrize("still_fails", [True, False])
def test_restored_alert_that_a_silence_muted_is_sent_only_if_it_still_holds(still_fails):
    """It may never have been sent; a page that was sent before is not repeated by the outbox."""
    harness = successor(replace(left(), muted="silenced"))
    harness.silences = [Silence("*", WALL + 20)]
    harness.play([(0, "a", "StreamingQueryFailed" if still_fails else "starts")], 40)

    assert [bool(one.muted) for one in harness.incidents] == [not still_fails]


def test_restored_alert_that_was_silenced_makes_no_page_of_a_warning_beside_it():
    before = LifecycleHarness()
    before.silences = [Silence("*", WALL + 60)]
    before.play([HEALTHY, FAILS], 20)
    after = successor(*before.incidents).play([(70, "a", "StreamingRowsDropped")], 90)

    assert after.reported == ["71 + a/warning StreamingRowsDropped"]


@pytest.mark.parametrize(
    ("name", "story"),
    [
        ("StreamingQueryFailed", []),
        ("StreamingQueryMissing", [(10, "a", "StreamingQueryMissing"), (20, "a", "forgotten")]),
    ],
    ids=["never found", "found without its query"],
)
def test_restored_alert_whose_query_never_appears_ends_when_it_is_forgotten_and_never_by_age(
    name, story
):
    harness = successor(left(name=name)).play(story, 3 * DAY)
    assert len(harness.tick()) == 1

    harness.lifecycle.forget("a")
    harness.play([], 3 * DAY + 60)
    assert harness.reported[-1].endswith("- a")
    assert harness.tick() == ()


@pytest.mark.parametrize(
    ("kept", "restored"),
    [
        ([left(revision=1), left(revision=4), left(revision=2)], [("querypulse/etl/a", 4)]),
        ([left(name="StreamingBatchSlow", severity="warning"), left()], [("querypulse/etl/a", 2)]),
        ([left(end=End(WALL - 100))], []),
    ],
    ids=["the newest revision", "the critical one", "none that has ended"],
)
def test_one_of_the_incidents_that_several_receivers_kept_is_restored(kept, restored):
    assert [(one.key, one.revision) for one in successor(*kept).tick()] == restored


@pytest.mark.parametrize(
    ("name", "late"),
    [
        ("StreamingBatchSlow", left()),
        ("StreamingQueryFailed", replace(left("*"), alerts=left().alerts)),
    ],
    ids=["a warning that is critical there", "a failure that is in a group there"],
)
def test_alert_has_one_incident_although_another_is_restored_late(name, late):
    harness = LifecycleHarness().play([(0, "a", name)], 5)
    harness.lifecycle.restore((late,), harness.now)

    assert [one.key for one in harness.play([], 7).incidents] == ["querypulse/etl/a"]


def test_group_is_restored_with_its_ended_members():
    (a,), (b,) = left("a").alerts, left("b", end=End(WALL - 10)).alerts
    group = replace(left("*"), alerts=(a, b))
    harness = successor(group).play([(0, "a", "idle")], 29)
    assert [alert.ends_at for alert in harness.incidents[0].alerts] == [None, WALL - 10]
    harness.play([], 31)

    assert harness.reported == ["0 + * Failed(a)", "30 - *"]


# -- what an earlier process without a spool may have left open ---------------------------------


ALL = ["30 a", "30 *", "30 a/warning", "30 */warning"]
CLOSED = [
    *[(f"a query that {what}", [(0, "a", what)], ALL) for what in ("commits", "idle", "completed")],
    *[
        (f"not seen healthy: {what}", [(0, "a", what)], [])
        for what in (
            "starts",
            "ends",
            "StreamingQueryFailed",
            "StreamingBatchSlow",
            "StreamingQueryFlapping",
        )
    ],
    (
        "a stall in one poll",
        [(0, "a", "idle"), (20, "a", "StreamingQueryStalled"), (21, "a", "idle")],
        ["51 a", "51 *", "51 a/warning", "51 */warning"],
    ),
    (
        "a slow batch in one poll",
        [(0, "a", "idle"), (20, "a", "StreamingBatchSlow"), (21, "a", "idle")],
        ["30 a", "30 *", "51 a/warning", "51 */warning"],
    ),
    (
        "a warning does not keep the critical incident open",
        [(0, "a", "StreamingBatchSlow+commits")],
        ["30 a", "30 *"],
    ),
    (
        "two queries, one after the other",
        [(0, "a", "idle"), (0, "b", "starts"), (40, "b", "idle")],
        ["30 a", "30 a/warning", "70 b", "70 *", "70 b/warning", "70 */warning"],
    ),
]


def test_query_is_resolved_once_when_it_is_first_seen_healthy_and_the_driver_when_all_are():
    closed = [LifecycleHarness().play(story, 600).closed for _, story, _ in CLOSED]

    assert closed == [keys for *_, keys in CLOSED]


@pytest.mark.parametrize("app", ["pyspark-shell", "Databricks Shell"])
def test_generic_app_name_resolves_nothing(app):
    assert LifecycleHarness(app).play([(0, "a", "idle")], 600).closed == []


def test_end_and_stale_end_of_one_key_never_come_together():
    """An incident that lasts until its query is healthy for the first time."""
    harness = LifecycleHarness()
    harness.play([(0, "a", "StreamingQueryFailed"), (20, "a", "idle")], 600)

    assert [incident.key for incident in harness.ended] == ["querypulse/etl/a"]
    assert "50 a" not in harness.closed


# -- errors of ours ---------------------------------------------------------------------------


def test_error_about_one_alert_leaves_the_others_alone(monkeypatch):
    def raising(finding, *rest, **more):
        if finding.query == "a":
            raise RuntimeError("ours")
        return alert_of(finding, *rest, **more)

    monkeypatch.setattr(lifecycle, "alert_of", raising)
    harness = LifecycleHarness()
    harness.causes = {"b": "ValueError"}
    harness.play([(0, "a", "StreamingQueryFailed"), (0, "b", "StreamingQueryFailed")], 5)

    assert harness.reported == ["0 + b Failed"]
    assert [str(error) for error in harness.lifecycle.errors.values()] == ["ours"]


# -- an outage of what several queries need -----------------------------------------------------


STORE = "store:9000"
SIX = [(10 + 9 * n, query, "StreamingQueryFailed") for n, query in enumerate("abcdef")]


def outage(story, until=1000, *, causes=None, silences=(), **places):
    """The notifications of queries whose failures name ``STORE``, unless ``places`` say otherwise."""
    harness = LifecycleHarness()
    harness.causes, harness.silences = causes or {}, list(silences)
    harness.places = dict.fromkeys("abcdefgh", STORE) | places
    return harness.play(sorted([*all_of(0, "idle"), *story]), until).reported


def own_pages(story):
    return [f"{at} + {query} Failed" for at, query, _ in sorted(story)]


SPREAD = [(10 + 60 * n, query, "StreamingQueryFailed") for n, query in enumerate("abcdef")]
APART = {
    "they name no place": dict.fromkeys("abcdef", ""),
    "each names another host": {query: f"{query}:9000" for query in "abcdef"},
    "each names another port": {query: f"store:900{n}" for n, query in enumerate("abcdef")},
    "each names another table": {query: f"lake.{query}" for query in "abcdef"},
    "two at each place": dict(zip("abcdef", "xxyyzz", strict=True)),
    "only one names the place": dict.fromkeys("bcdef", ""),
}


@pytest.mark.parametrize("words", APART)
def test_failures_minutes_apart_are_incidents_of_their_own_if(words):
    assert outage(SPREAD, **APART[words]) == own_pages(SPREAD)


def test_different_errors_at_one_place_are_incidents_of_their_own():
    causes = {query: f"{query.upper()}Error" for query in "abcdef"}

    assert outage(SPREAD, causes=causes) == own_pages(SPREAD)


def test_failures_at_different_places_within_ten_seconds_are_one_incident():
    places = {query: f"lake.{query}" for query in "abcd"}

    assert outage([*failing(10, "abc"), *failing(20, "d")], **places) == [
        "10 + * Failed(a,b,c)",
        "20 ^ * Failed(a,b,c,d)",
    ]


OUTAGES = {
    "six within 45 s": (SIX, ["10 + a Failed", "21 + b Failed", "28 + * Failed(c)"]),
    "six within five minutes": (
        SPREAD,
        ["10 + a Failed", "70 + b Failed", "130 + * Failed(c)"],
    ),
    "six at once": (failing(10, "abcdef"), ["10 + * Failed(a,b,c,d,e,f)"]),
    "one more after nine minutes": (
        [*failing(10, "abc"), *failing(550, "d")],
        ["10 + * Failed(a,b,c)", "550 ^ * Failed(a,b,c,d)"],
    ),
    "one more after eleven minutes": (
        [*failing(10, "abc"), *failing(670, "d")],
        ["10 + * Failed(a,b,c)", "670 + d Failed"],
    ),
    "one more nine minutes after the last": (
        [*failing(10, "abc"), *failing(550, "d"), *failing(1000, "e")],
        ["10 + * Failed(a,b,c)", "550 ^ * Failed(a,b,c,d)", "1000 ^ * Failed(a,b,c,d,e)"],
    ),
    "a group that has recovered takes nobody": (
        [*failing(10, "abc"), *all_of(20, "idle", "abc"), *failing(60, "d")],
        ["10 + * Failed(a,b,c)", "50 - *", "60 + d Failed"],
    ),
    "a group that recovers takes nobody": (
        [*failing(10, "abc"), *all_of(40, "idle", "abc"), *failing(60, "d")],
        ["10 + * Failed(a,b,c)", "60 + d Failed", "70 - *"],
    ),
    "one of the group recovers, and fails again": (
        [*failing(10, "abc"), (20, "a", "idle"), (90, "a", "StreamingQueryFailed")],
        ["10 + * Failed(a,b,c)", "90 ^ * Failed(b,c,a)"],
    ),
    "what has recovered is no longer counted": (
        [*failing(10, "a"), (20, "a", "idle"), *failing(60, "b"), *failing(100, "c")],
        ["10 + a Failed", "50 - a", "60 + b Failed", "100 + c Failed"],
    ),
    "a query that stalls already fails in its own incident": (
        [*failing(5, "d", STALLED), *failing(10, "abc"), *failing(60, "d")],
        ["6 + d Stalled", "10 + * Failed(a,b,c)", "60 ^ d Failed+Stalled"],
    ),
    "members still fail after twenty minutes": (
        [
            *failing(10, "abc"),
            *[
                entry
                for at in range(300, 1200, 300)
                for entry in [(at, "a", "starts"), (at + 5, "a", "StreamingQueryFailed")]
            ],
            *failing(1210, "d"),
        ],
        ["10 + * Failed(a,b,c)", "1210 ^ * Failed(a,b,c,d)"],
    ),
}


@pytest.mark.parametrize("words", OUTAGES)
def test_failures_in_an_outage_join_its_group(words):
    story, expected = OUTAGES[words]
    begun = outage(story, until=1300)

    assert begun[: len(expected)] == expected
    assert {note.split()[2] for note in begun[len(expected) :]} <= {"*"}


def test_group_lists_each_query_that_joins_an_outage_and_notifies_of_it():
    assert outage(SIX)[2:] == [
        "28 + * Failed(c)",
        "37 ^ * Failed(c,d)",
        "46 ^ * Failed(c,d,e)",
        "55 ^ * Failed(c,d,e,f)",
    ]


def test_silenced_outage_explains_no_failure_that_is_not_silenced():
    silences = [Silence("[abc]", WALL + 900)]

    assert outage([*failing(10, "abc"), *failing(60, "d")], 600, silences=silences) == [
        "60 + d Failed"
    ]


def test_outage_under_a_silence_is_few_incidents_when_the_silence_ends():
    assert outage(SIX, 600, silences=[Silence("*", WALL + 300)]) == [
        "300 + a Failed",
        "300 + b Failed",
        "300 + * Failed(c,d,e,f)",
    ]


def test_silenced_member_notifies_when_its_silence_ends():
    assert outage(
        [*failing(10, "abc"), *failing(60, "d")], 600, silences=[Silence("d", WALL + 300)]
    ) == ["10 + * Failed(a,b,c)", "300 ^ * Failed(a,b,c,d)"]


@pytest.mark.parametrize(
    ("later", "expected"),
    [(60, "60 ^ * Failed(d,a,b,c)"), (900, "900 + d Failed")],
    ids=["soon", "long after"],
)
def test_next_process_knows_the_outage(later, expected):
    before = LifecycleHarness()
    before.places = dict.fromkeys("abcd", STORE)
    before.play(failing(10, "abc"), 20)
    after = LifecycleHarness()
    after.now, after.places = 25.0, before.places
    after.lifecycle.restore(before.incidents, after.now)
    after.lifecycle.restore_opened(before.lifecycle.opened, after.now)
    after.play([*all_of(25, "starts", "abcd"), *failing(later, "d")], later + 100)

    assert after.reported == ["25 + * Failed(a,b,c)", expected]


# -- a failure in a later batch -----------------------------------------------------------------


def again(*story, until=2000, batches=None, restored=False, **fields):
    """The notifications of a query that fails in its second batch, after those of its first page."""
    harness = LifecycleHarness(**fields)
    harness.batches = batches or {}
    return harness.play([HEALTHY, FAILS, *story], until).reported[1:]


F = "StreamingQueryFailed"
NOT_AGAIN = {
    "it never committed": [(20, "a", "starts"), (400, "a", F), (420, "a", "starts"), (900, "a", F)],
    "it was only idle": [(20, "a", "idle"), (40, "a", "starts"), (400, "a", F)],
    "it still fails": [],
    "it recovers before five minutes are over": [
        (20, "a", "commits"),
        (24, "a", "starts"),
        (40, "a", F),
        (50, "a", "commits"),
        (54, "a", "starts"),
    ],
    "it flaps": [
        (20, "a", "commits"),
        (24, "a", "starts"),
        (400, "a", f"{F}+StreamingQueryFlapping"),
    ],
}


@pytest.mark.parametrize("words", NOT_AGAIN)
def test_failure_of_an_open_incident_is_no_news_if(words):
    assert again(*NOT_AGAIN[words]) == []


COMMITS_ONCE = [(20, "a", "commits"), (24, "a", "starts")]


def test_failure_in_the_same_batch_is_no_news_although_others_were_committed_again():
    """Under async progress tracking the next run goes back to a batch whose commit was not written."""
    assert again(*COMMITS_ONCE, (400, "a", F), batches={"a": 7}) == []


@pytest.mark.parametrize("batch", [None, -1], ids=["known", "unknown"])
@pytest.mark.parametrize("at", [310, 400])
def test_failure_in_a_later_batch_is_news(at, batch):
    batches = {} if batch is None else {"a": batch}

    assert again(*COMMITS_ONCE, (at, "a", F), batches=batches) == [f"{at} ^ a Failed"]


def test_failure_in_a_later_batch_is_news_five_minutes_after_the_last_while_it_lasts():
    assert again(*COMMITS_ONCE, (40, "a", F)) == ["310 ^ a Failed"]


def test_failure_on_a_new_checkpoint_is_news_although_batch_ids_began_again():
    harness = LifecycleHarness()
    harness.batches = {"a": 7}
    harness.play([HEALTHY, FAILS, *COMMITS_ONCE], 300)
    harness.batches = {"a": 0}

    assert harness.play([(400, "a", F)], 500).reported[1:] == ["400 ^ a Failed"]


def test_failure_in_a_later_batch_is_news_of_the_incident_of_a_group():
    story = [*all_of(0, "commits", "abc"), *failing(10, "abc"), *COMMITS_ONCE, (400, "a", F)]

    assert LifecycleHarness().play(story, 500).reported[1:] == ["400 ^ * Failed(a,b,c)"]


def test_failures_in_later_batches_are_news_at_most_three_times_a_day():
    loop = [
        entry
        for at in range(400, 8000, 400)
        for entry in [(at, "a", F), (at + 10, "a", "commits"), (at + 14, "a", "starts")]
    ]

    assert again(*COMMITS_ONCE, *loop, until=8000) == ["400 ^ a Failed", "800 ^ a Failed"]


def test_failure_in_a_later_batch_while_silenced_is_news_when_the_silence_ends():
    harness = LifecycleHarness().play([HEALTHY, FAILS, *COMMITS_ONCE], 100)
    harness.silences = [Silence("a", WALL + 900)]
    harness.play([(400, "a", F)], 1200)

    assert harness.reported == ["10 + a Failed", "900 ^ a Failed"]


def test_next_process_notifies_of_a_failure_in_a_later_batch():
    harness = successor(left())
    story = [(10, "a", "commits"), (14, "a", "starts"), (400, "a", "StreamingQueryFailed")]

    assert harness.play(story, 500).reported[1:] == ["400 ^ a Failed"]


# -- rare triggers ------------------------------------------------------------------------------


HOUR = 3600


def hourly(*story, until, trigger="ProcessingTimeTrigger(3600000)"):
    harness = LifecycleHarness()
    harness.trigger = trigger
    return harness.play([HEALTHY, (4, "a", "waits"), *story], until).reported


@pytest.mark.parametrize(
    ("trigger", "ends"),
    [
        ("ProcessingTimeTrigger(3600000)", True),
        ("ProcessingTimeTrigger(31000)", True),
        ("ProcessingTimeTrigger(30000)", False),
        ("ProcessingTimeTrigger(0)", False),
        ("", False),
    ],
)
def test_one_commit_ends_an_incident_only_where_triggers_are_rarer_than_health(trigger, ends):
    story = [(10, "a", "StreamingQueryFailed"), (20, "a", "commits"), (24, "a", "waits")]
    reported = hourly(*story, until=HOUR, trigger=trigger)

    assert reported == ["10 + a Failed", *(["50 - a"] if ends else [])]


@pytest.mark.parametrize("what", ["starts", "ends"])
def test_hourly_query_without_a_commit_has_not_recovered(what):
    assert hourly((10, "a", "StreamingQueryFailed"), (20, "a", what), until=2 * HOUR) == [
        "10 + a Failed"
    ]


def test_hourly_query_that_fails_again_is_another_incident():
    story = [(HOUR, "a", F), (HOUR + 60, "a", "commits"), (HOUR + 64, "a", "waits")]
    story += [(2 * HOUR, "a", "commits"), (2 * HOUR + 4, "a", "waits"), (3 * HOUR, "a", F)]

    assert hourly(*story, until=4 * HOUR) == [
        "3600 + a Failed",
        "3690 - a",
        "10800 + a Failed",
    ]
