"""PagerDuty gets events within its limits, and no incident is lost or left open."""

import time
from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from support.http_double import reply
from support.pagerduty_double import PagerDutyDouble, rate_limited

from querypulse.alerting import Alert
from querypulse.alerting.receivers.http import HttpError
from querypulse.alerting.receivers.pagerduty import PagerDuty
from querypulse.alerting.receivers.pagerduty_event import encode, trigger_event

ROUTING_KEY = "R0123456789abcdefghijklmnopqrstu"
ALERT = Alert(
    labels={"alertname": "QueryFailed", "app": "etl", "query": "bronze", "severity": "critical"},
    annotations={
        "summary": "bronze failed",
        "reason": "ConcurrentAppendException",
        "runbook_url": "https://x/QueryFailed.md",
    },
    starts_at=1795251728.119,
)
RESOLVED = replace(ALERT, ends_at=1795251788.5)


@pytest.fixture
def double() -> Iterator[PagerDutyDouble]:
    with PagerDutyDouble() as double:
        yield double


def pagerduty(double: PagerDutyDouble) -> PagerDuty:
    return PagerDuty(ROUTING_KEY, url=double.enqueue_url, source="driver-1")


def annotated(**annotations: str) -> Alert:
    return replace(ALERT, annotations={**ALERT.annotations, **annotations})


def test_an_alert_becomes_an_incident_with_its_story(double):
    """Every field of ours has its place among theirs."""
    pagerduty(double).send(ALERT, time.time())

    assert double.events == [
        {
            "routing_key": ROUTING_KEY,
            "event_action": "trigger",
            "dedup_key": "querypulse/etl/bronze/QueryFailed",
            "payload": {
                "summary": "bronze failed",
                "source": "driver-1",
                "severity": "critical",
                "timestamp": "2026-11-21T09:02:08.119Z",
                "component": "bronze",
                "group": "etl",
                "class": "QueryFailed",
                "custom_details": ALERT.annotations,
            },
            "client": "querypulse",
            "links": [{"href": "https://x/QueryFailed.md", "text": "Runbook"}],
        }
    ]


def test_a_resolve_ends_the_incident_it_belongs_to(double):
    """The same key opens and closes, however often the trigger was repeated."""
    receiver = pagerduty(double)
    receiver.send(ALERT, time.time())
    receiver.send(ALERT, time.time())

    assert double.incidents == {ALERT.key: 1}
    receiver.send(RESOLVED, time.time())
    assert not double.open
    assert not double.dropped_resolves


def test_a_resolve_of_nothing_is_accepted_and_dropped(double):
    """So a doubtful trigger can be resolved without harm."""
    pagerduty(double).send(RESOLVED, time.time())

    assert double.dropped_resolves == [ALERT.key]


@pytest.mark.parametrize("summary", ["x" * 1024, "x" * 1025, "é" * 5000, "", "\ud800"])
def test_any_summary_is_accepted(double, summary):
    """Too long is cut, empty is replaced; PagerDuty would lose the page."""
    pagerduty(double).send(annotated(summary=summary), time.time())
    told = double.events[0]["payload"]["summary"]

    assert not double.invalid
    assert 0 < len(told) <= 1024
    assert told.endswith("…") == (len(summary) > 1024)


def test_too_large_an_event_loses_its_details_not_the_page(double):
    """512 KB is the limit of the whole body."""
    pagerduty(double).send(annotated(stream_thread="x" * 600_000), time.time())
    (event,) = double.events

    assert event["payload"]["summary"] == "bronze failed"
    assert "larger" in event["payload"]["custom_details"]["note"]
    assert len(double.requests) == 1


def test_an_event_at_the_limit_stays_whole():
    """The cut begins above 512,000 bytes."""
    empty = len(encode(trigger_event(annotated(fill=""), ROUTING_KEY, "s", "")))
    fits = annotated(fill="x" * (512_000 - empty))
    larger = annotated(fill="x" * (512_001 - empty))

    assert len(encode(trigger_event(fits, ROUTING_KEY, "s", ""))) == 512_000
    assert len(encode(trigger_event(larger, ROUTING_KEY, "s", ""))) < 1000


@pytest.mark.parametrize("status", [400, 413])
def test_a_disliked_event_is_tried_once_more_in_its_barest_form(double, status):
    """A decoration must not cost a page."""
    double.script.append(reply(status))
    pagerduty(double).send(annotated(summary="x" * 2000), time.time())
    (event,) = double.events

    assert len(double.requests) == 2
    assert set(event) == {"routing_key", "event_action", "dedup_key", "payload"}
    assert "custom_details" not in event["payload"]
    assert len(event["payload"]["summary"]) == 512


def test_the_barest_form_refused_too_is_an_error(double):
    """Two tries, no more; the delivery keeps the alert."""
    double.otherwise = reply(400)
    with pytest.raises(HttpError) as caught:
        pagerduty(double).send(ALERT, time.time())

    assert not caught.value.transient
    assert len(double.requests) == 2


def test_a_refused_resolve_is_not_tried_again_at_once(double):
    """It has nothing to leave out."""
    double.otherwise = reply(400)
    with pytest.raises(HttpError):
        pagerduty(double).send(RESOLVED, time.time())

    assert len(double.requests) == 1


def test_throttling_is_given_time(double):
    """PagerDuty names no time, so the schedule waits at least five seconds."""
    double.otherwise = rate_limited()
    with pytest.raises(HttpError) as caught:
        pagerduty(double).send(ALERT, time.time())

    assert (caught.value.transient, caught.value.retry_after) == (True, 5.0)
    assert len(double.requests) == 1


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("critical", "critical"), ("warning", "warning"), ("info", "info"), ("page", "error")],
)
def test_severities_are_mapped(double, ours, theirs):
    """PagerDuty knows four; an unknown one of ours is still an error."""
    labels = {**ALERT.labels, "severity": ours}
    pagerduty(double).send(replace(ALERT, labels=labels), time.time())

    assert double.events[0]["payload"]["severity"] == theirs


def test_a_very_long_query_name_still_has_a_key(double):
    """The dedup key is hashed past 255 characters, alike for trigger and resolve."""
    long = replace(ALERT, labels={**ALERT.labels, "query": "q" * 400})
    receiver = pagerduty(double)
    receiver.send(long, time.time())
    receiver.send(replace(long, ends_at=long.starts_at + 1), time.time())

    assert not double.invalid
    assert not double.open


@pytest.mark.parametrize("key", ["", "hunter2", "x" * 31, "x" * 33])
def test_a_routing_key_of_another_length_is_refused_without_showing_it(key):
    """The error names the setting and how long a key is."""
    with pytest.raises(ValueError, match="pagerduty_routing_key must have 32") as caught:
        PagerDuty(key)

    assert not key or key not in str(caught.value)


def test_a_routing_key_from_a_file_may_end_in_a_newline(double):
    """As files do."""
    receiver = PagerDuty(f"{ROUTING_KEY}\n", url=double.enqueue_url)
    receiver.send(ALERT, time.time())

    assert double.events[0]["routing_key"] == ROUTING_KEY


def test_the_routing_key_is_shown_nowhere(double, caplog):
    """Not by the object, not in an error, not in a log."""
    double.otherwise = reply(403)
    receiver = pagerduty(double)
    with caplog.at_level("DEBUG"), pytest.raises(HttpError) as caught:
        receiver.send(ALERT, time.time())

    assert ROUTING_KEY not in f"{receiver!r}{receiver}{caught.value!r}{caplog.text}"


def test_a_link_home_is_added_when_known(double):
    """client_url leads to the status page."""
    receiver = PagerDuty(ROUTING_KEY, url=double.enqueue_url, client_url="https://driver:9719")
    receiver.send(ALERT, time.time())

    assert double.events[0]["client_url"] == "https://driver:9719"
