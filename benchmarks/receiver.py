"""An HTTP server on loopback, in a process of its own, that answers at once and records posts.

It is the receiver of pages, and the Pushgateway of the peer: its work is on nobody's account.
"""

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Post(NamedTuple):
    """One accepted request; ``at`` is in monotonic seconds."""

    path: str
    body: str
    at: float


class Receiver(NamedTuple):
    """A running server, from outside; ``place`` is its host and port."""

    place: str

    @property
    def url(self) -> str:
        """Takes posts at any path below it."""
        return f"http://{self.place}"

    def posts(self) -> list[Post]:
        """Everything so far."""
        with urllib.request.urlopen(self.url, timeout=20) as answer:
            return [Post(*post) for post in json.load(answer)]


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Start one; it ends with the block."""
    process = subprocess.Popen([sys.executable, "-m", __name__], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield Receiver(f"127.0.0.1:{int(process.stdout.readline())}")
    finally:
        process.terminate()
        process.wait(20)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.posts: list[Post] = []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode("latin-1")
        self._answer(b"")
        self.server.posts.append(Post(self.path, body, time.monotonic()))

    def do_PUT(self) -> None:
        self.do_POST()

    def do_GET(self) -> None:
        self._answer(json.dumps(self.server.posts).encode())

    def log_message(self, *_: object) -> None: ...

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    with _Server() as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()
