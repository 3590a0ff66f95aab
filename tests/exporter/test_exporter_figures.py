"""The figures of a query: the broker's lag if there is one, and no outdated figure."""

from __future__ import annotations

import pytest
from support.published_states import WALL, published, values
from support.story import CONFLICT, Story, processing, progress, source

from querypulse.exporter.status import status
from querypulse.listener.source_polls import SourcePoll, SourceReport

NOW = 100.0
LAG, REPORTED, AGE = "source_lag_offsets", "source_lag_reported_offsets", "source_lag_seconds"
TOPICS, PARTITIONS = "topic_lag_offsets", "partition_lag_offsets"
POLLED_AT = "source_last_success_timestamp_seconds"
RATE, STUCK = "query_processed_rows_per_second", "query_no_progress_seconds"


def seen(at, latest, since=None, committed=5):
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


def committed_at(at, *, latest=5, sources=1):
    story = Story().started("a", at=1)
    source_progress = tuple(source({"t": {"0": 5}}, {"t": {"0": latest}}) for _ in range(sources))
    done = progress("a", batch=1, sources=source_progress, processed_rows_per_second=5.0)
    story.state.apply_event(done, at)
    return story


def failed(*polls):
    story = polled(committed_at(10), seen(20, 6, since=15)).ended("a", at=25, exception=CONFLICT)
    return polled(story, *polls) if polls else story


def many():
    ends = {"t/0": 3, "t/1": 4, "u/0": 1}
    topics = SourcePoll("Kafka", dict.fromkeys(ends, 1), {}, ends, at=90)
    return polled(committed_at(10), topics, SourcePoll("Delta", {"": 1}, {}, {"": 4}, at=90))


def retained():
    places = {"committed": 5, "earliest": 0, "latest": 9}
    ends = {name: dict.fromkeys(("t/0", "t/1"), value) for name, value in places.items()}
    return (
        Story().started("a", at=0).ask("a", at=60, **ends, since={"t/0": 10, "t/1": 40}, keeps=600)
    )


def restarted():
    story = Story().started(at=0).commit(batch=1, at=10).ended(at=20, exception=CONFLICT)
    return story.started(run=2, at=30).commit(run=2, batch=2, at=40)


def committing():
    return Story().started(at=0).commit(batch=1, at=90)


def in_flight():
    story = committing().probe(processing(batch=2, tasks=1), at=92)
    return story.probe(processing(batch=2, tasks=2), at=97)


def outdated(trouble):
    return polled(committed_at(10, latest=8), seen(20, 50, since=15), trouble=trouble)


@pytest.mark.parametrize(
    ("story", "now", "figures"),
    [
        pytest.param(story, now, figures, id=what)
        for what, story, now, figures in (
            ("Spark's lag and rate while current", committed_at(60, latest=8), NOW,
             {LAG: {("0",): 3}, REPORTED: {("0",): 3}, RATE: {(): 5}}),
            ("none of a hung query", committed_at(10, latest=8), NOW, {LAG: {}, REPORTED: {}, RATE: {}}),
            ("none of a dead query", committed_at(60, latest=8).ended("a", at=70, exception=CONFLICT), NOW,
             {LAG: {}, REPORTED: {}, RATE: {}}),
            ("the broker's in place of Spark's", polled(committed_at(60, latest=8), seen(90, 50)), NOW,
             {LAG: {("0",): 45}, REPORTED: {("0",): 3}}),
            ("an age that grows without commits", polled(committed_at(10), seen(50, 50, since=40)), NOW,
             {AGE: {("0",): 60}}),
            ("an age that a commit since the poll has stopped",
             polled(committed_at(90), seen(50, 50, since=40)), NOW, {AGE: {("0",): 10}}),
            ("of a failed query", failed(), NOW, {LAG: {("0",): 1}, AGE: {("0",): 85}}),
            ("growing of a failed query", failed(seen(90, 500, since=15)), NOW,
             {LAG: {("0",): 495}, AGE: {("0",): 85}}),
            ("nothing unread", polled(committed_at(10), seen(90, 5)), NOW, {LAG: {("0",): 0}, AGE: {("0",): 0}}),
            ("an unknown age", polled(committed_at(10), seen(90, 6)), NOW, {LAG: {("0",): 1}, AGE: {}}),
            ("no old answer of a broker that fails", outdated("no answer"), 300.0,
             {LAG: {}, AGE: {}, TOPICS: {}, POLLED_AT: {("0",): WALL - NOW + 20}}),
            ("nor Spark's in its place", polled(committed_at(290, latest=8), seen(20, 50), trouble="no answer"),
             300.0, {LAG: {}, REPORTED: {("0",): 3}}),
            ("an old answer of a broker that does not fail", outdated(""), 600.0, {LAG: {("0",): 45}}),
            ("each topic and partition; a table has none", many(), NOW,
             {LAG: {("0",): 5, ("1",): 3}, TOPICS: {("0", "t"): 5, ("0", "u"): 0},
              PARTITIONS: {("0", "0", "t"): 2, ("1", "0", "t"): 3, ("0", "0", "u"): 0}}),
            ("the worst partition of a topic", retained(), NOW,
             {"topic_retention_left_seconds": {("0", "t"): pytest.approx(510)}}),
            ("no unknown retention", Story().started("a", at=0).ask("a", at=60, committed=5), NOW,
             {"topic_retention_used_ratio": {}}),
            ("counters continue over a restart", restarted(), NOW,
             {"query_commits_total": {(): 2}, "query_restarts_total": {(): 1}}),
            ("idleness is activity without a commit", committing().idle(at=95), NOW,
             {"query_last_activity_timestamp_seconds": {(): WALL - 5},
              "query_last_commit_timestamp_seconds": {(): WALL - 10}}),
            ("finished tasks are progress of a batch", in_flight(), NOW,
             {STUCK: {(): 3}, "query_batch_in_flight_seconds": {(): 8}}),
            ("nothing is stuck while a query waits", committing(), NOW, {STUCK: {}}),
            ("nor once it has ended", in_flight().ended(at=98), NOW, {STUCK: {}}),
        )
    ],
)  # fmt: skip
def test_query_shows(story, now, figures):
    shown = published(story, now=now)

    assert {
        name: values(shown, f"spark_streaming_{name}", app="shop", query="a") for name in figures
    } == figures


def test_status_sums_the_lags_without_what_spark_reported_before_the_window():
    story = polled(committed_at(10, latest=8, sources=2), seen(30, 50, since=30))

    assert [status(published(story, now=now)).queries[0].lag_offsets for now in (60, 90)] == [
        48,
        45,
    ]
    assert status(published(story, now=NOW)).queries[0].lag_seconds == 70


def test_partition_figures_are_exported_only_on_request():
    shown = published(many(), by_partition=False)

    assert values(shown, f"spark_streaming_{PARTITIONS}") == {}
