"""A failing history: shrunk as long as the same property breaks, and as text."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from .clock import BEGIN
from .plan import Plan, Setup
from .truth import Health
from .world import PlanOutcome, World, run

# -- shrinking -----------------------------------------------------------------------------------


MOST_RUNS = 400
AFTER_SECONDS = 5.0
OF_TWO_DRIVERS = ("apart", "app", "receivers")
"""What keeps the incidents of two drivers apart: other values would break properties by themselves."""


def shrink(outcome: PlanOutcome) -> PlanOutcome:
    """The smallest outcome found that breaks the same property."""
    best = _cut(outcome)
    runs, went_on = 0, True
    while went_on and runs < MOST_RUNS:
        went_on = False
        for smaller in _smaller(best.plan):
            runs += 1
            tried = run(smaller)
            if tried.violation == outcome.violation:
                best, went_on = _cut(tried), True
                break
    return run(best.plan)


def _cut(outcome: PlanOutcome) -> PlanOutcome:
    """Cut the plan after the moment of the violation."""
    end = outcome.at + AFTER_SECONDS
    steps = tuple(step for step in outcome.plan.steps if step.at <= end)
    plan = replace(outcome.plan, horizon=min(outcome.plan.horizon, end), steps=steps)
    return replace(outcome, plan=plan)


def _smaller(plan: Plan) -> Iterator[Plan]:
    for query in plan.queries if len(plan.queries) > 1 else ():
        others = tuple(other for other in plan.queries if other is not query)
        steps = tuple(step for step in plan.steps if step.who != query.key)
        yield replace(plan, queries=others, steps=steps)
    for index in reversed(range(len(plan.steps))):
        yield replace(plan, steps=plan.steps[:index] + plan.steps[index + 1 :])
    for name in Setup.__struct_fields__:
        plain = getattr(Setup(), name)
        is_kept = len(plan.setup.drivers) > 1 and name in OF_TWO_DRIVERS
        if name != "drivers" and not is_kept and getattr(plan.setup, name) != plain:
            yield replace(plan, setup=replace(plan.setup, **{name: plain}))
    for index, query in enumerate(plan.queries):
        plainer = replace(query, expected=False, recovers=0.0)
        if plainer != query:
            queries = (*plan.queries[:index], plainer, *plan.queries[index + 1 :])
            yield replace(plan, queries=queries)


# -- history -------------------------------------------------------------------------------------


MOST_LINES = 60


def report(outcome: PlanOutcome) -> str:
    """The steps, the true health, the notifications, and the broken property."""
    world = World(outcome.plan)
    broken = world.run().text
    lines = sorted(_lines(world), key=lambda line: line[0])
    shown = [f"  {at:7.1f} s  {text}" for at, text in lines][-MOST_LINES:]
    return "\n".join(
        [
            f"seed {outcome.plan.seed}: {outcome.plan.setup}",
            *(f"  {query}" for query in outcome.plan.queries),
            *shown,
            f"  => {outcome.violation}: {broken} (at {outcome.at:.1f} s)",
        ]
    )


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
            (note.at - BEGIN, f"        {receiver.name} notifies: {note.key}")
            for note in receiver.notifications
        ]
        lines += [
            (end.at - BEGIN, f"        {receiver.name} closes: {end.incident.key}")
            for end in receiver.closed
        ]
    end = world.time.passed
    return [line for line in lines if line[0] <= end]
