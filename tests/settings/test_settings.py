"""Every setting has one name, one default and limits; secrets are never shown."""

from __future__ import annotations

import pytest

from querypulse.alerting.receivers.pagerduty import PagerDutySettings
from querypulse.alerting.receivers.receiver import Holds
from querypulse.alerting.receivers.webhook import WebhookSettings
from querypulse.settings.mistakes import HIDDEN as MASK
from querypulse.settings.settings import (
    HOLDS,
    TYPES,
    QuerySettings,
    check_value,
    mask,
)
from querypulse.sidecar import Settings, SettingsError

HIDDEN = "s3cr3t"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("http_port", -1),
        ("http_port", 65535),
        ("probe_interval_seconds", 0.05),
        ("probe_interval_seconds", 60),
        ("stall_floor_seconds", 0.1),
        ("gone_grace_seconds", 0),
        ("expected_queries", ("bronze", "silver")),
        ("app_name", None),
        ("allow_http", True),
    ],
)
def test_valid_value_is_accepted(name, value):
    assert check_value(name, value, "a test") == value


BAD = [
    ("http_port", -2),
    ("http_port", 65536),
    ("http_port", 1.5),
    ("http_port", True),
    ("http_port", "many"),
    ("probe_interval_seconds", 0.049),
    ("probe_interval_seconds", 61),
    ("stall_floor_seconds", 0),
    ("stall_floor_seconds", float("nan")),
    ("stall_floor_seconds", "60s"),
    ("gone_grace_seconds", -1),
    ("gone_grace_seconds", [60]),
    ("expected_queries", "bronze"),
    ("expected_queries", [1]),
    ("app_name", 7),
    ("http_host", None),
    ("allow_http", 1),
    ("queries", ["nightly*"]),
    ("queries", {"nightly*": {"ignore": "true"}}),
    ("queries", {"nightly*": {"http_port": 5}}),
    ("redact_patterns", "secret.*"),
    ("receivers", {"type": "webhook", "name": "a", "url": "https://h"}),
    ("receivers", [{"type": "webhook", "url": "https://h"}]),
    ("receivers", [{"type": "webhook", "name": "../a", "url": "https://h"}]),
    ("receivers", [{"type": "webhook", "name": "a" * 65, "url": "https://h"}]),
    ("receivers", [{"type": "webhook", "name": "a", "queries": "a*", "url": "https://h"}]),
    ("receivers", [{"type": "alertmanager", "name": "a", "urls": []}]),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_invalid_value_is_refused_with_the_name_of_its_setting(name, value):
    with pytest.raises(SettingsError, match=f"setting '{name}'"):
        Settings(**{name: value})


def test_settings_constructor_never_keeps_a_number_as_text():
    settings = Settings(stall_floor_seconds="30", http_port="0", allow_http="true")

    assert repr(settings.stall_floor_seconds) == "30.0"
    assert (repr(settings.http_port), settings.allow_http) == ("0", True)


def test_tables_may_be_given_as_tables_or_as_objects():
    table = {"type": "pagerduty", "name": "a", "routing_key_file": "/k"}
    as_tables = Settings(
        queries={"nightly*": {"stall_floor_seconds": 3600, "ignore": True}},
        receivers=[table],
    )
    as_objects = Settings(
        queries={"nightly*": QuerySettings(stall_floor_seconds=3600.0, ignore=True)},
        receivers=(PagerDutySettings(name="a", routing_key_file="/k"),),
    )

    assert as_tables == as_objects
    assert as_tables.queries["nightly*"].stall_floor_seconds == 3600


# -- masking ----------------------------------------------------------------------------------


TOP_SECRET = sorted(name for name in HOLDS if HOLDS[name] is Holds.KEY)
TOP_URLS = sorted(name for name in HOLDS if HOLDS[name] in (Holds.URL, Holds.ADDRESS))


def test_secret_setting_is_masked():
    shown = {name: (repr(Settings(**{name: HIDDEN})), mask(name, HIDDEN)) for name in TOP_SECRET}

    assert TOP_SECRET
    assert [name for name, texts in shown.items() if HIDDEN in str(texts)] == []


URLS_WITH_A_SECRET = [
    f"https://hooks.example.com/services/T0/{HIDDEN}",
    f"https://{HIDDEN}@hooks.example.com/x",
    f"https://user:{HIDDEN}@hooks.example.com/x",
    f"https://user:a@{HIDDEN}@hooks.example.com",
    f"https://hooks.example.com/x?token={HIDDEN}",
    f"https://hooks.example.com?token={HIDDEN}",
    f"https://hooks.example.com#{HIDDEN}",
    f"hooks.example.com/services/{HIDDEN}",
    f"hooks.example.com/services/{HIDDEN}://x",
    HIDDEN,
]


@pytest.mark.parametrize("name", TOP_URLS)
def test_masked_url_shows_only_scheme_and_host(name):
    """The path of a webhook is its password; a URL may also lack a path or a scheme."""
    values = [[url] if name.endswith("s") else url for url in URLS_WITH_A_SECRET]
    shown = [repr(Settings(**{name: value})) for value in values]

    assert [text for text in shown if HIDDEN in text] == []


def test_every_url_setting_is_masked():
    """The exceptions are links without secrets, which people open."""
    named = ("_url", "_endpoint")
    urls = {name for name in TYPES if any(part in name for part in named)}
    assert {name for name in urls if not name.endswith("_file")} == {
        *TOP_URLS,
        "dashboard_url",
        "external_url",
        "runbook_base_url",
    }


def test_masked_receiver_shows_set_fields_and_no_defaults():
    receiver = WebhookSettings(name="a", url=f"https://h/{HIDDEN}", severities=("critical",))

    assert mask("receivers", (receiver,)) == (
        {"type": "webhook", "name": "a", "severities": ("critical",), "url": "https://h/..."},
    )


@pytest.mark.parametrize("value", [["acct-[0-9]{6}"], ("a", "b"), "acct"])
def test_redact_patterns_are_masked(value):
    assert mask("redact_patterns", value) == MASK
    assert mask("redact_patterns", ()) == ()
