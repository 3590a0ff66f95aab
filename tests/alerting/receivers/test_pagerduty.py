"""PagerDuty gets events within its limits, and no incident is lost or left open."""

import socket
import time

import pytest
from msgspec.structs import replace
from support.http_double import reply
from support.pagerduty_double import PagerDutyDouble
from support.receiver_incidents import ENDED, ENDED_ONE, ONE, alert, holding, incident
from support.receivers import ROUTING_KEY, pagerduty

from querypulse.alerting.receivers.receiver import DeliveryError
from querypulse.core.states import DeliveryOutcome
from querypulse.sidecar import Settings


@pytest.fixture
def double():
    with PagerDutyDouble() as double:
        yield double


def test_alert_becomes_an_incident_with_all_its_fields(double):
    pagerduty(double).send(ONE, time.time())

    assert double.events == [
        {
            "routing_key": ROUTING_KEY,
            "event_action": "trigger",
            "dedup_key": "querypulse/etl/bronze",
            "payload": {
                "summary": "bronze failed",
                "source": socket.gethostname(),
                "severity": "critical",
                "timestamp": "2026-11-21T09:02:08.119Z",
                "component": "bronze",
                "group": "etl",
                "class": "StreamingQueryFailed",
                "custom_details": {"reason": "ConcurrentAppendException"},
            },
            "client": "querypulse",
            "links": [{"href": "https://x/StreamingQueryFailed.md", "text": "Runbook"}],
        }
    ]


def test_alert_without_links_is_accepted(double):
    bare = replace(alert(), annotations={"summary": "bronze failed"})
    pagerduty(double).send(holding(bare), time.time())

    assert "links" not in double.events[0]


def test_resolve_ends_its_own_incident(double):
    """The same key opens and closes it, however often the trigger was repeated.

    A resolve of what is not open is dropped, so that a doubtful trigger can be resolved.
    """
    receiver = pagerduty(double)
    receiver.send(ONE, time.time())
    receiver.send(ONE, time.time())

    assert double.incidents == {ONE.key: 1}
    receiver.send(ENDED_ONE, time.time())
    assert not double.open
    assert not double.dropped_resolves
    receiver.send(replace(ONE, alerts=()), time.time())
    assert double.dropped_resolves == [ONE.key]


@pytest.mark.parametrize("summary", ["x" * 1024, "x" * 1025, "é" * 5000, "", "\ud800"])
def test_any_summary_is_accepted(double, summary):
    """A long one is cut and an empty one replaced; otherwise PagerDuty would lose the page."""
    pagerduty(double).send(incident(summary=summary), time.time())
    sent = double.events[0]["payload"]["summary"]

    assert not double.invalid
    assert 0 < len(sent) <= 1024
    assert sent.endswith("…") == (len(summary) > 1024)


def test_too_large_event_loses_its_details_not_the_page(double):
    """The limit of the whole body is 512 KB."""
    pagerduty(double).send(incident(stream_thread="x" * 600_000), time.time())
    (event,) = double.events

    assert event["payload"]["summary"] == "bronze failed"
    assert "custom_details" not in event["payload"]
    assert len(double.requests) == 1


def test_event_without_details_has_a_shorter_summary(double):
    """The name of a long query is cut, too."""
    endless = incident("q" * 600, summary="s" * 600, stream_thread="x" * 600_000)
    pagerduty(double).send(endless, time.time())
    payload = double.events[0]["payload"]

    assert payload["summary"] == "s" * 511 + "…"
    assert payload["component"] == "q" * 254 + "…"


def test_alerts_of_one_query_are_described_by_name(double):
    """The ended one is left out, the labels of the settings are shown."""
    slow = alert(name="StreamingBatchSlow", severity="warning", reason="batch 3 in flight")
    ended = alert(name="StreamingQueryLagging", ends_at=ENDED)
    pagerduty(double).send(holding(alert(), slow, ended, env="prod"), time.time())
    payload = double.events[0]["payload"]

    assert (payload["summary"], payload["component"]) == ("bronze failed", "bronze")
    assert payload["custom_details"] == {
        "env": "prod",
        "StreamingQueryFailed": {"status": "firing", "reason": "ConcurrentAppendException"},
        "StreamingBatchSlow": {"status": "firing", "reason": "batch 3 in flight"},
    }
    assert double.open == {"querypulse/etl;env=prod/bronze"}


def test_recovered_query_is_named(double):
    """The rest of the incident stays open."""
    pagerduty(double).send(holding(alert("a", ends_at=ENDED), alert("b")), time.time())
    payload = double.events[0]["payload"]

    assert payload["summary"] == (
        "[etl] 2 queries failed: ConcurrentAppendException (a, b); recovered: a"
    )
    assert payload["custom_details"]["a"]["status"] == "resolved"
    assert double.open == {"querypulse/etl/*"}


@pytest.mark.parametrize("severity", ["critical", "warning"])
def test_event_has_the_severity_of_its_incident(double, severity):
    pagerduty(double).send(incident(severity=severity), time.time())

    assert double.events[0]["payload"]["severity"] == severity


@pytest.mark.parametrize(
    ("table", "url"),
    [
        ({}, "https://events.pagerduty.com/v2/enqueue"),
        ({"region": "eu"}, "https://events.eu.pagerduty.com/v2/enqueue"),
        ({"region": "eu", "url": "https://own/x"}, "https://own/x"),
    ],
)
def test_events_go_to_the_service_region(table, url):
    table = {"type": "pagerduty", "name": "p", "routing_key": ROUTING_KEY, **table}
    (given,) = Settings(receivers=[table]).receivers

    assert given.targets() == (url,)


@pytest.mark.parametrize(
    "answer",
    [
        b'{"status":"invalid event","errors":["Length of \'routing_key\' is incorrect"]}',
        b'{"status":"invalid event","message":"Invalid Routing Key"}',
    ],
)
@pytest.mark.parametrize("sent", [ONE, ENDED_ONE], ids=["trigger", "resolve"])
def test_400_about_the_routing_key_is_a_misconfiguration(double, answer, sent):
    """The page is kept until the key is corrected."""
    double.otherwise = reply(400, body=answer)
    with pytest.raises(DeliveryError, match="it does not know the routing key") as caught:
        pagerduty(double).send(sent, time.time())

    assert caught.value.answer is DeliveryOutcome.MISCONFIGURED
