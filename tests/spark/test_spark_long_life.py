"""A long-running driver: hundreds of starts and a flood of tasks leak nothing."""

from __future__ import annotations

import json
import os

import pytest
from support.driver import START_SECONDS, Driver
from support.repository import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(900)]

NO_GENERATED_ACCESSORS = "-Dsun.reflect.inflationThreshold=1000000000"
"""The JVM would write a class for each method that Py4J calls often."""
HEARTBEATS = "--conf spark.executor.heartbeatInterval=1s pyspark-shell"
"""The first one loads classes of Spark's: while the driver warms up."""
REFUSES_JANINO = """
from py4j.protocol import Py4JError
from querypulse.listener.spark import event_paths
def refused(*_):
    raise Py4JError("not allowed")
event_paths.compile_in_driver = refused
"""
STEPS = ("one session", "fifty sessions")
"""Each of 150 starts."""
MORE = {
    "threads": 1,
    "descriptors": 1,
    # It opens some jars late; a leak per start would be 150.
    "jvm descriptors": 15,
    # Those of a poll that has not ended on a busy machine; a leak per start would be 150.
    "java objects": 20,
    "megabytes": 5,
    # Its resident memory is only a figure: it gives the pages of its heap back late.
    "jvm heap": 10,
    # Spark caches its generated code, and loads some classes of its own late: 20 on a free machine.
    "classes": 60,
}
"""How many more there may be after these starts than before."""
FORKLESS = str(ROOT / "benchmarks/java/ForklessFileSystem.java")
MEASURE = """
import gc, json
from concurrent.futures import ThreadPoolExecutor
jvm = spark.sparkContext._jvm
management = jvm.java.lang.management.ManagementFactory
sessions = jvm.java.util.WeakHashMap()

def fork_no_processes():
    "Hadoop starts a chmod for each file, which takes most of the time of a short query."
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
    with open(os.environ["FORKLESS"]) as source:
        compiler.cook(source.read())
    settings, root = spark.sparkContext._jsc.hadoopConfiguration(), jvm.java.net.URI("file:///")
    jvm.org.apache.hadoop.fs.FileSystem.get(root, settings).close()
    settings.setClassLoader(compiler.getClassLoader())
    settings.set("fs.file.impl", "ForklessFileSystem")
    package = "org.apache.spark.sql.execution.streaming"
    place = package if spark.version < "4.1" else package + ".checkpointing"
    return place + ".FileSystemBasedCheckpointFileManager"

def quick(session):
    session.conf.set("spark.sql.streaming.checkpointFileManagerClass", manager)
    return session

def new_session():
    session = spark.newSession()
    sessions.put(session._jsparkSession, True)
    return quick(session)

def start_all(session, count):
    for _ in range(count):
        writer = session.readStream.format("rate").load().writeStream.format("noop")
        writer.trigger(availableNow=True).start().awaitTermination()

def starts(*counted):
    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(start_all, session, count) for session, count in counted]:
            done.result()

def megabytes(pid):
    with open(f"/proc/{pid}/statm") as memory:
        return int(memory.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

def measured():
    for _ in range(3):
        gc.collect()
        jvm.System.gc()
        time.sleep(0.3)
    from py4j.finalizer import ThreadSafeFinalizer
    jvm_pid = spark.sparkContext._gateway.proc.pid
    return {
        "java objects": len(ThreadSafeFinalizer.finalizers),
        "megabytes": megabytes("self"),
        "jvm megabytes": megabytes(jvm_pid),
        "jvm heap": management.getMemoryMXBean().getHeapMemoryUsage().getUsed() / 1e6,
        "threads": threading.active_count(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "jvm descriptors": len(os.listdir(f"/proc/{jvm_pid}/fd")),
        "classes": management.getClassLoadingMXBean().getLoadedClassCount(),
        "sessions": sessions.size(),
        "received": sidecar.snapshot().monitor.events.get("terminated", 0) if sidecar.url else 0,
    }

def report(what):
    "Spark drops its own references to an ended run a little later, of all but the last sessions."
    figures = measured()
    while figures["sessions"] > 5:
        figures = measured()
    say(json.dumps({"after": what, **figures}))

manager = fork_no_processes()
quick(spark)
"""


@pytest.fixture(scope="module")
def life(tmp_path_factory):
    """The measurements of a driver with 300 starts; its sidecar closes before the end."""
    script = f"""{MEASURE}
sidecar = attach(spark, http_port=0, expected_queries=[])
classes = jvm.java.util.WeakHashMap()
def watch_class():
    classes.put(sidecar._runtime.path.source.java.getClass().getClassLoader(), True)
asking = threading.Thread(target=watch_class)
asking.start()
asking.join()
del asking
starts(*[(spark, 10)] * 3)
starts(*[(new_session(), 1) for _ in range(20)])
report("warm")
starts(*[(spark, 50)] * 3)
report("one session")
starts(*[(new_session(), 3) for _ in range(50)])
report("fifty sessions")
running = len([t for t in threading.enumerate() if t.name.startswith("querypulse")])
sidecar.close()
while running and [t for t in threading.enumerate() if t.name.startswith("querypulse")]:
    time.sleep(0.05)
report("close")
# Py4J's threads in the JVM keep methods until they notice that our threads have ended.
while classes.size():
    measured()
say("done")
"""
    options = f"{os.environ['SPARK_SUBMIT_OPTS']} {NO_GENERATED_ACCESSORS}"
    environment = {"SPARK_SUBMIT_OPTS": options, "PYSPARK_SUBMIT_ARGS": HEARTBEATS}
    with Driver(
        script, tmp_path_factory.mktemp("life"), FORKLESS=FORKLESS, **environment
    ) as driver:
        driver.wait_for_line("done", 4 * START_SECONDS)
        printed = [json.loads(line) for line in driver.lines if line.startswith("{")]
        return {figures.pop("after"): figures for figures in printed}


@pytest.mark.fault(
    "Spark and its listeners",
    "150 query starts in one session and 150 in 50 more",
    "Threads, descriptors, classes, memory, and the Java objects that Python holds stay flat",
)
def test_many_starts_leave_nothing_behind(life, measured):
    measured(
        ", ".join(
            f"{name} {' then '.join(f'{life[what][name]:.0f}' for what in ('warm', *STEPS))}"
            for name in (*MORE, "jvm megabytes")
        )
    )
    grown = {
        (what, figure): (life["warm"][figure], life[what][figure])
        for what in STEPS
        for figure, more in MORE.items()
        if life[what][figure] > life["warm"][figure] + more
    }

    assert grown == {}


def test_every_end_event_is_received_and_close_leaves_nothing_behind(life):
    """The driver ends only when the sessions and the class of the listener are released."""
    assert life["fifty sessions"]["received"] == 350
    assert life["close"]["threads"] < life["warm"]["threads"]


@pytest.mark.fault(
    "Spark and its listeners",
    "`shutdown_callback_server()` while a query uses it",
    "It returns, and a later failure is reported",
)
@pytest.mark.parametrize("refused", ["", REFUSES_JANINO], ids=["bus_queue", "python_proxy"])
def test_callback_server_can_be_shut_down(tmp_path, pages, refused):
    """Even if it delivers querypulse's events: the probe sees the failure, too.

    Py4J waits for its thread that accepts connections, which looks up every five seconds.
    """
    script = f"""{refused}
sidecar = attach(spark, http_port=0, webhook_url=os.environ["PAGES"])
start("batches in Python", lambda batch, batch_id: batch.count())
until_commits(sidecar, "batches in Python")
say(sidecar.snapshot().monitor.listener_path)
spark.sparkContext._gateway.shutdown_callback_server()
failing = rate().selectExpr("assert_true(value < 3)").writeStream.format("noop")
failing.queryName("fails later").start()
say("started")
while True:
    time.sleep(1)
"""
    with Driver(script, tmp_path, PAGES=pages.url) as driver:
        driver.wait_for_line("started")
        pages.wait_for("StreamingQueryFailed", "fails later", timeout=START_SECONDS)

    assert driver.lines[0] == ("python_proxy" if refused else "bus_queue")


@pytest.mark.fault(
    "Spark and its listeners", "As many short tasks as the machine can run", "No event is dropped"
)
def test_flood_of_tasks_drops_no_event(tmp_path, pages):
    script = f"""{MEASURE}
sidecar = attach(spark, http_port=0, webhook_url=os.environ["PAGES"])
die = threading.Event()
def work(batch, batch_id):
    if die.is_set():
        raise ValueError("in the flood")
fails = start("fails", work)
start("works", lambda batch, batch_id: batch.count())
until_commits(sidecar, "fails", "works")
for flood in range(6):
    spark.range(0, 3000, 1, 3000).selectExpr("sum(id)").collect()
    if flood == 3:
        die.set()
until(lambda: not fails.isActive)
until(lambda: sidecar.flush(60))
monitor = sidecar.snapshot().monitor
health = sidecar._runtime.evaluated.snapshot.probe.listener
say(json.dumps({{"dropped": monitor.events_dropped, "by spark": health.dropped_events}}))
say("done")
"""
    with Driver(script, tmp_path, PAGES=pages.url, FORKLESS=FORKLESS) as driver:
        driver.wait_for_line("done", 4 * START_SECONDS)
        printed = json.loads(next(line for line in driver.lines if line.startswith("{")))

    assert printed["by spark"] == 0
    assert not any(printed["dropped"].values())
    assert pages.reported == [("firing", "StreamingQueryFailed", "fails")]
