"""Silent, slow, broken and many clients."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from support.exporter_http import address, get, our_threads, raw, serving
from support.patience import PATIENCE_SECONDS, until
from support.published_states import full_published

from querypulse.exporter import server as server_module

MALFORMED = [
    b"\r\n\r\n",
    b"NONSENSE\r\n\r\n",
    b"GET /metrics HTTP/9.9\r\n\r\n",
    b"GET /metrics JUNK\r\n\r\n",
    b"GET  HTTP/1.1\r\n\r\n",
    b"GET http://[ HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nAccept: a\r\n b\r\nno colon\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\n" + b"x: y\r\n" * 200 + b"\r\n",
]


@pytest.mark.fault(
    "Readers over HTTP", "Malformed requests", "The server goes on, and prints nothing"
)
def test_malformed_requests_are_survived_silently(capfd):
    def survives(server, request):
        raw(server, request)
        return get(server, "/livez").status_code == 200

    with serving(full_published()) as server:
        assert [request for request in MALFORMED if not survives(server, request)] == []
    assert capfd.readouterr() == ("", "")


def test_endless_header_is_cut_off():
    def send_on_and_on(client):
        while True:
            client.sendall(b"x: " + b"y" * 60_000 + b"\r\n")

    with (
        serving(full_published()) as server,
        socket.create_connection(address(server), PATIENCE_SECONDS) as client,
    ):
        with pytest.raises(OSError):
            send_on_and_on(client)
        assert get(server, "/livez").status_code == 200


@pytest.mark.fault(
    "Readers over HTTP",
    "Twice as many idle connections as may wait",
    "Another address is answered",
)
def test_excess_silent_clients_do_not_displace_another_address(monkeypatch):
    monkeypatch.setattr(server_module, "MAX_IDLE", 8)
    with serving(full_published()) as server, ExitStack() as silent:
        other = silent.enter_context(socket.socket())
        other.bind(("127.0.0.2", 0))
        other.connect(address(server))
        other.settimeout(PATIENCE_SECONDS)
        for _ in range(2 * server_module.MAX_IDLE):
            silent.enter_context(socket.create_connection(address(server)))
        other.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")

        assert other.recv(12) == b"HTTP/1.0 200"


def test_silent_client_is_dropped(monkeypatch):
    monkeypatch.setattr(server_module, "HEAD_SECONDS", 0.1)
    with (
        serving(full_published()) as server,
        socket.create_connection(address(server), PATIENCE_SECONDS) as client,
    ):
        assert client.recv(1) == b""


def test_paused_process_does_not_count_the_pause_against_clients(monkeypatch):
    """However long the pause was, it is one tick of the server."""
    monkeypatch.setattr(server_module, "HEAD_SECONDS", 0.5)
    with serving(full_published()) as server, ExitStack() as clients:
        client = clients.enter_context(socket.create_connection(address(server), PATIENCE_SECONDS))
        until(lambda: server._connections, "the client is known")
        server._events.call_soon_threadsafe(time.sleep, 1.0)
        client.sendall(b"GET /livez HTTP/1.1\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.0 200"


LARGE = {"runbook": lambda _: "x" * 20_000_000}
"""An answer larger than the buffers of both sockets."""


@pytest.mark.fault(
    "Readers over HTTP",
    "Twenty clients that do not read their answers",
    "`/livez` answers; at most eight answers are made at once",
)
def test_livez_needs_no_slot():
    with serving(None, **LARGE) as server, ExitStack() as clients:
        for _ in range(20):
            client = clients.enter_context(
                socket.create_connection(address(server), PATIENCE_SECONDS)
            )
            client.sendall(b"GET /runbooks/x HTTP/1.1\r\n\r\n")
        until(server._slots.locked, "eight of them are served")
        until(lambda: server._waiting == 12, "the others wait")
        assert get(server, "/livez").status_code == 200
        assert len(our_threads()) == 2


def test_request_beyond_the_queue_gets_no_answer(monkeypatch):
    monkeypatch.setattr(server_module, "MAX_WAITING", 1)
    with serving(None, **LARGE) as server, ExitStack() as clients:
        for _ in range(server_module.MAX_REQUESTS + 1):
            client = clients.enter_context(socket.create_connection(address(server)))
            client.sendall(b"GET /runbooks/x HTTP/1.1\r\n\r\n")
        until(lambda: server._waiting == 1, "the queue is full")
        assert raw(server, b"GET /runbooks/x HTTP/1.1\r\n\r\n") == b""
        assert get(server, "/livez").status_code == 200


def test_client_without_the_token_takes_no_slot():
    with serving(None, token="t", **LARGE) as server, ExitStack() as clients:
        for _ in range(server_module.MAX_REQUESTS):
            client = clients.enter_context(socket.create_connection(address(server)))
            client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert client.recv(12) == b"HTTP/1.0 401"
        assert not server._slots.locked()


@pytest.mark.fault("Readers over HTTP", "A client that sends one byte at a time", "It is cut off")
def test_dripping_client_is_cut_off(monkeypatch):
    monkeypatch.setattr(server_module, "HEAD_SECONDS", 0.1)

    def is_cut_off(client):
        try:
            client.sendall(b"x")
            return client.recv(1) == b""
        except TimeoutError:
            return False
        except ConnectionError:
            return True

    with serving(full_published()) as server, socket.create_connection(address(server)) as client:
        client.settimeout(0.02)
        until(lambda: is_cut_off(client), "the client is cut off although it goes on sending")


@pytest.mark.fault("Readers over HTTP", "A client that does not read its answer", "It is dropped")
def test_client_that_does_not_read_its_answer_is_dropped(monkeypatch):
    monkeypatch.setattr(server_module, "IO_SECONDS", 0.1)
    with serving(None, **LARGE) as server:
        with socket.create_connection(address(server), PATIENCE_SECONDS) as client:
            client.sendall(b"GET /runbooks/x HTTP/1.1\r\n\r\n")
            assert client.recv(1)
            until(lambda: not server._connections, "it is dropped")
        assert get(server, "/livez").status_code == 200


def test_concurrent_scrapes_get_the_same_answer():
    with serving(full_published()) as server, ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: get(server, "/metrics"), range(100)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1


def test_late_body_does_not_revoke_the_answer():
    request = b"POST /metrics HTTP/1.1\r\nContent-Length: 100000\r\n\r\n"
    with (
        serving(full_published()) as server,
        socket.create_connection(address(server), PATIENCE_SECONDS) as client,
    ):
        client.sendall(request)
        assert client.recv(1, socket.MSG_PEEK)
        client.sendall(b"x" * 100_000)
        assert client.recv(12) == b"HTTP/1.0 405"
