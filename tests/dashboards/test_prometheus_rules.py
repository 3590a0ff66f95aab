"""The shipped rules, checked with promtool: when each rule fires and when it does not; and how
Prometheus scrapes drivers.
"""

from __future__ import annotations

import subprocess

import pytest
import yaml
from support.prometheus import accepted, run_tool
from support.repository import DASHBOARDS, ROOT, RULES, fenced, rules_of
from support.rule_steps import FILES, steps_of, with_steps

from querypulse.alerting.kinds import ALERT_NAMES

OUTSIDE = {
    "StreamingDriverDown",
    "StreamingQueryMissing",
    "QuerypulseDeliveryFailing",
    "QuerypulseWatchdog",
}
"""Alerts that no driver can raise about itself, or, once it has ended, about a run that is late."""


@pytest.mark.prometheus
@pytest.mark.parametrize("name", ["drivers", "queries", "freshness", "fleet"])
def test_rules_fire_when_their_promtool_tests_say_so_and_pass_its_lint(name):
    accepted("promtool", "test", "rules", RULES / "tests" / f"{name}.yaml")
    accepted("promtool", "check", "rules", "--lint=all", "--lint-fatal", RULES / f"{name}.yaml")


@pytest.mark.nightly
@pytest.mark.prometheus
@pytest.mark.fault("driver", "is dead for 30 days, and Prometheus is the sender", "its alerts fire")
def test_alerts_of_a_dead_driver_end_by_its_return_or_by_somebody_and_never_by_age():
    accepted("promtool", "test", "rules", RULES / "tests" / "outages.yaml")


@pytest.mark.slow
@pytest.mark.prometheus
def test_a_budget_of_thirty_days_burns_slowly_from_44_late_minutes_in_three_days_on():
    accepted("promtool", "test", "rules", RULES / "tests" / "freshness-days.yaml")


def test_each_alert_of_a_driver_has_a_rule_of_the_same_form_and_so_has_what_none_can_report():
    """So that the promtool tests of two of them hold for all."""
    rules = [rule for rule in rules_of("queries") if "alert" in rule]
    assert {rule["alert"] for rule in rules_of("drivers") if "alert" in rule} == OUTSIDE

    assert {rule["alert"]: rule["expr"] for rule in rules} == {
        name: f'spark_streaming_query_alert:open{{alertname="{name}"}}' for name in ALERT_NAMES
    }
    assert {key for rule in rules for key in rule} == {"alert", "expr", "annotations"}


def test_rules_have_the_annotations_of_a_drivers_alert_and_the_steps_of_their_runbook():
    """So that one template of Alertmanager fits both. ``make dashboards`` writes the steps."""
    shared = {"summary", "description", "next_steps", "runbook_url"}
    alerts = {
        name: {rule["alert"]: rule["annotations"] for rule in rules_of(name) if "alert" in rule}
        for name in ("drivers", "queries", "freshness")
    }
    every = [*alerts["drivers"].items(), *alerts["queries"].items()]

    assert [name for name, shown in every if not shared <= shown.keys()] == []
    for name, shown in alerts["queries"].items():
        assert shown["next_steps"] == steps_of(name)
    assert [path.name for path in FILES if path.read_text() != with_steps(path)] == []


def test_late_run_without_a_driver_has_steps_that_need_none():
    (steps,) = (
        rule["annotations"]["next_steps"]
        for rule in rules_of("drivers")
        if rule.get("alert") == "StreamingQueryMissing"
    )

    assert "1. Check the scheduler" in steps
    assert [word for word in ("status page", "typo", "expected_queries") if word in steps] == []


def test_documented_command_wraps_the_rules_for_the_operator():
    commands = fenced((ROOT / "docs" / "prometheus.md").read_text(), "sh")
    (command,) = [text for text in commands if "PrometheusRule" in text]
    shell = ["sh", "-c", command.replace("| kubectl apply -f -", "")]
    manifest = yaml.safe_load(subprocess.check_output(shell, cwd=RULES, text=True))

    kind = manifest["apiVersion"], manifest["kind"]
    assert kind == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert manifest["spec"] == yaml.safe_load((RULES / "queries.yaml").read_text())


MUTANTS = [
    ("drivers", "for: 5m", "for: 4m"),
    (
        "drivers",
        "driver_expected_timestamp_seconds[10m]",
        "driver_heartbeat_timestamp_seconds[10m]",
    ),
    ("drivers", ">= bool max", ">= bool 0 * max"),
    ("drivers", "or 0 * max", "or 1 * max"),
    ("drivers", "last[1d]) > 0", "last[1d]) < 0"),
    ("drivers", "seconds:last > 0", "seconds:last >= 0"),
    ("drivers", "offset 2m", "offset 1d"),
    ("drivers", "without (instance, pod)", "by (app, job)"),
    ("drivers", "without (instance, pod)", "without (instance)"),
    ("drivers", "seconds[10m]) > 0", "seconds[10m]) >= 0"),
    ("drivers", "> 0\n            and (", "> 0\n            and on (job) ("),
    ("drivers", "outbox_pending) > 0", "outbox_pending) > 9"),
    ("drivers", 'reason!="obsolete"', 'reason!="none"'),
    ("drivers", "[1h]", "[3h]"),
    ("drivers", "for: 10m\n", "for: 5m\n"),
    ("drivers", "keep_firing_for: 10m", "keep_firing_for: 0s"),
    ("drivers", "vector(1)", "up"),
    ("queries", "alert[10m]", "alert[15s]"),
    ("queries", "alert[10m]", "alert[1d]"),
    ("queries", "max without", "min without"),
    ("queries", "without (instance, pod)", "without (instance)"),
    ("queries", "without (instance, pod)", "by (app, query, alertname, severity)"),
    ("queries", "seconds[10m]) > 0", "seconds[10m]) >= 0"),
    ("queries", "alert:last == 1", "alert:last >= 0"),
    ("queries", "StreamingQueryFailed|", ""),
    ("queries", '=~"StreamingQueryFailed|StreamingQueryGivenUp"', '=~".+"'),
    ("queries", "seconds:last[1d]) > 0", "seconds:last[1d]) < 0"),
    ("queries", "seconds:last[1d]) > 0", "seconds:last[1d]) >= 0"),
    ("queries", "unless ignoring", "and ignoring"),
    ("queries", "or 0 *", "or 1 *"),
    ("freshness", "seconds[5m]))\n          or 0 *", "seconds[30m]))\n          or 0 *"),
    ("freshness", "or 0 *", "or 1 *"),
    ("freshness", "[1d]) > 0", "[1d]) >= 0"),
    ("freshness", "[1d]) > 0", "[1d]) < 0"),
    (
        "freshness",
        "objective[5m]))\n          or last_over_time",
        "objective[5m]))\n          and last_over_time",
    ),
    ("freshness", "without (instance, pod)", "without (pod)"),
    ("freshness", "offset 2m", "offset 1d"),
    ("freshness", "< bool time()", "< bool time() - 3600"),
    ("freshness", "> 14.4 *", "> 13 *"),
    ("freshness", "> 14.4 *", "> 15 *"),
    ("freshness", "late5m > 14.4", "late30m > 14.4"),
    ("freshness", "> 6 *", "> 5.8 *"),
    ("freshness", "> 6 *", "> 6.5 *"),
    ("freshness", "late30m > 6", "late1h > 6"),
    ("freshness", "> 1 *", "> 0.98 *"),
    ("freshness", "> 1 *", "> 1.03 *"),
    ("freshness", "late6h > 1", "late3d > 1"),
    ("freshness", "severity: critical", "severity: warning"),
    (
        "queries",
        "max without (instance, pod) (spark_streaming_query_alert_cause)\n            or",
        "max without (pod) (spark_streaming_query_alert_cause)\n            or",
    ),
    ("queries", "unless ignoring (cause) max", "and ignoring (cause) max"),
    ("queries", "and ignoring (cause, severity) (spark", "or ignoring (cause, severity) (spark"),
    ("queries", "group_left (cause)", "group_left ()"),
    ("queries", "unless ignoring (cause, severity) spark", "and ignoring (cause, severity) spark"),
    ("fleet", "dataset[10m]", "dataset[15s]"),
    (
        "fleet",
        "and on (env, cluster, namespace, app) ALERTS_FOR_STATE",
        "unless on (env, cluster, namespace, app) ALERTS_FOR_STATE",
    ),
    ("fleet", 'dataset_namespace=~"[a-z0-9]+://.+",', 'dataset_namespace=~".+",'),
    ("fleet", "localhost|", "nohost|"),
    ("fleet", "127[.]", "128[.]"),
    ("fleet", "|catalog://spark_catalog", "|catalog://none"),
    ("fleet", '"stopped|completed"', '"stopped"'),
    ("fleet", '"stopped|completed"', '"completed"'),
    ("fleet", "(Failed|GivenUp|Stopped|Missing|Stalled)", "(Failed|GivenUp|Stopped|Missing)"),
    (
        "fleet",
        '(Failed|GivenUp|Stopped|Missing|Stalled)"',
        '(Failed|GivenUp|Stopped|Missing|Stalled)|StreamingBatchSlow"',
    ),
    ("fleet", "alert[10m]) == 1)", "alert[10m]) >= 0)"),
    (
        "fleet",
        'ALERTS_FOR_STATE{alertname="StreamingDriverDown"}\n                  or',
        'ALERTS_FOR_STATE{alertname="StreamingDriverUp"}\n                  or',
    ),
    ("fleet", "(Failed|Stopped|Stalled)|Streaming", "(Failed|Stopped)|Streaming"),
    (
        "fleet",
        "bottomk by (env, cluster, dataset_namespace, dataset_name) (1,",
        "topk by (env, cluster, dataset_namespace, dataset_name) (1,",
    ),
    (
        "fleet",
        "bottomk by (env, cluster, namespace, app, query) (1,",
        "topk by (env, cluster, namespace, app, query) (1,",
    ),
    ("fleet", "by (env, cluster, dataset_namespace", "by (cluster, dataset_namespace"),
    ("fleet", ", dataset_namespace, dataset_name", ", dataset_name"),
    (
        "fleet",
        "unless on (env, cluster, dataset_namespace, dataset_name) (\n            spark_streaming_query_dataset:writer",
        "and on (env, cluster, dataset_namespace, dataset_name) (\n            spark_streaming_query_dataset:writer",
    ),
    ("fleet", '{state="idle"} == 1', '{state=~"idle|running"} == 1'),
    (
        "fleet",
        "unless on (env, cluster, namespace, app, query) (\n            spark_streaming_query_dataset:reader",
        "and on (env, cluster, namespace, app, query) (\n            spark_streaming_query_dataset:reader",
    ),
    ("fleet", '{hop=~"[0-4]"}', '{hop=~"[0-3]"}'),
    ("fleet", '{hop=~"[0-1]"}', '{hop=~"[0-5]"}'),
    ("fleet", 'hop!="0"', 'hop!="9"'),
    ("fleet", "for: 5m", "for: 4m"),
    ("fleet", "for: 5m", "for: 6m"),
    ("fleet", "without (hop)", "without (nothing)"),
    ("fleet", 'labels: {hop: "5"}', 'labels: {hop: "0"}'),
]


@pytest.mark.nightly
@pytest.mark.prometheus
@pytest.mark.parametrize(("name", "old", "new"), MUTANTS)
def test_each_part_of_a_rule_matters_to_its_tests(name, old, new, tmp_path):
    for path in (*RULES.glob("*.yaml"), *RULES.glob("tests/*.yaml")):
        copy = tmp_path / path.relative_to(RULES)
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(path.read_text())
    rules = tmp_path / f"{name}.yaml"
    assert old in rules.read_text()
    rules.write_text(rules.read_text().replace(old, new))

    accepted("promtool", "check", "rules", rules)
    tests = sorted((tmp_path / "tests").glob(f"{name}*.yaml"))
    assert any(run_tool("promtool", "test", "rules", file).returncode == 1 for file in tests)


# -- scraping -----------------------------------------------------------------------------------


def documented(key):
    """The only YAML block of the page with this key."""
    page = (ROOT / "docs/prometheus.md").read_text()
    blocks = map(yaml.safe_load, fenced(page, "yaml"))
    (block,) = [block for block in blocks if key in block]
    return block


def test_each_scrape_configuration_and_the_shipped_monitor_keep_the_labels_of_querypulse():
    shipped = yaml.safe_load((DASHBOARDS / "compose/prometheus.yaml").read_text())
    configs = documented("scrape_configs")["scrape_configs"] + shipped["scrape_configs"]
    monitor = yaml.safe_load((ROOT / "deploy/kubernetes/base/podmonitor.yaml").read_text())

    assert {config["honor_labels"] for config in configs} == {True}
    assert {end["honorLabels"] for end in monitor["spec"]["podMetricsEndpoints"]} == {True}


@pytest.mark.prometheus
def test_promtool_accepts_the_documented_configuration(tmp_path):
    file = tmp_path / "prometheus.yaml"
    file.write_text(yaml.safe_dump(documented("scrape_configs")))

    accepted("promtool", "check", "config", "--syntax-only", file)
