"""How a driver ends on Spark's standalone cluster: what people are notified of.

A driver in Python runs in client mode there, and nothing starts it again.
"""

from __future__ import annotations

import os
import signal

import pytest
from support.cluster_jobs import (
    DOWN,
    FAILED,
    START_SECONDS,
    STOPPED,
    Job,
    executors_of,
    has_ended,
    kill_jvm_of,
)
from support.pagerduty_double import PagerDutyDouble
from support.pages import PageRecorder
from support.patience import until
from support.standalone import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    running = StandaloneCluster(tmp_path_factory.mktemp("standalone"))
    yield running
    running.close()


@pytest.fixture
def job(cluster, tmp_path):
    """Start one job."""
    with PageRecorder() as pages, PagerDutyDouble() as pagerduty:
        yield lambda **environment: Job(cluster.submit, tmp_path, pages, pagerduty, **environment)


@pytest.mark.nightly
@pytest.mark.fault(
    "Ends and kills",
    "Standalone cluster: an executor is killed, then a query fails",
    "Only the query is reported",
)
def test_failed_query_is_reported_and_a_lost_executor_is_not(job):
    driver = job()
    pid = driver.driver()
    lost = until(lambda: executors_of(driver.application.application_id), "it has an executor")
    for executor in lost:
        os.kill(executor, signal.SIGKILL)
        has_ended(executor)

    def another():
        return set(executors_of(driver.application.application_id)) - set(lost)

    until(another, "the worker starts another executor", START_SECONDS)
    driver.folder.joinpath("fail").touch()
    driver.fires(FAILED)
    has_ended(pid)

    assert driver.fired == [FAILED]


@pytest.mark.nightly
@pytest.mark.fault(
    "Ends and kills",
    "Standalone cluster: `kill -9` of the driver's JVM",
    "`StreamingDriverDown` at once",
)
def test_kill_of_the_jvm_is_reported(job):
    driver = job()
    pid = driver.driver()
    at = kill_jvm_of(pid)
    page = driver.fires(DOWN)
    has_ended(pid)
    print("standalone, kill", round(page.at - at, 2), driver.application.state, flush=True)

    assert driver.fired == [DOWN]


@pytest.mark.nightly
def test_kill_by_a_user_is_reported_as_a_stopped_spark(job):
    """The master takes its executors and says so to Spark, which stops itself."""
    driver = job()
    pid = driver.driver()
    driver.application.kill()
    driver.fires(STOPPED)
    has_ended(pid)
    print("standalone, kill by a user", driver.pages.pages, flush=True)

    assert driver.fired == [STOPPED]


@pytest.mark.nightly
def test_graceful_end_sends_nothing(job):
    driver = job(WAITS_FOR_END="1")
    pid = driver.driver()
    driver.ends()
    has_ended(pid)

    assert driver.application.wait("FINISHED", "FAILED") == ("FINISHED", "")
    assert driver.pages.reported == []
