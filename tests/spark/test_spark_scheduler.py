"""On real Spark: the event loop of its scheduler is blocked, or has ended."""

from __future__ import annotations

import pytest
from support.driver import START_SECONDS, Driver

pytestmark = [pytest.mark.spark, pytest.mark.thorough, pytest.mark.every_spark]

STALLED = "StreamingQueryStalled"
# The scheduler asks an input split for its hosts, as where a name node does not answer.
ODD_HOSTS = """
import java.util.Collections;
import java.util.List;
import org.apache.hadoop.io.Writable;
import org.apache.hadoop.mapreduce.*;
public class OddHosts extends InputFormat {
  public List getSplits(JobContext context) {
    return Collections.singletonList(new OddSplit());
  }
  public RecordReader createRecordReader(InputSplit split, TaskAttemptContext context) {
    return null;
  }
  public static class OddSplit extends InputSplit implements Writable {
    public long getLength() {
      return 1;
    }
    public String[] getLocations() throws InterruptedException {
      while (Boolean.getBoolean("test.blocks")) {
        Thread.sleep(50);
      }
      return new String[0];
    }
    public void write(java.io.DataOutput output) {
    }
    public void readFields(java.io.DataInput input) {
    }
  }
}
"""
SCRIPT = f"""
from contextlib import suppress
sidecar = attach(
    spark,
    webhook_url=os.environ["PAGES"],
    stall_floor_seconds=8,
    gone_grace_seconds=5,
    resolve_after_seconds=1,
)
for name in "abc":
    start(name, lambda batch, _: batch.count())
until_commits(sidecar, *"abc")
jvm, jsc = spark.sparkContext._jvm, spark.sparkContext._jsc
compiler = jvm.org.codehaus.janino.SimpleCompiler()
compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
compiler.cook('''{ODD_HOSTS}''')
odd = compiler.getClassLoader().loadClass("OddHosts")
of_any = jvm.java.lang.Class.forName("java.lang.Object")
def job():
    with suppress(Exception):
        jsc.newAPIHadoopRDD(jsc.hadoopConfiguration(), odd, of_any, of_any).count()
if os.environ["FAULT"] == "is blocked":
    jvm.java.lang.System.setProperty("test.blocks", "true")
    threading.Thread(target=job, daemon=True).start()
else:
    # As an error that is fatal for Scala, this ends its thread and not the SparkContext. Code that
    # handles an event may take an interrupt for its own: then only a job fails, and the loop goes on.
    # So it is interrupted while it waits for an event.
    loop = jsc.sc().dagScheduler().eventProcessLoop().eventThread()
    while loop.isAlive():
        if loop.getState().toString() == "WAITING":
            loop.interrupt()
            time.sleep(0.1)
time.sleep(3600)
"""


@pytest.mark.fault(
    "Spark",
    "the event loop of its scheduler is blocked",
    "One incident of the driver, which says so, critical after the window",
)
def test_blocked_event_loop_of_the_scheduler_is_one_incident_of_the_driver(pages, tmp_path):
    with Driver(SCRIPT, tmp_path, PAGES=pages.url, FAULT="is blocked"):
        page = pages.wait_for(STALLED, "*", timeout=START_SECONDS)

    assert page.labels["severity"] == "critical"
    assert "Spark's scheduler has stopped" in page.annotations["summary"]
    why = "the thread dag-scheduler-event-loop has handled no event for"
    assert why in page.annotations["queries"]
    assert {page.what for page in pages.pages} == {(STALLED, "*")}


@pytest.mark.fault(
    "Spark",
    "the thread of its scheduler's event loop has ended",
    "Spark stops its SparkContext at the next event: one incident of the driver",
)
def test_end_of_the_event_loop_of_the_scheduler_is_reported_as_the_end_of_the_context(
    pages, tmp_path
):
    with Driver(SCRIPT, tmp_path, PAGES=pages.url, FAULT="has ended"):
        page = pages.wait_for("StreamingQueryStopped", "*", timeout=START_SECONDS)

    assert page.labels["severity"] == "critical"
    assert STALLED not in {page.what[0] for page in pages.pages}
