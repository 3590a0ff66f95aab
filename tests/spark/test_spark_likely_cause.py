"""On real Spark: what makes a batch slow is named, and a plain large batch has no such cause."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager

import pytest
from support.queries import until

from querypulse.alerting.evidence import SlowCause
from querypulse.alerting.policy import Policy
from querypulse.alerting.rules.causes import slowness
from querypulse.alerting.rules.context import rule_context

# What a batch takes beside other tests is not what it takes alone, so that these wait for the night.
pytestmark = [pytest.mark.spark, pytest.mark.every_spark, pytest.mark.nightly]

ROUNDS = range(int(os.environ.get("ROUNDS", "1")))
"""Each trouble is injected so often: ``ROUNDS=20`` shows how often each is named."""
USUAL_BATCHES = 8
SLOTS = 12
MILLIS = 6000
SLOW_STORE = """
import java.io.*;
import java.net.URI;
import org.apache.hadoop.fs.*;
import org.apache.hadoop.util.Progressable;
public class SlowStore extends RawLocalFileSystem {
    public URI getUri() { return URI.create("slow:///"); }
    private static void sleep(String what) throws IOException {
        try {
            if (what.equals(System.getProperty("slow.store"))) Thread.sleep(3000L);
        } catch (InterruptedException stopped) {
            throw new InterruptedIOException();
        }
    }
    public FileStatus[] listStatus(Path path) throws IOException {
        if (path.getName().equals("in")) sleep("listing");
        return super.listStatus(path);
    }
    public boolean rename(Path from, Path to) throws IOException {
        if (to.getParent().getName().equals("offsets") || to.getParent().getName().equals("commits")) sleep("commits");
        return super.rename(from, to);
    }
}
"""
"""A store that takes three seconds to list the folder ``in``, or to commit a file."""
SLEEP = "reflect('java.lang.Thread', 'sleep', cast({} as bigint))"
SORTED = "spark.shuffle.sort.bypassMergeThreshold"
SPILLS = "spark.shuffle.spill.numElementsForceSpillThreshold"
FLAG = "reflect('java.lang.System', 'setProperty', concat('holds ', spark_partition_id()), 'yes')"
"""Says in the driver's JVM that a task runs: Spark's store shows the last ones seconds later."""


@pytest.fixture(scope="module")
def slow_store(spark):
    """Make the store slow in one way, until it is made quick again."""
    jvm = spark.sparkContext._jvm
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    compiler = loader.loadClass("org.codehaus.janino.SimpleCompiler").newInstance()
    compiler.setParentClassLoader(loader)
    compiler.cook(SLOW_STORE)
    before = conf.getClassLoader()
    conf.setClassLoader(compiler.getClassLoader())
    conf.set("fs.slow.impl", "SlowStore")
    yield lambda what: jvm.java.lang.System.setProperty("slow.store", what)
    conf.setClassLoader(before)


@pytest.fixture
def spill_each(spark):
    """Make shuffles spill each time that a task has written so many rows."""
    conf = spark.sparkContext._jsc.sc().conf()
    # Else a shuffle to few partitions has a file for each, and never spills.
    conf.set(SORTED, "1")
    yield lambda rows: conf.set(SPILLS, str(rows))
    conf.remove(SORTED)
    conf.remove(SPILLS)


class Watched:
    """A query of files, a batch for each ``put``, and what is known of its newest batch."""

    def __init__(self, spark, sidecar, folder, work):
        self.sidecar, self.folder, self.work = sidecar, folder, work
        self.name = "orders"
        self.input = folder / "in"
        self.input.mkdir()
        self.files = 0
        self.query = (
            spark.readStream.format("text")
            .load(f"slow://{self.input}")
            .writeStream.queryName(self.name)
            .trigger(processingTime="200 milliseconds")
            .option("checkpointLocation", f"slow://{folder}/checkpoint")
            .foreachBatch(lambda rows, _: self.work(rows))
            .start()
        )
        for _ in range(USUAL_BATCHES):
            self.put()

    def put(self, rows=20):
        """Let it read a file, and wait until its tasks are known, too."""
        number = self.files
        self.files += 1
        written = self.folder / f"{number}.txt"
        written.write_text("x\n" * rows)
        written.rename(self.input / written.name)
        until(lambda: self.knows(number), f"batch {number} of {self.name} is known")

    def knows(self, number):
        query = self.snapshot.labels().get(self.name)
        tasks = None if query is None or query.run.probed is None else query.run.probed.tasks
        committed = () if query is None else tuple(query.checkpoint.batches.values())
        if not committed or committed[-1].batch_id < number or tasks is None:
            return False
        return any(batch.batch_id == number for batch in tasks.batches)

    @property
    def snapshot(self):
        return self.sidecar._runtime.evaluated.snapshot

    @property
    def slowness(self):
        snapshot = self.snapshot
        query = snapshot.labels()[self.name]
        return slowness(rule_context(query, snapshot, snapshot.at, Policy()))


def run(rows, *columns):
    """Run a job of these columns."""
    rows.selectExpr(*columns).write.format("noop").mode("overwrite").save()


def in_each_slot(session):
    """A row for each slot, in a task of its own."""
    return session.range(0, SLOTS, 1, SLOTS)


def usual_work(rows):
    """Shuffle the rows, and take a while for each."""
    run(rows.repartition(SLOTS), "value", SLEEP.format(5))


def skewed_work(rows):
    usual_work(rows)
    millis = f"if(spark_partition_id() = 7, {MILLIS}, 5)"
    run(in_each_slot(rows.sparkSession), SLEEP.format(millis))


def shuffling_work(rows):
    numbers = rows.sparkSession.range(0, 60_000, 1, 4)
    texts = numbers.selectExpr("id", "sha2(cast(id AS string), 256) AS text")
    run(texts.repartition(4, "id"), "text")


@contextmanager
def neighbour(session):
    """Another job, of no query, that holds all slots for a while."""
    system = session.sparkContext._jvm.java.lang.System
    flags = [f"holds {partition}" for partition in range(SLOTS)]
    columns = [in_each_slot(session), FLAG, SLEEP.format(MILLIS)]
    thread = threading.Thread(target=run, args=columns, daemon=True)
    thread.start()

    def holds():
        return all(system.getProperty(flag) for flag in flags)

    until(holds, "the neighbour has the slots")
    yield
    thread.join()
    for flag in flags:
        system.clearProperty(flag)


@pytest.fixture
def watched(spark, watch, slow_store, tmp_path):
    """Watch a query that has done this work in some batches."""
    slow_store("")
    sidecar = watch()
    yield lambda work=usual_work: Watched(spark, sidecar, tmp_path, work)
    slow_store("")


def cause_of(watched):
    """The cause of its newest batch; a difference shows all that is known of it."""
    slow = watched.slowness
    query = watched.snapshot.labels()[watched.name]
    print(slow, query.checkpoint.batches, query.run.probed.tasks, sep="\n")
    return None if slow is None or slow.cause is None else slow.cause.cause


@pytest.mark.parametrize("number", ROUNDS)
def test_slow_listing_of_a_source_is_named(watched, slow_store, number):
    query = watched()
    slow_store("listing")
    query.put()

    assert cause_of(query) is SlowCause.SOURCE_LISTING


@pytest.mark.parametrize("number", ROUNDS)
def test_slow_store_of_the_checkpoint_is_named(watched, slow_store, number):
    query = watched()
    slow_store("commits")
    query.put()

    assert cause_of(query) is SlowCause.SLOW_COMMIT


@pytest.mark.parametrize("number", ROUNDS)
def test_plain_large_batch_has_no_cause(watched, number):
    query = watched()
    query.put(rows=20_000)

    assert cause_of(query) is None
    assert (query.slowness.rows, query.slowness.usual_rows) == (20_000, 20)


@pytest.mark.parametrize("number", ROUNDS)
def test_skewed_task_is_named(watched, number):
    query = watched()
    query.work = skewed_work
    query.put()

    assert cause_of(query) is SlowCause.SKEW
    spread = query.slowness.cause.spread
    assert (spread.partition, spread.tasks) == (7, SLOTS)


@pytest.mark.parametrize("number", ROUNDS)
def test_shuffle_that_spills_is_named(watched, spill_each, number):
    query = watched(shuffling_work)
    spill_each(20)
    query.put()

    assert cause_of(query) is SlowCause.SPILL


@pytest.mark.parametrize("number", ROUNDS)
def test_wait_for_slots_that_a_neighbour_holds_is_named(watched, spark, number):
    query = watched()
    with neighbour(spark):
        query.put()

    assert cause_of(query) is SlowCause.WAITING_FOR_SLOTS
