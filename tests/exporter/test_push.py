"""Pushing never waits for the job: figures are replaced, failures counted, the end is bounded."""

from __future__ import annotations

import os
import re
import socket
import threading
from contextlib import ExitStack
from unittest.mock import Mock

import pytest
import requests
from msgspec.structs import replace
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from support.http_double import HttpDouble, held, reply
from support.patience import PATIENCE_SECONDS, until
from support.published_states import WALL, full_published
from support.server_process import ServerProcess, free_port

from querypulse.core.guard import Guard
from querypulse.exporter import push
from querypulse.exporter.exposition import as_text, base_name
from querypulse.exporter.metrics import all_families
from querypulse.exporter.push import Publisher
from querypulse.settings.settings import Settings, SettingsError
from querypulse.sidecar.assemble import push_targets


@pytest.fixture
def double():
    with HttpDouble() as double:
        yield double


@pytest.fixture
def publishing(monkeypatch):
    """Start what the settings say; everything ends with the test."""
    with ExitStack() as started:

        def start(*, published=full_published, interval=0.05, **settings):
            (target,) = push_targets(Settings(**settings))
            monkeypatch.setattr(push, "PUSH_SECONDS", interval)
            publisher = Publisher(target, published, Guard())
            publisher.start()
            started.callback(end, publisher, planned=False)
            return publisher

        yield start


def end(publisher, *, planned):
    publisher.stop(planned=planned)
    publisher.join(PATIENCE_SECONDS)


def sent_names():
    """The names of the families with a figure, as OpenTelemetry has them."""
    families = [family for family in all_families(full_published()) if family.samples]
    return {base_name(entry) if entry.kind == "counter" else entry.name for entry in families}


# -- the thread -------------------------------------------------------------------------------


@pytest.mark.parametrize(("planned", "last"), [(True, "DELETE"), (False, "PUT")])
def test_planned_end_deletes_the_group_and_a_crash_leaves_the_newest_figures(
    double, publishing, planned, last
):
    publisher = publishing(pushgateway_url=double.url, interval=60)
    double.wait_for(1)
    until(lambda: publisher.pushes.outcomes["delivered"], "the first push is over")
    end(publisher, planned=planned)

    assert [request.method for request in double.requests] == ["PUT", last]
    assert double.requests[0].body == as_text(all_families(full_published()))
    assert {request.path for request in double.requests} == {
        "/metrics/job/querypulse/app@base64/c2hvcA==/instance@base64/ZHJpdmVyLWE6OTcxOQ=="
    }


def test_failures_are_counted_and_shown_until_a_push_succeeds(double, publishing):
    read = threading.Event()
    double.script.extend([reply(403), held(read, reply(200))])
    publisher = publishing(pushgateway_url=double.url)
    until(lambda: publisher.pushes.outcomes["misconfigured"], "a push fails")
    failed = publisher.pushes
    read.set()
    until(lambda: publisher.pushes.outcomes["delivered"], "a push succeeds")

    assert failed.problem.endswith("answered 403")
    assert publisher.pushes.problem is None


@pytest.mark.contains_errors
def test_unexpected_error_is_shown_and_followed_by_the_usual_pause(double, monkeypatch):
    """Such as that of a package which another one has broken."""
    monkeypatch.setattr(push, "as_text", Mock(side_effect=ImportError))
    guard, pauses = Guard(), []
    (target,) = push_targets(Settings(pushgateway_url=double.url))
    publisher = Publisher(target, full_published, guard)
    stopping = publisher._loop.stopping
    wait = stopping.wait
    monkeypatch.setattr(stopping, "wait", lambda seconds: pauses.append(seconds) or wait(seconds))
    publisher.start()
    until(lambda: pauses, "it pauses")
    end(publisher, planned=True)

    assert publisher.pushes.problem == "ImportError"
    assert publisher.pushes.outcomes["failed"] == guard.errors["push-pushgateway"] == 1
    assert pauses == [2 * push.PUSH_SECONDS]


def test_target_that_hangs_does_not_delay_the_end(double, publishing):
    answers = threading.Event()
    double.script.append(held(answers, reply(200)))
    publisher = publishing(pushgateway_url=double.url)
    double.wait_for(1)
    publisher.stop(planned=True)
    publisher.join(0.05)

    until(lambda: not publisher._loop._thread.is_alive(), "its connection is cut")
    assert not publisher.pushes.outcomes["delivered"]
    answers.set()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pushgateway_url": "http://gate.example"}, "pushgateway_url must be https://"),
        ({"otlp_endpoint": "ftp://x"}, "otlp_endpoint must be an https:// URL"),
        ({"otlp_headers_file": "/h"}, "needs 'otlp_endpoint'"),
        ({"otlp_endpoint": "https://x", "otlp_headers_file": "/no"}, "otlp_headers_file"),
    ],
)
def test_unusable_settings_are_named(settings, message):
    with pytest.raises(SettingsError, match=message):
        push_targets(Settings(**settings))


# -- otlp -------------------------------------------------------------------------------------


def test_a_package_that_is_missing_fails_the_pushes_and_nothing_else(
    double, publishing, monkeypatch, caplog
):
    """Monitoring must not end with an optional part; the part works once it is installed."""
    with monkeypatch.context() as missing:
        missing.setattr(push, "find_spec", lambda _: None)
        publisher = publishing(otlp_endpoint=double.url)
        until(lambda: publisher.pushes.outcomes["misconfigured"] > 1, "pushes fail")
        assert publisher.pushes.problem == push.NOT_INSTALLED
        assert double.requests == []
    until(lambda: publisher.pushes.outcomes["delivered"], "a push succeeds")

    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "pip install 'querypulse[otlp]'" in caplog.text
    assert publisher.pushes.problem is None


def test_otlp_receiver_gets_figures_with_its_headers(double, publishing, tmp_path):
    headers = tmp_path / "headers"
    headers.write_text("api-key=s3cret")
    publishing(otlp_endpoint=double.url, otlp_headers_file=str(headers))
    request = double.wait_for(1)[0]

    assert (request.method, request.path) == ("POST", "/v1/metrics")
    assert request.headers["Content-Type"] == "application/x-protobuf"
    assert request.headers["api-key"] == "s3cret"
    assert ExportMetricsServiceRequest.FromString(request.body).resource_metrics


def test_figures_that_an_otlp_receiver_refuses_are_a_failure(double, publishing):
    answer = ExportMetricsServiceResponse()
    answer.partial_success.rejected_data_points = 3
    double.script.append(reply(200, body=answer.SerializeToString()))
    publisher = publishing(otlp_endpoint=double.url)
    until(lambda: publisher.pushes.outcomes["rejected"], "figures are refused")

    assert publisher.pushes.outcomes["failed"] == 0
    assert [push.rejected(body) for body in (b"", b"<html>")] == [0, 0]


def test_every_family_is_sent_as_its_kind():
    labelled = replace(full_published(), labels={"env": "prod"})
    body = push.request_body(labelled, began=WALL - 1000, wall=WALL)
    (resource,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
    assert attributes(resource.resource) == {
        "service.name": "shop",
        "service.instance.id": "driver-a:9719",
        "env": "prod",
    }
    sent = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
    assert set(sent) == sent_names()

    counter = sent["spark_streaming_query_commits"].sum
    busy = next(entry for entry in counter.data_points if attributes(entry)["query"] == "busy")
    times = (busy.start_time_unix_nano / 1e9, busy.time_unix_nano / 1e9)
    assert (counter.is_monotonic, counter.aggregation_temporality) == (True, 2)
    assert (busy.as_double, *times) == (1.0, WALL - 1000, WALL)
    (failure,) = sent["spark_streaming_query_failure_info"].gauge.data_points
    assert attributes(failure)["error_class"] == "ConcurrentAppendException"

    (probes,) = sent["querypulse_probe_duration_seconds"].histogram.data_points
    assert probes.count == sum(probes.bucket_counts) == 2
    assert len(probes.bucket_counts) == len(probes.explicit_bounds) + 1
    assert probes.sum == pytest.approx(0.32)


def attributes(point):
    return {entry.key: entry.value.string_value for entry in point.attributes}


# -- real servers -----------------------------------------------------------------------------


@pytest.mark.pushgateway
def test_real_pushgateway_shows_the_figures_until_the_planned_end(tmp_path, publishing):
    port = free_port()
    command = ["prometheus-pushgateway", f"--web.listen-address=127.0.0.1:{port}"]
    gateway = ServerProcess(command, port, tmp_path / "gateway.log")

    def shown():
        return requests.get(f"{gateway.url}/metrics", timeout=PATIENCE_SECONDS).text

    mine = (
        'spark_streaming_query_active{app="shop",instance="driver-a:9719",job="querypulse",'
        'query="busy"} 1'
    )
    with gateway:
        publisher = publishing(pushgateway_url=gateway.url)
        other = publishing(
            pushgateway_url=gateway.url,
            published=lambda: replace(full_published(app="bank"), labels={"env": "prod"}),
        )
        until(lambda: mine in shown(), "the figures are shown")
        theirs = 'app="bank",env="prod",instance="driver-a:9719",job="querypulse",query="busy"} 1'
        until(lambda: theirs in shown(), "those of the other driver, too, with its labels")
        assert (
            'push_failure_time_seconds{app="shop",instance="driver-a:9719",job="querypulse"} 0'
            in shown()
        )
        end(other, planned=False)
        end(publisher, planned=True)
        # The Pushgateway answers 202 and deletes the group a moment later.
        until(lambda: 'app="shop"' not in shown(), "the group is deleted")
        assert 'app="bank"' in shown()


@pytest.mark.pushgateway
def test_two_drivers_of_one_app_do_not_mix_at_a_real_pushgateway(tmp_path, publishing):
    port = free_port()
    command = ["prometheus-pushgateway", f"--web.listen-address=127.0.0.1:{port}"]
    gateway = ServerProcess(command, port, tmp_path / "gateway.log")

    def drivers():
        shown = requests.get(f"{gateway.url}/metrics", timeout=PATIENCE_SECONDS).text
        return set(
            re.findall(
                r'^querypulse_mailbox_depth\{app="shop",instance="(.+?)"', shown, re.MULTILINE
            )
        )

    with gateway:
        before, after = (
            publishing(
                pushgateway_url=gateway.url,
                published=lambda name=name: replace(full_published(), instance=name),
            )
            for name in ("driver-a:9719", "driver-b:9719")
        )
        until(lambda: drivers() == {"driver-a:9719", "driver-b:9719"}, "both are shown")
        end(before, planned=True)

        until(lambda: drivers() == {"driver-b:9719"}, "only the group of the first is deleted")
        end(after, planned=True)


def test_instance_is_the_address_of_a_scrape():
    host = socket.gethostname()

    assert push.instance_of("http://0.0.0.0:9720") == f"{host}:9720"
    assert push.instance_of(None) == host


COLLECTOR = """
receivers: {{otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{port}"}}}}}}}}
exporters: {{debug: {{verbosity: detailed}}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{metrics: {{receivers: [otlp], exporters: [debug]}}}}
"""


@pytest.mark.collector
def test_real_collector_accepts_every_figure(tmp_path, publishing):
    port, config, log = free_port(), tmp_path / "collector.yaml", tmp_path / "collector.log"
    config.write_text(COLLECTOR.format(port=port))
    collector = ServerProcess([os.environ["OTELCOL"], f"--config=file:{config}"], port, log)
    try:
        publisher = publishing(otlp_endpoint=collector.url)
        until(lambda: publisher.pushes.outcomes["delivered"], "a push succeeds")
        until(
            lambda: all(f"-> Name: {name}\n" in log.read_text() for name in sent_names()),
            "the collector has every figure",
        )
    finally:
        collector.stop()

    assert "-> service.name: Str(shop)" in log.read_text()
    assert publisher.pushes.outcomes["rejected"] == 0
