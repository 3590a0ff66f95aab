"""A minute of short tasks: whether an event is dropped, and whether fewer tasks are done.

``python -m benchmarks.task_flood``. Spark posts two events for each task, and ours is one queue
more that takes them. Turns with querypulse and without it alternate, beside a streaming query;
each is compared with those before and after it, which takes out what changes slowly.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from statistics import median

from pyspark.sql import SparkSession

from querypulse.listener.spark.event_paths import BusPath
from querypulse.sidecar import Sidecar, attach

from ..common.difference import difference
from ..common.listeners import NONE
from ..common.result import Row, at_most, lines, write
from ..common.session import dropped_by_spark, rows, session

TASKS_A_JOB = 1_000
TURN_SECONDS = 2.0
SETTLE_SECONDS = 1.0
"""So long nothing is measured after querypulse was attached or closed."""
TURNS = 25
"""Every second one is ours; the first and the last are nobody's."""
WARM_UP_SECONDS = 10.0
UNCHANGED_PERCENT = 2.0


def main() -> int:
    """Measure, print, write."""
    spark = session("task flood")
    query = (
        rows(spark)
        .writeStream.format("noop")
        .queryName("beside")
        .trigger(processingTime="1 second")
        .start()
    )
    _tasks_a_second(spark, WARM_UP_SECONDS)
    rates, dropped = [], 0
    for number in range(TURNS):
        with _ours(spark) if number % 2 else nullcontext() as sidecar:
            _tasks_a_second(spark, SETTLE_SECONDS)
            rates.append(_tasks_a_second(spark, TURN_SECONDS))
            dropped += _dropped(sidecar) if sidecar is not None else 0
    dropped += dropped_by_spark(spark)
    query.stop()
    spark.stop()
    table = _table(rates, dropped)
    write("task_flood", table, {"tasks a second": rates, "dropped": dropped})
    print(*lines("A minute of short tasks", table), sep="\n")
    return 0


def _table(rates: Sequence[float], dropped: int) -> list[Row]:
    ours = [_ratio(rates, turn, 1) for turn in range(1, TURNS, 2)]
    chance = [_ratio(rates, turn, 2) for turn in range(2, TURNS - 2, 2)]
    fewer = difference([100.0] * len(ours), [100.0 * ratio for ratio in ours])
    row = fewer.row("tasks fewer with querypulse than without", " %")
    return [
        at_most(f"{median(rates):,.0f} tasks a second: events dropped", dropped, 0),
        row._replace(
            target=f"at most {UNCHANGED_PERCENT:g} %, or its margin",
            reached=fewer.middle <= max(UNCHANGED_PERCENT, fewer.margin),
        ),
        Row(
            f"{NONE} / {NONE}: chance",
            f"{median(chance):.3f} ({min(chance):.3f} to {max(chance):.3f})",
        ),
    ]


def _ratio(rates: Sequence[float], turn: int, step: int) -> float:
    """One turn to the two around it."""
    return 2 * rates[turn] / (rates[turn - step] + rates[turn + step])


def _tasks_a_second(spark: SparkSession, seconds: float) -> float:
    began, jobs = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        spark.range(0, TASKS_A_JOB, 1, TASKS_A_JOB).write.format("noop").mode("overwrite").save()
        jobs += 1
    return jobs * TASKS_A_JOB / (time.monotonic() - began)


@contextmanager
def _ours(spark: SparkSession) -> Iterator[Sidecar]:
    sidecar = attach(spark, http_port=0)
    yield sidecar
    sidecar.close()


def _dropped(sidecar: Sidecar) -> int:
    """Events that we have lost."""
    if not sidecar.flush():
        raise RuntimeError("not everything was evaluated in time")
    monitor = sidecar.snapshot().monitor
    if monitor.listener_path != BusPath.name or monitor.internal_errors:
        raise RuntimeError(f"not our normal way: {monitor}")
    return sum(monitor.events_dropped.values())


if __name__ == "__main__":
    sys.exit(main())
