"""On real Spark: what finished tasks did is summed up for the query and the batch they belong to."""

from __future__ import annotations

import threading
from time import sleep
from types import SimpleNamespace
from urllib.request import urlopen

import pytest
from support.queries import SPARK_PATIENCE_SECONDS, Boom, rate, shown, start, until

from querypulse.listener.probe_report import UNOWNED
from querypulse.listener.spark.event_paths import EventQueue
from querypulse.listener.spark.health_listener import HealthListener

pytestmark = [pytest.mark.spark, pytest.mark.every_spark]

SLEEP = "java_method('java.lang.Thread', 'sleep', cast(if(id = {id}, 1200, 1) as bigint)) is null"
SPILLS = {
    "spark.sql.windowExec.buffer.in.memory.threshold": "1",
    "spark.sql.windowExec.buffer.spill.threshold": "100",
}


@pytest.fixture
def queue(spark):
    queue = EventQueue(spark, HealthListener(capacity=1, start=object, start_on=list))
    queue.listen(spark)
    yield queue
    for query in spark.streams.active:
        query.stop()
    queue.release()


def tasks(spark, queue):
    """What is known once all events have arrived."""
    spark._jsc.sc().listenerBus().waitUntilEmpty()
    return queue.tasks()


def ran(spark, queue, query, batches):
    """The tasks of a query that has been stopped after so many batches."""
    until(lambda: len(query.recentProgress) >= batches, f"{query.name} has {batches} batches")
    query.stop()
    return tasks(spark, queue)[query.id]


def test_tasks_belong_to_the_query_and_the_batch_that_ran_them(spark, queue):
    def three(batch, batch_id):
        batch.sparkSession.range(0, 3, 1, 3).collect()

    def five_and_two(batch, batch_id):
        batch.sparkSession.range(0, 500, 1, 5).repartition(2).collect()

    narrow, wide = start(rate(spark), "narrow", three), start(rate(spark), "wide", five_and_two)
    of_narrow = ran(spark, queue, narrow, 3)
    of_wide = ran(spark, queue, wide, 3)
    before = tasks(spark, queue)[UNOWNED].sums.tasks if UNOWNED in queue.tasks() else 0
    spark.range(0, 7, 1, 7).collect()
    of_nobody = tasks(spark, queue)[UNOWNED]

    assert of_nobody.sums.tasks - before == 7
    assert of_nobody.batches == ()
    for own, of_batch in ((of_narrow, 3), (of_wide, 7)):
        first, second = own.batches
        assert second.batch_id == first.batch_id + 1
        assert first.sums.tasks == of_batch
        assert own.sums.tasks >= 2 * of_batch
        assert own.sums.run_seconds >= first.sums.run_seconds + second.sums.run_seconds
        assert own.sums.cpu_seconds > 0
    assert of_narrow.sums.shuffle_written_bytes == 0
    assert of_wide.batches[0].sums.shuffle_written_bytes > 0
    assert of_wide.sums.shuffle_read_bytes > 0


def test_skewed_stage_is_shown_with_its_longest_task_and_spill_is_seen(spark, queue):
    def skewed(batch, batch_id):
        session = batch.sparkSession
        session.range(0, 6, 1, 6).selectExpr(SLEEP.format(id=4)).collect()
        for name, value in SPILLS.items():
            session.conf.set(name, value)
        session.range(0, 1000, 1, 1).selectExpr("sum(id) over ()").collect()

    batch = ran(spark, queue, start(rate(spark), "skewed", skewed), 1).batches[0]

    assert (batch.spread.tasks, batch.spread.partition) == (6, 4)
    assert batch.spread.longest_seconds >= 1.2
    assert batch.spread.longest_seconds > batch.spread.median_seconds
    assert batch.spread.host
    assert batch.sums.spilled_bytes > 0


def test_batch_waits_while_jobs_of_others_hold_all_slots(spark, queue, tmp_path):
    held = threading.Event()
    slots = int(spark.sparkContext.master.removeprefix("local[").rstrip("]"))

    def wait_and_work(batch, batch_id):
        assert held.wait(SPARK_PATIENCE_SECONDS)
        batch.sparkSession.range(0, 2, 1, 2).collect()

    def hold(_):
        while not (tmp_path / "free").exists():
            sleep(0.05)

    def first_batch():
        return tasks(spark, queue)[query.id].batches[0]

    everything = spark.sparkContext.parallelize(range(slots), slots)
    hog = threading.Thread(target=lambda: everything.foreach(hold), daemon=True)
    query = start(rate(spark), "starved", wait_and_work, trigger="1 hour")
    hog.start()
    try:
        until(lambda: active_of_nobody(queue) == slots, "all slots are held")
        held.set()
        until(lambda: query.id in queue.tasks(), "its stage is submitted")
        until(lambda: first_batch().waited_seconds > 0.3, "its stage waits")
        longest = queue.job_counts().by_query[UNOWNED].longest
        assert longest.as_long == slots - 1
        assert first_batch().sums.tasks == 0
    finally:
        (tmp_path / "free").touch()
        hog.join(SPARK_PATIENCE_SECONDS)
    until(lambda: first_batch().sums.tasks == 2, "it goes on")

    waited = first_batch().waited_seconds
    assert waited > 0.3
    sleep(0.3)
    assert first_batch().waited_seconds == waited


def active_of_nobody(queue):
    counts = queue.job_counts().by_query.get(UNOWNED)
    return 0 if counts is None else counts.tasks_active


def test_failed_attempts_count_and_lost_track_loses_no_sums(spark, queue):
    def fails_once(batch, batch_id):
        with pytest.raises(Exception, match=r"no such row"):
            batch.sparkSession.range(0, 2, 1, 2).selectExpr("raise_error('no such row')").collect()
        batch.sparkSession.range(0, 3, 1, 3).collect()

    query = start(rate(spark), "failing", fails_once)
    until(lambda: len(query.recentProgress) >= 2, "two batches")
    before = tasks(spark, queue)[query.id].sums.tasks
    assert before >= 8
    queue.java.listenOnBus(spark._jsc.sc().listenerBus())
    batches = len(query.recentProgress)
    until(lambda: len(query.recentProgress) >= batches + 2, "two more batches")

    assert tasks(spark, queue)[query.id].sums.tasks >= before + 3


def test_batch_that_runs_again_after_a_failure_has_only_the_tasks_of_its_second_run(
    spark, queue, tmp_path
):
    attempts = []

    def three_and_then_two(batch, batch_id):
        attempts.append(batch_id)
        batch.sparkSession.range(0, 3 if len(attempts) == 1 else 2, 1, 4 - len(attempts)).collect()
        if len(attempts) == 1:
            raise Boom("again")

    first = start(rate(spark), "again", three_and_then_two, checkpoint=tmp_path)
    until(lambda: not first.isActive, "it fails")
    failed = tasks(spark, queue)[first.id]
    second = start(rate(spark), "again", three_and_then_two, trigger="1 hour", checkpoint=tmp_path)
    until(lambda: len(second.recentProgress) >= 1, "its batch ends")
    again = tasks(spark, queue)[second.id]

    assert first.id == second.id
    assert [(batch.batch_id, batch.sums.tasks) for batch in failed.batches] == [(0, 3)]
    assert [(batch.batch_id, batch.sums.tasks) for batch in again.batches] == [(0, 2)]
    assert again.sums.tasks == 5


@pytest.fixture
def run_as(spark):
    """Runs a job of so many tasks with the properties that a batch of a query sets."""

    def run(query_id, batch_id, count):
        spark.sparkContext.setLocalProperty("sql.streaming.queryId", query_id)
        spark.sparkContext.setLocalProperty("streaming.sql.batchId", batch_id)
        spark.range(0, count, 1, count).collect()

    yield run
    run(None, None, 1)


def test_only_the_newest_two_batches_are_kept_and_no_id_of_an_old_thread_displaces_them(
    spark, queue, run_as
):
    for batch_id, count in (("5", 2), ("6", 3), ("5", 1), ("4", 1), ("x", 1), ("-1", 1), ("8", 1)):
        run_as("q", batch_id, count)
    of_query = tasks(spark, queue)["q"]

    assert [(batch.batch_id, batch.sums.tasks) for batch in of_query.batches] == [(6, 3), (8, 1)]
    assert of_query.sums.tasks == 10
    assert queue.take(0.0) == [], "no event of a task reaches Python"


def test_ids_that_look_like_our_own_marks_are_read_as_text(spark, queue, run_as):
    run_as("a\x1fb\x1ec", "1", 2)

    assert tasks(spark, queue)["a b c"].sums.tasks == 2


def test_jobs_with_such_an_id_are_counted_while_they_run(spark, queue):
    def work():
        spark.sparkContext.setLocalProperty("sql.streaming.queryId", "a\x1fb\x1ec")
        spark.range(0, 1, 1, 1).where(SLEEP.format(id="id")).collect()

    working = threading.Thread(target=work, daemon=True)
    working.start()
    until(lambda: "a b c" in queue.job_counts().by_query, "its job is counted")
    working.join(SPARK_PATIENCE_SECONDS)


@pytest.mark.nightly
def test_sums_of_many_queries_that_are_gone_are_given_up_and_those_of_no_query_stay(
    spark, queue, run_as
):
    run_as(None, None, 3)
    of_nobody = tasks(spark, queue)[UNOWNED].sums.tasks
    for number in range(1002):
        run_as(f"gone-{number}", "1", 1)

    assert str(queue.java.taskSums(0)).count("gone-") < 10
    assert tasks(spark, queue)[UNOWNED].sums.tasks == of_nobody
    assert tasks(spark, queue)["gone-1001"].sums.tasks == 1


def test_cost_of_a_query_grows_over_its_restart_and_is_published(spark, watch, tmp_path):
    def two(batch, batch_id):
        batch.sparkSession.range(0, 2, 1, 2).collect()

    def cost():
        return getattr(shown(sidecar, "priced"), "cost", None) or SimpleNamespace(tasks=0)

    def metric():
        page = urlopen(f"{sidecar.url}/metrics").read().decode()
        name = 'spark_streaming_query_executor_cpu_seconds_total{app="tests",query="priced"} '
        return float(page.partition(name)[2].split("\n")[0])

    sidecar = watch()
    query = start(rate(spark), "priced", two, checkpoint=tmp_path)
    until(lambda: cost().tasks >= 4, "tasks are counted")
    query.stop()
    sidecar.flush()
    before = cost()
    published = metric()
    query = start(rate(spark), "priced", two, checkpoint=tmp_path)
    seen = []
    until(lambda: seen.append(cost().tasks) or seen[-1] >= before.tasks + 4, "they go on")

    assert seen == sorted(seen)
    assert seen[0] >= before.tasks
    assert cost().cpu_seconds >= before.cpu_seconds
    assert 0 < cost().cpu_share <= 1
    assert metric() >= published > 0
    assert sidecar.snapshot().monitor.events_dropped["failed_in_jvm"] == 0
