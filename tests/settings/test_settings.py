"""Every setting has one name, one default and limits; secrets are never shown."""

from __future__ import annotations

import re
import sys

import pytest
from support.repository import ROOT

from querypulse.alerting.receivers.pagerduty import PagerDutySettings
from querypulse.alerting.receivers.slack import SlackSettings
from querypulse.alerting.receivers.webhook import WebhookSettings
from querypulse.core.secret import Holds
from querypulse.settings.loading import load_settings
from querypulse.settings.mistakes import HIDDEN as MASK
from querypulse.settings.settings import HOLDS, TYPES, QuerySettings, check_value, mask
from querypulse.sidecar import Settings, SettingsError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


HIDDEN = "s3cr3t"


GOOD = {
    "http_port": [-1, 65535],
    "probe_interval_seconds": [0.05, 60],
    "stall_floor_seconds": [0.1],
    "gone_grace_seconds": [0],
    "expected_queries": [("bronze", "silver")],
    "app_name": [None],
    "allow_http": [True],
}


def test_valid_value_is_accepted():
    checked = {name: [check_value(name, value, "") for value in GOOD[name]] for name in GOOD}

    assert checked == GOOD


HOOK = {"type": "webhook", "name": "a", "url": "https://h"}
BAD = {
    "http_port": [-2, 65536, 1.5, True, "many", "0"],
    "probe_interval_seconds": [0.049, 61],
    "stall_floor_seconds": [0, float("nan"), float("inf"), "60s", "30"],
    "gone_grace_seconds": [-1, [60]],
    "expected_queries": ["bronze", [1]],
    "app_name": [7],
    "http_host": [None],
    "allow_http": [1, "true"],
    "queries": [
        {"a*": {"stall_floor_seconds": float("inf")}},
        ["nightly*"],
        {"a*": {"ignore": "true"}},
        {"a*": {"http_port": 5}},
    ],
    "redact_patterns": ["secret.*"],
    "receivers": [
        HOOK,
        [{"type": "webhook", "url": "https://h"}],
        [{**HOOK, "fallback_after_seconds": float("inf")}],
        [{**HOOK, "name": "../a"}],
        [{**HOOK, "name": "a" * 65}],
        [{**HOOK, "queries": "a*"}],
        [{"type": "alertmanager", "name": "a", "urls": []}],
    ],
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_value_is_refused_with_the_name_of_its_setting(name):
    for value in BAD[name]:
        with pytest.raises(SettingsError, match=f"setting '{name}'"):
            Settings(**{name: value})


def test_tables_may_be_given_as_tables_or_as_objects():
    table = {"type": "pagerduty", "name": "a", "routing_key_file": "/k"}
    as_tables = Settings(
        queries={"nightly*": {"stall_floor_seconds": 3600, "ignore": True}}, receivers=[table]
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
        "runbooks_url",
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


# -- origins ----------------------------------------------------------------------------------


SETTINGS_PAGE = (ROOT / "docs" / "settings.md").read_text()
EXAMPLES = dict(re.findall(r"^\| `(\w+)` \|.*\| `(.+)` \|$", SETTINGS_PAGE, re.MULTILINE))
"""One value of each setting, as TOML: the documented one."""


def sample(name):
    """A value of the setting that is not its default, and the same value as TOML."""
    default, text = getattr(Settings(), name), EXAMPLES[name]
    value = tomllib.loads(f"value = {text}")["value"]
    if value == default:
        value = value + 1 if isinstance(value, int) else value * 0.9 or 1.5
        text = str(value)
    return value, text


def environment(name):
    return f"QUERYPULSE_{name.upper()}"


def from_every_origin(name, config):
    """The setting loaded from each origin that it may have."""
    value, toml = sample(name)
    text = value if isinstance(value, str) else toml
    variable, conf = environment(name), f"spark.querypulse.{name}"
    named = config(f"{name} = {toml}")
    loaded = {
        f"argument {name}": load_settings({name: value}, {}, {}),
        f"environment variable {variable}": load_settings({}, {variable: text}, {}),
        f"file {named['QUERYPULSE_CONFIG']}": load_settings({}, named, {}),
    }
    if HOLDS.get(name) not in (Holds.KEY, Holds.URL):
        loaded[f"Spark conf {conf}"] = load_settings({}, {}, {conf: text})
    return loaded


def test_setting_has_the_same_value_from_every_origin_and_names_it(config):
    default, wrong = Settings(), []
    for name in TYPES:
        loaded = from_every_origin(name, config)
        values = [getattr(entry.settings, name) for entry in loaded.values()]
        if values != values[:1] * len(values) or values[0] == getattr(default, name):
            wrong.append((name, values))
        wrong += [
            (name, item.settings.origins)
            for origin, item in loaded.items()
            if item.settings.origins != {name: origin}
        ]

    assert wrong == []


# -- precedence -------------------------------------------------------------------------------


@pytest.mark.parametrize("strongest", range(4))
def test_argument_beats_environment_beats_spark_conf_beats_file(strongest, config):
    """Origin 0 is the argument; origins stronger than ``strongest`` are empty."""
    arguments = {"http_port": 1000} if strongest == 0 else {}
    named = config("http_port = 1003")
    variables = {**named, "QUERYPULSE_HTTP_PORT": "1001"} if strongest <= 1 else named
    spark = {"spark.querypulse.http_port": "1002"} if strongest <= 2 else {}

    assert load_settings(arguments, variables, spark).settings.http_port == 1000 + strongest


def test_argument_none_overrides_the_environment():
    variables = {"QUERYPULSE_WEBHOOK_URL": "https://h/x"}

    assert load_settings({"webhook_url": None}, variables, {}).settings.webhook_url is None


# -- lists and tables as text -----------------------------------------------------------------


def from_variables(name, texts):
    """A setting as the environment gives it, by text."""
    variable = environment(name)
    return {text: getattr(load_settings({}, {variable: text}, {}).settings, name) for text in texts}


def test_expected_queries_are_a_list_or_comma_separated():
    names = {
        '["bronze"]': ("bronze",),
        "['bronze', \"silver\"]": ("bronze", "silver"),
        "bronze": ("bronze",),
        "bronze, silver ,gold": ("bronze", "silver", "gold"),
        " bronze ": ("bronze",),
        "with blank,b": ("with blank", "b"),
        '"bronze"': ("bronze",),
        "'bronze', \"silver\"": ("bronze", "silver"),
        '"a,b"': ("a,b",),
        "it's": ("it's",),
        "12": ("12",),
        "true, null": ("true", "null"),
        "": (),
        ",": (),
        '""': (),
        "'bronze', ''": ("bronze",),
        "[]": (),
    }

    assert from_variables("expected_queries", names) == names


def test_overrides_as_text_are_json_or_toml():
    texts = ['{"s*": {"ignore": true}}', '{"s*" = {ignore = true}}', ' {"s*": {"ignore": true}} ']

    assert from_variables("queries", texts) == {
        text: {"s*": QuerySettings(ignore=True)} for text in texts
    }


def test_receivers_may_be_tables_of_the_file(config):
    named = config(
        '[[receivers]]\ntype = "pagerduty"\nname = "oncall"\nrouting_key_file = "/k"\n'
        'severities = ["critical"]\nfallback = "team"\n'
        '[[receivers]]\ntype = "slack"\nname = "team"\nurl_file = "/u"\nqueries = ["bronze*"]\n'
    )

    assert load_settings({}, named, {}).settings.receivers == (
        PagerDutySettings(
            name="oncall", routing_key_file="/k", severities=("critical",), fallback="team"
        ),
        SlackSettings(name="team", url_file="/u", queries=("bronze*",)),
    )


def test_single_pattern_may_contain_commas():
    patterns = {
        "acct-[0-9]{6,8}": ("acct-[0-9]{6,8}",),
        "[0-9]{6,8}": ("[0-9]{6,8}",),
        "a,b": ("a,b",),
        '"acct-[0-9]+"': ("acct-[0-9]+",),
        '"a"|b': ('"a"|b',),
        '["a", "b,c"]': ("a", "b,c"),
        "['\\d+']": ("\\d+",),
    }

    assert from_variables("redact_patterns", patterns) == patterns
