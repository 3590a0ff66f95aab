"""Eight simulated hours over a job that heals itself every 20 minutes: how often a person is woken."""

import logging

import pytest
from simulation.plan import Plan, QuerySpec, Setup, Step
from simulation.world import run

NIGHT_SECONDS = 8 * 3600.0
EVERY_SECONDS = 1200.0
FAILURES = 23

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def no_log():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def night(**setup):
    """A query that fails every 20 minutes and is started again after 2 s, until the morning."""
    query = QuerySpec("billing", "billing", every=20.0, takes=2.0, recovers=2.0)
    failures = (Step(600.0 + EVERY_SECONDS * n, "die", "billing") for n in range(FAILURES))
    steps = (Step(1.0, "start", "billing"), *failures)
    return run(Plan(1, NIGHT_SECONDS, (query,), steps, Setup(**setup)))


def test_a_job_that_heals_itself_pages_three_times_in_a_night_by_default():
    outcome = night()

    assert outcome.violation == ""
    assert outcome.notified == 3


def test_a_job_that_heals_itself_within_its_grace_pages_never():
    outcome = night(failed_grace=60.0)

    assert outcome.violation == ""
    assert outcome.notified == 0
