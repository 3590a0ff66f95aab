"""Drivers are known by URL and app: another app at a URL is another driver, and so is one app at two."""

from __future__ import annotations

import pytest
from support.lookout import WALL, A, B, Lookout, pod

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
    lookout = Lookout().poll().polls(Said.REFUSED, 5).polls(Said.HEALTHY, 12, app="other")
    assert lookout.told == ["etl"]
    assert lookout.page["connection"] == "other answers there now"
    assert "another driver is at its address" in lookout.page["reason"]


def test_another_app_that_comes_after_the_alert_does_not_end_it():
    lookout = Lookout().poll().polls(Said.REFUSED, 17).polls(Said.HEALTHY, 600, app="other")
    assert lookout.told == ["etl"]
    assert lookout.poll().ended == ["etl"]


def test_the_graceful_end_of_another_app_does_not_silence_the_one_expected():
    lookout = Lookout().poll().polls(Said.REFUSED, 5).polls(Said.HEALTHY, 5, app="other")
    lookout.stopped().polls(Said.REFUSED, 17)
    assert lookout.told == ["etl"]


@pytest.mark.parametrize("said", [Said.REFUSED, Said.SILENT, Said.BARRED, Said.STUCK])
def test_another_app_that_answers_once_does_not_stop_the_clock(said):
    lookout = Lookout().poll().poll(said=Said.REFUSED).poll(app="other").polls(said, 14)
    assert "etl" in lookout.told


def test_another_app_that_is_killed_is_reported_as_well():
    lookout = Lookout().poll().polls(Said.REFUSED, 17).polls(Said.HEALTHY, 10, app="other")
    assert lookout.polls(Said.REFUSED, 17).told == ["etl", "other"]


def test_an_app_that_closed_in_good_order_is_not_missed_when_another_takes_its_url():
    lookout = Lookout().poll().stopped().polls(Said.HEALTHY, 600, app="other")
    assert lookout.ever_told == set()
    assert [one.app for one in lookout.tracker.drivers.values()] == ["other"]


def test_an_app_that_a_signal_has_ended_may_be_back_though_another_was_there():
    lookout = Lookout().poll().stopped(notice=Notice.TERMINATED)
    lookout.polls(Said.HEALTHY, 200, app="other").polls(Said.HEALTHY, 60)
    assert "etl" not in lookout.ever_told


def test_an_app_that_is_back_in_time_is_not_reported_though_another_was_there():
    lookout = Lookout().poll()
    for _ in range(20):
        lookout.polls(Said.HEALTHY, 7, app="other").polls(Said.REFUSED, 7).poll()
    assert "etl" not in lookout.ever_told


def test_a_driver_that_does_not_say_its_app_is_the_one_that_was_there():
    assert Lookout().poll().polls(Said.HEALTHY, 600, app="").ever_told == set()


def test_an_app_whose_endpoint_another_has_taken_is_forgotten_after_a_day():
    lookout = Lookout().poll().polls(Said.REFUSED, 17).poll(app="renamed")
    lookout.now += DAY
    assert lookout.poll(app="renamed").ended == ["etl"]
    assert lookout.polls(Said.REFUSED, 17).told == ["renamed"]


def test_an_app_that_nobody_has_replaced_is_missed_for_ever():
    lookout = Lookout().poll().polls(Said.REFUSED, 17)
    lookout.now += 2 * DAY
    assert lookout.polls(Said.REFUSED, 2).told == ["etl"]


def test_apps_that_follow_each_other_at_a_url_are_not_remembered_for_ever():
    lookout = Lookout()
    for number in range(50):
        lookout.poll(app=f"night-{number}").stopped()
    assert len(lookout.tracker.drivers) == 1
    assert lookout.ever_told == set()


# -- one app at two URLs ------------------------------------------------------------------------


def test_one_app_at_two_urls_is_two_drivers():
    lookout = Lookout(A, B).poll(A).poll(B)
    for _ in range(17):
        lookout.poll(A, Said.REFUSED).poll(B, Said.REFUSED)
    assert lookout.told == ["etl@a:9719", "etl@b:9719"]
    assert lookout.poll(A).ended == ["etl@a:9719"]
    assert lookout.poll(B).ended == ["etl@b:9719"]


def test_the_key_names_app_and_url():
    lookout = Lookout(A, B).poll(A).poll(B).polls(Said.REFUSED, 17, A)
    (incident,) = [one for one in lookout.all[-1].incidents if one.ends_at is None]
    assert incident.key == "querypulse/etl@a:9719/*/StreamingDriverDown"


def test_an_alert_keeps_its_name_when_the_app_is_seen_at_a_second_url():
    lookout = Lookout(A, B).poll(A).polls(Said.REFUSED, 17, A)
    assert lookout.told == ["etl"]
    assert lookout.poll(B).told == ["etl"]
    assert lookout.poll(A).ended == ["etl"]


def test_an_app_that_closed_at_the_other_url_has_its_own_name():
    lookout = Lookout(A, B).poll(A).poll(B).stopped(A)
    assert lookout.polls(Said.REFUSED, 17, B).told == ["etl"]


def test_the_graceful_end_at_one_url_does_not_silence_the_other():
    lookout = Lookout(A, B).poll(A).poll(B).stopped(A)
    for _ in range(17):
        lookout.poll(A, Said.REFUSED).poll(B, Said.REFUSED)
    assert lookout.told == ["etl"]


def test_pods_of_one_app_under_a_dns_name_are_one_driver():
    lookout = Lookout(pod(1), pod(2)).poll(pod(1)).poll(pod(2))
    for _ in range(17):
        lookout.poll(pod(1), Said.REFUSED).poll(pod(2), Said.REFUSED)
    assert lookout.told == ["etl"]


def test_different_apps_at_two_urls_have_their_own_names():
    lookout = Lookout(A, B).poll(A).poll(B, app="other")
    for _ in range(17):
        lookout.poll(A, Said.REFUSED).poll(B, Said.REFUSED)
    assert lookout.told == ["etl", "other"]


# -- what an earlier watcher left ---------------------------------------------------------------


def test_what_was_left_open_of_one_url_does_not_end_with_the_driver_at_another():
    lookout = Lookout(A, B)
    lookout.evaluate.restore([left_open("etl", A)], lookout.now)
    assert lookout.polls(Said.HEALTHY, 30, B).told == ["etl"]
    assert lookout.poll(A).ended == ["etl"]


def test_what_was_left_open_under_the_full_name_ends_with_its_driver():
    lookout = Lookout(A, B)
    lookout.evaluate.restore([left_open("etl@a:9719", A)], lookout.now)
    assert lookout.polls(Said.HEALTHY, 30, B).told == ["etl@a:9719"]
    assert lookout.poll(A).ended == ["etl@a:9719"]


def test_the_bare_name_is_closed_when_all_drivers_of_the_app_are_well():
    lookout = Lookout(A, B, resolve_after=5.0).poll(A)
    for _ in range(6):
        lookout.poll(A).poll(B, Said.REFUSED)
    lookout.all.clear()
    lookout.poll(B).poll(A)
    assert lookout.stale_resolves == ["etl@a:9719", "a:9719"]
    for _ in range(6):
        lookout.poll(A, after=0.4).poll(B, after=0.4)
    assert "etl" in lookout.stale_resolves


@pytest.mark.parametrize("name", ["etl", "etl@a:9719", "a:9719"])
@pytest.mark.parametrize("said", [Said.REFUSED, Said.SILENT, Said.BROKEN])
def test_a_driver_that_is_down_when_the_watcher_starts_again_has_one_page(name, said):
    lookout = Lookout()
    lookout.evaluate.restore([left_open(name, A)], lookout.now)

    assert lookout.polls(said, 600).ever_told == {name}


@pytest.mark.parametrize("name", ["etl", "etl@a:9719", "a:9719"])
def test_what_was_left_open_of_a_url_ends_when_the_driver_is_back_and_not_by_time(name):
    lookout = Lookout()
    lookout.evaluate.restore([left_open(name, A)], lookout.now)
    lookout.polls(Said.REFUSED, 30)
    lookout.now += 2 * DAY
    assert lookout.polls(Said.REFUSED, 30).told == [name]
    assert lookout.poll().ended == [name]
    assert lookout.polls(Said.REFUSED, 17).told == ["etl"]


def test_what_was_left_open_is_the_urls_also_when_the_list_comes_later():
    lookout = Lookout(B)
    lookout.evaluate.restore([left_open("etl", A)], lookout.now)
    lookout.update().listed(A)

    assert lookout.polls(Said.REFUSED, 600).ever_told == {"etl"}


def test_what_was_left_open_and_is_read_late_ends_with_what_was_opened_meanwhile():
    lookout = Lookout().polls(Said.REFUSED, 90)
    lookout.evaluate.restore([left_open("etl", A)], lookout.now)
    lookout.now += DAY
    assert lookout.polls(Said.REFUSED, 30).told == ["a:9719", "etl"]
    assert lookout.poll().ended == ["a:9719", "etl"]


def test_what_was_left_open_ends_with_a_driver_that_does_not_say_its_app():
    lookout = Lookout()
    lookout.evaluate.restore([left_open("etl", A)], lookout.now)

    assert lookout.polls(Said.REFUSED, 5).poll(app="").ended == ["etl"]


def test_what_was_left_open_of_a_url_that_is_listed_no_more_ends():
    lookout = Lookout(A, B)
    lookout.evaluate.restore([left_open("etl", A)], lookout.now)

    assert lookout.polls(Said.REFUSED, 5).listed(B).ended == ["etl"]


def test_what_was_left_open_is_not_taken_for_another_app_that_is_there_now():
    lookout = Lookout().poll(app="other")
    lookout.evaluate.restore([left_open("etl", A)], lookout.now)
    assert lookout.polls(Said.HEALTHY, 60, app="other").told == ["etl"]
    assert lookout.polls(Said.REFUSED, 17).told == ["other", "etl"]
    assert lookout.poll().ended == ["etl"]


def test_another_app_at_the_url_ends_what_was_left_open_after_a_day_only():
    lookout = Lookout()
    lookout.evaluate.restore([left_open("etl", A)], lookout.now)
    assert lookout.polls(Said.HEALTHY, 60, app="other").told == ["etl"]
    lookout.now += DAY
    assert lookout.poll(app="other").ended == ["etl"]


def test_what_was_left_open_of_a_pod_does_not_end_by_time_while_its_address_is_down():
    lookout = Lookout(pod(1), pod(2))
    found = Alert(left_open("etl", A).alerts[0].labels, {"address": pod(1).shown}, WALL)
    lookout.evaluate.restore([Incident((found,))], lookout.now)
    lookout.poll(pod(1), Said.REFUSED)
    lookout.now += 2 * DAY
    assert "etl" in lookout.poll(pod(1), Said.REFUSED).told
    assert lookout.listed(pod(2)).ended == ["etl"]


def test_what_was_left_open_is_not_closed_as_what_may_have_been_while_it_is_open():
    lookout = Lookout(resolve_after=30.0)
    lookout.evaluate.restore([left_open("a:9719", A)], lookout.now)
    lookout.polls(Said.REFUSED, 5).poll().polls(Said.HEALTHY, 60, app="other")

    assert lookout.told == ["a:9719"]
    assert "a:9719" not in lookout.stale_resolves
