"""Resolves alerts that an earlier process may have left open, after asking if possible."""

import json
import time
from datetime import datetime, timezone

import pytest
from support.alertmanager_double import AlertmanagerDouble
from support.deliveries import WALL, incident, outage, over, poison, said
from support.http_double import HttpDouble, reply
from support.patience import PATIENCE_SECONDS
from support.receiver_incidents import incident as reported

from querypulse.alerting import outbox
from querypulse.alerting.delivery import Delivery
from querypulse.alerting.outbox import (
    ASK_AGAIN_SECONDS,
    HELD_SECONDS,
    STALE_RESOLVE_SECONDS,
    Outbox,
)
from querypulse.alerting.receivers.alertmanager import Alertmanager
from querypulse.alerting.receivers.http import HttpError
from querypulse.alerting.receivers.receiver import LeftOpen, ReceiverCapabilities
from querypulse.core.guard import Guard

BLIND = ReceiverCapabilities(reconciles=True)
ASKED = ReceiverCapabilities(reconciles=True, can_be_asked=True)
MANY = [over(incident(f"q{number}"), WALL) for number in range(5)]


def by_query(query):
    return next(one for one in MANY if said(one)[0] == query)


class StaleResolvesHarness:
    """An outbox with stale resolves, and what it sends."""

    def __init__(self, capabilities=BLIND, stale_resolves=MANY):
        self.outbox = Outbox(capabilities)
        self.now = 0.0
        self.offer(stale_resolves=stale_resolves)

    @property
    def wall(self):
        return WALL + self.now

    def offer(self, *incidents, stale_resolves=MANY):
        self.outbox.offer(incidents, self.wall, stale_resolves)
        return self

    def send(self, error=None):
        sent = self.outbox.begin(self.now, self.wall)
        if sent is None:
            return None
        if error is None:
            self.outbox.delivered(sent, self.wall)
        else:
            self.outbox.failed(sent, error, self.now, self.wall)
        return said(sent)

    def send_all(self):
        return list(iter(self.send, None))

    def pass_time(self, seconds):
        self.now += seconds
        return self

    def ask(self, found=()):
        """Ask the receiver; it answers with ``found``: queries and the time of their last post."""
        asked = self.outbox.question(self.now, self.wall)
        left = [LeftOpen(by_query(query), posted_at) for query, posted_at in found]
        self.outbox.stale_resolves.answered(asked, left, self.now)
        return [said(one)[0] for one in asked]


def test_one_stale_resolve_is_sent_every_two_seconds():
    harness = StaleResolvesHarness()
    sent = [harness.send_all()]
    sent += [harness.pass_time(STALE_RESOLVE_SECONDS).offer().send_all() for _ in range(20)]

    assert sent == [[(f"q{number}", "resolved")] for number in range(5)] + [[]] * 16


def test_new_incidents_are_sent_before_stale_resolves():
    harness = StaleResolvesHarness().offer(incident("dead"), incident("slow", severity="warning"))

    assert harness.send_all() == [("dead", "firing"), ("slow", "firing"), ("q0", "resolved")]


def test_no_stale_resolve_is_sent_while_an_incident_waits_for_a_retry():
    harness = StaleResolvesHarness().offer(incident("dead"))
    harness.send(outage())

    assert harness.pass_time(0.5).send_all() == []


def test_stale_resolve_is_sent_before_a_new_trigger_of_the_same_key():
    """If an earlier process left the key open, a trigger alone notifies nobody."""
    harness = StaleResolvesHarness().offer(incident("q3", starts_at=WALL + 9))

    assert harness.send_all()[:2] == [("q3", "resolved"), ("q3", "firing")]


def test_key_that_fired_in_this_process_gets_no_stale_resolve():
    harness = StaleResolvesHarness(stale_resolves=()).offer(incident("q3"), stale_resolves=())
    harness.send_all()
    harness.offer(stale_resolves=())
    harness.send_all()
    harness.offer(stale_resolves=[MANY[3]])

    assert harness.pass_time(60).send_all() == []


def test_stale_resolve_no_longer_offered_is_withdrawn():
    harness = StaleResolvesHarness()
    harness.send_all()

    assert harness.offer(stale_resolves=()).pass_time(60).send_all() == []


def test_rejected_stale_resolve_is_not_retried_and_not_a_loss():
    harness = StaleResolvesHarness(stale_resolves=MANY[:1])
    harness.send(poison())

    assert harness.pass_time(600).offer(stale_resolves=MANY[:1]).send_all() == []
    assert harness.outbox.losses["rejected"] == 0


def test_stale_resolves_are_not_pending():
    assert StaleResolvesHarness().outbox.pending(WALL) == 0


def test_receiver_that_can_be_asked_gets_only_resolves_of_open_alerts():
    harness = StaleResolvesHarness(ASKED)
    assert harness.ask([("q2", 1.0)]) == ["q0", "q1", "q2", "q3", "q4"]
    assert harness.send_all() == []
    assert harness.pass_time(HELD_SECONDS).ask([("q2", 1.0)]) == ["q2"]

    assert harness.send_all() == [("q2", "resolved")]
    assert harness.pass_time(600).offer().outbox.question(harness.now, harness.wall) == ()


def test_alert_posted_again_belongs_to_another_driver_and_stays_open():
    harness = StaleResolvesHarness(ASKED)
    harness.ask([("q2", 1.0)])
    harness.pass_time(HELD_SECONDS).ask([("q2", 61.0)])

    assert harness.offer().send_all() == []
    assert harness.pass_time(600).offer().outbox.question(harness.now, harness.wall) == ()
    assert harness.send_all() == []


def test_second_query_waits_for_posts_of_other_drivers():
    harness = StaleResolvesHarness(ASKED)
    harness.ask([("q2", 1.0)])

    assert harness.pass_time(HELD_SECONDS - 1).outbox.question(harness.now, harness.wall) == ()
    assert harness.outbox.ask_at(harness.wall) == HELD_SECONDS


def test_later_stale_resolve_is_queried_at_once_and_resolved_in_turn():
    harness = StaleResolvesHarness(ASKED, stale_resolves=MANY[:1])
    harness.ask([("q0", 1.0)])
    harness.pass_time(30).offer(stale_resolves=MANY[:2])
    assert harness.ask([("q0", 1.0), ("q1", 2.0)]) == ["q0", "q1"]
    assert harness.send_all() == []

    harness.pass_time(60).ask([("q0", 1.0), ("q1", 2.0)])
    assert harness.send_all() == [("q0", "resolved")]


def test_alert_that_ended_between_two_queries_is_not_resolved():
    harness = StaleResolvesHarness(ASKED)
    harness.ask([("q2", 1.0)])
    harness.pass_time(HELD_SECONDS).ask()

    assert harness.send_all() == []


def test_restored_entries_stop_stale_resolves():
    """A slow disk may deliver the entries late."""
    harness = StaleResolvesHarness()
    harness.outbox.restore((), WALL)

    assert harness.pass_time(60).send_all() == []


def test_critical_alerts_are_resolved_first():
    mild = over(incident("mild", severity="warning"), WALL)
    harness = StaleResolvesHarness(stale_resolves=[mild, *MANY[:1]])

    assert harness.send_all() == [("q0", "resolved")]


def test_unanswered_query_is_repeated_and_nothing_is_resolved_meanwhile():
    harness = StaleResolvesHarness(ASKED)
    harness.outbox.stale_resolves.answered(MANY, None, 0.0)
    assert harness.pass_time(ASK_AGAIN_SECONDS - 1).outbox.question(harness.now, harness.wall) == ()
    assert harness.send_all() == []

    assert len(harness.pass_time(1).ask()) == 5


def test_no_query_is_sent_while_an_incident_is_pending():
    assert StaleResolvesHarness(ASKED).offer(incident("dead")).outbox.question(0.0, WALL) == ()


MILD = incident("q0", severity="warning")
KEPT = ReceiverCapabilities(reconciles=True, can_be_asked=True, resend_resolved_seconds=300.0)


@pytest.mark.parametrize("again", [MANY[:1], None], ids=["offered again", "unchanged"])
def test_critical_alert_is_queried_after_a_warning_of_the_same_key_ended(again):
    """Alertmanager treats them as two alerts: the end of one does not end the other."""
    harness = StaleResolvesHarness(KEPT, stale_resolves=MANY[:1])
    harness.offer(MILD, stale_resolves=again).send_all()
    assert harness.pass_time(60).offer(stale_resolves=again).send_all() == [("q0", "resolved")]

    harness.pass_time(301).offer(stale_resolves=again).offer(stale_resolves=again)
    assert harness.ask([("q0", 1.0)]) == ["q0"]
    assert harness.pass_time(HELD_SECONDS).ask([("q0", 1.0)]) == ["q0"]
    assert harness.send_all() == [("q0", "resolved")]


def test_key_held_by_this_process_is_not_queried():
    harness = StaleResolvesHarness(KEPT, stale_resolves=MANY[:1])
    harness.offer(MILD, stale_resolves=MANY[:1]).send_all()
    assert harness.pass_time(600).offer(MILD, stale_resolves=MANY[:1]).send_all() == []
    assert harness.ask() == []

    harness.offer(stale_resolves=MANY[:1]).send_all()
    assert harness.pass_time(200).offer(stale_resolves=MANY[:1]).ask() == []


def test_stale_resolve_withdrawn_while_its_key_is_held_is_not_queried():
    harness = StaleResolvesHarness(KEPT, stale_resolves=MANY[:1])
    harness.offer(MILD, stale_resolves=MANY[:1]).send_all()
    harness.pass_time(60).offer(stale_resolves=()).send_all()

    assert harness.pass_time(301).offer(stale_resolves=None).offer(stale_resolves=None).ask() == []


def test_answer_that_arrives_after_this_process_fired_is_ignored():
    harness = StaleResolvesHarness(KEPT, stale_resolves=MANY[:1])
    asked = harness.outbox.question(harness.now, harness.wall)
    harness.offer(MILD, stale_resolves=MANY[:1]).send_all()
    harness.outbox.stale_resolves.answered(asked, [LeftOpen(MANY[0], 1.0)], harness.now)
    harness.pass_time(60).offer(stale_resolves=MANY[:1]).send_all()
    harness.pass_time(301).offer(stale_resolves=MANY[:1]).offer(stale_resolves=MANY[:1])

    assert harness.ask([("q0", 2.0)]) == ["q0"]
    assert harness.send_all() == []
    assert harness.pass_time(HELD_SECONDS).ask([("q0", 2.0)]) == ["q0"]
    assert harness.send_all() == [("q0", "resolved")]


# -- over HTTP --------------------------------------------------------------------------------

NOW = time.time()
STALE = reported("a", starts_at=NOW, ends_at=NOW)


@pytest.fixture
def double():
    with AlertmanagerDouble() as double:
        yield double


POSTED_AT = "2026-11-21T09:03:08.119Z"


def holding(double, *queries, starts_at="2026-11-21T09:02:08.119Z", **labels):
    for query in queries:
        known = {
            "alertname": "StreamingQueryFailed",
            "app": "etl",
            "query": query,
            "severity": "critical",
        }
        times = {"startsAt": starts_at, "updatedAt": POSTED_AT}
        double.open.append({"labels": {**known, **labels}, **times, "x": 1})


def left_open(*doubles, stale_resolve=STALE):
    receiver = Alertmanager([double.url for double in doubles])
    try:
        return receiver.left_open([stale_resolve], time.time())
    finally:
        receiver.close()


def test_alertmanager_is_queried_by_app(double):
    holding(double, "a", "b")
    (found,) = left_open(double)

    assert double.requests[0].path == "/api/v2/alerts?filter=app%3D%22etl%22"
    assert found.incident.alerts[0].labels["query"] == "a"
    assert found.incident.ends_at == NOW
    assert found.posted_at == datetime.fromisoformat(POSTED_AT.replace("Z", "+00:00")).timestamp()


def test_open_warning_is_found_by_its_labels_in_alertmanager(double):
    holding(double, "a", severity="warning")
    (found,) = left_open(double)

    assert found.incident.severity == "warning"


@pytest.mark.parametrize(
    "other", [{"app": "other"}, {"alertname": "StreamingQueryStopped"}, {"instance": "driver:9719"}]
)
def test_alert_with_other_labels_is_ignored(double, other):
    holding(double, "a", **other)

    assert left_open(double) == ()


def test_alert_that_started_later_is_ignored(double):
    holding(double, "a", starts_at="2999-01-01T00:00:00.000Z")

    assert left_open(double) == ()


def test_one_answering_cluster_member_is_enough(double):
    holding(double, "a")
    with HttpDouble(otherwise=reply(503)) as down:
        assert len(left_open(down, double)) == 1


@pytest.mark.parametrize(
    "answer", [reply(401), reply(200, body=b"<html>"), reply(200, body=b'[{"x":' + b"[" * 100_000)]
)
def test_no_valid_answer_is_an_error(answer):
    with HttpDouble(otherwise=answer) as other, pytest.raises(HttpError):
        left_open(other)


def test_newest_post_among_cluster_members_counts(double):
    holding(double, "a")
    with AlertmanagerDouble() as other:
        holding(other, "a")
        other.open[0]["updatedAt"] = "2026-11-21T09:04:00.000Z"
        (found,) = left_open(other, double)

    assert datetime.fromtimestamp(found.posted_at, timezone.utc).minute == 4


def test_start_resolves_only_alerts_that_are_open(double, monkeypatch):
    monkeypatch.setattr(outbox, "HELD_SECONDS", 0.2)
    holding(double, "a")
    delivery = Delivery(Alertmanager([double.url]), Guard())
    delivery.start()
    try:
        never = [reported(f"q{number}", starts_at=NOW, ends_at=NOW) for number in range(20)]
        delivery.offer((), [*never, STALE])
        double.wait_for(3)
        assert delivery.flush(PATIENCE_SECONDS)
    finally:
        delivery.close(PATIENCE_SECONDS)

    posted = [json.loads(one.body) for one in double.requests if one.method == "POST"]
    assert [[one["labels"]["query"] for one in alerts] for alerts in posted] == [["a"]]
