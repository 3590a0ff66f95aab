"""The page of settings: complete, up to date, and with examples that are allowed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

import pytest
from support.repository import ROOT

from querypulse.sidecar.configuration.settings import Settings, check_value

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAGE = ROOT / "docs" / "settings.md"
ROWS = re.findall(r"^\| `(\w+)` \|.*\| `(.+)` \|$", PAGE.read_text(), re.MULTILINE)


def test_every_setting_is_on_the_page_once():
    assert Counter(name for name, _ in ROWS) == Counter(Settings.__struct_fields__)


@pytest.mark.parametrize(("name", "example"), ROWS)
def test_the_example_of_a_setting_is_allowed(name, example):
    value = tomllib.loads(f"value = {example}")["value"]

    assert check_value(name, value, "the page") is not None


def test_the_page_is_the_one_that_the_record_gives(tmp_path):
    made = tmp_path / "settings.md"
    subprocess.run([sys.executable, "-m", "tools.settings", str(made)], cwd=ROOT, check=True)

    assert made.read_text() == PAGE.read_text()
