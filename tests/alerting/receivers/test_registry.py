"""No secret of any receiver, present or future, can be printed or leave the driver."""

from __future__ import annotations

import re
from typing import Annotated, get_args, get_origin, get_type_hints

import msgspec
import pytest
from support.repository import ROOT

from querypulse.alerting.receivers import RECEIVER_TYPES
from querypulse.core.secret import Holds, Text, holds
from querypulse.settings.mistakes import mask_mistake, mask_value
from querypulse.settings.secrets import refuse_secret
from querypulse.settings.settings import QuerySettings, check_value
from querypulse.sidecar import Settings, SettingsError
from querypulse.sidecar.assemble import make_redactor

SECRET = "s3cr3t-0123456789-abcdefghij"
HOSTILE = {
    Holds.KEY: SECRET,
    Holds.URL: f"https://hooks.example.com/services/{SECRET}",
    Holds.ADDRESS: f"https://user:{SECRET}@hooks.example.com/x",
}
KINDS = pytest.mark.parametrize("kind", RECEIVER_TYPES, ids=lambda kind: kind.type_name())
EVERY_HTTP = {"proxy_url": Holds.ADDRESS}
AT_URL = {"url": Holds.URL, "url_file": Holds.SECRET_FILE, **EVERY_HTTP}
IN_KEY = {"routing_key": Holds.KEY, "routing_key_file": Holds.SECRET_FILE}
DECLARED = {
    "webhook": {**AT_URL, "secret_files": Holds.SECRET_FILE},
    "pagerduty": {**IN_KEY, "url": Holds.ADDRESS, **EVERY_HTTP},
    "alertmanager": {
        "urls": Holds.ADDRESS,
        "credentials_file": Holds.SECRET_FILE,
        **EVERY_HTTP,
    },
    "slack": AT_URL,
    "teams": AT_URL,
    "email": {"password": Holds.KEY, "password_file": Holds.SECRET_FILE},
}
"""What is secret, written once more: a declaration that is changed by mistake fails here."""
HEARTBEAT = {"heartbeat_url": Holds.URL, "heartbeat_url_file": Holds.SECRET_FILE}
FILES = [
    *["http_token_file", "webhook_url_file", "webhook_secret_file", "pagerduty_routing_key_file"],
    *["otlp_headers_file", "slack_webhook_url_file"],
    *["alertmanager_credentials_file", "pushgateway_credentials_file"],
]
ADDRESSES = ["pagerduty_url", "pushgateway_url", "otlp_endpoint", "alertmanager_urls"]
OF_SETTINGS = {
    **HEARTBEAT,
    **dict.fromkeys(FILES, Holds.SECRET_FILE),
    **dict.fromkeys(ADDRESSES, Holds.ADDRESS),
    "webhook_url": Holds.URL,
    "pagerduty_routing_key": Holds.KEY,
    "redact_patterns": Holds.PATTERN,
}
SECRETS = [
    (kind, field)
    for kind in RECEIVER_TYPES
    for field, held in DECLARED[kind.type_name()].items()
    if held in HOSTILE
]


def secret_fields(record):
    return {name: held for name, held in holds(record).items() if held is not Holds.NOTHING}


def leaves(kind):
    """The types inside a type; an annotated text is one leaf."""
    if get_origin(kind) is Annotated or not get_args(kind):
        return [kind]
    return [leaf for part in get_args(kind) for leaf in leaves(part)]


def filled(kind, **given):
    """A table of this kind with every required field, and those that are given."""
    fields = msgspec.structs.fields(kind)
    required = {one.name: "x" for one in fields if one.required}
    table = {"type": kind.type_name(), **required, "name": "a"}
    if kind.type_name() == "alertmanager":
        table["urls"] = ["https://am"]
    if kind.type_name() == "email":
        table["to"] = ["a@example.com"]
    return {**table, **given}


def with_secret(kind, field):
    secret = HOSTILE[DECLARED[kind.type_name()][field]]
    return filled(kind, **{field: [secret] if field.endswith("s") else secret})


def test_each_kind_of_receiver_and_the_settings_declare_their_secrets():
    assert {kind.type_name(): secret_fields(kind) for kind in RECEIVER_TYPES} == DECLARED
    assert secret_fields(Settings) == OF_SETTINGS
    assert secret_fields(QuerySettings) == HEARTBEAT


def test_every_text_declares_what_it_holds():
    """An undeclared text of a table is hidden, but neither redacted nor refused in the conf."""
    undeclared = [
        f"{record.__name__}.{name}"
        for record in (*RECEIVER_TYPES, QuerySettings, Settings)
        for name, hint in get_type_hints(record, include_extras=True).items()
        if name in record.__struct_fields__ and name not in holds(record) and str in leaves(hint)
    ]

    assert undeclared == []


def leaks(*texts):
    return any(SECRET in text for text in texts)


def refusal_of(check, *arguments):
    with pytest.raises(SettingsError) as error:
        check(*arguments)
    return str(error.value)


def named(failing):
    """The names of the fields of those kinds for which this is true."""
    return [f"{kind.type_name()}.{field}" for kind, field in SECRETS if failing(kind, field)]


def test_secret_is_not_printed():
    def is_printed(kind, field):
        tables = [with_secret(kind, field)]
        return leaks(repr(Settings(receivers=tables)), repr(mask_mistake(tables)))

    assert named(is_printed) == []


@pytest.mark.fault(
    "Settings", "A receiver's table with a mistake beside a secret", "The error does not show it"
)
def test_secret_of_a_table_with_a_mistake_is_not_printed():
    def is_printed(kind, field):
        table = {**with_secret(kind, field), "no_such_field": SECRET}
        return leaks(refusal_of(check_value, "receivers", [table], "a test"))

    assert named(is_printed) == []


def test_secret_in_the_spark_conf_is_refused_without_showing_it():
    def is_not_named(kind, field):
        value = check_value("receivers", [with_secret(kind, field)], "a test")
        error = refusal_of(refuse_secret, "receivers", value, "Spark conf")
        return leaks(error) or f"receivers[0].{field}" not in error

    assert named(is_not_named) == []


def test_secret_is_redacted_from_alerts():
    def is_shown(kind, field):
        table = with_secret(kind, field)
        if kind.one_of and table.keys().isdisjoint(kind.one_of):
            table |= {kind.one_of[0]: "https://example.com/x"}
        return leaks(make_redactor(Settings(receivers=[table])).text(f"cannot reach {SECRET}"))

    assert named(is_shown) == []


@KINDS
def test_secret_in_a_file_is_redacted_from_alerts(kind, tmp_path):
    (tmp_path / "secret").write_text(SECRET)
    files = [name for name, held in DECLARED[kind.type_name()].items() if held is Holds.SECRET_FILE]
    for field in files:
        path = str(tmp_path / "secret")
        table = filled(kind, **{field: [path] if field.endswith("s") else path})
        if kind.one_of and table.keys().isdisjoint(kind.one_of):
            table |= {kind.one_of[0]: "https://example.com/x"}
        redacting = make_redactor(Settings(receivers=[table]))

        assert SECRET not in redacting.text(f"cannot reach {SECRET}"), field


@KINDS
def test_kind_is_documented_with_its_settings(kind):
    page = (ROOT / "docs/receivers.md").read_text()

    assert f'type = "{kind.type_name()}"' in page
    own = kind.__struct_fields__

    assert [name for name in own if not re.search(rf"(`|^|\n){name}(`| = )", page)] == []


def test_undeclared_text_is_hidden():
    class Careless(msgspec.Struct):
        comment: str
        note: Text = ""

    assert holds(Careless) == {"note": Holds.NOTHING}
    assert SECRET not in str(mask_value(None, Careless(comment=SECRET)))
