"""Whoever is told: an HTTP server that notes when it took which candidate's page."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

OURS = "querypulse"
EVENT_ONLY = "event-only"
PROMETHEUS = "prometheus"
CANDIDATES = (OURS, EVENT_ONLY, PROMETHEUS)

DEATH = "QueryFailed"
HANG = "CommitStalled"
WATCHDOG = "Watchdog"


class Page(NamedTuple):
    """One alert that began to be told; ``at`` is in monotonic seconds."""

    candidate: str
    alertname: str
    query: str
    at: float


class Desk(ThreadingHTTPServer):
    """Answers 200 to everything on loopback. A path's first part is the candidate's name."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.taken: list[tuple[str, bytes, float]] = []
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,))

    @property
    def place(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.server_address[1]}"

    def url(self, candidate: str) -> str:
        """Where a candidate posts its pages."""
        return f"http://{self.place}/{candidate}"

    def pages(self) -> list[Page]:
        """All that fired, as often as it was told."""
        return [page for post in list(self.taken) for page in _pages(*post)]

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Desk

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
        self.server.taken.append((self.path, body, time.monotonic()))

    def log_message(self, *_: object) -> None: ...


def _pages(path: str, body: bytes, at: float) -> Iterator[Page]:
    """Alertmanager's API takes a list of alerts, its webhooks send one with a head."""
    candidate = path.split("/")[1]
    told: Any = json.loads(body)
    for alert in told if isinstance(told, list) else told["alerts"]:
        labels = alert["labels"]
        if alert.get("status", "firing") == "firing":
            yield Page(candidate, labels["alertname"], labels.get("query", ""), at)
