"""What answers and failures say about a Spark Connect server and its session."""

from __future__ import annotations

import pytest

from querypulse.listener.connect.client import CallFailure, failure_of
from querypulse.listener.connect.probe import LATE_CALLS, REFUSED_SECONDS, ServerState
from querypulse.listener.probe import Context, ProbeReport
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


def test_connection_is_dead_after_late_calls_in_a_row():
    state = ServerState()
    for at in range(LATE_CALLS - 1):
        failed(state, CallFailure.LATE, at)
    assert not state.is_dead

    failed(state, CallFailure.LATE, 9.0)
    assert state.is_dead
    state.answered()
    assert not state.is_dead
