"""Eight simulated hours with a job that fails and recovers every 20 minutes: pages per night."""

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
    """The outcome of a night in which a query fails every 20 minutes and restarts after 2 s."""
    query = QuerySpec("billing", "billing", every=20.0, takes=2.0, recovers=2.0)
    failures = (Step(600.0 + EVERY_SECONDS * n, "die", "billing") for n in range(FAILURES))
    steps = (Step(1.0, "start", "billing"), *failures)
    return run(Plan(1, NIGHT_SECONDS, (query,), steps, Setup(**setup)))


def test_self_recovering_job_pages_three_times_per_night_by_default():
    outcome = night()

    assert outcome.violation == ""
    assert outcome.notified == 3


def test_job_that_recovers_within_its_grace_period_never_pages():
    outcome = night(failed_grace=60.0)

    assert outcome.violation == ""
    assert outcome.notified == 0
