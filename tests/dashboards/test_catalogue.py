"""Dashboards, rules, runbooks and documents use every metric, and only metrics that exist."""

from __future__ import annotations

import re

import pytest
from support.metrics_page import labels_of, page
from support.repository import (
    DASHBOARDS,
    METRIC,
    ROOT,
    families,
    fenced,
    grafana,
    markdown,
    metrics_in,
    prometheus_rules,
    runbooks,
    series,
)

UNUSED = {}
"""Metric that no dashboard, rule or runbook uses -> why it is exported anyway."""

ELSEWHERE = {
    "querypulse_config": "an environment variable in lower case",
}


def queries_of(dashboard):
    """What Grafana asks Prometheus for: the queries of panels, variables and annotations."""
    return "\n".join(texts(dashboard, {"expr", "query", "definition"}))


def texts(value, keys, under=None):
    if isinstance(value, str):
        return [value] if under in keys else []
    if isinstance(value, dict):
        return [text for key, part in value.items() for text in texts(part, keys, key)]
    parts = value if isinstance(value, list) else []
    return [text for part in parts for text in texts(part, keys, under)]


def used_metrics():
    """Place -> the names of our metrics that are queried there."""
    found = {f"grafana/{name}": queries_of(one) for name, one in grafana().items()}
    found["prometheus/rules.yaml"] = "\n".join(rule["expr"] for rule in prometheus_rules())
    for name, text in runbooks().items():
        found[f"runbooks/{name}.md"] = "\n".join(fenced(text, "promql"))
    return {where: metrics_in(text) for where, text in found.items()}


@pytest.mark.parametrize("where", used_metrics())
def test_every_queried_metric_is_exported(where):
    assert used_metrics()[where] <= set(series())


def test_every_metric_is_queried_or_has_a_reason():
    used = {
        series()[name] for names in used_metrics().values() for name in names if name in series()
    }

    assert set(families()) - used == set(UNUSED)


def test_manifest_queries_the_same_metrics_as_the_rules():
    rules, manifest = (
        metrics_in((DASHBOARDS / "prometheus" / name).read_text())
        for name in ("rules.yaml", "prometheus-rule.yaml")
    )

    assert manifest == rules


def test_labels_in_selectors_are_labels_of_the_metric():
    """``metric{label=...}``, including the labels that Prometheus adds."""
    wrong = set()
    for where, text in selectors().items():
        for name, inner in re.findall(r"\b(\w+)\{([^{}]*)\}", text):
            if name in series():
                known = {*labels_of(families()[series()[name]]), "job", "instance", "le"}
                given = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', '""', inner)))
                wrong |= {(where, name, label) for label in given - known}

    assert wrong == set()


def selectors():
    found = {f"grafana/{name}": queries_of(one) for name, one in grafana().items()}
    found["prometheus/rules.yaml"] = "\n".join(rule["expr"] for rule in prometheus_rules())
    return found | {f"runbooks/{name}.md": text for name, text in runbooks().items()}


# -- documents --------------------------------------------------------------------------------------


def test_page_of_metrics_matches_what_a_driver_exports():
    """``make dashboards`` writes the page."""
    assert (ROOT / "docs" / "metrics.md").read_text() == page()


@pytest.mark.parametrize("name", markdown())
def test_documents_name_only_existing_metrics(name):
    """A prefix such as ``spark_streaming_query_*`` ends in an underscore and is no name."""
    named = set(METRIC.findall(re.sub(r"\w+_\*", "", markdown()[name])))

    assert named - set(ELSEWHERE) <= set(series()) | set(families())


def test_every_metric_has_a_description():
    assert [name for name, one in families().items() if not one.documentation.endswith(".")] == []
