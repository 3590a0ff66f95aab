"""The page of settings: complete, up to date, and with examples that are allowed."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections import Counter

import pytest
import tomli
from support.repository import ROOT

from querypulse.sidecar.configuration.settings import Settings, check_value

GROUPS = runpy.run_path(str(ROOT / "tools" / "settings" / "groups.py"))["GROUPS"]
ROWS = [setting for group in GROUPS for setting in group.settings]


def test_every_setting_is_on_the_page_once():
    assert Counter(row.name for row in ROWS) == Counter(Settings.__struct_fields__)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_example_of_a_setting_is_allowed(row):
    example = tomli.loads(f"value = {row.example}")["value"]

    assert check_value(row.name, example, "the page") is not None


def test_the_page_is_the_one_that_the_record_gives(tmp_path):
    made = tmp_path / "settings.md"
    subprocess.run([sys.executable, "-m", "tools.settings", str(made)], cwd=ROOT, check=True)

    assert made.read_text() == (ROOT / "docs" / "settings.md").read_text()
