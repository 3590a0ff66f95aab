"""Settings become receivers; what cannot be used is told, and no secret with it."""

from __future__ import annotations

import base64

import pytest
import trustme
from support.http_double import HttpDouble, reply

from querypulse.alerting.alert import Alert, Incident
from querypulse.alerting.receivers.answer import DeliveryOutcome
from querypulse.alerting.receivers.receiver import DeliveryError
from querypulse.listener.guard import Guard
from querypulse.sidecar import Settings, SettingsError
from querypulse.sidecar.configuration.receivers_from_settings import heartbeat, receivers, routes

KEY = "R0123456789abcdefghijklmnopqrstu"
SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()
HOOK = "https://hooks.example.com/services/hidden-path"
INCIDENT = Incident(
    (Alert({"alertname": "X", "app": "a", "query": "q", "severity": "critical"}, {}, 1.0),)
)


@pytest.fixture
def file(tmp_path):
    """Writes a file; the answer is its path."""

    def write(content, name="secret"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


@pytest.fixture
def server():
    with HttpDouble(otherwise=reply(202, body=b"ok")) as double:
        yield double


def refused(**settings):
    with pytest.raises(SettingsError) as error:
        receivers(Settings(**settings))
    return str(error.value)


def names(**settings):
    return [receiver.name for receiver in receivers(Settings(**settings))]


def send(**settings):
    """Tell an incident to the one receiver there is."""
    (receiver,) = receivers(Settings(**settings))
    receiver.send(INCIDENT, 2.0)
    receiver.close()


# -- who is told --------------------------------------------------------------------------------


def test_who_is_not_named_is_not_reported():
    assert names() == []


def test_each_place_gets_its_receiver(file):
    assert names(webhook_url=HOOK) == ["webhook"]
    assert names(webhook_url_file=file(HOOK + "\n")) == ["webhook"]
    assert names(pagerduty_routing_key=KEY) == ["pagerduty"]
    assert names(pagerduty_routing_key_file=file(KEY + "\n")) == ["pagerduty"]
    assert names(alertmanager_urls=["https://am1", "https://am2"]) == ["alertmanager"]
    assert names(slack_webhook_url=HOOK) == ["slack"]
    assert names(slack_webhook_url_file=file(HOOK)) == ["slack"]


def test_any_number_of_each_kind_may_be_reported(file):
    tables = [
        {"type": "webhook", "name": "a", "url": HOOK, "format": "raw"},
        {"type": "webhook", "name": "b", "url_file": file(HOOK)},
        {"type": "pagerduty", "name": "c", "routing_key": KEY, "region": "eu"},
        {"type": "alertmanager", "name": "d", "urls": ["https://am"]},
        {"type": "slack", "name": "e", "url": HOOK},
    ]

    assert names(receivers=tables, webhook_url=HOOK) == ["webhook", "a", "b", "c", "d", "e"]


@pytest.mark.parametrize(
    "settings",
    [
        lambda url: {"webhook_url": url},
        lambda url: {"pagerduty_routing_key": KEY, "pagerduty_url": url},
        lambda url: {"alertmanager_urls": [url]},
        lambda url: {"slack_webhook_url": url},
        lambda url: {"receivers": [{"type": "webhook", "name": "a", "url": url, "format": "raw"}]},
        lambda url: {"receivers": [{"type": "pagerduty", "name": "a", "routing_key": KEY, "url": url}]},
        lambda url: {"receivers": [{"type": "alertmanager", "name": "a", "urls": [url]}]},
        lambda url: {"receivers": [{"type": "slack", "name": "a", "url": url}]},
    ],
)  # fmt: skip
def test_the_place_that_is_set_is_the_one_that_is_reported(server, settings):
    send(**settings(server.url))

    assert len(server.requests) == 1


def test_a_webhook_is_signed_with_every_secret_it_has(server, file):
    other = "whsec_" + base64.b64encode(b"t" * 32).decode()
    files = [file(SECRET, "new"), file(other, "old")]
    table = {"type": "webhook", "name": "a", "url": server.url, "secret_files": files}
    send(receivers=[table])

    assert server.requests[0].headers["webhook-signature"].count("v1,") == 2


def test_the_short_form_is_signed_too(server, file):
    send(webhook_url=server.url, webhook_secret_file=file(f" {SECRET}\n"))

    assert server.requests[0].headers["webhook-signature"].count("v1,") == 1


def test_without_a_secret_nothing_is_signed(server):
    send(webhook_url=server.url)

    assert server.requests[0].headers["webhook-signature"] is None


@pytest.mark.parametrize(
    ("table", "host"),
    [
        ({}, "events.pagerduty.com"),
        ({"region": "eu"}, "events.eu.pagerduty.com"),
        ({"region": "eu", "url": "https://relay.example.com/x"}, "relay.example.com"),
    ],
)
def test_pagerduty_is_the_us_one_unless_reported_otherwise(table, host):
    table = {"type": "pagerduty", "name": "a", "routing_key": KEY, "proxy_url": DEAD, **table}
    (receiver,) = receivers(Settings(receivers=[table]))
    with pytest.raises(DeliveryError, match=host):
        receiver.send(INCIDENT, 2.0)


# -- the way there ------------------------------------------------------------------------------

DEAD = "http://127.0.0.1:1"


def test_a_receiver_takes_the_common_way_unless_it_has_its_own():
    table = {"type": "webhook", "name": "a", "url": "http://hooks.example.com/x"}

    assert names(receivers=[table], allow_http=True) == ["a"]
    assert names(receivers=[{**table, "allow_http": True}]) == ["a"]
    message = refused(receivers=[{**table, "allow_http": False}], allow_http=True)
    assert message.startswith("receiver 'a': url must be https")


def test_an_own_proxy_replaces_the_common_one(server):
    table = {"type": "webhook", "name": "a", "url": "http://hooks.example.com/x"}
    send(receivers=[{**table, "proxy_url": server.url}], allow_http=True, proxy_url=DEAD)

    assert server.requests[0].path == "http://hooks.example.com/x"


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/x", "http://localhost/x", "http://[::1]/x"])
def test_this_machine_may_be_reported_over_plain_http(url):
    assert names(webhook_url=url) == ["webhook"]


def test_another_machine_may_be_reported_over_plain_http_only_when_allowed():
    url = "http://alerts.example.com/hidden-path"

    assert names(webhook_url=url, allow_http=True) == ["webhook"]
    message = refused(webhook_url=url)
    assert "webhook_url" in message
    assert "hidden-path" not in message


def test_authorities_and_certificates_are_tried_at_once(file):
    authority = trustme.CA()
    own = authority.issue_cert("driver.example.com")
    ca = file(authority.cert_pem.bytes(), "ca")
    cert = file(own.cert_chain_pems[0].bytes(), "cert")
    key = file(own.private_key_pem.bytes(), "key")

    assert names(webhook_url=HOOK, ca_file=ca, client_cert_file=cert, client_key_file=key)
    assert "ca_file" in refused(webhook_url=HOOK, ca_file="/nowhere")
    assert "ca_file" in refused(webhook_url=HOOK, ca_file=key)
    assert "client_cert_file" in refused(webhook_url=HOOK, client_key_file=key)
    assert "client_cert_file" in refused(webhook_url=HOOK, client_cert_file=ca, client_key_file=key)
    table = {"type": "slack", "name": "a", "url": HOOK, "ca_file": "/nowhere"}
    assert refused(receivers=[table]).startswith("receiver 'a': ca_file /nowhere")


# -- what cannot be told ------------------------------------------------------------------------

NOWHERE = ["hooks.example.com/hidden-path", "ftp://h/hidden-path", "https://", "https://:8/x", "",
           "https://user:hidden-path@[::1", "https://h:hidden-path/x"]  # fmt: skip


@pytest.mark.parametrize("name", ["webhook_url", "pagerduty_url", "slack_webhook_url"])
@pytest.mark.parametrize("url", NOWHERE)
def test_a_place_that_cannot_be_reported_is_named_and_its_secret_kept(name, url):
    message = refused(pagerduty_routing_key=KEY, **{name: url})

    assert message.startswith(name)
    assert "hidden-path" not in message


@pytest.mark.parametrize("url", NOWHERE)
def test_a_member_of_a_cluster_that_cannot_be_reported_is_named(url):
    message = refused(alertmanager_urls=["https://am", url])

    assert "alertmanager_urls" in message
    assert "hidden-path" not in message


@pytest.mark.parametrize("kind", ["webhook", "slack"])
@pytest.mark.parametrize("url", NOWHERE)
def test_a_table_whose_place_cannot_be_reported_is_named(kind, url):
    message = refused(receivers=[{"type": kind, "name": "oncall", "url": url}])

    assert message.startswith("receiver 'oncall': url ")
    assert "hidden-path" not in message


@pytest.mark.parametrize("key", ["short-hidden", "x" * 33, " ", ""])
def test_a_key_that_is_none_is_refused_without_showing_it(file, key):
    """An empty variable would otherwise mean that nobody is told, in silence."""
    table = {"type": "pagerduty", "name": "oncall", "routing_key": key}
    messages = [refused(pagerduty_routing_key=key), refused(receivers=[table])]

    assert messages[0].startswith("pagerduty_routing_key")
    assert messages[1].startswith("receiver 'oncall': routing_key")
    assert all("hidden" not in text and "xx" not in text for text in messages)


@pytest.mark.parametrize("content", ["plain-hidden", "whsec_hidden!", "whsec_" + "aGk=", "whsec_"])
def test_a_webhook_secret_that_is_none_is_refused_without_showing_it(file, content):
    message = refused(webhook_url=HOOK, webhook_secret_file=file(content))

    assert "webhook_secret" in message
    assert "hidden" not in message


FILES = ["webhook_secret_file", "pagerduty_routing_key_file", "slack_webhook_url_file"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("content", [None, "", " \n", b"\xff\xfe\x00"])
def test_a_secret_file_that_holds_none_is_named(file, tmp_path, name, content):
    path = str(tmp_path / "missing") if content is None else file(content)
    message = refused(webhook_url=HOOK, **{name: path})

    assert message.startswith(name)
    assert path in message


@pytest.mark.parametrize("name", FILES)
def test_a_folder_is_no_secret_file(tmp_path, name):
    assert refused(webhook_url=HOOK, **{name: str(tmp_path)}).startswith(name)


def test_a_secret_file_of_a_table_is_named_with_it():
    tables = [{"type": "webhook", "name": "a", "url": HOOK, "secret_files": ["/nowhere"]}]

    assert refused(receivers=tables).startswith("receiver 'a': secret_files: cannot read /nowhere")


# -- what each is told --------------------------------------------------------------------------


def test_a_route_is_what_the_table_says():
    table = {
        "type": "webhook", "name": "a", "url": HOOK, "severities": ["critical"],
        "queries": ["bronze*"], "fallback": "slack", "fallback_after_seconds": 5,
    }  # fmt: skip
    found = routes(Settings(receivers=[table], slack_webhook_url=HOOK))

    assert list(found) == ["slack", "a"]
    assert found["a"].severities == ("critical",)
    assert found["a"].queries == ("bronze*",)
    assert (found["a"].fallback, found["a"].fallback_after_seconds) == ("slack", 5)
    assert found["slack"].takes(INCIDENT)
    assert not found["a"].takes(INCIDENT)


# -- the heartbeat ------------------------------------------------------------------------------


def test_without_a_url_there_is_no_heartbeat():
    assert heartbeat(Settings(), Guard()) is None


def test_a_heartbeat_goes_where_it_is_set_to(server, file):
    for settings in ({"heartbeat_url": server.url}, {"heartbeat_url_file": file(server.url)}):
        beating = heartbeat(Settings(**settings), Guard())
        beating.start()
        server.wait_for(1)
        beating.close(1.0)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"heartbeat_url": HOOK, "heartbeat_url_file": "/u"}, "not both"),
        ({"heartbeat_url": "hidden-path"}, "heartbeat_url"),
        ({"heartbeat_url": "http://alerts.example.com/hidden-path"}, "heartbeat_url"),
        ({"heartbeat_url_file": "/nowhere"}, "heartbeat_url_file"),
        ({"heartbeat_url": HOOK, "ca_file": "/nowhere"}, "ca_file"),
    ],
)
def test_a_heartbeat_that_cannot_be_sent_is_refused(settings, word):
    with pytest.raises(SettingsError, match=word) as error:
        heartbeat(Settings(**settings), Guard())

    assert "hidden-path" not in str(error.value)


def test_an_answer_is_what_the_receiver_makes_of_it():
    with HttpDouble(otherwise=reply(403)) as server:
        with pytest.raises(DeliveryError) as error:
            send(webhook_url=server.url)

        assert error.value.answer is DeliveryOutcome.MISCONFIGURED
