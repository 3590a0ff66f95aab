"""Every way a driver ends under a real YARN, in both deploy modes: what people are notified of.

``docs/yarn.md`` shows this table. ``YARN_KILLS`` and ``YARN_PLANNED_KILLS`` are how often each is
done; what is sent and when is printed.
"""

from __future__ import annotations

import os
import signal
import urllib.request
from functools import partial

import pytest
from support.cluster_jobs import (
    DOWN,
    FAILED,
    START_SECONDS,
    STOPPED,
    Job,
    executors_of,
    has_ended,
    kill_both,
    kill_jvm_of,
)
from support.pagerduty_double import PagerDutyDouble
from support.pages import PageRecorder
from support.patience import until
from support.yarn import MiniYarn

pytestmark = [pytest.mark.spark, pytest.mark.yarn, pytest.mark.nightly, pytest.mark.timeout(7200)]

KILLS = int(os.environ.get("YARN_KILLS", "4"))
PLANNED_KILLS = int(os.environ.get("YARN_PLANNED_KILLS", "3"))
MODES = pytest.mark.parametrize("mode", ["cluster", "client"])
SPOOLS = {
    "without a spool": lambda _: {},
    "with a spool": lambda folder: {"QUERYPULSE_SPOOL_DIR": str(folder / "spool")},
    "with a spool at a URI": lambda folder: {"QUERYPULSE_SPOOL_DIR": f"file://{folder}/spool"},
}


@pytest.fixture(scope="module")
def yarn(tmp_path_factory):
    cluster = MiniYarn(tmp_path_factory.mktemp("yarn"))
    yield cluster
    cluster.close()


@pytest.fixture
def job(yarn, tmp_path):
    """Start one job, and end it after the test."""
    jobs = []
    with PageRecorder() as pages, PagerDutyDouble() as pagerduty:

        def start(mode="cluster", folder=tmp_path, keeps="without a spool", **environment):
            submit = partial(yarn.submit, mode=mode)
            environment |= SPOOLS[keeps](folder)
            jobs.append(Job(submit, folder, pages, pagerduty, **environment))
            return jobs[-1]

        yield start
        for one in jobs:
            one.application.kill()
            one.application.wait("FINISHED", "FAILED", "KILLED")


def said(*words):
    print(*words, flush=True)


# -- the driver dies --------------------------------------------------------------------------


@pytest.mark.parametrize("keeps", SPOOLS)
@pytest.mark.fault(
    "Ends and kills",
    "YARN, cluster mode: `kill -9` of the driver's JVM, again and again, with and without a spool",
    "`StreamingDriverDown` for each; the next attempt resolves it",
)
def test_each_kill_of_the_jvm_is_reported_and_the_next_attempt_resolves_it(keeps, job, tmp_path):
    driver = job(keeps=keeps)
    pid = driver.driver()
    for number in range(1, KILLS + 1):
        at = kill_jvm_of(pid)
        has_ended(pid)
        sent = len(driver.pages.pages)
        delays = [round(page.at - at, 2) for page in driver.pages.pages if page.at > at]
        pid = driver.driver()
        driver.fires(DOWN, number)
        driver.is_resolved()
        later = [(page.status, round(page.at - at, 1)) for page in driver.pages.pages[sent:]]
        said(keeps, "kill", number, "by the same attempt", delays, "by the next", later)
        drafts = tmp_path / "spool"
        until(lambda: not list(drafts.glob(".*")), "no draft of a killed process is left")  # noqa: B023 - it is called here

    assert set(driver.fired) == {DOWN}


@pytest.mark.parametrize("keeps", SPOOLS)
@pytest.mark.fault(
    "Ends and kills",
    "YARN, cluster mode: JVM and Python are killed at once, as with their machine",
    "The next attempt reports it where there is a spool, else nobody does",
)
def test_attempt_that_is_killed_with_its_python_is_reported_by_the_next_one(keeps, job):
    driver = job(keeps=keeps)
    pid = driver.driver()
    at = kill_both(pid)
    has_ended(pid)
    assert driver.fired == []
    driver.driver()
    if keeps == "without a spool":
        driver.folder.joinpath("fail").touch()
        driver.fires(FAILED)
        said(keeps, "kill of both: nothing")
        assert driver.fired == [FAILED]
        return
    page = driver.fires(DOWN)
    driver.is_resolved()
    driver.pages.wait_for(*DOWN, status="resolved", timeout=START_SECONDS)
    ends = [page.at - at for page in driver.pages.pages]
    said(keeps, "kill of both:", [round(seconds, 1) for seconds in ends], page)

    assert driver.fired == [DOWN]
    assert "attempt_lost" in page.annotations["reason"]


@pytest.mark.fault(
    "Ends and kills",
    "YARN, client mode: `kill -9` of the driver's JVM",
    "`StreamingDriverDown` at once; YARN starts nothing again",
)
def test_kill_of_the_jvm_of_a_client_is_reported(job):
    driver = job("client")
    pid = driver.driver()
    at = kill_jvm_of(pid)
    page = driver.fires(DOWN)
    has_ended(pid)
    driver.application.wait("FINISHED", "FAILED", "KILLED")
    said("client, kill", round(page.at - at, 2), driver.application.state)

    assert driver.fired == [DOWN]


# -- a query, an executor ---------------------------------------------------------------------


@MODES
@pytest.mark.fault(
    "Ends and kills",
    "YARN: a query fails and `await_any_failure` ends the driver",
    "Its page; the next attempt, in cluster mode, resolves it",
)
def test_failed_query_is_reported_and_the_next_attempt_resolves_it(mode, job):
    driver = job(mode, keeps="with a spool")
    pid = driver.driver()
    driver.folder.joinpath("fail").touch()
    driver.fires(FAILED)
    has_ended(pid)
    if mode == "cluster":
        driver.driver()
        driver.is_resolved()
        driver.pages.wait_for(*FAILED, status="resolved", timeout=START_SECONDS)
    else:
        driver.application.wait("FINISHED", "FAILED", "KILLED")
    said(mode, "a query fails", driver.pages.reported, driver.application.state)

    assert driver.fired == [FAILED]


@MODES
@pytest.mark.fault(
    "Ends and kills", "YARN: an executor is killed and YARN gives another one", "Nothing is sent"
)
def test_lost_executor_sends_nothing_and_the_queries_go_on(mode, job):
    driver = job(mode, WAITS_FOR_END="1")
    driver.driver()
    application = driver.application
    lost = until(lambda: executors_of(application.application_id), "it has an executor")
    for pid in lost:
        os.kill(pid, signal.SIGKILL)
        has_ended(pid)

    def another():
        return set(executors_of(application.application_id)) - set(lost)

    until(another, "YARN gives another executor", START_SECONDS)
    url = (driver.folder / "spark_ui_url").read_text()
    assert url.endswith(f"/proxy/{application.application_id}")
    with urllib.request.urlopen(url, timeout=START_SECONDS) as answer:
        assert driver.folder.name in answer.read().decode(), "it is the UI of this application"
    driver.ends()
    said(mode, "a lost executor", driver.pages.reported)

    assert application.wait("FINISHED", "FAILED") == ("FINISHED", "SUCCEEDED")
    assert driver.pages.reported == []


# -- somebody wants it ------------------------------------------------------------------------


@pytest.mark.fault(
    "Ends and kills",
    "YARN, cluster mode: an application is killed through YARN's REST API",
    "Nothing is sent",
)
@pytest.mark.parametrize("keeps", ["without a spool", "with a spool"])
def test_kill_by_a_user_sends_nothing(keeps, job, tmp_path):
    for number in range(PLANNED_KILLS):
        folder = tmp_path / f"planned-{number}"
        folder.mkdir()
        driver = job(folder=folder, keeps=keeps)
        pid = driver.driver()
        driver.application.kill()
        driver.application.wait("KILLED")
        has_ended(pid)
        said("cluster", keeps, "planned kill", number + 1, "sent", driver.pages.reported)

        assert driver.pages.reported == []


def test_kill_by_a_user_of_a_client_is_reported_as_a_stopped_spark(job):
    """There YARN ends its master only, and Spark stops itself: the driver does not know why."""
    driver = job("client")
    pid = driver.driver()
    driver.application.kill()
    driver.application.wait("KILLED")
    driver.fires(STOPPED)
    has_ended(pid)
    said("client, planned kill sent", driver.pages.pages)

    assert driver.fired == [STOPPED]


@MODES
def test_graceful_end_sends_nothing(mode, job):
    driver = job(mode, keeps="with a spool", WAITS_FOR_END="1")
    pid = driver.driver()
    driver.ends()
    has_ended(pid)

    assert driver.application.wait("FINISHED", "FAILED") == ("FINISHED", "SUCCEEDED")
    assert driver.pages.reported == []
