"""The settings page is complete and up to date, and its examples are valid."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

import pytest
from support.repository import ROOT

from querypulse.settings.settings import Settings, check_value

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAGE = ROOT / "docs" / "settings.md"


def rows():
    """Name and example of each setting on the page."""
    return re.findall(r"^\| `(\w+)` \|.*\| `(.+)` \|$", PAGE.read_text(), re.MULTILINE)


def test_every_setting_is_on_the_page_once():
    assert Counter(name for name, _ in rows()) == Counter(Settings.__struct_fields__)


def test_example_of_each_setting_is_valid():
    failures = {}
    for name, example in rows():
        try:
            value = check_value(name, tomllib.loads(f"value = {example}")["value"], "the page")
            assert value is not None, name
        except ValueError as error:
            failures[name] = error

    assert failures == {}


@pytest.mark.slow
def test_page_is_what_the_generator_writes(tmp_path):
    made = tmp_path / "settings.md"
    subprocess.run([sys.executable, "-m", "tools.settings", str(made)], cwd=ROOT, check=True)

    assert made.read_text() == PAGE.read_text()
