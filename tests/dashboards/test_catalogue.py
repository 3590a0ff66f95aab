"""Dashboards, rules, runbooks and documents use every metric, and only metrics that exist."""

from __future__ import annotations

import re

from support.metrics_page import labels_of, page
from support.panels import DASHBOARDS, values_of
from support.repository import ROOT, families, fenced, markdown, prometheus_rules, runbooks, series

METRIC = re.compile(r"\b(?:spark_streaming|querypulse)_[a-z_]*[a-z]\b")
ENVIRONMENT = {"querypulse_config"}
MEMBERS = {"querypulse_version"}
"""Of the first line of a recording."""
"""A variable of the environment in lower case."""


def queries_of(dashboard):
    """What Grafana asks Prometheus for: the queries of panels, variables and annotations."""
    asked = [text for key in ("expr", "query", "definition") for text in values_of(dashboard, key)]
    return "\n".join(text for text in asked if isinstance(text, str))


def shipped_queries():
    """Place -> what dashboards and rules ask for."""
    queries = {f"grafana/{name}": queries_of(dashboard) for name, dashboard in DASHBOARDS.items()}
    queries["prometheus"] = "\n".join(rule["expr"] for rule in prometheus_rules())
    return queries


def used_metrics():
    """Place -> the names of our metrics that are queried there."""
    queries = shipped_queries()
    for name, text in runbooks().items():
        queries[f"runbooks/{name}.md"] = "\n".join(fenced(text, "promql"))
    return {where: set(METRIC.findall(text)) for where, text in queries.items()}


def test_every_queried_metric_is_exported():
    unknown = {where: names - set(series()) for where, names in used_metrics().items()}

    assert {where: names for where, names in unknown.items() if names} == {}


def test_every_metric_is_queried():
    used = {series()[name] for names in used_metrics().values() for name in names}

    assert set(families()) - used == set()


def test_labels_in_selectors_are_labels_of_the_metric():
    """``metric{label=...}``, including the labels that Prometheus adds."""
    wrong = set()
    for where, text in {**shipped_queries(), **runbooks()}.items():
        for name, inner in re.findall(r"\b(\w+)\{([^{}]*)\}", text):
            if name in series():
                labels = {*labels_of(families()[series()[name]]), "job", "instance", "le"}
                given = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', '""', inner)))
                wrong |= {(where, name, label) for label in given - labels}

    assert wrong == set()


def test_page_of_metrics_matches_what_a_driver_exports_with_a_description_of_each():
    """``make dashboards`` writes the page."""
    assert (ROOT / "docs" / "metrics.md").read_text() == page()
    assert {family.documentation[-1:] for family in families().values()} == {"."}


def test_documents_name_only_existing_metrics():
    """A prefix such as ``spark_streaming_query_*`` ends in an underscore and is no name."""
    exist = {*series(), *families(), *ENVIRONMENT, *MEMBERS}
    unknown = {
        name: set(METRIC.findall(re.sub(r"\w+_\*", "", text))) - exist
        for name, text in markdown().items()
    }

    assert {name: names for name, names in unknown.items() if names} == {}
