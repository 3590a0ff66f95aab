"""State that grows without end is reported in time; state with a rhythm never."""

from __future__ import annotations

from collections import Counter

import pytest
from support.states import HOUR, healthy, leak
from support.story import progress

from querypulse.listener.foresight.operators import SST_BYTES, StateOperator
from querypulse.listener.foresight.state_growth import MOST, follow_growth, total_size

ENOUGH_HOURS = 12


@pytest.mark.parametrize(
    "begin", [0, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 2, 3))]
)
def test_95_of_100_leaks_are_reported_12_hours_before_their_limit(begin):
    late = Counter()
    for seed in range(100 * begin, 100 * begin + 100):
        life = leak(seed)
        alarm = life.first_alarm()
        left = -1.0 if alarm is None else (life.full_at - alarm[0]) / HOUR
        if left < ENOUGH_HOURS:
            late[life.words, round(left, 1)] += 1

    print(f"{100 - late.total()} of 100 leaks were reported in time; late: {late}")
    assert late.total() <= 5


@pytest.mark.parametrize(
    "begin", [0, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 2, 3))]
)
def test_300_states_with_a_rhythm_raise_no_alarm(begin):
    alarms = [
        (life.words, seed, life.limit, alarm[0] / HOUR, alarm[1])
        for seed in range(300 * begin, 300 * begin + 300)
        if (alarm := (life := healthy(seed)).first_alarm()) is not None
    ]

    print(f"{len(alarms)} of 300 healthy states raised an alarm")
    assert alarms == []


def test_figures_that_no_state_has_are_kept_within_bounds():
    growth = {}
    for at, size in ((0.0, -1e300), (7200.0, 1e300), (14_400.0, -1e300)):
        operator = StateOperator("dedupe", rows=1, custom=f'{{"{SST_BYTES}": {size!r}}}')
        growth = follow_growth(growth, progress(batch=1, operators=(operator,)), at, 1)
    (followed,) = growth.values()

    assert [size for _, size in followed.marks] == [MOST, 0.0]
    assert total_size(growth, 14_400.0) == pytest.approx([0, 0, MOST, MOST, 0], rel=1e-6)
