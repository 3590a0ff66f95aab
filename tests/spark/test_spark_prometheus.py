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
    EVENTS_MISSING,
    HEALED,
    must_fire,
)
from support.patience import PATIENCE_SECONDS, until
from support.repository import RULES

pytestmark = [
    pytest.mark.spark,
    pytest.mark.prometheus,
    pytest.mark.alertmanager,
    # The first test waits for the whole scenario.
    pytest.mark.timeout(900),
]

MAY_FIRE = {("StreamingQueryFailed", "crash_loop"), ("QuerypulseWatchdog", "*")}
"""A flapping query has also failed."""


def test_expected_alerts_arrive_with_our_labels_at_the_receiver_of_their_severity(observed):
    receivers = {"critical": "pager", "warning": "chat", "none": "watchdog"}
    assert observed.received("firing") >= must_fire()
    for reported in observed.receivers.alerts:
        labels = reported["labels"].keys() - {"job"}
        assert labels == {"alertname", "app", "query", "severity"}
        assert reported["receiver"] == receivers[reported["labels"]["severity"]]
        assert reported["annotations"]["runbook_url"].endswith(
            f"/{reported['labels']['alertname']}.md"
        )


def test_no_other_alert_fires(observed):
    assert observed.received("firing") - must_fire() <= MAY_FIRE


def test_recovered_queries_are_reported_as_resolved(observed):
    assert observed.received("resolved") >= BACK
    held = {(alert["labels"]["alertname"], alert["labels"]["query"]) for alert in firing(observed)}
    assert not held & BACK


def test_unrecovered_queries_are_not_reported_as_resolved(observed):
    # Each new run of the crash loop commits a batch before it fails, and the rewound query reaches
    # its old offsets again.
    recovers_by_itself = {
        HEALED,
        # Ten minutes after the death of its driver.
        EVENTS_MISSING,
        ("StreamingQueryFailed", "crash_loop"),
        ("StreamingOffsetsRewound", "offsets_rewound"),
    }
    assert observed.received("resolved") - BACK <= recovers_by_itself


def test_killed_driver_is_reported_and_resolved_alerts_stay_resolved(observed):
    reported = [alert for alert in observed.receivers.alerts if alert["labels"]["app"] == DOOMED]

    changes = [(alert["labels"]["alertname"], alert["status"]) for alert in reported]
    assert changes[:4] == [
        (EVENTS_MISSING[0], "firing"),
        (HEALED[0], "firing"),
        (HEALED[0], "resolved"),
        ("StreamingDriverDown", "firing"),
    ]
    assert changes[4:] in ([], [(EVENTS_MISSING[0], "resolved")])
    assert reported[3]["annotations"]["reason"].startswith("last heartbeat at 20")


def test_failed_query_is_reported_with_its_error(observed):
    reported = next(
        alert for alert in observed.receivers.alerts if alert["labels"]["query"] == DEAD
    )

    assert reported["annotations"]["reason"] == "Boom"


def test_each_open_alert_is_a_series_in_prometheus(observed):
    labels = ("alertname", "app", "query", "severity")

    def agree():
        series = observed.prometheus.query(f'spark_streaming_query_alert{{app="{APP}"}} == 1')
        of_prometheus = {tuple(shown["metric"][name] for name in labels) for shown in series}
        alerts = own_alerts(observed)
        return of_prometheus == {
            tuple(alert["labels"][name] for name in labels) for alert in alerts
        }

    until(agree, "Prometheus and the driver have the same open alerts")


def test_alert_that_ended_is_a_series_of_0(observed):
    series = observed.prometheus.query(f'spark_streaming_query_alert{{app="{APP}"}} == 0')

    assert {(sample["metric"]["alertname"], sample["metric"]["query"]) for sample in series} >= BACK


def test_every_metric_of_the_rules_exists(observed):
    rules = "".join(path.read_text() for path in RULES.glob("*.yaml"))
    used = set(re.findall(r"\b(?:spark_streaming|querypulse)_\w+", rules))

    assert used - set(observed.prometheus.get("label/__name__/values", {})) == set()


def own_alerts(observed):
    return requests.get(f"{observed.url}/status", timeout=PATIENCE_SECONDS).json()["alerts"]


def firing(observed):
    return [alert for alert in observed.prometheus.alerts() if alert["state"] == "firing"]
