"""``POST /silences`` and ``querypulse silence --url`` silence without a shared disk."""

from __future__ import annotations

import json
import socket
from datetime import datetime, timedelta, timezone

import pytest
import requests
from support.exporter_http import address, serving
from support.http_double import HttpDouble, reply
from support.patience import PATIENCE_SECONDS
from support.published_states import full_published

from querypulse.alerting.silences import SilenceStore, post_silence, written
from querypulse.commands import cli
from querypulse.core.guard import Guard
from querypulse.exporter.server import BODY_BYTES

NAMES = ("billing", "bronze")
HOUR = {"queries": "billing", "minutes": 60}


@pytest.fixture
def silencing():
    return SilenceStore(None, Guard())


@pytest.fixture
def driver(silencing):
    """A server that accepts silences with a token."""
    with serving(
        full_published(),
        token="t0ken",
        silence=lambda body: post_silence(body, silencing, NAMES),
        silences=lambda: [written(entry) for entry in silencing()],
    ) as server:
        yield server


def post(server, body, token="t0ken", path="/silences"):
    data = body if isinstance(body, bytes) else json.dumps(body)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return requests.post(server.url + path, data=data, headers=headers, timeout=PATIENCE_SECONDS)


def quiet(silencing):
    return [(entry.queries, entry.alertname, entry.reason) for entry in silencing()]


def test_posted_silence_is_active(driver, silencing):
    before = datetime.now(timezone.utc)
    answer = post(driver, {**HOUR, "alertname": "Query*", "reason": "backfill"})

    assert answer.status_code == 201
    assert quiet(silencing) == [("billing", "Query*", "backfill")]
    assert answer.json()["queries"] == "billing"
    assert answer.json()["note"] == ""
    until = datetime.fromisoformat(answer.json()["until"].replace("Z", "+00:00"))
    since = until - timedelta(hours=1)
    assert before - timedelta(seconds=1) <= since <= datetime.now(timezone.utc)


def test_posted_silence_may_recur(driver, silencing):
    body = {"queries": "bronze", "every": "sun 02:00-04:00 Europe/Berlin"}
    answer = post(driver, body)

    assert (answer.status_code, answer.json()["note"]) == (201, "")
    assert answer.json().keys() == {"queries", "alertname", "reason", "app", "every", "note"}
    assert [str(entry) for entry in silencing()] == ["silenced sun 02:00-04:00 Europe/Berlin"]
    assert post(driver, {**body, "minutes": 60}).status_code == 201
    assert len(silencing()) == 2
    assert post(driver, {"end": "bronze"}).json() == {"ended": 2}


def test_post_without_the_token_is_refused(driver, silencing):
    assert [post(driver, HOUR, token).status_code for token in (None, "", "wrong")] == [401] * 3
    assert quiet(silencing) == []


def test_server_without_a_token_refuses_silences(silencing):
    take = lambda body: post_silence(body, silencing, NAMES)
    with serving(full_published(), silence=take) as server:
        answer = post(server, HOUR, None)

    assert answer.status_code == 403
    assert "http_token_file" in answer.text
    assert quiet(silencing) == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"\xff",
        {"queries": "a"},
        {"queries": "a", "minutes": -1},
        {"queries": "a", "minutes": "60"},
        {"queries": "a", "every": "now and then"},
        {"queries": "a", "every": "02:00-04:00 Mars"},
        {"queries": "a", "every": "02:00-04:00", "minutes": 0},
        {"queries": 7, "minutes": 60},
        {"queries": "a", "until": "2036-01-01T00:00:00"},
        {"query": "a", "minutes": 60},
    ],
)
def test_invalid_body_is_answered_with_400_and_a_reason(driver, silencing, body):
    answer = post(driver, body)

    assert (answer.status_code, quiet(silencing)) == (400, [])
    assert answer.json()["error"]


@pytest.mark.parametrize(
    ("length", "status"),
    [
        ("0", 400),
        ("", 400),
        ("-1", 400),
        ("1e3", 400),
        ("²", 400),
        ("99999", 413),
        ("9" * 5000, 413),
        (str(BODY_BYTES), 201),
        (str(BODY_BYTES + 1), 413),
    ],
)
def test_length_of_the_body_decides_whether_it_is_read(driver, silencing, length, status):
    body = json.dumps(HOUR).rjust(BODY_BYTES) if status == 201 else ""
    head = f"POST /silences HTTP/1.1\r\nAuthorization: Bearer t0ken\r\nContent-Length: {length}\r\n\r\n"
    with socket.create_connection(address(driver), timeout=PATIENCE_SECONDS) as client:
        client.sendall((head + body).encode("latin-1"))
        client.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: client.recv(65536), b""))

    assert answer.startswith(f"HTTP/1.0 {status}".encode())
    assert len(quiet(silencing)) == (status == 201)


# -- the command ------------------------------------------------------------------------------


@pytest.fixture
def silence(tmp_path, capsys, clean_environment):
    """Run ``querypulse silence``; returns exit code, output and errors."""
    (tmp_path / "token").write_text("t0ken\n")

    def run(*arguments):
        result = [str(tmp_path / "token") if entry == "TOKEN" else entry for entry in arguments]
        return cli.main(["silence", *result]), *capsys.readouterr()

    return run


def test_command_silences_every_driver_and_names_those_that_refuse(silence, driver, silencing):
    elsewhere = SilenceStore(None, Guard())
    take = lambda body: post_silence(body, elsewhere, NAMES)
    with (
        HttpDouble(otherwise=reply(401, body=b"a bearer token is needed")) as refusing,
        serving(full_published(), token="t0ken", silence=take) as other,
    ):
        places = (refusing.url, driver.url, "http://127.0.0.1:1", "nonsense", f"{other.url}/")
        urls = [f"--url={url}" for url in places]
        code, output, errors = silence("bilingg", "--for", "2h", *urls, "--token-file", "TOKEN")

    note = "silenced: query 'bilingg' matches nothing now; did you mean 'billing'?"
    assert code == 1
    assert output.splitlines()[1:] == [f"{driver.url}: {note}", f"{other.url}: {note}"]
    assert "answered 401: a bearer token is needed" in errors
    assert "http://127.0.0.1:1: ConnectionError: no answer" in errors
    assert "nonsense: MissingSchema: no answer" in errors
    for taken in (silencing, elsewhere):
        assert quiet(taken) == [("bilingg", "*", "")]


def test_command_lists_and_ends_the_silences_of_a_driver(silence, driver, silencing):
    place = ("--url", driver.url, "--token-file", "TOKEN")
    assert silence("bill*", "--for", "2h", "--reason", "deploy", *place)[0] == 0
    silence("other", "--for", "1h", *place)
    code, output, errors = silence(*place)

    assert (code, errors) == (0, "")
    assert [line.split()[:3] for line in output.splitlines()] == [
        ["*", "bill*", "*"],
        ["*", "other", "*"],
    ]
    assert output.splitlines()[0].endswith("left): deploy")
    silence("nightly", "--every", "sun 02:00-04:00 Europe/Berlin", *place)
    assert "  nightly  *  sun 02:00-04:00 Europe/Berlin (n" in silence(*place)[1]
    silence("--end", "nightly", *place)
    assert silence("--end", "bill*", *place) == (0, f"{driver.url}: ended: 1 of bill*\n", "")
    assert [entry for entry, *_ in quiet(silencing)] == ["other"]
    assert silence("--end", "bill*", *place)[0] == 1
    with HttpDouble(otherwise=reply(404, body=b"not found")) as older:
        assert silence("--url", older.url, "--token-file", "TOKEN") == (
            1,
            "",
            f"querypulse: {older.url} answered 404: not found\n",
        )


def test_only_silences_of_the_app_are_ended_in_a_driver(silence, driver, silencing):
    place = ("--url", driver.url, "--token-file", "TOKEN")
    for app in ("shop", "bank", "*"):
        silence("*", "--for", "1h", "--app", app, *place)

    assert silence("--end", "*", "--app", "shop", *place)[0] == 0
    assert [entry.app for entry in silencing()] == ["bank", "*"]
    assert post(driver, {"end": "*"}).json() == {"ended": 2}


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("a", "--for", "1h", "--url", "http://127.0.0.1:9719"), "--token-file"),
        (("a", "--for", "1h", "--url", "https://a", "--token-file", "/nowhere"), "/nowhere"),
        (("--url", "https://a", "--token-file", "TOKEN", "--ca-file", "/ca"), "--ca-file /ca"),
        *(
            (
                (*action, "--url", url, "--token-file", "TOKEN"),
                f"{url}: the token of another machine",
            )
            for action, url in (
                ((), "http://a:9719"),
                (("--end", "a"), "HTTP://10.0.0.1"),
                (("a", "--for", "1h"), "http://127.0.0.1.example.com:9719"),
                (("a", "--for", "1h"), "http://[fe80::1]:9719"),
            )
        ),
    ],
)
def test_options_that_cannot_be_used_are_refused_before_anything_is_silenced(
    silence, driver, silencing, arguments, word
):
    """Not even a driver before it in the list gets the token."""
    code, output, errors = silence("--url", driver.url, *arguments)

    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert word in errors
    assert quiet(silencing) == []


def test_allow_http_sends_the_token_to_another_machine(silence, monkeypatch):
    sent = []

    def request(session, _, url, **__):
        sent.append((url, session.headers["Authorization"]))
        raise requests.ConnectionError

    monkeypatch.setattr(requests.Session, "request", request)
    code, _, errors = silence(
        *("billing", "--for", "2h", "--url", "http://driver-a:9719", "--token-file", "TOKEN"),
        "--allow-http",
    )

    assert (code, sent) == (1, [("http://driver-a:9719/silences", "Bearer t0ken")])
    assert "http://driver-a:9719: ConnectionError: no answer" in errors
