"""After ``spark.stop()`` nothing of ours holds a session in the JVM, which lives on, or a thread."""

from __future__ import annotations

import json

import pytest
from support.driver import Driver

pytestmark = pytest.mark.spark

SCRIPT = """
import gc, json
jvm = spark.sparkContext._jvm
sessions = jvm.java.util.WeakHashMap()
names = jvm.java.lang.System.getProperties().stringPropertyNames

def work():
    "In a thread of its own: Py4J keeps what a thread has called."
    for number in range(5):
        session = spark.newSession()
        sessions.put(session._jsparkSession, True)
        writer = session.readStream.format("rate").load().writeStream.format("noop")
        writer = writer.trigger(processingTime="1 second")
        writer.queryName(f"ended by stop {number}").start()
    until_commits(sidecar, *(f"ended by stop {number}" for number in range(5)))

sidecar = attach(spark, http_port=0)
working = threading.Thread(target=work)
working.start()
working.join()
scheduler = spark.sparkContext._jsc.sc().dagScheduler()
# Between two triggers, when few jobs run.
time.sleep(1.5 - time.time() % 1)
spark.stop()
while [t for t in threading.enumerate() if t.name.startswith("querypulse")]:
    time.sleep(0.05)
del spark, working
spark = SparkSession.builder.master("local[2]").getOrCreate()
spark.range(10).count()
def kept():
    "How many jobs ran when Spark stopped: it keeps their sessions, and some queries never end."
    # As one text: Py4J would keep the threads, and each has its session.
    threads = jvm.java.lang.Thread.getAllStackTraces().keySet().toString()
    return scheduler.activeJobs().size() + threads.count("stream execution thread")

patience = time.monotonic() + 60
while True:
    # Both at one time: a job that ends now leaves its session to the next collection.
    held, left = kept(), sessions.size()
    if left <= 1 + held or time.monotonic() > patience:
        break
    gc.collect()
    jvm.System.gc()
    time.sleep(0.3)
queues = [name for name in names() if name.startswith("querypulse.bus_queue")]
say(json.dumps({"sessions": left, "kept": held, "bus queues": queues}))
say(f"closed {sidecar.closed}")
spark.stop()
"""


def test_stop_of_spark_leaves_no_session_and_no_queue_behind(tmp_path):
    """Spark itself may keep one: a thread of Hadoop's inherits the session that is active."""
    with Driver(SCRIPT, tmp_path) as driver:
        driver.wait_for_line("closed True", timeout=150)
        left = json.loads(next(line for line in driver.lines if line.startswith("{")))

    assert left["sessions"] <= 1 + left["kept"]
    assert left["bus queues"] == []
