"""The queries whose events are timed, each with a trigger that leaves time for all candidates.

Stock PySpark converts an event in a tenth of a second, the peer does so and then pushes; with
triggers faster than both together the listeners' queue would only grow. With a busy interpreter
the two need seconds.
"""

from collections.abc import Callable
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.functions import window
from pyspark.sql.streaming.query import StreamingQuery

from ..common.interpreter import BUSY, IDLE
from ..common.session import rows

_STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STATELESS, STATEFUL, TWO_SOURCES = "stateless", "stateful", "two sources"


class TimedQuery(NamedTuple):
    """One query, and how many of its events are timed in each round."""

    start: Callable[[SparkSession, str], StreamingQuery]
    trigger: str
    events: int
    warm_up_events: int = 6
    contains: tuple[str, ...] = ()
    """Words in its progress, or it is not the query meant."""


def stateless(spark: SparkSession, trigger: str) -> StreamingQuery:
    """Rows in, rows out."""
    query = rows(spark).writeStream.format("noop").queryName("stateless")
    return query.trigger(processingTime=trigger).start()


def stateful(spark: SparkSession, trigger: str) -> StreamingQuery:
    """A watermark and counts per window: events with a state operator in them."""
    late = rows(spark).withWatermark("timestamp", "5 seconds")
    counts = late.groupBy(window("timestamp", "2 seconds")).count()
    query = counts.writeStream.format("noop").queryName("stateful")
    return query.trigger(processingTime=trigger).start()


def two_sources(spark: SparkSession, trigger: str) -> StreamingQuery:
    """The same over two sources, with RocksDB: events with thirty figures of the store in them."""
    both = rows(spark).union(rows(spark)).withWatermark("timestamp", "5 seconds")
    counts = both.groupBy(window("timestamp", "2 seconds")).count()
    query = counts.writeStream.format("noop").queryName("two_sources")
    # A query copies the session's conf when it starts.
    spark.conf.set(_STATE_STORE, _ROCKSDB)
    try:
        return query.trigger(processingTime=trigger).start()
    finally:
        spark.conf.unset(_STATE_STORE)


_HAS_STATE = ("stateOnCurrentVersionSizeBytes",)
WORKLOADS: dict[str, dict[str, TimedQuery]] = {
    IDLE: {
        STATELESS: TimedQuery(stateless, "300 milliseconds", 6),
        STATEFUL: TimedQuery(stateful, "350 milliseconds", 10, contains=_HAS_STATE),
        TWO_SOURCES: TimedQuery(two_sources, "450 milliseconds", 6, contains=("rocksdbPutCount",)),
    },
    BUSY: {STATEFUL: TimedQuery(stateful, "5 seconds", 1, 1, _HAS_STATE)},
}
