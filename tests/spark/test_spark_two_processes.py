"""Two Python processes share one JVM, like the tasks of a job on a shared cluster."""

from __future__ import annotations

import pytest
from support.driver import HEADER, Driver
from support.server_process import free_port

pytestmark = [pytest.mark.spark, pytest.mark.thorough, pytest.mark.timeout(600)]

SECOND = """
import os, sys, time, threading
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from querypulse.sidecar import QueryFailure, attach
gateway = launch_gateway()
shared = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
jsc = gateway.jvm.JavaSparkContext.fromSparkContext(shared)
conf = SparkConf(_jvm=gateway.jvm, _jconf=jsc.getConf())
spark = SparkSession(SparkContext(gateway=gateway, jsc=jsc, conf=conf)).newSession()
""" + HEADER[HEADER.index("def rate()") :]

FIRST = """
sidecar = attach(spark, http_port=int(os.environ["PORT"]), webhook_url=os.environ["PAGES"])
start("first")
until_commits(sidecar, "first")
parameters = spark.sparkContext._gateway.gateway_parameters
say(f"gateway {parameters.port} {parameters.auth_token}")
def watch_the_other():
    until(lambda: sidecar._runtime.evaluated.snapshot.ownership.left)
    until(lambda: sidecar.flush(60))
    say("another has left")
threading.Thread(target=watch_the_other, daemon=True).start()
sidecar.await_any_failure()
say("never")
"""

OTHER = """
sidecar = attach(spark, http_port=int(os.environ["PORT"]), webhook_url=os.environ["PAGES"])
say(f"url {sidecar.url}")
stream = rate().writeStream.queryName("second").trigger(processingTime="200 milliseconds")
query = stream.format("noop").start()
until_commits(sidecar, "second")
until(lambda: not sidecar._runtime.evaluated.snapshot.ownership.is_alone)
failing = rate().selectExpr("raise_error('of the second')").writeStream.queryName("fails")
failing.format("noop").start()
try:
    sidecar.await_any_failure()
except QueryFailure as failure:
    say(f"failure of {failure.query}")
query.stop()
"""


def test_failure_is_reported_once_and_ends_only_its_own_process(pages, tmp_path):
    first_folder, second_folder = tmp_path / "first", tmp_path / "second"
    first_folder.mkdir()
    second_folder.mkdir()
    taken = free_port()
    both = {"PAGES": pages.url, "PORT": str(taken)}
    with Driver(FIRST, first_folder, **both) as first:
        _, port, secret = first.line("gateway").split()
        gateway = {"PYSPARK_GATEWAY_PORT": port, "PYSPARK_GATEWAY_SECRET": secret}
        with Driver(OTHER, second_folder, header=SECOND, **both, **gateway) as second:
            second.wait()
            first.wait_for_line("another has left")

            served, failure = second.lines
            assert int(served.rpartition(":")[2]) > taken, second.errors
            assert failure == "failure of fails", second.errors
        assert first.process.poll() is None
        assert "never" not in first.lines
    fired = [page for page in pages.pages if page.status == "firing"]
    assert [page.what for page in fired] == [("StreamingQueryFailed", "fails")]
    assert fired[0].labels["app"] == "driver"
