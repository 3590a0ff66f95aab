"""Drivers are known by URL and app: another app at a URL is another driver, and so is one app at two."""

from __future__ import annotations

import pytest
from support.watch_harness import WALL, A, B, WatchHarness, pod

from querypulse.alerting.alert import Alert, Incident
from querypulse.exporter.shutdown_notice import Notice
from querypulse.sidecar.watch.poll import Said

DAY = 24 * 3600.0


def left_open(app, endpoint):
    """What an earlier watcher has left open, as it was found at ``endpoint``."""
    labels = {"alertname": "StreamingDriverDown", "app": app, "query": "*", "severity": "critical"}
    return Incident((Alert(labels, {"address": endpoint.url}, WALL),))


# -- another app at the URL ---------------------------------------------------------------------


def test_another_app_at_the_url_does_not_stand_in_for_the_one_expected_there():
    watch_harness = (
        WatchHarness().poll().polls(Said.REFUSED, 5).polls(Said.HEALTHY, 12, app="other")
    )
    assert watch_harness.reported == ["etl"]
    assert watch_harness.page["connection"] == "other answers there now"
    assert "another driver is at its address" in watch_harness.page["reason"]


def test_another_app_that_comes_after_the_alert_does_not_end_it():
    watch_harness = (
        WatchHarness().poll().polls(Said.REFUSED, 17).polls(Said.HEALTHY, 600, app="other")
    )
    assert watch_harness.reported == ["etl"]
    assert watch_harness.poll().ended == ["etl"]


def test_the_graceful_end_of_another_app_does_not_silence_the_one_expected():
    watch_harness = WatchHarness().poll().polls(Said.REFUSED, 5).polls(Said.HEALTHY, 5, app="other")
    watch_harness.stopped().polls(Said.REFUSED, 17)
    assert watch_harness.reported == ["etl"]


@pytest.mark.parametrize("said", [Said.REFUSED, Said.SILENT, Said.BARRED, Said.STUCK])
def test_another_app_that_answers_once_does_not_stop_the_clock(said):
    watch_harness = WatchHarness().poll().poll(said=Said.REFUSED).poll(app="other").polls(said, 14)
    assert "etl" in watch_harness.reported


def test_another_app_that_is_killed_is_reported_as_well():
    watch_harness = (
        WatchHarness().poll().polls(Said.REFUSED, 17).polls(Said.HEALTHY, 10, app="other")
    )
    assert watch_harness.polls(Said.REFUSED, 17).reported == ["etl", "other"]


def test_an_app_that_closed_in_good_order_is_not_expected_when_another_takes_its_url():
    watch_harness = WatchHarness().poll().stopped().polls(Said.HEALTHY, 600, app="other")
    assert watch_harness.ever_reported == set()
    assert [one.app for one in watch_harness.tracker.drivers.values()] == ["other"]


def test_an_app_that_a_signal_has_ended_may_be_back_though_another_was_there():
    watch_harness = WatchHarness().poll().stopped(notice=Notice.TERMINATED)
    watch_harness.polls(Said.HEALTHY, 200, app="other").polls(Said.HEALTHY, 60)
    assert "etl" not in watch_harness.ever_reported


def test_an_app_that_is_back_in_time_is_not_reported_though_another_was_there():
    watch_harness = WatchHarness().poll()
    for _ in range(20):
        watch_harness.polls(Said.HEALTHY, 7, app="other").polls(Said.REFUSED, 7).poll()
    assert "etl" not in watch_harness.ever_reported


def test_a_driver_that_does_not_say_its_app_is_the_one_that_was_there():
    assert WatchHarness().poll().polls(Said.HEALTHY, 600, app="").ever_reported == set()


def test_an_app_whose_endpoint_another_has_taken_is_forgotten_after_a_day():
    watch_harness = WatchHarness().poll().polls(Said.REFUSED, 17).poll(app="renamed")
    watch_harness.now += DAY
    assert watch_harness.poll(app="renamed").ended == ["etl"]
    assert watch_harness.polls(Said.REFUSED, 17).reported == ["renamed"]


def test_an_app_that_nobody_has_replaced_is_expected_for_ever():
    watch_harness = WatchHarness().poll().polls(Said.REFUSED, 17)
    watch_harness.now += 2 * DAY
    assert watch_harness.polls(Said.REFUSED, 2).reported == ["etl"]


def test_apps_that_follow_each_other_at_a_url_are_not_remembered_for_ever():
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


def test_the_key_names_app_and_url():
    watch_harness = WatchHarness(A, B).poll(A).poll(B).polls(Said.REFUSED, 17, A)
    (incident,) = [one for one in watch_harness.all[-1].incidents if one.ends_at is None]
    assert incident.key == "querypulse/etl@a:9719/*/StreamingDriverDown"


def test_an_alert_keeps_its_name_when_the_app_is_seen_at_a_second_url():
    watch_harness = WatchHarness(A, B).poll(A).polls(Said.REFUSED, 17, A)
    assert watch_harness.reported == ["etl"]
    assert watch_harness.poll(B).reported == ["etl"]
    assert watch_harness.poll(A).ended == ["etl"]


def test_an_app_that_closed_at_the_other_url_has_its_own_name():
    watch_harness = WatchHarness(A, B).poll(A).poll(B).stopped(A)
    assert watch_harness.polls(Said.REFUSED, 17, B).reported == ["etl"]


def test_the_graceful_end_at_one_url_does_not_silence_the_other():
    watch_harness = WatchHarness(A, B).poll(A).poll(B).stopped(A)
    for _ in range(17):
        watch_harness.poll(A, Said.REFUSED).poll(B, Said.REFUSED)
    assert watch_harness.reported == ["etl"]


def test_pods_of_one_app_under_a_dns_name_are_one_driver():
    watch_harness = WatchHarness(pod(1), pod(2)).poll(pod(1)).poll(pod(2))
    for _ in range(17):
        watch_harness.poll(pod(1), Said.REFUSED).poll(pod(2), Said.REFUSED)
    assert watch_harness.reported == ["etl"]


def test_different_apps_at_two_urls_have_their_own_names():
    watch_harness = WatchHarness(A, B).poll(A).poll(B, app="other")
    for _ in range(17):
        watch_harness.poll(A, Said.REFUSED).poll(B, Said.REFUSED)
    assert watch_harness.reported == ["etl", "other"]


# -- what an earlier watcher left ---------------------------------------------------------------


def test_what_was_left_open_of_one_url_does_not_end_with_the_driver_at_another():
    watch_harness = WatchHarness(A, B)
    watch_harness.evaluate.restore([left_open("etl", A)], watch_harness.now)
    assert watch_harness.polls(Said.HEALTHY, 30, B).reported == ["etl"]
    assert watch_harness.poll(A).ended == ["etl"]


def test_what_was_left_open_under_the_full_name_ends_with_its_driver():
    watch_harness = WatchHarness(A, B)
    watch_harness.evaluate.restore([left_open("etl@a:9719", A)], watch_harness.now)
    assert watch_harness.polls(Said.HEALTHY, 30, B).reported == ["etl@a:9719"]
    assert watch_harness.poll(A).ended == ["etl@a:9719"]


def test_the_bare_name_is_closed_when_all_drivers_of_the_app_are_well():
    watch_harness = WatchHarness(A, B, resolve_after=5.0).poll(A)
    for _ in range(6):
        watch_harness.poll(A).poll(B, Said.REFUSED)
    watch_harness.all.clear()
    watch_harness.poll(B).poll(A)
    assert watch_harness.stale_resolves == ["etl@a:9719", "a:9719"]
    for _ in range(6):
        watch_harness.poll(A, after=0.4).poll(B, after=0.4)
    assert "etl" in watch_harness.stale_resolves


@pytest.mark.parametrize("name", ["etl", "etl@a:9719", "a:9719"])
@pytest.mark.parametrize("said", [Said.REFUSED, Said.SILENT, Said.BROKEN])
def test_a_driver_that_is_down_when_the_watcher_starts_again_has_one_page(name, said):
    watch_harness = WatchHarness()
    watch_harness.evaluate.restore([left_open(name, A)], watch_harness.now)

    assert watch_harness.polls(said, 600).ever_reported == {name}


@pytest.mark.parametrize("name", ["etl", "etl@a:9719", "a:9719"])
def test_what_was_left_open_of_a_url_ends_when_the_driver_is_back_and_not_by_time(name):
    watch_harness = WatchHarness()
    watch_harness.evaluate.restore([left_open(name, A)], watch_harness.now)
    watch_harness.polls(Said.REFUSED, 30)
    watch_harness.now += 2 * DAY
    assert watch_harness.polls(Said.REFUSED, 30).reported == [name]
    assert watch_harness.poll().ended == [name]
    assert watch_harness.polls(Said.REFUSED, 17).reported == ["etl"]


def test_what_was_left_open_is_the_urls_also_when_the_list_comes_later():
    watch_harness = WatchHarness(B)
    watch_harness.evaluate.restore([left_open("etl", A)], watch_harness.now)
    watch_harness.update().listed(A)

    assert watch_harness.polls(Said.REFUSED, 600).ever_reported == {"etl"}


def test_what_was_left_open_and_is_read_late_ends_with_what_was_opened_meanwhile():
    watch_harness = WatchHarness().polls(Said.REFUSED, 90)
    watch_harness.evaluate.restore([left_open("etl", A)], watch_harness.now)
    watch_harness.now += DAY
    assert watch_harness.polls(Said.REFUSED, 30).reported == ["a:9719", "etl"]
    assert watch_harness.poll().ended == ["a:9719", "etl"]


def test_what_was_left_open_ends_with_a_driver_that_does_not_say_its_app():
    watch_harness = WatchHarness()
    watch_harness.evaluate.restore([left_open("etl", A)], watch_harness.now)

    assert watch_harness.polls(Said.REFUSED, 5).poll(app="").ended == ["etl"]


def test_what_was_left_open_of_a_url_that_is_listed_no_more_ends():
    watch_harness = WatchHarness(A, B)
    watch_harness.evaluate.restore([left_open("etl", A)], watch_harness.now)

    assert watch_harness.polls(Said.REFUSED, 5).listed(B).ended == ["etl"]


def test_what_was_left_open_is_not_taken_for_another_app_that_is_there_now():
    watch_harness = WatchHarness().poll(app="other")
    watch_harness.evaluate.restore([left_open("etl", A)], watch_harness.now)
    assert watch_harness.polls(Said.HEALTHY, 60, app="other").reported == ["etl"]
    assert watch_harness.polls(Said.REFUSED, 17).reported == ["other", "etl"]
    assert watch_harness.poll().ended == ["etl"]


def test_another_app_at_the_url_ends_what_was_left_open_after_a_day_only():
    watch_harness = WatchHarness()
    watch_harness.evaluate.restore([left_open("etl", A)], watch_harness.now)
    assert watch_harness.polls(Said.HEALTHY, 60, app="other").reported == ["etl"]
    watch_harness.now += DAY
    assert watch_harness.poll(app="other").ended == ["etl"]


def test_what_was_left_open_of_a_pod_does_not_end_by_time_while_its_address_is_down():
    watch_harness = WatchHarness(pod(1), pod(2))
    found = Alert(left_open("etl", A).alerts[0].labels, {"address": pod(1).shown}, WALL)
    watch_harness.evaluate.restore([Incident((found,))], watch_harness.now)
    watch_harness.poll(pod(1), Said.REFUSED)
    watch_harness.now += 2 * DAY
    assert "etl" in watch_harness.poll(pod(1), Said.REFUSED).reported
    assert watch_harness.listed(pod(2)).ended == ["etl"]


def test_what_was_left_open_is_not_closed_as_what_may_have_been_while_it_is_open():
    watch_harness = WatchHarness(resolve_after=30.0)
    watch_harness.evaluate.restore([left_open("a:9719", A)], watch_harness.now)
    watch_harness.polls(Said.REFUSED, 5).poll().polls(Said.HEALTHY, 60, app="other")

    assert watch_harness.reported == ["a:9719"]
    assert "a:9719" not in watch_harness.stale_resolves
