"""How sessions of Spark Connect ended: what Java writes, and what that makes of a run."""

from __future__ import annotations

import pytest
from support.story import Story

from querypulse.listener.probe_report import SessionEnd
from querypulse.listener.spark.execution import parse_living_runs
from querypulse.listener.spark.jvm import FIELD, GROUP, RECORD


def read(*sessions, now=100.0):
    ends = GROUP + "".join(FIELD.join(map(str, session)) + RECORD for session in sessions)
    return parse_living_runs(f"false{FIELD}{RECORD}{ends}", now).session_ends


def test_end_of_a_session_has_its_time_its_client_and_its_silence():
    ends = read(("uuid-1", "ada", "c-1", 2500, 61_000, 60_000), ("uuid-2", "", "c-2", 0, 7, -1))

    assert ends == {
        "uuid-1": SessionEnd(97.5, "c-1", "ada", 61.0, 60.0),
        "uuid-2": SessionEnd(100.0, "c-2", "", 0.007, -0.001),
    }


def test_server_whose_sessions_go_on_differs_from_a_driver_that_serves_none():
    assert read() == {}
    assert parse_living_runs(f"false{FIELD}{RECORD}", 0.0).session_ends is None


def test_long_user_is_cut_and_a_secret_in_it_is_hidden():
    (ended,) = read(("u", "password=hunter2 " + "x" * 500, "c", 0, 0, 0)).values()

    assert len(ended.user) == 100
    assert "hunter2" not in ended.user


def test_user_of_several_lines_is_one_line_as_all_reasons_are():
    (ended,) = read(("u", "ada\r\n*bob*\u2028 x", "c\n1", 0, 0, 0)).values()

    assert (ended.user, ended.session) == ("ada *bob* x", "c 1")


@pytest.mark.parametrize(
    ("idle", "allowed", "is_expired"),
    [
        (60.0, 60.0, True),
        (75.3, 60.0, True),
        (59.9, 60.0, False),
        (0.01, 60.0, False),
        (9e9, -0.001, False),
    ],
)
def test_session_has_expired_after_as_much_silence_as_is_allowed(idle, allowed, is_expired):
    assert SessionEnd(0.0, "c", "ada", idle, allowed).is_expired is is_expired


def ended_at(at, *, idle, closed_at, trigger="ProcessingTimeTrigger(0)", exception=None):
    story = Story().seen(session="s", batch=1, trigger=trigger, at=0)
    story.ended(at=at, exception=exception)
    end = SessionEnd(closed_at, "c", "ada", idle, 60.0)
    return story.probe(at=max(at, closed_at) + 1, session_ends={"s": end}).query("a").run


@pytest.mark.parametrize(
    ("at", "idle", "closed_at", "expected", "known"),
    [
        (10.0, 0.01, 10.0, True, True),
        (10.0, 0.01, 500.0, True, True),
        (110.0, 61.0, 109.0, False, True),
        (108.0, 61.0, 109.0, False, True),
        (50.0, 61.0, 109.0, False, False),
    ],
    ids=["its client left", "left later", "expired", "expired, by other clocks", "expired later"],
)
def test_run_was_stopped_by_the_end_of_its_session(at, idle, closed_at, expected, known):
    run = ended_at(at, idle=idle, closed_at=closed_at)

    assert (run.stop_expected, run.session_end is not None) == (expected, known)


def test_completed_run_stays_completed_and_a_failed_one_failed():
    done = ended_at(10.0, idle=0.01, closed_at=10.0, trigger="AvailableNowTrigger")
    failed = ended_at(10.0, idle=0.01, closed_at=10.0, exception="Boom")

    assert (done.completed_at, done.stop_expected, done.session_end) == (10.0, False, None)
    assert (failed.stop_expected, failed.session_end) == (False, None)
