"""The dashboards' PromQL parses and uses metrics that the exporter has."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
import yaml
from support.panels import DASHBOARDS, every_expression, every_target, filled, selectors, variables
from support.published_states import full_published

from querypulse.exporter.metrics import QueryCollector

FROM_PROMETHEUS = {"ALERTS"}
"""Series that Prometheus creates itself."""


def shipped():
    """The names of all series that the exporter may have."""
    families = list(QueryCollector(full_published).collect())
    endings = {"counter": ["_total"], "info": ["_info"], "histogram": ["_bucket", "_sum", "_count"]}
    return {f"{one.name}{end}" for one in families for end in endings.get(one.type, [""])}


def checked(tmp_path, expressions):
    """The result of promtool for these expressions, each in a rule of its own."""
    rules = [
        {"record": f"expression_{number}", "expr": expression}
        for number, expression in enumerate(expressions)
    ]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    command = [shutil.which("promtool"), "check", "rules", "--lint=none", str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.prometheus
def test_every_query_parses(tmp_path):
    expressions = [filled(expression) for expression in every_expression().values()]

    done = checked(tmp_path, expressions)

    assert (done.returncode, done.stderr) == (0, "")
    assert f"{len(expressions)} rules found" in done.stdout


@pytest.mark.prometheus
def test_query_that_does_not_parse_is_detected(tmp_path):
    assert checked(tmp_path, ["sum by (app ("]).returncode != 0


def test_every_used_metric_exists():
    used = {metric for one in every_expression().values() for metric, _ in selectors(one)}

    assert len(used) > 30
    assert used - shipped() == FROM_PROMETHEUS


def test_every_metric_of_a_variable_exists():
    asked = [one["query"]["query"] for board in DASHBOARDS.values() for one in variables(board)]

    assert all(
        text[len("label_values(") :].partition("{")[0].partition(",")[0] in shipped()
        for text in asked
    )


@pytest.mark.parametrize("name", every_target())
def test_legend_uses_labels_that_its_query_keeps(name):
    """The live tests check this too, but not for a series that is rightly absent."""
    target = every_target()[name]
    used = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
    kept = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", target["expr"]))))

    assert used <= kept
