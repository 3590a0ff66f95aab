"""A real Alertmanager on loopback, which tells what it would tell people to a double."""

from __future__ import annotations

import json
import time
from pathlib import Path

import requests

from .http_double import Handler, HttpDouble, Request
from .server_process import PATIENCE_SECONDS, ServerProcess, free_port

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


class Reported(HttpDouble):
    """The people behind Alertmanager: the bodies of all notifications."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies: list[dict] = []

    def handle(self, request: Request, handler: Handler) -> None:
        self.bodies.append(json.loads(request.body))
        super().handle(request, handler)

    def said(self) -> list[tuple[str, str]]:
        """Each alert of each notification: its query and status."""
        alerts = [one for body in self.bodies for one in body["alerts"]]
        return [(one["labels"]["query"], one["status"]) for one in alerts]

    def wait_until_said(self, query: str, status: str) -> dict:
        """The notification that says so."""
        ends = time.monotonic() + PATIENCE_SECONDS
        while (query, status) not in self.said():
            assert time.monotonic() < ends, f"not told: {query} {status}; told: {self.said()}"
            time.sleep(0.05)
        return next(
            body
            for body in self.bodies
            for one in body["alerts"]
            if (one["labels"]["query"], one["status"]) == (query, status)
        )


class RealAlertmanager(ServerProcess):
    """``reported`` is whom it tells; ``config`` its configuration, by default one that tells all."""

    def __init__(self, folder: Path, reported: Reported, config: str | None = None) -> None:
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
        """What it holds for firing, by query."""
        answer = requests.get(f"{self.url}/api/v2/alerts", timeout=PATIENCE_SECONDS)
        return {one["labels"]["query"]: one for one in answer.json()}
