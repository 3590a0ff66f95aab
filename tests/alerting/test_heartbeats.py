"""Dead man's switches: of the driver, while its worker evaluates; of a query, when it commits or completes."""

from __future__ import annotations

import threading
import uuid
from urllib.parse import parse_qs, urlsplit

import pytest
from msgspec.structs import replace
from support.http_double import held, raw, reply
from support.patience import PATIENCE_SECONDS, Clock, ended, until
from support.receiver_incidents import ENDED_ONE, ONE, SEVERAL, incident
from support.rules_table import ONCE, hung_batch
from support.story import CONFLICT, Story, run

from querypulse.alerting.delivery.heartbeat import (
    Heartbeat,
    Ping,
    QueryHeartbeats,
    ping_of,
    ping_url,
)
from querypulse.alerting.incidents.lifecycle import Evaluated
from querypulse.core.guard import Guard
from querypulse.core.secret import Secret
from querypulse.core.threads import Deadline
from querypulse.listener.events import Started
from querypulse.listener.state.snapshot import parse_watchers
from querypulse.settings.secrets import own_secrets
from querypulse.settings.settings import check_value
from querypulse.sidecar import Settings, SettingsError
from querypulse.sidecar.assemble import make_query_heartbeats

URL = "https://hc.example/ping/0a1b2c3d-secret"


class RecordingHeartbeat:
    """A heartbeat that records its pings; ``takes`` decides whether they arrive."""

    name = "heartbeat a"

    def __init__(self):
        self.last = None
        self.offered = []
        self.takes = True

    def offer(self, ping):
        self.offered.append(ping)
        self.last = ping if self.takes else None


class HeartbeatHarness:
    def __init__(self, *patterns):
        self.switches = {one: RecordingHeartbeat() for one in patterns or ("a",)}
        self.heartbeats = QueryHeartbeats(self.switches)

    def update(self, story, now, pattern=None):
        """The pings that this evaluation offers."""
        switch = self.switches[pattern or next(iter(self.switches))]
        before = len(switch.offered)
        self.heartbeats.update(evaluated(story, now))
        return [one.text for one in switch.offered[before:]]


def test_commit_sends_a_ping():
    harness, story = HeartbeatHarness(), Story().started(at=0)
    assert harness.update(story, 1) == []

    assert harness.update(story.commit(batch=0, at=2), 3) == ["a: batch 0 committed"]
    assert harness.update(story, 4) == []
    assert harness.update(story.commit(batch=1, at=70), 71) == ["a: batch 1 committed"]
    assert [one.path for one in harness.switches["a"].offered] == ["", ""]


def test_each_completed_run_sends_a_ping_even_without_data():
    harness, story, pings = HeartbeatHarness(), Story(), []
    for number in (1, 2, 3):
        at = 100.0 * number
        story.started(run=number, at=at).probe(run(number=number, trigger=ONCE), at=at + 1)
        pings += harness.update(story, at + 2)
        pings += harness.update(story.ended(run=number, at=at + 3), at + 4)
        pings += harness.update(story, at + 90)

    assert pings == ["a: completed"] * 3


@pytest.mark.parametrize(
    ("story", "now"),
    [
        (Story().started(at=0), 10),
        (Story().started(at=0).idle(at=5), 10),
        (Story().probe(run(batch=7), at=0).probe(run(batch=7), at=5), 10),
        (Story().started(at=0).commit("b", batch=0, at=5), 10),
        (Story().started(at=0).commit(batch=0, at=5).ended(at=6, exception=CONFLICT), 10),
        (Story().started(at=0).ended(at=6, exception=CONFLICT), 10),
        (Story().probe(run(), at=0).ended(at=5), 10),
        (Story().probe(run(), at=0).ended(at=5), 100),
        (hung_batch(until=175), 172),
    ],
    ids=["started", "idle", "committed before we attached", "another query", "failed after a commit", "failed",
         "stopped", "gone", "stalled"],
)  # fmt: skip
def test_nothing_else_sends_a_ping(story, now):
    assert HeartbeatHarness().update(story, now) == []


def test_failed_query_stops_the_pings_of_its_pattern():
    harness = HeartbeatHarness("n*")
    story = Story().started("n1", at=0).started("n2", at=0).ended("n2", at=1, exception=CONFLICT)

    assert harness.update(story.commit("n1", batch=0, at=2), 3) == []
    story.started("n2", run=2, at=4).commit("n2", run=2, batch=0, at=5)
    assert harness.update(story, 6) == ["n2: batch 0 committed"]


def test_undelivered_ping_is_offered_again_until_the_query_fails():
    harness, story = HeartbeatHarness(), Story().started(at=0).commit(batch=0, at=1)
    harness.switches["a"].takes = False

    assert [harness.update(story, at) for at in (2, 3)] == [["a: batch 0 committed"]] * 2
    assert harness.update(story.ended(at=4, exception=CONFLICT), 5) == []
    assert harness.update(story, 6) == []


def test_last_matching_pattern_is_pinged():
    harness = HeartbeatHarness("*", "a*", "b")

    story = Story().started(at=0).commit(batch=0, at=1)
    assert harness.update(story, 2, "a*") == ["a: batch 0 committed"]
    assert [len(harness.switches[one].offered) for one in ("*", "b")] == [0, 0]


def test_query_owned_by_another_process_sends_no_ping():
    story = Story()
    story.state.apply_event(Started("id-a", "a-1", "a", session="foreign"), 0)
    story.state.own(parse_watchers("2:mine 1:foreign"))

    assert HeartbeatHarness().update(story.commit(batch=0, at=1), 2) == []


# -- over HTTP ------------------------------------------------------------------------------------


@pytest.fixture
def of_query(double):
    """The heartbeat of query ``a``, at second 1000 of its clock."""
    given = {"a": {"heartbeat_url": f"{double.url}/ping/a"}}
    parsed = Settings(queries=check_value("queries", given, "a test"))
    one = make_query_heartbeats(parsed, Guard())["a"]
    one._clock = Clock(1000.0)
    return one


def completed():
    return Story().probe(run(trigger=ONCE), at=0).ended(at=2)


def evaluated(story, now):
    return Evaluated(story.state.snapshot(now), story.evaluate(now), ())


def test_due_ping_is_sent_before_the_process_ends(double, of_query):
    """A job that runs once a day ends a moment after its query completes."""
    heartbeats = QueryHeartbeats({"a": of_query})
    heartbeats.update(evaluated(completed(), 3))
    of_query._loop.stop()

    heartbeats.start()
    heartbeats.close(Deadline(PATIENCE_SECONDS))

    assert [one.body for one in double.requests] == [b"a: completed"]


def pinged(double, of_query, story, *answers):
    """The heartbeats of a job whose query has completed; ``double`` gives these ``answers``."""
    double.script.extend(answers)
    heartbeats = QueryHeartbeats({"a": of_query})
    heartbeats.start()
    heartbeats.update(evaluated(story, 3))
    double.wait_for(1)
    return heartbeats


@pytest.mark.parametrize(
    ("answers", "fails", "requests"),
    [([reply(429)], False, 2), ([], False, 1), ([reply(429)], True, 1)],
    ids=["not taken", "taken", "not taken, and the query fails"],
)
def test_ping_that_was_not_taken_is_sent_again_when_the_process_ends(
    double, of_query, answers, fails, requests
):
    story = completed()
    heartbeats = pinged(double, of_query, story, *answers)
    until(lambda: sum(of_query.outcomes.values()), "the response is read")
    if fails:
        story.started(run=2, at=4).ended(run=2, at=5, exception=CONFLICT)
    heartbeats.update(evaluated(story, 6))
    heartbeats.close(Deadline(PATIENCE_SECONDS))

    assert [one.body for one in double.requests] == [b"a: completed"] * requests


def test_ping_in_flight_at_the_end_is_not_repeated(double, of_query):
    arrives = threading.Event()
    heartbeats = pinged(double, of_query, completed(), held(arrives, reply(200)))
    closing = threading.Thread(target=heartbeats.close, args=(Deadline(PATIENCE_SECONDS),))
    closing.start()
    until(lambda: of_query._next, "a ping is pending at the end")
    arrives.set()
    closing.join()

    assert len(double.requests) == 1


# -- the settings ---------------------------------------------------------------------------------


def settings(**own):
    return Settings(queries=check_value("queries", {"nightly*": own}, "a test"))


def test_heartbeat_is_set_per_pattern_as_url_or_file(tmp_path):
    file = tmp_path / "url"
    file.write_text(f"{URL}\n")

    for given in (settings(heartbeat_url=URL), settings(heartbeat_url_file=str(file))):
        made = make_query_heartbeats(given, Guard())
        assert {pattern: one.name for pattern, one in made.items()} == {
            "nightly*": "heartbeat nightly*"
        }
        assert [one.reveal() for one in own_secrets(given)] == [URL]


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"heartbeat_url": "http://hc.example/x"}, "queries 'nightly*': .*heartbeat_url"),
        ({"heartbeat_url": "no url"}, "queries 'nightly*': .*heartbeat_url"),
        ({"heartbeat_url": URL, "heartbeat_url_file": "/f"}, "not both"),
        ({"heartbeat_url_file": "/no/such/file"}, "heartbeat_url_file"),
    ],
)
def test_invalid_heartbeat_is_refused_with_its_pattern(own, message):
    with pytest.raises(SettingsError, match=message.replace("*'", r"\*'")):
        make_query_heartbeats(settings(**own), Guard())


# -- of the driver -------------------------------------------------------------------------------

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
