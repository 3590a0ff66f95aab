"""Through a proxy on loopback, only when a setting says so."""

import logging
import time

import pytest
from support.http_double import HttpDouble, drip, reply
from support.proxy_double import credentials, port_of, tunnel
from support.tls import Authority

from querypulse.alerting.receivers.answer import DeliveryOutcome
from querypulse.alerting.receivers.http import HttpError, HttpPoster
from querypulse.alerting.receivers.http_options import HttpOptions
from querypulse.alerting.receivers.secret import Secret

NOW = 1_800_000_000.0
PLACE = "https://hook.test/services/B0000SECRETB0000"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def place(authority):
    with HttpDouble(otherwise=reply(200, body=b"ok"), tls=authority.server("hook.test")) as double:
        yield double


@pytest.fixture
def proxy(place):
    with HttpDouble(otherwise=tunnel(port_of(place))) as double:
        yield double


def poster(authority, url=PLACE, **options):
    http = HttpOptions(ca_file=authority.ca_file, **options)
    return HttpPoster(Secret(url), setting="webhook_url", http=http, total_seconds=3.0)


def refusal(authority, proxy, **options):
    with pytest.raises(HttpError) as caught:
        poster(authority, proxy_url=proxy.url, **options).post(b"{}", NOW)
    return caught.value


def test_https_goes_through_a_tunnel_that_shows_the_proxy_the_name_only(authority, place, proxy):
    sent = poster(authority, proxy_url=proxy.url)
    assert [sent.post(b"1", NOW), sent.post(b"2", NOW)] == [b"ok", b"ok"]
    sent.close()

    assert [(one.method, one.path) for one in proxy.requests] == [("CONNECT", "hook.test:443")]
    assert [one.body for one in place.requests] == [b"1", b"2"]


def test_the_proxys_password_goes_to_the_proxy_alone(authority, place, proxy):
    url = proxy.url.replace("//", "//me:hunter2@")
    sent = poster(authority, proxy_url=url)
    sent.post(b"{}", NOW)
    sent.close()

    assert proxy.requests[0].headers["Proxy-Authorization"] == credentials("me:hunter2")
    assert place.requests[0].headers["Proxy-Authorization"] is None


def test_the_way_to_the_proxy_may_be_tls_as_well(authority, place):
    with HttpDouble(otherwise=tunnel(port_of(place)), tls=authority.server()) as proxy:
        sent = poster(authority, proxy_url=proxy.url)
        assert sent.post(b"{}", NOW) == b"ok"
        sent.close()

    assert len(place.requests) == 1


def test_plain_http_asks_the_proxy_for_the_whole_url(authority):
    """Where plain http is allowed."""
    with HttpDouble(otherwise=reply(202)) as proxy:
        options = {"proxy_url": proxy.url, "allow_http": True}
        poster(authority, "http://hook.test/x?y=z", **options).post(b"{}", NOW)

        assert proxy.requests[0].path == "http://hook.test/x?y=z"


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (407, DeliveryOutcome.MISCONFIGURED),
        (403, DeliveryOutcome.MISCONFIGURED),
        (400, DeliveryOutcome.MISCONFIGURED),
        (410, DeliveryOutcome.MISCONFIGURED),
        (502, DeliveryOutcome.TRANSIENT),
        (503, DeliveryOutcome.TRANSIENT),
        (504, DeliveryOutcome.TRANSIENT),
        (429, DeliveryOutcome.TRANSIENT),
    ],
)
def test_a_proxys_refusal_is_the_proxys_own(authority, status, answer):
    """It says nothing of the alert, so that is kept; and nothing has reached the place."""
    with HttpDouble(otherwise=reply(status)) as proxy:
        error = refusal(authority, proxy)

    assert (error.answer, error.may_have_arrived) == (answer, False)
    assert str(error) == f"https://hook.test was not reached, the proxy answered {status}"


def test_a_proxy_that_is_not_there_is_an_outage(authority):
    with HttpDouble() as proxy:
        pass
    error = refusal(authority, proxy)

    assert (error.answer, error.may_have_arrived) == (DeliveryOutcome.TRANSIENT, False)
    assert "the proxy did not answer: ConnectionRefusedError" in str(error)


def test_a_dripping_proxy_cannot_hold_a_post(authority):
    with HttpDouble(otherwise=drip(b"HTTP/1.1 200 OK\r\nX-Long: ")) as proxy:
        began = time.monotonic()
        assert refusal(authority, proxy).answer is DeliveryOutcome.TRANSIENT

    assert time.monotonic() - began < 4.5


def test_the_place_behind_a_proxy_must_be_trusted_too(authority, proxy, tmp_path):
    error = refusal(Authority(tmp_path), proxy)

    assert error.answer is DeliveryOutcome.MISCONFIGURED
    assert "https://hook.test is not trusted" in str(error)


def test_the_environments_proxy_is_taken_when_asked_for(authority, place, proxy, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    sent = poster(authority, proxy_from_environment=True)
    sent.post(b"{}", NOW)
    sent.close()

    assert len(place.requests) == 1


def test_no_proxy_in_the_environment_is_heeded(authority, proxy, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    monkeypatch.setenv("NO_PROXY", "hook.test")

    assert HttpOptions(proxy_from_environment=True).proxies(PLACE) == {}


def test_a_proxy_given_goes_before_the_environments(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://elsewhere:1")
    options = HttpOptions(proxy_from_environment=True, proxy_url="http://here:1")

    assert set(options.proxies(PLACE).values()) == {"http://here:1"}


def test_a_proxy_of_the_environment_that_cannot_be_used_is_a_fault(authority, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "socks5://proxy:1080")
    with pytest.raises(HttpError) as caught:
        poster(authority, proxy_from_environment=True).post(b"{}", NOW)

    assert caught.value.answer is DeliveryOutcome.MISCONFIGURED


def test_without_the_setting_the_environment_has_no_say(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://elsewhere:1")

    assert HttpOptions().proxies(PLACE) == {}


@pytest.mark.parametrize("host", ["127.0.0.1:9093", "localhost:9093", "[::1]:9093"])
def test_what_runs_on_this_machine_is_reached_directly(host):
    assert HttpOptions(proxy_url="http://proxy:3128").proxies(f"http://{host}/x") == {}


def test_no_secret_of_the_way_is_shown(authority, caplog):
    with HttpDouble(otherwise=reply(407)) as proxy, caplog.at_level(logging.DEBUG):
        url = proxy.url.replace("//", "//me:hunter2@")
        with pytest.raises(HttpError) as caught:
            poster(authority, proxy_url=url).post(b"{}", NOW)

    assert "hunter2" not in f"{caught.value!r}{caplog.text}{HttpOptions(proxy_url=url)}"
    assert "B0000SECRET" not in f"{caught.value!r}{caplog.text}"
