"""Deliveries, their spool, fallbacks and the heartbeat work together."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest
from support.deliveries import incident, stale
from support.http_double import HttpDouble, reply
from support.pagerduty_double import PagerDutyDouble
from support.patience import PATIENCE_SECONDS, ended, until

from querypulse.alerting.delivery import heartbeat as heartbeat_module
from querypulse.alerting.delivery import spool as spool_module
from querypulse.alerting.delivery.spool import Spool
from querypulse.core.guard import Guard
from querypulse.core.threads import Deadline
from querypulse.sidecar import Settings, assemble
from querypulse.sidecar.assemble import make_heartbeat, make_receivers

FIRING = incident("bronze")


@pytest.fixture
def start_notifier(monkeypatch):
    """Create and start a ``Notifier``; ``early`` and ``late`` are what it restores, and when."""
    made = []
    monkeypatch.setattr(Spool.load, "__defaults__", (PATIENCE_SECONDS,))
    monkeypatch.setattr(spool_module, "RETRY_SECONDS", 0.05)

    def start(**settings):
        settings = Settings(**settings)
        late, guard = [], Guard()
        one = assemble.make_notifier(
            settings,
            "etl",
            guard,
            make_receivers(settings),
            restore=late.extend,
            heartbeat=make_heartbeat(settings, Guard()),
        )
        one.early = [*late]
        late.clear()
        one.late = late
        one.start()
        made.append(one)
        return one

    yield start
    for one in made:
        one.close(Deadline(1.0))


def statuses(double):
    return [json.loads(request.body)["status"] for request in double.requests]


@pytest.fixture
def silent_dns(monkeypatch):
    """Lookups of ``hangs.test`` return only when the test ends."""
    free, lookup = threading.Event(), socket.getaddrinfo

    def hang(host, *args, **options):
        if host == "hangs.test":
            free.wait()
        return lookup(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    yield
    free.set()


@pytest.mark.fault(
    "Receivers",
    "DNS never answers for one receiver",
    "The others are notified; its one thread waits alone, and closing is bounded",
)
def test_receiver_that_dns_never_answers_for_waits_alone(
    start_notifier, double, silent_dns, measured
):
    slack = {"type": "slack", "name": "slack", "url": "https://hangs.test/services/T0/B0/secret"}
    notifier = start_notifier(webhook_url=double.url, receivers=[slack])
    notifier.offer((FIRING,))
    until(lambda: double.requests, "the webhook is notified")
    for _ in range(20):
        notifier.offer((FIRING,))
    threads = [one for one in threading.enumerate() if one.name.startswith("querypulse-deliver")]
    began = time.monotonic()
    ended(lambda: notifier.close(Deadline(0.2)))
    seconds = time.monotonic() - began

    measured(f"closed after {seconds:.1f} s, {len(threads)} threads")
    assert statuses(double) == ["firing"]
    assert len(threads) == 2


def test_close_sends_undelivered_incidents_to_the_fallback(start_notifier, double):
    """The fallback delay does not apply, because there is no later."""
    with HttpDouble(otherwise=reply(503)) as failing:
        tables = [
            {"type": "webhook", "name": "a", "url": failing.url, "fallback": "b"},
            {"type": "webhook", "name": "b", "url": double.url, "severities": []},
        ]
        notifier = start_notifier(receivers=tables)
        notifier.offer((FIRING,))
        notifier.flush(Deadline(1))
        assert double.requests == []
        notifier.close(Deadline(PATIENCE_SECONDS))

    assert statuses(double) == ["firing"]


def test_heartbeat_is_sent_with_offers_and_counted(start_notifier, double, monkeypatch):
    monkeypatch.setattr(heartbeat_module, "LEAST_SECONDS", 0.01)
    notifier = start_notifier(heartbeat_url=double.url)
    double.wait_for(1)
    until(lambda: notifier.outcomes["heartbeat"]["delivered"], "the beat is counted")
    # Like the worker, this offers repeatedly: a beat that comes too early is dropped.
    until(lambda: notifier.offer(()) or len(double.requests) > 1, "a beat is sent")
    notifier.close(Deadline(PATIENCE_SECONDS))

    first, *beats, last = [request.path.partition("?")[0] for request in double.requests]
    assert (first, set(beats), last) == ("/start", {"/"}, "/log")


def test_incident_from_an_earlier_driver_is_restored_and_resolved_when_it_ends(
    start_notifier, double, tmp_path
):
    settings = {"webhook_url": double.url, "spool_dir": str(tmp_path / "spool")}
    first = start_notifier(**settings)
    first.offer((FIRING,))
    assert first.flush(Deadline(PATIENCE_SECONDS))
    first.close(Deadline(PATIENCE_SECONDS))

    second = start_notifier(**settings)
    assert [one.key for one in second.early] == [FIRING.key]
    second.offer((FIRING,))
    assert second.flush(Deadline(PATIENCE_SECONDS))
    second.offer(())
    assert second.flush(Deadline(PATIENCE_SECONDS))

    assert first.early == []
    assert statuses(double) == ["firing", "resolved"]


def test_spool_in_use_is_reported_and_restored_later(start_notifier, double, tmp_path):
    """A new driver may start while the old one is still shutting down."""
    settings = {"webhook_url": double.url, "spool_dir": str(tmp_path / "spool")}
    first = start_notifier(**settings)
    first.offer((FIRING,))
    assert first.flush(Deadline(PATIENCE_SECONDS))

    second = start_notifier(**settings)
    other = incident("silver")
    second.offer((other,))
    assert second.flush(Deadline(PATIENCE_SECONDS))
    assert second.spool_problem
    assert second.early == []
    first.close(Deadline(PATIENCE_SECONDS))

    def restored():
        second.offer((other,))
        return second.late

    until(restored, "the incident is restored")
    assert [one.key for one in second.late] == [FIRING.key]
    assert second.flush(Deadline(PATIENCE_SECONDS))
    assert statuses(double) == ["firing", "firing"]
    until(lambda: not second.spool_problem, "the spool problem is gone")


def test_no_stale_incident_is_sent_while_another_process_holds_the_spool(start_notifier, tmp_path):
    """Incidents open under the app's keys may belong to the other process."""
    with PagerDutyDouble() as pagerduty:
        first = start_notifier(spool_dir=str(tmp_path / "spool"))
        second = start_notifier(
            spool_dir=str(tmp_path / "spool"),
            pagerduty_routing_key="R" * 32,
            pagerduty_url=pagerduty.enqueue_url,
        )
        until(lambda: second.spool_problem, "the spool is in use")
        second.offer((incident("silver"), stale("a")))
        assert second.flush(Deadline(PATIENCE_SECONDS))
        (delivery,) = second.deliveries
        until(lambda: delivery._changed._waiters, "its thread has nothing to send")

        assert {event["event_action"] for event in pagerduty.events} == {"trigger"}
        first.close(Deadline(PATIENCE_SECONDS))
