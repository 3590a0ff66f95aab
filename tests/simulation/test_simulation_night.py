"""A simulated night with a job that fails and recovers every 20 minutes: pages per night.

It lasts eight hours, or three where it only differs in one part.
"""

import pytest

from simulation.plan import Plan, QuerySpec, Setup, Step, again
from simulation.world import run

pytestmark = pytest.mark.slow


def night(hours=8, failure="600 die billing", recovers=2.0, **setup):
    """The outcome of a night in which a query fails every 20 minutes, and not at the end."""
    query = QuerySpec("billing", "billing", every=20.0, takes=2.0, recovers=recovers)
    happens = (Step(1.0, "start", "billing"), *again(3 * hours - 1, 1200, failure))
    outcome = run(Plan(1, hours * 3600.0, (query,), happens, Setup(**setup)))
    assert outcome.violation == ""
    return outcome


def night_of_processes(hours, **setup):
    """The same night, but each failure ends the process, and a new one starts 5 s later."""
    return night(hours, "600 die billing, 602 raise, 607 boot", 0.0, **setup)


def test_self_recovering_job_pages_three_times_per_night_by_default():
    assert night().notified == 3


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
    assert night_of_processes(hours, receivers=(receiver,)).notified == 3


def test_without_a_spool_each_process_counts_for_itself():
    assert night_of_processes(3, spool=False).notified == 8


def test_job_that_recovers_within_its_grace_period_never_pages():
    assert night(3, failed_grace=60.0).notified == 0
