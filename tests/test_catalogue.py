"""Every metric is used and none is invented: dashboards, rules, runbooks and documents against the exporter."""

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
"""Metric that no dashboard, rule or runbook uses -> why it is served all the same."""

ELSEWHERE = {
    "querypulse_config": "an environment variable in lower case",
}


def without_annotations(dashboard):
    """What Grafana asks Prometheus for: the queries of panels, variables and annotations."""
    return "\n".join(texts(dashboard, {"expr", "query", "definition"}))


def texts(value, keys, under=None):
    if isinstance(value, str):
        return [value] if under in keys else []
    if isinstance(value, dict):
        return [text for key, part in value.items() for text in texts(part, keys, key)]
    parts = value if isinstance(value, list) else []
    return [text for part in parts for text in texts(part, keys, under)]


def asked():
    """Where -> the names of our metrics that are asked for there."""
    found = {f"grafana/{name}": without_annotations(one) for name, one in grafana().items()}
    found["prometheus/rules.yaml"] = "\n".join(rule["expr"] for rule in prometheus_rules())
    for name, text in runbooks().items():
        found[f"runbooks/{name}.md"] = "\n".join(fenced(text, "promql"))
    return {where: metrics_in(text) for where, text in found.items()}


@pytest.mark.parametrize("where", asked())
def test_what_is_asked_for_is_served(where):
    assert asked()[where] <= set(series())


def test_every_metric_is_asked_for_or_has_a_reason():
    used = {series()[name] for names in asked().values() for name in names if name in series()}

    assert set(families()) - used == set(UNUSED)


def test_the_manifest_asks_for_what_the_rules_ask_for():
    rules, manifest = (
        metrics_in((DASHBOARDS / "prometheus" / name).read_text())
        for name in ("rules.yaml", "prometheus-rule.yaml")
    )

    assert manifest == rules


def test_labels_in_selectors_are_labels_of_the_metric():
    """``metric{label=...}``, with what Prometheus itself adds."""
    wrong = set()
    for where, text in selectors().items():
        for name, inner in re.findall(r"\b(\w+)\{([^{}]*)\}", text):
            if name in series():
                known = {*labels_of(families()[series()[name]]), "job", "instance", "le"}
                given = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', '""', inner)))
                wrong |= {(where, name, label) for label in given - known}

    assert wrong == set()


def selectors():
    found = {f"grafana/{name}": without_annotations(one) for name, one in grafana().items()}
    found["prometheus/rules.yaml"] = "\n".join(rule["expr"] for rule in prometheus_rules())
    return found | {f"runbooks/{name}.md": text for name, text in runbooks().items()}


# -- documents --------------------------------------------------------------------------------------


def test_the_page_of_metrics_is_what_a_driver_serves():
    """``make dashboards`` writes it anew."""
    assert (ROOT / "docs" / "metrics.md").read_text() == page()


@pytest.mark.parametrize("name", markdown())
def test_a_document_names_metrics_that_there_are(name):
    """A prefix, as ``spark_streaming_query_*``, ends in an underscore and is no name."""
    named = set(METRIC.findall(re.sub(r"\w+_\*", "", markdown()[name])))

    assert named - set(ELSEWHERE) <= set(series()) | set(families())


def test_every_metric_says_what_it_means():
    assert [name for name, one in families().items() if not one.documentation.endswith(".")] == []
