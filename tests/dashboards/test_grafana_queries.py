"""The dashboards' PromQL parses and uses metrics that the exporter has."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
import yaml
from support.panels import every_expression, every_target, filled


def checked(tmp_path, expressions):
    """The result of promtool for these expressions, each in a rule of its own."""
    rules = [
        {"record": f"expression_{number}", "expr": expression}
        for number, expression in enumerate(expressions)
    ]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    command = [shutil.which("promtool"), "check", "rules", "--lint=none", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.prometheus
def test_every_query_parses(tmp_path):
    expressions = [filled(expression) for expression in every_expression().values()]

    done = checked(tmp_path, expressions)

    assert (done.returncode, done.stderr) == (0, "")
    assert f"{len(expressions)} rules found" in done.stdout


def test_legends_use_labels_that_their_queries_keep():
    """The live tests check this too, but not for a series that is rightly absent."""
    lost = {}
    for name, target in every_target().items():
        used = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        kept = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", target["expr"]))))
        lost[name] = used - kept

    assert {name: labels for name, labels in lost.items() if labels} == {}
