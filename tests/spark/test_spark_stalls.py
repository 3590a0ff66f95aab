"""On real Spark: hung queries page; slow and idle ones do not."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.driver import Driver
from support.queries import Trap, commits, rate, shown, start, until

pytestmark = pytest.mark.spark


def test_hung_batch_reports_the_python_line_it_blocks_on(spark, watch, pages):
    sidecar = watch(stall_floor_seconds=6)
    trap = Trap()
    start(rate(spark), "sibling")
    start(rate(spark), "hung", trap)
    commits(sidecar, "hung")

    trap.hold.set()
    assert trap.held.wait(10)
    page = pages.wait_for("StreamingQueryStalled", "hung")
    try:
        assert page.annotations["reason"].startswith("batch_hung: batch ")
        assert page.annotations["spark_says"] == "Processing new data"
        assert page.annotations["python_line"].endswith(" in wait_in_the_trap")
        assert "ForeachBatch" in page.annotations["stream_thread"]
        assert page.annotations["tasks"].endswith(" 0 running (no Spark job)")
        assert shown(sidecar, "hung").batch_in_flight_seconds > 5
    finally:
        trap.hold.clear()
        trap.free.set()
    pages.wait_for("StreamingQueryStalled", "hung", status="resolved")

    assert {(name, query) for _, name, query in pages.reported} == {
        ("StreamingQueryStalled", "hung")
    }


def test_hung_batch_is_reported_when_spark_drops_old_jobs(pages, tmp_path):
    """Jobs of siblings replace its jobs in Spark's store, which is not progress."""
    script = """
    def hang_in_batch_four(batch, number):
        batch.count()
        while number >= 4:
            time.sleep(0.1)
    sidecar = attach(spark, http_port=0, webhook_url=os.environ["PAGES"], stall_floor_seconds=6, start_grace_seconds=20)
    start("hung", hang_in_batch_four); start("busy"); start("busier")
    time.sleep(120)
    """
    forgetful = "--conf spark.ui.retainedJobs=20 --conf spark.ui.retainedStages=20 pyspark-shell"
    with Driver(script, tmp_path, PAGES=pages.url, PYSPARK_SUBMIT_ARGS=forgetful):
        pages.wait_for("StreamingQueryStalled", "hung", timeout=90)
        time.sleep(10)

    assert pages.reported == [("firing", "StreamingQueryStalled", "hung")]


def test_long_batch_with_finishing_tasks_is_slow_and_not_stalled(spark, watch, pages):
    sidecar = watch(stall_floor_seconds=5, start_grace_seconds=8)
    slow = Trap()

    def count_for_seconds(batch):
        deadline = time.monotonic() + 12
        while time.monotonic() < deadline:
            batch.count()

    start(rate(spark), "slow", slow)
    commits(sidecar, "slow")
    slow.work = count_for_seconds
    page = pages.wait_for("StreamingBatchSlow", "slow")
    slow.work = None
    pages.wait_for("StreamingBatchSlow", "slow", status="resolved")

    assert page.labels["severity"] == "warning"
    assert page.annotations["reason"].endswith("its tasks still finish")
    assert {page.what for page in pages.pages} == {("StreamingBatchSlow", "slow")}


def test_healthy_queries_do_not_page(spark, watch, pages, tmp_path):
    """Idle, finite and restarted queries, with short windows."""
    sidecar = watch(stall_floor_seconds=4, start_grace_seconds=6, gone_grace_seconds=4)
    (tmp_path / "in").mkdir()
    files = spark.readStream.schema("a long").json(str(tmp_path / "in"))
    start(files, "idle_files")
    for trigger in ({"once": True}, {"availableNow": True}):
        name = next(iter(trigger)).lower()
        rate(spark).writeStream.queryName(name).format("noop").trigger(**trigger).start()
    start(rate(spark), "hourly", trigger="1 hour")
    start(rate(spark), None)
    restarted = start(rate(spark), "restarted", checkpoint=tmp_path / "cp")
    commits(sidecar, "restarted")
    restarted.stop()
    time.sleep(1)
    start(rate(spark), "restarted", checkpoint=tmp_path / "cp")

    time.sleep(14)

    states = {query.name: query.state for query in sidecar.snapshot().queries}
    assert pages.pages == []
    assert sidecar.alerts() == ()
    assert states["idle_files"] == "idle"
    assert states["once"] == states["availablenow"] == "completed"
    assert states["restarted"] == "running"


def test_late_rows_of_an_idle_query_are_not_a_stall(spark, watch, pages, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    sidecar = watch(stall_floor_seconds=3, start_grace_seconds=3)
    start(spark.readStream.schema("a long").json(str(folder)), "late", trigger="100 milliseconds")
    until(lambda: shown(sidecar, "late") and shown(sidecar, "late").state == "idle", "idle")
    time.sleep(5)

    (folder / "a.json").write_text('{"a": 1}')
    commits(sidecar, "late")

    assert pages.pages == []


def test_thread_pool_jobs_count_for_their_query_and_not_for_a_hung_one(spark, watch, pages):
    """Pool threads name no query; the jobs of healthy siblings name theirs."""
    # A starved machine may finish no task for seconds.
    sidecar = watch(stall_floor_seconds=10)
    free = threading.Event()

    def small_jobs(_):
        while not free.is_set():
            spark.range(100).count()

    def in_a_pool(batch):
        spark.sparkContext.setJobGroup("a group of its own", "what the user calls it")
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(small_jobs, range(2)))

    def in_a_task(batch):
        batch.selectExpr("java_method('java.lang.Thread', 'sleep', 120000L)").collect()

    pooled, hung = Trap(), Trap()
    for name, trap in (("pooled", pooled), ("hung", hung)):
        start(rate(spark), name, trap)
    for number in range(3):
        start(rate(spark), f"healthy {number}", lambda batch, batch_id: batch.count())
    for name in ("pooled", "hung", "healthy 0", "healthy 1", "healthy 2"):
        commits(sidecar, name, batches=2)
    pooled.work, hung.work = in_a_pool, in_a_task
    try:
        page = pages.wait_for("StreamingQueryStalled", "hung", timeout=100)
        # The reason depends on whether the probe has already seen the running task.
        assert page.annotations["reason"].startswith(("task_running: ", "batch_hung: "))
        assert " finished for " in page.annotations["reason"]
        until(
            lambda: shown(sidecar, "pooled").batch_in_flight_seconds > 24,
            "the batch takes long",
            100,
        )
    finally:
        free.set()

    assert {query for _, name, query in pages.reported if name == "StreamingQueryStalled"} == {
        "hung"
    }
