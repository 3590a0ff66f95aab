"""Silent, slow, broken and many clients."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack, suppress

import pytest
from support.exporter_http import address, connected, get, our_threads, raw, serving
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
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
LARGE_PAGE = b"GET /runbooks/x HTTP/1.1\r\n\r\n"
LARGE_BYTES = 20_000_000
"""More than the buffers of both sockets."""
LARGE = {"runbook": lambda _: "x" * LARGE_BYTES}


def asking(server, clients, count, request=LARGE_PAGE):
    """So many more clients, each of which has sent the request and does not read."""
    opened = [clients.enter_context(connected(server)) for _ in range(count)]
    for client in opened:
        client.sendall(request)
    return opened


def read_all(client):
    """What it receives until the server closes, or drops the connection."""
    received = bytearray()
    with suppress(ConnectionResetError):
        while chunk := client.recv(1 << 20):
            received += chunk
    return received


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
    with serving(full_published()) as server, connected(server) as client:
        with pytest.raises(OSError):
            client.sendall((b"x: " + b"y" * 60_000 + b"\r\n") * 1000)
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
        first, *_ = asking(server, silent, 2 * server_module.MAX_IDLE, b"")
        assert first.recv(1) == b""
        other.sendall(LIVEZ)
        assert other.recv(12) == b"HTTP/1.0 200"


@pytest.mark.fault(
    "Readers over HTTP",
    "A thousand silent clients of the same address",
    "A new reader is answered; the oldest of them are dropped",
)
def test_thousand_silent_clients_keep_no_new_reader_out():
    with serving(full_published()) as server, ExitStack() as silent:
        for _ in range(10):
            asking(server, silent, 100, b"GET /livez HTTP/1.1\r\n")
            assert get(server, "/livez").status_code == 200
            assert get(server, "/metrics").status_code == 200
        assert len(server._tasks) <= server_module.MAX_IDLE + 1


@pytest.mark.fault(
    "Readers over HTTP",
    "Twenty clients that do not read their answers",
    "`/livez` answers; at most eight answers are made at once",
)
def test_livez_does_not_wait_behind_clients_that_do_not_read(monkeypatch):
    with serving(None, **LARGE) as server, ExitStack() as clients:
        asking(server, clients, 20)
        until(server._slots.full, "eight of them are served")
        until(lambda: len(server._slots._putters) == 12, "the others wait")
        assert get(server, "/livez").status_code == 200
        assert len(our_threads()) == 2

        monkeypatch.setattr(server_module, "MAX_CONNECTIONS", 20)
        assert raw(server, LARGE_PAGE) == b""


@pytest.mark.slow
@pytest.mark.fault(
    "Readers over HTTP",
    "Eight clients that ask for a large page and do not read it",
    "One of them gives way to a scrape; the others read their whole page",
)
def test_scrape_is_served_beside_clients_that_do_not_read_a_large_page(monkeypatch):
    # They would be dropped only after this test has failed.
    monkeypatch.setattr(server_module, "CLIENT_SECONDS", 2 * PATIENCE_SECONDS)
    with serving(full_published(), **LARGE) as server, ExitStack() as clients:
        readers = asking(server, clients, server_module.MAX_REQUESTS)
        assert all(reader.recv(1, socket.MSG_PEEK) for reader in readers)
        scrape = get(server, "/metrics")
        sizes = [len(read_all(reader)) for reader in readers]

    assert scrape.status_code == 200
    whole = [size for size in sizes if size > LARGE_BYTES]
    assert len(whole) == server_module.MAX_REQUESTS - 1


def test_client_without_the_token_waits_behind_nobody():
    with serving(None, token="t", **LARGE) as server, ExitStack() as clients:
        asking(server, clients, server_module.MAX_REQUESTS)
        until(server._slots.full, "all places are taken")
        assert get(server, "/metrics").status_code == 401


@pytest.mark.parametrize("sends", [b"", b"x"])
@pytest.mark.fault("Readers over HTTP", "A client that sends one byte at a time", "It is cut off")
def test_client_that_sends_no_whole_request_is_cut_off(monkeypatch, sends):
    monkeypatch.setattr(server_module, "CLIENT_SECONDS", 0.1)

    def is_cut_off(client):
        try:
            client.sendall(sends)
            return client.recv(1) == b""
        except TimeoutError:
            return False
        except ConnectionError:
            return True

    with serving(full_published()) as server, connected(server) as client:
        client.settimeout(0.02)
        until(lambda: is_cut_off(client), "the client is cut off, although it may go on sending")


@pytest.mark.fault("Readers over HTTP", "A client that does not read its answer", "It is dropped")
def test_client_that_does_not_read_its_answer_is_dropped(monkeypatch):
    asked = threading.Event()

    def shorten_the_limit_of_the_answer():
        monkeypatch.setattr(server_module, "CLIENT_SECONDS", 0.1)
        asked.set()

    with (
        serving(None, token=shorten_the_limit_of_the_answer, **LARGE) as server,
        ExitStack() as clients,
    ):
        asking(server, clients, 1)
        assert asked.wait(PATIENCE_SECONDS)
        until(lambda: not server._tasks, "it is dropped")


def test_late_body_does_not_revoke_the_answer():
    with serving(full_published()) as server, connected(server) as client:
        client.sendall(b"POST /metrics HTTP/1.1\r\nContent-Length: 10000000\r\n\r\n")
        assert client.recv(1, socket.MSG_PEEK)
        client.sendall(b"x" * 10_000_000)
        client.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.0 405")
