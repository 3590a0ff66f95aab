"""A hundred queries in one driver: no event lost, and the probe's share of a core.

``python -m benchmarks.hundred_queries``. The probe's processor time is that of its Python thread
and of the JVM's thread that serves its connection.
"""

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from querypulse.listener.spark.event_paths import BusPath
from querypulse.sidecar import Sidecar, attach

from ..common.result import at_most, lines, write
from ..common.session import dropped_by_spark, rows, session
from .tap import Tap, tapped

QUERIES = 100
TRIGGER = "5 seconds"
WARM_UP_SECONDS = 6.0
MEASURED_SECONDS = 12.0


def main() -> int:
    """Measure, print, write."""
    with ExitStack() as stack:
        spark = session("hundred queries")
        stack.callback(spark.stop)
        tap = stack.enter_context(tapped(spark))
        sidecar = attach(spark, http_port=0)
        stack.callback(sidecar.close)
        queries = [_start(spark, number) for number in range(QUERIES)]
        time.sleep(WARM_UP_SECONDS)
        probe = _probed(spark, tap)
        events = _events(spark, sidecar, queries)
    share = probe["Python, % of a core"] + probe["JVM, % of a core"]
    table = [
        at_most(f"{QUERIES} queries: events lost of {events['Spark sent']}", events["lost"], 0),
        at_most(f"{QUERIES} queries: the probe, of one core", share, 2, " %"),
    ]
    write("hundred_queries", table, {"probe": probe, "events": events})
    print(*(f"  {name:30}{value:>10,.4g}" for name, value in (probe | events).items()), sep="\n")
    print(*lines("A hundred queries in one driver", table), sep="\n")
    return 0


def _probed(spark: SparkSession, tap: Tap) -> dict[str, float]:
    began, polls, commands = time.monotonic(), tap.polls, tap.commands
    python, java = tap.seconds(spark)
    time.sleep(MEASURED_SECONDS)
    python_now, java_now = tap.seconds(spark)
    passed = time.monotonic() - began
    return {
        "polls per second": (tap.polls - polls) / passed,
        "Py4J commands per poll": (tap.commands - commands) / (tap.polls - polls),
        "Python, % of a core": 100 * (python_now - python) / passed,
        "JVM, % of a core": 100 * (java_now - java) / passed,
    }


def _events(
    spark: SparkSession, sidecar: Sidecar, queries: Sequence[StreamingQuery]
) -> dict[str, int]:
    """What Spark has recorded of each query, and what of it was received.

    Every trigger has data, so every progress recorded was sent as an event.
    """
    for query in queries:
        sidecar.expect_stop(str(query.name))
        query.stop()
    if not sidecar.flush(20):
        raise RuntimeError("not every event was evaluated in time")
    status = sidecar.snapshot()
    known = {query.name: query.last_commit_batch for query in status.queries}
    sent = sum(len(_jsq(query).recentProgress()) for query in queries)
    behind = [q for q in queries if known[q.name] != _jsq(q).lastProgress().batchId()]
    dropped = dropped_by_spark(spark)
    if status.monitor.listener_path != BusPath.name or status.monitor.internal_errors:
        raise RuntimeError(f"not our normal way: {status.monitor}")
    received = status.monitor.events["progress"]
    at_us = sum(status.monitor.events_dropped.values())
    return {
        "Spark sent": sent,
        "received": received,
        "dropped by Spark": dropped,
        "dropped by us": at_us,
        "queries whose commit is unknown": len(behind),
        "lost": max(sent - received, dropped + at_us, len(behind)),
    }


def _start(spark: SparkSession, number: int) -> StreamingQuery:
    writer = rows(spark).writeStream.format("noop").queryName(f"query-{number}")
    return writer.trigger(processingTime=TRIGGER).start()


def _jsq(query: StreamingQuery) -> Any:
    return query._jsq


if __name__ == "__main__":
    sys.exit(main())
