"""The compose stack is consistent: every file exists, and each tool accepts its configuration."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from urllib.parse import urlsplit

import pytest
import yaml
from support.compose import DASHBOARDS, FOLDER, compose, mounts, on_host, read

from querypulse.commands import cli
from querypulse.commands.demo.scenarios import DemoSettings
from querypulse.settings.loading import load_settings
from querypulse.settings.settings import Settings

ROOT = DASHBOARDS.parent


@cache
def services():
    return compose()["services"]


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


def script(monkeypatch):
    """The demo settings that the driver's command requests."""
    asked = []
    monkeypatch.setitem(
        cli._COMMANDS, "demo", lambda **arguments: asked.append(DemoSettings(**arguments)) or 0
    )
    program, *arguments = services()["driver"]["command"]
    assert (program, cli.main(arguments)) == ("querypulse", 0)
    return asked[0]


def test_driver_command_is_a_valid_demo_command(monkeypatch):
    asked = script(monkeypatch)

    assert asked.scenario == "failure"
    assert asked.duration - asked.after >= 10 * 60
    assert ("driver", asked.http_port) in listening()


def test_driver_environment_contains_valid_settings():
    settings = load_settings({}, services()["driver"]["environment"], {}).settings

    assert settings.http_host == "0.0.0.0"
    assert settings.http_allow_anonymous
    assert [port_of(url) for url in settings.alertmanager_urls] == [("alertmanager", 9093)]
    assert settings.allow_http
    assert settings != Settings()


def dockerfile():
    text = (FOLDER / services()["driver"]["build"] / "Dockerfile").read_text()
    return text.replace("\\\n", " ")


def test_driver_image_has_java_the_tested_pyspark_and_its_own_user():
    constraints = (ROOT / "constraints.txt").read_text().splitlines()
    (pyspark,) = re.findall(r"pyspark==\S+", dockerfile())

    assert pyspark in constraints
    assert "openjdk-17-jre-headless" in dockerfile()
    assert re.findall(r"^USER (\w+)$", dockerfile(), re.MULTILINE) == ["driver"]
    assert re.findall(r"^FROM (\S+)$", dockerfile(), re.MULTILINE) == ["python:3.12-slim-bookworm"]


# -- Prometheus and Alertmanager ------------------------------------------------------------------


@pytest.mark.prometheus
def test_promtool_accepts_the_configuration_of_prometheus(tmp_path):
    config = read(on_host("prometheus", "/etc/prometheus/prometheus.yaml"))
    rules = config["rule_files"]
    config["rule_files"] = [str(on_host("prometheus", path)) for path in rules]
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(config))
    done = run("promtool", "check", "config", tmp_path / "prometheus.yaml")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout
    assert re.search(r"SUCCESS: [1-9]\d* rules found", done.stdout)


def test_prometheus_scrapes_the_driver_and_notifies_alertmanager():
    config = read(FOLDER / "prometheus.yaml")
    notified = config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"]
    scraped = config["scrape_configs"][0]["static_configs"][0]

    assert {
        port_of(f"http://{target}") for target in [*notified, *scraped["targets"]]
    } <= listening()
    assert notified == ["alertmanager:9093"]
    assert scraped["targets"] == ["driver:9719"]
    assert (
        f"127.0.0.1:{scraped['labels']['instance'].rpartition(':')[2]}:9719"
        in (services()["driver"]["ports"])
    )


def run(*command):
    return subprocess.run([*map(str, command)], capture_output=True, text=True)


# -- Grafana --------------------------------------------------------------------------------------


PROVISIONING = "/etc/grafana/provisioning"


def provisioned(kind):
    """The only entry of a file that provisions Grafana."""
    (entry,) = read(on_host("grafana", f"{PROVISIONING}/{kind}/querypulse.yaml"))[
        {"datasources": "datasources", "dashboards": "providers"}[kind]
    ]
    return entry


def test_grafana_finds_prometheus_and_the_dashboards():
    source, provider = provisioned("datasources"), provisioned("dashboards")
    home = services()["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    interval = read(FOLDER / "prometheus.yaml")["global"]["scrape_interval"]

    assert port_of(source["url"]) in listening()
    assert (source["type"], source["isDefault"], provider["type"]) == ("prometheus", True, "file")
    assert source["jsonData"]["timeInterval"] == interval
    assert on_host("grafana", home).name == "fleet.json"
    shown = on_host("grafana", provider["options"]["path"]).glob("*.json")
    assert {path.name for path in shown} == {"fleet.json", "query.json"}
