"""The probe of a Spark Connect session, when its server or the job ends."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

import pytest

from querypulse.listener.connect.client import CallFailure, ServerSilentError, failure_of
from querypulse.listener.connect.probe import REFUSED_SECONDS, ConnectProbe
from querypulse.listener.probe_report import (
    Context,
    ListenerHealth,
    ProbeReport,
    RunFacts,
    parse_trigger,
)
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


ANSWER = SimpleNamespace(
    recent_progress=SimpleNamespace(recent_progress_json=[]),
    status=SimpleNamespace(status_message="", is_trigger_active=False, is_data_available=False),
    exception=SimpleNamespace(HasField=lambda name: False),
)
"""To any question about a run."""


class World:
    """A session and its probe; ``failure`` is why its server does not answer now."""

    def __init__(self):
        self.failure, self.active = None, []
        self.path = SimpleNamespace(
            client=SimpleNamespace(
                active=lambda: self.answer(self.active),
                query=lambda *_, **__: self.answer(ANSWER),
                session_id="s",
            ),
            starts=deque(),
            stopped=deque(),
            left=None,
            lost=None,
            receive_progress=print,
            health=ListenerHealth(registered=True),
        )
        self.probe = ConnectProbe(self.path)

    def answer(self, answer):
        if self.failure is not None:
            raise ServerSilentError(self.failure)
        return answer

    def start(self, *names, trigger="ProcessingTimeTrigger(0)"):
        """Runs that the job starts, and that are active from now on."""
        for name in names:
            facts = RunFacts(name, f"{name}-1", name, parse_trigger(trigger), "noop", "/c")
            self.path.starts.append(facts)
            self.active.append(SimpleNamespace(id=SimpleNamespace(id=name, run_id=f"{name}-1")))

    def report(self, failure=None, at=0.0):
        self.failure = failure
        return self.probe.poll(lambda: at)

    def polled(self, failure=None, at=0.0):
        """The context that a poll reports; None without a report."""
        report = self.report(failure, at)
        return report and report.context

    def ends(self, failure=None, at=0.0):
        """By run that has ended: its exception."""
        runs = self.report(failure, at).runs
        return {run.facts.name: run.exception for run in runs if not run.active}


@pytest.fixture
def world():
    return World()


GONE, STOPPED, RUNNING = Context.JVM_GONE, Context.STOPPED_BY_APPLICATION, Context.RUNNING
ENDED = Context.SESSION_ENDED
REFUSES, CUT = CallFailure.REFUSED, CallFailure.UNREACHABLE
CLOSED, LOST = CallFailure.SESSION_CLOSED, CallFailure.SESSION_LOST


SERVERS = {
    "it answers": ([None], [RUNNING]),
    "the connection is cut": ([CUT] * 99, [None] * 99),
    "the connection is cut for a while": ([None] + [CUT] * 9 + [None], [RUNNING] + [None] * 9 + [RUNNING]),
    "it refuses for five seconds, and comes back": ([REFUSES] * 6 + [None], [None] * 5 + [GONE, RUNNING]),
    "cut between refusals": ([REFUSES, CUT] + [REFUSES] * 5, [None] * 7),
    "an answer between refusals": ([REFUSES, None] + [REFUSES] * 5, [None, RUNNING] + [None] * 5),
    "it was started again between two polls": ([None, LOST, None, REFUSES], [RUNNING] + [ENDED] * 3),
    "it was started again while the connection was cut": ([None, CUT, LOST], [RUNNING, None, ENDED]),
    "it refused until it was started again": ([REFUSES] * 6 + [LOST, None], [None] * 5 + [GONE] * 3),
    "the session was closed elsewhere": ([None, CLOSED, None, REFUSES], [RUNNING] + [ENDED] * 3),
    "the session expired while the connection was cut": ([None, CUT, CUT, CLOSED, CUT], [RUNNING, None, None, ENDED, ENDED]),
    "the session expired while a proxy refused": ([None] + [REFUSES] * 6 + [CLOSED], [RUNNING] + [None] * 5 + [GONE, ENDED]),
}  # fmt: skip


@pytest.mark.parametrize(("polls", "contexts"), SERVERS.values(), ids=SERVERS)
def test_what_a_server_answers_each_second_shows_whether_it_has_ended(world, polls, contexts):
    assert REFUSED_SECONDS == 5
    assert [world.polled(poll, at) for at, poll in enumerate(polls)] == contexts


WHY = {
    CLOSED: "has closed the session (it expired, or was released elsewhere; last answer 95 s before)",
    LOST: "has lost the session (it was started again, or another server answers; last answer 95 s before)",
}  # fmt: skip


@pytest.mark.parametrize("failure", WHY)
def test_queries_that_ran_fail_with_their_session_for_the_reason_that_is_said_once(
    world, caplog, failure
):
    world.start("a")
    world.polled(at=5)
    world.start("b")
    failures = [world.ends(failure, at=at) for at in (100, 102)]

    assert failures == [dict.fromkeys("ab", f"the Spark Connect server {WHY[failure]}")] * 2
    assert caplog.text.count(WHY[failure]) == 1
    assert world.probe.context() is ENDED


def test_run_that_the_job_has_stopped_does_not_fail_with_its_session(world):
    world.start("a", "b")
    world.polled()
    world.path.stopped.append("b-1")

    ends = world.ends(CLOSED)

    assert ends["b"] is None
    assert "closed the session" in ends["a"]


def test_run_that_ended_before_its_session_keeps_its_end(world):
    world.start("a", "b")
    world.polled()
    world.active.pop()
    assert world.ends() == {"b": None}

    ends = world.ends(CLOSED)

    assert ends["b"] is None
    assert "closed the session" in ends["a"]


@pytest.mark.parametrize("polls", [[None, CLOSED, REFUSES], [CLOSED], [LOST], [CUT, None]])
def test_session_that_the_job_releases_or_has_stopped_is_no_news(world, caplog, polls):
    world.start("a")
    world.polled()
    world.path.left = STOPPED

    assert world.probe.context() is STOPPED
    assert [world.polled(poll) for poll in polls] == [STOPPED] * len(polls)
    assert world.ends() == {}
    assert caplog.text == ""


@pytest.mark.parametrize("before", [CLOSED, LOST])
def test_job_that_stops_the_session_after_its_end_does_not_undo_that(world, before):
    world.start("a")
    world.polled(before)
    world.path.left = STOPPED

    assert world.polled(CUT) is world.probe.context() is ENDED
    assert list(world.ends()) == ["a"]


def test_job_that_stops_the_session_of_a_server_that_has_ended_does_not_undo_that(world):
    for at in range(6):
        world.polled(REFUSES, at)
    world.path.left = STOPPED

    assert world.polled(REFUSES, 7) is world.probe.context() is GONE


@pytest.mark.parametrize(("lost", "says"), [(CLOSED, "closed the"), (None, "lost the")])
def test_job_that_leaves_because_its_own_call_found_the_session_lost_has_lost_it(world, lost, says):
    world.start("a")
    world.polled()
    world.path.left, world.path.lost = ENDED, lost

    assert says in world.ends()["a"]
    assert world.polled() is world.probe.context() is ENDED


def test_call_of_the_job_that_another_server_answers_ends_nothing_while_ours_is_answered(world):
    """As behind a proxy with two servers: the queries go on in the first one."""
    world.start("a")
    world.path.lost = LOST

    assert world.polled() is world.probe.context() is RUNNING
