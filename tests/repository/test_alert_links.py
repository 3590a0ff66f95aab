"""Every alert has a runbook, and links to it. ``python -m tools.links`` checks other links."""

from __future__ import annotations

import re

import pytest
from support.repository import ROOT, markdown, own_alerts, prometheus_rules, runbooks

from querypulse.alerting.alert_text import alert_of
from querypulse.alerting.finding import Finding, Severity
from querypulse.core.states import QueryState
from querypulse.settings.links import guidance
from querypulse.settings.settings import DEFAULT_RUNBOOKS, Settings


def prometheus_alerts():
    return [rule for rule in prometheus_rules() if "alert" in rule]


def test_alerts_and_runbooks_match():
    assert set(runbooks()) == own_alerts() | {rule["alert"] for rule in prometheus_alerts()}


def test_alert_of_the_driver_links_to_its_runbook():
    for name in own_alerts():
        finding = Finding(name, "q", Severity.CRITICAL, QueryState.FAILED, "reason", "summary", {})
        shown = alert_of(finding, "app", guidance(Settings()), 0.0)

        assert shown.annotations["runbook_url"] == f"{DEFAULT_RUNBOOKS}/{name}.md"


def test_alert_of_prometheus_links_to_its_runbook():
    for rule in prometheus_alerts():
        assert rule["annotations"]["runbook_url"] == f"{DEFAULT_RUNBOOKS}/{rule['alert']}.md"


def test_runbook_address_matches_the_repository_address():
    project = (ROOT / "pyproject.toml").read_text()
    (home,) = re.findall(r'^Repository = "(.+)"$', project, re.MULTILINE)

    assert f"{home}/blob/main/dashboards/runbooks" == DEFAULT_RUNBOOKS


@pytest.mark.parametrize("document", ["docs/rules.md", "dashboards/runbooks/README.md"])
def test_every_alert_is_mentioned_in(document):
    expected = own_alerts() if document == "docs/rules.md" else set(runbooks())

    assert [name for name in sorted(expected) if name not in markdown()[document]] == []
