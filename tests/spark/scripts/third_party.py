"""A job that does not know querypulse: its query fails, and it works on until a file exists."""

import sys
import time
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession


def fail(batch, batch_id):
    if batch_id == 1:
        raise ValueError("negative amount")


if __name__ == "__main__":
    spark = SparkSession.builder.getOrCreate()
    stream = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
    query = stream.writeStream.queryName("gold").foreachBatch(fail).start()
    try:
        query.awaitTermination()
    except StreamingQueryException:
        print("arguments", sys.argv[1:], __name__, "failed", flush=True)
    while not Path(sys.argv[1]).exists():
        time.sleep(0.05)
    print("watched by", sys.modules["querypulse.sidecar"].__file__, flush=True)
    sys.exit(7)
