"""Every way a driver ends under a real YARN, in cluster mode: what people are notified of.

``docs/yarn.md`` shows this table. ``YARN_KILLS`` and ``YARN_PLANNED_KILLS`` are how often each is done.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.pagerduty_double import PagerDutyDouble
from support.pages import PageRecorder
from support.patience import until
from support.yarn import START_SECONDS, MiniYarn, kill_jvm_of

pytestmark = [pytest.mark.spark, pytest.mark.yarn, pytest.mark.nightly, pytest.mark.timeout(7200)]

KILLS = int(os.environ.get("YARN_KILLS", "4"))
PLANNED_KILLS = int(os.environ.get("YARN_PLANNED_KILLS", "3"))
JOB = """
import os
import time
from pathlib import Path
from pyspark.sql import SparkSession
from querypulse.sidecar import attach

folder = Path(os.environ["FOLDER"])
spark = SparkSession.builder.appName("yarn").getOrCreate()
sidecar = attach(spark, http_port=-1, resolve_after_seconds=1.0)
for name in ("bronze", "silver"):
    stream = spark.readStream.format("rate").load().writeStream.queryName(name)
    stream.option("checkpointLocation", str(folder / name)).trigger(processingTime="1 second")
    stream.format("noop").start()
while not all(query.last_commit_batch is not None for query in sidecar.snapshot().queries):
    time.sleep(0.05)
(folder / f"ready.{os.getpid()}").touch()
"""
WAITS = "sidecar.await_any_failure()\n"
ENDS = """
for query in spark.streams.active:
    query.stop()
spark.stop()
"""
DOWN = ("StreamingDriverDown", "*")


@pytest.fixture(scope="module")
def yarn(tmp_path_factory):
    cluster = MiniYarn(tmp_path_factory.mktemp("yarn"))
    yield cluster
    cluster.close()


class Job:
    """One application, whose driver notifies ``pages`` and ``pagerduty``."""

    def __init__(self, yarn, folder, script, pages, pagerduty, **environment):
        self.pages = pages
        self._folder = folder
        self._seen = set()
        (folder / "job.py").write_text(JOB + script)
        (folder / "key").write_text("0" * 32)
        self.application = yarn.submit(
            folder / "job.py",
            FOLDER=str(folder),
            QUERYPULSE_APP_NAME=folder.name,
            QUERYPULSE_WEBHOOK_URL=pages.url,
            QUERYPULSE_PAGERDUTY_URL=pagerduty.enqueue_url,
            QUERYPULSE_PAGERDUTY_ROUTING_KEY_FILE=str(folder / "key"),
            **environment,
        )

    def driver(self):
        """The process id of the next driver, once its queries have committed."""

        def new():
            state = self.application.state
            assert state[0] not in ("FINISHED", "FAILED", "KILLED"), state
            return {path.suffix[1:] for path in self._folder.glob("ready.*")} - self._seen

        found = until(new, "the next driver commits", START_SECONDS)
        self._seen |= found
        return int(max(found))

    @property
    def fired(self):
        return [page.what for page in self.pages.pages if page.status == "firing"]


@pytest.fixture
def receivers():
    with PageRecorder() as pages, PagerDutyDouble() as pagerduty:
        yield pages, pagerduty


@pytest.mark.parametrize("keeps", ["without a spool", "with a spool"])
@pytest.mark.fault(
    "Ends and kills",
    "YARN, cluster mode: `kill -9` of the driver's JVM, again and again, with and without a spool",
    "One `StreamingDriverDown` for each; the next attempt resolves it",
)
def test_each_kill_of_the_jvm_is_reported_and_the_next_attempt_resolves_it(
    keeps, yarn, receivers, tmp_path
):
    spool = tmp_path / "spool"
    more = {"QUERYPULSE_SPOOL_DIR": str(spool)} if keeps == "with a spool" else {}
    job = Job(yarn, tmp_path, WAITS, *receivers, **more)
    reported, delays = [], []
    pid = job.driver()
    for number in range(KILLS):
        at = kill_jvm_of(pid)
        until(lambda gone=f"/proc/{pid}": not Path(gone).exists(), "Python has ended")
        reported.append(job.fired.count(DOWN))
        delays += [round(page.at - at, 3) for page in job.pages.pages[-1:] if page.what == DOWN]
        pid = job.driver()
        until(lambda: not receivers[1].open, "PagerDuty's incident is resolved", START_SECONDS)
        print(keeps, "kill", number + 1, "reported", reported[-1], delays[-1:], flush=True)
        until(lambda: not list(spool.glob(".*")), "no draft of a killed process is left")
    job.application.kill()

    assert reported == list(range(1, KILLS + 1))
    assert set(job.fired) == {DOWN}


@pytest.mark.fault(
    "Ends and kills",
    "YARN, cluster mode: an application is killed through YARN's REST API",
    "Nothing is sent",
)
def test_a_planned_kill_sends_nothing(yarn, receivers, tmp_path):
    for number in range(PLANNED_KILLS):
        folder = tmp_path / f"planned-{number}"
        folder.mkdir()
        job = Job(yarn, folder, WAITS, *receivers)
        pid = job.driver()
        job.application.kill()
        job.application.wait("KILLED")
        until(lambda path=f"/proc/{pid}": not Path(path).exists(), "the driver has ended")
        print("planned kill", number + 1, "sent", job.pages.reported, flush=True)

        assert job.pages.reported == []


def test_a_graceful_end_sends_nothing(yarn, receivers, tmp_path):
    job = Job(yarn, tmp_path, ENDS, *receivers)

    assert job.application.wait("FINISHED", "FAILED") == ("FINISHED", "SUCCEEDED")
    assert job.pages.reported == []
