"""A real Grafana on loopback that is provisioned with the shipped dashboards.

It is an installation (the folder ``GRAFANA_HOME`` with ``bin/grafana``, ``conf``, ``public``) or a
container. The container shares the network of this machine, because its Prometheus listens on
loopback: that needs a local engine on Linux.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
import yaml

from .patience import PATIENCE_SECONDS
from .queries import until
from .server_process import ServerProcess, free_port

IMAGES = tuple(f"grafana/grafana:{tag}" for tag in ("10.4.1", "11.6.1", "12.4.3", "13.2.3"))
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
            return requests.get(f"{self.url}/api/health", timeout=2).ok
        except requests.RequestException:
            return False


@contextmanager
def running(place: str, folder: Path, dashboards: Path, prometheus: str) -> Iterator[Grafana]:
    """A Grafana from ``place``, one of ``places()``, with the JSON files of ``dashboards``.

    ``folder`` must be empty; ``prometheus`` is the URL of its data source.
    """
    _provision(folder / "provisioning", dashboards, prometheus)
    port = free_port()
    start = _contained if place in IMAGES else _installed
    with start(place, folder, port) as log:
        grafana = Grafana(port, log)
        until(grafana.is_healthy, f"{place} is ready", START_SECONDS)
        yield grafana


def places() -> list[str]:
    """Where to run it: the installation of ``GRAFANA_HOME``, and every image if an engine runs."""
    home = os.environ.get("GRAFANA_HOME")
    if home is None:
        return list(IMAGES)
    return [home, *IMAGES] if engine_answers() else [home]


def is_here() -> bool:
    return "GRAFANA_HOME" in os.environ or engine_answers()


def engine_answers() -> bool:
    """Whether a container can be started."""
    import docker

    try:
        return bool(docker.from_env(timeout=5).ping())
    except docker.errors.DockerException:
        return False


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
