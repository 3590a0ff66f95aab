"""Whoever is told: an HTTP server that notes when it took which candidate's page."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import requests

OURS = "querypulse"
EVENT_ONLY = "event-only"
PROMETHEUS = "prometheus"
CANDIDATES = (OURS, EVENT_ONLY, PROMETHEUS)

DEATH = "StreamingQueryFailed"
HANG = "StreamingQueryStalled"
WATCHDOG = "QuerypulseWatchdog"


class Page(NamedTuple):
    """One alert that began to be told; ``at`` is in monotonic seconds."""

    candidate: str
    alertname: str
    query: str
    at: float


class Desk:
    """Answers 200 to everything on loopback, in a process of its own.

    A path's first part is the candidate's name. A context manager.
    """

    def __enter__(self):
        command = [sys.executable, "-m", __name__]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.place = f"127.0.0.1:{int(self._process.stdout.readline())}"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(20)

    def url(self, candidate: str) -> str:
        """Where a candidate posts its pages."""
        return f"http://{self.place}/{candidate}"

    def pages(self) -> list[Page]:
        """All that fired, as often as it was told."""
        taken = requests.get(f"http://{self.place}/", timeout=20).json()
        return [page for post in taken for page in _pages(*post)]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.taken: list[tuple[str, str, float]] = []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
        self.server.taken.append((self.path, body.decode(), time.monotonic()))

    def do_GET(self) -> None:
        body = json.dumps(self.server.taken).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


def _pages(path: str, body: str, at: float) -> Iterator[Page]:
    """Alertmanager's API takes a list of alerts, its webhooks send one with a head."""
    candidate = path.split("/")[1]
    told: Any = json.loads(body)
    for alert in told if isinstance(told, list) else told["alerts"]:
        labels = alert["labels"]
        if alert.get("status", "firing") == "firing":
            yield Page(candidate, labels["alertname"], labels.get("query", ""), at)


if __name__ == "__main__":
    with _Server() as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()
