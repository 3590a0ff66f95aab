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


def nights_of_processes(**setup):
    """The same night, but each failure ends the process, and a new one starts 5 s later."""
    query = QuerySpec("billing", "billing", every=20.0, takes=2.0)
    ends = [600.0 + EVERY_SECONDS * number for number in range(FAILURES)]
    steps = (
        step
        for at in ends
        for step in (Step(at, "die", "billing"), Step(at + 2, "raise"), Step(at + 7, "boot"))
    )
    return run(
        Plan(1, NIGHT_SECONDS, (query,), (Step(1.0, "start", "billing"), *steps), Setup(**setup))
    )


@pytest.mark.parametrize("receiver", ["pagerduty", "alertmanager", "webhook"])
def test_job_that_restarts_as_a_new_process_pages_three_times_per_night_with_a_spool(receiver):
    outcome = nights_of_processes(receivers=(receiver,))

    assert outcome.violation == ""
    assert outcome.notified == 3


def test_without_a_spool_each_process_counts_for_itself():
    outcome = nights_of_processes(spool=False)

    assert outcome.violation == ""
    assert outcome.notified == FAILURES


def test_job_that_recovers_within_its_grace_period_never_pages():
    outcome = night(failed_grace=60.0)

    assert outcome.violation == ""
    assert outcome.notified == 0
