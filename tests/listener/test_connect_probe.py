"""The probe of a Spark Connect session, when its server or the job ends."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from support.patience import PATIENCE_SECONDS

from querypulse.listener.connect import probe as probing
from querypulse.listener.connect.client import CallFailure, ServerSilentError, failure_of
from querypulse.listener.connect.probe import REFUSED_SECONDS, ConnectProbe, ServerState
from querypulse.listener.probe import Context, ListenerHealth, ProbeReport
from querypulse.listener.state.snapshot import Snapshot, add_poll

REFUSED = "last error: ipv4:127.0.0.1:15002: Failed to connect to remote host: Connection refused"


def failed(state, failure, at, *, closed_by_job=False):
    state.failed(failure, at, closed_by_job=closed_by_job)
    return state.context


def test_grpc_status_is_classified():
    failures = [
        ("UNAVAILABLE", REFUSED, CallFailure.REFUSED),
        ("UNAVAILABLE", "Socket closed", CallFailure.UNREACHABLE),
        ("UNAVAILABLE", "", CallFailure.UNREACHABLE),
        ("UNAUTHENTICATED", "token expired", CallFailure.UNREACHABLE),
        ("CANCELLED", "Channel closed!", CallFailure.UNREACHABLE),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", CallFailure.LATE),
        ("INTERNAL", "[INVALID_HANDLE.SESSION_CLOSED] The handle", CallFailure.SESSION_CLOSED),
        ("INTERNAL", "[INVALID_HANDLE.SESSION_CHANGED] The handle", CallFailure.SESSION_LOST),
        ("INTERNAL", "[INVALID_HANDLE.SESSION_NOT_FOUND] The", CallFailure.SESSION_LOST),
        ("INTERNAL", "[STREAMING_QUERY_NOT_FOUND] no such query", CallFailure.REJECTED),
        ("INTERNAL", REFUSED, CallFailure.REJECTED),
    ]

    assert [(code, details, failure_of(code, details)) for code, details, _ in failures] == failures


@pytest.mark.parametrize("failure", [CallFailure.UNREACHABLE, CallFailure.LATE])
def test_server_that_only_does_not_answer_has_not_ended(failure):
    state = ServerState()

    assert {failed(state, failure, at) for at in range(0, 600, 5)} == {Context.RUNNING}


@pytest.mark.parametrize("between", [CallFailure.UNREACHABLE, CallFailure.LATE, None])
def test_refusals_count_only_in_a_row(between):
    state = ServerState()
    failed(state, CallFailure.REFUSED, 0.0)
    if between is None:
        state.answered()
    else:
        failed(state, between, 1.0)

    assert failed(state, CallFailure.REFUSED, REFUSED_SECONDS + 1) is Context.RUNNING


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


class Ticking:
    """A clock that a second passes on at each reading."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setattr(probing, "RETRY_SECONDS", 0.0)
    failures = []

    def active():
        failure = failures.pop(0) if len(failures) > 1 else (failures or [None])[0]
        if failure is not None:
            raise ServerSilentError(failure)
        return []

    path = SimpleNamespace(
        client=SimpleNamespace(active=active, session_id="s"),
        take_starts=list,
        pass_on_polled=print,
        check=lambda now: ListenerHealth(registered=True),
    )
    spark = RemoteSession()
    return SimpleNamespace(
        spark=spark, failures=failures, probe=ConnectProbe(spark, path), clock=Ticking()
    )


def test_answer_is_a_report_of_a_running_server(world):
    report = world.probe.poll(world.clock)

    assert report.context is Context.RUNNING
    assert report.listener.registered


def test_server_that_refuses_is_gone_after_seconds_and_may_come_back(world):
    world.failures[:] = [CallFailure.REFUSED]
    report = world.probe.poll(world.clock)
    assert report.context is Context.JVM_GONE
    assert world.clock.now >= REFUSED_SECONDS

    world.failures[:] = [None]
    assert world.probe.poll(world.clock).context is Context.RUNNING


def test_short_refusal_is_no_report_at_all(world):
    world.failures[:] = [CallFailure.REFUSED, CallFailure.REFUSED, None]

    assert world.probe.poll(world.clock).context is Context.RUNNING


def test_poll_that_waits_for_a_silent_server_ends_when_the_probe_stops(world, monkeypatch):
    monkeypatch.setattr(probing, "RETRY_SECONDS", 10 * PATIENCE_SECONDS)
    first = world.probe.poll(world.clock)
    world.failures[:] = [CallFailure.LATE]
    reports = []
    poll = lambda: reports.append(world.probe.poll(world.clock))
    thread = threading.Thread(target=poll, daemon=True)
    thread.start()

    world.probe.stop()
    thread.join(PATIENCE_SECONDS)

    assert reports == [first]


def test_server_started_again_is_gone_and_said_once(world, caplog):
    world.failures[:] = [CallFailure.SESSION_LOST]

    contexts = [world.probe.poll(world.clock).context for _ in range(3)]

    assert contexts == [Context.JVM_GONE] * 3
    assert caplog.text.count("the Spark Connect server was started again") == 1


def test_session_closed_elsewhere_is_said_and_is_no_failure(world, caplog):
    world.failures[:] = [CallFailure.SESSION_CLOSED]

    assert world.probe.poll(world.clock).context is Context.STOPPED_BY_APPLICATION
    assert "the Spark Connect session was closed" in caplog.text


def test_session_that_the_job_is_releasing_is_no_news(world, caplog):
    world.failures[:] = [CallFailure.SESSION_CLOSED]

    world.spark.stop(during=lambda: world.probe.poll(world.clock))

    assert caplog.text == ""


def test_another_session_that_the_job_stops_does_not_end_this_one(world):
    contexts = []

    RemoteSession().stop(during=lambda: contexts.append(world.probe.poll(world.clock).context))

    assert contexts == [Context.RUNNING]


@pytest.mark.parametrize("failure", [None, CallFailure.SESSION_CLOSED, CallFailure.REFUSED])
def test_session_stopped_by_the_job_is_no_news(world, caplog, failure):
    world.spark.stop()
    world.failures[:] = [failure]

    assert world.probe.poll(world.clock).context is Context.STOPPED_BY_APPLICATION
    assert world.probe.context() is Context.STOPPED_BY_APPLICATION
    assert caplog.text == ""
