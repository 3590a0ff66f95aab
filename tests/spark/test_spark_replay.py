"""A replay reads the logs that Spark writes, with every codec."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from support.replays import replayed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

WRITER = """
    import os, signal, sys, time
    from pyspark.sql import SparkSession
    folder, *codecs = sys.argv[1:]
    def run(name, **conf):
        os.makedirs(f"{folder}/{name}")
        builder = SparkSession.builder.master("local[2]").appName(name)
        for key, value in {
            "driver.bindAddress": "127.0.0.1", "driver.host": "127.0.0.1", "ui.enabled": "false",
            "ui.showConsoleProgress": "false", "sql.shuffle.partitions": "1",
            "eventLog.enabled": "true", "eventLog.dir": f"file://{folder}/{name}", **conf,
        }.items():
            builder = builder.config(f"spark.{key}", value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        rows = spark.readStream.format("rate").option("rowsPerSecond", 10).load()
        query = rows.writeStream.queryName("steady").format("noop").start()
        while query.lastProgress is None or query.lastProgress["batchId"] < 2:
            time.sleep(0.05)
        return spark, query
    def finish(spark, query):
        query.stop()
        spark.stop()
    for codec in codecs:
        finish(*run(codec, **{"eventLog.compress": "true", "eventLog.compression.codec": codec}))
    finish(*run("default"))
    spark, query = run("rolled", **{
        "eventLog.compress": "false", "eventLog.rolling.enabled": "true",
        "eventLog.rolling.maxFileSize": "10m",
    })
    spark.sparkContext.setLocalProperty("padding", "x" * 500_000)
    for _ in range(25):
        spark.range(1).count()
    finish(spark, query)
    spark, query = run("killed")
    os.kill(spark._jvm.ProcessHandle.current().pid(), signal.SIGKILL)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """The event logs of small applications, one for each way to write a log."""
    folder = tmp_path_factory.mktemp("logs")
    script = folder / "writer.py"
    script.write_text(textwrap.dedent(WRITER))
    done = subprocess.run(
        [sys.executable, "-I", str(script), str(folder), *CODECS, "lzf"],
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return folder


CODECS = ["zstd", "lz4", "snappy"]


@pytest.mark.parametrize("name", [*CODECS, "default", "rolled"])
def test_log_is_read_completely_with_every_codec(logs, name):
    ((found, replay),) = replayed(logs / name)

    assert (replay.error, replay.unread, found) == (None, 0, [])
    assert replay.app == name
    assert replay.events >= 5
    assert replay.ended_at - replay.began_at > 1


def test_logs_use_the_requested_codecs(logs):
    for name in CODECS:
        assert list((logs / name).rglob(f"*.{name}")), name
    assert len(list((logs / "rolled").rglob("events_*"))) > 1
    assert list((logs / "killed").rglob("*.inprogress"))


def test_log_of_a_killed_driver_is_read_to_its_end(logs):
    ((found, replay),) = replayed(logs / "killed")

    assert (replay.error, replay.unread, found) == (None, 0, [])


def test_lzf_is_refused(logs):
    ((_, replay),) = replayed(logs / "lzf")

    assert "lzf" in replay.error
