"""Those who want to read what they may not, or to keep others from reading."""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import ExitStack

import pytest
import trustme
from support.exporter_http import address, our_threads, raw, serving
from support.published_states import full_published

from querypulse.exporter import http_requests
from querypulse.exporter.server import Tls
from querypulse.settings.links import runbook

TRICKS = (
    "/runbooks/../status",
    "/runbooks/../../status",
    "/runbooks/%2e%2e/status",
    "/runbooks/..%2fstatus",
    "/runbooks/..\\status",
    "/runbooks/../../__init__.py",
    "/runbooks/../../../../../../../../etc/passwd",
    "/runbooks//etc/passwd",
    "/runbooks/%2fetc%2fpasswd",
    "/runbooks/StreamingQueryFailed.md/../../../README",
    "/runbooks/StreamingQueryFailed%00",
    "/runbooks/README",
    "/runbooks/.",
    "/runbooks/",
    "/runbooks",
    "/./status",
    "/../status",
    "/x/../status",
    "/%2e/status",
    "/%73tatus",
    "/status/",
    "/status/../",
    "/status;/",
    "/status#/",
    "/STATUS",
    "/;/status",
    "//status",
    "///status",
    "//x/status",
    "//",
    "/.",
    "/..",
    "\\status",
    "status",
    "*",
    "http://127.0.0.1/status",
    "http://127.0.0.1/",
    "https://127.0.0.1:9719/runbooks/../status",
    "//127.0.0.1/status",
    "file:///etc/passwd",
)
BEHIND_THE_TOKEN = (b'"queries":[', b"spark_streaming", b"root:", b"Traceback", b"import ")
SECRET = "a-token-of-some-length"
GUESSES = ("", "a", SECRET[:-1], f"{SECRET}x", SECRET.upper(), "x" * 5000, "ü", SECRET)
HANDSHAKES = 100
AT_MOST_SECONDS = 1.0


def code_of(answer):
    """The status code; what has no status line is of HTTP/0.9."""
    return int(answer.split()[1])


@pytest.mark.fault(
    "Readers over HTTP",
    "Paths with `..`, `//`, `%2e`, `%2f`, `%00`, `;`, or a whole URI, without a token",
    "401 or 404; no page that needs the token, and no file",
)
@pytest.mark.parametrize("path", TRICKS)
def test_no_trick_in_a_path_reads_what_needs_the_token(path):
    with serving(full_published(), token="t", runbook=runbook) as server:
        answer = raw(server, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    assert code_of(answer) == (200 if path == "//" else 404 if is_below_runbooks(path) else 401)
    assert not [text for text in BEHIND_THE_TOKEN if text in answer]


def is_below_runbooks(path):
    return path.startswith("/runbooks/")


@pytest.mark.parametrize("path", TRICKS)
def test_with_the_token_a_trick_reads_no_file(path):
    with serving(full_published(), token="t", runbook=runbook) as server:
        head = f"GET {path} HTTP/1.1\r\nAuthorization: Bearer t\r\n\r\n"
        answer = raw(server, head.encode())

    assert code_of(answer) in (200, 404)
    assert (code_of(answer) == 200) == (path in ("//", "//status", "///status"))
    assert b"root:" not in answer


@pytest.mark.fault(
    "Readers over HTTP",
    "Guesses of the token, of any length",
    "Compared in a time that shows neither its content nor its length",
)
@pytest.mark.parametrize("guess", GUESSES)
def test_the_token_is_compared_in_constant_time(monkeypatch, guess):
    compared = []
    compare = http_requests.compare_digest

    def record(given, wanted):
        compared.append((len(given), len(wanted)))
        return compare(given, wanted)

    monkeypatch.setattr(http_requests, "compare_digest", record)
    with serving(full_published(), token=SECRET) as server:
        head = f"GET /livez HTTP/1.1\r\nAuthorization: Bearer {guess}\r\n\r\n"
        answer = raw(server, head.encode())

    assert code_of(answer) == (200 if guess == SECRET else 401)
    assert compared == [(32, 32)]


@pytest.mark.fault(
    "Readers over HTTP",
    "100 TLS handshakes at once that never end",
    "`/livez` answers within 1 s, no thread waits",
)
def test_a_hundred_hanging_handshakes_delay_no_answer(tmp_path, measured):
    authority = trustme.CA()
    cert = tmp_path / "cert.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(cert)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    hello = client_hello(context)
    tls = Tls(cert_file=str(cert), key_file=str(cert))
    with serving(full_published(), tls=tls) as server, ExitStack() as hanging:
        for number in range(HANDSHAKES):
            client = hanging.enter_context(socket.create_connection(address(server), 10))
            # Some send nothing, some half of their first message, some all of it and no more.
            client.sendall((b"", hello[: len(hello) // 2], hello)[number % 3])
        began = time.monotonic()
        answer = secure_get(server, context)
        seconds = time.monotonic() - began
        threads = len(our_threads())

    measured(f"`/livez` in {seconds:.3f} s, {threads} threads")
    assert code_of(answer) == 200
    assert seconds < AT_MOST_SECONDS
    assert threads <= 2


def client_hello(context):
    """The first message of a client."""
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(received, sent, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return sent.read()


def secure_get(server, context):
    with (
        socket.create_connection(address(server), 10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as client,
    ):
        client.sendall(b"GET /livez HTTP/1.1\r\n\r\n")
        return b"".join(iter(lambda: client.recv(65536), b""))
