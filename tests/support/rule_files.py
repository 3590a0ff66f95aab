"""The shipped rules and their tests as data, and promtool over them."""

from __future__ import annotations

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
    """Every shipped rule by the name of its alert."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Its exit code and what it said."""
    return subprocess.run(
        ["promtool", *arguments], capture_output=True, text=True, check=False, timeout=120
    )


def passes(alert: str, rules: str, folder: Path) -> bool:
    """Whether the tests of an alert pass with these rules instead of the shipped ones."""
    (folder / "tests").mkdir(exist_ok=True)
    (folder / "rules.yaml").write_text(rules)
    test = folder / "tests" / f"{alert}.yaml"
    test.write_text((TESTS / test.name).read_text())
    assert promtool("check", "rules", str(folder / "rules.yaml")).returncode == 0, rules
    return promtool("test", "rules", str(test)).returncode == 0
