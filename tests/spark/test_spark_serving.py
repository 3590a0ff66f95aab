"""On real Spark: what the HTTP server answers, and which errors users get."""

from __future__ import annotations

import logging
import shutil
import subprocess

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families
from support.queries import Trap, commits, rate, start, until

from querypulse.sidecar import QueryFailure, SettingsError, attach
from querypulse.sidecar.sidecar import SIDECARS

pytestmark = pytest.mark.spark


def get(sidecar, path):
    return requests.get(f"{sidecar.url}{path}", timeout=10)


def samples(sidecar):
    families = text_string_to_metric_families(get(sidecar, "/metrics").text)
    return {
        (sample.name, sample.labels.get("query"), sample.labels.get("state")): sample.value
        for family in families
        for sample in family.samples
    }


def test_metrics_follow_a_query_until_it_fails(spark, watch, pages):
    sidecar = watch(app_name="etl")
    trap = Trap()
    trap.work = lambda batch: batch.count()
    start(rate(spark), "served", trap)
    commits(sidecar, "served", batches=3)

    rows = ("spark_streaming_query_input_rows_total", "served", None)
    until(lambda: samples(sidecar)[rows] > 0, "rows are counted")
    alive = samples(sidecar)
    assert alive["spark_streaming_query_state", "served", "running"] == 1
    assert alive["spark_streaming_query_active", "served", None] == 1
    assert alive["spark_streaming_query_commits_total", "served", None] >= 1

    trap.die.set()
    pages.wait_for("StreamingQueryFailed", "served")
    until(
        lambda: samples(sidecar)["querypulse_heartbeat_timestamp_seconds", None, None],
        "the heartbeat is served",
    )
    dead = samples(sidecar)
    assert dead["spark_streaming_query_state", "served", "failed"] == 1
    assert dead["spark_streaming_query_active", "served", None] == 0
    assert 'error_class="Boom"' in get(sidecar, "/metrics").text
    assert pages.pages[0].labels["app"] == "etl"


@pytest.mark.prometheus
def test_promtool_accepts_the_metrics_of_a_driver(spark, watch, pages):
    sidecar = watch()
    trap = Trap()
    start(rate(spark), "checked", trap)
    start(
        rate(spark).withWatermark("timestamp", "1 second").groupBy("timestamp").count(), "stateful"
    )
    commits(sidecar, "checked")
    trap.die.set()
    pages.wait_for("StreamingQueryFailed", "checked")

    metrics = get(sidecar, "/metrics").text
    result = subprocess.run(
        [shutil.which("promtool"), "check", "metrics"],
        input=metrics,
        text=True,
        capture_output=True,
    )

    assert (result.returncode, result.stdout + result.stderr) == (0, "")


def test_status_and_readiness_report_the_unhealthy_queries(spark, watch, pages):
    sidecar = watch(expected_queries=["failing", "absent"])
    trap = Trap()
    start(rate(spark), "failing", trap)
    start(rate(spark), "healthy")
    commits(sidecar, "failing")
    commits(sidecar, "healthy")
    assert get(sidecar, "/livez").status_code == 200
    assert [r["query"] for r in get(sidecar, "/readyz").json()["reasons"]] == ["absent"]

    trap.die.set()
    pages.wait_for("StreamingQueryFailed", "failing")
    status = get(sidecar, "/status").json()
    queries = {query["name"]: query for query in status["queries"]}

    assert status["spark_version"] == spark.version
    assert queries["failing"]["state"] == "failed"
    assert queries["failing"]["reason"].startswith("Boom: ")
    assert queries["healthy"]["state"] == "running"
    assert queries["absent"]["state"] == "starting"
    assert [alert["labels"]["alertname"] for alert in status["alerts"]] == ["StreamingQueryFailed"]
    assert {r["query"] for r in get(sidecar, "/readyz").json()["reasons"]} == {"failing", "absent"}
    assert get(sidecar, "/readyz").status_code == 503
    assert get(sidecar, "/nonsense").status_code == 404


def test_driver_is_ready_when_all_queries_are_healthy(spark, watch):
    sidecar = watch(expected_queries=["healthy"])
    start(rate(spark), "healthy")
    commits(sidecar, "healthy")

    until(lambda: get(sidecar, "/readyz").status_code == 200, "the driver is ready")


@pytest.mark.fault(
    "Disk, port and mounts",
    "The HTTP port is taken",
    "One error in the log; `sidecar.url` is None; monitoring goes on",
)
def test_taken_port_logs_one_error_and_monitoring_continues(spark, watch, pages, caplog):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with caplog.at_level(logging.ERROR, "querypulse"):
            sidecar = watch(http_port=port)
        trap = Trap()
        start(rate(spark), "unserved", trap)
        commits(sidecar, "unserved")
        trap.die.set()
        pages.wait_for("StreamingQueryFailed", "unserved")

    assert sidecar.url is None
    assert [query.state for query in sidecar.snapshot().queries] == ["failed"]
    ours = [r for r in caplog.records if r.name == "querypulse"]
    (line,) = [r.getMessage() for r in ours if r.levelno >= logging.ERROR]
    assert str(port) in line
    assert "\n" not in line


def test_without_a_server_there_is_no_url(watch):
    assert watch(http_port=-1).url is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"stall_flor_seconds": 3}, "did you mean 'stall_floor_seconds'"),
        ({"http_port": "many"}, "setting 'http_port' from argument http_port"),
        ({"webhook_url": "ftp://host/"}, "webhook_url"),
        ({"pagerduty_routing_key_file": "/no/such/file"}, "pagerduty_routing_key_file"),
    ],
)
def test_wrong_settings_raise_from_attach_and_register_nothing(spark, arguments, message):
    with pytest.raises(SettingsError, match=message):
        attach(spark, **arguments)

    assert SIDECARS.find(spark.sparkContext) is None
    assert list(spark.streams._jsqm.listListeners()) == []


def test_await_any_failure_raises_when_a_query_dies(spark, watch):
    sidecar = watch()
    trap = Trap()
    start(rate(spark), "healthy")
    start(rate(spark), "awaited", trap)
    commits(sidecar, "awaited")
    sidecar.await_any_failure(timeout=0.5)
    trap.die.set()

    with pytest.raises(QueryFailure, match="Boom") as raised:
        sidecar.await_any_failure(timeout=30)
    assert raised.value.query == "awaited"
    assert raised.value.reason.startswith("Boom: ")


def test_await_any_failure_returns_when_every_query_has_completed(spark, watch):
    sidecar = watch()
    rate(spark).writeStream.queryName("finite").format("noop").trigger(availableNow=True).start()

    sidecar.await_any_failure(timeout=60)

    assert [query.state for query in sidecar.snapshot().queries] == ["completed"]


def test_flush_evaluates_and_delivers_what_has_happened(spark, watch, pages):
    sidecar = watch(probe_interval_seconds=30)
    trap = Trap()
    trap.die.set()
    query = start(rate(spark), "flushed", trap)
    until(lambda: not query.isActive, "the query has failed")

    assert sidecar.flush()
    assert pages.reported == [("firing", "StreamingQueryFailed", "flushed")]
    assert sidecar.alerts()[0].labels["query"] == "flushed"
