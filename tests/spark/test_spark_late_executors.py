"""On real Spark: executors that join a cluster late cause a warning and no page."""

from __future__ import annotations

import pytest
from support.driver import HEADER, START_SECONDS, Driver
from support.java_options import executor_options
from support.standalone import Standalone

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(900)]

FLOOR = 10.0
CRITICAL = 10_000.0
"""On a busy machine, a worker and its executor take minutes; later, the delay is critical."""
SCRIPT = f"""
sidecar = attach(
    spark, http_port=0, webhook_url=os.environ["PAGES"], stall_floor_seconds={FLOOR},
    start_grace_seconds={FLOOR}, stall_critical_seconds={CRITICAL}, resolve_after_seconds=1,
)
query = rate().writeStream.queryName("late").trigger(processingTime="200 milliseconds")
query = query.format("noop").start()
say("started")
until_commits(sidecar, "late")
say("committed")
while sidecar.alerts():
    time.sleep(0.1)
sidecar.close()
say("resolved")
query.stop()
spark.stop()
"""


@pytest.fixture
def cluster(tmp_path):
    cluster = Standalone(tmp_path)
    yield cluster
    cluster.close()


def test_late_executors_cause_a_warning_and_no_page(cluster, pages, tmp_path):
    conf = f'.master("{cluster.url}").config("spark.executor.memory", "512m")'
    conf += f'.config("spark.executor.extraJavaOptions", "{executor_options()}")'
    header = HEADER.replace('.master("local[2]")', conf)
    with Driver(SCRIPT, tmp_path, header=header, PAGES=pages.url) as driver:
        driver.wait_for_line("started")
        pages.wait_for("StreamingQueryStalled", "late", timeout=START_SECONDS)
        cluster.add_worker()
        driver.wait_for_line("resolved", 2 * START_SECONDS)
        assert driver.wait() == 0

    assert pages.reported[0] == ("firing", "StreamingQueryStalled", "late")
    assert pages.pages[0].annotations["reason"].startswith("no_executors: "), pages.pages
    assert {page.labels["severity"] for page in pages.pages} == {"warning"}
    assert pages.pages[-1].status == "resolved"
