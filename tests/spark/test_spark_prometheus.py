"""Problems of real queries reach the receivers through the shipped rules and the shipped
configuration of Alertmanager, and nothing else does.
"""

from __future__ import annotations

import re

import pytest
import requests
from support.observed import DOOMED, HEALED, MUST_FIRE, quickened
from support.observed_play import APP, BACK, DEAD, HEALTHY, HUNG, IDLE, SLOW
from support.queries import until
from support.rule_files import RULES, shipped

pytestmark = [
    pytest.mark.spark,
    pytest.mark.prometheus,
    pytest.mark.alertmanager,
    # The first test waits for the whole scenario.
    pytest.mark.timeout(600),
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
    assert observed.harness.received("firing") >= MUST_FIRE
    for reported in observed.harness.reported:
        assert reported["labels"].keys() == {"alertname", "app", "query", "severity"}
        assert reported["annotations"]["runbook_url"].endswith(
            f"/{reported['labels']['alertname']}.md"
        )


def test_no_other_alert_fires(observed):
    assert observed.harness.received("firing") - MUST_FIRE <= MAY_FIRE


def test_each_severity_reaches_its_receiver(observed):
    receivers = {"critical": "pager", "warning": "chat", "none": "watchdog"}
    for reported in observed.harness.reported:
        assert reported["receiver"] == receivers[reported["labels"]["severity"]]


def test_recovered_queries_are_reported_as_resolved(observed):
    assert observed.harness.received("resolved") >= BACK
    held = {(one["labels"]["alertname"], one["labels"]["query"]) for one in firing(observed)}
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
    reported = [one for one in observed.harness.reported if one["labels"]["app"] == DOOMED]

    assert [(one["labels"]["alertname"], one["status"]) for one in reported] == [
        ("QuerypulseEventsMissing", "firing"),
        (HEALED[0], "firing"),
        (HEALED[0], "resolved"),
        ("StreamingDriverDown", "firing"),
    ]
    assert reported[-1]["annotations"]["reason"].startswith("last heartbeat at 20")


def test_failed_query_is_reported_with_its_error(observed):
    reported = next(one for one in observed.harness.reported if one["labels"]["query"] == DEAD)

    assert reported["annotations"]["reason"] == "Boom"


@pytest.mark.parametrize("alert", MEASURED)
def test_prometheus_detects_the_problem_from_metrics_alone(observed, alert):
    """No healthy query matches at any second, although the rule's wait is left out."""
    measured = re.split(r"\n\s+or\n", ALERTS[alert]["expr"].partition("(\n")[2])[0]
    seen = observed.prometheus.query(f"count_over_time(({quickened(measured)})[15m:1s])")
    queries = {one["metric"]["query"] for one in seen}

    assert queries >= MEASURED[alert]
    assert not queries & {HEALTHY, IDLE, "victim"}


def test_alerts_of_driver_and_prometheus_are_one_in_alertmanager(observed):
    """Both send exactly the same labels, so Alertmanager stores one alert."""
    wanted = {"alertname": "StreamingOffsetsStalled", "app": APP, "query": "offsets_frozen"}
    own = [one for one in own_alerts(observed) if wanted.items() <= one["labels"].items()]
    post = [{"labels": one["labels"], "annotations": one["annotations"]} for one in own]
    url = f"{observed.alertmanager.url}/api/v2/alerts"
    assert requests.post(url, json=post, timeout=10).ok

    def held():
        alerts = requests.get(url, timeout=10).json()
        return [one for one in alerts if wanted.items() <= one["labels"].items()]

    until(
        lambda: any("description" in one["annotations"] for one in held()),
        "Alertmanager stores the alert",
    )
    assert len(own) == len(held()) == 1


def test_each_open_alert_is_a_series_in_prometheus(observed):
    series = observed.prometheus.query(f'spark_streaming_query_alert{{app="{APP}"}}')
    labels = ("alertname", "app", "query", "severity")
    shown = {tuple(one["metric"][name] for name in labels) for one in series}

    assert shown == {tuple(one["labels"][name] for name in labels) for one in own_alerts(observed)}


def test_every_metric_of_the_rules_exists(observed):
    used = set(re.findall(r"\b(?:spark_streaming|querypulse)_\w+", RULES.read_text()))
    names = observed.prometheus.get("label/__name__/values", {})

    # No query of this job is supervised.
    assert used - set(names) == {"spark_streaming_query_supervised"}


def own_alerts(observed):
    return requests.get(f"{observed.url}/status", timeout=10).json()["alerts"]


def firing(observed):
    return [one for one in observed.prometheus.alerts() if one["state"] == "firing"]
