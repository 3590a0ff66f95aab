"""The worker counts how fresh each query is: what is promised, what is planned, and what is left out."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.patience import WALL
from support.story import run
from support.worker_harness import WorkerHarness

from querypulse.alerting.policy import Limits, Policy
from querypulse.alerting.silences import Silence
from querypulse.core.wall_time import parse_window
from querypulse.listener.events import Started
from querypulse.listener.mailbox import ExpectEnd, ExpectStop, Forget
from querypulse.listener.state.freshness import Promise
from querypulse.sidecar import worker as worker_module

PROMISED = {"freshness_seconds": 60.0}


def running(**limits) -> WorkerHarness:
    return WorkerHarness(**{**PROMISED, **limits}).started().step().commit().step()


def counts(harness):
    return harness.published[-1].freshness


def planned(harness) -> bool:
    return counts(harness)["a"].is_planned


def test_a_query_with_a_promise_is_counted_from_then_on_at_which_it_is_seen():
    harness = running(freshness_objective=0.9)
    harness.step(after=20)
    count = counts(harness)["a"]

    assert count.promise == Promise(60.0, 0.9)
    assert count.total_seconds == pytest.approx(21.1)
    assert count.bad_seconds == 0
    assert harness.errors == []


def test_a_query_without_a_promise_has_no_count():
    assert counts(WorkerHarness().started().step()) == {}


def test_promises_are_by_query_and_none_is_of_an_ignored_one():
    harness = WorkerHarness()
    harness.worker.policy = Policy(
        expected=("absent",),
        overrides=(
            ("a*", {"freshness_seconds": 30.0}),
            ("b", {"freshness_seconds": 30.0, "ignore": True}),
        ),
    )
    for query in "abc":
        harness.started(query)
    harness.step()

    assert counts(harness).keys() == {"a", "absent"}


UNTIL = WALL + 5000.0
SILENCES = {
    "of all alerts": (Silence("*", UNTIL), True),
    "of the query": (Silence("a", UNTIL), True),
    "of the budget's alert": (Silence("a", UNTIL, "StreamingFreshness*"), True),
    "of another alert": (Silence("a", UNTIL, "StreamingQueryFailed"), False),
    "of another query": (Silence("b", UNTIL), False),
    "of another app": (Silence("*", UNTIL, app="bank"), False),
    "that is over": (Silence("*", WALL + 1.0), False),
    "that recurs at another time": (
        Silence("*", UNTIL, every=parse_window("mon-sun 03:00-03:01")),
        False,
    ),
}


@pytest.mark.parametrize("words", SILENCES)
def test_planned_is_the_time_of_a_silence(words):
    silence, expected = SILENCES[words]
    harness = running()
    harness.silences.append(silence)

    assert planned(harness.step()) == expected


def test_a_silence_that_ends_between_two_evaluations_plans_only_its_own_time():
    harness = running()
    harness.silences.append(Silence("*", WALL + harness.clock() + 30.0))
    harness.step(after=2.0).step(after=88.0)

    assert counts(harness)["a"].left_out_seconds == pytest.approx(28.0)


def test_an_announced_stop_and_an_announced_end_of_the_driver_are_planned():
    stopping, ending = running(), running()
    stopping.inbox.put(ExpectStop("a"), lifecycle=True)
    ending.inbox.put(ExpectEnd(ending.clock() + 60.0), lifecycle=True)

    assert (planned(stopping.step()), planned(ending.step())) == (True, True)
    assert planned(ending.step(after=120)) is False


def test_a_forgotten_query_has_no_count_and_starts_from_zero():
    harness = running().ended().step()
    harness.inbox.put(Forget("a"), lifecycle=True)
    harness.step(after=20)
    assert counts(harness) == {}
    harness.receive(Started("id-a", "a-2", "a")).step()

    assert counts(harness)["a"].total_seconds == 0


def test_a_run_that_has_completed_is_followed_while_its_data_gets_older():
    for limits, followed in (({}, 0), (PROMISED, 1)):
        harness = WorkerHarness(**limits).started().poll(run(trigger="AvailableNowTrigger"))
        harness.step().commit().step().ended().step()
        for _ in range(20):
            harness.step(after=100)
        assert len(harness.published[-1].snapshot.queries) == followed


@pytest.mark.contains_errors
def test_an_error_in_the_count_affects_nothing_else(monkeypatch):
    def breaks(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(worker_module, "promises_of", breaks)
    harness = running()
    harness.ended(exception="ValueError").step()

    assert harness.reported == [("StreamingQueryFailed", "a")]
    assert counts(harness) == {}
    assert {(where, type(error)) for where, error in harness.errors} == {
        ("freshness", ZeroDivisionError)
    }


def test_another_promise_of_a_query_counts_at_once():
    harness = running()
    limits = replace(Limits(**PROMISED), freshness_seconds=5.0)
    harness.worker.policy = Policy(defaults=limits)
    harness.step().step(after=30)

    assert counts(harness)["a"].bad_seconds == pytest.approx(28.2)
