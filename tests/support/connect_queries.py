"""Queries of a Spark Connect session, and a listener of the job."""

from __future__ import annotations

from pyspark.sql.streaming import StreamingQueryListener


class Counting(StreamingQueryListener):
    """A listener of the job."""

    batches, ends = 0, 0

    def onQueryStarted(self, event): ...
    def onQueryIdle(self, event): ...
    def onQueryProgress(self, event):
        self.batches += 1

    def onQueryTerminated(self, event):
        self.ends += 1


def start(spark, name, fails_at=None, **trigger):
    from pyspark.sql.connect import functions as F

    rows = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
    if fails_at is not None:
        boom = F.raise_error(F.lit("no such order"))
        rows = rows.withColumn("x", F.when(F.col("value") >= fails_at, boom).otherwise(F.lit(None)))
    trigger = trigger or {"processingTime": "500 milliseconds"}
    return rows.writeStream.format("noop").queryName(name).trigger(**trigger).start()
