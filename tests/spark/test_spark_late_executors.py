"""On real Spark: executors that join a cluster late, as those of an autoscaler, raise no alert."""

from __future__ import annotations

import pytest
from support.driver import HEADER, START_SECONDS, Driver
from support.java_options import executor_options
from support.standalone import Standalone

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(900)]

FLOOR = 5.0
SCRIPT = f"""
sidecar = attach(
    spark, http_port=0, webhook_url=os.environ["PAGES"], stall_floor_seconds={FLOOR},
    start_grace_seconds={FLOOR},
)
query = rate().writeStream.queryName("late").trigger(processingTime="200 milliseconds")
query = query.format("noop").start()
while not any((q.batch_in_flight_seconds or 0) > {3 * FLOOR} for q in sidecar.snapshot().queries):
    time.sleep(0.1)
say("waits")
until_commits(sidecar, "late")
sidecar.close()
query.stop()
spark.stop()
"""


@pytest.fixture
def cluster(tmp_path):
    cluster = Standalone(tmp_path)
    yield cluster
    cluster.close()


def test_late_executors_raise_no_alert(cluster, pages, tmp_path):
    conf = f'.master("{cluster.url}").config("spark.executor.memory", "512m")'
    conf += f'.config("spark.executor.extraJavaOptions", "{executor_options()}")'
    header = HEADER.replace('.master("local[2]")', conf)
    with Driver(SCRIPT, tmp_path, header=header, PAGES=pages.url) as driver:
        driver.wait_for_line("waits", START_SECONDS)
        cluster.add_worker()
        assert driver.wait(2 * START_SECONDS) == 0

    assert pages.pages == []
