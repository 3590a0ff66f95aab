"""The stack of a query's thread shows the phase of its batch, in each Spark."""

from __future__ import annotations

import pytest
from support.event_log import FIXTURES

from querypulse.listener.foresight.phases import Phase
from querypulse.listener.spark.jobs import phase_of


def real_stack(text):
    """Spark's version and the phase that was made slow, and then the stack meanwhile."""
    title, *frames = text.splitlines()
    return pytest.param(Phase(title.split()[1]), frames, id=title)


STACKS = list(map(real_stack, (FIXTURES / "batch_stacks.txt").read_text().split("\n\n")[1:]))


PLANNED_IN_FOREACH_BATCH = [
    stack
    for stack in STACKS
    if stack.values[0] is Phase.ADD_BATCH and ".optimizedPlan(" in "".join(stack.values[1])
]


@pytest.mark.parametrize(("phase", "frames"), STACKS)
def test_stack_shows_the_phase(phase, frames):
    assert phase_of(frames) is phase


@pytest.mark.parametrize(("phase", "frames"), PLANNED_IN_FOREACH_BATCH)
def test_function_of_foreach_batch_that_plans_is_not_the_planning_of_the_batch(phase, frames):
    """Below a deep plan, the JVM shows neither the function nor the batch."""
    above = next(index for index, frame in enumerate(frames) if ".SQLExecution$" in frame)

    assert phase_of(frames[:above]) is None
