"""A real Prometheus scrapes drivers: which labels count, and what the last scrape leaves."""

from __future__ import annotations

import re
import time

import pytest
import yaml
from support.http_double import HttpDouble, reply
from support.observed import quickened
from support.prometheus import RealPrometheus
from support.queries import until
from support.rule_files import DASHBOARDS, RULES, promtool

ROOT = DASHBOARDS.parent
DOCUMENTED = [
    yaml.safe_load(block)
    for block in re.findall(
        r"^```yaml\n(.*?)^```", (ROOT / "docs/prometheus.md").read_text(), re.MULTILINE | re.DOTALL
    )
]
COMPOSE = yaml.safe_load((DASHBOARDS / "compose/prometheus.yaml").read_text())
CONFIGS = [one for one in (*DOCUMENTED, COMPOSE) if "scrape_configs" in one]
MONITORS = [one for one in DOCUMENTED if one.get("kind") in {"PodMonitor", "ServiceMonitor"}]
PAGE = b'spark_streaming_query_active{app="shop",query="orders"} 1\n'
OF_THE_POD = {"app": "spark-driver", "query": "none"}


@pytest.mark.parametrize("config", CONFIGS, ids=["documented", "compose"])
def test_each_scrape_configuration_keeps_the_labels_of_querypulse(config):
    assert all(one["honor_labels"] is True for one in config["scrape_configs"])


def test_the_documented_monitor_keeps_the_labels_of_querypulse():
    (monitor,) = MONITORS

    assert all(one["honorLabels"] is True for one in monitor["spec"]["podMetricsEndpoints"])


@pytest.mark.prometheus
def test_promtool_accepts_the_documented_configuration(tmp_path):
    (config,) = [one for one in DOCUMENTED if "scrape_configs" in one]
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


@pytest.mark.slow
@pytest.mark.prometheus
def test_driver_death_keeps_open_alerts_and_revives_no_resolved_ones(
    tmp_path,
):
    rules = tmp_path / "rules.yaml"
    rules.write_text(quickened(RULES.read_text()))
    with Scraped() as driver:
        prometheus = RealPrometheus(tmp_path, [driver.url], rules=[rules])
        try:
            prometheus.wait_until_ready()
            until(lambda: firing(prometheus) == driver.open, "both fire", 60)
            driver.open = {"StreamingOffsetsStalled"}
            until(lambda: firing(prometheus) == driver.open, "one resolves", 60)
            driver.__exit__()
            until(lambda: not prometheus.query("up == 1"), "the driver is not scraped any more")
            seen = [known(prometheus) for _ in every_half_second(until_seconds=6)]
        finally:
            prometheus.stop()

    assert seen == [{"StreamingOffsetsStalled"}] * len(seen)


def every_half_second(*, until_seconds):
    ends = time.monotonic() + until_seconds
    while time.monotonic() < ends:
        yield
        time.sleep(0.5)


def known(prometheus):
    """Pending and firing alerts, except QuerypulseWatchdog."""
    return {one["labels"]["alertname"] for one in prometheus.alerts()} - {"QuerypulseWatchdog"}


def firing(prometheus):
    fires = [one for one in prometheus.alerts() if one["state"] == "firing"]
    return {one["labels"]["alertname"] for one in fires} - {"QuerypulseWatchdog"}
