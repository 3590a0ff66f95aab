"""The probe of a Spark Connect session, when its server or the job ends."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

import pytest

from querypulse.listener.connect.client import CallFailure, ServerSilentError, failure_of
from querypulse.listener.connect.probe import REFUSED_SECONDS, ConnectProbe
from querypulse.listener.probe import Context, ListenerHealth, ProbeReport
from querypulse.listener.state.snapshot import Snapshot, add_poll

REFUSED = "last error: ipv4:127.0.0.1:15002: Failed to connect to remote host: Connection refused"


def test_grpc_status_is_classified():
    failures = [
        ("UNAVAILABLE", REFUSED, CallFailure.REFUSED),
        ("UNAVAILABLE", "Socket closed", CallFailure.UNREACHABLE),
        ("UNAVAILABLE", "", CallFailure.UNREACHABLE),
        ("UNAUTHENTICATED", "token expired", CallFailure.UNREACHABLE),
        ("CANCELLED", "Channel closed!", CallFailure.UNREACHABLE),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", CallFailure.UNREACHABLE),
        ("INTERNAL", "[INVALID_HANDLE.SESSION_CLOSED] The handle", CallFailure.SESSION_CLOSED),
        ("INTERNAL", "[INVALID_HANDLE.SESSION_CHANGED] The handle", CallFailure.SESSION_LOST),
        ("INTERNAL", "[INVALID_HANDLE.SESSION_NOT_FOUND] The", CallFailure.SESSION_LOST),
        ("INTERNAL", "[STREAMING_QUERY_NOT_FOUND] no such query", CallFailure.REJECTED),
        ("INTERNAL", REFUSED, CallFailure.REJECTED),
    ]

    assert [(code, details, failure_of(code, details)) for code, details, _ in failures] == failures


def test_polls_of_a_server_that_runs_again_forget_its_end():
    polls = [Context.RUNNING, Context.JVM_GONE, Context.JVM_GONE, Context.RUNNING]
    driver, ends = Snapshot(at=0, began_at=0), []
    for at, context in enumerate(polls):
        driver = add_poll(driver, ProbeReport(at, at, runs=(), context=context))
        ends.append(driver.context_stopped_at)

    assert ends == [None, 1, 1, None]


class RemoteSession:
    """The job's session; its client is closed when the job stops it."""

    def __init__(self):
        self.client = SimpleNamespace(is_closed=False)

    def stop(self, during=lambda: None):
        during()
        self.client.is_closed = True


class World:
    """A session and its probe; ``failure`` is why its server does not answer now."""

    def __init__(self):
        self.failure, self.spark = None, RemoteSession()
        path = SimpleNamespace(
            client=SimpleNamespace(active=self.active, session_id="s"),
            starts=deque(),
            receive_progress=print,
            health=ListenerHealth(registered=True),
        )
        self.probe = ConnectProbe(self.spark, path)

    def active(self):
        if self.failure is not None:
            raise ServerSilentError(self.failure)
        return []

    def polled(self, failure=None, at=0.0):
        """The context that a poll reports; None without a report."""
        self.failure = failure
        report = self.probe.poll(lambda: at)
        return report and report.context


@pytest.fixture
def world():
    return World()


GONE, STOPPED, RUNNING = Context.JVM_GONE, Context.STOPPED_BY_APPLICATION, Context.RUNNING
REFUSES, CUT = CallFailure.REFUSED, CallFailure.UNREACHABLE
CLOSED, LOST = CallFailure.SESSION_CLOSED, CallFailure.SESSION_LOST


SERVERS = {
    "it answers": ([None], [RUNNING]),
    "the connection is cut": ([CUT] * 99, [None] * 99),
    "it refuses for five seconds, and comes back": ([REFUSES] * 6 + [None], [None] * 5 + [GONE, RUNNING]),
    "cut between refusals": ([REFUSES, CUT] + [REFUSES] * 5, [None] * 7),
    "an answer between refusals": ([REFUSES, None] + [REFUSES] * 5, [None, RUNNING] + [None] * 5),
    "it was started again": ([LOST, None, REFUSES], [GONE] * 3),
    "the session was closed elsewhere": ([CLOSED, None, REFUSES], [STOPPED] * 3),
}  # fmt: skip


@pytest.mark.parametrize(("polls", "contexts"), SERVERS.values(), ids=SERVERS)
def test_what_a_server_answers_each_second_shows_whether_it_has_ended(world, polls, contexts):
    assert REFUSED_SECONDS == 5
    assert [world.polled(poll, at) for at, poll in enumerate(polls)] == contexts


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (LOST, "the Spark Connect server was started again"),
        (CLOSED, "the Spark Connect session was closed"),
    ],
)
def test_end_of_the_session_is_said_once(world, caplog, failure, said):
    for _ in range(3):
        world.polled(failure)

    assert caplog.text.count(said) == 1


def test_another_session_that_the_job_stops_does_not_end_this_one(world):
    contexts = []
    RemoteSession().stop(during=lambda: contexts.append(world.polled()))

    assert contexts == [RUNNING]


def test_session_that_the_job_releases_or_has_stopped_is_no_news(world, caplog):
    world.spark.stop(during=lambda: world.polled(CLOSED))

    for failure in (None, CLOSED, REFUSES):
        assert world.polled(failure) is world.probe.context() is STOPPED
    assert caplog.text == ""
