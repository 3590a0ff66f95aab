"""The rules of Grafana's dashboard-linter that concern Prometheus, in our own words.

Their names are the linter's. ``EXCLUDED`` lists the deliberate exceptions and their reasons.
"""

from __future__ import annotations

import re

import pytest
from support.panels import DASHBOARDS, every_panel, every_target, selectors, variables

EXCLUDED = {
    "target-job-rule": "ALERTS is made by Prometheus itself and has no job",
    "target-instance-rule": "ALERTS is made by Prometheus itself and has no instance",
    "target-rate-interval-rule": "a total counts the time shown: $__range",
}
"""Deliberate exceptions to a rule; the tests below show their extent."""

PROMETHEUS = {"type": "prometheus", "uid": "${datasource}"}
RANGES = re.compile(r"(\w+)\s*\([^()]*\{[^{}]*\}\[([^\]]+)\]")

each_dashboard = pytest.mark.parametrize("name", DASHBOARDS)
each_panel = pytest.mark.parametrize("name", every_panel())
each_target = pytest.mark.parametrize("name", every_target())


def variable(name, which):
    return next(one for one in DASHBOARDS[name]["templating"]["list"] if one["name"] == which)


@each_dashboard
def test_template_datasource(name):
    datasource = variable(name, "datasource")

    assert datasource["type"] == "datasource"
    assert datasource["query"] == "prometheus"
    assert datasource["label"] == "Data source"


@each_dashboard
@pytest.mark.parametrize("which", ["job", "instance"])
def test_template_job_and_instance(name, which):
    found = variable(name, which)

    assert found["datasource"] == PROMETHEUS
    assert found["type"] == "query"
    assert found["label"]
    assert found["multi"]
    assert found["includeAll"]
    assert found["allValue"] == ".+"


@each_dashboard
def test_template_label_promql(name):
    for found in variables(DASHBOARDS[name]):
        assert re.fullmatch(
            rf"label_values\([a-z_]+(\{{[^{{}}]+\}})?, {found['name']}\)", found["query"]["query"]
        )


@each_dashboard
def test_template_on_time_change_reload(name):
    assert {found["refresh"] for found in variables(DASHBOARDS[name])} == {2}


@each_panel
def test_panel_datasource(name):
    panel = every_panel()[name]

    assert panel["datasource"] == PROMETHEUS
    assert all(target["datasource"] == PROMETHEUS for target in panel["targets"])


@each_panel
def test_panel_title_description(name):
    panel = every_panel()[name]

    assert panel["title"]
    assert len(panel["description"]) > 40


@each_panel
def test_panel_units(name):
    assert every_panel()[name]["fieldConfig"]["defaults"]["unit"]


@each_panel
def test_panel_no_targets(name):
    assert every_panel()[name]["targets"]


@each_target
def test_target_job_and_instance(name):
    found = selectors(every_target()[name]["expr"])

    assert found
    for metric, matchers in found:
        if metric != "ALERTS":
            assert 'job=~"$job"' in matchers, EXCLUDED["target-job-rule"]
            assert 'instance=~"$instance"' in matchers, EXCLUDED["target-instance-rule"]


@each_target
def test_target_rate_interval(name):
    for function, span in RANGES.findall(every_target()[name]["expr"]):
        if function in {"rate", "irate", "deriv"}:
            assert span == "$__rate_interval"
        elif function == "increase":
            assert span in {"$__rate_interval", "$__range"}, EXCLUDED["target-rate-interval-rule"]
        else:
            assert function in {"last_over_time", "sum_over_time"}


@each_target
def test_target_counter_agg(name):
    """A counter restarts at 0 with its driver, so only its growth is meaningful."""
    for metric, matchers in selectors(every_target()[name]["expr"]):
        if metric.endswith(("_total", "_bucket", "_sum", "_count")):
            used = re.escape(f"{metric}{{{matchers}}}[")
            assert re.search(rf"(rate|increase)\({used}", every_target()[name]["expr"])


@each_dashboard
def test_uneditable_dashboard(name):
    assert DASHBOARDS[name]["editable"] is False


def test_target_rules_find_promql_to_check():
    """The rules match PromQL by regular expressions, so they must find something in ours."""
    functions = {
        function for one in every_target().values() for function, _ in RANGES.findall(one["expr"])
    }

    assert functions == {"rate", "increase", "deriv", "last_over_time", "sum_over_time"}
