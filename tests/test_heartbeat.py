"""A dead man's switch hears from us for as long as the worker judges, and no longer."""

import os
import threading
import time
import uuid
from urllib.parse import parse_qs, urlsplit

import pytest
from support.clock import Clock
from support.http_double import HttpDouble, held, raw, reply
from support.receiver_incidents import ONE, incident

from querypulse.alerting.receivers import attempts
from querypulse.alerting.receivers.heartbeat import Heartbeat
from querypulse.alerting.receivers.heartbeat_ping import (
    Ping,
)
from querypulse.alerting.receivers.secret import Secret
from querypulse.listener.guard import Guard

HEALTHY = Ping("", "healthy")
FAIL = Ping("/fail", "bronze failed")
WARNING = incident(name="StreamingQueryLagging", severity="warning")
NOW = 1_800_000_000.0


@pytest.fixture
def double():
    with HttpDouble(otherwise=reply(200, body=b"OK")) as double:
        yield double


@pytest.fixture
def clock():
    return Clock(1000.0)


@pytest.fixture
def heartbeat(double, clock):
    """One that has said that it started."""
    heartbeat = made(double, clock)
    heartbeat.start()
    double.wait_for(1)
    settled(heartbeat)
    yield heartbeat
    heartbeat.close(5.0)


def made(double, clock, **options):
    url = Secret(f"{double.url}/ping/check-1")
    return Heartbeat(url, Guard(), clock=clock, wall=lambda: NOW, **options)


def settled(heartbeat, pings=1):
    """Wait until so many pings have been answered, as the heartbeat itself counts them."""
    deadline = time.monotonic() + 10
    while sum(heartbeat.outcomes.values()) < pings:
        assert time.monotonic() < deadline, heartbeat.outcomes
        time.sleep(0.002)


def beaten(heartbeat, clock, seconds, *incidents):
    """A beat that much later; then what was caused by it has happened."""
    before = sum(heartbeat.outcomes.values())
    clock.now += seconds
    heartbeat.beat(incidents)
    with heartbeat._changed:
        pinging = heartbeat._next is not None or heartbeat._last_at == clock.now
    if pinging:
        settled(heartbeat, before + 1)


def paths(double):
    return [urlsplit(one.path).path.removeprefix("/ping/check-1") for one in double.requests]


# -- when ---------------------------------------------------------------------------------------


def test_it_says_that_it_has_started_and_which_run_this_is(heartbeat, double):
    (request,) = double.requests
    url = urlsplit(request.path)

    assert (request.method, url.path) == ("POST", "/ping/check-1/start")
    assert uuid.UUID(parse_qs(url.query)["rid"][0])
    assert request.headers["Content-Type"].startswith("text/plain")


def test_all_pings_of_one_process_have_one_run(heartbeat, double, clock):
    beaten(heartbeat, clock, 60)
    started, well = (parse_qs(urlsplit(one.path).query)["rid"] for one in double.requests)

    assert started == well


def test_it_pings_once_an_interval_however_often_the_worker_beats(heartbeat, double, clock):
    for _ in range(125):
        beaten(heartbeat, clock, 1.0)

    assert paths(double) == ["/start", "", ""]


def test_no_ping_leaves_when_the_worker_beats_no_more(heartbeat, double, clock):
    """A beat that came too early is not kept for a time when the worker may hang."""
    beaten(heartbeat, clock, 60)
    beaten(heartbeat, clock, 59)
    clock.now += 3600
    with heartbeat._changed:
        heartbeat._changed.notify_all()

    assert heartbeat._next is None
    assert paths(double) == ["/start", ""]


def test_a_failure_is_reported_with_its_story_and_its_end_soon_after(heartbeat, double, clock):
    beaten(heartbeat, clock, 60)
    beaten(heartbeat, clock, 13, ONE)
    beaten(heartbeat, clock, 13, ONE)
    beaten(heartbeat, clock, 13)

    assert paths(double) == ["/start", "", "/fail", ""]
    assert double.requests[2].body == b"bronze failed"


def test_a_beat_does_not_wait_for_a_ping(double, clock):
    """Nor does the worker for a server that hangs."""
    answer = threading.Event()
    double.otherwise = held(answer, reply(200))
    heartbeat = made(double, clock)
    heartbeat.start()
    double.wait_for(1)
    began = time.monotonic()
    heartbeat.beat([ONE])

    assert time.monotonic() - began < 0.5
    answer.set()
    heartbeat.close(5.0)


# -- when it goes wrong -------------------------------------------------------------------------


def test_an_outage_is_counted_and_said_once(heartbeat, double, clock, caplog, monkeypatch):
    monkeypatch.setattr(attempts, "ATTEMPTS", 1)
    double.otherwise = reply(503)
    for _ in range(3):
        beaten(heartbeat, clock, 60)
    assert caplog.text.count("answered 503") == 1
    double.otherwise = reply(200)
    beaten(heartbeat, clock, 60)
    double.otherwise = reply(503)
    beaten(heartbeat, clock, 60)

    assert caplog.text.count("answered 503") == 2
    assert heartbeat.outcomes["transient"] == 4
    assert heartbeat.outcomes["delivered"] == 2


def test_after_an_outage_the_next_ping_comes_sooner_than_the_interval(
    heartbeat, double, clock, monkeypatch
):
    monkeypatch.setattr(attempts, "ATTEMPTS", 1)
    beaten(heartbeat, clock, 60)
    double.script.append(raw())
    beaten(heartbeat, clock, 60)
    beaten(heartbeat, clock, 14)
    assert len(double.requests) == 3
    beaten(heartbeat, clock, 2)

    assert len(double.requests) == 4


def test_a_check_that_is_unknown_is_tried_once_an_interval(heartbeat, double, clock):
    beaten(heartbeat, clock, 60)
    double.otherwise = reply(404)
    for _ in range(121):
        beaten(heartbeat, clock, 1.0)

    assert len(double.requests) == 4
    assert heartbeat.outcomes["misconfigured"] == 2


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (202, "delivered"),
        (301, "misconfigured"),
        (400, "rejected"),
        (410, "misconfigured"),
        (429, "transient"),
    ],
)
def test_every_answer_is_counted_and_none_ends_the_pings(heartbeat, double, clock, status, outcome):
    """A switch that is gone today may be made anew tomorrow."""
    double.script.append(reply(status))
    beaten(heartbeat, clock, 60)
    beaten(heartbeat, clock, 60)

    assert heartbeat.outcomes[outcome] == (3 if outcome == "delivered" else 1)
    assert len(double.requests) == 3


def test_throttling_is_obeyed(heartbeat, double, clock):
    double.script.append(reply(429, {"Retry-After": "200"}))
    beaten(heartbeat, clock, 60)
    beaten(heartbeat, clock, 199)
    assert len(double.requests) == 2
    beaten(heartbeat, clock, 2)

    assert len(double.requests) == 3


def test_a_bad_url_is_refused_by_its_settings_name():
    with pytest.raises(ValueError, match="heartbeat_url must be https"):
        Heartbeat(Secret("http://hc.example.com/uuid"), Guard())


# -- how it ends --------------------------------------------------------------------------------


def test_an_orderly_end_is_noted(heartbeat, double):
    heartbeat.close(5.0)
    heartbeat.close(5.0)

    assert paths(double) == ["/start", "/log"]
    assert double.requests[1].body == b"stopped"


def test_one_that_was_never_received_says_nothing_at_the_end(double, clock):
    heartbeat = made(double, clock)
    heartbeat.close(5.0)

    assert not double.requests


def test_a_server_that_hangs_does_not_hold_the_end(heartbeat, double):
    double.otherwise = held(threading.Event(), reply(200))
    began = time.monotonic()
    heartbeat.close(0.3)

    assert time.monotonic() - began < 1.0


def test_a_fork_of_the_driver_says_nothing(heartbeat, double, clock):
    """Neither that it lives nor that it has ended."""
    child = os.fork()
    if child == 0:
        clock.now += 3600
        heartbeat.beat([ONE])
        heartbeat.close(1.0)
        os._exit(0)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert paths(double) == ["/start"]
