"""Pushing never waits for the job: figures are replaced, failures counted, the end is bounded."""

from __future__ import annotations

import os
import threading

import pytest
import requests
from msgspec import structs
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from support.http_double import HttpDouble, held, reply
from support.patience import PATIENCE_SECONDS, until
from support.published_states import full_published
from support.server_process import ServerProcess, free_port

from querypulse.core.guard import Guard
from querypulse.exporter.exposition import base_name
from querypulse.exporter.metrics import all_families
from querypulse.settings.settings import Settings, SettingsError
from querypulse.settings.wiring import push_connections
from querypulse.sidecar.pushing import Publisher, make_publishers


@pytest.fixture
def double():
    with HttpDouble() as double:
        yield double


@pytest.fixture
def publishing():
    """Start what the settings say; everything ends with the test."""
    started = []

    def start(*, published=full_published, app="shop", interval=0.05, **settings):
        connections = structs.replace(
            push_connections(Settings(**settings)), interval_seconds=interval
        )
        one = make_publishers(app, connections, published, Guard())
        one.start()
        started.append(one)
        return one

    yield start
    for one in started:
        one.stop(planned=False)
        one.join(lambda: PATIENCE_SECONDS)


def end(publishers, *, planned):
    publishers.stop(planned=planned)
    publishers.join(lambda: PATIENCE_SECONDS)


def test_planned_end_deletes_the_group(double, publishing):
    publishers = publishing(pushgateway_url=double.url)
    double.wait_for(2)
    end(publishers, planned=True)

    assert {one.method for one in double.requests[:-1]} == {"PUT"}
    assert double.requests[-1].method == "DELETE"
    assert {one.path for one in double.requests} == {
        "/metrics/job/querypulse/instance@base64/c2hvcA=="
    }


def test_crash_leaves_the_newest_figures_behind(double, publishing):
    publishers = publishing(pushgateway_url=double.url, interval=60)
    double.wait_for(1)
    end(publishers, planned=False)

    assert [one.method for one in double.requests] == ["PUT", "PUT"]


def test_nothing_is_deleted_that_this_process_has_not_pushed(double, publishing):
    publishers = publishing(pushgateway_url=double.url, published=lambda: None)
    end(publishers, planned=True)

    assert double.requests == []


def test_failures_are_counted_and_shown_until_a_push_succeeds(double, publishing):
    read = threading.Event()
    double.script.extend([reply(403), held(read, reply(200))])
    publishers = publishing(pushgateway_url=double.url)
    until(lambda: publishers.pushes["pushgateway"].outcomes["misconfigured"], "a push fails")
    failed = publishers.pushes["pushgateway"]
    read.set()
    until(lambda: publishers.pushes["pushgateway"].outcomes["delivered"], "a push succeeds")

    assert failed.problem.endswith("answered 403")
    assert publishers.pushes["pushgateway"].problem == ""


class IncompleteTarget:
    """Pushes with a package that another one has broken."""

    name = "otlp"

    def __init__(self):
        self.pushes = []

    def push(self, published, wall):
        self.pushes.append(wall)
        raise ImportError("cannot import name 'x'")

    def end(self, wall): ...

    def close(self): ...


class NotedPauses(threading.Event):
    """Keeps for how long it was waited for."""

    def __init__(self):
        super().__init__()
        self.seconds = []

    def wait(self, timeout=None):
        self.seconds.append(timeout)
        return super().wait(timeout)


@pytest.mark.contains_errors
def test_unexpected_error_is_shown_and_followed_by_the_usual_pause():
    target, guard, pauses = IncompleteTarget(), Guard(), NotedPauses()
    publisher = Publisher(target, full_published, guard, interval_seconds=60.0)
    publisher._ending = pauses
    publisher.start()
    until(lambda: pauses.seconds, "it pauses")
    publisher.stop(planned=True)
    publisher.join(PATIENCE_SECONDS)

    assert publisher.pushes.problem == "ImportError"
    assert publisher.pushes.outcomes["failed"] == len(target.pushes) == 1
    assert guard.errors["push-otlp"] == 1
    assert pauses.seconds == [60.0]


class HangingTarget:
    """Pushes until it is free."""

    name = "otlp"

    def __init__(self):
        self.began, self.free, self.closed = (threading.Event() for _ in range(3))
        self.returned = False

    def push(self, published, wall):
        self.began.set()
        self.free.wait(PATIENCE_SECONDS)
        self.returned = True

    def end(self, wall): ...

    def close(self):
        self.closed.set()


def test_target_that_hangs_does_not_delay_the_end():
    target = HangingTarget()
    publisher = Publisher(target, full_published, Guard(), interval_seconds=60.0)
    publisher.start()
    assert target.began.wait(PATIENCE_SECONDS)
    publisher.stop(planned=True)
    publisher.join(0.05)

    assert (target.closed.is_set(), target.returned) == (True, False)
    target.free.set()
    publisher.join(PATIENCE_SECONDS)


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
    publishers = publishing(otlp_endpoint=double.url)
    until(lambda: publishers.pushes["otlp"].outcomes["rejected"], "figures are refused")

    assert publishers.pushes["otlp"].outcomes["failed"] == 0


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
        push_connections(Settings(**settings))


def test_missing_package_is_named(monkeypatch):
    monkeypatch.setattr("querypulse.exporter.push.find_spec", lambda _: None)

    with pytest.raises(SettingsError, match="pip install opentelemetry-sdk "):
        push_connections(Settings(otlp_endpoint="https://x"))


def started_gateway(folder):
    """Another process may take the free port first."""
    for attempt in range(5):
        port = free_port()
        command = ["prometheus-pushgateway", f"--web.listen-address=127.0.0.1:{port}"]
        gateway = ServerProcess(command, port, folder / f"gateway-{attempt}.log")
        try:
            gateway.wait_until_ready()
        except AssertionError:
            gateway.stop()
        else:
            return gateway
    raise AssertionError((folder / "gateway-4.log").read_text())


@pytest.mark.pushgateway
def test_real_pushgateway_shows_the_figures_until_the_planned_end(tmp_path, publishing):
    gateway = started_gateway(tmp_path)

    def shown():
        return requests.get(f"{gateway.url}/metrics", timeout=PATIENCE_SECONDS).text

    mine = (
        'spark_streaming_query_active{app="shop",instance="shop",job="querypulse",query="busy"} 1'
    )
    try:
        publishers = publishing(pushgateway_url=gateway.url)
        other = publishing(
            pushgateway_url=gateway.url, app="bank", published=lambda: full_published(app="bank")
        )
        until(lambda: mine in shown(), "the figures are shown")
        until(lambda: 'instance="bank"' in shown(), "those of the other driver, too")
        assert 'push_failure_time_seconds{instance="shop",job="querypulse"} 0' in shown()
        end(other, planned=False)
        end(publishers, planned=True)
        # The Pushgateway answers 202 and deletes the group a moment later.
        until(lambda: 'instance="shop"' not in shown(), "the group is deleted")
        assert 'instance="bank"' in shown()
    finally:
        gateway.stop()


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
    families = [one for one in all_families(full_published()) if one.samples]
    names = [base_name(one) if one.kind == "counter" else one.name for one in families]
    collector = ServerProcess([os.environ["OTELCOL"], f"--config=file:{config}"], port, log)
    try:
        publishers = publishing(otlp_endpoint=collector.url)
        until(lambda: publishers.pushes["otlp"].outcomes["delivered"], "a push succeeds")
        until(
            lambda: all(f"-> Name: {name}\n" in log.read_text() for name in names),
            "the collector has every figure",
        )
    finally:
        collector.stop()

    assert "-> service.name: Str(shop)" in log.read_text()
    assert publishers.pushes["otlp"].outcomes["rejected"] == 0
