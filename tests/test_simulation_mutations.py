"""A property that no mutation breaks is worth nothing: each small revert must be noticed."""

import logging

import pytest
from simulation.mutations import MUTATIONS, caught
from simulation.world import run


@pytest.fixture(autouse=True)
def no_log():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.what)
def test_a_mutation_is_noticed(mutation):
    outcome = caught(mutation)

    assert outcome is not None, f"{mutation.breaks} held in {mutation.seeds} histories"
    assert run(outcome.plan).violation != outcome.violation, "it fails without the mutation, too"


def test_every_property_has_its_mutation():
    """P4 has none: it is P1 or P3 where another query is in between, and has scenarios."""
    broken = {name for one in MUTATIONS for name in one.breaks.split("|")}

    assert broken >= {"P1", "P2", "P3", "P5", "P6", "P7", "P8"}
