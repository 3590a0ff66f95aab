"""A real Prometheus and a real Alertmanager on loopback, and their tools.

Prometheus scrapes drivers every second and evaluates the shipped rules; Alertmanager notifies a double.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
import yaml

from .http_double import DoubleHandler, HttpDouble, RecordedRequest
from .patience import PATIENCE_SECONDS, until
from .server_process import ServerProcess, free_port


def run_tool(*command: object) -> subprocess.CompletedProcess[str]:
    """The exit code and the output of promtool or amtool."""
    return subprocess.run(list(map(str, command)), capture_output=True, text=True)


def accepted(*command: object) -> str:
    """The output of promtool or amtool, which must accept what it is given."""
    done = run_tool(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def assert_valid(expressions: Sequence[str], folder: Path) -> None:
    """Each expression becomes a recording rule, because promtool parses those."""
    rules = [{"record": f"line:{at}", "expr": text} for at, text in enumerate(expressions)]
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "expressions", "rules": rules}]}))
    assert f"{len(rules)} rules found" in accepted(
        "promtool", "check", "rules", "--lint=none", file
    )


class RealPrometheus(ServerProcess):
    """Scrapes each of ``drivers`` (base URLs) as the job ``spark``, notifies ``alertmanagers`` (base URLs).

    Another one in the same ``folder`` goes on with its data. ``jobs`` are further scrape
    configurations.
    """

    def __init__(
        self,
        folder: Path,
        drivers: Sequence[str],
        *,
        rules: Sequence[Path] = (),
        alertmanagers: Sequence[str] = (),
        flags: Sequence[str] = (),
        interval: str = "1s",
        jobs: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        config = folder / "prometheus.yml"
        settings = {
            "global": {"scrape_interval": interval, "evaluation_interval": interval},
            "rule_files": [str(path) for path in rules],
            "alerting": {"alertmanagers": [{"static_configs": _targets(alertmanagers)}]},
            "scrape_configs": [
                {"job_name": "spark", "honor_labels": True, "static_configs": _targets(drivers)},
                *jobs,
            ],
        }
        config.write_text(yaml.safe_dump(settings))
        port = free_port()
        command = [
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--storage.tsdb.retention.time=2h",
            # By default, a failed first notification is repeated after a minute.
            "--rules.alert.resend-delay=3s",
            "--log.level=warn",
            *flags,
        ]
        super().__init__(command, port, folder / "prometheus.log")

    def query(self, promql: str) -> list[dict[str, Any]]:
        """An instant vector: ``metric`` (labels) and ``value`` (time, text) of each series."""
        series: list[dict[str, Any]] = self.get("query", {"query": promql})["result"]
        return series

    def alerts(self) -> list[dict[str, Any]]:
        """Its pending and firing alerts: ``labels``, ``annotations``, ``state``."""
        alerts: list[dict[str, Any]] = self.get("alerts", {})["alerts"]
        return alerts

    def get(self, what: str, parameters: Mapping[str, str]) -> Any:
        """The ``data`` of an answer of its HTTP API; a rejected query fails the test."""
        url = f"{self.url}/api/v1/{what}"
        answer = requests.get(url, params=parameters, timeout=PATIENCE_SECONDS).json()
        assert answer["status"] == "success", (what, parameters, answer)
        return answer["data"]


def _targets(urls: Sequence[str]) -> list[dict[str, Any]]:
    """A URL with a path is a target of that path, and of that name."""
    parts = [urlsplit(url) for url in urls]
    bare = [part.netloc for part in parts if not part.path]
    named = [
        {
            "targets": [part.netloc],
            "labels": {"__metrics_path__": part.path, "instance": part.path},
        }
        for part in parts
        if part.path
    ]
    return [{"targets": bare}, *named]


ALERTMANAGER = """
route:
  receiver: hook
  group_by: [alertname, app, query]
  group_wait: 0s
  group_interval: 1s
  repeat_interval: 1h
receivers:
  - name: hook
    webhook_configs:
      - url: {url}
        send_resolved: true
"""


class Notifications(HttpDouble):
    """All receivers of Alertmanager: ``bodies`` has all notifications."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies: list[dict] = []

    def handle(self, request: RecordedRequest, handler: DoubleHandler) -> None:
        self.bodies.append(json.loads(request.body))
        super().handle(request, handler)

    @property
    def alerts(self) -> list[dict]:
        """Each alert that arrived, with its receiver and its group."""
        return [
            {**alert, "receiver": body["receiver"], "group": body["groupLabels"]}
            for body in self.bodies
            for alert in body["alerts"]
        ]

    def said(self) -> list[tuple[str, str]]:
        return [(alert["labels"]["query"], alert["status"]) for alert in self.alerts]

    def wait_until_said(self, query: str, status: str) -> dict:
        until(lambda: (query, status) in self.said(), f"{query} {status} is notified")
        return next(
            body
            for body in self.bodies
            for alert in body["alerts"]
            if (alert["labels"]["query"], alert["status"]) == (query, status)
        )


class RealAlertmanager(ServerProcess):
    """``reported`` is its receiver; ``config`` its configuration, which by default sends all alerts."""

    def __init__(self, folder: Path, reported: Notifications, config: str | None = None) -> None:
        self.reported = reported
        path = folder / "alertmanager.yml"
        path.write_text(config or ALERTMANAGER.format(url=reported.url))
        port = free_port()
        command = [
            "prometheus-alertmanager",
            f"--config.file={path}",
            f"--storage.path={folder}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--cluster.listen-address=",
        ]
        super().__init__(command, port, folder / "alertmanager.log")

    def send(self, alerts: Sequence[Mapping[str, Any]]) -> None:
        """Post alerts to it, which it must take."""
        url = f"{self.url}/api/v2/alerts"
        answer = requests.post(url, json=list(alerts), timeout=PATIENCE_SECONDS)
        assert answer.status_code == 200, answer.text

    def alerts(self) -> dict[str, dict]:
        """Its firing alerts, by query."""
        answer = requests.get(f"{self.url}/api/v2/alerts", timeout=PATIENCE_SECONDS)
        return {alert["labels"]["query"]: alert for alert in answer.json()}
