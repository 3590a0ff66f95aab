"""What is pushed: the group of a Pushgateway, and OTLP metrics as a receiver decodes them."""

from __future__ import annotations

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from support.published_states import WALL, full_published

from querypulse.exporter import push
from querypulse.exporter.exposition import as_text, base_name
from querypulse.exporter.metrics import all_families

BEGAN = WALL - 1000


@pytest.fixture(scope="module")
def sent():
    """The decoded metrics of the full published, by name."""
    body = push.request_body(full_published(), began=BEGAN, wall=WALL)
    (resource,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
    assert {one.key: one.value.string_value for one in resource.resource.attributes}[
        "service.name"
    ] == "shop"
    (scope,) = resource.scope_metrics
    return {metric.name: metric for metric in scope.metrics}


def attributes(point):
    return {one.key: one.value.string_value for one in point.attributes}


def test_group_has_the_app_and_nothing_of_the_process():
    assert (
        push.group_url("https://gate.example/", "etl/ä")
        == "https://gate.example/metrics/job/querypulse/instance@base64/ZXRsL8Ok"
    )


def test_group_holds_what_a_scrape_shows():
    published = full_published()

    assert push.group_body(published) == as_text(all_families(published))


def test_every_family_with_a_figure_is_sent(sent):
    families = {
        base_name(one) if one.kind == "counter" else one.name
        for one in all_families(full_published())
        if one.samples
    }

    assert set(sent) == families


def test_counter_is_a_monotonic_sum_since_the_process_began(sent):
    counter = sent["spark_streaming_query_commits"].sum
    point = next(one for one in counter.data_points if attributes(one)["query"] == "busy")

    assert counter.is_monotonic
    assert counter.aggregation_temporality == 2
    assert (point.as_double, point.start_time_unix_nano, point.time_unix_nano) == (
        1.0,
        int(BEGAN * 1e9),
        int(WALL * 1e9),
    )


def test_gauge_and_info_are_gauges(sent):
    assert sent["spark_streaming_query_active"].HasField("gauge")
    (failure,) = sent["spark_streaming_query_failure_info"].gauge.data_points
    assert attributes(failure)["error_class"] == "ConcurrentAppendException"


def test_histogram_has_the_count_of_each_bucket(sent):
    points = sent["querypulse_probe_duration_seconds"].histogram.data_points
    (point,) = points

    assert point.count == sum(point.bucket_counts) == 2
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    assert point.sum == pytest.approx(0.32)
    assert not point.HasField("min")


def test_headers_are_written_as_opentelemetry_writes_them():
    assert push.parse_headers("api-key=abc") == {"api-key": "abc"}
    assert push.parse_headers("Authorization=Bearer%20abc==, x=y\n") == {
        "Authorization": "Bearer abc==",
        "x": "y",
    }


def test_other_headers_are_refused_without_quoting_them():
    def refusal(text):
        try:
            return f"taken as {push.parse_headers(text)}"
        except ValueError as error:
            return str(error)

    texts = ("", "abc", "a b=c", "a=b\x00", "=c", "a=%0d%0aevil: 1", "a=ä")
    wanted = "write headers as name=value, separated by commas"
    assert {text: refusal(text) for text in texts} == dict.fromkeys(texts, wanted)


def test_figures_that_a_receiver_refuses_are_counted():
    answer = ExportMetricsServiceResponse()
    answer.partial_success.rejected_data_points = 3

    assert push.rejected(answer.SerializeToString()) == 3
    assert push.rejected(b"") == 0
    assert push.rejected(b"<html>") == 0
