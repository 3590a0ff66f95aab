"""In the simulator, the recording of each incident replays to the same alerts."""

from __future__ import annotations

import pytest
from simulation.generate import generate
from simulation.recording import Recorded
from simulation.world import run


def broken(seeds):
    """What breaks a promise, by the command that shows it again."""
    outcomes = {seed: run(generate(seed), Recorded) for seed in seeds}
    return {seed: outcome.text for seed, outcome in outcomes.items() if outcome.violation}


@pytest.mark.slow
def test_recordings_of_a_few_histories_replay_to_the_same_alerts():
    assert broken(range(1, 20)) == {}


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(10))
def test_recordings_of_a_thousand_histories_replay_to_the_same_alerts(part):
    assert broken(range(1_000 + 100 * part, 1_100 + 100 * part)) == {}
