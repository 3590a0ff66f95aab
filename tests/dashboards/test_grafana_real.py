"""A real Grafana accepts the shipped dashboards unchanged and answers all their panels.

It is the installation that GRAFANA_HOME names or a container. The container shares the network of
this machine, because its Prometheus listens on loopback: that needs a local engine on Linux.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from support.exporter_http import serving
from support.needs import docker_trouble
from support.panels import DASHBOARDS, FOLDER, in_order, panels
from support.patience import PATIENCE_SECONDS, until
from support.prometheus import RealPrometheus
from support.published_states import full_published
from support.server_process import ServerProcess, free_port

pytestmark = [
    pytest.mark.grafana,
    pytest.mark.prometheus,
    pytest.mark.slow,
    pytest.mark.timeout(900),  # the image may have to be pulled
]

UIDS = {dashboard["uid"]: dashboard for dashboard in DASHBOARDS.values()}
IMAGES = [f"grafana/grafana:{tag}" for tag in ("10.4.1", "11.6.1", "12.4.3", "13.2.3")]
HOME = os.environ.get("GRAFANA_HOME")
"""A folder with ``bin/grafana``, ``conf`` and ``public``."""
PLACES = IMAGES if HOME is None else [HOME, *([] if docker_trouble("info") else IMAGES)]
START_SECONDS = 180.0
"""The first start creates the database, in hundreds of migrations."""
DATASOURCE = "real-prometheus"
PROVISIONED = ("dashboards", "datasources", "alerting", "plugins", "notifiers")
"""Folders that Grafana reads; it logs an error for one that is missing."""


class Grafana:
    """A client of Grafana, as an anonymous viewer."""

    def __init__(self, port: int, log: Callable[[], str]) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.log = log

    def get(self, path: str) -> Any:
        answer = requests.get(f"{self.url}/api/{path}", timeout=PATIENCE_SECONDS)
        assert answer.ok, (path, answer.status_code, answer.text)
        return answer.json()

    def ask(self, queries: list[dict[str, Any]]) -> dict[str, Any]:
        """Grafana's answers to the targets of a panel for the last 15 minutes, by ``refId``."""
        body = {"queries": queries, "from": "now-15m", "to": "now"}
        url = f"{self.url}/api/ds/query"
        answer = requests.post(url, json=body, timeout=PATIENCE_SECONDS).json()
        assert "results" in answer, (queries, answer)
        results: dict[str, Any] = answer["results"]
        return results

    def dashboards(self) -> set[str]:
        """The uids of the dashboards that it lists."""
        return {dashboard["uid"] for dashboard in self.get("search?type=dash-db")}

    def faults(self) -> list[str]:
        """The errors of provisioning in its log."""
        lines = self.log().splitlines()
        return [line for line in lines if "provisioning" in line and "level=error" in line]

    def is_healthy(self) -> bool:
        try:
            return requests.get(f"{self.url}/api/health", timeout=PATIENCE_SECONDS).ok
        except requests.RequestException:
            return False


@contextmanager
def running(place: str, folder: Path, dashboards: Path, prometheus: str) -> Iterator[Grafana]:
    """A Grafana from ``place``, one of ``PLACES``, with the JSON files of ``dashboards``.

    ``folder`` must be empty; ``prometheus`` is the URL of its data source.
    """
    _provision(folder / "provisioning", dashboards, prometheus)
    port = free_port()
    start = _contained if place in IMAGES else _installed
    with start(place, folder, port) as log:
        grafana = Grafana(port, log)
        until(grafana.is_healthy, f"{place} is ready", START_SECONDS)
        yield grafana


@contextmanager
def _installed(home: str, folder: Path, port: int) -> Iterator[Callable[[], str]]:
    log = folder / "grafana.log"
    command = [f"{home}/bin/grafana", "server", f"--homepath={home}", *_settings(folder, port)]
    process = ServerProcess(command, port, log)
    try:
        yield log.read_text
    finally:
        process.__exit__()


@contextmanager
def _contained(image: str, folder: Path, port: int) -> Iterator[Callable[[], str]]:
    """The folder has the same path in the container, so the settings are the same."""
    from testcontainers.core.container import DockerContainer

    container = DockerContainer(
        image,
        volumes=[(str(folder), str(folder), "rw")],
        user=str(os.getuid()),
        network_mode="host",
    ).with_command(_settings(folder, port))
    with container:
        yield lambda: b"".join(container.get_logs()).decode()


def _settings(folder: Path, port: int) -> list[str]:
    """Settings as arguments, which override files and the environment."""
    return [
        "cfg:server.http_addr=127.0.0.1",
        f"cfg:server.http_port={port}",
        f"cfg:paths.data={folder / 'data'}",
        f"cfg:paths.logs={folder / 'logs'}",
        f"cfg:paths.provisioning={folder / 'provisioning'}",
        "cfg:log.mode=console",
        "cfg:log.console.format=text",
        "cfg:auth.anonymous.enabled=true",
        "cfg:auth.anonymous.org_role=Viewer",
        "cfg:analytics.reporting_enabled=false",
        "cfg:analytics.check_for_updates=false",
        "cfg:analytics.check_for_plugin_updates=false",
        "cfg:plugins.preinstall_disabled=true",
    ]


def _provision(folder: Path, dashboards: Path, prometheus: str) -> None:
    for name in PROVISIONED:
        (folder / name).mkdir(parents=True)
    shipped = folder.parent / "shipped"
    shipped.mkdir()
    for path in sorted(dashboards.glob("*.json")):
        shutil.copy(path, shipped)
    provider = {"name": "querypulse", "type": "file", "options": {"path": str(shipped)}}
    datasource = {
        "name": "Real Prometheus",
        "uid": DATASOURCE,
        "type": "prometheus",
        "access": "proxy",
        "url": prometheus,
        "isDefault": True,
    }
    _write(folder / "dashboards" / "all.yaml", providers=[provider])
    _write(folder / "datasources" / "all.yaml", datasources=[datasource])


def _write(path: Path, **content: list[dict[str, Any]]) -> None:
    path.write_text(yaml.safe_dump({"apiVersion": 1, **content}))


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prometheus")
    with serving(full_published()) as exporter, RealPrometheus(folder, [exporter.url]) as real:
        until(lambda: real.query("spark_streaming_query_state"), "the exporter is scraped")
        yield real


@pytest.fixture(scope="module", params=PLACES)
def grafana(request, prometheus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("grafana")
    with running(request.param, folder, FOLDER, prometheus.url) as real:
        until(lambda: real.dashboards() >= set(UIDS), "both dashboards are listed")
        yield real


def requests_of(dashboard, panel):
    """A panel's targets as the browser sends them, with the variables filled in."""
    text = json.dumps(panel["targets"]).replace("${datasource}", DATASOURCE)
    for variable in dashboard["templating"]["list"]:
        name = re.escape(variable["name"])
        text = re.sub(rf"\$(\{{{name}(:\w+)?\}}|{name}\b)", ".+", text)
    common = {"intervalMs": 15_000, "maxDataPoints": 100}
    return [{**common, **target} for target in json.loads(text)]


def points(answer):
    """The number of points in all series of an answer."""
    return sum(
        len(frame["data"]["values"][0]) for frame in answer["frames"] if frame["data"]["values"]
    )


@pytest.mark.parametrize("uid", UIDS)
def test_grafana_serves_every_shipped_panel_and_answers_its_targets(grafana, uid):
    def described(dashboard):
        return [
            (panel["id"], panel["type"], panel.get("title", "")) for panel in in_order(dashboard)
        ]

    shipped, served = UIDS[uid], grafana.get(f"dashboards/uid/{uid}")
    assert served["meta"]["provisioned"]
    assert described(served["dashboard"]) == described(shipped)

    answers = {
        (panel["title"], letter): answer
        for panel in panels(shipped)
        for letter, answer in grafana.ask(requests_of(shipped, panel)).items()
    }
    failed = [
        answer
        for answer in answers.items()
        if "error" in answer[1] or answer[1].get("status", 200) != 200
    ]
    assert failed == []
    assert any(map(points, answers.values()))


def test_provisioning_reports_no_error(grafana):
    assert grafana.faults() == []
