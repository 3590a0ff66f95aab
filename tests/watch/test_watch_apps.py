"""Drivers are identified by URL and app: another app at a URL, or another URL, is another driver."""

from __future__ import annotations

import pytest
from support.watch_harness import A, B, WatchHarness, driver_alerts, left_open, pod

from querypulse.exporter.pages import Notice
from querypulse.watch.client import Said
from querypulse.watch.tracker import TargetTracker

DAY = 24 * 3600.0


# -- another app at the URL ---------------------------------------------------------------------


def test_another_app_at_the_url_does_not_replace_the_expected_one():
    watch_harness = (
        WatchHarness().poll().polls(Said.REFUSED, 5).polls(Said.HEALTHY, 12, app="other")
    )
    assert watch_harness.reported == ["etl"]
    assert watch_harness.page["connection"] == "other answers there now"
    assert "another driver is at its address" in watch_harness.page["reason"]


def test_another_app_at_the_url_does_not_resolve_the_alert():
    watch_harness = (
        WatchHarness().poll().polls(Said.REFUSED, 17).polls(Said.HEALTHY, 600, app="other")
    )
    assert watch_harness.reported == ["etl"]
    assert watch_harness.poll().ended == ["etl"]


def test_graceful_shutdown_of_another_app_does_not_excuse_the_expected_one():
    watch_harness = WatchHarness().poll().polls(Said.REFUSED, 5).polls(Said.HEALTHY, 5, app="other")
    watch_harness.stopped().polls(Said.REFUSED, 17)
    assert watch_harness.reported == ["etl"]


@pytest.mark.parametrize("said", [Said.REFUSED, Said.SILENT, Said.BARRED, Said.STUCK])
def test_another_app_that_answers_once_does_not_reset_the_time(said):
    watch_harness = WatchHarness().poll().poll(said=Said.REFUSED).poll(app="other").polls(said, 14)
    assert "etl" in watch_harness.reported


def test_another_app_that_is_killed_is_reported_too():
    watch_harness = (
        WatchHarness().poll().polls(Said.REFUSED, 17).polls(Said.HEALTHY, 10, app="other")
    )
    assert watch_harness.polls(Said.REFUSED, 17).reported == ["etl", "other"]


def test_an_app_that_shut_down_gracefully_is_not_expected_when_another_takes_its_url():
    watch_harness = WatchHarness().poll().stopped().polls(Said.HEALTHY, 600, app="other")
    assert watch_harness.ever_reported == set()
    assert [one.app for one in watch_harness.tracker.drivers.values()] == ["other"]


def test_an_app_ended_by_a_signal_may_return_after_another_app():
    watch_harness = WatchHarness().poll().stopped(notice=Notice.TERMINATED)
    watch_harness.polls(Said.HEALTHY, 200, app="other").polls(Said.HEALTHY, 60)
    assert "etl" not in watch_harness.ever_reported


def test_an_app_that_returns_in_time_is_not_reported_despite_another_app():
    watch_harness = WatchHarness().poll()
    for _ in range(20):
        watch_harness.polls(Said.HEALTHY, 7, app="other").polls(Said.REFUSED, 7).poll()
    assert "etl" not in watch_harness.ever_reported


def test_a_driver_without_an_app_name_counts_as_the_known_driver():
    assert WatchHarness().poll().polls(Said.HEALTHY, 600, app="").ever_reported == set()


def test_an_app_replaced_at_its_url_is_forgotten_after_a_day():
    watch_harness = WatchHarness().poll().polls(Said.REFUSED, 17).poll(app="renamed")
    watch_harness.now += DAY
    assert watch_harness.poll(app="renamed").ended == ["etl"]
    assert watch_harness.polls(Said.REFUSED, 17).reported == ["renamed"]


def test_an_app_without_a_replacement_is_expected_for_ever():
    watch_harness = WatchHarness().poll().polls(Said.REFUSED, 17)
    watch_harness.now += 2 * DAY
    assert watch_harness.polls(Said.REFUSED, 2).reported == ["etl"]


def test_successive_apps_at_a_url_are_forgotten():
    watch_harness = WatchHarness()
    for number in range(50):
        watch_harness.poll(app=f"night-{number}").stopped()
    assert len(watch_harness.tracker.drivers) == 1
    assert watch_harness.ever_reported == set()


# -- one app at two URLs ------------------------------------------------------------------------


def test_one_app_at_two_urls_is_two_drivers():
    watch_harness = WatchHarness(A, B).poll(A).poll(B)
    for _ in range(17):
        watch_harness.poll(A, Said.REFUSED).poll(B, Said.REFUSED)
    assert watch_harness.reported == ["etl@a:9719", "etl@b:9719"]
    assert watch_harness.poll(A).ended == ["etl@a:9719"]
    assert watch_harness.poll(B).ended == ["etl@b:9719"]


def test_the_key_contains_app_and_url():
    watch_harness = WatchHarness(A, B).poll(A).poll(B).polls(Said.REFUSED, 17, A)
    assert watch_harness.open[0].key == "querypulse/etl%40a%3A9719/*"


def test_an_alert_keeps_its_name_when_the_app_is_seen_at_a_second_url():
    watch_harness = WatchHarness(A, B).poll(A).polls(Said.REFUSED, 17, A)
    assert watch_harness.reported == ["etl"]
    assert watch_harness.poll(B).reported == ["etl"]
    assert watch_harness.poll(A).ended == ["etl"]


def test_graceful_shutdown_at_one_url_does_not_excuse_the_other():
    watch_harness = WatchHarness(A, B).poll(A).poll(B).stopped(A)
    for _ in range(17):
        watch_harness.poll(A, Said.REFUSED).poll(B, Said.REFUSED)
    assert watch_harness.reported == ["etl"]


# -- restored alerts ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["etl", "etl@a:9719"])
def test_a_restored_alert_of_one_url_does_not_resolve_with_the_driver_at_another(name):
    watch_harness = WatchHarness(A, B).restored(left_open(name, A))
    assert watch_harness.polls(Said.HEALTHY, 30, B).reported == [name]
    assert watch_harness.poll(A).ended == [name]


@pytest.mark.parametrize("name", ["etl", "etl@a:9719", "a:9719"])
@pytest.mark.parametrize("said", [Said.REFUSED, Said.SILENT, Said.BROKEN])
def test_a_driver_that_is_down_when_the_watcher_restarts_is_paged_once(name, said):
    watch_harness = WatchHarness()
    watch_harness.restored(left_open(name, A))

    assert watch_harness.polls(said, 600).ever_reported == {name}


@pytest.mark.parametrize("name", ["etl", "etl@a:9719", "a:9719"])
def test_a_restored_alert_of_a_url_resolves_with_its_driver_and_not_by_time(name):
    watch_harness = WatchHarness()
    watch_harness.restored(left_open(name, A))
    watch_harness.polls(Said.REFUSED, 30)
    watch_harness.now += 2 * DAY
    assert watch_harness.polls(Said.REFUSED, 30).reported == [name]
    assert watch_harness.poll().ended == [name]
    assert watch_harness.polls(Said.REFUSED, 17).reported == ["etl"]


def test_a_restored_alert_waits_for_the_list_of_targets():
    watch_harness = WatchHarness()
    watch_harness.tracker = TargetTracker(15.0, 5.0)
    watch_harness.evaluate = driver_alerts(watch_harness.tracker)
    watch_harness.restored(left_open("etl", A)).update().listed(A)

    assert watch_harness.polls(Said.REFUSED, 600).ever_reported == {"etl"}


def test_an_alert_restored_late_resolves_with_the_one_opened_meanwhile():
    watch_harness = WatchHarness().polls(Said.REFUSED, 90)
    watch_harness.restored(left_open("etl", A))
    watch_harness.now += DAY
    assert watch_harness.polls(Said.REFUSED, 30).reported == ["a:9719", "etl"]
    assert watch_harness.poll().ended == ["a:9719", "etl"]


def test_a_restored_alert_resolves_with_a_driver_without_an_app_name():
    watch_harness = WatchHarness()
    watch_harness.restored(left_open("etl", A))

    assert watch_harness.polls(Said.REFUSED, 5).poll(app="").ended == ["etl"]


def test_a_restored_alert_of_an_unlisted_url_resolves():
    watch_harness = WatchHarness(A, B)
    watch_harness.restored(left_open("etl", A))

    assert watch_harness.polls(Said.REFUSED, 5).listed(B).ended == ["etl"]


def test_a_restored_alert_is_not_assigned_to_another_app_at_its_url():
    watch_harness = WatchHarness().poll(app="other")
    watch_harness.restored(left_open("etl", A))
    assert watch_harness.polls(Said.HEALTHY, 60, app="other").reported == ["etl"]
    assert watch_harness.polls(Said.REFUSED, 17).reported == ["etl", "other"]
    assert watch_harness.poll().ended == ["etl"]


def test_another_app_at_the_url_resolves_a_restored_alert_only_after_a_day():
    watch_harness = WatchHarness()
    watch_harness.restored(left_open("etl", A))
    assert watch_harness.polls(Said.HEALTHY, 60, app="other").reported == ["etl"]
    watch_harness.now += DAY
    assert watch_harness.poll(app="other").ended == ["etl"]


def test_a_restored_alert_of_a_pod_does_not_resolve_while_its_address_is_down():
    watch_harness = WatchHarness(pod(1), pod(2))
    watch_harness.restored(left_open("etl", pod(1)))
    watch_harness.poll(pod(1), Said.REFUSED)
    watch_harness.now += 2 * DAY
    assert "etl" in watch_harness.poll(pod(1), Said.REFUSED).reported
    assert watch_harness.listed(pod(2)).ended == ["etl"]


def test_a_restored_alert_is_not_stale():
    watch_harness = WatchHarness(resolve_after=30.0).restored(left_open("a:9719", A))

    assert watch_harness.polls(Said.HEALTHY, 60).stale == ["etl@a:9719"]
