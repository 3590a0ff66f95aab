"""What a progress event costs Spark: PySpark's way, a peer's, ours, and the least possible.

``python -m benchmarks.callback_cost``. PySpark's listener, the peer and the empty proxy are called
on the one thread that all streaming listeners share. They are registered in one job and called
one after another for each event, in balanced orders, each timed in the JVM with the way to Python
and back. Before each call a pause, not counted, lets others' after-work end: calls start cold.

Nothing of querypulse runs there, unless the bus refuses its queue; then its Java listener does,
and takes part in the same rounds. What it normally adds is one more queue that ``post()`` offers
every event to, on the thread of the query: timed with that queue and without it. All of this with
an idle interpreter, and with one Python thread that only computes.
"""

import sys
from functools import partial

from pyspark.sql import SparkSession

from ..common.interpreter import IDLE, interpreter
from ..common.result import lines, write
from ..common.session import session
from .candidates import MEANING, Candidates, all_candidates
from .measuring import Clocks, progress_rounds
from .posts import Posts, events_a_batch
from .stopwatch import OwnQueue, Stopwatches, Timed
from .table import Measured, details, post_details, rows
from .workloads import STATEFUL, WORKLOADS


def main() -> int:
    """Measure, print, write."""
    spark = session("callback cost")
    print(*(f"  {name:30}{meaning}" for name, meaning in MEANING.items()), sep="\n", flush=True)
    with all_candidates(spark) as candidates:
        measured = _measure(spark, candidates)
    spark.stop()
    table = rows(measured)
    write("callback_cost", table, measured._asdict())
    print(*lines("One progress event on Spark's threads", table), sep="\n")
    return 0


def _measure(spark: SparkSession, candidates: Candidates) -> Measured:
    clocks = _clocks(spark, candidates)
    posts = Posts(spark, clocks.own)
    measured = Measured({}, {}, _events_a_batch(spark))
    for state, workloads in WORKLOADS.items():
        measured.rounds[state] = {}
        with interpreter(state):
            for title, workload in workloads.items():
                rounds = progress_rounds(spark, workload, clocks)
                measured.rounds[state][title] = rounds
                print(*details(f"{title}, {state} interpreter", rounds), sep="\n", flush=True)
            measured.posts[state] = posts.measure(clocks.own.last_event())
            print(*post_details(state, measured.posts[state]), sep="\n", flush=True)
    return measured


def _clocks(spark: SparkSession, candidates: Candidates) -> Clocks:
    stopwatches = Stopwatches(spark)
    bus = spark.sparkContext._jsc.sc().listenerBus()
    shared = {name: partial(Timed, one, stopwatches) for name, one in candidates.shared.items()}
    return Clocks(shared, OwnQueue(bus, candidates.own.java, stopwatches))


def _events_a_batch(spark: SparkSession) -> float:
    workload = WORKLOADS[IDLE][STATEFUL]
    query = workload.start(spark, workload.trigger)
    events = events_a_batch(spark, query)
    query.stop()
    return events


if __name__ == "__main__":
    sys.exit(main())
