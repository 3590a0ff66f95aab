"""A read that does not return is reported, and delays nobody."""

from __future__ import annotations

import threading

import pytest
from support.clock import Clock
from support.patience import PATIENCE_SECONDS, until

from querypulse.core import files
from querypulse.core.files import HANGS_SECONDS, FileLoop, HangDetector
from querypulse.core.guard import Guard


def test_work_that_takes_long_is_a_problem_until_it_returns():
    clock = Clock(100.0)
    detector = HangDetector(clock)
    with detector:
        clock.now += HANGS_SECONDS
        assert detector.problem == ""
        clock.now += 2.0
        assert detector.problem == f"no answer for {HANGS_SECONDS + 2.0:.0f} s"

    assert detector.problem == ""


def test_hanging_read_is_reported_and_does_not_delay_the_end(monkeypatch):
    monkeypatch.setattr(files, "HANGS_SECONDS", 0.05)
    free = threading.Event()
    loop = FileLoop("test", lambda: free.wait(PATIENCE_SECONDS), 1.0, Guard())
    loop.start()
    until(lambda: loop.problem.startswith("no answer for "), "it is reported")
    loop.end()
    assert loop.problem, "the end has waited for the read"
    free.set()

    until(lambda: not loop.problem, "the problem is gone")


@pytest.mark.contains_errors
def test_read_that_fails_is_tried_again():
    guard, reads = Guard(), []

    def fail():
        reads.append(1)
        raise OSError("gone")

    loop = FileLoop("test", fail, 0.01, guard)
    loop.start()
    until(lambda: len(reads) > 2, "it is read again")
    loop.end()

    assert guard.errors["test"] > 2
