"""The exposition, parsed by Prometheus' own parsers."""

from __future__ import annotations

import math

import pytest
from support.exporter_exposition import of_query, samples, text, values
from support.published_states import published
from support.story import CONFLICT, Story, progress

from querypulse.exporter.published_state import Monitor
from querypulse.listener.state.query import BUCKETS


def test_topic_exports_its_worst_partition():
    story = Story().started(at=0)
    since = {"t/0": 10, "t/1": 40}
    ends = {
        name: dict.fromkeys(since, value)
        for name, value in (("committed", 5), ("earliest", 0), ("latest", 9))
    }
    shown = published(story.ask(at=60, **ends, since=since, keeps=600))

    assert values(shown, "spark_streaming_topic_retention_left_seconds") == {
        ("shop", "a", "0", "t"): pytest.approx(510)
    }


def test_topic_with_unknown_retention_has_no_series():
    shown = published(Story().started(at=0).ask(at=60, committed=5))

    assert values(shown, "spark_streaming_topic_retention_used_ratio") == {}


def test_batch_histogram_is_cumulative_up_to_infinity():
    story = Story().started(at=0)
    for batch, seconds in enumerate((0.05, 0.1, 7.0, 99999.0)):
        story.commit(batch=batch, at=100_000 * (batch + 1), seconds=seconds)
    buckets = of_query(published(story), "a", "batch_duration_seconds_bucket")
    assert len(buckets) == len(BUCKETS) + 1
    assert [buckets[(str(bound),)] for bound in (0.1, 5.0, 10.0, 3600.0)] == [2, 2, 3, 3]
    assert buckets[("+Inf",)] == 4


def test_unknown_timestamps_and_figures_are_absent():
    story = Story().started(at=0)
    names = {sample.name for sample in samples(published(story, monitor=Monitor()))}
    for absent in (
        "spark_streaming_query_last_commit_timestamp_seconds",
        "spark_streaming_query_last_commit_batch_id",
        "spark_streaming_query_last_activity_timestamp_seconds",
        "spark_streaming_query_batch_in_flight_seconds",
        "spark_streaming_query_no_progress_seconds",
        "spark_streaming_query_watermark_timestamp_seconds",
        "spark_streaming_query_state_rows",
        "spark_streaming_query_input_rows_per_second",
        "querypulse_heartbeat_timestamp_seconds",
        "querypulse_driver_heartbeat_timestamp_seconds",
        "querypulse_driver_expected_timestamp_seconds",
    ):
        assert absent not in names


def test_counters_continue_over_a_restart():
    story = Story().started(at=0).commit(batch=1, at=10).ended(at=20, exception=CONFLICT)
    story.started(run=2, at=30).commit(run=2, batch=2, at=40)
    shown = published(story)
    assert of_query(shown, "a", "commits_total") == {(): 2}
    assert of_query(shown, "a", "restarts_total") == {(): 1}


def test_values_that_are_not_numbers_are_omitted():
    story = Story().started(at=0)
    odd = progress(batch=1, state_rows=-1, input_rows_per_second=math.nan,
                   processed_rows_per_second=math.inf)  # fmt: skip
    story.state.apply_event(odd, 10)
    shown = published(story)
    assert "NaN" not in text(shown)
    for name in ("state_rows", "input_rows_per_second", "processed_rows_per_second"):
        assert of_query(shown, "a", name) == {}
