"""The HTTP server's life cycle, and the hosts that it answers: ports, threads, shutdown."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from support.exporter_http import address, connected, get, our_threads, serving
from support.patience import PATIENCE_SECONDS, until
from support.published_states import full_published

from querypulse.core.guard import Guard
from querypulse.exporter.pages import Content
from querypulse.exporter.server import MAX_REQUESTS, MAX_RETRIES, HttpServer, is_own_name


def unstarted(host="127.0.0.1", port=0):
    return HttpServer(host, port, Content(lambda: None, lambda: True), Guard())


def test_all_threads_are_our_daemons():
    seen = []
    with serving(None, alive=lambda: bool(seen.extend(our_threads())) or True) as server:
        get(server, "/livez")
    assert {thread.name for thread in seen} == {"querypulse-http", "querypulse-http-pages"}
    assert all(thread.daemon for thread in seen)


def test_live_fork_of_the_driver_keeps_neither_the_port_nor_a_client():
    reader, writer = os.pipe()
    forked, say = os.pipe()
    with serving(None) as server:
        held = connected(server)
        until(lambda: server._tasks, "the server has accepted it")
        child = os.fork()
        if child == 0:
            os.close(writer)
            os.write(say, b"!")
            os.read(reader, 1)
            os._exit(0)
        # The fork first closes what it inherited.
        os.read(forked, 1)
    try:
        with pytest.raises(ConnectionRefusedError):
            connected(server)
        assert held.recv(1) == b""
    finally:
        held.close()
        os.close(writer)
        os.waitpid(child, 0)
        for end in (reader, forked, say):
            os.close(end)


def test_server_whose_port_is_taken_listens_on_the_next_free_one():
    with serving(None) as first, serving(None, port=(port := address(first)[1])) as second:
        assert port < address(second)[1] <= port + MAX_RETRIES
        assert get(first, "/livez").status_code == get(second, "/livez").status_code == 200
        with serving(None, port=port) as third:
            assert address(third)[1] > address(second)[1]


def test_server_without_an_address_is_an_os_error_and_leaves_no_thread(monkeypatch):
    monkeypatch.setattr("querypulse.exporter.server.MAX_RETRIES", 0)
    with serving(None) as first:
        for second, problem in (
            (unstarted(port=address(first)[1]), "in use"),
            (unstarted("192.0.2.1", 9719), "assign requested address"),
        ):
            with pytest.raises(OSError, match=problem):
                second.start()
            second.close()
        assert len(our_threads()) == 2
        assert get(first, "/livez").status_code == 200


@pytest.mark.parametrize("lacks", ["a file descriptor", "a thread"])
def test_server_that_cannot_start_keeps_neither_the_port_nor_a_thread(monkeypatch, lacks):
    begin = threading.Thread.start

    def fail(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    def start(thread):
        if thread.name == "querypulse-http":
            raise RuntimeError("can't start new thread")
        begin(thread)

    if lacks == "a thread":
        monkeypatch.setattr(threading.Thread, "start", start)
    else:
        monkeypatch.setattr("asyncio.SelectorEventLoop", fail)
    server = unstarted()
    with pytest.raises((OSError, RuntimeError), match=r"start new thread|Too many open files"):
        server.start()
    assert our_threads() == []
    with pytest.raises(ConnectionRefusedError):
        connected(server)


def test_page_that_hangs_keeps_few_of_the_requests_whose_clients_have_left(monkeypatch):
    held, limits = threading.Event(), [0.1]

    def limit_the_answer():
        monkeypatch.setattr("querypulse.exporter.server.CLIENT_SECONDS", limits[-1])

    runbook = lambda _: held.wait(PATIENCE_SECONDS) and ""
    with serving(None, runbook=runbook, token=limit_the_answer) as server:
        for _ in range(3 * MAX_REQUESTS):
            # The request itself may take as long as it wants.
            monkeypatch.setattr("querypulse.exporter.server.CLIENT_SECONDS", PATIENCE_SECONDS)
            with connected(server) as client:
                client.sendall(b"GET /runbooks/x HTTP/1.1\r\n\r\n")
                assert client.recv(1) == b""
        assert server._jobs.qsize() <= MAX_REQUESTS
        held.set()
        until(lambda: not server._jobs.qsize(), "what nobody waits for is dropped")
        limits.append(PATIENCE_SECONDS)
        assert get(server, "/runbooks/x").status_code == 200


def test_livez_does_not_wait_for_a_page_that_hangs():
    held, hangs = threading.Event(), threading.Event()

    def runbook(_):
        hangs.set()
        held.wait(PATIENCE_SECONDS)
        return "# a runbook"

    with serving(None, runbook=runbook) as server, ThreadPoolExecutor(1) as others:
        shown = others.submit(get, server, "/runbooks/StreamingQueryFailed")
        assert hangs.wait(PATIENCE_SECONDS)
        assert get(server, "/livez").status_code == 200
        held.set()
        assert shown.result().status_code == 200


def test_close_waits_for_no_silent_client_and_frees_the_port_and_may_be_called_twice():
    with serving(full_published()) as server, connected(server):
        host, port = address(server)
        server.close(PATIENCE_SECONDS)
        server.close(PATIENCE_SECONDS)
        assert our_threads() == []
        with serving(None, host=host, port=port) as again:
            assert get(again, "/livez").status_code == 200


def test_client_that_connects_as_the_server_closes_is_no_error(monkeypatch):
    loops, clients = [], []
    with serving(None, token=lambda: loops.append(asyncio.get_running_loop())) as server:
        get(server, "/status")
        call_soon = loops[0].call_soon_threadsafe

        def connect_as(close, *arguments):
            call_soon(lambda: (close(*arguments), clients.append(connected(server))))

        monkeypatch.setattr(loops[0], "call_soon_threadsafe", connect_as)
        server.close(PATIENCE_SECONDS, notice=None)
    [client] = clients
    client.close()


@pytest.mark.parametrize("path", ["/watch", "/watch/page"])
def test_crash_ends_the_connection_of_a_waiting_client_without_a_notice(path):
    with serving(full_published()) as server, connected(server) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        until(lambda: server._shutdown_notice._waiting, "the client waits")
        server.close(PATIENCE_SECONDS, notice=None)
        assert client.recv(1) == b""
        until(lambda: not our_threads(), "its thread ends")


# -- a foreign web page cannot read a loopback server under its own host name (dns rebinding) ----


OWN = [
    "localhost",
    "localhost:9719",
    "LOCALHOST.",
    "driver.localhost:80",
    "127.0.0.1:9719",
    "10.1.2.3:9719",
    "[::1]:9719",
    "[fe80::1]",
    "host.docker.internal:9719",
    "driver-a",
    "driver-a:9719",
    socket.gethostname(),
]
STRANGE = [
    "",
    ":9719",
    "evil.example",
    "evil.example:9719",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "xlocalhost",
    "a@evil.example",
    "[::1",
    "evil.example/localhost",
    "internal.evil.example:80",
]


def test_name_of_this_machine_or_an_address_is_accepted_and_no_other():
    assert [host for host in OWN if not is_own_name(host, "driver-a")] == []
    assert [host for host in STRANGE if is_own_name(host, "driver-a")] == []


@pytest.mark.fault("Readers over HTTP", "A foreign `Host`, as in DNS rebinding", "421")
def test_loopback_server_rejects_a_foreign_host_name():
    with serving(full_published()) as server:
        for path in ("/", "/livez", "/status", "/metrics"):
            assert get(server, path, Host="evil.example").status_code == 421
            assert get(server, path, Host="localhost").status_code == 200


def test_server_for_other_machines_accepts_every_host_name():
    with serving(full_published(), host="0.0.0.0") as server:
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        headers = {"Host": "driver.example.com"}
        answer = requests.get(f"{url}/livez", headers=headers, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 200
