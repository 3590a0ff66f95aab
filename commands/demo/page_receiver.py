"""A loopback webhook receiver that keeps the pages it receives."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec


class ReceivedAlert(msgspec.Struct, frozen=True):
    """One alert as it arrived, and when (Unix seconds)."""

    arrived_at: float
    status: str
    labels: dict[str, str]
    annotations: dict[str, str]


class PageReceiver:
    """Listens on a free loopback port from construction to ``close``."""

    def __init__(self) -> None:
        self.pages: list[ReceivedAlert] = []
        pages = self.pages

        class PageHandler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                pages.extend(_pages(json.loads(body), time.time()))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
                """Log nothing: the terminal is for the demo's own output."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), PageHandler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/pages"
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="demo-pages", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _pages(body: dict[str, Any], now: float) -> list[ReceivedAlert]:
    return [
        ReceivedAlert(now, alert["status"], alert["labels"], alert["annotations"])
        for alert in body["alerts"]
    ]
