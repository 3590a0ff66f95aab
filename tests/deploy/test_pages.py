"""The pages of platforms name settings, commands and files that exist."""

from __future__ import annotations

import ast
import json
import re
import shlex
from functools import cache

import yaml
from support.repository import ROOT, fenced

import querypulse
from querypulse.commands import cli
from querypulse.settings.loading import NO_SETTINGS, SPARK_PREFIX, load_settings
from querypulse.settings.settings import TYPES

PAGES = ("attach", "databricks", "kubernetes", "yarn")
OF_ATTACH = re.compile(r"\battach\(spark, ?(\w+)=|^ {4}(\w+)=", re.MULTILINE)


@cache
def pages():
    """The text of each page by its name."""
    return {name: (ROOT / "docs" / f"{name}.md").read_text() for name in PAGES}


def deployed():
    """The files that the pages refer to."""
    return [path for path in sorted((ROOT / "deploy").rglob("*")) if path.is_file()]


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


def test_settings_of_each_page_and_file_exist():
    texts = pages() | {path.name: path.read_text() for path in deployed()}
    unknown = {name: unknown_variables(text) | unknown_conf(text) for name, text in texts.items()}
    arguments = {
        name: {argument for pair in OF_ATTACH.findall(text) for argument in pair if argument}
        for name, text in pages().items()
    }

    assert {name: names for name, names in unknown.items() if names} == {}
    assert {
        name: names - TYPES.keys() for name, names in arguments.items() if names - TYPES.keys()
    } == {}
    assert any(arguments.values())


def test_values_of_each_page_are_allowed():
    loaded = {
        name: load_settings(
            {}, {key: value for key, value in values(text).items() if key not in NO_SETTINGS}, {}
        )
        for name, text in pages().items()
    }

    assert {name: of_page.problems for name, of_page in loaded.items() if of_page.problems} == {}
    assert any(of_page.origins for of_page in loaded.values())


def test_commands_of_the_pages_exist():
    """``querypulse watch``, in text and in blocks."""
    pattern = r"(?:^|[`(\s])querypulse ([a-z-]+(?: on| off)?)(?=[`)\n]| -)"
    commands = {found for text in pages().values() for found in re.findall(pattern, text)}
    for words in map(shlex.split, commands):
        assert cli._parser().parse_args(words).command == words[0]

    assert commands >= {"auto-attach on", "check", "launcher", "test-alert", "watch"}


def test_code_of_each_page_can_be_parsed():
    """And what it imports from the package is there."""
    for text in pages().values():
        for code in fenced(text, "python"):
            nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom)]
            assert all(hasattr(querypulse, name.name) for node in nodes for name in node.names)
        for code in fenced(text, "json"):
            assert json.loads(code)
        for code in fenced(text, "yaml"):
            assert yaml.safe_load(code)


def test_configuration_of_emr_sets_what_the_page_of_yarn_says():
    (code,) = fenced(pages()["yarn"], "json")
    defaults, env = json.loads(code)
    variable = "QUERYPULSE_AUTO_ATTACH"
    conf = {
        key: value for key, value in defaults["Properties"].items() if key.startswith(SPARK_PREFIX)
    }

    assert defaults["Properties"][f"spark.yarn.appMasterEnv.{variable}"] == "1"
    assert env["Configurations"][0]["Properties"][variable] == "1"
    assert load_settings({}, {}, conf).settings.pushgateway_url


def test_every_file_is_on_a_page():
    text = "".join(pages().values())
    paths = [path.relative_to(ROOT).as_posix() for path in deployed()]

    assert [path for path in paths if f"](../{path})" not in text] == []
