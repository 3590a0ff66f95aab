"""The simulator in tests: bugs that it found once, seeds that failed before, and new seeds.

`docs/internals/simulation.md` describes what is simulated and what to do when a seed fails.
"""

from __future__ import annotations

import os
from random import SystemRandom

import pytest

from simulation.generate import generate
from simulation.history import report, shrink
from simulation.regressions import SEEDS
from simulation.scenarios import SCENARIOS
from simulation.world import run

PARTS = 4
"""Each group of plans or mutations is tried in so many tests, which may run side by side."""
NEW_SEEDS = 300


def check(plans):
    """Fail with each plan that breaks a property, by name, and the shortest history of the first."""
    outcomes = {name: run(plan) for name, plan in plans.items()}
    broken = {name: outcome for name, outcome in outcomes.items() if outcome.violation}
    if broken:
        lines = [f"{name}: breaks {outcome.violation}" for name, outcome in broken.items()]
        pytest.fail("\n".join([*lines, report(shrink(next(iter(broken.values()))))]), pytrace=False)


def of_seeds(seeds):
    """The plans of seeds, by the command that runs them again."""
    return {f"python -m tests.simulation --seed {seed}": generate(seed) for seed in seeds}


def test_a_few_seeds_break_no_property():
    check(of_seeds(range(8)))


def test_plan_and_run_are_deterministic():
    plan = generate(3)

    assert generate(3) == plan
    assert run(plan) == run(plan)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_bugs_found_once_break_no_property(part):
    check({scenario.what: scenario.plan for scenario in SCENARIOS[part::PARTS]})


@pytest.mark.thorough
@pytest.mark.parametrize("part", range(PARTS))
def test_seeds_that_failed_once_break_no_property(part):
    check({f"seed {seed.number}, {seed.what}": seed.plan for seed in SEEDS[part::PARTS]})


@pytest.mark.thorough
def test_fixed_seeds_break_no_property():
    check(of_seeds(range(100, 120)))


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(PARTS))
def test_new_seeds_break_no_property(part):
    """Of each night; with ``SIMULATION_SEED``, those from there on."""
    first = int(os.environ.get("SIMULATION_SEED", SystemRandom().randrange(10**9)))
    check(of_seeds(range(first + part, first + NEW_SEEDS, PARTS)))


def mutations(*, essential):
    from simulation.mutations import MUTATIONS

    return [mutation for mutation in MUTATIONS if mutation.essential is essential]


def survival(mutation):
    """Why a mutation of the product is not detected; empty if it is."""
    from simulation.mutations import is_caught, tried

    outcomes = tried(mutation)
    outcome = outcomes[-1]
    if not is_caught(mutation, outcome):
        # As where the replacement does not take the arguments of what it replaces.
        others = sorted({broken.text for broken in outcomes if broken.violation})
        return "; ".join([f"{mutation.breaks} held", *others])
    again = run(outcome.plan).violation
    return f"{again} is broken without it, too" if again == outcome.violation else ""


def survivors(tried):
    survived = {mutation.what: survival(mutation) for mutation in tried}
    return {what: why for what, why in survived.items() if why}


@pytest.mark.thorough
@pytest.mark.parametrize("part", range(PARTS))
def test_simulation_detects_each_essential_mutation(part):
    assert survivors(mutations(essential=True)[part::PARTS]) == {}


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(PARTS))
def test_simulation_detects_each_other_mutation(part):
    assert survivors(mutations(essential=False)[part::PARTS]) == {}


@pytest.mark.thorough
def test_every_property_has_an_essential_mutation():
    broken = {name for mutation in mutations(essential=True) for name in mutation.breaks.split("|")}

    assert broken == {f"P{number}" for number in range(1, 12)}
