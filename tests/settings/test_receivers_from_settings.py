"""Settings become receivers; invalid settings are reported without their secrets."""

from __future__ import annotations

import base64

import pytest
import trustme
from support.http_double import HttpDouble, reply

from querypulse.alerting.alert import Alert, Incident
from querypulse.core.guard import Guard
from querypulse.settings.receivers import find_gap, heartbeat, receivers, watching
from querypulse.sidecar import Settings, SettingsError

KEY = "R0123456789abcdefghijklmnopqrstu"
SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()
HOOK = "https://hooks.example.com/services/hidden-path"
LABELS = {"app": "a", "query": "q"}
ALERT = Alert({"alertname": "X", "severity": "critical", **LABELS}, {}, 1.0)
INCIDENT = Incident("querypulse/a/q", LABELS, "critical", (ALERT,))


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
    """Send an incident to the only receiver."""
    (receiver,) = receivers(Settings(**settings))
    receiver.send(INCIDENT, 2.0)
    receiver.close()


# -- which receivers are created ----------------------------------------------------------------


def test_receiver_tables_create_any_number_of_receivers(file):
    tables = [
        {"type": "webhook", "name": "a", "url": HOOK},
        {"type": "webhook", "name": "b", "url_file": file(HOOK)},
        {"type": "pagerduty", "name": "c", "routing_key": KEY, "region": "eu"},
        {"type": "alertmanager", "name": "d", "urls": ["https://am"]},
        {"type": "slack", "name": "e", "url": HOOK},
    ]

    assert names(receivers=tables, webhook_url=HOOK) == ["webhook", "a", "b", "c", "d", "e"]


def test_incident_is_sent_to_the_configured_url(server):
    forms = [
        lambda url: {"webhook_url": url},
        lambda url: {"pagerduty_routing_key": KEY, "pagerduty_url": url},
        lambda url: {"alertmanager_urls": [url]},
        lambda url: {"receivers": [{"type": "webhook", "name": "a", "url": url}]},
        lambda url: {"receivers": [{"type": "pagerduty", "name": "a", "routing_key": KEY, "url": url}]},
        lambda url: {"receivers": [{"type": "alertmanager", "name": "a", "urls": [url]}]},
        lambda url: {"receivers": [{"type": "slack", "name": "a", "url": url}]},
    ]  # fmt: skip
    for count, settings in enumerate(forms, 1):
        send(**settings(server.url))
        assert len(server.requests) == count


def test_webhook_is_signed_with_all_its_secrets(server, file):
    other = "whsec_" + base64.b64encode(b"t" * 32).decode()
    files = [file(SECRET, "new"), file(other, "old")]
    table = {"type": "webhook", "name": "a", "url": server.url, "secret_files": files}
    send(receivers=[table])

    assert server.requests[0].headers["webhook-signature"].count("v1,") == 2


# -- transport ----------------------------------------------------------------------------------


def test_receiver_inherits_transport_settings_unless_it_sets_its_own():
    table = {"type": "webhook", "name": "a", "url": "http://hooks.example.com/x"}

    assert names(receivers=[table], allow_http=True) == ["a"]
    assert names(receivers=[{**table, "allow_http": True}]) == ["a"]
    message = refused(receivers=[{**table, "allow_http": False}], allow_http=True)
    assert message.startswith("receiver 'a': url must be https")


def test_certificates_are_validated_at_the_start(file):
    authority = trustme.CA()
    own = authority.issue_cert("driver.example.com")
    ca = file(authority.cert_pem.bytes(), "ca")
    cert = file(own.cert_chain_pems[0].bytes(), "cert")
    key = file(own.private_key_pem.bytes(), "key")

    slack = {"type": "slack", "name": "a", "url": HOOK}
    own_cert = {**slack, "client_cert_file": cert, "client_key_file": key}

    assert names(ca_file=ca, receivers=[own_cert]) == ["a"]
    assert "ca_file" in refused(webhook_url=HOOK, ca_file="/nowhere")
    assert "ca_file" in refused(webhook_url=HOOK, ca_file=key)
    assert "client_cert_file" in refused(receivers=[{**slack, "client_key_file": key}])
    assert "client_cert_file" in refused(receivers=[{**own_cert, "client_cert_file": ca}])
    message = refused(receivers=[{**slack, "ca_file": "/slack_webhook_url_file/ca"}])
    assert message.startswith("receiver 'a': ca_file /slack_webhook_url_file/ca: ")


# -- invalid receivers --------------------------------------------------------------------------

INVALID_URLS = ["hooks.example.com/hidden-path", "ftp://h/hidden-path", "https://", "https://:8/x", "",
           "https://user:hidden-path@[::1", "https://h:hidden-path/x"]  # fmt: skip


def wrong(messages, start):
    """The messages that do not begin with the setting, or show what is secret."""
    return [text for text in messages if not text.startswith(start) or "hidden-path" in text]


@pytest.mark.parametrize("name", ["webhook_url", "pagerduty_url"])
def test_invalid_url_is_refused_without_showing_it(name):
    messages = [refused(pagerduty_routing_key=KEY, **{name: url}) for url in INVALID_URLS]

    assert wrong(messages, name) == []


@pytest.mark.fault(
    "Settings",
    "A receiver's URL that cannot be used",
    "The error names the receiver, and does not show the URL",
)
@pytest.mark.parametrize("kind", ["webhook", "slack"])
def test_invalid_url_of_a_receiver_table_is_refused(kind):
    tables = [{"type": kind, "name": "oncall", "url": url} for url in INVALID_URLS]

    assert wrong([refused(receivers=[table]) for table in tables], "receiver 'oncall': url ") == []


@pytest.mark.parametrize("key", ["short-hidden", "x" * 33, " ", ""])
def test_invalid_routing_key_is_refused_without_showing_it(file, key):
    """Otherwise an empty variable would silently disable notifications."""
    table = {"type": "pagerduty", "name": "oncall", "routing_key": key}
    messages = [refused(pagerduty_routing_key=key), refused(receivers=[table])]

    assert messages[0].startswith("pagerduty_routing_key")
    assert messages[1].startswith("receiver 'oncall': routing_key")
    assert all("hidden" not in text and "xx" not in text for text in messages)


FILES = ["webhook_secret_file", "pagerduty_routing_key_file", "slack_webhook_url_file"]


@pytest.mark.parametrize("name", FILES)
def test_secret_file_without_a_secret_is_refused(file, tmp_path, name):
    contents = {"empty": "", "blank": " \n", "binary": b"\xff\xfe\x00"}
    paths = [file(content, of) for of, content in contents.items()]
    paths.append(str(tmp_path / "missing"))
    messages = {path: refused(webhook_url=HOOK, **{name: path}) for path in paths}

    assert [
        (path, text)
        for path, text in messages.items()
        if not text.startswith(name) or path not in text
    ] == []
    assert refused(webhook_url=HOOK, **{name: str(tmp_path)}).startswith(name)


def test_error_names_the_secret_file_of_a_receiver_table():
    fields = {
        "secret_files": {"type": "webhook", "url": HOOK, "secret_files": ["/nowhere"]},
        "url_file": {"type": "webhook", "url_file": "/nowhere"},
        "routing_key_file": {"type": "pagerduty", "routing_key_file": "/nowhere"},
    }
    for field, table in fields.items():
        message = refused(receivers=[{"name": "a", **table}])
        assert message.startswith(f"receiver 'a': {field}: cannot read /nowhere")


# -- the heartbeat ------------------------------------------------------------------------------


def test_heartbeat_is_sent_to_its_url(server, file):
    for settings in ({"heartbeat_url": server.url}, {"heartbeat_url_file": file(server.url)}):
        running = heartbeat(Settings(**settings), Guard())
        running.start()
        server.wait_for(1)
        running.close(1.0)


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
def test_invalid_heartbeat_is_refused(settings, word):
    with pytest.raises(SettingsError, match=word) as error:
        heartbeat(Settings(**settings), Guard())

    assert "hidden-path" not in str(error.value)


# -- the first log line of a job names the app, its receivers and its status page -------------


@pytest.mark.parametrize(
    ("receivers", "page", "text"),
    [
        (("oncall", "team"), "http://d:9719",
         'watching "orders": 2 receivers (oncall, team), status page at http://d:9719'),
        (("oncall",), None, 'watching "orders": 1 receiver (oncall), no status page'),
        ((), "http://d:9719", 'watching "orders": no receiver, status page at http://d:9719'),
    ],
)  # fmt: skip
def test_start_line_names_app_receivers_and_status_page(receivers, page, text):
    assert watching("orders", receivers, page) == text


# -- incidents that no receiver takes -----------------------------------------------------------

JOB, NAMED, OTHER = "this job (app=etl, env=prod)", "the queries", "queries that no `queries` names"
WARNINGS, PROD = {"severities": ["warning"]}, {"match": {"env": "prod"}}
LOST = [
    ([WARNINGS], (), JOB),
    ([WARNINGS], ("gold",), JOB),
    ([{"match": {"env": "dev"}}], (), JOB),
    ([{"match": {"env": "dev"}}, WARNINGS], (), JOB),
    ([{"match": {"app": "shop"}}, {"severities": []}], (), JOB),
    ([{"queries": ["bronze*"]}], (), OTHER),
    ([{"queries": []}], (), OTHER),
    ([{"queries": ["bronze*"]}], ("bronze_a", "gold", "silver"), f"{NAMED} gold, silver: "),
    ([{"queries": ["bronze*"]}, {"queries": ["gold"], **WARNINGS}], ("gold",), f"{NAMED} gold: "),
]
TAKEN = [
    ([{}], ()),
    ([{"severities": ["critical"]}], ("gold",)),
    ([WARNINGS, {}], ()),
    ([PROD], ()),
    ([{"match": {"app": "e*", "env": "prod"}}], ()),
    ([{"match": {"env": "dev"}}, PROD], ("gold",)),
    ([{"queries": ["bronze*"]}, {}], ()),
    ([{"queries": ["bronze*"]}, {"queries": ["*"]}], ()),
    ([{"queries": ["bronze*"]}], ("bronze_a", "bronze_b")),
    ([{"queries": ["bronze*"]}, {"queries": ["gold"]}], ("bronze_a", "gold")),
]


def missed(tables, expected):
    """What is said about receivers with these routes; each is the other's fallback."""
    tables = [*tables, {"severities": []}][:2]
    own = [{"name": "a", "fallback": "b"}, {"name": "b", "fallback": "a"}]
    hooks = [{"type": "webhook", "url": HOOK, **own.pop(0), **table} for table in tables]
    settings = Settings(receivers=hooks, labels={"env": "prod"}, expected_queries=expected)
    return find_gap(settings, "etl")


@pytest.mark.parametrize(("tables", "expected", "which"), LOST)
def test_critical_incidents_that_no_receiver_takes_are_named(tables, expected, which):
    assert missed(tables, expected).startswith(f"no receiver takes critical incidents of {which}")


@pytest.mark.parametrize(("tables", "expected"), TAKEN)
def test_nothing_is_said_where_a_receiver_takes_each_critical_incident(tables, expected):
    assert missed(tables, expected) == ""
