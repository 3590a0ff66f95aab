"""Has real Spark write the short event log that the long ones are made of.

``python -m benchmarks.recording`` writes ``recorded.zstd`` again. Three streaming queries,
of the shapes that a log holds: stateless, stateful, and a join of two sources with its state in
RocksDB. The line with the environment is left out.
"""

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import zstandard
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr, window

RECORDED = Path(__file__).with_name("recorded.zstd")
SECONDS = 20.0
TRIGGER = "1 second"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STATE = "spark.sql.streaming.stateStore.providerClass"


def main() -> None:
    """Run the job for its few seconds, from when all queries have made a batch."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    with tempfile.TemporaryDirectory() as folder:
        spark = _session(Path(folder))
        queries = _queries(spark)
        while any(query.lastProgress is None for query in queries):
            time.sleep(0.1)
        time.sleep(SECONDS)
        for query in queries:
            query.stop()
        spark.stop()
        (log,) = Path(folder).rglob("events_1_*")
        lines = log.read_bytes().replace(folder.encode(), b"/data").splitlines(keepends=True)
    kept = b"".join(line for line in lines if b"EnvironmentUpdate" not in line[:60])
    RECORDED.write_bytes(zstandard.ZstdCompressor(level=19).compress(kept))
    print(f"{len(lines)} lines, {len(kept)} bytes, {RECORDED.stat().st_size} compressed")


def _session(folder: Path) -> SparkSession:
    spark: SparkSession = (
        SparkSession.builder.master("local[2]")
        .appName("etl")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .config("spark.sql.streaming.checkpointLocation", f"{folder}/checkpoints")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", folder.as_uri())
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _queries(spark: SparkSession) -> list[Any]:
    late = _rows(spark).withWatermark("timestamp", "5 seconds")
    counts = late.groupBy(window("timestamp", "2 seconds")).count()
    other = _rows(spark).withWatermark("timestamp", "5 seconds").alias("right")
    near = expr("left.value = right.value and left.timestamp = right.timestamp")
    queries = [_started(_rows(spark), "stateless"), _started(counts, "stateful")]
    spark.conf.set(STATE, ROCKSDB)
    return [*queries, _started(late.alias("left").join(other, near), "joined")]


def _rows(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()


def _started(frame: DataFrame, name: str) -> Any:
    writer = frame.writeStream.format("noop").queryName(name)
    return writer.trigger(processingTime=TRIGGER).start()


if __name__ == "__main__":
    main()
