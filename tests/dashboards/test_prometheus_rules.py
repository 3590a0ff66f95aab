"""The shipped rules, checked with promtool: when each rule fires and when it does not."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import yaml
from support.rule_files import (
    DASHBOARDS,
    MANIFEST,
    RULES,
    TESTS,
    promtool,
    promtool_tests,
    shipped,
    text_of,
    try_rule,
)

from querypulse.alerting import rules as our_rules
from querypulse.alerting.finding import Severity
from querypulse.alerting.rules import events_missing, monitoring_degraded
from querypulse.settings.settings import DEFAULT_RUNBOOKS

pytestmark = pytest.mark.prometheus

ALERTS = shipped()
OUTSIDE = {"StreamingDriverDown", "QuerypulseDeliveryFailing", "QuerypulseWatchdog"}
"""Alerts that no driver can raise about itself."""


def cases(alert):
    return promtool_tests(alert)["tests"]


def expected(case):
    """The alerts a case expects at each of its moments."""
    return [moment["exp_alerts"] for moment in case["alert_rule_test"]]


@pytest.mark.slow
@pytest.mark.parametrize("alert", ALERTS)
def test_rule_passes_its_promtool_tests(alert, tmp_path):
    parts = list(try_rule(alert, text_of(alert), tmp_path))

    assert parts
    assert not [done.stdout + done.stderr for done in parts if done.returncode != 0]


def test_promtool_tests_run_in_their_own_folder():
    done = promtool("test", "rules", str(TESTS / "QuerypulseWatchdog.yaml"))

    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_lint_accepts_the_rules():
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES))

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_test_belongs_to_a_rule():
    assert {path.stem for path in TESTS.iterdir()} == set(ALERTS)


@pytest.mark.parametrize("alert", sorted(set(ALERTS) - {"QuerypulseWatchdog"}))
def test_each_alert_has_more_silent_cases_than_firing_ones(alert):
    reported = [any(expected(case)) for case in cases(alert)]
    moments = [bool(alerts) for case in cases(alert) for alerts in expected(case)]

    assert any(reported)
    assert reported.count(False) >= 3
    assert moments.count(False) > moments.count(True)


@pytest.mark.parametrize("alert", sorted(set(ALERTS) - {"QuerypulseWatchdog"}))
def test_each_alert_is_tested_before_during_and_after_the_problem(alert):
    stories = [
        ["firing" if alerts else "silent" for alerts in expected(case)] for case in cases(alert)
    ]

    assert any(
        story[0] == "silent" and "firing" in story and story[-1] == "silent" for story in stories
    )


@pytest.mark.parametrize("shipped_file", [RULES, MANIFEST], ids=lambda path: path.name)
def test_the_files_are_what_the_generator_writes(shipped_file, tmp_path):
    generator = [sys.executable, "-m", "tools.rules", str(tmp_path)]
    subprocess.run(generator, cwd=DASHBOARDS.parent, check=True)

    assert shipped_file.read_bytes() == (tmp_path / shipped_file.name).read_bytes()


def test_the_manifest_holds_the_same_rules():
    manifest = yaml.safe_load(MANIFEST.read_text())

    assert manifest["kind"] == "PrometheusRule"
    assert manifest["apiVersion"] == "monitoring.coreos.com/v1"
    assert manifest["spec"] == yaml.safe_load(RULES.read_text())


def test_every_alert_has_a_prometheus_rule():
    names = {sys.modules[check.__module__].NAME for check in our_rules.ORDER}

    assert names | {events_missing.NAME, monitoring_degraded.NAME} | OUTSIDE == set(ALERTS)


@pytest.mark.parametrize("alert", ALERTS)
def test_rule_has_the_same_labels_and_runbook_as_the_alert(alert):
    rule = ALERTS[alert]
    fixed = {"QuerypulseWatchdog": {"app", "query"}}.get(alert, {"query"} & rule["labels"].keys())

    assert rule["labels"].keys() == {"severity", *fixed}
    as_reported = (
        {"{{ $labels.severity }}"} if "query, severity, occurrence)" in rule["expr"] else set()
    )
    assert rule["labels"]["severity"] in {*(one.value for one in Severity), "none", *as_reported}
    assert rule["annotations"]["runbook_url"] == f"{DEFAULT_RUNBOOKS}/{alert}.md"
    assert {"summary", "description"} <= rule["annotations"].keys()


@pytest.mark.parametrize("alert", ALERTS)
def test_each_linked_runbook_exists(alert):
    assert (DASHBOARDS / "runbooks" / f"{alert}.md").is_file()


def replaced(old, new="", count=1):
    """A function that replaces a part of the rule's text; the part must exist."""

    def change(text):
        assert old in text, old
        return text.replace(old, new, count)

    return change


def without_wait(text):
    return re.sub(r"\n +for: \w+", "", text)


WATCHED = "and on (app, query) max by (app, query) (spark_streaming_query_alerting_enabled == 1)"
HEARTBEAT = "offset 5m"
LAST_SCRAPE = ">= on (app) group_left ()"
MUTANTS = [
    *((alert, "no wait", without_wait) for alert, rule in ALERTS.items() if "for" in rule),
    *((alert, "a heartbeat that has stopped", replaced(HEARTBEAT, "offset 1d"))
      for alert, rule in ALERTS.items() if HEARTBEAT in rule["expr"]),
    *((alert, "ignored queries", replaced(WATCHED))
      for alert, rule in ALERTS.items() if WATCHED in rule["expr"]),
    *((alert, "querypulse's own alert", replaced(f'alertname="{alert}"', 'alertname="Other"', 9))
      for alert, rule in ALERTS.items() if f'alertname="{alert}"' in rule["expr"]),
    *((alert, "any alert", replaced(f'{{alertname="{alert}"}}', "", 9))
      for alert, rule in ALERTS.items() if f'{{alertname="{alert}"}}' in rule["expr"]),
    *((alert, "a scrape that fails", replaced("}[5m]", "}[15s]"))
      for alert, rule in ALERTS.items() if "}[5m]" in rule["expr"]),
    *((alert, "resolved alerts", replaced(LAST_SCRAPE, f"{LAST_SCRAPE} 0 *"))
      for alert, rule in ALERTS.items() if LAST_SCRAPE in rule["expr"]),
    ("StreamingQueryFailed", "an alert that lasts", replaced('occurrence!=""', 'occurrence="none"')),
    ("StreamingQueryFailed", "the measured value", replaced("failure_info)", "failure_info > 1)")),
    ("StreamingQueryStalled", "the window", replaced("> on (app, query)", "> on (app, query) 2 *")),
    ("StreamingQueryStalled", "active queries", replaced("query_active == 1", "query_active >= 0")),
    ("StreamingQueryStalled", "tasks that finish", replaced("no_progress_seconds)\n", "no_progress_seconds) + 1e6\n")),
    ("StreamingQueryStalled", "missing", replaced('state=~"missing|stopped_unexpectedly"', 'state="none"')),
    ("StreamingQueryStalled", "continuous", replaced("Continuous.*", "None")),
    ("StreamingQueryStalled", "one cause", replaced('", query="*"}', '", query="none"}')),
    ("StreamingQueryStalled", "the first batch", replaced("or spark_streaming_query_start_timestamp_seconds")),
    ("StreamingQueryStalled", "the clock", replaced("max by (app) (querypulse_driver_heartbeat_timestamp_seconds)", "vector(time())")),
    ("StreamingBatchSlow", "the window", replaced("> on (app, query)", "> on (app, query) 5 *")),
    ("StreamingBatchSlow", "tasks that finish", replaced("no_progress_seconds)\n", "no_progress_seconds) * 0\n")),
    ("StreamingBatchSlow", "the first batch", replaced("last_commit_timestamp_seconds", "watched")),
    ("StreamingQueryLagging", "the allowance", replaced("> on (app, query)", "> on (app, query) 0 *")),
    ("StreamingQueryLagging", "falling", replaced("max_over_time(", "0 * max_over_time(")),
    ("StreamingQueryLagging", "rising", replaced(" > spark_streaming_source_lag_offsets offset", " >= spark_streaming_source_lag_offsets offset")),
    ("StreamingQueryLagging", "commits", replaced(">= 3", ">= 0")),
    ("StreamingQueryLagging", "more severe alerts", replaced("stalled|")),
    ("StreamingQueryLagging", "the severity", replaced(" by (app, query, severity, occurrence)", " by (app, query)")),
    ("StreamingQueryLagging", "querypulse knows more", replaced('severity!="warning"', 'severity="none"')),
    ("StreamingDataLossRisk", "the severity", replaced("query, severity, occurrence)", "query)")),
    ("StreamingQueryFlapping", "the budget", replaced(">= on (app, query)", ">= on (app, query) 0.6 *")),
    ("StreamingQueryFlapping", "the outcome", replaced('{outcome="failed"}', "", 2)),
    ("StreamingQueryFlapping", "the time", replaced("[10m]", "[1h]")),
    ("StreamingQueryFailed", "supervised queries", replaced("unless on (app, query) max by (app, query) (spark_streaming_query_supervised)")),
    ("StreamingQueryFlapping", "supervised queries", replaced("unless on (app, query) max by (app, query) (spark_streaming_query_supervised)")),
    ("StreamingDriverDown", "an expected driver", replaced("driver_expected_", "driver_heartbeat_")),
    ("StreamingDriverDown", "the newest driver", replaced(">= on (app)", ">= on (app) 0 *")),
    ("StreamingDriverDown", "a heartbeat that has stopped", replaced("offset 2m", "offset 1d")),
    ("StreamingDriverDown", "the day", replaced("[1d]", "[2d]", 2)),
    ("QuerypulseEventsMissing", "late events", replaced("> 120", "> 60")),
    ("QuerypulseEventsMissing", "active queries", replaced("query_active == 1", "query_active >= 0")),
    ("QuerypulseEventsMissing", "continuous", replaced("Continuous.*", "None")),
    ("QuerypulseMonitoringDegraded", "no probe", replaced("count > 0", "count >= 0")),
    ("QuerypulseMonitoringDegraded", "a slow poll", replaced("offset 3m", "offset 1m")),
    ("QuerypulseMonitoringDegraded", "the JVM", replaced("StreamingQueryStalled|")),
    ("QuerypulseMonitoringDegraded", "the SparkContext", replaced("|StreamingQueryStopped")),
    ("QuerypulseMonitoringDegraded", "the affected driver", replaced("on (job, instance)", "on (job)")),
    ("QuerypulseDeliveryFailing", "pending alerts", replaced("pending > 0", "pending > 9")),
    ("QuerypulseDeliveryFailing", "obsolete alerts", replaced('reason!="obsolete"', 'reason!="none"', 2)),
    ("QuerypulseDeliveryFailing", "long ago", replaced("[1h]", "[1d]")),
    ("QuerypulseDeliveryFailing", "keep_firing_for", replaced("keep_firing_for: 10m", "keep_firing_for: 1m")),
    ("QuerypulseWatchdog", "constant firing", replaced("vector(1)", "up")),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("alert", "change"),
    [(alert, change) for alert, _, change in MUTANTS],
    ids=[f"{alert}-{what}" for alert, what, _ in MUTANTS],
)
def test_mutated_rule_fails_its_tests(alert, change, tmp_path):
    """Otherwise the part of the rule, or its test, has no effect."""
    done = try_rule(alert, change(text_of(alert)), tmp_path)

    assert any(part.returncode != 0 for part in done)


def test_every_alert_is_mutated():
    assert {alert for alert, _, _ in MUTANTS} == set(ALERTS)
