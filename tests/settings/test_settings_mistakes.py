"""An invalid setting is reported with its name, its origin and the allowed values."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.planted import PLANTED, Planted
from support.published_states import full_published

from querypulse.alerting.receivers.slack import SlackSettings
from querypulse.core.guard import Guard
from querypulse.exporter.metrics import all_families
from querypulse.settings.loading import load_settings, load_strictly, parse_text
from querypulse.settings.settings import TYPES, check_value
from querypulse.sidecar import SettingsError
from querypulse.sidecar.assemble import Components
from querypulse.sidecar.session import settings_of


def refused(arguments=None, environment=None, spark=None):
    """The error that these settings must raise, or the problem of a variable."""
    try:
        loaded = load_settings(arguments or {}, environment or {}, spark or {})
    except SettingsError as error:
        return str(error)
    assert loaded.problems, "these settings are accepted"
    return loaded.problems[0]


def problem_with(call, *arguments):
    """The error that a call raises; empty if it raises none."""
    try:
        call(*arguments)
    except SettingsError as error:
        return str(error)
    return ""


def test_unknown_setting_is_reported_with_its_origin(config):
    named = config("colour = 1")
    messages = {
        "argument colour": refused({"colour": 1}),
        "environment variable QUERYPULSE_COLOUR": refused({}, {"QUERYPULSE_COLOUR": "1"}),
        "Spark conf spark.querypulse.colour": refused({}, {}, {"spark.querypulse.colour": "1"}),
        f"file {named['QUERYPULSE_CONFIG']}": refused({}, named),
    }

    for place, message in messages.items():
        assert f"unknown setting 'colour' from {place}; " in message


@pytest.mark.parametrize("name", ["colour", "xyz", "stall_flor_seconds"])
def test_unknown_setting_gets_at_most_one_suggestion(name):
    """A list of fifty names would hide the right one."""
    message = refused({name: 1})

    assert sum(names in message for names in TYPES) <= 1
    assert ("did you mean 'stall_floor_seconds'?" in message) == (name == "stall_flor_seconds")
    assert ("did you mean" in message) == (name == "stall_flor_seconds")


@pytest.mark.fault(
    "Settings", "An unknown setting that may hold a secret", "The error does not show its value"
)
def test_error_for_an_unknown_setting_does_not_show_its_value():
    message = refused({}, {"QUERYPULSE_PAGERDUTY_KEY": "s3cr3t"})

    assert "QUERYPULSE_PAGERDUTY_KEY" in message
    assert "s3cr3t" not in message


FORMS = {
    "value": lambda text: text,
    "list": lambda text: [text],
    "field": lambda text: {"bronze": {"stall_floor_seconds": text}},
    "name": lambda text: {"bronze": {text: 1}},
    "region": lambda text: [{"type": "pagerduty", "routing_key": "k", "region": text}],
    "type": lambda text: [{"type": text}],
    "receiver": lambda text: [{"type": "slack", text: 1}],
}


@pytest.mark.fault(
    "Settings",
    "A secret of any kind as the value of any setting, or in a table of one",
    "An error names the setting and does not show the secret",
)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_no_error_shows_a_secret_in_a_wrong_setting(form):
    planted = (*PLANTED, Planted("routing key", "R0uting" * 4 + "key9", "R0uting"))
    by_kind = {secret.kind: secret for secret in planted}
    for name in TYPES:
        for secret in by_kind.values():
            message = problem_with(check_value, name, form(secret.text), "an argument")
            assert secret.secret not in message
            assert not message or name in message


@pytest.mark.parametrize(
    "content", ["http_port = ", "= 1", b"\xff\xfe", "a = 1\na = 2", "{", "a = [[1]", "0x1F"]
)
def test_invalid_toml_file_is_reported_with_its_variable(content, config):
    named = config(content)
    message = refused({}, named)

    assert named["QUERYPULSE_CONFIG"] in message
    assert "QUERYPULSE_CONFIG" in message


def test_foreign_variables_are_ignored():
    keys = ["PATH", "QUERYPULSE", "QUERYPULSEX_A", "MY_QUERYPULSE_A", "querypulse_a"]

    assert load_settings({}, dict.fromkeys(keys, "x"), {}).settings.origins == {}


@pytest.mark.fault(
    "Settings",
    "Any text as any setting",
    "A value, or an error that names the setting and its source",
)
@given(st.sampled_from(sorted(TYPES)), st.text(max_size=40))
def test_any_text_is_a_value_or_a_reported_problem(name, text):
    variable, key = f"QUERYPULSE_{name.upper()}", f"spark.querypulse.{name}"
    loaded = load_settings({}, {variable: text}, {})
    (reported,) = loaded.problems or [loaded.settings.origins[name]]

    assert f"environment variable {variable}" in reported
    assert_loaded_or_refused(f"Spark conf {key}", {}, {}, {key: text})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("app_name", "\ud800"),
        ("expected_queries", ["a", "\ud800"]),
        ("queries", {"\ud800": {"ignore": True}}),
        ("redact_patterns", ["\ud800"]),
    ],
)
def test_lone_surrogate_is_refused_wherever_it_is(name, value):
    conf = value if isinstance(value, str) else json.dumps(value)
    for message in (refused({name: value}), refused({}, {}, {f"spark.querypulse.{name}": conf})):
        assert f"setting {name!r} from" in message
        assert "a text in it is not UTF-8; allowed: " in message
        message.encode()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("http_host", "\0"),
        ("ca_file", "/run/\0"),
        ("expected_queries", ["a", "b\0"]),
        ("labels", {"env": "\0"}),
        ("receivers", [{"type": "email", "ca_file": "\0"}]),
        ("receivers", [SlackSettings(name="a", url_file="/run/\0")]),
    ],
)
def test_nul_character_is_refused_wherever_it_is(name, value):
    begin = f"setting {name!r} from argument {name}: a text in it has a NUL character; allowed: "
    assert refused({name: value}).startswith(begin)


@pytest.mark.parametrize(
    "host",
    ["", "a b", " a", "http://0.0.0.0:9719", "0.0.0.0:9719", "[::]", "256.0.0.1", "5", "a,b"],
)
def test_host_to_listen_on_that_is_none_is_refused_also_if_everybody_may_read(host):
    message = refused({"http_host": host, "http_allow_anonymous": True})

    assert message.startswith("setting 'http_host' from argument http_host: ")
    assert "; allowed: text, a host name or an IP address, without brackets" in message
    assert message.endswith("; example: http_host='127.0.0.1'")


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "::1", "fe80::1%eth0", "localhost", "node_1.svc."]
)
def test_host_to_listen_on_is_a_name_or_an_address(host):
    assert load_settings({"http_host": host}, {}, {}).settings.http_host == host


def test_long_host_of_mail_is_refused_at_once():
    receiver = {
        "type": "email",
        "name": "a",
        "host": "mail" * 100 + "!",
        "sender": "a@b",
        "to": ["a@b"],
    }

    assert "a host name or an IP address" in refused({"receivers": [receiver]})


def test_setting_in_a_table_that_has_it_by_another_name_gets_one_advice():
    message = refused({"receivers": [{"type": "webhook", "name": "a", "webhook_url": "https://a"}]})

    assert message.endswith("unknown field 'webhook_url'; in a table it is 'url'")
    stray = refused({"receivers": [{"type": "webhook", "name": "a", "app_name": "a"}]})
    assert stray.endswith("write it above the first table")


@pytest.mark.parametrize(
    ("others", "words"), [(["b", "c"], "there are: b, c"), ([], "there is no other")]
)
def test_unknown_fallback_is_refused_with_the_receivers_that_there_are(others, words):
    tables = [{"type": "webhook", "name": name, "url": "https://a"} for name in ["a", *others]]
    tables[0]["fallback"] = "team"
    message = problem_with(components_of, {"receivers": tables}, {}, {})

    assert f"'fallback' 'team' is not another receiver; {words} (from" in message


@pytest.mark.parametrize("name", TYPES)
def test_list_or_table_that_contains_itself_is_refused(name):
    cycle, table = ["a"], {"a": 1}
    cycle += [cycle, cycle]
    table["b"] = [table, table]

    for value in (cycle, table, [table]):
        assert f"setting {name!r} from argument {name}: " in refused({name: value})


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary()
FIELDS = st.sampled_from(["type", "url", "queries", "a*", "ignore", "", 1, None])
ARGUMENTS = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.frozensets(st.text(max_size=3), max_size=2)
        | st.dictionaries(FIELDS, inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.sampled_from([*sorted(TYPES), "colour"]), ARGUMENTS)
def test_any_argument_is_a_setting_or_an_error_that_names_it(name, value):
    assert_loaded_or_refused(f"argument {name}", {name: value}, {}, {})


def assert_loaded_or_refused(origin, *sources):
    message = problem_with(load_settings, *sources)

    assert origin in message if message else load_settings(*sources).problems == ()


# -- variables of Kubernetes services -------------------------------------------------------------


SERVICE = """
QUERYPULSE_SERVICE_HOST=10.0.0.1 QUERYPULSE_SERVICE_PORT=9719 QUERYPULSE_PORT=tcp://10.0.0.1:9719
QUERYPULSE_SERVICE_PORT_HTTPS_STATUS=443 QUERYPULSE_PORT_443_TCP=tcp://10.0.0.1:443
QUERYPULSE_PORT_443_TCP_PROTO=tcp QUERYPULSE_PORT_443_TCP_PORT=443 QUERYPULSE_PORT_443_TCP_ADDR=10.0.0.1
QUERYPULSE_PORT_53_UDP=udp://10.0.0.1:53 QUERYPULSE_PORT_7_SCTP=sctp://10.0.0.1:7
"""
"""https://kubernetes.io/docs/tutorials/services/connect-applications-service/"""


@pytest.mark.parametrize("service", ["", "_HTTP", "_HTTP_TOKEN_FILE", "_2"])
def test_variables_of_a_kubernetes_service_are_ignored(service):
    text = SERVICE.replace("QUERYPULSE", f"QUERYPULSE{service}")
    settings = load_strictly({}, dict(line.split("=") for line in text.split()))

    assert settings.origins == {}


@pytest.mark.parametrize("key", ["QUERYPULSE_PORTS", "QUERYPULSE_SERVICE", "QUERYPULSE_PORT_TCP"])
def test_variable_that_only_resembles_a_service_is_a_problem(key):
    assert key in refused({}, {key: "1"})


@pytest.mark.parametrize(
    "variable",
    [{"QUERYPULSE_COLOUR": "1"}, {"QUERYPULSE_HTTP_PORT": "many"}],
    ids=lambda v: next(iter(v)),
)
def test_invalid_variable_stops_commands_but_no_job(variable):
    right = {"QUERYPULSE_STALL_FLOOR_SECONDS": "30"}
    loaded = load_settings({"start_grace_seconds": 9}, variable | right, {})

    assert (loaded.settings.stall_floor_seconds, loaded.settings.start_grace_seconds) == (30, 9)
    assert len(loaded.problems) == 1
    with pytest.raises(SettingsError, match=next(iter(variable))):
        load_strictly({}, variable | right)


def test_attach_logs_an_unknown_variable_once(monkeypatch, caplog):
    monkeypatch.setenv("QUERYPULSE_HUE", "green")
    with caplog.at_level(logging.WARNING, "querypulse"):
        for _ in range(3):
            settings_of(None, {})

    (logged,) = [
        record.getMessage() for record in caplog.records if "QUERYPULSE_HUE" in record.getMessage()
    ]
    assert "unknown setting 'hue'" in logged
    assert "green" not in logged


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("expected_queries", '["a", "b'),
        ("expected_errors", " [a, b]"),
        ("alertmanager_urls", '["https://am1", https://am2]'),
        ("expected_queries", '"a" "b"'),
        ("receivers", '"a"'),
        ("receivers", '[{"type": "slack"'),
    ],
)
def test_text_that_begins_as_a_list_and_is_none_is_refused(name, text):
    key = f"spark.querypulse.{name}"
    for message in (
        refused({}, {f"QUERYPULSE_{name.upper()}": text}),
        refused({}, {}, {key: text}),
    ):
        assert f"setting {name!r} from" in message
        assert "is not allowed; allowed: a list of t" in message


def test_text_is_no_number_where_numbers_can_be_written(config):
    named = config('stall_floor_seconds = "30"')
    for message in (refused({"stall_floor_seconds": "30"}), refused({}, named)):
        assert (
            "'30' is not allowed; allowed: a number of seconds without a unit, above 0" in message
        )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("stall_floor_seconds", "inf"),
        ("lag_allowed_seconds", "inf"),
        ("queries", '{"a*" = {gone_grace_seconds = inf}}'),
    ],
)
def test_number_that_is_not_finite_is_refused_from_every_origin(name, text, config):
    value = float(text) if name != "queries" else parse_text(name, text)
    key = f"spark.querypulse.{name}"
    sources = (
        ({name: value}, {}, {}),
        ({}, {f"QUERYPULSE_{name.upper()}": text}, {}),
        ({}, {}, {key: text}),
        ({}, config(f"{name} = {text}"), {}),
    )

    for message in (refused(*source) for source in sources):
        assert f"setting {name!r} from" in message
        assert "a number in it is not finite; allowed: a " in message


# -- nested settings ------------------------------------------------------------------------------

NESTED = [
    (
        {"receivers": [{"type": "pager", "name": "a"}]},
        "at receivers[0].type: 'pager' is not allowed; allowed: webhook, pagerduty, alertmanager, slack, teams, email",
    ),
    (
        {"receivers": [{"name": "a"}]},
        "the field 'type' is missing; allowed: webhook, pagerduty, alertmanager, slack",
    ),
    (
        {"receivers": [{"type": "slack", "name": "a", "ulr_file": "/u"}]},
        "at receivers[0]: unknown field 'ulr_file'; did you mean 'url_file'?",
    ),
    (
        {
            "receivers": [
                {"type": "webhook", "name": "a"},
                {"type": "pagerduty", "name": "b", "region": "mars"},
            ]
        },
        "at receivers[1].region: 'mars' is not allowed; allowed: us, eu; example: region = \"us\"",
    ),
    (
        {"receivers": [{"type": "webhook", "name": "a", "severities": ["info"]}]},
        "at receivers[0].severities[0]: 'info' is not allowed; allowed: critical, warning",
    ),
    (
        {"receivers": [{"type": "webhook", "name": "a", "match": {"severity": "warning"}}]},
        "at receivers[0].match: the name 'severity' is not allowed; allowed: text, the name of a label, and not",
    ),
    (
        {"receivers": [{"type": "webhook", "name": "a", "fallback_after_seconds": -1}]},
        "at receivers[0].fallback_after_seconds: -1 is not allowed; allowed: a number of seconds without a unit, 0 or more; example: fallback_after_seconds = 60",
    ),
    (
        {"receivers": [{"type": "email", "name": "a", "client_key_file": "/k"}]},
        "unknown field 'client_key_file'; allowed: ",
    ),
    (
        {"queries": {"a*": {"ignore": True}, "nightly*": {"stall_flor_seconds": 1}}},
        "at queries['nightly*']: unknown field 'stall_flor_seconds'; did you mean 'stall_floor_seconds'?",
    ),
    (
        {"queries": {"nightly*": {"stall_floor_seconds": 0}}},
        "at queries['nightly*'].stall_floor_seconds: 0 is not allowed; allowed: a number of seconds without a unit, above 0",
    ),
    ({"queries": {5: {}}}, "at queries: the name '5' is not allowed; allowed: text"),
    ({"queries": {"nightly*": 5}}, "at queries['nightly*']: 5 is not allowed; allowed: a table"),
    ({"queries": {"nightly*": {"colour": 5}}}, "allowed: stall_floor_seconds, "),
    (
        {"queries": "nightly"},
        """allowed: a table; example: queries={'nightly*': {'stall_floor_seconds': 3600}}""",
    ),
    ({"labels": "env=prod,team=payments"}, """allowed: a table; example: labels={'env': 'prod'}"""),
    (
        {"labels": {"env": 1}},
        "at labels['env']: 1 is not allowed; allowed: text; write env = \"1\"",
    ),
    (
        {"labels": {"env": "prod", "cost-center": "7"}},
        "at labels: the name 'cost-center' is not allowed; allowed: text, ASCII letters, digits and _; ",
    ),
    ({"labels": {"source": "a"}}, "names that our metrics use: alertname, app, cause, component, "),
    (
        {"expected_queries": ["a", 1]},
        'at expected_queries[1]: 1 is not allowed; allowed: text; write "1"',
    ),
    (
        {"http_port": -2},
        "setting 'http_port' from argument http_port: -2 is not allowed; allowed: a whole number, -1 or more, at most 65535; example: http_port=9719",
    ),
]


@pytest.mark.fault(
    "Settings",
    "Nested settings of wrong types, unknown fields or values",
    "The error names the setting, the place in it and what is allowed",
)
def test_error_in_a_nested_setting_names_its_path_and_choices():
    refusals = [(message, refused(settings)) for settings, message in NESTED]

    assert [(message, shown) for message, shown in refusals if message not in shown] == []


UNUSABLE = {
    "webhook_url": "notaurl",
    "pagerduty_url": "ftp://127.0.0.1/x",
    "alertmanager_urls": "http://am1,am2",
    "heartbeat_url": "http://hc.example.com",
    "pushgateway_url": "gate",
    "external_url": "x",
    "webhook_url_file": "/nowhere",
    "pagerduty_routing_key_file": __file__,
    "slack_webhook_url_file": __file__,
    "heartbeat_url_file": __file__,
    "http_token_file": "/nowhere",
    "ca_file": __file__,
    "receivers": '[{type = "slack", name = "a", url = "x"}]',
}


NEEDED = {
    "pagerduty_url": {"QUERYPULSE_PAGERDUTY_ROUTING_KEY": "k" * 32},
    "ca_file": {"QUERYPULSE_WEBHOOK_URL": "https://h/x"},
}


def components_of(*sources):
    """What is made of the settings that these sources give."""
    return Components(load_settings(*sources).settings, Guard())


def test_file_that_a_heartbeat_of_queries_cannot_use_is_that_of_its_own_setting():
    queries = {"nightly*": {"heartbeat_url": "https://h/x"}}
    with pytest.raises(SettingsError, match=r"^ca_file .*from argument ca_file\)$"):
        components_of({"queries": queries, "ca_file": __file__}, {}, {})


@pytest.mark.parametrize(("name", "text"), UNUSABLE.items())
def test_value_that_cannot_be_used_is_reported_with_its_name_and_origin(name, text, config):
    needed = NEEDED.get(name, {})
    variable = f"QUERYPULSE_{name.upper()}"
    value = parse_text(name, text)
    toml = json.dumps(value) if name != "receivers" else text
    named = config(f"{name} = {toml}")
    origins = {
        f"argument {name}": ({name: value}, {}, {}),
        f"environment variable {variable}": ({}, {variable: text}, {}),
        f"Spark conf spark.querypulse.{name}": ({}, {}, {f"spark.querypulse.{name}": text}),
        f"file {named['QUERYPULSE_CONFIG']}": ({}, named, {}),
    }
    shown = ("receiver 'a': url", "receivers[0].url") if name == "receivers" else name
    for origin, (arguments, variables, conf) in origins.items():
        environment = {**variables, **needed}
        message = problem_with(components_of, arguments, environment, conf)

        assert message.removeprefix("setting '").startswith(shown)
        assert f"from {origin}" in message


COMBINED = [
    ({"webhook_url": "https://h/x", "webhook_url_file": "/u"}, "not both"),
    ({"heartbeat_url": "https://h/x", "heartbeat_url_file": "/u"}, "not both"),
    ({"webhook_secret_file": "/s"}, "needs"),
    ({"pagerduty_url": "https://h/x"}, "needs"),
    ({"http_tls_cert_file": "/c"}, "go together"),
    ({"http_tls_client_ca_file": "/c"}, "needs"),
    ({"otlp_headers_file": "/h"}, "needs"),
    ({"alertmanager_credentials_file": "/c"}, "needs"),
    ({"pushgateway_credentials_file": "/c"}, "needs"),
    ({"redact_patterns": ["("]}, "not a regular expression"),
    ({"queries": {"a": {"reads": ["x"]}}}, "could never match"),
    ({"queries": {" ": {"writes": ["/x"]}}}, "matches no query"),
    ({"queries": {"a": {"heartbeat_url": "https://h/x", "heartbeat_url_file": "/u"}}}, "not both"),
    ({"receivers": [{"type": "slack", "name": "a"}]}, "needs"),
    (
        {"receivers": [{"type": "slack", "name": "a", "url": "https://h/x", "url_file": "/u"}]},
        "not both",
    ),
    (
        {"receivers": [{"type": "slack", "name": name, "url": "https://h/x"} for name in "aa"]},
        "two are named",
    ),
    (
        {"receivers": [{"type": "slack", "name": "a", "url": "https://h/x", "fallback": "b"}]},
        "is not another",
    ),
]


@pytest.mark.parametrize(("settings", "word"), COMBINED)
def test_settings_that_contradict_each_other_are_reported_with_their_origins(settings, word):
    texts = {
        name: text if isinstance(text, str) else json.dumps(text) for name, text in settings.items()
    }
    variables = {f"QUERYPULSE_{name.upper()}": text for name, text in texts.items()}
    conf = {f"spark.querypulse.{name}": text for name, text in texts.items()}
    origins = {
        ", ".join(f"argument {name}" for name in settings): (settings, {}, {}),
        ", ".join(f"environment variable {key}" for key in variables): ({}, variables, {}),
        ", ".join(f"Spark conf {key}" for key in conf): ({}, {}, conf),
    }
    for origin, sources in origins.items():
        message = problem_with(components_of, *sources)

        assert word in message
        assert message.endswith((f" (from {origin})", f", from {origin})"))


URLS = "webhook_url = 'https://h/x'\nheartbeat_url = 'https://h/x'"
MIXED = [
    (URLS, {"webhook_url_file": "/u"}, "file {file}, argument webhook_url_file"),
    (
        URLS,
        {"queries": {"a": {"heartbeat_url": "https://h/x", "heartbeat_url_file": "/u"}}},
        "argument queries",
    ),
    ("http_tls_cert_file = '/c'\nhttp_tls_key_file = '/k'", {"app_name": "etl"}, "file {file}"),
]


@pytest.mark.parametrize(("content", "arguments", "origins"), MIXED)
def test_each_origin_of_a_contradiction_is_named_once_and_no_other(
    config, content, arguments, origins
):
    named = config(content)
    message = problem_with(components_of, arguments, named, {})

    assert message.endswith(f"from {origins.format(file=named['QUERYPULSE_CONFIG'])})")


PUSHED = {
    name
    for family in all_families(full_published())
    for _, labels, *_ in family.samples
    for name in labels
}


@pytest.mark.parametrize(
    "name", [*sorted(PUSHED), "instance", "job", "__env", "1a", "cost-center", "é", "a\n", ""]
)
def test_label_that_would_break_a_push_or_an_alert_is_refused(name):
    assert f"at labels: the name {name!r} is not allowed; " in refused({"labels": {name: "a"}})


def test_label_of_another_name_is_accepted():
    labels = dict.fromkeys(("env", "team", "_a", "a__b", "States", "job_name", "sources"), "x")

    assert load_settings({"labels": labels}, {}, {}).settings.labels == labels


# -- secrets in the Spark conf --------------------------------------------------------------------

SECRET_CONF = [
    ("pagerduty_routing_key", "k" * 32, "'pagerduty_routing_key_file'"),
    ("heartbeat_url", "https://hc-ping.com/0b1c2d3e-hidden", "'heartbeat_url_file'"),
    ("webhook_url", "https://user:hidden@h/x", "'webhook_url_file'"),
    ("webhook_url", "https://h/x?token=hidden", "'webhook_url_file'"),
    ("alertmanager_urls", "https://am1,https://user:hidden@am2", "QUERYPULSE_CONFIG"),
]


@pytest.mark.fault(
    "Settings", "A secret in the Spark conf", "It is refused; the error names the setting to use"
)
def test_secret_in_the_spark_conf_is_refused_with_the_file_setting():
    """Spark writes its conf into the event log in plain text."""
    for name, text, word in SECRET_CONF:
        message = refused({}, {}, {f"spark.querypulse.{name}": text})

        assert f"Spark conf spark.querypulse.{name}" in message
        assert word in message
        assert "hidden" not in message
        assert "k" * 32 not in message


PLAIN_CONF = [
    ("webhook_url", "https://hooks.example.com/pages"),
    ("pagerduty_routing_key_file", "/run/secrets/pagerduty-0123456789"),
    ("slack_webhook_url_file", "/run/secrets/slack"),
    ("alertmanager_urls", "https://am1:9093,https://am2:9093"),
    ("alertmanager_urls", "http://monitoring.svc:8080/prod/alertmanager2"),
    ("pagerduty_url", "https://events.eu.pagerduty.com/v2/enqueue"),
    ("http_token_file", "/run/secrets/token"),
    ("app_name", "https://user:word@h/services/x"),
    ("receivers", '[{"type": "pagerduty", "name": "a", "routing_key_file": "/run/secrets/pd"}]'),
]


def test_value_without_a_secret_is_allowed_in_the_spark_conf():
    for name, text in PLAIN_CONF:
        key = f"spark.querypulse.{name}"
        loaded = load_settings({}, {}, {key: text})
        assert loaded.settings.origins == {name: f"Spark conf {key}"}
