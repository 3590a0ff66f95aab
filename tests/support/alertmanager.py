"""A real Alertmanager on loopback, which tells what it would tell people to a double."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from pathlib import Path

import requests

from .http_double import Handler, HttpDouble, Request

PATIENCE_SECONDS = 20.0
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


class Told(HttpDouble):
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


class RealAlertmanager:
    """The process; ``url`` is its base, ``told`` whom it tells."""

    def __init__(self, folder: Path, told: Told) -> None:
        self.told = told
        config = folder / "alertmanager.yml"
        config.write_text(CONFIG.format(url=told.url))
        self._log = (folder / "alertmanager.log").open("wb")
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._process = subprocess.Popen(
            [
                "prometheus-alertmanager",
                f"--config.file={config}",
                f"--storage.path={folder}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--cluster.listen-address=",
            ],
            stdout=self._log,
            stderr=self._log,
        )

    def wait_until_ready(self) -> None:
        ends = time.monotonic() + PATIENCE_SECONDS
        while not self._is_ready():
            assert self._process.poll() is None, "Alertmanager has ended by itself"
            assert time.monotonic() < ends, "Alertmanager is not ready"
            time.sleep(0.05)

    def alerts(self) -> dict[str, dict]:
        """What it holds for firing, by query."""
        answer = requests.get(f"{self.url}/api/v2/alerts", timeout=PATIENCE_SECONDS)
        return {one["labels"]["query"]: one for one in answer.json()}

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_SECONDS)
        self._log.close()

    def _is_ready(self) -> bool:
        try:
            return requests.get(f"{self.url}/-/ready", timeout=1).ok
        except requests.RequestException:
            return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
