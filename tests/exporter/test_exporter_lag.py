"""Lag in /metrics and /status: the broker's figure if there is one, and no outdated figure."""

from __future__ import annotations

import pytest
from support.exporter_exposition import values
from support.published_states import WALL, published
from support.story import CONFLICT, Story, progress, source

from querypulse.exporter.status import status
from querypulse.listener.source_polls import SourcePoll, SourceReport

NOW = 100.0
OFFSETS = "spark_streaming_source_lag_offsets"
SECONDS = "spark_streaming_source_lag_seconds"


def seen(at, committed, latest, since=None):
    """A poll of topic t, on the clock of the published state."""
    ages = {} if since is None else {"t/0": WALL - NOW + since}
    ends = {"t/0": latest}
    return SourcePoll(
        "Kafka", {"t/0": committed}, {"t/0": 0}, ends, ages, at=at, wall=WALL - NOW + at
    )


def polled(story, *polls, trouble=""):
    unreadable = {"a-1": trouble} if trouble else {}
    story.state.apply_sources(SourceReport(0.0, {"a-1": dict(enumerate(polls))}, unreadable))
    return story


def committed_at(at, *, end=5, latest=5, sources=1):
    story = Story().started("a", at=1)
    source_progress = tuple(source({"t": {"0": end}}, {"t": {"0": latest}}) for _ in range(sources))
    done = progress("a", batch=1, sources=source_progress, processed_rows_per_second=5.0)
    story.state.apply_event(done, at)
    return story


def lag(story, name=OFFSETS, now=NOW):
    return values(published(story, now=now), name, app="shop", query="a")


def test_broker_lag_replaces_sparks_which_has_its_own_metric():
    story = polled(committed_at(60, end=5, latest=8), seen(90, 5, 50))

    assert lag(story) == {("0",): 45}
    assert lag(story, "spark_streaming_source_lag_reported_offsets") == {("0",): 3}


RATE = "spark_streaming_query_processed_rows_per_second"


@pytest.mark.parametrize("name", [OFFSETS, "spark_streaming_source_lag_reported_offsets", RATE])
def test_dead_or_hung_query_has_no_lag_and_no_rate_of_the_time_before(name):
    hung = committed_at(10, end=5, latest=8)
    dead = committed_at(60, end=5, latest=8).ended("a", at=70, exception=CONFLICT)
    assert lag(committed_at(60, end=5, latest=8), name) != {}
    assert (lag(hung, name), lag(dead, name)) == ({}, {})


def test_sum_excludes_sparks_figure_once_it_is_older_than_the_window():
    story = polled(committed_at(10, end=5, latest=8, sources=2), seen(30, 5, 50))

    assert status(published(story, now=60)).queries[0].lag_offsets == 48
    assert status(published(story, now=90)).queries[0].lag_offsets == 45


def test_lag_grows_while_nothing_is_committed_also_of_a_failed_query():
    story = polled(committed_at(10), seen(50, 5, 50, since=40))
    assert lag(story, SECONDS) == {("0",): 60}
    assert status(published(story, now=NOW)).queries[0].lag_seconds == 60

    failed = polled(committed_at(10), seen(20, 5, 6, since=15))
    failed.ended("a", at=25, exception=CONFLICT)
    first = lag(failed), lag(failed, SECONDS)
    polled(failed, seen(90, 5, 500, since=15))
    assert first == ({("0",): 1}, {("0",): 85})
    assert (lag(failed), lag(failed, SECONDS)) == ({("0",): 495}, {("0",): 85})


def test_lag_in_seconds_is_zero_without_unread_records_and_absent_if_unknown():
    nothing = polled(committed_at(10), seen(90, 5, 5))
    unknown = polled(committed_at(10), seen(90, 5, 6))

    assert (lag(nothing, SECONDS), lag(unknown, SECONDS)) == ({("0",): 0}, {})
    assert lag(unknown) == {("0",): 1}


def test_outdated_broker_figure_is_removed_and_not_replaced_by_sparks():
    story = committed_at(10, end=5, latest=8)
    polled(story, seen(20, 5, 50, since=15), trouble="no answer")

    for name in (OFFSETS, SECONDS, "spark_streaming_topic_lag_offsets"):
        assert lag(story, name, now=300.0) == {}
    assert lag(story, "spark_streaming_source_last_success_timestamp_seconds", now=300.0) == {
        ("0",): WALL - NOW + 20
    }


@pytest.mark.parametrize("answers", [True, False])
def test_poll_age_is_limited_only_while_the_broker_fails(answers):
    story = polled(committed_at(10), seen(20, 5, 50), trouble="" if answers else "no answer")

    assert bool(lag(story, now=600.0)) is answers


def test_each_topic_has_its_own_figure_and_each_partition_on_request():
    ends = {"t/0": 3, "t/1": 4, "u/0": 1}
    topics = SourcePoll("Kafka", dict.fromkeys(ends, 1), {}, ends, at=90)
    table = SourcePoll("Delta", {"": 1}, {}, {"": 4}, at=90)
    story = polled(committed_at(10), topics, table)
    partitions = "spark_streaming_partition_lag_offsets"

    assert lag(story, "spark_streaming_topic_lag_offsets") == {("0", "t"): 5, ("0", "u"): 0}
    assert lag(story) == {("0",): 5, ("1",): 3}
    assert sorted(lag(story, partitions).values()) == [0, 2, 3]
    assert values(published(story, by_partition=False), partitions, app="shop", query="a") == {}
