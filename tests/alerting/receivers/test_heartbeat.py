"""The heartbeat pings its monitor for as long as the worker evaluates, and no longer."""

import threading
import uuid
from urllib.parse import parse_qs, urlsplit

import pytest
from msgspec.structs import replace
from support.http_double import held, raw, reply
from support.patience import PATIENCE_SECONDS, Clock, ended, until
from support.receiver_incidents import ENDED_ONE, ONE, SEVERAL, incident

from querypulse.alerting.heartbeat import Heartbeat, Ping, ping_of, ping_url
from querypulse.core.guard import Guard
from querypulse.core.secret import Secret

WARNING = incident(name="StreamingQueryLagging", severity="warning")


@pytest.fixture
def heartbeat(double):
    """A heartbeat that has sent its start ping."""
    heartbeat = made(double)
    heartbeat.start()
    double.wait_for(1)
    settled(heartbeat)
    yield heartbeat
    heartbeat.close(PATIENCE_SECONDS)


def made(double):
    return Heartbeat(Secret(f"{double.url}/ping/check-1"), Guard(), clock=Clock(1000.0))


def settled(heartbeat, pings=1):
    """Wait until this many pings have been answered, according to the heartbeat."""
    until(lambda: sum(heartbeat.outcomes.values()) >= pings, f"{pings} pings are answered")


def beaten(heartbeat, seconds, *incidents):
    """Beat this many seconds later, and wait for the ping that follows, if any."""
    before, clock = sum(heartbeat.outcomes.values()), heartbeat._clock
    clock.now += seconds
    heartbeat.offer(ping_of(incidents))
    with heartbeat._changed:
        pinging = heartbeat._next is not None or heartbeat._last_at == clock.now
    if pinging:
        settled(heartbeat, before + 1)


def paths(double):
    return [urlsplit(one.path).path.removeprefix("/ping/check-1") for one in double.requests]


# -- when ---------------------------------------------------------------------------------------


def test_start_ping_carries_a_run_id(heartbeat, double):
    (request,) = double.requests
    url = urlsplit(request.path)

    assert (request.method, url.path) == ("POST", "/ping/check-1/start")
    assert uuid.UUID(parse_qs(url.query)["rid"][0])
    assert request.headers["Content-Type"].startswith("text/plain")


def test_pings_are_sent_once_per_interval_however_often_the_worker_beats(heartbeat, double):
    for _ in range(125):
        beaten(heartbeat, 1.0)

    assert paths(double) == ["/start", "", ""]


def test_no_ping_is_sent_after_the_worker_stops_beating(heartbeat, double):
    """A beat that came too early is not kept, because the worker may hang by then."""
    beaten(heartbeat, 60)
    beaten(heartbeat, 59)
    heartbeat._clock.now += 3600
    with heartbeat._changed:
        heartbeat._changed.notify_all()

    assert heartbeat._next is None
    assert paths(double) == ["/start", ""]


def test_failure_and_recovery_are_pinged_soon(heartbeat, double):
    """A check still accepts only five pings a minute."""
    beaten(heartbeat, 60)
    beaten(heartbeat, 12, ONE)
    assert paths(double) == ["/start", ""]
    beaten(heartbeat, 1, ONE)
    beaten(heartbeat, 13, ONE)
    beaten(heartbeat, 13)

    assert paths(double) == ["/start", "", "/fail", ""]
    assert double.requests[2].body == b"bronze failed"


def test_beat_does_not_wait_for_a_ping(double):
    """So a hanging server, which answers only afterwards, does not delay the worker."""
    answer = threading.Event()
    double.otherwise = held(answer, reply(200))
    heartbeat = made(double)
    heartbeat.start()
    double.wait_for(1)
    ended(lambda: heartbeat.offer(ping_of([ONE])))
    answer.set()
    heartbeat.close(PATIENCE_SECONDS)


# -- failures -----------------------------------------------------------------------------------


def test_outage_is_counted_and_logged_once(heartbeat, double, caplog):
    double.otherwise = reply(503)
    for _ in range(3):
        beaten(heartbeat, 60)
    assert caplog.text.count("answered 503") == 1
    double.otherwise = reply(200)
    beaten(heartbeat, 60)
    double.otherwise = reply(503)
    beaten(heartbeat, 60)

    assert caplog.text.count("answered 503") == 2
    assert heartbeat.outcomes["transient"] == 4
    assert heartbeat.outcomes["delivered"] == 2


@pytest.mark.parametrize(
    ("answer", "outcome", "seconds"),
    [
        (reply(202), "delivered", 60),
        (reply(301), "misconfigured", 60),
        (reply(400), "rejected", 60),
        (reply(410), "misconfigured", 60),
        (raw(), "transient", 15),
        (reply(429, {"Retry-After": "200"}), "transient", 200),
    ],
)
def test_every_answer_is_counted_and_says_when_the_next_ping_is_due(
    heartbeat, double, answer, outcome, seconds
):
    """A check that is deleted today may be recreated tomorrow."""
    double.script.append(answer)
    beaten(heartbeat, 60)
    beaten(heartbeat, seconds - 1)
    assert len(double.requests) == 2
    beaten(heartbeat, 2)

    assert len(double.requests) == 3
    assert heartbeat.outcomes[outcome] == (3 if outcome == "delivered" else 1)


# -- shutdown -----------------------------------------------------------------------------------


def test_shutdown_sends_a_log_ping(heartbeat, double):
    heartbeat.close(PATIENCE_SECONDS)
    heartbeat.close(PATIENCE_SECONDS)

    assert paths(double) == ["/start", "/log"]
    assert double.requests[1].body == b"stopped"


def test_heartbeat_that_never_started_sends_nothing_at_shutdown(double):
    made(double).close(PATIENCE_SECONDS)

    assert not double.requests


def test_hanging_server_does_not_delay_shutdown(heartbeat, double):
    """The last ping is cut off; the server never answers it."""
    double.otherwise = held(threading.Event(), reply(200))
    ended(lambda: heartbeat.close(0.1))


# -- what it says ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("incidents", "path", "text"),
    [
        ([], "", "healthy"),
        ([ENDED_ONE], "", "healthy"),
        ([WARNING], "", "healthy; 1 not critical or silenced"),
        ([replace(ONE, muted="silenced until noon")], "", "healthy; 1 not critical or silenced"),
        ([WARNING, ONE], "/fail", "bronze failed"),
        (
            [ONE, SEVERAL],
            "/fail",
            "bronze failed\n[etl] 5 queries failed: ConcurrentAppendException "
            "(bronze, silver, gold, alerts, audit)",
        ),
    ],
)
def test_only_an_unmuted_critical_incident_is_a_failure(incidents, path, text):
    assert ping_of(incidents) == Ping(path, text)


def test_signal_is_added_before_the_query_of_the_url():
    assert ping_url("https://h/p/uuid/?create=1", "/fail", "r-1") == (
        "https://h/p/uuid/fail?create=1&rid=r-1"
    )
    assert ping_url("https://h/p/uuid", "", "r-1") == "https://h/p/uuid?rid=r-1"
