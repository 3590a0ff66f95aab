"""The targets of ``make fuzz`` hold for their seeds and for every input that once broke a promise."""

from __future__ import annotations

import pytest
from fuzzing.found import FOUND
from fuzzing.seeds import LETTERS, SEEDS, events
from fuzzing.targets import TARGETS


def broken(target, inputs):
    """The errors of a target by the name of its input."""
    errors = {}
    for name, data in inputs.items():
        try:
            TARGETS[target](data)
        except Exception as error:
            errors[name] = repr(error)
    return errors


@pytest.mark.parametrize("target", TARGETS)
def test_promises_hold_for_the_seeds(target):
    assert broken(target, {data[:200]: data for data in SEEDS[target]()}) == {}


@pytest.mark.fault(
    "Events",
    "What coverage-guided fuzzing found at the decoder, the state, the HTTP server and the settings",
    "A value, or a rejection that is counted or reported",
)
@pytest.mark.parametrize("target", sorted({target for target, _, _ in FOUND}))
def test_promises_hold_for_what_fuzzing_has_found(target):
    inputs = {what: data for found_by, what, data in FOUND if found_by == target}

    assert broken(target, inputs) == {}


def test_each_target_has_seeds_and_each_kind_of_event_is_one():
    assert SEEDS.keys() == TARGETS.keys()
    assert {data[:1] for data in events()} == set(LETTERS.values())
