"""A whole driver freezes and resumes, or stops its Spark and starts another one."""

from __future__ import annotations

import signal
import time

import pytest
from support.driver import START_SECONDS, Driver

pytestmark = [pytest.mark.spark, pytest.mark.thorough, pytest.mark.timeout(900)]

WINDOW_SECONDS = 20.0
FROZEN_SECONDS = 25.0
FREEZES = f"""
sidecar = attach(
    spark, http_port=0, webhook_url=os.environ["PAGES"], resolve_after_seconds=1,
    stall_floor_seconds={WINDOW_SECONDS},
)
start("thawed")
until_commits(sidecar, "thawed")
last = lambda: sidecar.snapshot().queries[0].last_commit_batch
# A batch from before a freeze may be reported after it.
def until_it_works():
    before = last()
    until(lambda: last() >= before + 5)
say("commits")
until(lambda: os.path.exists(os.environ["THAWED"]))
until_it_works()
sidecar.flush(60)
say(f"alerts {{sidecar.alerts()}}")
until(sidecar.alerts)
until(lambda: not sidecar.alerts())
spark.stop()
"""


@pytest.mark.nightly
@pytest.mark.fault(
    "Time and pauses",
    "SIGSTOP of a driver for longer than its window, then of its JVM only",
    "Nobody is notified of the first; the second is a stall until it ends, and not the end of the JVM",
)
def test_frozen_driver_does_not_page_and_a_frozen_jvm_is_a_stall(pages, tmp_path):
    thawed = tmp_path / "thawed"
    with Driver(FREEZES, tmp_path, PAGES=pages.url, THAWED=str(thawed)) as driver:
        driver.wait_for_line("commits")
        driver.signal_all(signal.SIGSTOP)
        time.sleep(FROZEN_SECONDS)
        driver.signal_all(signal.SIGCONT)
        thawed.touch()
        driver.wait_for_line("alerts ()")
        assert pages.pages == []

        driver.signal_jvm(signal.SIGSTOP)
        stalled = pages.wait_for("StreamingQueryStalled", "thawed", timeout=START_SECONDS)
        driver.signal_jvm(signal.SIGCONT)
        assert driver.wait() == 0, driver.errors

    assert stalled.annotations["reason"].startswith("silent: ")
    assert pages.reported == [
        ("firing", "StreamingQueryStalled", "thawed"),
        ("resolved", "StreamingQueryStalled", "thawed"),
    ]


STARTS_ANOTHER = """
import gc, json
jvm = spark.sparkContext._jvm
sessions = jvm.java.util.WeakHashMap()
names = jvm.java.lang.System.getProperties().stringPropertyNames
pages = os.environ["PAGES"]

def work():
    "In a thread of its own: Py4J keeps what a thread has called."
    for number in range(5):
        session = spark.newSession()
        sessions.put(session._jsparkSession, True)
        writer = session.readStream.format("rate").load().writeStream.format("noop")
        writer = writer.trigger(processingTime="1 second")
        writer.queryName(f"ended by stop {number}").start()
    until_commits(sidecar, *(f"ended by stop {number}" for number in range(5)))

def our_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("querypulse")]

sidecar = attach(spark, http_port=0, webhook_url=pages)
port = int(sidecar.url.rpartition(":")[2])
working = threading.Thread(target=work)
working.start()
working.join()
scheduler = spark.sparkContext._jsc.sc().dagScheduler()
spark.stop()
until(lambda: not our_threads())
del spark, working
say(f"closed {sidecar.closed}")
spark = SparkSession.builder.master("local[2]").getOrCreate()
spark.range(10).count()

def kept():
    "How many jobs ran when Spark stopped: it keeps their sessions, and some queries never end."
    # As one text: Py4J would keep the threads, and each has its session.
    threads = jvm.java.lang.Thread.getAllStackTraces().keySet().toString()
    return scheduler.activeJobs().size() + threads.count("stream execution thread")

def is_released():
    "Spark itself may keep one: a thread of Hadoop's inherits the session that is active."
    # Both at one time: a job that ends now leaves its session to the next collection.
    held, left = kept(), sessions.size()
    return left <= 1 + held

while not is_released():
    gc.collect()
    jvm.System.gc()
    time.sleep(0.3)
say(f"bus queues {[name for name in names() if name.startswith('querypulse.bus_queue')]}")

second = attach(spark, http_port=port, webhook_url=pages)
die = threading.Event()
def fails_later(batch, batch_id):
    if die.is_set():
        raise ValueError("in the second context")
query = start("silver", fails_later)
until_commits(second, "silver")
second.flush(60)
say(f"same port {second.url.endswith(str(port))}")
say(f"watched {[query.name for query in second.snapshot().queries]}, alerts {second.alerts()}")
die.set()
until(lambda: not query.isActive)
until(lambda: second.flush(60))
"""


@pytest.mark.fault(
    "Ends and kills",
    "`attach` on a new SparkContext after `spark.stop()`, in the same process and at the same port",
    "The new queries are watched; the first context causes no alert, and leaves no thread, session or queue",
)
def test_stop_of_spark_leaves_nothing_behind_and_a_new_context_is_watched(pages, tmp_path):
    with Driver(STARTS_ANOTHER, tmp_path, PAGES=pages.url) as driver:
        assert driver.wait(2 * START_SECONDS) == 0, driver.errors

    assert driver.lines == [
        "closed True",
        "bus queues []",
        "same port True",
        "watched ['silver'], alerts ()",
    ]
    assert pages.reported == [("firing", "StreamingQueryFailed", "silver")]
