"""A real Prometheus scrapes drivers: which labels count, and what the last scrape leaves."""

from __future__ import annotations

import time

import pytest
import yaml
from support.http_double import HttpDouble, reply
from support.observed import quick_rules
from support.patience import until
from support.prometheus import RealPrometheus, accepted
from support.repository import DASHBOARDS, ROOT, fenced

PAGE = b'spark_streaming_query_active{app="shop",query="orders"} 1\n'
OF_THE_POD = {"app": "spark-driver", "query": "none"}


def documented(key):
    """The only YAML block of the page with this key."""
    page = (ROOT / "docs/prometheus.md").read_text()
    blocks = map(yaml.safe_load, fenced(page, "yaml"))
    (block,) = [block for block in blocks if key in block]
    return block


def test_each_scrape_configuration_and_the_shipped_monitor_keep_the_labels_of_querypulse():
    shipped = yaml.safe_load((DASHBOARDS / "compose/prometheus.yaml").read_text())
    configs = documented("scrape_configs")["scrape_configs"] + shipped["scrape_configs"]
    monitor = yaml.safe_load((ROOT / "deploy/kubernetes/podmonitor.yaml").read_text())

    assert {config["honor_labels"] for config in configs} == {True}
    assert {end["honorLabels"] for end in monitor["spec"]["podMetricsEndpoints"]} == {True}


@pytest.mark.prometheus
def test_promtool_accepts_the_documented_configuration(tmp_path):
    file = tmp_path / "prometheus.yaml"
    file.write_text(yaml.safe_dump(documented("scrape_configs")))

    accepted("promtool", "check", "config", "--syntax-only", file)


@pytest.mark.prometheus
def test_target_labels_do_not_rename_querypulse_labels(tmp_path):
    with (
        HttpDouble(otherwise=reply(200, {"Content-Type": "text/plain"}, PAGE)) as driver,
        RealPrometheus(tmp_path, [driver.url], target_labels=OF_THE_POD) as prometheus,
    ):
        until(lambda: prometheus.query("spark_streaming_query_active"), "the driver is scraped")
        (series,) = prometheus.query("spark_streaming_query_active")

    assert series["metric"].items() >= {("app", "shop"), ("query", "orders")}
    assert "exported_app" not in series["metric"]


class Scraped(HttpDouble):
    """The metrics page of a driver; ``alerts`` has the value of the series of each alert."""

    def __init__(self, *alerts):
        super().__init__()
        self.alerts = dict.fromkeys(alerts, 1)

    def handle(self, request, handler):
        labels = 'app="shop",query="orders",severity="critical"'
        lines = [
            f'spark_streaming_query_alert{{{labels},alertname="{name}"}} {value}\n'
            for name, value in self.alerts.items()
        ]
        lines += [
            f'querypulse_driver_{what}_timestamp_seconds{{app="shop"}} {time.time()}\n'
            for what in ("heartbeat", "expected")
        ]
        reply(200, {"Content-Type": "text/plain"}, "".join(lines).encode())(handler)


@pytest.mark.slow
@pytest.mark.prometheus
def test_failure_stays_open_when_its_driver_dies_and_nothing_else_does(tmp_path):
    failed, stalled, stopped = (f"StreamingQuery{end}" for end in ("Failed", "Stalled", "Stopped"))
    with (
        Scraped(failed, stalled, stopped) as driver,
        RealPrometheus(tmp_path, [driver.url], rules=quick_rules(tmp_path)) as prometheus,
    ):
        until_open(prometheus, failed, stalled, stopped)
        driver.alerts[stopped] = 0
        until_open(prometheus, failed, stalled)
        driver.__exit__()
        until_open(prometheus, failed, stalled, "StreamingDriverDown")
        until_open(prometheus, failed, "StreamingDriverDown")


def until_open(prometheus, *alerts):
    def fire():
        firing = [alert for alert in prometheus.alerts() if alert["state"] == "firing"]
        names = {alert["labels"]["alertname"] for alert in firing} - {"QuerypulseWatchdog"}
        return names == set(alerts)

    until(fire, f"exactly {alerts} fire")
