"""The simulator in `make test`: seeds that failed before, known findings and new seeds.

`docs/simulation.md` describes what is simulated and what to do when a seed fails.
"""

import logging
import os
import time
from random import SystemRandom

import pytest

from simulation.exclusions import EXCLUDED
from simulation.generate import generate
from simulation.history import report
from simulation.mutating import applied
from simulation.mutations import MUTATIONS
from simulation.regressions import SEEDS
from simulation.scenarios import SCENARIOS
from simulation.shrink import shrink
from simulation.terms import Terms
from simulation.world import run

FIXED_SEEDS = 20
RANDOM_SECONDS = 40.0
FIRST = int(os.environ.get("SIMULATION_SEED", SystemRandom().randrange(10**9)))
"""CI sets it, so that its runs do not depend on chance."""


@pytest.fixture(autouse=True)
def no_log():
    """Without this fixture, thousands of outages are logged."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def holds(outcome):
    """Assert that every property held; otherwise show the shortest history that breaks one."""
    if outcome.violation:
        again = f"again: python -m tests.simulation --seed {outcome.plan.seed}"
        pytest.fail(f"{report(shrink(outcome))}\n{again}", pytrace=False)


@pytest.mark.parametrize("seed", range(8))
def test_a_few_seeds_break_no_property(seed):
    holds(run(generate(seed)))


def test_plan_and_run_are_deterministic():
    plan = generate(3)

    assert generate(3) == plan
    assert run(plan) == run(plan)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"{seed.number}: {seed.what}")
def test_regression_seed_breaks_no_property(seed):
    holds(run(seed.plan))


@pytest.mark.slow
def test_fixed_seeds_break_no_property():
    for seed in range(100, 100 + FIXED_SEEDS):
        holds(run(generate(seed)))


@pytest.mark.slow
def test_new_seeds_break_no_property(summarised):
    until, count = time.monotonic() + RANDOM_SECONDS, 0
    while time.monotonic() < until:
        holds(run(generate(FIRST + count)))
        count += 1
    summarised(f"simulation: {count} histories, seeds from {FIRST} on")


@pytest.mark.slow
@pytest.mark.parametrize(
    "index",
    [
        pytest.param(
            index,
            id=f"{one.finding}: {one.what}",
            marks=pytest.mark.xfail(
                raises=AssertionError, strict=True, reason=f"finding {one.finding}"
            )
            if one.finding in EXCLUDED
            else (),
        )
        for index, one in enumerate(SCENARIOS)
    ],
)
def test_fixed_finding_breaks_no_property(index):
    outcome = run(SCENARIOS[index].plan)

    if outcome.violation not in {"", *SCENARIOS[index].breaks.split("|")}:
        # No known finding, so not expected to fail.
        pytest.fail(report(outcome), pytrace=False)
    assert outcome.violation == "", report(outcome)


def test_every_exclusion_has_a_scenario():
    assert {one.finding for one in SCENARIOS} >= EXCLUDED.keys()


def test_plans_can_be_generated_without_exclusions():
    """The generator also works without exclusions."""
    assert {generate(seed, Terms(without=frozenset())).without for seed in range(50)} == {
        frozenset()
    }


def test_failing_history_is_shrunk_and_reported():
    mutation = next(one for one in MUTATIONS if one.finding == "A4" and one.plan is not None)
    with applied(mutation):
        outcome = run(mutation.plan)
        smaller = shrink(outcome)

    assert smaller.violation == outcome.violation
    assert len(smaller.plan.queries) == 1
    assert len(smaller.plan.steps) <= 2
    assert "a is slow" in report(smaller)
