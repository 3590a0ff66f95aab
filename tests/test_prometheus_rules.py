"""The shipped rules by Prometheus' own tools: what each fires for, and what it does not."""

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
    shipped,
    text_of,
    try_rule,
)

from querypulse.alerting import rules as our_rules
from querypulse.alerting.finding import Severity
from querypulse.alerting.rules import listener_deaf, monitor_blind
from querypulse.sidecar.configuration.settings import DEFAULT_RUNBOOKS

pytestmark = pytest.mark.prometheus

ALERTS = shipped()
OUTSIDE = {"DriverGone", "PagesNotDelivered", "Watchdog"}
"""Alerts that no driver can tell of itself."""


def cases(alert):
    return yaml.safe_load((TESTS / f"{alert}.yaml").read_text())["tests"]


def expected(case):
    """What is expected of a case at each of its moments."""
    return [moment["exp_alerts"] for moment in case["alert_rule_test"]]


@pytest.mark.slow
@pytest.mark.parametrize("alert", ALERTS)
def test_promtool_finds_the_rule_to_fire_and_to_be_silent_as_its_tests_say(alert, tmp_path):
    done = try_rule(alert, text_of(alert), tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_tests_find_the_rules_from_where_they_lie():
    done = promtool("test", "rules", str(TESTS / "Watchdog.yaml"))

    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_finds_nothing_to_complain_of():
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES))

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_test_belongs_to_a_rule():
    assert {path.stem for path in TESTS.iterdir()} == set(ALERTS)


@pytest.mark.parametrize("alert", sorted(set(ALERTS) - {"Watchdog"}))
def test_each_alert_is_tested_to_be_silent_more_often_than_to_fire(alert):
    told = [any(expected(case)) for case in cases(alert)]
    moments = [bool(alerts) for case in cases(alert) for alerts in expected(case)]

    assert any(told)
    assert told.count(False) >= 3
    assert moments.count(False) > moments.count(True)


@pytest.mark.parametrize("alert", sorted(set(ALERTS) - {"Watchdog"}))
def test_each_alert_is_tested_one_step_too_early_and_when_it_is_over(alert):
    stories = [
        ["told" if alerts else "silent" for alerts in expected(case)] for case in cases(alert)
    ]

    assert any(
        story[0] == "silent" and "told" in story and story[-1] == "silent" for story in stories
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


def test_every_verdict_of_ours_has_its_rule():
    modules = [check.__module__ for check in our_rules.ORDER]
    names = {
        re.sub(r"(?:^|_)(\w)", lambda m: m[1].upper(), one.rpartition(".")[2]) for one in modules
    }

    assert names | {listener_deaf.NAME, monitor_blind.NAME} | OUTSIDE == set(ALERTS)


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_has_the_labels_and_links_of_ours(alert):
    rule = ALERTS[alert]
    fixed = {"Watchdog": {"app", "query"}}.get(alert, {"query"} & rule["labels"].keys())

    assert rule["labels"].keys() == {"severity", *fixed}
    as_told = {"{{ $labels.severity }}"} if "query, severity)" in rule["expr"] else set()
    assert rule["labels"]["severity"] in {*(one.value for one in Severity), "none", *as_told}
    assert rule["annotations"]["runbook_url"] == f"{DEFAULT_RUNBOOKS}/{alert}.md"
    assert {"summary", "description"} <= rule["annotations"].keys()


@pytest.mark.parametrize("alert", ALERTS)
def test_each_runbook_that_is_linked_is_there(alert):
    assert (DASHBOARDS / "runbooks" / f"{alert}.md").is_file()


def replaced(old, new="", count=1):
    """A change of the rule's text; the expression must hold what is replaced."""

    def change(text):
        assert old in text, old
        return text.replace(old, new, count)

    return change


def without_wait(text):
    return re.sub(r"\n +for: \w+", "", text)


WATCHED = "and on (app, query) max by (app, query) (spark_streaming_query_watched == 1)"
HEART = "offset 5m"
LAST_SCRAPE = ">= on (app) group_left ()"
MUTANTS = [
    *((alert, "no wait", without_wait) for alert, rule in ALERTS.items() if "for" in rule),
    *((alert, "a standing heart", replaced(HEART, "offset 1d"))
      for alert, rule in ALERTS.items() if HEART in rule["expr"]),
    *((alert, "ignored queries", replaced(WATCHED))
      for alert, rule in ALERTS.items() if WATCHED in rule["expr"]),
    *((alert, "querypulse's own alert", replaced(f'alertname="{alert}"', 'alertname="Other"', 9))
      for alert, rule in ALERTS.items() if f'alertname="{alert}"' in rule["expr"]),
    *((alert, "any alert", replaced(f'{{alertname="{alert}"}}', "", 9))
      for alert, rule in ALERTS.items() if f'{{alertname="{alert}"}}' in rule["expr"]),
    *((alert, "a scrape that fails", replaced("}[5m]", "}[15s]"))
      for alert, rule in ALERTS.items() if "}[5m]" in rule["expr"]),
    *((alert, "what had resolved", replaced(LAST_SCRAPE, f"{LAST_SCRAPE} 0 *"))
      for alert, rule in ALERTS.items() if LAST_SCRAPE in rule["expr"]),
    ("QueryFailed", "what was measured", replaced("failure_info)", "failure_info > 1)")),
    ("CommitStalled", "the window", replaced("> on (app, query)", "> on (app, query) 2 *")),
    ("CommitStalled", "life", replaced("query_active == 1", "query_active >= 0")),
    ("CommitStalled", "tasks that finish", replaced("standstill_seconds)\n", "standstill_seconds) + 1e6\n")),
    ("CommitStalled", "missing", replaced('state="missing"', 'state="none"')),
    ("CommitStalled", "continuous", replaced("Continuous.*", "None")),
    ("CommitStalled", "one cause", replaced('", query="*"}', '", query="none"}')),
    ("CommitStalled", "the first batch", replaced("or spark_streaming_query_start_timestamp_seconds")),
    ("CommitStalled", "the clock", replaced("max by (app) (querypulse_driver_heartbeat_timestamp_seconds)", "vector(time())")),
    ("BatchSlow", "the window", replaced("> on (app, query)", "> on (app, query) 5 *")),
    ("BatchSlow", "tasks that finish", replaced("standstill_seconds)\n", "standstill_seconds) * 0\n")),
    ("BatchSlow", "the first batch", replaced("last_commit_timestamp_seconds", "watched")),
    ("QueryLagging", "the allowance", replaced("> on (app, query)", "> on (app, query) 0 *")),
    ("QueryLagging", "falling", replaced("max_over_time(", "0 * max_over_time(")),
    ("QueryLagging", "rising", replaced(" > spark_streaming_source_lag_offsets offset", " >= spark_streaming_source_lag_offsets offset")),
    ("QueryLagging", "commits", replaced(">= 3", ">= 0")),
    ("QueryLagging", "worse", replaced("stalled|")),
    ("QueryLagging", "its severity", replaced(" by (app, query, severity)", " by (app, query)")),
    ("QueryLagging", "querypulse knows more", replaced('severity!="warning"', 'severity="none"')),
    ("DataLossRisk", "its severity", replaced("query, severity)", "query)")),
    ("QueryFlapping", "the budget", replaced(">= on (app, query)", ">= on (app, query) 0.6 *")),
    ("QueryFlapping", "the outcome", replaced('{outcome="failed"}', "", 2)),
    ("QueryFlapping", "the time", replaced("[10m]", "[1h]")),
    ("DriverGone", "need", replaced("driver_needed_", "driver_heartbeat_")),
    ("DriverGone", "the newest", replaced(">= on (app)", ">= on (app) 0 *")),
    ("DriverGone", "a heart that stands", replaced("offset 2m", "offset 1d")),
    ("DriverGone", "the day", replaced("[1d]", "[2d]", 2)),
    ("ListenerDeaf", "late events", replaced("> 120", "> 60")),
    ("ListenerDeaf", "life", replaced("query_active == 1", "query_active >= 0")),
    ("ListenerDeaf", "continuous", replaced("Continuous.*", "None")),
    ("MonitorBlind", "no probe", replaced("count > 0", "count >= 0")),
    ("MonitorBlind", "a long look", replaced("offset 3m", "offset 1m")),
    ("MonitorBlind", "the JVM", replaced("CommitStalled|")),
    ("MonitorBlind", "the SparkContext", replaced("|QueryGone")),
    ("MonitorBlind", "the driver it is about", replaced("on (job, instance)", "on (job)")),
    ("PagesNotDelivered", "what is pending", replaced("pending > 0", "pending > 9")),
    ("PagesNotDelivered", "what was over", replaced('reason!="obsolete"', 'reason!="none"', 2)),
    ("PagesNotDelivered", "long ago", replaced("[1h]", "[1d]")),
    ("PagesNotDelivered", "the time it is kept", replaced("keep_firing_for: 10m", "keep_firing_for: 1m")),
    ("Watchdog", "that it always fires", replaced("vector(1)", "up")),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("alert", "change"),
    [(alert, change) for alert, _, change in MUTANTS],
    ids=[f"{alert}-{what}" for alert, what, _ in MUTANTS],
)
def test_a_rule_without_one_of_its_parts_does_not_pass_its_tests(alert, change, tmp_path):
    """Otherwise the part, or the test, would be worth nothing."""
    assert try_rule(alert, change(text_of(alert)), tmp_path).returncode != 0


def test_every_alert_is_mutated():
    assert {alert for alert, _, _ in MUTANTS} == set(ALERTS)
