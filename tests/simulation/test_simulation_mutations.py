"""Each mutation of the product breaks a property; a property that none breaks is useless."""

import logging

import pytest

from simulation.mutating import caught
from simulation.mutations import MUTATIONS
from simulation.world import run

FIXED = {
    "A1", "A2", "A3", "A4", "A5", "A7", "A8", "A9", "A10", "A11", "A18", "A19", "A20", "A21", "B1",
    "L3", "L5", "L15", "L16", "L17", "L23", "N1", "N2", "S1", "S2",
}  # fmt: skip
"""Fixed findings in code that the simulator runs."""


@pytest.fixture(autouse=True)
def no_log():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.title)
def test_simulation_detects_the_mutation(mutation):
    outcome = caught(mutation)

    assert outcome is not None, f"{mutation.breaks} held in {mutation.seeds} histories"
    assert run(outcome.plan).violation != outcome.violation, "it also fails without the mutation"


def test_every_property_has_its_mutation():
    """P4 is P1 or P3 with another query in between."""
    broken = {name for one in MUTATIONS for name in one.breaks.split("|")}

    assert broken == {f"P{number}" for number in range(1, 10)}


def test_every_fixed_finding_has_its_mutation():
    assert {one.finding for one in MUTATIONS} >= FIXED
