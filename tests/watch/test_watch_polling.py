"""One poll of a driver over real HTTP, and every way in which a connection can fail."""

from __future__ import annotations

import errno
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from unittest.mock import PropertyMock

import pytest
import trustme
from msgspec.structs import replace
from support.http_double import HttpDouble, drip, raw, reply
from support.patience import PATIENCE_SECONDS, ended
from support.watching import never_accepting, published_alert, published_driver, serving

from querypulse.core.secret import Secret
from querypulse.exporter.server import Tls
from querypulse.watch import client as client_module
from querypulse.watch.client import (
    Access,
    Client,
    Endpoint,
    NoAnswer,
    Said,
    await_notice,
    poll,
)
from querypulse.watch.targets import endpoint_of


@pytest.fixture(autouse=True)
def long_polls(monkeypatch):
    """Let only those polls end at their deadline whose tests ask for it."""
    monkeypatch.setattr(client_module, "POLL_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(client_module, "WAIT_SECONDS", 3600.0)


@pytest.fixture
def short_polls(long_polls, monkeypatch):
    monkeypatch.setattr(client_module, "POLL_SECONDS", 0.3)


def seen(url, token=None, context=None):
    shown = None if token is None else Secret(token)
    return poll(Client(endpoint_of(url, "here"), Access(shown, context)))


@contextmanager
def listening():
    """A port that accepts connections and never answers, like a frozen process, and its URL."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server, f"http://127.0.0.1:{server.getsockname()[1]}"


# -- what a driver reports --------------------------------------------------------------------


def test_a_healthy_driver_reports_its_name_its_heartbeat_and_its_unhealthy_queries():
    queries = {"bronze": "running", "silver": "stalled", "gold": "failed"}
    shown = published_driver("etl", 1_600_000_000.0, **queries)
    with serving(published=lambda: shown) as server:
        result = seen(server.url)
    assert (result.said, result.app, result.heartbeat) == (Said.HEALTHY, "etl", 1_600_000_000.0)
    assert result.unhealthy == {"silver": "stalled", "gold": "failed"}


FAILED = published_alert("StreamingQueryFailed", "gold")
OURS = (("gold", "StreamingQueryFailed"),)


DOWN, SLOW = published_alert("StreamingDriverDown"), published_alert("X", "gold", "warning")
MUTED = published_alert("StreamingQueryFailed", "gold", muted="silenced")
GROUPED = published_alert("StreamingQueryFailed", "gold", incident="*")
DEGRADED = published_alert("QuerypulseMonitoringDegraded", severity="warning")
DELIVERED = {"webhook": 0}


@pytest.mark.parametrize(
    ("alerts", "pending", "reported", "holds"),
    [
        pytest.param([FAILED], DELIVERED, OURS, False, id="delivered"),
        pytest.param([FAILED], {"webhook": 1}, (), False, id="pending"),
        pytest.param([FAILED], {}, (), False, id="without a receiver"),
        pytest.param([MUTED], DELIVERED, (), False, id="silenced"),
        pytest.param([SLOW], DELIVERED, (), False, id="a warning"),
        pytest.param([DEGRADED], DELIVERED, (), False, id="a warning of its own"),
        pytest.param([], DELIVERED, (), False, id="healthy"),
        pytest.param([DOWN], {}, (), True, id="its own incident"),
        pytest.param([GROUPED], DELIVERED, OURS, True, id="of a group"),
    ],
)
def test_a_poll_shows_the_critical_alerts_that_people_know_of_and_whether_one_is_the_drivers_own(
    alerts, pending, reported, holds
):
    shown = published_driver()
    monitor = replace(shown.monitor, receivers=tuple(pending), outbox_pending=pending)
    shown = replace(shown, alerts=tuple(alerts), monitor=monitor)
    with serving(published=lambda: shown) as server:
        result = seen(server.url)
    assert (result.reported, result.holds_key) == (reported, holds)


def test_a_driver_before_its_first_evaluation_is_healthy_and_has_no_name():
    with serving(published=lambda: None) as server:
        result = seen(server.url)
    assert (result.said, result.app, result.heartbeat) == (Said.HEALTHY, "", None)


def test_a_stuck_worker_is_detected():
    with serving(alive=lambda: False) as server:
        result = seen(server.url)
    assert (result.said, result.detail) == (Said.STUCK, "GET /livez answered 503")


def test_the_token_grants_access():
    with serving(token="secret") as server:
        assert seen(server.url, token="secret").app == "etl"
        assert seen(server.url).said is Said.BARRED
        assert seen(server.url, token="wrong").said is Said.BARRED


# -- how a connection fails -------------------------------------------------------------------


def test_a_closed_port_is_refused():
    with listening() as (_, url):
        pass
    result = seen(url)
    assert result.said is Said.REFUSED
    assert result.detail.endswith("refused the connection")


@pytest.mark.usefixtures("short_polls")
@pytest.mark.parametrize("scheme", ["http:", "https:"])
def test_a_port_that_never_answers_is_silent(scheme):
    with listening() as (_, url):
        assert ended(lambda: seen(url.replace("http:", scheme))).said is Said.SILENT


@pytest.mark.usefixtures("short_polls")
def test_a_connection_that_is_not_accepted_is_unreachable():
    with never_accepting() as url:
        assert seen(url).said is Said.UNREACHABLE


def test_an_unresolvable_name_is_unreachable():
    result = seen("http://no-such-host.invalid:9719")
    assert result.said is Said.UNREACHABLE
    assert "cannot be resolved" in result.detail


@pytest.mark.parametrize("number", [errno.EHOSTUNREACH, errno.EMFILE], ids=["route", "sockets"])
def test_a_missing_route_is_a_poll_and_running_out_of_sockets_is_none(monkeypatch, number):
    def fail(*_, **__):
        raise OSError(number, "No")

    monkeypatch.setattr(socket, "socket", fail)
    if number == errno.EHOSTUNREACH:
        assert seen("http://10.0.0.1:9719").said is Said.UNREACHABLE
    else:
        with pytest.raises(OSError, match="No"):
            seen("http://10.0.0.1:9719")


ANSWERS = {
    "nothing": (raw(b""), Said.BROKEN),
    "half a body": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhal"), Said.BROKEN),
    "nonsense": (raw(b"nonsense\r\n\r\n"), Said.BROKEN),
    **{f"{code}": (reply(code), Said.BARRED) for code in (401, 403, 421)},
    **{
        f"{code}": (reply(code, {"Location": "/elsewhere"}), Said.STUCK)
        for code in (301, 404, 500, 502, 503, 504)
    },
}


@pytest.mark.parametrize("name", ANSWERS)
def test_each_answer_of_livez_has_its_meaning(name):
    answer, said = ANSWERS[name]
    with HttpDouble(otherwise=answer) as driver:
        assert seen(driver.url).said is said
        assert len(driver.requests) <= 1


def test_another_server_at_the_url_is_named_as_such():
    with HttpDouble(otherwise=reply(404)) as spark_ui:
        detail = seen(spark_ui.url).detail

    assert detail == "GET /livez answered 404, as no server of querypulse does"


@pytest.mark.parametrize(
    ("script", "seconds", "said"),
    [([], [0.3], Said.SILENT), ([reply(200)], [PATIENCE_SECONDS, 0.3], Said.HEALTHY)],
)
def test_a_driver_that_answers_byte_by_byte_is_silent_but_if_its_livez_is_good(
    script, seconds, said, monkeypatch
):
    """``seconds`` are left for each request, however long the one before took."""
    left = {"left": PropertyMock(side_effect=seconds)}
    monkeypatch.setattr(client_module, "Deadline", lambda _: type("Deadline", (), left)())
    with HttpDouble(*script, otherwise=drip(b"HTTP/1.1 200 OK\r\n")) as driver:
        result = ended(lambda: seen(driver.url))
    assert (result.said, result.app) == (said, "")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b'{"app": 5}',
        b"[]",
        b"\xff",
        b'{"monitor": null}',
        b'{"x": ' + b"[" * 100_000,
    ],
)
def test_invalid_pages_leave_the_driver_healthy(body):
    with HttpDouble(reply(200), otherwise=reply(200, body=body)) as driver:
        result = seen(driver.url)
    assert (result.said, result.app, result.unhealthy) == (Said.HEALTHY, "", {})


def test_labels_are_read_and_a_long_name_is_cut():
    body = b'{"app": "%s", "labels": {"env": "prod"}}' % (b"x" * 10_000)
    with HttpDouble(reply(200), otherwise=reply(200, body=body)) as driver:
        result = seen(driver.url)
    assert (result.app, result.labels) == ("x" * 200, {"env": "prod"})


@pytest.mark.parametrize(
    ("when", "due"),
    [
        (b"2026-11-29T06:00:00Z", {"a": 1_795_932_000.0}),
        (b"0001-01-01T00:00:00+23:59", {}),
        (b"9999-12-31T23:59:59-23:59", {}),
    ],
)
def test_a_time_that_no_clock_shows_is_no_deadline(when, due):
    body = b'{"queries": [{"name": "a", "state": "idle", "complete_by": "%s"}]}' % when
    with HttpDouble(reply(200), otherwise=reply(200, body=body)) as driver:
        assert seen(driver.url).due == due


def test_a_driver_is_polled_at_the_address_of_its_endpoint():
    with serving() as server:
        url = server.url.replace("127.0.0.1", "drivers.internal")
        assert poll(Client(Endpoint(url, "127.0.0.1"), Access())).app == "etl"


# -- TLS --------------------------------------------------------------------------------------


@pytest.fixture
def authority():
    return trustme.CA()


@pytest.fixture
def secured(authority, tmp_path):
    """A driver that serves over TLS; clients need a certificate only with ``ask``."""
    cert, ca = str(tmp_path / "cert.pem"), str(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(cert)
    authority.cert_pem.write_to_path(ca)
    return lambda *, ask=False: serving(tls=Tls(cert, cert, ca if ask else None))


def trusting(authority):
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def test_a_certificate_is_checked(secured, authority):
    with secured() as server:
        assert seen(server.url, context=trusting(authority)).app == "etl"
        result = seen(server.url)
    assert result.said is Said.BARRED
    assert "certificate was not accepted" in result.detail


def test_a_driver_that_requires_a_client_certificate_gets_one(secured, authority):
    context = trusting(authority)
    authority.issue_cert("watcher.example").configure_cert(context)
    with secured(ask=True) as server:
        assert seen(server.url, context=context).app == "etl"
        assert seen(server.url, context=trusting(authority)).said is not Said.HEALTHY


@pytest.mark.usefixtures("short_polls")
def test_a_server_without_tls_is_not_healthy():
    with serving() as server:
        assert seen(server.url.replace("http:", "https:")).said in (Said.BROKEN, Said.SILENT)


# -- /watch -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "received"),
    [
        (reply(200, body=b'{"status":"running"}'), "running"),
        (reply(200, body=b'{"status":"stopped"}'), "stopped"),
        (reply(200, body=b'{"status":"dancing"}'), None),
        (reply(200, body=b'{"x":' + b"[" * 100_000), None),
        (reply(404, body=b"not found"), None),
        (reply(401, body=b"a bearer token is needed"), None),
    ],
)
def test_each_answer_of_the_watch_page_has_its_meaning(answer, received):
    with HttpDouble(otherwise=answer) as driver:
        page = await_notice(Client(endpoint_of(driver.url, "here"), Access()))
        assert (page and page.status) == received
        assert driver.requests[0].path == "/watch"


def test_a_pending_request_can_be_cut():
    with listening() as (server, url), ThreadPoolExecutor(1) as pool:
        client = Client(endpoint_of(url, "here"), Access())
        pending = pool.submit(await_notice, client)
        connection, _ = server.accept()
        client.cut()
        with pytest.raises(NoAnswer):
            pending.result(PATIENCE_SECONDS)
        with pytest.raises(NoAnswer, match="cut"):
            await_notice(client)
        connection.close()
