"""Several processes may watch one JVM: exactly one of them reports each query."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.story import CONFLICT, policy

from querypulse.alerting.evaluate import evaluate
from querypulse.listener.events import Started, Terminated
from querypulse.listener.state.snapshot import ALONE, MAX_SESSIONS, Ownership, parse_watchers
from querypulse.listener.state.state import State
from querypulse.sidecar.failure import first_failure

SESSIONS = ["s1", "s2", "s3", "s4", ""]
"""The last one is an unknown session."""


def seen_by_each(processes):
    """What each process reads from the JVM; a process is its start time and its sessions."""
    texts = [f"{since}:{','.join(claims)}" for since, claims in processes]
    return [
        parse_watchers(" ".join([text, *(other for other in texts if other is not text)]))
        for text in texts
    ]


def reporters(processes, session):
    """The numbers of the processes that report a session."""
    return [number for number, seen in enumerate(seen_by_each(processes)) if seen.covers(session)]


PROCESSES = st.lists(
    st.tuples(
        st.integers(min_value=-(2**63), max_value=2**63 - 1),
        st.lists(st.sampled_from(SESSIONS[:-1]), unique=True),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda process: process[0],
)


def test_single_process_is_alone_and_reports_every_query():
    for seen in (ALONE, parse_watchers(""), parse_watchers("7:"), parse_watchers("7:s1")):
        assert seen.is_alone
        assert all(map(seen.covers, SESSIONS))
    for processes in ([(1, ["s1"]), (2, [])], [(1, []), (2, []), (3, ["s1"])]):
        assert not any(seen.is_alone for seen in seen_by_each(processes))


TWO, THREE = [(1, ["s1"]), (2, ["s2"])], [(1, []), (2, ["s1"]), (3, ["s1", "s2"])]
CLAIMS = {
    "each of two has claimed its own": (TWO, {"s1": [0], "s2": [1]}),
    "nobody has claimed it": ([(5, ["s1"]), (2, ["s2"]), (9, [])], {"s3": [1], "": [1]}),
    "two have claimed it": (THREE, {"s1": [1]}),
    "the first of them has left": (THREE[:1] + THREE[2:], {"s1": [1]}),
    "the first process has left": (THREE[1:], {"s9": [0]}),
    "the only one that claimed it has left": (THREE[:2], {"s2": [0]}),
    "negative start times": ([(-1, []), (-20, [])], {"s1": [1]}),
}
"""Of each process: its start time, which may be negative as ``System.nanoTime``, and claims."""


@pytest.mark.parametrize(("processes", "expected"), CLAIMS.values(), ids=CLAIMS)
def test_session_is_reported_by_the_first_that_claimed_it_else_by_the_first(processes, expected):
    assert {session: reporters(processes, session) for session in expected} == expected


def test_sessions_of_each_process_are_parsed():
    assert parse_watchers("5:a,b 9:c left:70:e,f 2:d,b left:60:f left:1:") == Ownership(
        own=frozenset("ab"),
        others=frozenset("cdb"),
        elders=frozenset("db"),
        is_eldest=False,
        has_others=True,
        left={"e": 70.0, "f": 70.0},
        foreign=dict.fromkeys("bcdef"),
    )


def test_sessions_of_an_earlier_sidecar_of_this_process_are_not_foreign():
    seen = parse_watchers("5:a ours:70:e,f left:80:g")

    assert seen.left == {"e": 70.0, "f": 70.0, "g": 80.0}
    assert list(seen.foreign) == ["g"]
    assert (seen.is_own("e"), seen.is_own("g")) == (True, False)


def test_what_the_jvm_forgets_of_other_processes_is_remembered_up_to_a_limit():
    seen = ALONE
    for number in range(MAX_SESSIONS + 5):
        seen = seen.updated(parse_watchers(f"5:a left:60:gone-{number}"))
    seen = seen.updated(parse_watchers("5:a"))

    assert len(seen.left) == len(seen.foreign) == MAX_SESSIONS
    assert "gone-4" not in seen.foreign
    assert seen.was_reported("gone-5", 59.0)


@given(st.text(st.sampled_from("0123456789ableftours:, -"), max_size=20))
def test_malformed_text_raises_only_a_value_error(text):
    try:
        parse_watchers(text)
    except ValueError:
        return


def failed_in_each(sessions):
    """A state in which one query of each session has failed."""
    state = State(0.0)
    for number, session in enumerate(sessions):
        ids = f"id-{number}", f"run-{number}"
        state.apply_event(Started(*ids, f"q{number}", session=session), 1.0)
        state.apply_event(Terminated(*ids, CONFLICT, None), 2.0)
    return state


@given(PROCESSES, st.lists(st.sampled_from(SESSIONS), min_size=1, max_size=4))
def test_every_failure_is_reported_by_exactly_one_process(processes, sessions):
    reported = []
    for seen in seen_by_each(processes):
        state = failed_in_each(sessions)
        state.own(seen)
        evaluation = evaluate(state.snapshot(3.0), 3.0, policy())
        own = {finding.query for finding in evaluation.findings}
        assert {label for label, one in evaluation.health.items() if not one.ignored} == own
        reported += own

    assert sorted(reported) == sorted(f"q{number}" for number in range(len(sessions)))


def test_query_of_another_process_still_has_a_state():
    state = failed_in_each(["s2"])
    state.own(parse_watchers("5:s1 9:s2"))
    evaluation = evaluate(state.snapshot(3.0), 3.0, policy())

    assert evaluation.findings == ()
    assert (evaluation.health["q0"].state.value, evaluation.health["q0"].ignored) == (
        "failed",
        True,
    )


def reported(state):
    return [finding.query for finding in evaluate(state.snapshot(9.0), 9.0, policy()).findings]


def reported_after(*steps):
    """What is reported of a query of session ``s2``: a step is a text of claims, or when it failed."""
    state, runs = State(0.0), 0
    state.apply_event(Started("id-0", "run-0", "q0", session="s2"), 1.0)
    for step in steps:
        if isinstance(step, str):
            state.own(parse_watchers(step))
            continue
        if runs:
            state.apply_event(Started("id-0", f"run-{runs}", "q0", session="s2"), step - 1)
        state.apply_event(Terminated("id-0", f"run-{runs}", CONFLICT, None), step)
        runs += 1
    return reported(state)


BESIDE, LEFT, KILLED = "5:s1 9:s2", "5:s1 left:6:s2", "5:s1"


FAILURES = {
    "of a query of another process": ([2.0, BESIDE], False),
    "its process closed afterwards": ([2.0, BESIDE, LEFT], False),
    "and the JVM has forgotten that": ([2.0, BESIDE, LEFT, KILLED], False),
    "its event arrives after the close": ([LEFT, 5.9, LEFT], False),
    "its process had closed before": ([BESIDE, LEFT, 6.5, LEFT], True),
    "its process attaches again": ([2.0, "7:s2 left:6:s2"], True),
    "of the next run": ([2.0, BESIDE, LEFT, 8.0], True),
    "its process was killed": ([2.0, BESIDE, KILLED], True),
}


@pytest.mark.parametrize(("steps", "is_reported"), FAILURES.values(), ids=FAILURES)
def test_failure_is_reported_unless_its_process_reported_it_before_it_closed(steps, is_reported):
    assert reported_after(*steps) == (["q0"] if is_reported else [])


@pytest.mark.parametrize(
    ("claims", "failed_at", "is_reported", "ends"),
    [
        (["5:s1 left:6:s2"], 8.0, True, False),
        (["5:s1 9:s2", "5:s1 left:6:s2"], 2.0, False, False),
        (["5:s1 9:s2", "5:s1"], 8.0, True, False),
        (["5:s1", "7:s9 ours:6:s2"], 8.0, True, True),
        (["5:s1 9:s2", "5:s1", "5:s1,s2"], 8.0, True, True),
    ],
    ids=[
        "of a process that closed",
        "before its process closed",
        "of a killed process",
        "of its own first session, after it attached in another",
        "of a session that it takes over from a killed process",
    ],
)
def test_failure_ends_the_process_only_for_a_session_of_its_own(
    claims, failed_at, is_reported, ends
):
    """As ``await_any_failure`` does; the query fails after these claims."""
    state, known = State(0.0), ALONE
    state.apply_event(Started("id-0", "run-0", "q0", session="s2"), 1.0)
    failed = Terminated("id-0", "run-0", CONFLICT, None)
    if failed_at < 5.0:
        state.apply_event(failed, failed_at)
    for text in claims:
        known = known.updated(parse_watchers(text))
        state.own(known)
    if failed_at >= 5.0:
        state.apply_event(failed, failed_at)
    snapshot = state.snapshot(9.0)
    assert (reported(state) == ["q0"]) is is_reported

    failure = first_failure(snapshot, evaluate(snapshot, 9.0, policy()))
    assert (failure and failure.query) == ("q0" if ends else None)
