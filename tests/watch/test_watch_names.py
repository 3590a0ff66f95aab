"""Drivers under a DNS name are identified by their app, at any address."""

from __future__ import annotations

from support.watch_harness import WatchHarness, pod

from querypulse.watch.client import Endpoint, Said

ONE, TWO, THREE = pod(1), pod(2), pod(3)
NAME = Endpoint("http://drivers:9719")
"""The endpoint of the name while it has no address."""


def test_a_killed_pod_without_a_replacement_is_reported_by_its_app():
    watch_harness = WatchHarness(ONE).poll(ONE).listed(NAME)
    assert watch_harness.polls(Said.REFUSED, 17, ONE).reported == ["etl"]


def test_a_pod_replaced_in_time_is_not_reported():
    watch_harness = WatchHarness(ONE).poll(ONE).polls(Said.REFUSED, 10, ONE).listed(TWO).poll(TWO)
    watch_harness.polls(Said.REFUSED, 60, ONE)
    assert watch_harness.polls(Said.HEALTHY, 60, TWO).ever_reported == set()


def test_a_replacement_at_another_address_resolves_the_alert():
    watch_harness = WatchHarness(ONE).poll(ONE).polls(Said.REFUSED, 17, ONE).listed(TWO)
    assert watch_harness.reported == ["etl"]
    assert watch_harness.poll(TWO).ended == ["etl"]


def test_an_address_removed_from_dns_is_polled_while_its_driver_is_expected():
    watch_harness = WatchHarness(ONE, TWO).poll(ONE).poll(TWO, app="other").listed(TWO)
    assert watch_harness.tracker.endpoint_states.keys() == {ONE, TWO}
    assert watch_harness.polls(Said.REFUSED, 17, ONE).reported == ["etl"]


def test_an_address_removed_from_dns_is_dropped_when_its_driver_has_moved():
    watch_harness = WatchHarness(ONE).poll(ONE).listed(TWO).poll(TWO)
    assert watch_harness.tracker.endpoint_states.keys() == {TWO}


def test_an_address_removed_from_dns_is_dropped_after_a_shutdown_notice():
    watch_harness = WatchHarness(ONE).poll(ONE).stopped(ONE).listed(TWO)
    assert watch_harness.tracker.endpoint_states.keys() == {TWO}
    assert watch_harness.poll(TWO, app="other").ever_reported == set()


def test_an_address_removed_from_dns_that_never_answered_is_dropped():
    watch_harness = WatchHarness(ONE, TWO).poll(ONE).polls(Said.REFUSED, 100, TWO).listed(ONE)
    assert watch_harness.tracker.endpoint_states.keys() == {ONE}
    assert watch_harness.ever_reported == set()


def test_one_of_two_pods_of_an_app_may_end():
    watch_harness = WatchHarness(ONE, TWO).poll(ONE).poll(TWO)
    for _ in range(60):
        watch_harness.poll(ONE, Said.REFUSED).poll(TWO)
    assert watch_harness.ever_reported == set()


def test_the_end_of_the_last_pod_of_an_app_is_reported():
    watch_harness = WatchHarness(ONE, TWO).poll(ONE).poll(TWO)
    for _ in range(17):
        watch_harness.poll(ONE, Said.REFUSED).poll(TWO, Said.REFUSED)
    assert watch_harness.reported == ["etl"]


def test_a_rolling_update_with_a_graceful_shutdown_is_silent():
    watch_harness = WatchHarness(ONE).poll(ONE).listed(ONE, TWO).poll(TWO).stopped(ONE).listed(TWO)
    for _ in range(60):
        watch_harness.poll(ONE, Said.REFUSED).poll(TWO)
    assert watch_harness.ever_reported == set()


def test_the_new_pod_is_expected_after_the_old_one_shut_down_gracefully():
    watch_harness = WatchHarness(ONE, TWO).poll(ONE).poll(TWO).stopped(ONE)
    for _ in range(17):
        watch_harness.poll(ONE, Said.REFUSED).poll(TWO, Said.REFUSED)
    assert watch_harness.reported == ["etl"]


def test_the_shutdown_notice_of_the_last_pod_covers_the_app():
    watch_harness = (
        WatchHarness(ONE, TWO).poll(ONE).poll(TWO).polls(Said.REFUSED, 5, ONE).stopped(TWO)
    )
    assert watch_harness.polls(Said.REFUSED, 60, ONE).ever_reported == set()


def test_each_app_under_a_name_is_a_separate_driver():
    watch_harness = WatchHarness(ONE, TWO).poll(ONE, app="one").poll(TWO, app="two")
    for _ in range(17):
        watch_harness.poll(ONE, Said.REFUSED).poll(TWO, app="two")
    assert watch_harness.reported == ["one"]


def test_an_unresolvable_name_is_reported_as_never_answered():
    watch_harness = WatchHarness(NAME)
    for _ in range(62):
        watch_harness.proved().poll(NAME, Said.UNREACHABLE)
    assert watch_harness.reported == ["drivers:9719"]


def test_the_first_address_of_a_name_resolves_its_alert():
    watch_harness = WatchHarness(NAME)
    for _ in range(62):
        watch_harness.proved().poll(NAME, Said.UNREACHABLE)
    watch_harness.listed(ONE)
    assert watch_harness.poll(ONE).ended == ["drivers:9719"]
    assert watch_harness.reported == []


def test_a_pod_without_an_app_name_is_not_expected_yet():
    watch_harness = WatchHarness(ONE).polls(Said.HEALTHY, 30, ONE, app="").poll(ONE)
    assert watch_harness.ever_reported == set()
    assert watch_harness.polls(Said.REFUSED, 17, ONE).reported == ["etl"]


def test_the_last_address_of_a_name_stays_watched_when_dns_fails():
    """``Targets`` keeps the last list then; an empty name would be another list."""
    watch_harness = WatchHarness(ONE).poll(ONE).listed(NAME)
    assert watch_harness.tracker.endpoint_states.keys() == {ONE, NAME}


def test_a_driver_found_by_dns_and_not_seen_for_a_day_is_forgotten():
    watch_harness = WatchHarness(ONE, TWO).poll(ONE).poll(TWO, app="other").listed(TWO)
    watch_harness.polls(Said.REFUSED, 17, ONE)
    assert watch_harness.update(24 * 3600.0 + 1).ended == ["etl"]
    assert watch_harness.tracker.endpoint_states.keys() == {TWO}
    assert watch_harness.update().reported == []
