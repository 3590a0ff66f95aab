"""A server on loopback that takes whatever it is sent, in a process of its own.

It replaces the peer's Pushgateway and a webhook receiver: both only have to answer,
at once or late. Its own process, so that its work is on nobody's account.
"""

import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar, NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Taken(NamedTuple):
    """How many requests came, and how many of them have their answer."""

    begun: int
    answered: int


class Pushgateway(NamedTuple):
    """A running server, from outside."""

    url: str

    def taken(self) -> Taken:
        """What it has taken so far."""
        with urllib.request.urlopen(self.url, timeout=5) as answer:
            begun, answered = answer.read().split()
        return Taken(int(begun), int(answered))


@contextmanager
def pushgateway(delay_seconds: float = 0.0) -> Iterator[Pushgateway]:
    """Start one that answers so late; it ends with the block."""
    command = [sys.executable, "-m", "benchmarks.common.pushgateway", str(delay_seconds)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        yield Pushgateway(f"http://127.0.0.1:{int(process.stdout.readline())}")


class _Handler(BaseHTTPRequestHandler):
    delay_seconds: ClassVar[float]
    begun: ClassVar[list[None]] = []
    answered: ClassVar[list[None]] = []

    def do_POST(self) -> None:
        self.begun.append(None)
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(self.delay_seconds)
        # Who asked may have gone.
        with suppress(ConnectionError):
            self._answer(b"")
            self.answered.append(None)

    def do_PUT(self) -> None:
        self.do_POST()

    def do_GET(self) -> None:
        self._answer(f"{len(self.begun)} {len(self.answered)}".encode())

    def log_message(self, *_: object) -> None: ...

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _serve(delay_seconds: float) -> None:
    _Handler.delay_seconds = delay_seconds
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    # The parent process closes our input, or exits, which closes it, too.
    sys.stdin.read()


if __name__ == "__main__":
    _serve(float(sys.argv[1]))
