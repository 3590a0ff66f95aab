"""The shipped rules and their tests as data, and promtool over them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

DASHBOARDS = Path(__file__).parents[2] / "dashboards"
FOLDER = DASHBOARDS / "prometheus"
RULES = FOLDER / "rules.yaml"
MANIFEST = FOLDER / "prometheus-rule.yaml"
TESTS = FOLDER / "tests"


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


def try_rule(alert: str, rule: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the promtool tests of an alert with ``rule`` in place of the shipped rule.

    The other rules are left out, because promtool would evaluate them all at every step.
    """
    (folder / "tests").mkdir()
    rules = folder / "rules.yaml"
    rules.write_text(f"groups:\n  - name: alone\n    rules:\n{rule}\n")
    test = folder / "tests" / f"{alert}.yaml"
    test.write_text((TESTS / test.name).read_text())
    assert promtool("check", "rules", str(rules)).returncode == 0, rule
    return promtool("test", "rules", str(test))
