"""The exposition, parsed by Prometheus' own parsers."""

from __future__ import annotations

import math

import pytest
from prometheus_client import REGISTRY, generate_latest
from support.exporter_exposition import FORMATS, of_query, om_text, samples, text, values
from support.published_states import WALL, full_published, published
from support.story import CONFLICT, Story, progress

from querypulse.core.states import STATES
from querypulse.exporter.published_state import Monitor
from querypulse.listener.state.query import BUCKETS


def test_both_formats_have_the_same_metrics():
    text_names, openmetrics_names = (
        {sample.name for sample in samples(full_published(), *formats)} for formats in FORMATS
    )
    assert text_names == openmetrics_names
    assert "spark_streaming_query_commits_total" in text_names


def test_only_streaming_metrics_carry_app_and_query():
    for sample in samples(full_published()):
        streaming = sample.name.startswith("spark_streaming_")
        assert ({"app", "query"} <= sample.labels.keys()) is streaming


def test_busy_query_exports_each_figure():
    expected = {
        "active": 1,
        "start_timestamp_seconds": WALL - 90,
        "last_event_timestamp_seconds": WALL - 30,
        "last_input_timestamp_seconds": WALL - 30,
        "last_commit_timestamp_seconds": WALL - 30,
        "last_activity_timestamp_seconds": WALL - 30,
        "alerting_enabled": 1,
        "expected_input_seconds": 3600,
        "no_progress_seconds": 20,
        "last_commit_batch_id": 7,
        "commits_total": 1,
        "batch_in_flight_seconds": 20,
        "stall_window_seconds": 60,
        "trigger_interval_seconds": 10,
        "input_rows_total": 1000,
        "output_rows_total": 900,
        "input_rows_per_second": 50,
        "processed_rows_per_second": 500,
        "watermark_timestamp_seconds": WALL - 60,
        "state_rows": 12,
        "state_memory_bytes": 4096,
        "late_rows_dropped_total": 3,
        "restarts_total": 0,
        "batch_duration_seconds_sum": 2,
        "batch_duration_seconds_count": 1,
    }
    shown = full_published()
    assert {name: of_query(shown, "busy", name) for name in expected} == {
        name: {(): figure} for name, figure in expected.items()
    }


def test_query_without_an_input_limit_exports_none():
    shown = full_published()
    assert of_query(shown, "dead", "expected_input_seconds") == {}
    assert of_query(shown, "absent", "expected_input_seconds") == {}


def test_figures_can_have_one_more_label():
    shown = full_published()
    assert of_query(shown, "busy", "phase_duration_seconds") == {
        ("addBatch",): 1.5, ("walCommit",): 0.1,
    }  # fmt: skip
    assert of_query(shown, "dead", "terminations_total") == {
        ("failed",): 1, ("stopped",): 0, ("completed",): 0,
    }  # fmt: skip


def test_topic_exports_used_and_remaining_retention():
    """The first unread record was written at 40 s of 100, and the retention is 600 s."""
    used = values(
        full_published(), "spark_streaming_topic_retention_used_ratio", app="shop", query="busy"
    )
    left = values(
        full_published(), "spark_streaming_topic_retention_left_seconds", app="shop", query="busy"
    )

    assert used == {("0", "t"): pytest.approx(0.1)}
    assert left == {("0", "t"): pytest.approx(540)}


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


def test_source_is_labelled_by_its_index_and_omitted_without_lag():
    lags = values(full_published(), "spark_streaming_source_lag_offsets", app="shop", query="busy")
    assert lags == {("0",): 30, ("2",): 12}


def test_every_state_has_a_series_and_exactly_one_is_1():
    for query, state in (("busy", "running"), ("dead", "failed"), ("absent", "starting")):
        shown = of_query(full_published(), query, "state")
        assert shown == {(name,): float(name == state) for name in STATES}


def test_info_contains_the_run_and_failure_info_the_error():
    shown = full_published()
    assert of_query(shown, "busy", "info") == {
        # query_id, run_id, sink, trigger
        ("id-busy", "busy-1", "noop", "ProcessingTime(10 s)"): 1
    }
    assert of_query(shown, "dead", "failure_info") == {("ConcurrentAppendException",): 1}
    assert of_query(shown, "busy", "failure_info") == {}


def test_batch_histogram_is_cumulative_up_to_infinity():
    story = Story().started(at=0)
    for batch, seconds in enumerate((0.05, 0.1, 7.0, 99999.0)):
        story.commit(batch=batch, at=100_000 * (batch + 1), seconds=seconds)
    buckets = of_query(published(story), "a", "batch_duration_seconds_bucket")
    assert len(buckets) == len(BUCKETS) + 1
    assert [buckets[(str(bound),)] for bound in (0.1, 5.0, 10.0, 3600.0)] == [2, 2, 3, 3]
    assert buckets[("+Inf",)] == 4


def test_failed_query_keeps_its_series_and_is_not_active():
    shown = full_published()
    assert of_query(shown, "dead", "active") == {(): 0}
    assert of_query(shown, "dead", "start_timestamp_seconds") == {(): WALL - 80}


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


def test_expected_query_has_counters_at_0_before_it_is_seen():
    shown = full_published()
    for counter in ("commits_total", "restarts_total", "input_rows_total"):
        assert of_query(shown, "absent", counter) == {(): 0}
    assert of_query(shown, "absent", "terminations_total") == {
        ("failed",): 0, ("stopped",): 0, ("completed",): 0,
    }  # fmt: skip
    assert of_query(shown, "absent", "active") == {(): 0}
    assert of_query(shown, "absent", "info") == {}


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


@pytest.mark.parametrize("render", [text, om_text])
def test_no_created_series_and_no_duplicates(render):
    lines = [line for line in render(full_published()).splitlines() if not line.startswith("#")]
    assert not [line for line in lines if "_created" in line]
    series = [line.rpartition(" ")[0] for line in lines]
    assert len(series) == len(set(series))


def test_process_wide_registry_is_left_alone():
    before = generate_latest(REGISTRY)
    text(full_published())
    assert b"querypulse" not in generate_latest(REGISTRY)
    assert b"querypulse" not in before
