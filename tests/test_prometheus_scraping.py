"""How drivers are scraped: querypulse's labels outlive those of the target."""

from __future__ import annotations

import re

import pytest
import yaml
from support.http_double import HttpDouble, reply
from support.prometheus import RealPrometheus
from support.queries import until
from support.rule_files import DASHBOARDS, promtool

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
def test_a_target_with_labels_of_its_own_does_not_rename_querypulses(tmp_path):
    with HttpDouble(otherwise=reply(200, {"Content-Type": "text/plain"}, PAGE)) as driver:
        prometheus = RealPrometheus(tmp_path, [driver.url], target_labels=OF_THE_POD)
        try:
            prometheus.wait_until_ready()
            until(lambda: prometheus.query("spark_streaming_query_active"), "it is scraped")
            (series,) = prometheus.query("spark_streaming_query_active")
        finally:
            prometheus.stop()

    assert series["metric"].items() >= {("app", "shop"), ("query", "orders")}
    assert "exported_app" not in series["metric"]
