"""A setting that is wrong is told with its name, its place and what is allowed."""

from __future__ import annotations

import ast
import logging
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.refusals import refused

from querypulse.sidecar import SettingsError
from querypulse.sidecar.configuration.settings import TYPES
from querypulse.sidecar.configuration.settings_sources import (
    CONFIG_VARIABLE,
    load_settings,
    load_strictly,
)
from querypulse.sidecar.session import settings_of

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
    """``attach`` reads the whole environment, and would warn of such a variable."""
    conftest = ast.parse((ROOT / "tests" / "conftest.py").read_text())
    words = [node.value for node in ast.walk(conftest) if isinstance(node, ast.Constant)]
    ours = {word: "1" for word in words if re.fullmatch(r"QUERYPULSE_[A-Z_]+", str(word))}
    ours.pop(CONFIG_VARIABLE, None)

    assert load_settings({}, ours, {}).origins == {}


@given(st.sampled_from(sorted(TYPES)), st.text(max_size=40))
def test_any_text_is_a_value_or_a_told_mistake(name, text):
    variable = f"QUERYPULSE_{name.upper()}"
    loaded = load_settings({}, {variable: text}, {})
    (told,) = loaded.problems or [loaded.origins[name]]

    assert f"environment variable {variable}" in told


# -- an environment that others have filled -------------------------------------------------------

SERVICE_LINKS = {
    "QUERYPULSE_SERVICE_HOST": "10.0.0.1",
    "QUERYPULSE_SERVICE_PORT": "9719",
    "QUERYPULSE_SERVICE_PORT_METRICS": "9719",
    "QUERYPULSE_PORT": "tcp://10.0.0.1:9719",
    "QUERYPULSE_PORT_9719_TCP": "tcp://10.0.0.1:9719",
    "QUERYPULSE_PORT_9719_TCP_PROTO": "tcp",
    "QUERYPULSE_PORT_9719_TCP_PORT": "9719",
    "QUERYPULSE_PORT_9719_TCP_ADDR": "10.0.0.1",
    "QUERYPULSE_HTTP_SERVICE_HOST": "10.0.0.2",
    "QUERYPULSE_HTTP_PORT": "tcp://10.0.0.2:80",
    "QUERYPULSE_DNS_PORT_53_UDP_ADDR": "10.0.0.3",
}
"""What Kubernetes sets for Services called querypulse, querypulse-http and querypulse-dns."""


def test_the_variables_of_a_kubernetes_service_are_none_of_ours():
    """A12"""
    loaded = load_strictly({}, SERVICE_LINKS)

    assert (loaded.origins, loaded.problems) == ({}, ())


def test_a_port_of_ours_beside_a_service_of_that_name_is_a_setting():
    assert load_settings({}, {"QUERYPULSE_HTTP_PORT": "8080"}, {}).settings.http_port == 8080


@pytest.mark.parametrize("key", ["QUERYPULSE_PORTS", "QUERYPULSE_SERVICE", "QUERYPULSE_PORT_TCP"])
def test_what_only_looks_like_a_service_is_a_problem(key):
    assert key in refused({}, {key: "1"})


@pytest.mark.parametrize(
    "variable",
    [{"QUERYPULSE_COLOUR": "1"}, {"QUERYPULSE_HTTP_PORT": "many"}],
    ids=lambda v: next(iter(v)),
)
def test_a_wrong_variable_stops_no_job_and_every_command(variable):
    """A12"""
    right = {"QUERYPULSE_STALL_FLOOR_SECONDS": "30"}
    loaded = load_settings({"start_grace_seconds": 9}, variable | right, {})

    assert (loaded.settings.stall_floor_seconds, loaded.settings.start_grace_seconds) == (30, 9)
    assert len(loaded.problems) == 1
    with pytest.raises(SettingsError, match=next(iter(variable))):
        load_strictly({}, variable | right)


def test_every_problem_of_the_environment_is_named_at_once():
    with pytest.raises(SettingsError, match=r"QUERYPULSE_A.*QUERYPULSE_B"):
        load_strictly({}, {"QUERYPULSE_A": "1", "QUERYPULSE_B": "2"})


def test_attach_logs_a_wrong_variable_once(monkeypatch, caplog):
    monkeypatch.setenv("QUERYPULSE_HUE", "green")
    with caplog.at_level(logging.WARNING, "querypulse"):
        for _ in range(3):
            settings_of(None, {})

    (logged,) = [one.getMessage() for one in caplog.records if "QUERYPULSE_HUE" in one.getMessage()]
    assert "unknown setting 'hue'" in logged
    assert "green" not in logged
