"""All drivers together: what is worst, what they have in common, and who waits for whom."""

from __future__ import annotations

import msgspec
import pytest
from support.fleets import BROKER, alert, dataset, seen_driver, seen_fleet
from support.patience import WALL
from support.watch_harness import A, B, WatchHarness, left_open

from querypulse.watch.client import DriverAlert, DriverQuery, Said
from querypulse.watch.fleet import DOWN, ENDED, REFUSES, STOPPED, UNANSWERED, UP, Seen, fleet_of

S3 = "s3://lake"


def driver(name, *queries, state=UP, alerts=(), **changes):
    """A driver whose queries are rows of ``/status``."""
    return seen_driver(
        99,
        state,
        name=name,
        url=changes.pop("url", f"http://{name}:9719"),
        queries=tuple(msgspec.convert(queries, list[DriverQuery])),
        alerts=tuple(msgspec.convert(alerts, list[DriverAlert])),
        **changes,
    )


def query(name, state="running", reads=(), writes=(), namespace=S3):
    return {
        "name": name,
        "state": state,
        "reads": [dataset(namespace, path) for path in reads],
        "writes": [dataset(namespace, path) for path in writes],
    }


def fleet(*drivers, **changes):
    return fleet_of(Seen(at=WALL, drivers=drivers, **changes))


# -- drivers ----------------------------------------------------------------------------------


def test_the_worst_drivers_come_first():
    critical = [alert("StreamingQueryFailed", "gold")]
    warning = [alert("StreamingBatchSlow", "gold", "warning")]
    shown = fleet(
        driver("well"),
        driver("unanswered", state=UNANSWERED),
        driver("slow", alerts=warning),
        driver("failed", alerts=critical),
        driver("gone", state=DOWN),
        driver("away", state=STOPPED),
    )
    names = [entry.name for entry in shown.drivers]
    assert names == ["gone", "failed", "slow", "unanswered", "well", "away"]
    assert [entry.needs_somebody for entry in shown.drivers] == [True] * 4 + [False] * 2


@pytest.mark.parametrize("state", ["running", "idle", "waiting", "stopped", "completed"])
def test_a_query_that_works_or_has_ended_as_intended_needs_nobody(state):
    (entry,) = fleet(driver("etl", query("gold", state))).drivers
    assert not entry.needs_somebody


def test_an_ignored_query_needs_nobody():
    (entry,) = fleet(driver("etl", {**query("gold", "failed"), "ignored": True})).drivers
    assert not entry.needs_somebody


def test_queries_of_drivers_that_are_gone_are_not_counted_as_running():
    shown = fleet(driver("a", query("gold")), driver("b", query("gold"), state=DOWN))
    assert shown.queries == {"running": 1}


def test_drivers_are_grouped_by_each_label_and_team_comes_first():
    shown = fleet_of(seen_fleet(100))
    labels = [(group.label, group.value, group.drivers) for group in shown.groups]
    assert labels[0] == ("team", "payments", 20)
    assert labels[-1] == ("env", "prod", 100)


# -- incidents --------------------------------------------------------------------------------


def test_alerts_of_one_query_are_one_incident_with_the_critical_headline():
    alerts = [
        alert("StreamingBatchSlow", "gold", "warning", summary="gold is slow"),
        alert("StreamingQueryFailed", "gold", summary="gold has failed"),
    ]
    (incident,) = fleet(driver("etl", alerts=alerts)).incidents
    assert (incident.query, incident.severity, incident.headline) == (
        "gold",
        "critical",
        "gold has failed",
    )
    assert incident.since == WALL - 3600


def test_an_alert_in_the_incident_of_the_driver_is_no_incident_of_its_own():
    alerts = [
        alert("StreamingQueryFailed", "*", summary="3 queries have failed"),
        alert("StreamingQueryFailed", "gold", incident="*"),
    ]
    incidents = fleet(driver("etl", alerts=alerts)).incidents
    assert [incident.query for incident in incidents] == ["*"]


def test_what_is_silenced_comes_last_and_is_not_counted():
    alerts = [
        alert("StreamingQueryFailed", "a", muted="silenced until tomorrow"),
        alert("StreamingBatchSlow", "b", "warning"),
    ]
    shown = fleet(driver("etl", alerts=alerts))
    assert [incident.query for incident in shown.incidents] == ["b", "a"]
    assert shown.drivers[0].incidents == 1


def test_a_driver_that_is_down_has_the_incident_of_the_watcher():
    own = left_open("etl", A)
    alerts = [alert("StreamingDriverMemory", "*", "warning")]
    shown = fleet(driver("etl", state=DOWN, alerts=alerts), incidents=(own,))
    (incident,) = shown.incidents
    assert (incident.driver, incident.alertname) == ("etl", "StreamingDriverDown")


def test_what_a_driver_left_open_that_was_stopped_is_not_shown():
    alerts = [alert("StreamingQueryFailed", "gold")]
    assert fleet(driver("etl", state=STOPPED, alerts=alerts)).incidents == ()


def test_one_broker_is_one_cause_of_fifty_drivers():
    shown = fleet_of(seen_fleet())
    (cause,) = shown.causes
    assert (cause.cause, cause.drivers) == (f"source unreachable: {BROKER}", 50)
    assert len(cause.incidents) == 50


def test_a_cause_in_one_driver_is_not_shared():
    alerts = [alert("StreamingQueryFailed", name, cause="the broker") for name in ("a", "b")]
    assert fleet(driver("etl", alerts=alerts)).causes == ()


def test_incidents_without_a_cause_share_none():
    alerts = [alert("StreamingQueryFailed", "gold", cause="")]
    assert fleet(driver("a", alerts=alerts), driver("b", alerts=alerts)).causes == ()


def test_an_alert_with_an_odd_time_has_none():
    alerts = [{**alert("StreamingQueryFailed", "gold"), "starts_at": "yesterday"}]
    (incident,) = fleet(driver("etl", alerts=alerts)).incidents
    assert incident.since is None


# -- who feeds whom ---------------------------------------------------------------------------


def chain(query_state="failed", **first):
    """Three drivers: bronze of ``a`` feeds silver of ``b``, which feeds gold of ``c``."""
    return (
        driver("a", query("bronze", query_state, writes=["/bronze"]), **first),
        driver("b", query("silver", "idle", reads=["/bronze"], writes=["/silver"])),
        driver("c", query("gold", "idle", reads=["/silver"])),
    )


def test_a_chain_over_three_drivers_names_its_root():
    (entry,) = fleet(*chain()).starved
    assert (entry.driver, entry.query, entry.state) == ("a", "bronze", "failed")
    assert entry.readers == (("b", "silver"), ("c", "gold"))


def test_the_queries_of_a_driver_that_is_down_are_roots():
    (entry,) = fleet(*chain("running", state=DOWN)).starved
    assert (entry.query, entry.state) == ("bronze", DOWN)


@pytest.mark.parametrize("state", ["running", "idle", "slow", "lagging", "starting", "completed"])
def test_readers_of_a_query_in_another_state_are_not_starved(state):
    assert fleet(*chain(state)).starved == ()


@pytest.mark.parametrize("state", [UP, UNANSWERED, REFUSES, STOPPED, ENDED])
def test_readers_of_a_driver_that_is_not_down_are_not_starved(state):
    assert fleet(*chain("running", state=state)).starved == ()


def test_a_dataset_with_another_writer_is_not_starved():
    other = driver("d", query("bronze", writes=["/bronze"]))
    assert fleet(*chain(), other).starved == ()


def test_a_query_that_starves_within_its_driver_is_left_to_it():
    own = driver("a", query("bronze", "failed", writes=["/x"]), query("silver", reads=["/x"]))
    assert fleet(own).starved == ()


def test_queries_that_feed_each_other_starve_together():
    ring = (
        driver("a", query("one", "failed", reads=["/two"], writes=["/one"])),
        driver("b", query("two", "idle", reads=["/one"], writes=["/two"])),
    )
    (entry,) = fleet(*ring).starved
    assert entry.readers == (("b", "two"),)


def test_a_local_folder_is_another_one_on_each_machine():
    pair = (
        driver("a", query("bronze", "failed", writes=["/data"], namespace="file")),
        driver("b", query("silver", reads=["/data"], namespace="file")),
    )
    shown = fleet(*pair)
    assert (shown.starved, shown.feeds) == ((), ())


def test_a_dataset_without_a_known_namespace_may_be_another_one():
    pair = (
        driver("a", query("bronze", "failed", writes=["orders"], namespace="")),
        driver("b", query("silver", reads=["orders"], namespace="")),
    )
    shown = fleet(*pair)
    assert (shown.starved, shown.feeds) == ((), ())


def test_a_local_folder_is_one_of_both_drivers_of_a_machine():
    pair = (
        driver("a", query("bronze", "failed", writes=["/d"], namespace="file"), url="http://h:1"),
        driver("b", query("silver", reads=["/d"], namespace="file"), url="http://h:2"),
    )
    shown = fleet(*pair)
    assert len(shown.starved) == len(shown.feeds) == 1


def test_datasets_between_drivers_are_listed_and_those_within_one_are_not():
    shown = fleet(*chain("running"), driver("d", query("x", reads=["/d"], writes=["/d"])))
    assert [(feed.name, feed.writers, feed.readers) for feed in shown.feeds] == [
        ("/bronze", (("a", "bronze"),), (("b", "silver"),)),
        ("/silver", (("b", "silver"),), (("c", "gold"),)),
    ]


def test_what_does_not_fit_is_counted():
    alerts = [alert("StreamingQueryFailed", f"query-{number}") for number in range(600)]
    shown = fleet(driver("etl", alerts=alerts))
    assert (len(shown.incidents), shown.left_out) == (500, {"incidents": 100})


# -- what the watcher has seen ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("story", "state"),
    [
        ("healthy", UP),
        ("healthy, refused", UNANSWERED),
        ("healthy, refused 20", DOWN),
        ("healthy, barred 2", REFUSES),
        ("healthy, stopped", STOPPED),
        ("healthy, terminated", ENDED),
        ("healthy, refused 20, healthy 2", UP),
    ],
)
def test_a_driver_is_shown_as_it_was_seen_last(story, state):
    harness = WatchHarness(resolve_after=0.0).play(story)
    (seen,) = harness.evaluate.seen(harness.now, WALL)
    assert (seen.name, seen.state) == ("etl", state)


def test_a_driver_keeps_what_it_has_shown_last():
    harness = WatchHarness(A, B)
    shown = (DriverQuery("gold", "running"),)
    harness.poll(queries=shown, labels={"team": "payments"}).polls(Said.REFUSED, 3)
    seen = harness.evaluate.seen(harness.now, WALL)[0]
    assert (seen.queries, seen.labels) == (shown, {"team": "payments"})
