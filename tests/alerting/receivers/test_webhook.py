"""The webhook sends version 4 of Alertmanager's format."""

import json
import time
from collections.abc import Iterator

import pytest
from support.http_double import HttpDouble
from support.receiver_incidents import (
    ENDED,
    ENDED_ONE,
    FIVE,
    ONE,
    SEVERAL,
    alert,
    holding,
)
from support.receivers import webhook

from querypulse.alerting.receivers.webhook import fingerprint, message
from querypulse.core.text import rfc3339, shorten, to_json

(ALERT,) = ONE.alerts


@pytest.fixture
def double() -> Iterator[HttpDouble]:
    with HttpDouble() as double:
        yield double


def test_a_firing_alert_has_the_format_of_alertmanager(double):
    """Every key, in the types that receivers expect."""
    receiver = webhook(double, name="hook", external_url="http://driver:9719")
    receiver.send(ONE, time.time())
    receiver.close()

    assert json.loads(double.requests[0].body) == {
        "receiver": "hook",
        "status": "firing",
        "alerts": [
            {
                "status": "firing",
                "labels": ALERT.labels,
                "annotations": ALERT.annotations,
                "startsAt": "2026-11-21T09:02:08.119Z",
                "endsAt": "0001-01-01T00:00:00Z",
                "generatorURL": "http://driver:9719",
                "fingerprint": fingerprint(ALERT.labels),
            }
        ],
        "groupLabels": {"app": "etl", "query": "bronze"},
        "commonLabels": ALERT.labels,
        "commonAnnotations": ALERT.annotations,
        "externalURL": "http://driver:9719",
        "version": "4",
        "groupKey": "querypulse/etl/bronze",
        "truncatedAlerts": 0,
    }


def test_a_resolved_alert_says_when_it_ended():
    """Both statuses change, the identity stays."""
    body = message(ENDED_ONE, "hook")

    assert body["status"] == body["alerts"][0]["status"] == "resolved"
    assert body["alerts"][0]["endsAt"] == "2026-11-21T09:03:08.500Z"
    assert body["alerts"][0]["fingerprint"] == fingerprint(ALERT.labels)


def test_several_alerts_are_one_post(double):
    """Shared labels are common; each alert has its own fingerprint."""
    webhook(double).send(SEVERAL, time.time())
    (request,) = double.requests
    body = json.loads(request.body)

    assert [one["labels"]["query"] for one in body["alerts"]] == list(FIVE)
    assert len({one["fingerprint"] for one in body["alerts"]}) == 5
    assert body["groupLabels"] == {"app": "etl", "query": "*"}
    assert body["commonLabels"] == {
        "alertname": "StreamingQueryFailed",
        "app": "etl",
        "severity": "critical",
    }
    assert set(body["commonAnnotations"]) == {"reason", "runbook_url"}
    assert "summary" in body["alerts"][0]["annotations"]


def test_an_incident_fires_until_its_last_alert_has_ended():
    """Each alert has its own status."""
    partly = holding(alert("a", ends_at=ENDED), alert("b"))
    body = message(partly, "hook")

    assert body["status"] == "firing"
    assert [one["status"] for one in body["alerts"]] == ["resolved", "firing"]


def test_alerts_of_one_query_are_one_post():
    """What they share is common: their names are not."""
    slow = alert(name="StreamingBatchSlow", severity="warning")
    body = message(holding(alert(), slow, env="prod"), "hook")

    assert [one["labels"]["alertname"] for one in body["alerts"]] == [
        "StreamingQueryFailed", "StreamingBatchSlow",
    ]  # fmt: skip
    assert body["commonLabels"] == {"app": "etl", "query": "bronze"}
    assert body["groupLabels"] == {"app": "etl", "query": "bronze", "env": "prod"}


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (
            {"severity": "critical", "alertname": "QueryStalled", "query": "a"},
            "a8dd04438e90e322",
        ),
        (
            {
                "alertname": "StreamingQueryFailed",
                "app": "etl",
                "query": 'bro"nze\nä\a',
                "severity": "critical",
            },
            "efeb9cef03ed181f",
        ),
        ({}, "cbf29ce484222325"),
    ],
)
def test_the_fingerprint_is_alertmanagers_own(labels, expected):
    """Captured from Alertmanager 0.25."""
    assert fingerprint(labels) == expected


def test_a_text_with_lone_surrogates_is_sent():
    """Lone surrogates, which broken exceptions contain, become question marks."""
    assert json.loads(to_json({"a": "x\ud800é"})) == {"a": "x?é"}
    assert fingerprint({"a": "\ud800"}) == fingerprint({"a": "?"})


def test_times_are_rfc_3339_in_utc():
    """With milliseconds and a Z."""
    assert rfc3339(0.0) == "1970-01-01T00:00:00.000Z"


def test_long_texts_end_in_an_ellipsis():
    """The limit includes it."""
    assert (shorten("abcd", 4), shorten("abcde", 4)) == ("abcd", "abc…")
