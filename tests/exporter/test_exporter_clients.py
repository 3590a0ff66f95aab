"""Silent, slow, broken and many clients."""

from __future__ import annotations

import logging
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest
from support.clock import Clock
from support.exporter_http import address, get, our_threads, raw, serving
from support.patience import PATIENCE_SECONDS, until
from support.published_states import full_published

from querypulse.exporter import http_requests

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


def test_requests_leave_nothing_on_standard_error(capfd, caplog):
    with serving(full_published()) as server, caplog.at_level(logging.DEBUG, "querypulse"):
        for path in ("/metrics", "/status", "/livez", "/readyz", "/nonsense"):
            get(server, path)
        with socket.create_connection(address(server)):
            pass
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


def test_excess_silent_clients_do_not_displace_another_address(monkeypatch):
    monkeypatch.setattr(http_requests, "MAX_INCOMING", 8)
    with serving(full_published()) as server, ExitStack() as silent:
        other = silent.enter_context(socket.socket())
        other.bind(("127.0.0.2", 0))
        other.connect(address(server))
        other.settimeout(PATIENCE_SECONDS)
        for _ in range(2 * http_requests.MAX_INCOMING):
            silent.enter_context(socket.create_connection(address(server)))
        other.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")

        assert other.recv(12) == b"HTTP/1.0 200"


def test_excess_silent_clients_are_dropped(monkeypatch):
    monkeypatch.setattr(http_requests, "MAX_INCOMING", 8)
    with serving(full_published()) as server, ExitStack() as silent:
        for _ in range(2 * http_requests.MAX_INCOMING):
            silent.enter_context(socket.create_connection(address(server)))
        assert get(server, "/livez").status_code == 200
        assert len(server._server._reception.connections) < http_requests.MAX_INCOMING


def test_silent_client_is_dropped(monkeypatch):
    monkeypatch.setattr(http_requests, "HEAD_SECONDS", 0.1)
    with (
        serving(full_published()) as server,
        socket.create_connection(address(server), PATIENCE_SECONDS) as client,
    ):
        assert client.recv(1) == b""


def test_paused_process_does_not_count_the_pause_against_clients(monkeypatch):
    clock = Clock(100.0)
    monkeypatch.setattr(http_requests.time, "monotonic", clock)
    monkeypatch.setattr(http_requests, "HEAD_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        received = http_requests.Reception(listener, None)
        with socket.create_connection(listener.getsockname()):
            assert received.step() == []
            clock.now += 30
            received.step()
            assert len(received.connections) == 1
            steps = 0
            while received.connections:
                clock.now += 0.25
                received.step()
                steps += 1
            assert steps == 4
        received.close()


@contextmanager
def busy_server():
    """A server with twenty requests, seven of which wait for ``go_on``; and their answers."""
    shown, busy, go_on = full_published(), [], threading.Event()

    def newest():
        busy.append(threading.current_thread())
        go_on.wait(PATIENCE_SECONDS)
        return shown

    with serving(newest) as server, ThreadPoolExecutor(20) as pool:
        answers = [pool.submit(get, server, "/status") for _ in range(20)]
        until(lambda: len(busy) == 7, "seven of them are served")
        yield server, go_on, answers


@pytest.mark.fault(
    "Readers over HTTP",
    "Twenty requests that take long",
    "`/livez` answers; at most eight run at once, seven of them for one client",
)
def test_livez_has_reserved_slots():
    with busy_server() as (server, go_on, answers):
        assert get(server, "/livez").status_code == 200
        go_on.set()
        assert {answer.result().status_code for answer in answers} == {200}


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST /livez HTTP/1.1\r\nContent-Length: 9\r\n\r\n",
        b"GET /livez x HTTP/1.1\r\n\r\n",
        b"GET /livez HTTP/9x\r\n\r\n",
        b"GET /livez\r\n\r\n",
    ],
)
def test_body_or_malformed_request_for_livez_takes_no_reserved_slot(request_bytes):
    with serving(full_published()) as server, ExitStack() as clients:
        for _ in range(4):
            client = clients.enter_context(
                socket.create_connection(address(server), PATIENCE_SECONDS)
            )
            client.sendall(request_bytes)
        assert get(server, "/livez").status_code == 200


@pytest.mark.fault("Readers over HTTP", "A client that sends one byte at a time", "It is cut off")
def test_dripping_client_is_cut_off(monkeypatch):
    monkeypatch.setattr(http_requests, "HEAD_SECONDS", 0.1)

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
    """Its answer is larger than the buffers of both sockets."""
    monkeypatch.setattr(http_requests, "IO_SECONDS", 0.1)
    with serving(None, runbook=lambda _: "x" * 20_000_000) as server:
        with socket.create_connection(address(server), PATIENCE_SECONDS) as client:
            client.sendall(b"GET /runbooks/x HTTP/1.1\r\n\r\n")
            assert client.recv(1)
            until(lambda: len(our_threads()) == 1, "the thread that serves it has ended")
        assert get(server, "/livez").status_code == 200


def test_seven_requests_of_a_client_are_served_at_once_and_the_others_wait():
    with busy_server() as (_, go_on, answers):
        assert len(our_threads()) == 8
        go_on.set()
        assert {answer.result().status_code for answer in answers} == {200}


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
