"""Drivers under a DNS name: known by their app, wherever that answers."""

from __future__ import annotations

from support.watch_harness import WatchHarness, pod

from querypulse.sidecar.watch.poll import Endpoint, Said

ONE, TWO, THREE = pod(1), pod(2), pod(3)
NAME = Endpoint("http://drivers:9719", group="http://drivers:9719")
"""Stands for the name while it has no address."""


def test_a_pod_that_is_killed_and_not_replaced_is_reported_by_its_app():
    watch_harness = WatchHarness(ONE).poll(ONE).listed(NAME)
    assert watch_harness.polls(Said.REFUSED, 17, ONE).reported == ["etl"]


def test_a_pod_that_is_replaced_in_time_is_not_reported():
    watch_harness = WatchHarness(ONE).poll(ONE).polls(Said.REFUSED, 10, ONE).listed(TWO).poll(TWO)
    watch_harness.polls(Said.REFUSED, 60, ONE)
    assert watch_harness.polls(Said.HEALTHY, 60, TWO).ever_reported == set()


def test_the_replacement_at_another_address_ends_the_alert():
    watch_harness = WatchHarness(ONE).poll(ONE).polls(Said.REFUSED, 17, ONE).listed(TWO)
    assert watch_harness.reported == ["etl"]
    assert watch_harness.poll(TWO).ended == ["etl"]


def test_an_address_that_left_dns_is_still_polled_at_while_its_driver_is_expected():
    watch_harness = WatchHarness(ONE, TWO).poll(ONE).poll(TWO, app="other").listed(TWO)
    assert watch_harness.tracker.endpoints == {ONE, TWO}
    assert watch_harness.polls(Said.REFUSED, 17, ONE).reported == ["etl"]


def test_an_address_that_left_dns_is_let_go_when_its_driver_is_elsewhere():
    watch_harness = WatchHarness(ONE).poll(ONE).listed(TWO).poll(TWO)
    assert watch_harness.tracker.endpoints == {TWO}


def test_an_address_that_left_dns_after_a_shutdown_notice_is_let_go():
    watch_harness = WatchHarness(ONE).poll(ONE).stopped(ONE).listed(TWO)
    assert watch_harness.tracker.endpoints == {TWO}
    assert watch_harness.poll(TWO, app="other").ever_reported == set()


def test_an_address_that_never_answered_and_left_dns_is_nobody():
    watch_harness = WatchHarness(ONE, TWO).poll(ONE).polls(Said.REFUSED, 100, TWO).listed(ONE)
    assert watch_harness.tracker.endpoints == {ONE}
    assert watch_harness.ever_reported == set()


def test_one_of_two_pods_of_an_app_may_go():
    watch_harness = WatchHarness(ONE, TWO).poll(ONE).poll(TWO)
    for _ in range(60):
        watch_harness.poll(ONE, Said.REFUSED).poll(TWO)
    assert watch_harness.ever_reported == set()


def test_when_the_last_pod_of_an_app_goes_it_is_reported():
    watch_harness = WatchHarness(ONE, TWO).poll(ONE).poll(TWO)
    for _ in range(17):
        watch_harness.poll(ONE, Said.REFUSED).poll(TWO, Said.REFUSED)
    assert watch_harness.reported == ["etl"]


def test_a_rolling_update_that_closes_the_old_pod_in_good_order_is_silent():
    watch_harness = WatchHarness(ONE).poll(ONE).listed(ONE, TWO).poll(TWO).stopped(ONE).listed(TWO)
    for _ in range(60):
        watch_harness.poll(ONE, Said.REFUSED).poll(TWO)
    assert watch_harness.ever_reported == set()


def test_the_new_pod_is_expected_though_the_old_one_closed_in_good_order():
    watch_harness = WatchHarness(ONE, TWO).poll(ONE).poll(TWO).stopped(ONE)
    for _ in range(17):
        watch_harness.poll(ONE, Said.REFUSED).poll(TWO, Said.REFUSED)
    assert watch_harness.reported == ["etl"]


def test_the_shutdown_notice_of_the_last_pod_is_one_of_the_app():
    watch_harness = (
        WatchHarness(ONE, TWO).poll(ONE).poll(TWO).polls(Said.REFUSED, 5, ONE).stopped(TWO)
    )
    assert watch_harness.polls(Said.REFUSED, 60, ONE).ever_reported == set()


def test_each_app_under_a_name_is_a_driver_of_its_own():
    watch_harness = WatchHarness(ONE, TWO).poll(ONE, app="one").poll(TWO, app="two")
    for _ in range(17):
        watch_harness.poll(ONE, Said.REFUSED).poll(TWO, app="two")
    assert watch_harness.reported == ["one"]


def test_an_address_taken_over_by_another_driver_leaves_the_first_one_expected():
    watch_harness = WatchHarness(ONE).poll(ONE, app="first").polls(Said.REFUSED, 5, ONE)
    watch_harness.polls(Said.HEALTHY, 17, ONE, app="second")
    assert watch_harness.reported == ["first"]
    assert watch_harness.poll(ONE, app="first").ended == ["first"]


def test_a_name_that_cannot_be_polled_up_is_reported_as_never_answered():
    watch_harness = WatchHarness(NAME)
    for _ in range(62):
        watch_harness.proved().poll(NAME, Said.UNREACHABLE)
    assert watch_harness.reported == ["drivers:9719"]


def test_a_name_that_gets_its_first_address_late_ends_that():
    watch_harness = WatchHarness(NAME)
    for _ in range(62):
        watch_harness.proved().poll(NAME, Said.UNREACHABLE)
    watch_harness.listed(ONE)
    assert watch_harness.poll(ONE).ended == ["drivers:9719"]
    assert watch_harness.reported == []


def test_a_pod_that_answers_before_it_knows_its_app_is_nobody_yet():
    watch_harness = WatchHarness(ONE).polls(Said.HEALTHY, 30, ONE, app="").poll(ONE)
    assert watch_harness.ever_reported == set()
    assert watch_harness.polls(Said.REFUSED, 17, ONE).reported == ["etl"]


def test_the_last_address_of_a_name_stays_watched_when_dns_fails():
    """``Targets`` keeps the last list then; an empty name would be a list of its own."""
    watch_harness = WatchHarness(ONE).poll(ONE).listed(NAME)
    assert watch_harness.tracker.endpoints == {ONE, NAME}


def test_who_came_by_dns_and_is_not_seen_for_a_day_is_forgotten():
    watch_harness = WatchHarness(ONE, TWO).poll(ONE).poll(TWO, app="other").listed(TWO)
    watch_harness.polls(Said.REFUSED, 17, ONE)
    assert watch_harness.update(24 * 3600.0 + 1).ended == ["etl"]
    assert watch_harness.tracker.endpoints == {TWO}
    assert watch_harness.update().reported == []
