"""The recordings of simulated histories: each can be read, is complete, and replays to the same."""

from __future__ import annotations

import pytest

from querypulse.recording.lines import decode
from simulation.generate import generate
from simulation.plan import Plan, QuerySpec, Setup, Step, steps
from simulation.recordings import problems_of
from simulation.world import World

FIRST = 7000
MANY = 1000
PARTS = 4

BILLING = QuerySpec("billing", "billing", every=5.0, takes=1.0)
ORDERS = QuerySpec("orders", "orders", every=5.0, takes=1.0)


def recorded(plan):
    """The world after a plan, whose recordings have no problem."""
    world = World(plan)
    outcome = world.run()
    assert outcome.violation == ""
    assert problems_of(world) == []
    return world


def plan_of(happens, minutes=6, **setup):
    starts = Step(1.0, "start", "billing"), Step(1.0, "start", "orders")
    happens = steps(happens) if happens else ()
    return Plan(1, minutes * 60.0, (BILLING, ORDERS), (*starts, *happens), Setup(**setup))


def files(world):
    """The recordings of the only driver, by id."""
    (folder,) = world.recordings.values()
    return {name: decode(content, name) for name, content in folder.files.items()}


def problems(seeds):
    found = {}
    for seed in seeds:
        world = World(generate(seed))
        world.run()
        if wrong := problems_of(world):
            found[f"python -m tests.simulation --seed {seed}"] = wrong
    return found


def test_each_incident_of_a_few_histories_replays_to_the_same_alerts():
    assert problems(range(FIRST, FIRST + 8)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_each_incident_of_some_histories_replays_to_the_same_alerts(part):
    assert problems(range(FIRST + part, FIRST + 32, PARTS)) == {}


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(PARTS))
def test_each_incident_of_many_histories_replays_to_the_same_alerts(part):
    assert problems(range(FIRST + part, FIRST + MANY, PARTS)) == {}


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param("", id="nothing happens"),
        pytest.param("60 restart billing", id="a query is restarted"),
        pytest.param("60 plan_stop billing", id="a stop was announced"),
        pytest.param("60 hang billing for 20", id="a batch is late"),
        pytest.param("60 dry billing for 120", id="there is no data"),
        pytest.param("60 pause d1 for 60", id="the process was frozen"),
        pytest.param("60 silence * for 60, 70 restart billing", id="a silence covers nothing"),
        pytest.param("60 receiver for 60 (down)", id="a receiver is down"),
        pytest.param("60 close d1", id="the driver stops in order"),
        pytest.param("60 kill d1, 70 boot d1", id="a healthy driver is killed"),
    ],
)
def test_healthy_driver_records_nothing(happens):
    assert files(recorded(plan_of(happens))) == {}


def test_failure_that_recovers_is_one_file_with_its_end():
    world = recorded(plan_of("60 die billing, 90 restart billing"))

    (recording,) = files(world).values()
    assert recording.begin.query == "billing"


def test_next_process_continues_the_recording_of_one_that_was_killed():
    world = recorded(plan_of("60 die billing, 90 kill d1, 95 boot d1", minutes=8))

    first, second = files(world).values()
    assert second.begin.continues == first.begin.id
    assert second.begin.restored


def test_without_a_spool_the_next_process_begins_a_recording_of_its_own():
    happens = "60 die billing, 90 kill d1, 95 boot d1, 150 die billing"
    world = recorded(plan_of(happens, minutes=8, spool=False))

    assert [recording.begin.continues for recording in files(world).values()] == ["", ""]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_kill_between_any_two_steps_leaves_files_that_can_be_read(part):
    for moment in range(1 + part, 40, PARTS):
        happens = f"60 die billing, 60 kill_within d1 ({moment}), 200 kill d1, 203 boot d1"
        recorded(plan_of(happens, minutes=7))
