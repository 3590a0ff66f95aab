"""The compose stack is consistent, each tool accepts its configuration, and it works in containers."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
import yaml
from support.patience import until
from support.prometheus import accepted
from support.repository import DASHBOARDS, ROOT

from querypulse.commands import cli
from querypulse.commands.demo.scenarios import DemoSettings
from querypulse.settings.loading import load_settings

FOLDER = DASHBOARDS / "compose"


def read(path):
    return yaml.safe_load(path.read_text())


@cache
def services():
    return read(FOLDER / "compose.yaml")["services"]


def mounts(service):
    """Path in the container -> the file or folder of ours that is mounted there."""
    places = {}
    for volume in services()[service].get("volumes", []):
        source, target, mode = volume.split(":")
        assert mode == "ro", volume
        places[target] = (FOLDER / source).resolve()
    return places


def on_host(service, path):
    """The host path of a path in a service's container."""
    (source,) = (
        Path(f"{source}{path.removeprefix(target)}")
        for target, source in mounts(service).items()
        if path == target or path.startswith(f"{target}/")
    )
    return source


def port_of(url):
    parts = urlsplit(url)
    return parts.hostname, parts.port


def listening():
    """(service, port in the container) of everything that is published."""
    return {
        (name, int(port.rpartition(":")[2]))
        for name, service in services().items()
        for port in service["ports"]
    }


# -- compose.yaml ---------------------------------------------------------------------------------


def test_each_service_is_pinned_on_loopback_checked_and_configured_with_shipped_files():
    for name, service in services().items():
        (port,) = re.findall(r"http://127\.0\.0\.1:(\d+)/", str(service["healthcheck"]["test"]))
        pinned = re.fullmatch(r"[a-z]+/[a-z]+:v?\d+\.\d+\.\d+", service.get("image", ""))

        assert (name, int(port)) in listening()
        assert all(entry.startswith("127.0.0.1:") for entry in service["ports"]), name
        assert pinned or name == "driver"
        # Compose rejects a bare true, and formats numbers its own way.
        assert {type(value) for value in service.get("environment", {}).values()} <= {str}
        assert all(source.exists() for source in mounts(name).values()), name
        assert all(source.is_relative_to(DASHBOARDS) for source in mounts(name).values()), name
    for name in ("prometheus", "alertmanager"):
        flags = dict(flag.split("=", 1) for flag in services()[name]["command"])
        assert on_host(name, flags["--config.file"]).is_file()


# -- the driver -----------------------------------------------------------------------------------


def test_driver_command_is_a_valid_demo_command(monkeypatch):
    asked = []
    demo = lambda **arguments: asked.append(DemoSettings(**arguments)) or 0
    monkeypatch.setitem(cli._COMMANDS, "demo", demo)
    program, *arguments = services()["driver"]["command"]
    assert (program, cli.main(arguments)) == ("querypulse", 0)

    assert asked[0].scenario == "failure"
    assert asked[0].duration - asked[0].after >= 10 * 60
    assert ("driver", asked[0].http_port) in listening()


def test_driver_environment_contains_valid_settings():
    settings = load_settings({}, services()["driver"]["environment"], {}).settings

    assert (settings.http_host, settings.http_allow_anonymous) == ("0.0.0.0", True)
    assert [port_of(url) for url in settings.alertmanager_urls] == [("alertmanager", 9093)]
    assert settings.allow_http


def test_driver_image_has_java_the_tested_pyspark_and_its_own_user():
    text = (FOLDER / services()["driver"]["build"] / "Dockerfile").read_text()
    constraints = (ROOT / "constraints.txt").read_text().splitlines()
    (pyspark,) = re.findall(r"pyspark==\S+", text)

    assert pyspark in constraints
    assert "openjdk-17-jre-headless" in text
    assert re.findall(r"^USER (\w+)$", text, re.MULTILINE) == ["driver"]
    assert re.findall(r"^FROM (\S+)$", text, re.MULTILINE) == ["python:3.12-slim-bookworm"]


# -- Prometheus and Alertmanager ------------------------------------------------------------------


@pytest.mark.prometheus
def test_promtool_accepts_the_configuration_of_prometheus(tmp_path):
    config = read(on_host("prometheus", "/etc/prometheus/prometheus.yaml"))
    rules = config["rule_files"]
    config["rule_files"] = [str(on_host("prometheus", path)) for path in rules]
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(config))

    answer = accepted("promtool", "check", "config", tmp_path / "prometheus.yaml")
    assert re.search(r"SUCCESS: [1-9]\d* rules found", answer)


def test_prometheus_scrapes_the_driver_and_notifies_alertmanager():
    config = read(FOLDER / "prometheus.yaml")
    notified = config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"]
    scraped = config["scrape_configs"][0]["static_configs"][0]
    port = scraped["labels"]["instance"].rpartition(":")[2]

    assert (notified, scraped["targets"]) == (["alertmanager:9093"], ["driver:9719"])
    assert {port_of(f"http://{target}") for target in (*notified, "driver:9719")} <= listening()
    assert f"127.0.0.1:{port}:9719" in services()["driver"]["ports"]


# -- Grafana --------------------------------------------------------------------------------------


def provisioned(kind, key):
    """The only entry of a file that provisions Grafana."""
    file = on_host("grafana", f"/etc/grafana/provisioning/{kind}/querypulse.yaml")
    (entry,) = read(file)[key]
    return entry


def test_grafana_finds_prometheus_and_the_dashboards():
    source = provisioned("datasources", "datasources")
    provider = provisioned("dashboards", "providers")
    home = services()["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    interval = read(FOLDER / "prometheus.yaml")["global"]["scrape_interval"]

    assert port_of(source["url"]) in listening()
    assert (source["type"], source["isDefault"], provider["type"]) == ("prometheus", True, "file")
    assert source["jsonData"]["timeInterval"] == interval
    assert on_host("grafana", home).name == "fleet.json"
    shown = on_host("grafana", provider["options"]["path"]).glob("*.json")
    assert {path.name for path in shown} == {"fleet.json", "query.json"}


# -- in containers --------------------------------------------------------------------------------

PATIENCE_SECONDS = 900
"""For images that are pulled, and a driver that starts."""
DRIVER, PROMETHEUS = "http://localhost:9719", "http://localhost:9090"
ALERTMANAGER, GRAFANA = "http://localhost:9093", "http://localhost:3000"


def in_containers(test):
    """Opt-in: needs a Docker engine."""
    return pytest.mark.docker(pytest.mark.timeout(2 * PATIENCE_SECONDS)(test))


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


@in_containers
def test_prometheus_scrapes_the_driver_and_loads_the_rules(stack):
    until(lambda: found("spark_streaming_query_commits_total > 0"), "a commit", PATIENCE_SECONDS)
    rules = get(f"{PROMETHEUS}/api/v1/rules")["data"]["groups"]

    assert [series["value"][1] for series in found("up")] == ["1"]
    assert {rule["health"] for group in rules for rule in group["rules"]} <= {"ok", "unknown"}
    assert get(f"{PROMETHEUS}/api/v1/alertmanagers")["data"]["activeAlertmanagers"]


@in_containers
def test_grafana_shows_both_dashboards_without_login_and_rejects_the_default_password(stack):
    uids = {dashboard["uid"] for dashboard in get(f"{GRAFANA}/api/search", type="dash-db")}
    default = {"auth": ("admin", "admin"), "timeout": PATIENCE_SECONDS}

    assert uids == {"querypulse-fleet", "querypulse-query"}
    assert get(f"{GRAFANA}/api/dashboards/uid/querypulse-fleet")["meta"]["provisioned"]
    assert requests.get(f"{GRAFANA}/api/org/users", **default).status_code in {401, 403}


@in_containers
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


@in_containers
def test_query_failure_arrives_at_alertmanager(stack):
    def received():
        alerts = get(f"{ALERTMANAGER}/api/v2/alerts")
        return {(alert["labels"]["alertname"], alert["labels"]["query"]) for alert in alerts}

    failure = ("StreamingQueryFailed", "alert_resolution")
    until(lambda: failure in received(), "the failure arrives", PATIENCE_SECONDS)
