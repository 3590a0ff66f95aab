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


FIFTH, SIXTH = (processing(batch=batch, tasks=0) for batch in (5, 6))
PLANS = run(message=PLANNING, busy=True, tasks=0)
NO_IDS = processing(batch=None, tasks=0)
SLOW = (0, FIFTH), (60, FIFTH), (100, run(batch=6)), (110, SIXTH)


def test_ordinary_run_is_chosen_while_its_batch_is_close_to_a_stall():
    """Each step: seconds, and what the probe shows; a batch gets as long as the one before it."""
    histories = [
        ("a batch", [(0, FIFTH), (STALL_SECONDS, FIFTH)], True),
        ("a shorter batch", [(0, FIFTH), (STALL_SECONDS - 0.1, FIFTH)], False),
        ("planning", [(0, PLANS), (STALL_SECONDS, PLANS)], True),
        ("shorter planning", [(0, PLANS), (STALL_SECONDS - 0.1, PLANS)], False),
        ("without known batch ids", [(0, NO_IDS), (STALL_SECONDS, NO_IDS)], True),
        ("although its tasks finish",
         [(at, processing(batch=5, tasks=tasks)) for at, tasks in ((0, 1), (10, 2), (STALL_SECONDS, 3))], True),
        ("the next batch", [(0, FIFTH), (15, SIXTH), (35, SIXTH)], True),
        ("the next batch, shorter", [(0, FIFTH), (15, SIXTH), (30, SIXTH)], False),
        ("a slow one", SLOW[:2], True),
        ("after a slow one", [*SLOW, (210, SIXTH)], True),
        ("after a slow one, shorter", [*SLOW, (209, SIXTH)], False),
        ("with a pause in between", [(0, FIFTH), (10, run(batch=5)), (15, FIFTH), (30, FIFTH)], False),
        ("its jobs are not examined", [(0, processing(batch=5)), (100, processing(batch=5))], False),
        ("it has ended", [(0, FIFTH), (100, replace(FIFTH, active=False, work=JobActivity()))], False),
        ("the next run", [(0, processing("a", 1, batch=5, tasks=0)), (100, processing("a", 2, batch=5, tasks=0))], False),
    ]  # fmt: skip

    assert [(what, chosen(*steps)) for what, steps, _ in histories] == [
        (what, is_chosen) for what, _, is_chosen in histories
    ]


def test_choice_states_since_when_the_run_is_in_its_batch():
    choice = LogChoice(STALL_SECONDS)
    idle = with_facts(run(batch=5), async_progress=True)
    busy = with_facts(processing(batch=5), async_progress=True)
    begun = [
        choice.choose([seen], at)[0][1]
        for at, seen in [(0, idle), (50, busy), (60, replace(busy, batch_id=6))]
    ]

    assert begun == [0, 0, 60]
