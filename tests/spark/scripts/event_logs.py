"""Small applications whose event logs are written in different ways; the last one is killed."""

import os
import signal
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.eventLog.enabled": "true",
}
folder, *codecs = sys.argv[1:]


def run(name, settings=None):
    """Start an application with one query, and wait for some batches."""
    Path(folder, name).mkdir(parents=True)
    builder = SparkSession.builder.master("local[2]").appName(name)
    place = {"spark.eventLog.dir": f"file://{folder}/{name}"}
    for key, value in {**SETTINGS, **place, **(settings or {})}.items():
        builder = builder.config(key, value)
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
    compressed = {"spark.eventLog.compress": "true", "spark.eventLog.compression.codec": codec}
    finish(*run(codec, compressed))
finish(*run("default"))

rolling = {
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "true",
    "spark.eventLog.rolling.maxFileSize": "10m",
}
spark, query = run("rolled", rolling)
spark.sparkContext.setLocalProperty("padding", "x" * 500_000)
for _ in range(25):
    spark.range(1).count()
finish(spark, query)

spark, query = run("killed")
os.kill(spark._jvm.ProcessHandle.current().pid(), signal.SIGKILL)
os._exit(0)
