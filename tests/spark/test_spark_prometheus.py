"""Problems of real queries reach the receivers through the shipped rules and the shipped
configuration of Alertmanager, and nothing else does.
"""

from __future__ import annotations

import re

import pytest
import requests
from support.observed import (
    APP,
    BACK,
    DEAD,
    DOOMED,
    HEALED,
    HEALTHY,
    HUNG,
    IDLE,
    SLOW,
    must_fire,
    quickened,
)
from support.patience import PATIENCE_SECONDS, until
from support.rule_files import RULES, shipped

pytestmark = [
    pytest.mark.spark,
    pytest.mark.prometheus,
    pytest.mark.alertmanager,
    # The first test waits for the whole scenario.
    pytest.mark.timeout(900),
]

ALERTS = shipped()
MAY_FIRE = {("StreamingQueryFailed", "crash_loop"), ("QuerypulseWatchdog", "*")}
"""A flapping query has also failed."""
MEASURED = {
    "StreamingQueryFailed": {DEAD, "crash_loop"},
    "StreamingQueryStalled": {HUNG},
    "StreamingBatchSlow": {SLOW},
}
"""Problems that Prometheus detects from metrics, without querypulse's evaluation."""


def test_expected_alerts_arrive_with_our_labels(observed):
    assert observed.harness.received("firing") >= must_fire()
    for reported in observed.harness.reported:
        assert reported["labels"].keys() == {"alertname", "app", "query", "severity"}
        assert reported["annotations"]["runbook_url"].endswith(
            f"/{reported['labels']['alertname']}.md"
        )


def test_no_other_alert_fires(observed):
    assert observed.harness.received("firing") - must_fire() <= MAY_FIRE


def test_each_severity_reaches_its_receiver(observed):
    receivers = {"critical": "pager", "warning": "chat", "none": "watchdog"}
    for reported in observed.harness.reported:
        assert reported["receiver"] == receivers[reported["labels"]["severity"]]


def test_recovered_queries_are_reported_as_resolved(observed):
    assert observed.harness.received("resolved") >= BACK
    held = {(alert["labels"]["alertname"], alert["labels"]["query"]) for alert in firing(observed)}
    assert not held & BACK


def test_unrecovered_queries_are_not_reported_as_resolved(observed):
    # Each new run of the crash loop commits a batch before it fails, and the rewound query reaches
    # its old offsets again.
    recovers_by_itself = {
        HEALED,
        ("StreamingQueryFailed", "crash_loop"),
        ("StreamingOffsetsRewound", "offsets_rewound"),
    }
    assert observed.harness.received("resolved") - BACK <= recovers_by_itself


def test_killed_driver_is_reported_and_resolved_alerts_stay_resolved(observed):
    reported = [alert for alert in observed.harness.reported if alert["labels"]["app"] == DOOMED]

    assert [(alert["labels"]["alertname"], alert["status"]) for alert in reported] == [
        ("QuerypulseEventsMissing", "firing"),
        (HEALED[0], "firing"),
        (HEALED[0], "resolved"),
        ("StreamingDriverDown", "firing"),
    ]
    assert reported[-1]["annotations"]["reason"].startswith("last heartbeat at 20")


def test_failed_query_is_reported_with_its_error(observed):
    reported = next(
        alert for alert in observed.harness.reported if alert["labels"]["query"] == DEAD
    )

    assert reported["annotations"]["reason"] == "Boom"


def test_prometheus_detects_the_problems_from_metrics_alone(observed):
    """No healthy query matches at any second, although the rule's wait is left out."""
    wrong = {}
    for alert, queries in MEASURED.items():
        measured = re.split(r"\n\s+or\n", ALERTS[alert]["expr"].partition("(\n")[2])[0]
        seen = observed.prometheus.query(f"count_over_time(({quickened(measured)})[15m:1s])")
        found = {series["metric"]["query"] for series in seen}
        if not found >= queries or found & {HEALTHY, IDLE, "victim"}:
            wrong[alert] = found

    assert wrong == {}


def test_alerts_of_driver_and_prometheus_are_one_in_alertmanager(observed):
    """Both send exactly the same labels, so Alertmanager stores one alert."""
    wanted = {"alertname": "StreamingQueryMissing", "app": APP, "query": "never_started"}
    own = [alert for alert in own_alerts(observed) if wanted.items() <= alert["labels"].items()]
    post = [{"labels": alert["labels"], "annotations": alert["annotations"]} for alert in own]
    url = f"{observed.alertmanager.url}/api/v2/alerts"
    assert requests.post(url, json=post, timeout=PATIENCE_SECONDS).ok

    def held():
        alerts = requests.get(url, timeout=PATIENCE_SECONDS).json()
        return [alert for alert in alerts if wanted.items() <= alert["labels"].items()]

    until(
        lambda: any("description" in alert["annotations"] for alert in held()),
        "Alertmanager stores the alert",
    )
    assert len(own) == len(held()) == 1


def test_each_open_alert_is_a_series_in_prometheus(observed):
    labels = ("alertname", "app", "query", "severity")

    def agree():
        series = observed.prometheus.query(f'spark_streaming_query_alert{{app="{APP}"}}')
        of_prometheus = {tuple(shown["metric"][name] for name in labels) for shown in series}
        alerts = own_alerts(observed)
        return of_prometheus == {
            tuple(alert["labels"][name] for name in labels) for alert in alerts
        }

    until(agree, "Prometheus and the driver have the same open alerts")


def test_every_metric_of_the_rules_exists(observed):
    used = set(re.findall(r"\b(?:spark_streaming|querypulse)_\w+", RULES.read_text()))
    names = observed.prometheus.get("label/__name__/values", {})

    # No query of this job is supervised.
    assert used - set(names) == {"spark_streaming_query_supervised"}


def own_alerts(observed):
    return requests.get(f"{observed.url}/status", timeout=PATIENCE_SECONDS).json()["alerts"]


def firing(observed):
    return [alert for alert in observed.prometheus.alerts() if alert["state"] == "firing"]
