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
ROWS = re.findall(r"^\| `(\w+)` \|.*\| `(.+)` \|$", PAGE.read_text(), re.MULTILINE)


def test_every_setting_is_on_the_page_once():
    assert Counter(name for name, _ in ROWS) == Counter(Settings.__struct_fields__)


@pytest.mark.parametrize(("name", "example"), ROWS)
def test_example_of_a_setting_is_valid(name, example):
    value = tomllib.loads(f"value = {example}")["value"]

    assert check_value(name, value, "the page") is not None


def test_page_is_what_the_generator_writes(tmp_path):
    made = tmp_path / "settings.md"
    subprocess.run([sys.executable, "-m", "tools.settings", str(made)], cwd=ROOT, check=True)

    assert made.read_text() == PAGE.read_text()
