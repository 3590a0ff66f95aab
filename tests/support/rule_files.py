"""The shipped rules and their tests as data, and promtool over them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

DASHBOARDS = Path(__file__).parents[2] / "dashboards"
FOLDER = DASHBOARDS / "prometheus"
RULES = FOLDER / "rules.yaml"
MANIFEST = FOLDER / "prometheus-rule.yaml"
TESTS = FOLDER / "tests"
CASES_AT_ONCE = 4


def shipped() -> dict[str, dict[str, Any]]:
    """Every shipped rule, by the name of its alert."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The exit code and the output of promtool."""
    return subprocess.run(
        ["promtool", *arguments], capture_output=True, text=True, check=False, timeout=120
    )


def text_of(alert: str) -> str:
    """The text of a shipped rule."""
    _, mark, rest = RULES.read_text().partition(f"      - alert: {alert}\n")
    return mark + re.split(r"\n(?:      - alert:|  - name:)", rest)[0]


@cache
def promtool_tests(alert: str) -> dict[str, Any]:
    """The promtool tests of an alert."""
    return yaml.safe_load((TESTS / f"{alert}.yaml").read_text())


def try_rule(alert: str, rule: str, folder: Path) -> Iterator[subprocess.CompletedProcess[str]]:
    """Run the promtool tests of an alert with ``rule`` in place of the shipped rule, part by part.

    The other rules are left out, because promtool would evaluate them all at every step. Each of
    the cases takes a tenth of a second.
    """
    rules = folder / "rules.yaml"
    rules.write_text(f"groups:\n  - name: alone\n    rules:\n{rule}\n")
    assert promtool("check", "rules", str(rules)).returncode == 0, rule
    tests = promtool_tests(alert)
    cases = tests["tests"]
    (folder / "tests").mkdir()
    for first in range(0, len(cases), CASES_AT_ONCE):
        part = folder / "tests" / f"{alert}-{first}.yaml"
        # Whatever is JSON is YAML.
        part.write_text(json.dumps(tests | {"tests": cases[first : first + CASES_AT_ONCE]}))
        yield promtool("test", "rules", str(part))
