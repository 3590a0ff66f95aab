"""From findings to incidents: one notification each, reminders, and the end."""

from __future__ import annotations

import sys

import pytest
from msgspec.structs import replace
from support.lifecycle_harness import WALL, LifecycleHarness
from support.lifecycle_table import ALREADY_REPORTED, HEALTHY, NOTIFYING, SILENT, all_of, cycles

from querypulse.alerting.active_alert import FlapGuard
from querypulse.alerting.alert import Alert, Incident
from querypulse.alerting.rules import ORDER
from querypulse.alerting.silences import Silence
from querypulse.listener.state.snapshot import Pause

DAY = 24 * 3600


def otherwise(rows):
    """The rows with other notifications than the table says, and those notifications."""
    return {
        what: reported
        for what, story, until, expected in rows
        if (reported := LifecycleHarness().play(story, until).reported) != expected
    }


def test_nothing_to_report_notifies_nobody():
    assert otherwise(SILENT) == {}
    assert [row for row in SILENT if row[-1]] == []


def test_one_problem_notifies_only_once():
    assert otherwise(ALREADY_REPORTED) == {}


def test_problem_is_reported():
    assert otherwise(NOTIFYING) == {}


def test_more_cases_stay_silent_than_notify():
    assert len(SILENT) + len(ALREADY_REPORTED) > len(NOTIFYING)


# -- the content of an alert ------------------------------------------------------------------


def test_alert_starts_when_its_finding_first_held():
    harness = LifecycleHarness().play([HEALTHY, (10, "a", "StreamingQueryStalled")], 30)

    assert harness.incidents[0].starts_at == WALL + 10


def test_annotations_are_the_newest_and_stay_during_recovery():
    harness = LifecycleHarness().play([HEALTHY, (10, "a", "StreamingQueryStalled")], 29)
    harness.reason = "found again"
    harness.play([(35, "a", "starts")], 60)
    (alert,) = harness.incidents[0].alerts

    assert (alert.annotations["reason"], alert.annotations["at"]) == ("found again", "34")


def test_changed_annotations_alone_notify_nobody():
    harness = LifecycleHarness().play([HEALTHY, (10, "a", "StreamingQueryStalled")], 3600)

    assert harness.incidents[0].revision == 0


def test_resolved_incident_is_returned_once_with_its_end():
    harness = LifecycleHarness().play(
        [HEALTHY, (10, "a", "StreamingQueryFailed"), (20, "a", "idle")], 50
    )

    assert harness.incidents[0].ends_at == WALL + 50
    assert harness.lifecycle.alerts == ()
    assert harness.tick() == ()


@pytest.mark.fault(
    "Time and pauses", "The wall clock goes back in an incident", "It does not end before it starts"
)
def test_incident_never_ends_before_it_starts_even_if_the_wall_clock_goes_back():
    harness = LifecycleHarness(resolve_after_seconds=0.0).play(
        [HEALTHY, (10, "a", "StreamingQueryFailed")], 10
    )
    harness.wall_jump = -3600.0
    harness.play([(11, "a", "idle")], 12)

    assert harness.ended[-1].ends_at == harness.ended[-1].starts_at == WALL + 10


def test_superseded_alert_names_its_successor():
    harness = LifecycleHarness().play(
        [HEALTHY, (10, "a", "StreamingQueryStalled"), (20, "a", "StreamingQueryFailed")], 20
    )
    over = [one for one in harness.incidents if one.ends_at is not None]

    assert [one.alerts[0].annotations["superseded_by"] for one in over] == ["StreamingQueryFailed"]


def test_flapping_alert_states_how_long_it_is_held():
    harness = LifecycleHarness().play(cycles("StreamingQueryFailed", 0, 100), 110)
    assert "flapping" not in harness.incidents[0].alerts[0].annotations
    harness.play([(200, "a", "StreamingQueryFailed"), (205, "a", "idle")], 300)

    assert "15 min of calm" in harness.incidents[0].alerts[0].annotations["flapping"]


def test_only_open_alerts_are_shown_as_firing():
    harness = LifecycleHarness().play([HEALTHY, (10, "a", "StreamingQueryStalled")], 10)
    assert harness.lifecycle.alerts == ()
    harness.tick()
    assert [alert.name for alert in harness.lifecycle.alerts] == ["StreamingQueryStalled"]
    harness.play([(20, "a", "StreamingBatchSlow")], 30)

    assert [alert.name for alert in harness.lifecycle.alerts] == ["StreamingQueryStalled"]


def test_severity_does_not_decrease_while_an_alert_is_open():
    harness = LifecycleHarness().play(
        [(0, "a", "StreamingDataLossRisk!"), (10, "a", "StreamingDataLossRisk")], 60
    )

    assert harness.incidents[0].severity == "critical"
    assert [alert.labels["severity"] for alert in harness.lifecycle.alerts] == ["critical"]


def test_unreported_alert_takes_the_newest_severity():
    harness = LifecycleHarness().play(
        [(0, "a", "StreamingDataLossRisk!"), (1, "a", "StreamingDataLossRisk")], 60
    )

    assert harness.incidents[0].severity == "warning"


def test_warning_that_becomes_critical_opens_an_incident_and_ends_the_warning():
    """The new incident has its own key, because a trigger on an open key would notify nobody."""
    harness = LifecycleHarness().play([HEALTHY, (10, "a", "StreamingBatchSlow")], 20)
    harness.warnings = frozenset()
    harness.play([], 21)
    warning, critical = harness.incidents

    assert harness.reported == [
        "11 + StreamingBatchSlow a",
        "21 + StreamingBatchSlow a",
        "21 - StreamingBatchSlow a",
    ]
    assert warning.alerts[0].annotations["superseded_by"] == "StreamingBatchSlow, critical"
    assert (warning.severity, warning.key) == ("warning", "querypulse/etl/a/StreamingBatchSlow")
    assert (critical.severity, critical.key) == (
        "critical",
        "querypulse/etl/a/StreamingBatchSlow/critical",
    )
    assert critical.starts_at == warning.starts_at
    assert critical.is_escalated
    assert not warning.is_escalated


def test_alert_critical_from_the_start_has_the_usual_key():
    harness = LifecycleHarness().play([HEALTHY, (10, "a", "StreamingQueryStalled")], 60)

    assert [one.key for one in harness.incidents] == ["querypulse/etl/a/StreamingQueryStalled"]


def test_hold_time_grows_from_the_third_firing_within_a_day():
    guard = FlapGuard()
    minutes = (0, 1, 2, 3, 30, 60, 600, 1600, 3100)

    assert [guard.fires("a", at * 60) / 60 for at in minutes] == [0, 0, 15, 15, 28, 57, 120, 0, 0]
    assert guard.fires("b", 100 * 60) == 0


def relapsing(*more, until, healed=3, every=1200, failing=5):
    """Failures that heal in a few seconds, then what follows; the alert is held open by then."""
    failures = [(every * n, "a", "StreamingQueryFailed") for n in range(healed)]
    recoveries = [(every * n + failing, "a", "idle") for n in range(healed)]
    return LifecycleHarness().play([*failures, *recoveries, *more], until)


def news(harness):
    """What people are notified of, and under which keys, after the third failure."""
    return [text for text in harness.reported if int(text.split(" ")[0]) > 2400]


def test_failure_that_lasts_under_a_held_alert_opens_the_other_key():
    harness = relapsing((3600, "a", "StreamingQueryFailed"), until=3721)

    assert news(harness) == ["3721 + StreamingQueryFailed a", "3721 - StreamingQueryFailed a"]
    lasting, replaced = sorted(harness.incidents, key=lambda one: one.ends_at is not None)
    assert lasting.key == "querypulse/etl/a/StreamingQueryFailed/lasting"
    assert lasting.alerts[0].labels["occurrence"] == "lasting"
    assert "this time it lasts longer" in lasting.alerts[0].annotations["flapping"]
    assert replaced.key == "querypulse/etl/a/StreamingQueryFailed"
    assert replaced.alerts[0].annotations["superseded_by"] == "StreamingQueryFailed, which lasts"


def test_failure_that_heals_as_quickly_as_before_is_no_news():
    harness = relapsing((3600, "a", "StreamingQueryFailed"), (3715, "a", "idle"), until=5000)

    assert news(harness) == []


@pytest.mark.parametrize(("failing", "after"), [(300, 300), (1000, 900)])
def test_failure_is_news_once_it_lasts_longer_than_each_time_before(failing, after):
    harness = relapsing((3600, "a", "StreamingQueryFailed"), until=4800, failing=failing)

    assert news(harness)[0] == f"{3600 + after + 1} + StreamingQueryFailed a"


def test_next_failure_that_lasts_opens_the_usual_key_again():
    """A key that is open notifies nobody, so the two take turns."""
    harness = relapsing(
        *((3600, "a", "StreamingQueryFailed"), (3800, "a", "idle")),
        (5000, "a", "StreamingQueryFailed"), until=5400,
    )  # fmt: skip

    assert [one.key for one in harness.incidents] == ["querypulse/etl/a/StreamingQueryFailed"]
    assert news(harness)[-2:] == ["5201 + StreamingQueryFailed a", "5201 - StreamingQueryFailed a"]


def test_pause_of_the_driver_does_not_make_a_failure_last():
    harness = relapsing((3600, "a", "StreamingQueryFailed"), until=3601)
    harness.now = 4202.0
    harness.pauses = (Pause(at=4202.0, seconds=600.0),)
    harness.tick()

    assert news(harness) == []


def test_warning_that_lasts_is_no_news():
    story = [(1200 * n, "a", "StreamingBatchSlow") for n in range(4)]
    story += [(1200 * n + 5, "a", "idle") for n in range(3)]

    assert news(LifecycleHarness().play(story, 5000)) == ["2401 + StreamingBatchSlow a"]


def test_first_long_occurrence_of_a_held_alert_is_notified_once():
    story = [(1200 * n, "a", "StreamingQueryFailed") for n in range(3)]
    story += [(1200 * n + 5, "a", "idle") for n in range(2)]
    harness = LifecycleHarness().play(story, 6000)

    assert [text for text in harness.reported if " + " in text][2:] == [
        "2400 + StreamingQueryFailed a"
    ]


def test_alert_that_comes_every_eight_hours_is_held_for_two_hours_only():
    hours = [(hour * 3600, "a", "StreamingQueryFailed") for hour in (1, 9, 17)]
    healed = [(at + 10, "a", "idle") for at, *_ in hours]
    harness = LifecycleHarness().play([*hours, *healed], 20 * 3600)

    assert harness.incidents == ()
    assert [text for text in harness.reported if " - " in text][-1].startswith("68410 ")


def test_next_process_knows_how_often_an_alert_has_fired():
    """It restores the times; the alert that was left open is held as long as before."""
    before = relapsing(until=2450)
    after = LifecycleHarness()
    after.now = 2460.0
    after.lifecycle.restore(before.incidents, after.now)
    after.lifecycle.restore_flaps(before.lifecycle.flaps, after.now)
    after.play([(0, "a", "idle")], 4800)
    assert after.incidents[0].ends_at is None
    after.play([], 4900)

    assert after.incidents == ()
    assert after.lifecycle.flaps == before.lifecycle.flaps


def test_next_process_knows_how_long_a_failure_has_lasted_that_goes_on():
    before = relapsing((3600, "a", "StreamingQueryFailed"), until=3950)
    (kept,) = before.lifecycle.flaps
    assert kept.longest_seconds == 300.0
    after = LifecycleHarness()
    after.now = 3960.0
    after.lifecycle.restore(before.incidents, after.now)
    after.lifecycle.restore_flaps(before.lifecycle.flaps, after.now)
    after.play([(3960, "a", "StreamingQueryFailed")], 3960 + 295)

    still_open = [one.key for one in after.incidents if one.ends_at is None]
    assert still_open == ["querypulse/etl/a/StreamingQueryFailed/lasting"]


def test_restored_times_count_before_the_alert_fires_again():
    after = LifecycleHarness()
    after.lifecycle.restore_flaps(relapsing(until=1300, healed=2).lifecycle.flaps, 2400.0)
    after.now = 2400.0
    after.play([(0, "a", "StreamingQueryFailed"), (2405, "a", "idle")], 3000)

    assert [one.ends_at for one in after.incidents] == [None]


def test_end_of_a_driver_is_never_held_open():
    """``querypulse watch`` reports the next one under the same key."""
    harness = LifecycleHarness()
    for at in range(0, 400, 100):
        harness.lifecycle.restore_flaps((), harness.now)
        harness.play([(at, "*", "StreamingDriverDown"), (at + 5, "*", "healthy")], at + 99)

    assert harness.incidents == ()


# -- time -------------------------------------------------------------------------------------


def test_frozen_time_does_not_count_as_healthy():
    harness = LifecycleHarness().play(
        [HEALTHY, (10, "a", "StreamingQueryFailed"), (20, "a", "idle")], 25
    )
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
    return Incident((Alert(labels, {"reason": "before"}, WALL - 500, **fields),), revision)


def successor(*incidents, **terms) -> LifecycleHarness:
    harness = LifecycleHarness(**terms)
    harness.lifecycle.restore(incidents, 0.0)
    return harness


def test_restored_alert_fires_at_once_with_its_annotations_and_start():
    (incident,) = successor(left()).tick()

    assert incident == left()


def test_restored_alert_ends_once_its_query_is_healthy():
    harness = successor(left()).play([(10, "a", "starts"), (20, "a", "commits")], 100)

    assert (harness.reported, harness.incidents) == (
        ["0 + StreamingQueryFailed a", "50 - StreamingQueryFailed a"],
        (),
    )


def test_restored_alert_stays_open_while_its_query_is_not_seen():
    harness = successor(left()).play([], DAY - 60)

    assert harness.incidents[0].ends_at is None


def namesakes(second: str, label: str = "bronze-11111111") -> LifecycleHarness:
    """A process with two queries of the name ``bronze``, after one that called another so."""
    harness = successor(left("bronze-8ecb3ceb")).condition("bronze", "commits")
    return harness.condition(label, second, name="bronze")


def test_restored_alert_of_a_namesake_ends_once_every_query_of_that_name_is_healthy():
    harness = namesakes("commits").play([], 100)

    assert harness.reported[1:] == ["30 - StreamingQueryFailed bronze-8ecb3ceb"]


@pytest.mark.parametrize("second", ["starts", "ends", "StreamingQueryStalled"])
def test_restored_alert_of_a_namesake_stays_open_while_one_query_of_that_name_is_unhealthy(second):
    harness = namesakes(second).play([], 600)

    assert "StreamingQueryFailed bronze-8ecb3ceb" not in [
        one.split(" - ")[-1] for one in harness.reported
    ]


def test_restored_alert_of_a_namesake_stays_open_when_all_but_an_unhealthy_query_are_forgotten():
    harness = namesakes("completed").play([(5, "bronze", "StreamingQueryFailed")], 10)
    harness.condition("bronze-11111111", "forgotten").play([], 600)

    assert "StreamingQueryFailed bronze-8ecb3ceb" not in " ".join(harness.reported[1:])


def test_restored_alert_of_a_namesake_stays_open_while_a_query_of_that_name_only_starts():
    harness = namesakes("commits").play([(6, "bronze", "starts")], 300)

    assert "StreamingQueryFailed bronze-8ecb3ceb" not in " ".join(harness.reported[1:])


@pytest.mark.parametrize(
    ("left_open", "names"),
    [
        pytest.param("bronze-8ecb3ceb", ["bronze"], id="one query has the name"),
        pytest.param("bronze-8ecb3ceb", ["bronze", "bronze-raw"], id="another name"),
        pytest.param("bronze-eu", ["bronze", "bronze"], id="no id at the end"),
    ],
)  # fmt: skip
def test_restored_alert_of_an_unknown_query_does_not_end_because_others_are_healthy(
    left_open, names
):
    harness = successor(left(left_open))
    for number, name in enumerate(names):
        harness.condition(f"{name}{f'-1111111{number}' * bool(number)}", "commits", name=name)
    harness.play([], 600)

    assert harness.reported == [f"0 + StreamingQueryFailed {left_open}"]


def test_restored_driver_alert_waits_for_a_query():
    harness = successor(left("*")).play([(100, "b", "starts")], 131)

    assert harness.reported == ["0 + StreamingQueryFailed *", "130 - StreamingQueryFailed *"]


def test_restored_alert_does_not_suppress_worse_or_unrelated_alerts():
    harness = successor(
        left("*", "StreamingQueryStalled"), left("b", "StreamingBatchSlow", severity="warning")
    )
    harness.play([(5, "a", "StreamingQueryFailed"), (5, "b", "StreamingQueryStalled")], 6)

    assert harness.reported[2:] == [
        "5 + StreamingQueryFailed a",
        "6 + StreamingQueryStalled b",
        "6 - StreamingBatchSlow b",
    ]


def test_restored_alert_that_is_found_again_updates_without_notifying():
    harness = successor(left()).play([(10, "a", "StreamingQueryFailed")], 20)
    (alert,) = harness.incidents[0].alerts

    assert harness.reported == ["0 + StreamingQueryFailed a"]
    assert (alert.annotations["reason"], alert.starts_at) == ("as found", WALL - 500)


@pytest.mark.parametrize("still_fails", [True, False])
def test_restored_alert_that_a_silence_muted_is_sent_only_if_it_still_holds(still_fails):
    """It may never have been sent; a page that was sent before is not repeated by the outbox."""
    harness = successor(replace(left(), muted="silenced"))
    harness.silences = [Silence("*", WALL + 20)]
    harness.play([(0, "a", "StreamingQueryFailed" if still_fails else "starts")], 40)

    assert [bool(one.muted) for one in harness.incidents] == [not still_fails]


def test_restored_alert_is_superseded_by_a_new_finding():
    harness = successor(left()).play(
        [(0, "a", "expected"), (120, "a", "StreamingQueryMissing")], 121
    )

    assert harness.reported[1:] == ["121 + StreamingQueryMissing a", "121 - StreamingQueryFailed a"]


def test_restored_alert_found_without_its_query_still_waits_for_the_query():
    harness = successor(left(name="StreamingQueryMissing"))
    harness.play([(10, "a", "StreamingQueryMissing"), (20, "a", "forgotten")], 3600)
    assert harness.reported == ["0 + StreamingQueryMissing a"]
    harness.play([], DAY + 60)

    assert "expired" in harness.ended[-1].alerts[0].annotations


def test_restored_alert_still_found_after_a_day_does_not_expire():
    harness = successor(left(name="StreamingQueryMissing"), repeat_interval_seconds=1e9)
    harness.play([(0, "a", "StreamingQueryMissing")], 2 * DAY)

    assert harness.reported == ["0 + StreamingQueryMissing a"]


def test_restored_alert_whose_query_never_appears_expires_after_a_day():
    harness = successor(left()).play([], DAY)
    ended = harness.incidents[0]

    assert harness.reported[-1] == "86400 - StreamingQueryFailed a"
    assert "expired" in ended.alerts[0].annotations
    assert harness.tick() == ()


def test_restored_alert_is_sent_again_when_a_reminder_is_due():
    harness = successor(left(), repeat_interval_seconds=100.0).play([], 150)

    assert harness.reported == ["0 + StreamingQueryFailed a", "100 ^ StreamingQueryFailed a"]
    assert harness.incidents[0].revision == 3


def test_newest_revision_wins_if_several_receivers_kept_an_incident():
    harness = successor(left(revision=1), left(revision=4), left(revision=2))

    assert [incident.revision for incident in harness.tick()] == [4]


def test_ended_incident_is_not_restored():
    assert successor(left(ends_at=WALL - 100)).tick() == ()


def test_group_is_restored_with_its_ended_members():
    a, b = left("a").alerts[0], replace(left("b").alerts[0], ends_at=WALL - 10)
    group = Incident((b, a), 1)
    harness = successor(group).play([(0, "a", "idle")], 29)
    assert harness.incidents == (group,)
    harness.play([], 31)

    assert harness.reported == ["0 + StreamingQueryFailed b,a", "30 - StreamingQueryFailed b,a"]


def test_alert_in_two_restored_incidents_stays_in_the_newer_one():
    group = replace(left("b"), alerts=(*left("b").alerts, *left("a").alerts))
    harness = successor(left("a", revision=1), group)

    assert [incident.key for incident in harness.tick()] == [group.key]


# -- stale resolves: possibly left open by a driver without a spool ---------------------------

CRITICAL = ["StreamingQueryFailed", "StreamingQueryStalled", "StreamingQueryStopped", "StreamingQueryMissing", "StreamingQueryFlapping", "StreamingOffsetsStalled", "StreamingDataLossRisk", "StreamingQueryGivenUp"]  # fmt: skip
ESCALATED = [
    "StreamingQueryStalled/critical",
    "StreamingBatchSlow/critical",
    "StreamingDataLossRisk/critical",
    "StreamingQueryLagging/critical",
    "StreamingQueryFailed/critical",
    "StreamingQueryFlapping/critical",
]
WARNED = [
    "StreamingBatchSlow",
    "StreamingQueryLagging",
    "StreamingOffsetsRewound",
    "StreamingWatermarkStuck",
    "StreamingInputMissing",
]
LASTED = [f"{name}/lasting" for name in [*CRITICAL, "StreamingBatchSlow", "StreamingQueryLagging"]]
NAMES = [*CRITICAL, *ESCALATED, *LASTED, *WARNED]
CLOSED = {f"a/{name}" for name in NAMES}
DRIVER_CLOSED = {
    "*/StreamingDriverDown",
    "*/QuerypulseEventsMissing",
    "*/QuerypulseMonitoringDegraded",
}
GROUPS_CLOSED = {f"*/{name}" for name in NAMES} | {
    "*/StreamingQueryStalled/driver",
    "*/StreamingQueryStopped/driver",
    "*/StreamingQueryStalled/lasting/driver",
    "*/StreamingQueryStopped/lasting/driver",
}


def closed(harness):
    """The resolved keys, by the second."""
    found = {}
    for text in harness.closed:
        at, key = text.split(" ")
        found.setdefault(int(at), set()).add(key.removeprefix("querypulse/etl/"))
    return found


@pytest.mark.parametrize("recovery", ["commits", "idle", "completed"])
def test_alerts_possibly_left_open_are_resolved_once_the_query_is_healthy(recovery):
    """These are failures and warnings, alone and in groups, and driver alerts."""
    harness = LifecycleHarness().play([(0, "a", recovery)], 600)

    assert closed(harness) == {30: CLOSED | DRIVER_CLOSED | GROUPS_CLOSED}
    assert harness.incidents == ()


def test_alert_of_every_rule_is_resolved():
    names = {sys.modules[check.__module__].NAME for check in ORDER}

    assert names == {name.partition("/")[0] for name in NAMES}


def test_group_is_resolved_when_all_queries_are_healthy():
    harness = LifecycleHarness().play(
        [(0, "a", "idle"), (0, "b", "starts"), (20, "b", "idle")], 600
    )

    assert closed(harness)[30] == CLOSED | DRIVER_CLOSED
    assert closed(harness)[50] == GROUPS_CLOSED | {key.replace("a/", "b/", 1) for key in CLOSED}


def test_driver_is_resolved_first_and_then_the_most_likely_alert():
    """The watcher may open an incident of the driver later, under the same key."""
    critical = [
        one
        for one in LifecycleHarness().play([(0, "a", "idle")], 30).closed
        if "/Querypulse" not in one
    ]

    assert critical[:2] == [
        "30 querypulse/etl/*/StreamingDriverDown",
        "30 querypulse/etl/a/StreamingQueryFailed",
    ]


@pytest.mark.parametrize("app", ["pyspark-shell", "Databricks Shell"])
def test_generic_app_name_resolves_nothing(app):
    assert LifecycleHarness(app).play([(0, "a", "idle")], 600).closed == []


def test_stale_resolves_stay_the_same_object_until_they_change():
    """There are more than a dozen per query, and they are offered at every evaluation."""
    harness = LifecycleHarness().play(
        [(0, "a", "idle"), (0, "b", "starts"), (100, "b", "idle")], 40
    )
    first = harness.lifecycle.stale_resolves
    assert first
    assert harness.play([], 120).lifecycle.stale_resolves is first
    harness.condition("b", "idle").play([], 160)

    assert harness.lifecycle.stale_resolves is not first
    assert harness.lifecycle.stale_resolves[: len(first)] == first


def test_stale_resolves_stop_after_an_hour():
    harness = LifecycleHarness().play([(0, "a", "idle")], 3620)
    assert harness.lifecycle.stale_resolves
    harness.play([], 3640)

    assert harness.lifecycle.stale_resolves == ()


def test_stale_resolve_is_ended_and_as_severe_as_the_alert_it_resolves():
    harness = LifecycleHarness().play([(0, "a", "idle")], 30)
    closing = harness.lifecycle.stale_resolves[0]

    assert (closing.ends_at, closing.severity, closing.muted) == (WALL + 30, "critical", "")


@pytest.mark.parametrize(
    "what",
    ["starts", "ends", "StreamingQueryFailed", "StreamingBatchSlow", "StreamingQueryFlapping"],
)
def test_query_not_seen_healthy_is_not_resolved(what):
    assert LifecycleHarness().play([(0, "a", what)], 600).closed == []


def test_query_with_another_alert_is_resolved_once_healthy():
    """The outbox leaves out the keys that this process opened itself."""
    harness = LifecycleHarness().play([(0, "a", "StreamingQueryStalled"), (10, "a", "idle")], 600)

    assert closed(harness)[40] >= CLOSED


def test_slow_starting_query_is_resolved_after_the_recovery_time():
    harness = LifecycleHarness().play([*all_of(0, "starts", "ab"), (100, "a", "idle")], 600)

    assert closed(harness) == {130: CLOSED | DRIVER_CLOSED}


@pytest.mark.parametrize("glitch", ["StreamingQueryStalled", "StreamingBatchSlow"])
def test_query_with_a_glitch_is_resolved_after_the_recovery_time(glitch):
    story = [(0, "a", "idle"), (20, "a", glitch), (21, "a", "idle")]

    assert (
        LifecycleHarness().play(story, 600).closed[0] == "51 querypulse/etl/*/StreamingDriverDown"
    )
