"""The shipped rules and their tests as data, and promtool over them."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
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


@cache
def promtool_tests(alert: str) -> dict[str, Any]:
    """The promtool tests of an alert."""
    return yaml.safe_load((TESTS / f"{alert}.yaml").read_text())


def try_rule(
    alert: str, rule: str, folder: Path, *, case: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the promtool tests of an alert with ``rule`` in place of the shipped rule.

    ``case`` chooses the one whose name begins so: each takes a tenth of a second. The other rules
    are left out, because promtool would evaluate them all at every step.
    """
    rules = folder / "rules.yaml"
    rules.write_text(f"groups:\n  - name: alone\n    rules:\n{rule}\n")
    assert promtool("check", "rules", str(rules)).returncode == 0, rule
    tests = promtool_tests(alert)
    cases = [one for one in tests["tests"] if one["name"].startswith(case)]
    assert len(cases) == 1 or not case, f"{len(cases)} cases of {alert} begin with {case!r}"
    (folder / "tests").mkdir()
    path = folder / "tests" / f"{alert}.yaml"
    # Whatever is JSON is YAML.
    path.write_text(json.dumps(tests | {"tests": cases}))
    return promtool("test", "rules", str(path))
