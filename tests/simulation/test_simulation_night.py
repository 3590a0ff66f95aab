"""A simulated night with a job that fails and recovers every 20 minutes: pages per night.

It lasts eight hours, or three where it only differs in one part.
"""

import pytest

from simulation.plan import Plan, QuerySpec, Setup, Step
from simulation.world import run

HOUR = 3600.0
EVERY_SECONDS = 1200.0

pytestmark = pytest.mark.slow


def failures(hours):
    """When the query fails: from the tenth minute on, and not at the end."""
    count = int(hours * HOUR / EVERY_SECONDS) - 1
    return [600.0 + EVERY_SECONDS * number for number in range(count)]


def night(hours=8, **setup):
    query = QuerySpec("billing", "billing", every=20.0, takes=2.0, recovers=2.0)
    steps = (Step(1.0, "start", "billing"), *(Step(at, "die", "billing") for at in failures(hours)))
    return run(Plan(1, hours * HOUR, (query,), steps, Setup(**setup)))


def test_self_recovering_job_pages_three_times_per_night_by_default():
    outcome = night()

    assert outcome.violation == ""
    assert outcome.notified == 3


def night_of_processes(hours, **setup):
    """The same night, but each failure ends the process, and a new one starts 5 s later."""
    query = QuerySpec("billing", "billing", every=20.0, takes=2.0)
    steps = (
        step
        for at in failures(hours)
        for step in (Step(at, "die", "billing"), Step(at + 2, "raise"), Step(at + 7, "boot"))
    )
    return run(
        Plan(1, hours * HOUR, (query,), (Step(1.0, "start", "billing"), *steps), Setup(**setup))
    )


@pytest.mark.parametrize(
    ("receiver", "hours"),
    [
        pytest.param("pagerduty", 8, marks=pytest.mark.thorough),
        ("alertmanager", 3),
        ("webhook", 3),
    ],
)
def test_job_that_restarts_as_a_new_process_pages_three_times_per_night_with_a_spool(
    receiver, hours
):
    outcome = night_of_processes(hours, receivers=(receiver,))

    assert outcome.violation == ""
    assert outcome.notified == 3


def test_without_a_spool_each_process_counts_for_itself():
    outcome = night_of_processes(3, spool=False)

    assert outcome.violation == ""
    assert outcome.notified == len(failures(3))


def test_job_that_recovers_within_its_grace_period_never_pages():
    outcome = night(3, failed_grace=60.0)

    assert outcome.violation == ""
    assert outcome.notified == 0
