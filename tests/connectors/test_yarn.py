"""Every way a driver ends under a real YARN, in both deploy modes: what people are notified of.

``docs/yarn.md`` shows this table. ``YARN_KILLS`` is how often a JVM is killed; what is sent and when
is printed.
"""

from __future__ import annotations

import json
import os
import signal
import time
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

KILLS = int(os.environ.get("YARN_KILLS", "2"))
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


# -- the driver ends, and YARN starts the next attempt ------------------------------------------


class Attempts:
    """The attempts of one application in cluster mode; ``pid`` is that of the newest."""

    def __init__(self, job, keeps):
        self.job = job
        self.keeps = keeps
        self.pid = job.driver()

    def end(self, story, end):
        """Let the attempt end, and wait until the next one works; return what fires meanwhile."""
        pages = self.job.pages.pages
        before, at = len(pages), end(self.pid)
        has_ended(self.pid)
        own = len(pages)
        self.pid = self.job.driver()
        until(lambda: not self.job.pagerduty.open, "PagerDuty has no incident", START_SECONDS)
        if self.keeps != "without a spool":
            until(lambda: self._is_over(before), "the webhook gets the resolve", START_SECONDS)
            until(self._has_stored_ends, "the spool has no incident", START_SECONDS)
        sent = [(page.status, page.what[0], round(page.at - at, 2)) for page in pages[before:]]
        said(
            self.keeps,
            story,
            "the same attempt:",
            sent[: own - before],
            "the next:",
            sent[own - before :],
        )
        return [page for page in pages[before:] if page.status == "firing"]

    def _is_over(self, before):
        newest = {page.what: page.status for page in self.job.pages.pages[before:]}
        return newest and set(newest.values()) == {"resolved"}

    def _has_stored_ends(self):
        """Whether a kill from now on leaves nothing that is over as if it were open."""
        try:
            (file,) = (self.job.folder / "spool").glob("outbox-*.json")
            return not json.loads(file.read_text())["rows"]
        except (OSError, ValueError):
            # Hadoop deletes a local file before it renames the next one.
            return False


def fail(driver):
    def end(_):
        driver.folder.joinpath("fail").touch()
        return time.monotonic()

    return end


@pytest.mark.parametrize("keeps", SPOOLS)
@pytest.mark.fault(
    "Ends and kills",
    "YARN, cluster mode: `kill -9` of the JVM, twice; of JVM and Python; a query fails; a user's kill",
    "All but the last are reported, that of both by the next attempt if there is a spool",
)
def test_each_end_of_an_attempt_is_reported_and_the_next_one_resolves_it(keeps, job, tmp_path):
    has_spool = keeps != "without a spool"
    spool = tmp_path / "spool"
    attempts = Attempts(job(keeps=keeps), keeps)
    for number in range(KILLS):
        fired = attempts.end(f"kill {number + 1} of the JVM", kill_jvm_of)
        assert {page.what for page in fired} == {DOWN}
        until(lambda: not list(spool.glob(".outbox-*.json.*")), "no draft of a killed one is left")
    fired = attempts.end("kill of both", kill_both)
    assert [page.what for page in fired] == ([DOWN] if has_spool else [])
    assert all("attempt_lost" in page.annotations["reason"] for page in fired)
    fired = attempts.end("a query fails", fail(attempts.job))
    assert [page.what for page in fired] == [FAILED]

    sent = len(attempts.job.pages.pages)
    attempts.job.application.kill()
    attempts.job.application.wait("KILLED")
    has_ended(attempts.pid)
    assert attempts.job.pages.pages[sent:] == []


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


# -- a client, an executor --------------------------------------------------------------------


def test_failed_query_of_a_client_is_reported(job):
    driver = job("client")
    pid = driver.driver()
    driver.folder.joinpath("fail").touch()
    driver.fires(FAILED)
    has_ended(pid)
    driver.application.wait("FINISHED", "FAILED", "KILLED")
    said("client, a query fails", driver.pages.reported, driver.application.state)

    assert driver.fired == [FAILED]


@MODES
@pytest.mark.fault(
    "Ends and kills",
    "YARN: an executor is killed and YARN gives another one; later the script stops Spark",
    "Nothing is sent",
)
def test_lost_executor_and_a_graceful_end_send_nothing(mode, job):
    driver = job(mode, keeps="with a spool", WAITS_FOR_END="1")
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
