"""Those who want to read what they may not, or to keep others from reading."""

from __future__ import annotations

import ssl
from contextlib import ExitStack

import pytest
import trustme
from support.exporter_http import connected, our_threads, raw, serving
from support.patience import PATIENCE_SECONDS, until
from support.published_states import full_published

from querypulse.exporter import server as server_module
from querypulse.exporter.server import Tls
from querypulse.settings.links import runbook

TRICKS = r"""
/runbooks/../status /runbooks/../../status /runbooks/%2e%2e/status /runbooks/..%2fstatus
/runbooks/..\status /runbooks/../../__init__.py /runbooks/../../../../../../../../etc/passwd
/runbooks//etc/passwd /runbooks/%2fetc%2fpasswd
/runbooks/StreamingQueryFailed.md/../../../README /runbooks/StreamingQueryFailed%00
/runbooks/README /runbooks/. /runbooks/ /runbooks /./status /../status /x/../status
/%2e/status /%73tatus /status/ /status/../ /status;/ /status#/ /STATUS /;/status //status
///status //x/status // /. /.. \status status * http://127.0.0.1/status http://127.0.0.1/
https://127.0.0.1:9719/runbooks/../status //127.0.0.1/status file:///etc/passwd
"""
BEHIND_THE_TOKEN = (b'"queries":[', b"spark_streaming", b"root:", b"Traceback", b"import ")
SECRET = "a-token-of-some-length"
GUESSES = ("", "a", SECRET[:-1], f"{SECRET}x", SECRET.upper(), "x" * 5000, "ü", SECRET)


def answer_to(server, path, token=None):
    """The code of the answer to a path, and its bytes."""
    header = "" if token is None else f"Authorization: Bearer {token}\r\n"
    answer = raw(server, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n".encode())
    return int(answer.split()[1]), answer


@pytest.mark.fault(
    "Readers over HTTP",
    "Paths with `..`, `//`, `%2e`, `%2f`, `%00`, `;`, or a whole URI, without a token",
    "401 or 404; no page that needs the token, and no file",
)
@pytest.mark.parametrize("token", [None, "t"])
def test_no_trick_in_a_path_reads_what_needs_the_token_or_a_file(token):
    failures = {}
    with serving(full_published(), token="t", runbook=runbook) as server:
        for path in TRICKS.split():
            code, answer = answer_to(server, path, token)
            if token is None:
                expected = 200 if path == "//" else 404 if path.startswith("/runbooks/") else 401
            else:
                expected = 200 if path in {"//", "//status", "///status"} else 404
            secrets = BEHIND_THE_TOKEN if token is None else (b"root:",)
            if code != expected or any(text in answer for text in secrets):
                failures[path] = answer

    assert failures == {}


@pytest.mark.fault(
    "Readers over HTTP",
    "Guesses of the token, of any length",
    "Compared in a time that shows neither its content nor its length",
)
def test_guesses_of_the_token_are_compared_in_constant_time(monkeypatch):
    compared = []
    compare = server_module.compare_digest

    def record(given, wanted):
        compared.append((len(given), len(wanted)))
        return compare(given, wanted)

    monkeypatch.setattr(server_module, "compare_digest", record)
    with serving(full_published(), token=SECRET) as server:
        codes = {guess: answer_to(server, "/livez", token=guess)[0] for guess in GUESSES}

    assert codes == {guess: 200 if guess == SECRET else 401 for guess in GUESSES}
    assert compared == [(32, 32)] * len(GUESSES)


@pytest.mark.fault(
    "Readers over HTTP",
    "100 TLS handshakes at once that never end",
    "`/livez` waits for none of them, and no thread does",
)
def test_a_hundred_hanging_handshakes_delay_no_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(server_module, "CLIENT_SECONDS", 10 * PATIENCE_SECONDS)
    authority = trustme.CA()
    cert = tmp_path / "cert.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(cert)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    hello = client_hello(context)
    tls = Tls(cert_file=str(cert), key_file=str(cert))
    with serving(full_published(), tls=tls) as server, ExitStack() as hanging:
        for number in range(100):
            client = hanging.enter_context(connected(server))
            # Some send nothing, some half of their first message, some all of it and no more.
            client.sendall((b"", hello[: len(hello) // 2], hello)[number % 3])
        answer = secure_get(server, context)
        until(lambda: len(our_threads()) == 2, "no client has a thread")

    assert answer.split()[1] == b"200"


def client_hello(context):
    """The first message of a client."""
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(received, sent, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return sent.read()


def secure_get(server, context):
    with (
        connected(server) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as client,
    ):
        client.sendall(b"GET /livez HTTP/1.1\r\n\r\n")
        return b"".join(iter(lambda: client.recv(65536), b""))
