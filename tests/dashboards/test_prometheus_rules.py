"""The shipped rules, checked with promtool: when each rule fires and when it does not."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

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
    done = try_rule(alert, text_of(alert), tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr


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
DRIVERS_CLOCK = "max by (app) (querypulse_driver_heartbeat_timestamp_seconds)"
REPORTS = "querypulse reports the alert"


class Mutant(NamedTuple):
    """A rule with one part removed or changed, and the test case that must fail because of it."""

    alert: str
    part: str
    change: Callable[[str], str]
    case: str
    """The beginning of its name."""


def in_each_rule(part, old, new, case, *, count=1, instead=None):
    """The mutants of all rules that contain ``old``, in which ALERT is the name of the rule.

    ``instead`` has the cases of rules that need one of their own.
    """
    return [
        Mutant(alert, part, replaced(text, new, count), (instead or {}).get(alert, case))
        for alert, rule in ALERTS.items()
        if (text := old.replace("ALERT", alert)) in rule["expr"]
    ]


NO_WAIT = {
    "StreamingDriverDown": "it is down for less than the wait",
    "QuerypulseDeliveryFailing": "a receiver is down for some minutes",
}
"""The cases of rules that need one of their own."""
MUTANTS = [
    *(Mutant(alert, "no wait", without_wait, NO_WAIT.get(alert, f"{REPORTS} for less than the wait"))
      for alert, rule in ALERTS.items() if "for" in rule),
    *in_each_rule("a heartbeat that has stopped", HEARTBEAT, "offset 1d", "its heartbeat does not advance",
                  instead={"QuerypulseDeliveryFailing": "the driver was killed"}),
    *in_each_rule("ignored queries", WATCHED, "", "under ignore"),
    *in_each_rule("querypulse's own alert", 'alertname="ALERT"', 'alertname="Other"', f"{REPORTS} itself", count=9),
    *in_each_rule("any alert", '{alertname="ALERT"}', "", "another alert of the query", count=9),
    *in_each_rule("a scrape that fails", "}[5m]", "}[15s]", "one scrape fails"),
    *in_each_rule("resolved alerts", LAST_SCRAPE, f"{LAST_SCRAPE} 0 *", "it resolved a minute before the driver died"),
    Mutant("StreamingQueryFailed", "an alert that lasts", replaced('occurrence!=""', 'occurrence="none"'), "querypulse has held the alert open and then reported it as one that lasts"),
    Mutant("StreamingQueryFailed", "the measured value", replaced("failure_info)", "failure_info > 1)"), "fails"),
    Mutant("StreamingQueryStalled", "the window", replaced("> on (app, query)", "> on (app, query) 2 *"), "the first batch hangs"),
    Mutant("StreamingQueryStalled", "active queries", replaced("query_active == 1", "query_active >= 0"), "dead"),
    Mutant("StreamingQueryStalled", "tasks that finish", replaced("no_progress_seconds)\n", "no_progress_seconds) + 1e6\n"), "a long batch whose tasks finish"),
    Mutant("StreamingQueryStalled", "missing", replaced('state=~"missing|stopped_unexpectedly"', 'state="none"'), "started"),
    Mutant("StreamingQueryStalled", "continuous", replaced("Continuous.*", "None"), "continuous"),
    Mutant("StreamingQueryStalled", "one cause", replaced('", query="*"}', '", query="none"}'), "the JVM does not answer"),
    Mutant("StreamingQueryStalled", "the first batch", replaced("or spark_streaming_query_start_timestamp_seconds"), "the first batch hangs"),
    Mutant("StreamingQueryStalled", "the clock", replaced(DRIVERS_CLOCK, f"({DRIVERS_CLOCK} * 0 + 100000 + time())"), "the heartbeat stops shortly after a commit"),
    Mutant("StreamingBatchSlow", "the window", replaced("> on (app, query)", "> on (app, query) 5 *"), "a batch runs for a long time"),
    Mutant("StreamingBatchSlow", "tasks that finish", replaced("no_progress_seconds)\n", "no_progress_seconds) * 0\n"), "none of its tasks finishes"),
    Mutant("StreamingBatchSlow", "the first batch", replaced("last_commit_timestamp_seconds", "batch_in_flight_seconds"), "the first batch of a run"),
    Mutant("StreamingQueryLagging", "the allowance", replaced("> on (app, query)", "> on (app, query) 0 *"), "a burst"),
    Mutant("StreamingQueryLagging", "falling", replaced("max_over_time(", "0 * max_over_time("), "it falls now and then"),
    Mutant("StreamingQueryLagging", "rising", replaced(" > spark_streaming_source_lag_offsets offset", " >= spark_streaming_source_lag_offsets offset"), "a steady lag"),
    Mutant("StreamingQueryLagging", "commits", replaced(">= 3", ">= 0"), "no batch starts"),
    Mutant("StreamingQueryLagging", "more severe alerts", replaced("stalled|"), "it does not advance"),
    Mutant("StreamingQueryLagging", "the severity", replaced(" by (app, query, severity, occurrence)", " by (app, query)"), "querypulse reports it as critical"),
    Mutant("StreamingQueryLagging", "querypulse knows more", replaced('severity!="warning"', 'severity="none"'), "querypulse reports it as critical"),
    Mutant("StreamingDataLossRisk", "the severity", replaced("query, severity, occurrence)", "query)"), "one query alerts"),
    Mutant("StreamingQueryFlapping", "the budget", replaced(">= on (app, query)", ">= on (app, query) 0.6 *"), "three failures within ten minutes"),
    Mutant("StreamingQueryFlapping", "the outcome", replaced('{outcome="failed"}', "", 2), "stopped and started again and again"),
    Mutant("StreamingQueryFlapping", "the time", replaced("[10m]", "[1h]"), "three failures within an hour"),
    Mutant("StreamingQueryFailed", "supervised queries", replaced("unless on (app, query) max by (app, query) (spark_streaming_query_supervised)"), "supervise restarts it"),
    Mutant("StreamingQueryFlapping", "supervised queries", replaced("unless on (app, query) max by (app, query) (spark_streaming_query_supervised)"), "supervise restarts it"),
    Mutant("StreamingDriverDown", "an expected driver", replaced("driver_expected_", "driver_heartbeat_"), "the old process was killed"),
    Mutant("StreamingDriverDown", "the newest driver", replaced(">= on (app)", ">= on (app) 0 *"), "the old process was killed"),
    Mutant("StreamingDriverDown", "a heartbeat that has stopped", replaced("offset 2m", "offset 1d"), "it answers, but its heartbeat does not advance"),
    Mutant("StreamingDriverDown", "the day", replaced("[1d]", "[2d]", 2), "a day later the alert has ended"),
    Mutant("QuerypulseEventsMissing", "late events", replaced("> 120", "> 60"), "a slow listener"),
    Mutant("QuerypulseEventsMissing", "active queries", replaced("query_active == 1", "query_active >= 0"), "a query that has ended"),
    Mutant("QuerypulseEventsMissing", "continuous", replaced("Continuous.*", "None"), "continuous"),
    Mutant("QuerypulseMonitoringDegraded", "no probe", replaced("count > 0", "count >= 0"), "there is no probe"),
    Mutant("QuerypulseMonitoringDegraded", "a slow poll", replaced("offset 3m", "offset 1m"), "no poll for less than the wait"),
    Mutant("QuerypulseMonitoringDegraded", "the JVM", replaced("StreamingQueryStalled|"), "the JVM does not answer"),
    Mutant("QuerypulseMonitoringDegraded", "the SparkContext", replaced("|StreamingQueryStopped"), "the SparkContext has stopped"),
    Mutant("QuerypulseMonitoringDegraded", "the affected driver", replaced("on (job, instance)", "on (job)"), "no poll of Spark for ten minutes"),
    Mutant("QuerypulseDeliveryFailing", "pending alerts", replaced("pending > 0", "pending > 9"), "a receiver accepts nothing for a quarter of an hour"),
    Mutant("QuerypulseDeliveryFailing", "obsolete alerts", replaced('reason!="obsolete"', 'reason!="none"', 2), "alerts resolved before they could be delivered"),
    Mutant("QuerypulseDeliveryFailing", "long ago", replaced("[1h]", "[1d]"), "alerts were given up long ago"),
    Mutant("QuerypulseDeliveryFailing", "keep_firing_for", replaced("keep_firing_for: 10m", "keep_firing_for: 1m"), "an alert was given up"),
    Mutant("QuerypulseWatchdog", "constant firing", replaced("vector(1)", "up"), "no driver reports"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: f"{one.alert}-{one.part}")
def test_mutated_rule_fails_its_case(mutant, tmp_path):
    """Otherwise the part of the rule, or its test, has no effect."""
    rule = mutant.change(text_of(mutant.alert))
    done = try_rule(mutant.alert, rule, tmp_path, case=mutant.case)

    assert done.returncode != 0


def test_every_alert_is_mutated():
    assert {mutant.alert for mutant in MUTANTS} == set(ALERTS)
