"""The pages of ``docs/places`` name settings, commands and files that exist."""

from __future__ import annotations

import ast
import json
import re
import shlex

import pytest
import yaml
from support.repository import ROOT, fenced

import querypulse
from querypulse.commands import cli
from querypulse.settings.loading import NO_SETTINGS, SPARK_PREFIX, load_settings
from querypulse.settings.settings import TYPES

FOLDER = ROOT / "docs" / "places"
PAGES = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.md"))}
DEPLOYED = [path for path in sorted((ROOT / "deploy").rglob("*")) if path.is_file()]
OF_ATTACH = re.compile(r"\battach\(spark, ?(\w+)=|^ {4}(\w+)=", re.MULTILINE)


def unknown_variables(text):
    """Variables of ours that are no setting; a prefix such as ``QUERYPULSE_`` is none."""
    found = set(re.findall(r"\bQUERYPULSE_[A-Z_]+[A-Z]\b", text)) - NO_SETTINGS
    return {name for name in found if name.removeprefix("QUERYPULSE_").lower() not in TYPES}


def unknown_conf(text):
    """Entries of the Spark conf under our prefix that are no setting."""
    found = set(re.findall(rf"{re.escape(SPARK_PREFIX)}(\w+)", text))
    return found - TYPES.keys()


def values(text):
    """The variables that a page sets to a value: name -> text."""
    return dict(re.findall(r"\b(QUERYPULSE_[A-Z_]+)=([^\s,`]+)", text))


@pytest.mark.parametrize("name", PAGES)
def test_settings_of_a_page_exist(name):
    assert unknown_variables(PAGES[name]) == set()
    assert unknown_conf(PAGES[name]) == set()
    assert {one for pair in OF_ATTACH.findall(PAGES[name]) for one in pair if one} <= TYPES.keys()


def test_unknown_settings_are_found():
    """The test above depends on these functions."""
    assert unknown_variables("QUERYPULSE_HTTP_PROT=1 QUERYPULSE_HTTP_PORT") == {
        "QUERYPULSE_HTTP_PROT"
    }
    assert unknown_conf("--conf spark.querypulse.expected_query=a") == {"expected_query"}


@pytest.mark.parametrize("name", PAGES)
def test_values_of_a_page_are_allowed(name):
    ours = {key: value for key, value in values(PAGES[name]).items() if key not in NO_SETTINGS}

    assert load_settings({}, ours, {}).problems == ()


@pytest.mark.parametrize("path", DEPLOYED, ids=lambda path: path.name)
def test_settings_of_a_file_exist(path):
    assert unknown_variables(path.read_text()) == set()
    assert unknown_conf(path.read_text()) == set()


def test_commands_of_the_pages_exist():
    """``querypulse watch``, in text and in blocks."""
    pattern = r"(?:^|[`(\s])querypulse ([a-z-]+(?: on| off)?)(?=[`)\n]| -)"
    commands = {found for text in PAGES.values() for found in re.findall(pattern, text)}
    for words in map(shlex.split, commands):
        assert cli._parser().parse_args(words).command == words[0]

    assert commands >= {"auto-attach on", "check", "launcher", "test-alert", "watch"}


@pytest.mark.parametrize("name", PAGES)
def test_code_of_a_page_can_be_parsed(name):
    """And what it imports from the package is there."""
    for code in fenced(PAGES[name], "python"):
        imports = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom)]
        assert all(hasattr(querypulse, one.name) for node in imports for one in node.names)
    for code in fenced(PAGES[name], "json"):
        assert json.loads(code)
    for code in fenced(PAGES[name], "yaml"):
        assert yaml.safe_load(code)


def test_configuration_of_emr_sets_what_the_page_of_yarn_says():
    (code,) = fenced(PAGES["yarn"], "json")
    defaults, env = json.loads(code)
    variable = "QUERYPULSE_AUTO_ATTACH"
    conf = {
        key: value for key, value in defaults["Properties"].items() if key.startswith(SPARK_PREFIX)
    }

    assert defaults["Properties"][f"spark.yarn.appMasterEnv.{variable}"] == "1"
    assert env["Configurations"][0]["Properties"][variable] == "1"
    assert load_settings({}, {}, conf).settings.pushgateway_url


def test_index_lists_every_page():
    assert set(re.findall(r"\]\(([\w-]+)\.md[)#]", PAGES["README"])) == PAGES.keys() - {"README"}


@pytest.mark.parametrize("path", DEPLOYED, ids=lambda path: path.name)
def test_every_file_is_on_a_page(path):
    linked = f"](../../{path.relative_to(ROOT).as_posix()})"

    assert any(linked in text for text in PAGES.values())
