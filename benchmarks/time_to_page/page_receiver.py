"""An HTTP server that records when it received the pages of each candidate."""

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


class TimedPage(NamedTuple):
    """One page about a firing alert; ``at`` is in monotonic seconds."""

    candidate: str
    alertname: str
    query: str
    at: float


class ReceiverProcess:
    """A context manager: answers 200 to every request on loopback, in its own process.

    The first part of a path is the candidate's name.
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
        """The URL to which a candidate posts its pages."""
        return f"http://{self.place}/{candidate}"

    def pages(self) -> list[TimedPage]:
        """All pages about firing alerts, repeated ones included."""
        taken = requests.get(f"http://{self.place}/", timeout=20).json()
        return [page for post in taken for page in _pages(*post)]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _PageHandler)
        self.taken: list[tuple[str, str, float]] = []


class _PageHandler(BaseHTTPRequestHandler):
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


def _pages(path: str, body: str, at: float) -> Iterator[TimedPage]:
    """The pages in a body: Alertmanager's API takes a list of alerts, its webhooks an object."""
    candidate = path.split("/")[1]
    message: Any = json.loads(body)
    for alert in message if isinstance(message, list) else message["alerts"]:
        labels = alert["labels"]
        if alert.get("status", "firing") == "firing":
            yield TimedPage(candidate, labels["alertname"], labels.get("query", ""), at)


if __name__ == "__main__":
    with _Server() as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()
