"""Real servers on loopback, stopped by the test that started them."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager

import requests
from support.patience import PATIENCE_SECONDS

from querypulse.core.guard import Guard
from querypulse.exporter.pages import Content
from querypulse.exporter.server import HttpServer


@contextmanager
def serving(published=None, *, alive=lambda: True, guard=None, host="127.0.0.1", port=0, **access):
    """A started server of ``published``: a state, None or a function; ``token`` may be text."""
    token = access.get("token")
    if not callable(token):
        access["token"] = lambda: token
    newest = published if callable(published) else lambda: published
    served = {
        name: access.pop(name)
        for name in ("runbook", "silence", "expect_stop", "silences", "incidents", "timeline")
        if name in access
    }
    content = Content(newest, alive, **served)
    server = HttpServer(host, port, content, guard or Guard(), **access)
    server.start()
    try:
        yield server
    finally:
        server.close(5.0)


def address(server) -> tuple[str, int]:
    host, _, port = server.url.partition("://")[2].rpartition(":")
    return host.strip("[]"), int(port)


def waiting(server, count=1) -> bool:
    """Whether that many watchers wait for the end of the server."""
    return len(server._shutdown_notice._waiting) == count


def our_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("querypulse-http")]


def get(server, path, **headers):
    return requests.get(server.url + path, headers=headers, timeout=PATIENCE_SECONDS)


def connected(server) -> socket.socket:
    return socket.create_connection(address(server), PATIENCE_SECONDS)


def raw(server, request: bytes, *, is_all: bool = False) -> bytes:
    """The answer of the server to exactly these bytes; if ``is_all``, it knows that no more come."""
    with connected(server) as connection:
        connection.sendall(request)
        if is_all:
            connection.shutdown(socket.SHUT_WR)
        try:
            return b"".join(iter(lambda: connection.recv(65536), b""))
        except ConnectionResetError:
            # It has closed with unread data.
            return b""
