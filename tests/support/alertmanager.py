"""A real Alertmanager on loopback, which notifies a double."""

from __future__ import annotations

import json
import time
from pathlib import Path

import requests

from .http_double import DoubleHandler, HttpDouble, RecordedRequest
from .patience import PATIENCE_SECONDS
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
    """The receiver of Alertmanager: ``bodies`` has all notifications."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies: list[dict] = []

    def handle(self, request: RecordedRequest, handler: DoubleHandler) -> None:
        self.bodies.append(json.loads(request.body))
        super().handle(request, handler)

    def said(self) -> list[tuple[str, str]]:
        """Query and status of each alert of each notification."""
        alerts = [one for body in self.bodies for one in body["alerts"]]
        return [(one["labels"]["query"], one["status"]) for one in alerts]

    def wait_until_said(self, query: str, status: str) -> dict:
        """The notification with that query in that status."""
        ends = time.monotonic() + PATIENCE_SECONDS
        while (query, status) not in self.said():
            assert time.monotonic() < ends, (
                f"not notified: {query} {status}; notified: {self.said()}"
            )
            time.sleep(0.05)
        return next(
            body
            for body in self.bodies
            for one in body["alerts"]
            if (one["labels"]["query"], one["status"]) == (query, status)
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
        return {one["labels"]["query"]: one for one in answer.json()}
