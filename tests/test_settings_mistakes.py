"""A setting that is wrong is told with its name, its place and what is allowed."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.refusals import refused

from querypulse.sidecar import SettingsError
from querypulse.sidecar.configuration.settings import TYPES
from querypulse.sidecar.configuration.settings_sources import CONFIG_VARIABLE, load_settings

ROOT = Path(__file__).parent.parent


def test_an_unknown_setting_is_told_with_its_place_and_what_is_allowed(config):
    named = config("colour = 1")
    messages = {
        "argument colour": refused({"colour": 1}),
        "environment variable QUERYPULSE_COLOUR": refused({}, {"QUERYPULSE_COLOUR": "1"}),
        "Spark conf spark.querypulse.colour": refused({}, {}, {"spark.querypulse.colour": "1"}),
        f"file {named['QUERYPULSE_CONFIG']}": refused({}, named),
    }

    for place, message in messages.items():
        assert f"unknown setting 'colour' from {place}" in message
        assert all(name in message for name in TYPES)


@pytest.mark.parametrize("name", ["colour", "stall_flor_seconds"])
def test_what_is_allowed_is_a_sentence_of_its_own(name):
    assert re.search(r"[.;?!] Allowed: ", refused({name: 1}))


def test_a_likely_slip_is_answered_with_the_right_name():
    assert "did you mean 'stall_floor_seconds'?" in refused({"stall_flor_seconds": 30})
    assert "did you mean" not in refused({"xyz": 30})


def test_an_unknown_setting_does_not_show_its_value():
    message = refused({}, {"QUERYPULSE_PAGERDUTY_KEY": "s3cr3t"})

    assert "QUERYPULSE_PAGERDUTY_KEY" in message
    assert "s3cr3t" not in message


@pytest.mark.parametrize("text", ["many", "", "1.5", "-2", "70000", "0x10", "9" * 30])
def test_an_ill_typed_variable_is_told_with_its_name_and_value(text):
    message = refused({}, {"QUERYPULSE_HTTP_PORT": text})

    assert "setting 'http_port' from environment variable QUERYPULSE_HTTP_PORT" in message
    assert repr(text) in message


@pytest.mark.parametrize(
    "content", ["http_port = ", "= 1", b"\xff\xfe", "http_port = 1\nhttp_port = 2", "{"]
)
def test_a_file_that_is_no_toml_is_told_with_the_variable_that_names_it(content, config):
    named = config(content)
    message = refused({}, named)

    assert named["QUERYPULSE_CONFIG"] in message
    assert "QUERYPULSE_CONFIG" in message


@pytest.mark.parametrize("path", ["/nowhere/pulse.toml", "/"])
def test_a_file_that_cannot_be_read_is_told(path):
    message = refused({}, {"QUERYPULSE_CONFIG": path})

    assert f"file {path}" in message
    assert "QUERYPULSE_CONFIG" in message


def test_no_file_is_no_mistake():
    assert load_settings({}, {"QUERYPULSE_CONFIG": ""}, {}).origins == {}


@pytest.mark.parametrize("key", ["PATH", "QUERYPULSE", "QUERYPULSEX_A", "MY_QUERYPULSE_A", "querypulse_a"])  # fmt: skip
def test_other_peoples_variables_are_none_of_ours(key):
    assert load_settings({}, {key: "x"}, {}).origins == {}


@pytest.mark.parametrize("key", ["QUERYPULSE_ARTIFACTS", "QUERYPULSE_CONFIG"])
def test_a_variable_that_says_where_something_lies_is_no_setting(key):
    assert load_settings({}, {key: ""}, {}).origins == {}


@pytest.mark.parametrize("key", ["spark.app.name", "spark.querypulse", "spark.querypulsex.a", "x.spark.querypulse.a"])  # fmt: skip
def test_other_peoples_spark_conf_is_none_of_ours(key):
    assert load_settings({}, {}, {key: "x"}).origins == {}


def test_the_switches_of_our_own_tests_are_not_taken_for_settings():
    """``attach`` reads the whole environment: such a variable would fail every one."""
    conftest = ast.parse((ROOT / "tests" / "conftest.py").read_text())
    words = [node.value for node in ast.walk(conftest) if isinstance(node, ast.Constant)]
    ours = {word: "1" for word in words if re.fullmatch(r"QUERYPULSE_[A-Z_]+", str(word))}
    ours.pop(CONFIG_VARIABLE, None)

    assert load_settings({}, ours, {}).origins == {}


@given(st.sampled_from(sorted(TYPES)), st.text(max_size=40))
def test_any_text_is_a_value_or_a_told_mistake(name, text):
    variable = f"QUERYPULSE_{name.upper()}"
    try:
        told = load_settings({}, {variable: text}, {}).origins[name]
    except SettingsError as mistake:
        told = str(mistake)

    assert f"environment variable {variable}" in told
