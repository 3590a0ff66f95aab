"""All that tells together: deliveries, their spool, fallbacks, the heartbeat."""

from __future__ import annotations

import json
import time

import pytest
from support.http_double import HttpDouble, reply
from support.pagerduty_double import PagerDutyDouble
from support.queries import until
from support.receiver_incidents import ENDED, incident

from querypulse.listener.guard import Guard
from querypulse.sidecar import Settings
from querypulse.sidecar.configuration.receivers_from_settings import heartbeat, receivers
from querypulse.sidecar.deadline import Deadline
from querypulse.sidecar.notifier import Notifier

FIRING = incident("bronze")


@pytest.fixture
def server():
    with HttpDouble() as double:
        yield double


@pytest.fixture
def report():
    """Makes and starts a ``Notifier``; ``heir`` is what it inherits, ``late`` what it does later."""
    made = []

    def notifier(**settings):
        settings = Settings(**settings)
        heir = []
        one = Notifier(
            settings,
            "etl",
            Guard(),
            receivers=receivers(settings),
            heartbeat=heartbeat(settings, Guard()),
            restore=heir.extend,
        )
        one.heir = [*one.restored]
        one.late = heir
        one.start()
        made.append(one)
        return one

    yield notifier
    for one in made:
        one.close(Deadline(1.0))


def statuses(server):
    return [json.loads(request.body)["status"] for request in server.requests]


def test_what_is_offered_is_reported_and_when_it_is_no_more_its_end(report, server):
    notifier = report(webhook_url=server.url)
    notifier.offer((FIRING,), ())
    assert notifier.flush(Deadline(5))
    notifier.offer((), ())

    assert notifier.flush(Deadline(5))
    assert statuses(server) == ["firing", "resolved"]


def test_without_receivers_all_is_reported_at_once(report):
    notifier = report()
    notifier.offer((FIRING,), ())

    assert notifier.flush(Deadline(0))
    assert notifier.outcomes == {}


def test_a_receiver_that_hangs_does_not_use_up_the_time_of_the_others(report, server):
    with HttpDouble(otherwise=lambda handler: handler.double.closing.wait(30)) as hanging:
        tables = [
            {"type": "webhook", "name": "hangs", "url": hanging.url},
            {"type": "webhook", "name": "works", "url": server.url},
        ]
        notifier = report(receivers=tables)
        notifier.offer((FIRING,), ())

        assert not notifier.flush(Deadline(1.0))
        assert statuses(server) == ["firing"]


def test_at_the_end_the_fallback_is_reported_what_was_not_taken(report, server):
    """Whatever its time is: there will be no later."""
    with HttpDouble(otherwise=reply(503)) as failing:
        tables = [
            {"type": "webhook", "name": "a", "url": failing.url, "fallback": "b"},
            {"type": "webhook", "name": "b", "url": server.url, "severities": []},
        ]
        notifier = report(receivers=tables)
        notifier.offer((FIRING,), ())
        notifier.flush(Deadline(1))
        assert server.requests == []
        notifier.close(Deadline(2))

    assert statuses(server) == ["firing"]


def test_at_the_end_the_fallback_is_not_reported_what_was_taken(report, server):
    with HttpDouble() as working:
        tables = [
            {"type": "webhook", "name": "a", "url": working.url, "fallback": "b"},
            {"type": "webhook", "name": "b", "url": server.url, "severities": []},
        ]
        notifier = report(receivers=tables)
        notifier.offer((FIRING,), ())
        notifier.flush(Deadline(5))
        notifier.close(Deadline(2))

    assert server.requests == []


def test_a_heartbeat_beats_with_the_offers_and_is_counted(report, server):
    notifier = report(heartbeat_url=server.url, heartbeat_interval_seconds=0.01)
    server.wait_for(1)
    until(lambda: notifier.outcomes["heartbeat"]["delivered"], "it is counted")
    # As the worker does: a beat that comes too early is forgotten.
    until(lambda: notifier.offer((), ()) or len(server.requests) > 1, "a beat is told")
    notifier.close(Deadline(5))

    first, *beats, last = [request.path.partition("?")[0] for request in server.requests]
    assert (first, set(beats), last) == ("/start", {"/"}, "/log")


# -- what outlives the driver ---------------------------------------------------------------------


def test_what_an_earlier_driver_reported_is_inherited_and_ended_once_it_is_over(
    report, server, tmp_path
):
    settings = {"webhook_url": server.url, "spool_dir": str(tmp_path / "spool")}
    first = report(**settings)
    first.offer((FIRING,), ())
    assert first.flush(Deadline(5))
    first.close(Deadline(5))

    second = report(**settings)
    assert [one.key for one in second.heir] == [FIRING.key]
    second.offer((FIRING,), ())
    assert second.flush(Deadline(5))
    second.offer((), ())
    assert second.flush(Deadline(5))

    assert first.heir == []
    assert statuses(server) == ["firing", "resolved"]


def test_without_a_spool_nothing_is_inherited(report, server):
    first = report(webhook_url=server.url)
    first.offer((FIRING,), ())
    first.flush(Deadline(5))
    first.close(Deadline(5))

    assert report(webhook_url=server.url).heir == []


def test_a_spool_in_use_is_said_and_what_is_in_it_is_taken_over_later(report, server, tmp_path):
    """As when a new driver starts while the old one still dies."""
    settings = {"webhook_url": server.url, "spool_dir": str(tmp_path / "spool")}
    first = report(**settings)
    first.offer((FIRING,), ())
    assert first.flush(Deadline(5))

    second = report(**settings)
    other = incident("silver")
    second.offer((other,), ())
    assert second.flush(Deadline(5))
    assert second.spool_problem
    assert second.heir == []
    first.close(Deadline(5))

    def restored():
        second.offer((other,), ())
        return second.late

    until(restored, "it is inherited")
    assert [one.key for one in second.late] == [FIRING.key]
    assert second.flush(Deadline(5))
    assert statuses(server) == ["firing", "firing"]
    until(lambda: not second.spool_problem, "nothing is in the way any more")


def test_while_another_process_of_the_app_has_the_spool_nothing_is_resolved_at_the_start(
    report, tmp_path
):
    """What is open under the app's keys may be the other's."""
    with PagerDutyDouble() as pagerduty:
        first = report(spool_dir=str(tmp_path / "spool"))
        second = report(
            spool_dir=str(tmp_path / "spool"),
            pagerduty_routing_key="R" * 32,
            pagerduty_url=pagerduty.enqueue_url,
        )
        until(lambda: second.spool_problem, "the spool is taken")
        second.offer((incident("silver"),), (incident("a", ends_at=ENDED),))
        assert second.flush(Deadline(5))
        time.sleep(0.5)

        assert {event["event_action"] for event in pagerduty.events} == {"trigger"}
        first.close(Deadline(5))


def test_without_trouble_there_is_no_problem_to_show(report, tmp_path):
    assert report().spool_problem == ""
    assert report(spool_dir=str(tmp_path / "spool")).spool_problem == ""


@pytest.mark.contains_errors
def test_a_spool_that_cannot_be_kept_keeps_nobody_from_being_reported(report, server, tmp_path):
    (tmp_path / "file").write_text("")
    notifier = report(webhook_url=server.url, spool_dir=str(tmp_path / "file"))
    notifier.offer((FIRING,), ())

    assert notifier.flush(Deadline(5))
    assert statuses(server) == ["firing"]
    assert str(tmp_path / "file") in notifier.spool_problem
