"""States as plain values, and back."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import fmean

import msgspec
import pytest
from support.lifecycle_harness import FAILED, LifecycleHarness
from support.story import Story

from querypulse.alerting.evaluate import evaluate
from querypulse.alerting.incidents.lifecycle import Held
from querypulse.alerting.policy import Policy
from querypulse.listener.foresight.resources import Container, Disk, Heap, Resources
from querypulse.listener.mailbox import Ending, ProgramEnd
from querypulse.listener.probe_report import Context, ProbeReport
from querypulse.listener.state.state import State
from querypulse.recording.lines import patch_between, patched
from querypulse.recording.states import (
    ENDING,
    MOST_ELSEWHERE,
    driver_state,
    ending_of,
    held_of,
    held_state,
    plain,
    query_state,
    snapshot_of,
)

JSON = msgspec.json


def through_json(value):
    return JSON.decode(JSON.encode(value))


def a_snapshot():
    story = Story().started(at=0).commit(batch=0, at=1).failed(at=2).started(at=3)
    story.started("b", at=3).works("b", batch=0, at=4, tasks=3, stack=("a.b(C.java:1)",))
    story.expect_stop("b", until=math.inf).ask("b", at=5, committed=3)
    return story.snapshot(6.0)


def test_snapshot_comes_back_from_json_as_it_was():
    snapshot = a_snapshot()
    states = [through_json(query_state(query)) for query in snapshot.queries]

    again = snapshot_of(through_json(driver_state(snapshot, None)), states)

    assert [query_state(query) for query in again.queries] == states
    assert again.queries[0].history == snapshot.queries[0].history
    assert driver_state(again, None) == driver_state(snapshot, None)


def test_batch_adds_little_to_a_recording_and_those_kept_come_back_in_their_order():
    story, states = Story().started(at=0), []
    for number in range(100):
        story.commit(batch=number % 90, at=number + 1)
        (query,) = story.snapshot(number + 1.0).queries
        states.append(query_state(query))
    patches = [patch_between(before, after) for before, after in pairwise(states)]
    state = states[0]
    for patch in patches:
        state = patched(state, through_json(patch))
    (again,) = snapshot_of(through_json(driver_state(a_snapshot(), None)), [state]).queries

    assert max(len(JSON.encode(patch)) for patch in patches) < 1000
    assert list(again.checkpoint.batches.items()) == list(query.checkpoint.batches.items())


@pytest.mark.parametrize("ending", [None, Ending(True), Ending(False, ProgramEnd("exit 1"))])
def test_end_of_the_process_is_part_of_the_driver_s_state(ending):
    state = through_json(driver_state(a_snapshot(), ending))

    assert ending_of(state) == ending
    assert (ENDING in state) == (ending is not None)


def test_infinite_numbers_are_texts():
    assert plain([math.inf, -math.inf, 1.0]) == ["inf", "-inf", 1.0]


@pytest.mark.parametrize("state", [{"queries": 3}, {"at": "then"}, {"at": []}])
def test_state_of_somebody_else_is_refused(state):
    with pytest.raises(msgspec.ValidationError):
        snapshot_of(state, [])


def lifecycle_of(count):
    harness = LifecycleHarness()
    for number in range(count):
        name = f"q{number}"
        harness.causes[name] = f"E{number}"
        harness.condition(name, FAILED)
    harness.tick()
    return harness.lifecycle


def in_order(held):
    """As plain values; sets have no order."""
    state = plain(held)
    for incident in state["incidents"].values():
        incident["news"].sort()
    return state


def test_what_a_lifecycle_holds_comes_back_from_json():
    held = lifecycle_of(1).held

    again = held_of(through_json(held_state(held, "q0")))

    assert in_order(again) == in_order(held)


def test_what_is_open_elsewhere_has_no_words_and_is_bounded():
    state = held_state(lifecycle_of(100).held, "q7")

    own, *others = state["tracked"]
    assert own["alert"]["labels"]["query"] == "q7"
    assert own["alert"]["annotations"]
    assert len(others) == MOST_ELSEWHERE
    assert not any(other["alert"]["annotations"] for other in others)


def test_nothing_held_is_nothing_written():
    assert held_state(Held(), "a") == {}
    assert held_of({}) == Held()


GB = 1_000_000_000


def leaking_driver():
    """The state of a driver whose heap leaks for two hours, each ten seconds; four things are read."""
    state = State(0.0)
    for reading in range(1, 721):
        at = 10.0 * reading
        used = int((0.3 + 0.69 * reading / 720) * GB)
        heap = Heap(used, used, GB, 0.001 * at, reading, at)
        state.apply_probe(ProbeReport(at, at, (), Context.RUNNING, heap=heap))
        disk = Disk("/data", ("spool_dir",), 90 * GB - reading, 100 * GB)
        state.apply_reading(
            Resources(at, container=Container(3 * GB + reading, 4 * GB), disks=(disk,))
        )
        yield state.snapshot(at)


def test_recorded_memory_raises_the_same_alert_when_it_is_replayed():
    *_, snapshot = leaking_driver()
    again = snapshot_of(through_json(driver_state(snapshot, None)), [])

    findings = evaluate(again, snapshot.at, Policy()).findings

    assert [finding.alertname for finding in findings] == ["StreamingDriverMemory"]
    assert findings == evaluate(snapshot, snapshot.at, Policy()).findings


def test_what_the_driver_used_before_adds_little_to_each_patch():
    states = [driver_state(snapshot, None) for snapshot in leaking_driver()]
    patches = [
        len(JSON.encode(patch_between(before["usage"], after["usage"])))
        for before, after in pairwise(states)
    ]

    print(
        f"all: {len(JSON.encode(states[-1]['usage']))} bytes, a patch: {fmean(patches):.0f} bytes"
    )
    assert len(JSON.encode(states[-1]["usage"])) < 9_000
    assert fmean(patches) < 1_100
