"""Settings become receivers; meaningless or invalid ones are refused without showing a secret."""

from __future__ import annotations

import base64
import logging

import pytest
import trustme
from support.http_double import HttpDouble, reply
from support.patience import PATIENCE_SECONDS

from querypulse.alerting.alert import Alert, Incident
from querypulse.core.guard import Guard
from querypulse.settings.receivers import find_gap, log_start
from querypulse.sidecar import Settings, SettingsError
from querypulse.sidecar.assemble import make_heartbeat, make_receivers

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
        make_receivers(Settings(**settings))
    assert "hidden" not in str(error.value)
    return str(error.value)


def names(**settings):
    return [receiver.name for receiver in make_receivers(Settings(**settings))]


def hook(name="a", **more):
    return {"type": "webhook", "name": name, "url": HOOK, **more}


def slack(**more):
    return {"type": "slack", "name": "a", **more}


def pagerduty(**more):
    return {"type": "pagerduty", "name": "a", **more}


# -- which receivers are made --------------------------------------------------------------------


def test_short_forms_and_tables_make_any_number_of_receivers(file):
    tables = [
        hook("a"),
        {"type": "webhook", "name": "b", "url_file": file(HOOK)},
        pagerduty(routing_key=KEY, region="eu") | {"name": "c"},
        {"type": "alertmanager", "name": "d", "urls": ["https://am"]},
        slack(url=HOOK) | {"name": "e"},
    ]
    short = {
        "webhook_url_file": file(HOOK),
        "pagerduty_routing_key_file": file(KEY, "key"),
        "alertmanager_urls": ["https://am"],
        "slack_webhook_url_file": file(HOOK),
    }

    assert names(receivers=tables, webhook_url=HOOK) == ["webhook", "a", "b", "c", "d", "e"]
    assert names(**short) == ["webhook", "pagerduty", "alertmanager", "slack"]


def test_incident_is_sent_to_the_configured_url(server):
    forms = [
        lambda url: {"webhook_url": url},
        lambda url: {"pagerduty_routing_key": KEY, "pagerduty_url": url},
        lambda url: {"alertmanager_urls": [url]},
        lambda url: {"receivers": [hook() | {"url": url}]},
        lambda url: {"receivers": [pagerduty(routing_key=KEY, url=url)]},
        lambda url: {"receivers": [{"type": "alertmanager", "name": "a", "urls": [url]}]},
        lambda url: {"receivers": [slack(url=url)]},
    ]
    for count, settings in enumerate(forms, 1):
        (receiver,) = make_receivers(Settings(**settings(server.url)))
        receiver.send(INCIDENT, 2.0)
        receiver.close()
        assert len(server.requests) == count


def test_webhook_is_signed_with_all_its_secrets(server, file):
    other = "whsec_" + base64.b64encode(b"t" * 32).decode()
    files = [file(SECRET, "new"), file(other, "old")]
    (receiver,) = make_receivers(
        Settings(receivers=[hook(secret_files=files) | {"url": server.url}])
    )
    receiver.send(INCIDENT, 2.0)
    receiver.close()

    assert server.requests[0].headers["webhook-signature"].count("v1,") == 2


def test_receiver_inherits_transport_settings_unless_it_sets_its_own():
    table = hook() | {"url": "http://hooks.example.com/x"}

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
    own_cert = slack(url=HOOK, client_cert_file=cert, client_key_file=key)

    assert names(ca_file=ca, receivers=[own_cert]) == ["a"]
    assert "ca_file" in refused(webhook_url=HOOK, ca_file=key)
    assert "client_cert_file" in refused(receivers=[slack(url=HOOK, client_key_file=key)])
    assert "client_cert_file" in refused(receivers=[{**own_cert, "client_cert_file": ca}])
    message = refused(receivers=[slack(url=HOOK, ca_file="/slack_webhook_url_file/ca")])
    assert message.startswith("receiver 'a': ca_file /slack_webhook_url_file/ca: ")


# -- receivers that contradict themselves or each other -----------------------------------------

CONTRADICTIONS = [
    (
        {"webhook_url": HOOK, "webhook_url_file": "/u"},
        "give 'webhook_url' or 'webhook_url_file', not both",
    ),
    (
        {"pagerduty_routing_key": KEY, "pagerduty_routing_key_file": "/k"},
        "give 'pagerduty_routing_key' or 'pagerduty_routing_key_file', not both",
    ),
    (
        {"receivers": [slack(url=HOOK, url_file="/u")]},
        "receiver 'a': give 'url' or 'url_file', not both",
    ),
    ({"receivers": [slack()]}, "receiver 'a': needs 'url' or 'url_file'"),
    ({"receivers": [pagerduty()]}, "receiver 'a': needs 'routing_key' or 'routing_key_file'"),
    (
        {"webhook_secret_file": "/s", "receivers": [hook()]},
        "setting 'webhook_secret_file' needs 'webhook_url' or 'webhook_url_file'",
    ),
    ({"pagerduty_url": HOOK}, "setting 'pagerduty_url' needs 'pagerduty_routing_key' or "),
    ({"receivers": [hook(), hook()]}, "setting 'receivers': two are named 'a'"),
    (
        {"receivers": [hook("webhook")], "webhook_url": HOOK},
        "setting 'receivers': two are named 'webhook'; the settings 'webhook_...' make one of them",
    ),
    ({"receivers": [hook("heartbeat")]}, "setting 'receivers': the name 'heartbeat' is reserved"),
    *(
        (
            {"receivers": [hook("a", fallback=name), hook("b")]},
            f"receiver 'a': 'fallback' {name!r} is not another receiver; there are: b",
        )
        for name in ("c", "", "a")
    ),
    ({"receivers": [hook("a"), hook("b", severities=[])]}, "receiver 'b': 'severities' is empty"),
]


@pytest.mark.parametrize(("settings", "start"), CONTRADICTIONS, ids=range(len(CONTRADICTIONS)))
def test_receivers_that_contradict_each_other_are_refused(settings, start):
    assert refused(**settings).startswith(start)


def test_fallbacks_can_be_chained(file):
    tables = [hook("a", fallback="b"), hook("b", fallback="slack")]

    assert len(names(receivers=tables, slack_webhook_url_file=file(HOOK))) == 3


# -- invalid URLs, keys and files ----------------------------------------------------------------

INVALID_URLS = [
    "hooks.example.com/hidden-path",
    "ftp://h/hidden-path",
    "https://",
    "https://:8/x",
    "",
    "https://user:hidden-path@[::1",
    "https://h:hidden-path/x",
]


@pytest.mark.fault(
    "Settings",
    "A receiver's URL that cannot be used",
    "The error names the receiver, and does not show the URL",
)
@pytest.mark.parametrize("kind", ["webhook", "slack"])
def test_invalid_url_of_a_receiver_table_is_refused(kind):
    for url in INVALID_URLS:
        table = {"type": kind, "name": "oncall", "url": url}
        assert refused(receivers=[table]).startswith("receiver 'oncall': url ")


@pytest.mark.parametrize("name", ["webhook_url", "pagerduty_url"])
def test_invalid_url_of_a_short_form_is_refused(name):
    """Even an empty one: an empty variable would silently disable notifications."""
    for url in INVALID_URLS:
        message = refused(pagerduty_routing_key=KEY, **{name: url})
        assert message.startswith(f"{name} must be an https:// URL")
        assert "http:// is allowed for this machine" in message


@pytest.mark.parametrize("key", ["short-hidden", "hidden" * 6, " ", ""])
def test_invalid_routing_key_is_refused(key):
    assert refused(pagerduty_routing_key=key).startswith("pagerduty_routing_key must ")
    table = pagerduty(routing_key=key)
    assert refused(receivers=[table]).startswith("receiver 'a': routing_key must ")


def test_value_in_a_file_is_reported_by_the_name_of_the_file_setting(file):
    path = file("hidden-path")
    for setting in ("webhook_url_file", "slack_webhook_url_file", "pagerduty_routing_key_file"):
        assert refused(**{setting: path}).startswith(f"{setting} must ")
    assert refused(receivers=[slack(url_file=path)]).startswith("receiver 'a': url_file must ")


@pytest.mark.parametrize(
    "name", ["webhook_secret_file", "pagerduty_routing_key_file", "slack_webhook_url_file"]
)
def test_secret_file_without_a_secret_is_refused(file, tmp_path, name):
    contents = {"empty": "", "blank": " \n", "binary": b"\xff\xfe\x00"}
    paths = [file(content, of) for of, content in contents.items()]
    for path in (*paths, str(tmp_path / "missing")):
        message = refused(webhook_url=HOOK, **{name: path})
        assert message.startswith(f"{name}: ")
        assert path in message


def test_unusable_signing_key_is_refused_by_the_name_of_its_setting(file):
    path = file("hidden-path")

    short = refused(webhook_url=HOOK, webhook_secret_file=path)
    assert short.startswith("webhook_secret_file must hold ")
    full = refused(receivers=[hook(secret_files=[path])])
    assert full.startswith("receiver 'a': secret_files must hold ")


@pytest.mark.parametrize(
    ("field", "table"),
    [
        ("secret_files", hook(secret_files=["/nowhere"])),
        ("url_file", slack(url_file="/nowhere")),
        ("routing_key_file", pagerduty(routing_key_file="/nowhere")),
    ],
)
def test_error_names_the_secret_file_of_a_receiver_table(field, table):
    assert refused(receivers=[table]).startswith(f"receiver 'a': {field}: cannot read /nowhere")


# -- the heartbeat ------------------------------------------------------------------------------


def test_heartbeat_is_sent_to_its_url(server, file):
    forms = {"heartbeat_url": server.url}, {"heartbeat_url_file": file(server.url)}
    for settings in forms:
        before = len(server.requests)
        running = make_heartbeat(Settings(**settings), Guard())
        running.start()
        server.wait_for(before + 1)
        running.close(PATIENCE_SECONDS)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"heartbeat_url": HOOK, "heartbeat_url_file": "/u"}, "not both"),
        ({"heartbeat_url": "http://alerts.example.com/hidden-path"}, "heartbeat_url"),
        ({"heartbeat_url_file": "/nowhere"}, "heartbeat_url_file"),
        ({"heartbeat_url": HOOK, "ca_file": "/nowhere"}, "ca_file"),
    ],
)
def test_invalid_heartbeat_is_refused(settings, word):
    with pytest.raises(SettingsError, match=word) as error:
        make_heartbeat(Settings(**settings), Guard())

    assert "hidden-path" not in str(error.value)


# -- what a job says about its receivers at its start --------------------------------------------


@pytest.mark.parametrize(
    ("names", "page", "text"),
    [
        (
            ("oncall", "team"),
            "http://d:9719",
            "2 receivers (oncall, team), status page at http://d:9719",
        ),
        (("oncall",), None, "1 receiver (oncall), no status page"),
        ((), "http://d:9719", "no receiver, status page at http://d:9719"),
    ],
)
def test_start_line_names_app_receivers_and_status_page(names, page, text, caplog):
    with caplog.at_level(logging.INFO, "querypulse"):
        log_start(Settings(receivers=[hook(name) for name in names]), "orders", page)

    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == f'querypulse: watching "orders": {text}'
    assert [line for line in lines[1:] if "nobody is notified" not in line] == []
    assert len(lines) == (1 if names else 2)


JOB, NAMED, OTHER = "this job (app=etl, env=prod)", "the queries", "queries that no `queries` names"
WARNINGS, PROD, BRONZE = (
    {"severities": ["warning"]},
    {"match": {"env": "prod"}},
    {"queries": ["bronze*"]},
)
LOST = [
    ([WARNINGS], ("gold",), JOB),
    ([{"match": {"env": "dev"}}, WARNINGS], (), JOB),
    ([{"match": {"app": "shop"}}, {"severities": []}], (), JOB),
    ([BRONZE], (), OTHER),
    ([{"queries": []}], (), OTHER),
    ([BRONZE], ("bronze_a", "gold", "silver"), f"{NAMED} gold, silver: "),
    ([BRONZE, {"queries": ["gold"], **WARNINGS}], ("gold",), f"{NAMED} gold: "),
    ([WARNINGS, {}], (), ""),
    ([{"severities": ["critical"]}], ("gold",), ""),
    ([{"match": {"app": "e*", "env": "prod"}}], (), ""),
    ([{"match": {"env": "dev"}}, PROD], ("gold",), ""),
    ([BRONZE, {"queries": ["*"]}], (), ""),
    ([BRONZE, {"queries": ["gold"]}], ("bronze_a", "gold"), ""),
]


@pytest.mark.parametrize(("tables", "expected", "which"), LOST)
def test_critical_incidents_that_no_receiver_takes_are_named(tables, expected, which):
    """Each receiver is the other's fallback."""
    tables = [*tables, {"severities": []}][:2]
    own = [{"name": "a", "fallback": "b"}, {"name": "b", "fallback": "a"}]
    hooks = [hook(**own.pop(0), **table) for table in tables]
    settings = Settings(receivers=hooks, labels={"env": "prod"}, expected_queries=expected)

    gap = find_gap(settings, "etl")
    assert gap.startswith(f"no receiver takes critical incidents of {which}" if which else gap[:0])
    assert bool(gap) == bool(which)
