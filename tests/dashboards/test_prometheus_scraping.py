"""A real Prometheus scrapes drivers: which labels count, and what the last scrape leaves."""

from __future__ import annotations

import time

import pytest
import yaml
from support.http_double import HttpDouble, reply
from support.observed import quickened
from support.patience import until
from support.prometheus import RealPrometheus
from support.repository import fenced
from support.rule_files import DASHBOARDS, RULES, promtool

ROOT = DASHBOARDS.parent
PAGE = b'spark_streaming_query_active{app="shop",query="orders"} 1\n'
OF_THE_POD = {"app": "spark-driver", "query": "none"}


def documented(key):
    """The only YAML block of the page with this key."""
    page = (ROOT / "docs/prometheus.md").read_text()
    blocks = map(yaml.safe_load, fenced(page, "yaml"))
    (block,) = [block for block in blocks if key in block]
    return block


def test_each_scrape_configuration_keeps_the_labels_of_querypulse():
    shipped = yaml.safe_load((DASHBOARDS / "compose/prometheus.yaml").read_text())
    configs = documented("scrape_configs")["scrape_configs"] + shipped["scrape_configs"]

    assert [config["honor_labels"] for config in configs] == [True] * len(configs)


def test_the_documented_monitor_keeps_the_labels_of_querypulse():
    endpoints = documented("kind")["spec"]["podMetricsEndpoints"]

    assert [endpoint["honorLabels"] for endpoint in endpoints] == [True] * len(endpoints)


@pytest.mark.prometheus
def test_promtool_accepts_the_documented_configuration(tmp_path):
    config = documented("scrape_configs")
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(config))

    done = promtool("check", "config", "--syntax-only", str(tmp_path / "prometheus.yaml"))

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.prometheus
def test_target_labels_do_not_rename_querypulse_labels(tmp_path):
    with HttpDouble(otherwise=reply(200, {"Content-Type": "text/plain"}, PAGE)) as driver:
        prometheus = RealPrometheus(tmp_path, [driver.url], target_labels=OF_THE_POD)
        try:
            prometheus.wait_until_ready()
            until(lambda: prometheus.query("spark_streaming_query_active"), "the driver is scraped")
            (series,) = prometheus.query("spark_streaming_query_active")
        finally:
            prometheus.stop()

    assert series["metric"].items() >= {("app", "shop"), ("query", "orders")}
    assert "exported_app" not in series["metric"]


class Scraped(HttpDouble):
    """The metrics page of a driver with open alerts."""

    def __init__(self):
        super().__init__()
        self.open = {"StreamingQueryStopped", "StreamingOffsetsStalled"}

    def handle(self, request, handler):
        alerts = (
            f'spark_streaming_query_alert{{app="shop",query="orders",alertname="{name}",'
            'severity="critical"} 1\n'
            for name in sorted(self.open)
        )
        beat = f'querypulse_driver_heartbeat_timestamp_seconds{{app="shop"}} {time.time()}\n'
        body = (beat + "".join(alerts)).encode()
        reply(200, {"Content-Type": "text/plain"}, body)(handler)


@pytest.mark.prometheus
def test_driver_death_keeps_open_alerts_and_revives_no_resolved_ones(tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text(quickened(RULES.read_text()))
    with Scraped() as driver:
        prometheus = RealPrometheus(tmp_path, [driver.url], rules=[rules])
        try:
            prometheus.wait_until_ready()
            until(lambda: names(prometheus, {"firing"}) == driver.open, "both fire")
            driver.open = {"StreamingOffsetsStalled"}
            until(lambda: names(prometheus, {"firing"}) == driver.open, "one resolves")
            driver.__exit__()
            until(lambda: not prometheus.query("up == 1"), "the driver is not scraped any more")
            seen = seen_until_all_have_ended(prometheus)
        finally:
            prometheus.stop()

    assert seen == [{"StreamingOffsetsStalled"}, set()]


def seen_until_all_have_ended(prometheus):
    """What alerts, pending or firing, in the order in which that changed."""
    seen = [names(prometheus)]

    def all_have_ended():
        if (now := names(prometheus)) != seen[-1]:
            seen.append(now)
        return not now

    until(all_have_ended, "what was kept ends")
    return seen


def names(prometheus, states=frozenset({"pending", "firing"})):
    """The alerts in these states, except QuerypulseWatchdog."""
    alerts = [alert for alert in prometheus.alerts() if alert["state"] in states]
    return {alert["labels"]["alertname"] for alert in alerts} - {"QuerypulseWatchdog"}
