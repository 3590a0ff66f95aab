"""Each mutation of the product breaks a property; a property that none breaks is useless."""

from __future__ import annotations

import pytest

from simulation.world import run

PARTS = 4
"""The mutations are tried in so many tests, which may run side by side."""


def mutations(*, essential):
    from simulation.mutations import MUTATIONS

    return [mutation for mutation in MUTATIONS if mutation.essential is essential]


def survival(mutation):
    """Why a mutation is not detected; empty if it is."""
    from simulation.mutations import caught

    outcome = caught(mutation)
    if outcome is None:
        return f"{mutation.breaks} held"
    again = run(outcome.plan).violation
    return f"{again} is broken without it, too" if again == outcome.violation else ""


def survivors(tried):
    assert tried
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
