"""Settings come from four origins with a fixed precedence; errors name the origin."""

from __future__ import annotations

import re
import sys

import pytest
from support.repository import ROOT

from querypulse.alerting.receivers.pagerduty import PagerDutySettings
from querypulse.alerting.receivers.receiver import Holds
from querypulse.alerting.receivers.slack import SlackSettings
from querypulse.settings.loading import load_settings
from querypulse.settings.settings import HOLDS, TYPES, QuerySettings
from querypulse.sidecar import Settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

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


# -- origins ----------------------------------------------------------------------------------


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
            (name, item.origins)
            for origin, item in loaded.items()
            if item.origins != {name: origin}
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
        "": (),
        ",": (),
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
        '["a", "b,c"]': ("a", "b,c"),
        "['\\d+']": ("\\d+",),
    }

    assert from_variables("redact_patterns", patterns) == patterns
