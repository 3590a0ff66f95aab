"""A watcher that drivers do not let in says so: it sees less than it is trusted to see."""

from __future__ import annotations

import pytest
from support.watch_harness import BAD, TERMS, A, B, WatchHarness, pod
from support.watching import serving, watching

from querypulse.sidecar.watch import blindness
from querypulse.sidecar.watch.driver_alerts import DriverAlerts
from querypulse.sidecar.watch.poll import Said
from querypulse.sidecar.watch.target_tracker import TargetTracker


def test_a_driver_that_bars_the_watcher_is_an_alert_of_the_watcher():
    watch_harness = WatchHarness().poll().polls(Said.BARRED, 17)
    (alert,) = watch_harness.blind

    assert alert.labels == {
        "alertname": "QuerypulseMonitoringDegraded",
        "app": "querypulse-watch",
        "query": "*",
        "severity": "warning",
    }
    assert "http://a:9719: barred; check --token-file" in alert.annotations["reason"]
    assert watch_harness.ever_reported == set()


def test_the_log_says_once_who_does_not_let_the_watcher_in():
    lines = WatchHarness().poll().polls(Said.BARRED, 30).news

    assert sum("etl refuses this watcher: barred" in line for line in lines) == 1


def test_it_ends_when_the_driver_lets_the_watcher_in():
    watch_harness = WatchHarness().poll().polls(Said.BARRED, 17).poll()

    assert watch_harness.blind == []
    assert watch_harness.ended == ["querypulse-watch"]
    assert watch_harness.poll().ended == []


def test_every_driver_that_bars_the_watcher_is_named_in_one_alert():
    watch_harness = WatchHarness(A, B).poll(A).poll(B, app="other")
    for _ in range(20):
        watch_harness.poll(A, Said.BARRED).poll(B, Said.BARRED)
    (alert,) = watch_harness.blind

    assert "http://a:9719, http://b:9719: barred" in alert.annotations["reason"]


def test_a_token_that_is_rotated_notifies_nobody():
    watch_harness = (
        WatchHarness().poll().polls(Said.BARRED, 12).polls(Said.HEALTHY, 5).polls(Said.BARRED, 12)
    )

    assert watch_harness.blind == []


@pytest.mark.parametrize("said", [Said.HEALTHY, Said.UNREACHABLE, *BAD])
def test_a_driver_that_does_anything_else_does_not_blind_the_watcher(said):
    assert WatchHarness().poll().polls(said, 60).blind == []


def test_it_is_reminded_of_and_keeps_its_beginning():
    watch_harness = WatchHarness().poll().polls(Said.BARRED, 17)
    (first,) = watch_harness.blind
    watch_harness.polls(Said.BARRED, 3700, every=10.0)
    (incident,) = watch_harness.all[-1].incidents

    assert incident.revision == 1
    assert incident.starts_at == first.starts_at


def test_the_next_watcher_ends_what_the_one_before_left_open():
    (left,) = WatchHarness().poll().polls(Said.BARRED, 17).all[-1].incidents
    successor = WatchHarness()
    successor.evaluate.restore([left], successor.now)

    assert len(successor.update().blind) == 1
    assert successor.poll().ended == ["querypulse-watch"]


def restarted(watch_harness, *endpoints):
    """The next watcher, with what this one left open."""
    (left,) = [one for one in watch_harness.all[-1].incidents if one.ends_at is None]
    successor = WatchHarness(*endpoints)
    successor.evaluate.restore([left], successor.now)
    return successor.update()


def test_a_driver_that_was_never_seen_and_bars_the_watcher_is_an_alert_of_the_watcher():
    watch_harness = WatchHarness().polls(Said.BARRED, 17)

    assert "http://a:9719: barred" in watch_harness.blind[0].annotations["reason"]


def test_a_pod_whose_app_is_not_known_and_that_bars_the_watcher_is_named():
    watch_harness = WatchHarness(pod(1), pod(2))
    for _ in range(20):
        watch_harness.poll(pod(1)).poll(pod(2), Said.BARRED)

    assert "http://drivers:9719 (10.0.0.2): barred" in watch_harness.blind[0].annotations["reason"]


def test_a_driver_that_bars_the_watcher_after_it_closed_in_good_order_is_named():
    assert len(WatchHarness().poll().stopped().polls(Said.BARRED, 17).blind) == 1


@pytest.mark.parametrize("said", [Said.UNREACHABLE, *BAD])
@pytest.mark.parametrize("seen", [True, False])
def test_it_does_not_end_because_the_driver_it_names_is_down(said, seen):
    watch_harness = WatchHarness().poll() if seen else WatchHarness()
    (first,) = watch_harness.polls(Said.BARRED, 17).blind
    (last,) = watch_harness.polls(said, 600).blind

    assert "http://a:9719: barred" in last.annotations["reason"]
    assert last.starts_at == first.starts_at


def test_it_ends_when_the_driver_it_names_comes_back_and_lets_the_watcher_in():
    watch_harness = WatchHarness().polls(Said.BARRED, 17).polls(Said.REFUSED, 10)

    assert watch_harness.poll().ended == ["querypulse-watch"]


def test_it_says_once_whom_it_names():
    (alert,) = WatchHarness().polls(Said.BARRED, 17).blind

    assert alert.annotations["drivers"] == "http://a:9719"
    assert alert.annotations["description"].count("http://a:9719") <= 1


def test_it_names_only_those_that_have_not_let_the_watcher_in_since():
    watch_harness = WatchHarness(A, B)
    for _ in range(20):
        watch_harness.poll(A, Said.BARRED).poll(B, Said.BARRED)
    watch_harness.polls(Said.REFUSED, 5, B).poll(A)

    assert watch_harness.blind[0].annotations["reason"].startswith("http://b:9719: barred; check")


def test_it_ends_when_the_driver_it_names_closes_in_good_order():
    watch_harness = WatchHarness().poll().polls(Said.BARRED, 17).poll(said=Said.REFUSED)

    assert len(watch_harness.blind) == 1
    assert watch_harness.stopped().ended == ["querypulse-watch"]


def test_it_ends_when_the_driver_it_names_is_no_longer_watched():
    assert WatchHarness().polls(Said.BARRED, 17).listed(B).ended == ["querypulse-watch"]


def test_one_who_barred_the_watcher_for_a_moment_and_died_does_not_blind_it():
    assert WatchHarness().poll().polls(Said.BARRED, 10).polls(Said.REFUSED, 600).blind == []


def test_a_moment_before_and_one_after_a_restart_of_the_driver_are_not_added_up():
    watch_harness = WatchHarness().poll().polls(Said.BARRED, 10).polls(Said.REFUSED, 600)

    assert watch_harness.polls(Said.BARRED, 10).blind == []


def test_the_next_watcher_does_not_end_it_before_it_knows_where_to_poll():
    left = WatchHarness().polls(Said.BARRED, 17).all[-1].incidents[0]
    successor = WatchHarness()
    successor.tracker = TargetTracker(15.0, 5.0)
    successor.evaluate = DriverAlerts(successor.tracker, TERMS)
    successor.evaluate.restore([left], successor.now)

    assert len(successor.update().blind) == 1
    assert len(successor.listed(A).blind) == 1


@pytest.mark.parametrize("said", [Said.UNREACHABLE, *BAD])
def test_the_next_watcher_does_not_end_it_because_the_driver_it_names_is_down(said):
    watch_harness = restarted(WatchHarness().polls(Said.BARRED, 17), A).polls(said, 600)

    assert "http://a:9719" in watch_harness.blind[0].annotations["reason"]
    assert "querypulse-watch" in watch_harness.poll().ended


def test_the_next_watcher_ends_it_though_another_driver_is_down():
    watch_harness = restarted(WatchHarness().polls(Said.BARRED, 17), A, B).polls(Said.REFUSED, 5, B)

    assert watch_harness.poll(A).ended == ["querypulse-watch"]


def test_the_next_watcher_ends_what_names_nobody_that_it_watches():
    assert restarted(WatchHarness().polls(Said.BARRED, 17), B).ended == ["querypulse-watch"]


@pytest.mark.slow
def test_a_driver_that_wants_a_token_is_an_alert_over_real_http(monkeypatch):
    monkeypatch.setattr(blindness, "AFTER_SECONDS", 0.5)
    with serving("etl", token="wanted") as server, watching(server.url) as reported:
        reported.wait_for("querypulse-watch")
