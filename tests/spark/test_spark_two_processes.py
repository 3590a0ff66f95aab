"""Two Python processes share one JVM, like the tasks of a job on a shared cluster."""

from __future__ import annotations

import socket

import pytest
from support.driver import HEADER, Driver
from support.queries import until

pytestmark = pytest.mark.spark

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
    ownership = lambda: sidecar._runtime.evaluated.snapshot.ownership
    while ownership().is_alone:
        time.sleep(0.1)
    while not ownership().left:
        time.sleep(0.1)
    time.sleep(1)
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
time.sleep(2)
failing = rate().selectExpr("raise_error('of the second')").writeStream.queryName("fails")
failing.format("noop").start()
try:
    sidecar.await_any_failure(20)
    say("no failure")
except QueryFailure as failure:
    say(f"failure of {failure.query}")
time.sleep(1)
query.stop()
"""


@pytest.fixture
def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def test_failure_is_reported_once_and_ends_only_its_own_process(pages, tmp_path, port):
    first_folder, second_folder = tmp_path / "first", tmp_path / "second"
    first_folder.mkdir()
    second_folder.mkdir()
    with Driver(FIRST, first_folder, PAGES=pages.url, PORT=port) as first:
        line = until(
            lambda: next((one for one in first.lines if one.startswith("gateway")), None),
            "the first process is ready",
            60,
        )
        _, gateway_port, secret = line.split()
        second = Driver(
            OTHER,
            second_folder,
            header=SECOND,
            PAGES=pages.url,
            PORT=port,
            PYSPARK_GATEWAY_PORT=gateway_port,
            PYSPARK_GATEWAY_SECRET=secret,
        )
        with second:
            second.wait(90)
            until(
                lambda: first.lines.count("another has left"),
                "the first process notices the exit",
                30,
            )

            assert "failure of fails" in second.lines, second.errors
            assert "url None" in second.lines
            assert "no server" not in second.errors
        page = pages.wait_for("StreamingQueryFailed", "fails")
        assert page.labels["app"] == "driver"
        assert first.process.poll() is None
        assert "never" not in first.lines
        assert [what for what in pages.reported if what[0] == "firing"] == [
            ("firing", "StreamingQueryFailed", "fails")
        ]
