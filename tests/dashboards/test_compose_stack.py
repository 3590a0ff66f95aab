"""The compose stack, started in containers: opt-in, requires a Docker engine."""

from __future__ import annotations

import subprocess
import sys

import pytest
import requests
from support.patience import until
from support.repository import ROOT

from querypulse.commands import cli

PATIENCE_SECONDS = 900
"""For images that are pulled, and a driver that starts."""
DRIVER, PROMETHEUS = "http://localhost:9719", "http://localhost:9090"
ALERTMANAGER, GRAFANA = "http://localhost:9093", "http://localhost:3000"

pytestmark = [pytest.mark.docker, pytest.mark.timeout(2 * PATIENCE_SECONDS)]


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    """The stack, started as its README describes, from the current code."""
    folder = tmp_path_factory.mktemp("stack")
    assert cli.main(["dashboards", "export", str(folder)]) == 0
    wheels = folder / "compose" / "driver" / "wheels"
    pip = [sys.executable, "-Im", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", wheels]
    subprocess.run([*pip, ROOT], check=True)
    compose = ["docker", "compose", "--file", str(folder / "compose" / "compose.yaml")]
    try:
        subprocess.run([*compose, "up", "--build", "--wait"], check=True)
        yield compose
    finally:
        subprocess.run([*compose, "down", "--volumes"], check=True)


def get(url, **parameters):
    answer = requests.get(url, params=parameters, timeout=PATIENCE_SECONDS)
    assert answer.ok, (url, answer.status_code, answer.text)
    return answer.json()


def found(promql):
    return get(f"{PROMETHEUS}/api/v1/query", query=promql)["data"]["result"]


def test_prometheus_scrapes_the_driver_and_loads_the_rules(stack):
    until(lambda: found("spark_streaming_query_commits_total > 0"), "a commit", PATIENCE_SECONDS)
    rules = get(f"{PROMETHEUS}/api/v1/rules")["data"]["groups"]

    assert [series["value"][1] for series in found("up")] == ["1"]
    assert {rule["health"] for group in rules for rule in group["rules"]} <= {"ok", "unknown"}
    assert get(f"{PROMETHEUS}/api/v1/alertmanagers")["data"]["activeAlertmanagers"]


def test_grafana_shows_both_dashboards_without_login_and_rejects_the_default_password(stack):
    uids = {dashboard["uid"] for dashboard in get(f"{GRAFANA}/api/search", type="dash-db")}
    default = {"auth": ("admin", "admin"), "timeout": PATIENCE_SECONDS}

    assert uids == {"querypulse-fleet", "querypulse-query"}
    assert get(f"{GRAFANA}/api/dashboards/uid/querypulse-fleet")["meta"]["provisioned"]
    assert requests.get(f"{GRAFANA}/api/org/users", **default).status_code in {401, 403}


def test_grafana_gets_figures_from_prometheus(stack):
    query = {
        "refId": "A",
        "datasource": {"uid": "querypulse-prometheus"},
        "expr": "spark_streaming_query_active",
        "instant": True,
    }
    body = {"queries": [query], "from": "now-5m", "to": "now"}

    def frames():
        answer = requests.post(f"{GRAFANA}/api/ds/query", json=body, timeout=PATIENCE_SECONDS)
        assert answer.ok, answer.text
        return answer.json()["results"]["A"]["frames"]

    until(lambda: len(frames()) == 8, "a line for each query", PATIENCE_SECONDS)


def test_query_failure_arrives_at_alertmanager(stack):
    def received():
        alerts = get(f"{ALERTMANAGER}/api/v2/alerts")
        return {(alert["labels"]["alertname"], alert["labels"]["query"]) for alert in alerts}

    failure = ("StreamingQueryFailed", "alert_resolution")
    until(lambda: failure in received(), "the failure arrives", PATIENCE_SECONDS)
