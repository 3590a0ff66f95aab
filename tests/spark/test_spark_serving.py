"""On real Spark: what the HTTP server answers, and which errors users get."""

from __future__ import annotations

import logging
import socket

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families
from support.patience import PATIENCE_SECONDS
from support.queries import SPARK_PATIENCE_SECONDS, Trap, commits, rate, start, until

from querypulse.sidecar import QueryFailure

pytestmark = [pytest.mark.spark, pytest.mark.every_spark]


def get(sidecar, path):
    return requests.get(f"{sidecar.url}{path}", timeout=PATIENCE_SECONDS)


def samples(sidecar):
    families = text_string_to_metric_families(get(sidecar, "/metrics").text)
    return {
        (sample.name, sample.labels.get("query"), sample.labels.get("state")): sample.value
        for family in families
        for sample in family.samples
    }


def test_metrics_status_and_readiness_follow_a_query_until_it_fails(spark, watch, pages):
    sidecar = watch(app_name="etl", expected_queries=["served", "absent"])
    trap = Trap()
    trap.work = lambda batch: batch.count()
    start(rate(spark), "served", trap)
    start(rate(spark), "healthy")
    commits(sidecar, "served", batches=3)
    commits(sidecar, "healthy")

    rows = ("spark_streaming_query_input_rows_total", "served", None)
    until(lambda: samples(sidecar)[rows] > 0, "rows are counted")
    alive = samples(sidecar)
    assert alive["spark_streaming_query_state", "served", "running"] == 1
    assert alive["spark_streaming_query_active", "served", None] == 1
    assert alive["spark_streaming_query_commits_total", "served", None] >= 1
    until(lambda: get(sidecar, "/livez").status_code == 200, "the worker is alive")
    assert [r["query"] for r in get(sidecar, "/readyz").json()["reasons"]] == ["absent"]
    start(rate(spark), "absent")
    until(lambda: get(sidecar, "/readyz").status_code == 200, "the driver is ready")
    sidecar.await_any_failure(timeout=0.5)

    trap.die.set()
    with pytest.raises(QueryFailure, match="Boom") as raised:
        sidecar.await_any_failure(SPARK_PATIENCE_SECONDS)
    assert raised.value.query == "served"
    assert raised.value.reason.startswith("Boom: ")
    assert pages.wait_for("StreamingQueryFailed", "served").labels["app"] == "etl"
    dead = "spark_streaming_query_state", "served", "failed"
    until(lambda: samples(sidecar)[dead] == 1, "the failure is served")
    assert samples(sidecar)["spark_streaming_query_active", "served", None] == 0
    assert samples(sidecar)["querypulse_driver_heartbeat_timestamp_seconds", None, None] > 0
    assert 'error_class="Boom"' in get(sidecar, "/metrics").text
    status = get(sidecar, "/status").json()
    queries = {query["name"]: query for query in status["queries"]}
    assert status["spark_version"] == spark.version
    assert queries["served"]["state"] == "failed"
    assert queries["served"]["reason"].startswith("Boom: ")
    assert queries["healthy"]["state"] == "running"
    assert [alert["labels"]["alertname"] for alert in status["alerts"]] == ["StreamingQueryFailed"]
    assert {r["query"] for r in get(sidecar, "/readyz").json()["reasons"]} == {"served"}
    assert get(sidecar, "/readyz").status_code == 503
    assert get(sidecar, "/nonsense").status_code == 404


@pytest.mark.fault(
    "Disk, port and mounts",
    "The HTTP port is taken",
    "One warning in the log; `sidecar.url` has the next free port",
)
def test_sidecar_whose_port_is_taken_says_where_it_serves(spark, watch, pages, caplog):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with caplog.at_level(logging.WARNING, "querypulse"):
            sidecar = watch(http_port=port)
        trap = Trap()
        start(rate(spark), "unserved", trap)
        commits(sidecar, "unserved")
        trap.die.set()
        pages.wait_for("StreamingQueryFailed", "unserved")

    shown = lambda: get(sidecar, "/status").json()["queries"][0]["state"]
    until(lambda: shown() == "failed", "the failure is served")
    said = [record.getMessage() for record in caplog.records if record.name == "querypulse"]
    assert f"querypulse: http://127.0.0.1:{port} is taken: this driver serves {sidecar.url}" in said


def test_flush_evaluates_and_delivers_what_has_happened(spark, watch, pages):
    """The wait for a failure ends as well when every query has completed."""
    sidecar = watch(probe_interval_seconds=30, http_port=-1)
    assert sidecar.url is None
    rate(spark).writeStream.queryName("finite").format("noop").trigger(availableNow=True).start()
    sidecar.await_any_failure(SPARK_PATIENCE_SECONDS)
    assert [query.state for query in sidecar.snapshot().queries] == ["completed"]

    trap = Trap()
    trap.die.set()
    query = start(rate(spark), "flushed", trap)
    until(lambda: not query.isActive, "the query has failed")

    assert sidecar.flush()
    assert pages.reported == [("firing", "StreamingQueryFailed", "flushed")]
    assert sidecar.alerts()[0].labels["query"] == "flushed"
