"""Which checkpoints are read: only those whose logs decide something."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.story import processing, run

from querypulse.listener.checkpoints import LogChoice
from querypulse.listener.probe import JobActivity

CONTINUOUS = run(trigger="ContinuousTrigger(1000)", message="Running")
PLANNING = "Getting offsets from KafkaV2[Subscribe[a]]"
STALL_SECONDS = 20.0


def with_facts(run, **facts):
    return replace(run, facts=replace(run.facts, **facts))


def chosen(*stages):
    """Whether a run is chosen at the last of several (seconds, probe view) pairs."""
    choice = LogChoice(STALL_SECONDS)
    found = [choice.choose([seen], at) for at, seen in stages]
    return bool(found[-1])


@pytest.mark.parametrize(
    "seen",
    [
        CONTINUOUS,
        with_facts(run(), async_progress=True),
        with_facts(run(trigger="RealTimeTrigger(300000)"), async_progress=True),
        with_facts(CONTINUOUS, checkpoint="file:/tmp/temporary-1234"),
    ],
    ids=["continuous", "async", "real-time", "temporary"],
)
def test_run_whose_commits_only_its_log_shows_is_chosen_at_once(seen):
    assert chosen((0, seen))


def test_run_whose_events_and_probe_suffice_is_not_chosen():
    runs = {
        "idle": run(),
        "waiting": run(batch=7, data=True),
        "busy": processing(batch=5),
        "busy, polled closely": processing(batch=5, tasks=0),
        "finite": run(trigger="AvailableNowTrigger", message="Processing new data", busy=True),
        "planning": run(message=PLANNING, busy=True, tasks=0),
        "dead continuous": replace(CONTINUOUS, active=False),
        "unknown place": with_facts(CONTINUOUS, checkpoint=""),
        "unknown place, async": with_facts(run(), async_progress=True, checkpoint=""),
    }

    assert [what for what, seen in runs.items() if chosen((0, seen))] == []


@pytest.mark.parametrize(
    "seen",
    [processing(batch=5, tasks=0), run(message=PLANNING, busy=True, tasks=0)],
    ids=["batch", "planning"],
)
def test_ordinary_run_is_chosen_when_its_batch_is_close_to_a_stall(seen):
    assert not chosen((0, seen), (STALL_SECONDS - 0.1, seen))
    assert chosen((0, seen), (STALL_SECONDS, seen))


def test_finished_tasks_do_not_delay_the_choice():
    moving = [processing(batch=5, tasks=tasks) for tasks in (1, 2, 3)]

    assert chosen((0, moving[0]), (10, moving[1]), (STALL_SECONDS, moving[2]))


def test_each_batch_starts_its_own_patience():
    seen = [processing(batch=batch, tasks=0) for batch in (5, 6)]

    assert not chosen((0, seen[0]), (15, seen[1]), (30, seen[1]))
    assert chosen((0, seen[0]), (15, seen[1]), (35, seen[1]))


def test_batch_that_takes_no_longer_than_the_previous_one_is_not_chosen():
    first, second = (processing(batch=batch, tasks=0) for batch in (5, 6))
    slow = (0, first), (60, first), (100, run(batch=6)), (110, second)

    assert chosen(*slow[:2])
    assert not chosen(*slow, (209, second))
    assert chosen(*slow, (210, second))


def test_run_that_pauses_between_two_polls_of_one_batch_is_not_chosen():
    seen = processing(batch=5, tasks=0)

    assert not chosen((0, seen), (10, run(batch=5)), (15, seen), (30, seen))


def test_run_whose_jobs_are_not_examined_is_not_chosen():
    assert not chosen((0, processing(batch=5)), (100, processing(batch=5)))


def test_run_without_known_batch_ids_is_chosen_when_busy_for_long():
    seen = processing(batch=None, tasks=0)

    assert chosen((0, seen), (STALL_SECONDS, seen))


def test_ended_run_is_never_chosen():
    seen = processing(batch=5, tasks=0)

    assert not chosen((0, seen), (100, replace(seen, active=False, work=JobActivity())))


def test_new_run_of_the_same_query_starts_its_own_patience():
    first, second = (processing("a", number, batch=5, tasks=0) for number in (1, 2))

    assert not chosen((0, first), (100, second))


def test_choice_states_since_when_the_run_is_in_its_batch():
    choice = LogChoice(STALL_SECONDS)
    idle = with_facts(run(batch=5), async_progress=True)
    busy = with_facts(processing(batch=5), async_progress=True)
    begun = [
        choice.choose([seen], at)[0][1]
        for at, seen in [(0, idle), (50, busy), (60, replace(busy, batch_id=6))]
    ]

    assert begun == [0, 0, 60]
