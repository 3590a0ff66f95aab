"""The shipped rules, checked with promtool: when each rule fires and when it does not."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

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
from querypulse.alerting.rules import events_missing, monitoring_degraded

alerts = cache(shipped)
TESTED = sorted(path.stem for path in TESTS.glob("*.yaml"))
OUTSIDE = {"StreamingDriverDown", "QuerypulseDeliveryFailing", "QuerypulseWatchdog"}
"""Alerts that no driver can raise about itself."""


@pytest.mark.prometheus
@pytest.mark.parametrize("alert", TESTED)
def test_rule_passes_its_promtool_tests(alert, tmp_path):
    done = try_rule(alert, text_of(alert), tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.prometheus
def test_promtool_tests_run_in_their_own_folder():
    done = promtool("test", "rules", str(TESTS / "QuerypulseWatchdog.yaml"))

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.prometheus
def test_promtool_lint_accepts_the_rules():
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES))

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_rule_has_promtool_tests():
    assert set(TESTED) == set(alerts())


@pytest.mark.slow
def test_the_files_are_what_the_generator_writes(tmp_path):
    generator = [sys.executable, "-m", "tools.rules", str(tmp_path)]
    subprocess.run(generator, cwd=DASHBOARDS.parent, check=True)

    for path in (RULES, MANIFEST):
        assert path.read_bytes() == (tmp_path / path.name).read_bytes(), path.name


def test_the_manifest_holds_the_same_rules():
    manifest = yaml.safe_load(MANIFEST.read_text())

    assert manifest["kind"] == "PrometheusRule"
    assert manifest["apiVersion"] == "monitoring.coreos.com/v1"
    assert manifest["spec"] == yaml.safe_load(RULES.read_text())


def test_every_alert_has_a_prometheus_rule():
    names = {sys.modules[check.__module__].NAME for check in our_rules.ORDER}

    assert names | {events_missing.NAME, monitoring_degraded.NAME} | OUTSIDE == set(alerts())


def test_each_rule_has_the_labels_of_its_alert():
    severities = {severity.value for severity in Severity} | {"none"}
    for alert, rule in alerts().items():
        has = rule["labels"].keys()
        fixed = {"app", "query"} if alert == "QuerypulseWatchdog" else {"query"} & has
        as_reported = "query, severity, occurrence)" in rule["expr"]
        allowed = severities | ({"{{ $labels.severity }}"} if as_reported else set())

        assert has == {"severity", *fixed}, alert
        assert rule["labels"]["severity"] in allowed, alert
        assert {"summary", "description"} <= rule["annotations"].keys(), alert


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
        for alert, rule in alerts().items()
        if (text := old.replace("ALERT", alert)) in rule["expr"]
    ]


NO_WAIT = {
    "StreamingDriverDown": "it is down for less than the wait",
    "QuerypulseDeliveryFailing": "a receiver is down for some minutes",
}
"""The cases of rules that need one of their own."""


@cache
def mutants():
    """All mutants."""
    return [
        *(Mutant(alert, "no wait", without_wait, NO_WAIT.get(alert, f"{REPORTS} for less than the wait"))
          for alert, rule in alerts().items() if "for" in rule),
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


@pytest.mark.nightly
@pytest.mark.prometheus
@pytest.mark.parametrize("alert", TESTED)
def test_each_mutated_rule_fails_its_case(alert, tmp_path):
    """Otherwise a part of the rule, or its test, has no effect."""
    of_alert = [mutant for mutant in mutants() if mutant.alert == alert]
    survivors = []
    for number, mutant in enumerate(of_alert):
        folder = tmp_path / str(number)
        folder.mkdir()
        done = try_rule(alert, mutant.change(text_of(alert)), folder, case=mutant.case)
        if done.returncode == 0:
            survivors.append(mutant.part)

    assert of_alert
    assert survivors == []
