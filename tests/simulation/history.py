"""A failing history as text, short enough to read."""

from __future__ import annotations

from .clock import BEGIN
from .plan import Plan
from .stage import Violation
from .truth import Health
from .world import PlanOutcome, World

MOST_LINES = 60


def report(outcome: PlanOutcome) -> str:
    """The steps, the true health, the notifications, and the broken property."""
    world = World(outcome.plan)
    broken = ""
    try:
        broken = world.run().text
    except Violation as error:
        broken = error.text
    lines = sorted(_lines(world), key=lambda line: line[0])
    shown = [f"  {at:7.1f} s  {text}" for at, text in lines][-MOST_LINES:]
    return "\n".join(
        [_title(outcome.plan), *shown, f"  => {outcome.violation}: {broken} "
         f"(at {outcome.at:.1f} s)"]
    )  # fmt: skip


def _title(plan: Plan) -> str:
    queries = [f"  {query}" for query in plan.queries]
    return "\n".join([f"seed {plan.seed}: {plan.setup}", *queries])


def _lines(world: World) -> list[tuple[float, str]]:
    lines = [(step.at, f"- {str(step).partition('  ')[2].strip()}") for step in world.plan.steps]
    for query in world.queries.values():
        lines += [
            (at - BEGIN, f"    {query.key} is {health.value}")
            for at, health in query.truth.timeline
            if health is not Health.ABSENT
        ]
    for receiver in world.receivers:
        lines += [
            (one.at - BEGIN, f"        {receiver.name} notifies: {one.key}")
            for one in receiver.notifications
        ]
        lines += [
            (one.at - BEGIN, f"        {receiver.name} closes: {one.incident.key}")
            for one in receiver.closed
        ]
    end = world.time.passed
    return [line for line in lines if line[0] <= end]
