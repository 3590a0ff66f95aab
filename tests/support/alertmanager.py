"""A real Alertmanager on loopback, which notifies a double."""

from __future__ import annotations

import json
from pathlib import Path

import requests

from .http_double import DoubleHandler, HttpDouble, RecordedRequest
from .patience import PATIENCE_SECONDS, until
from .server_process import ServerProcess, free_port

CONFIG = """
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
        """Query and status of each alert that arrived."""
        return [(alert["labels"]["query"], alert["status"]) for alert in self.alerts]

    def wait_until_said(self, query: str, status: str) -> dict:
        """The notification with that query in that status."""
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
        path.write_text(config or CONFIG.format(url=reported.url))
        port = free_port()
        command = [
            "prometheus-alertmanager",
            f"--config.file={path}",
            f"--storage.path={folder}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--cluster.listen-address=",
        ]
        super().__init__(command, port, folder / "alertmanager.log")

    def alerts(self) -> dict[str, dict]:
        """Its firing alerts, by query."""
        answer = requests.get(f"{self.url}/api/v2/alerts", timeout=PATIENCE_SECONDS)
        return {alert["labels"]["query"]: alert for alert in answer.json()}
