"""How long ``query.start()`` takes with each listener alone, above no listener at all.

``python -m benchmarks.start_cost``. Spark calls ``onQueryStarted`` while ``start()`` waits. The
candidates take turns in one Spark in balanced orders; the same start of the same round with
no listener is what each is compared with. Our receiver, or the peer's gateway, is a process of
its own that answers at once or late.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import median, quantiles

from pyspark.sql import SparkSession

from ..common.listeners import (
    NONE,
    NOTHING,
    OURS,
    PEER,
    STOCK,
    NothingListener,
    StockListener,
    peer,
)
from ..common.orders import balanced
from ..common.pushgateway import Pushgateway, pushgateway
from ..common.result import Row, at_most, lines, write
from ..common.session import rows, session
from .candidates import Candidate, alone, nobody, ours

ALLOWED_MS = 2
SLOW_RECEIVER_SECONDS = 4.0
SLOW_GATEWAY_SECONDS = 2.0
STARTS_A_TURN = 6
SLOW_STARTS = 3
WARM_UP_STARTS = 20
QUIET_MILLISECONDS = 30_000

OURS_SLOW = f"{OURS}, slow receiver"
PEER_SLOW = "the same, slow gateway"

Times = dict[str, list[float]]
"""Milliseconds of each start by candidate; equal indexes were the same turn of their rounds."""


def main() -> int:
    """Measure, print, write."""
    with ExitStack() as stack:
        receiver = stack.enter_context(pushgateway())
        slow_receiver = stack.enter_context(pushgateway(SLOW_RECEIVER_SECONDS))
        gateway = stack.enter_context(pushgateway())
        slow_gateway = stack.enter_context(pushgateway(SLOW_GATEWAY_SECONDS))
        spark = session("start cost")
        candidates: dict[str, Candidate] = {
            NONE: nobody,
            NOTHING: alone(NothingListener()),
            OURS: ours(receiver),
            OURS_SLOW: ours(slow_receiver),
            STOCK: alone(StockListener()),
            PEER: alone(peer(gateway.url)),
        }
        times = _rounds(spark, candidates)
        with alone(peer(slow_gateway.url))(spark):
            times[PEER_SLOW] = [_start(spark) for _ in range(SLOW_STARTS)]
        _check_pushed(gateway, slow_gateway)
        spark.stop()
    table = _table(times)
    write("start_cost", table, times)
    print(*_details(times), *lines("What start() waits for a listener", table), sep="\n")
    return 0


def _rounds(spark: SparkSession, candidates: dict[str, Candidate]) -> Times:
    for _ in range(WARM_UP_STARTS):
        _start(spark)
    times: Times = {name: [] for name in candidates}
    for order in balanced(list(candidates)):
        for name in order:
            with candidates[name](spark), _quiet(spark):
                times[name] += [_start(spark) for _ in range(STARTS_A_TURN)]
    return times


def _start(spark: SparkSession) -> float:
    writer = rows(spark).writeStream.format("noop").queryName("started")
    began = time.perf_counter()
    query = writer.start()
    milliseconds = (time.perf_counter() - began) * 1e3
    with _quiet(spark):
        query.stop()
    return milliseconds


@contextmanager
def _quiet(spark: SparkSession) -> Iterator[None]:
    """Go on only when Spark's listeners have heard everything."""
    yield
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(QUIET_MILLISECONDS)


def _check_pushed(*gateways: Pushgateway) -> None:
    if not all(gateway.taken().answered for gateway in gateways):
        raise RuntimeError("the peer has pushed nothing")


def _table(times: Times) -> list[Row]:
    above = {name: _above(times[name], times[NONE]) for name in times}
    return [
        at_most(f"{OURS} above {NONE}", above[OURS], ALLOWED_MS, " ms"),
        at_most(f"{OURS_SLOW} above {NONE}", above[OURS_SLOW], ALLOWED_MS, " ms"),
        *(
            Row(f"{name} above {NONE}", f"{above[name]:,.3g} ms")
            for name in (NOTHING, STOCK, PEER, PEER_SLOW)
        ),
    ]


def _above(candidate: list[float], nobody: list[float]) -> float:
    """Of those with a partner the median difference; of a few slow ones that of the medians."""
    if len(candidate) < len(nobody):
        return median(candidate) - median(nobody)
    return median(one - other for one, other in zip(candidate, nobody, strict=True))


def _details(times: Times) -> list[str]:
    head = f"  {'milliseconds of start()':34}{'starts':>8}{'median':>10}{'p99':>10}"
    return ["", head, *(_detail(name, seen) for name, seen in times.items())]


def _detail(name: str, seen: list[float]) -> str:
    p99 = quantiles(seen, n=100, method="inclusive")[98]
    return f"  {name:34}{len(seen):>8}{median(seen):>10,.1f}{p99:>10,.1f}"


if __name__ == "__main__":
    sys.exit(main())
