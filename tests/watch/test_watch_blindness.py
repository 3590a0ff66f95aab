"""A watcher that drivers reject reports it: its monitoring is degraded."""

from __future__ import annotations

import pytest
from support.watch_harness import BAD, A, B, WatchHarness, driver_alerts, pod
from support.watching import serving, watching

from querypulse.watch import alerts
from querypulse.watch.client import Said
from querypulse.watch.tracker import TargetTracker


def test_a_driver_that_rejects_the_watcher_is_an_alert_of_the_watcher():
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


def test_the_alert_resolves_when_the_driver_accepts_the_watcher():
    watch_harness = WatchHarness().poll().polls(Said.BARRED, 17).poll()

    assert watch_harness.blind == []
    assert watch_harness.ended == ["querypulse-watch"]
    assert watch_harness.poll().ended == []


def test_one_alert_names_every_driver_that_rejects_the_watcher():
    watch_harness = WatchHarness(A, B).poll(A).poll(B, app="other")
    for _ in range(20):
        watch_harness.poll(A, Said.BARRED).poll(B, Said.BARRED)
    (alert,) = watch_harness.blind

    assert "http://a:9719, http://b:9719: barred" in alert.annotations["reason"]


def test_other_answers_of_a_driver_raise_no_alert_of_the_watcher():
    others = (Said.HEALTHY, Said.UNREACHABLE, *BAD)
    assert {said: WatchHarness().poll().polls(said, 60).blind for said in others} == {
        said: [] for said in others
    }


def test_a_reminder_keeps_the_start_of_the_alert():
    watch_harness = WatchHarness().poll().polls(Said.BARRED, 17)
    (first,) = watch_harness.blind
    watch_harness.polls(Said.BARRED, 3700, every=10.0)
    (incident,) = watch_harness.open

    assert incident.revision == 1
    assert incident.starts_at == first.starts_at


def restarted(watch_harness, *endpoints):
    """The next watcher, with the open alert of this one restored."""
    (left,) = watch_harness.open
    successor = WatchHarness(*endpoints)
    successor.restored(left)
    return successor.update()


def test_a_pod_with_an_unknown_app_that_rejects_the_watcher_is_named():
    watch_harness = WatchHarness(pod(1), pod(2))
    for _ in range(20):
        watch_harness.poll(pod(1)).poll(pod(2), Said.BARRED)

    assert "http://drivers:9719 (10.0.0.2): barred" in watch_harness.blind[0].annotations["reason"]


@pytest.mark.parametrize(
    "history",
    [
        lambda: WatchHarness().poll().polls(Said.BARRED, 12).poll().polls(Said.BARRED, 12),
        lambda: WatchHarness().poll().polls(Said.BARRED, 10).polls(Said.REFUSED, 600),
        lambda: (
            WatchHarness()
            .poll()
            .polls(Said.BARRED, 10)
            .polls(Said.REFUSED, 600)
            .polls(Said.BARRED, 10)
        ),
    ],
    ids=["a rotated token", "refused briefly, then died", "before and after a restart"],
)
def test_a_brief_rejection_raises_no_alert(history):
    assert history().blind == []


@pytest.mark.parametrize(
    "ends",
    [
        lambda opened: opened.polls(Said.REFUSED, 10).poll(),
        lambda opened: opened.listed(B),
        lambda opened: restarted(opened, A).poll(),
    ],
    ids=["it is back and accepts", "no longer watched", "it accepts the next watcher"],
)
def test_the_alert_of_a_driver_never_seen_resolves(ends):
    opened = WatchHarness().polls(Said.BARRED, 17)
    assert opened.blind[0].annotations["drivers"] == "http://a:9719"
    assert sum("refuses this watcher: barred" in line for line in opened.news) == 1
    assert ends(opened).ended == ["querypulse-watch"]


@pytest.mark.parametrize("said", [Said.UNREACHABLE, *BAD])
@pytest.mark.parametrize("seen", [True, False])
def test_the_alert_stays_open_when_its_driver_goes_down(said, seen):
    watch_harness = WatchHarness().poll() if seen else WatchHarness()
    (first,) = watch_harness.polls(Said.BARRED, 17).blind
    (last,) = watch_harness.polls(said, 600).blind

    assert "http://a:9719: barred" in last.annotations["reason"]
    assert last.starts_at == first.starts_at


def test_the_alert_names_only_drivers_that_still_reject_the_watcher():
    watch_harness = WatchHarness(A, B)
    for _ in range(20):
        watch_harness.poll(A, Said.BARRED).poll(B, Said.BARRED)
    watch_harness.polls(Said.REFUSED, 5, B).poll(A)

    assert watch_harness.blind[0].annotations["reason"].startswith("http://b:9719: barred; check")


def test_the_alert_resolves_when_its_driver_shuts_down_gracefully():
    watch_harness = WatchHarness().poll().polls(Said.BARRED, 17).poll(said=Said.REFUSED)

    assert len(watch_harness.blind) == 1
    assert watch_harness.stopped().ended == ["querypulse-watch"]


def test_the_next_watcher_does_not_resolve_the_alert_before_it_knows_its_targets():
    left = WatchHarness().polls(Said.BARRED, 17).open[0]
    successor = WatchHarness()
    successor.tracker = TargetTracker(15.0, 5.0)
    successor.evaluate = driver_alerts(successor.tracker)
    successor.restored(left)

    assert len(successor.update().blind) == 1
    assert len(successor.listed(A).blind) == 1


@pytest.mark.parametrize("said", [Said.UNREACHABLE, *BAD])
def test_the_next_watcher_keeps_the_alert_open_when_its_driver_is_down(said):
    watch_harness = restarted(WatchHarness().polls(Said.BARRED, 17), A).polls(said, 600)

    assert "http://a:9719" in watch_harness.blind[0].annotations["reason"]
    assert "querypulse-watch" in watch_harness.poll().ended


def test_the_next_watcher_resolves_the_alert_although_another_driver_is_down():
    watch_harness = restarted(WatchHarness().polls(Said.BARRED, 17), A, B).polls(Said.REFUSED, 5, B)

    assert watch_harness.poll(A).ended == ["querypulse-watch"]


def test_the_next_watcher_resolves_an_alert_of_drivers_it_does_not_watch():
    assert restarted(WatchHarness().polls(Said.BARRED, 17), B).ended == ["querypulse-watch"]


@pytest.mark.slow
def test_a_driver_that_requires_a_token_is_an_alert_over_real_http(monkeypatch):
    monkeypatch.setattr(alerts, "AFTER_SECONDS", 0.5)
    with serving("etl", token="wanted") as server, watching(server.url) as reported:
        reported.wait_for("querypulse-watch")
