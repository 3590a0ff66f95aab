"""How long ``query.start()`` takes with each listener alone, above no listener at all.

``python -m benchmarks.start_cost``. Spark calls ``onQueryStarted`` while ``start()`` waits. The
candidates take turns in one Spark in balanced orders; each start is compared with the same start
of the same round with no listener. Our receiver is a process of its own that answers late, and so
is the peer's gateway, which answers at once or late.

Three clocks run. The first times what Spark does for listeners while ``start()`` waits: it posts
that the query has started, and calls the session's listeners. Only this part has a target, since
listeners delay nothing else: the duration of the whole ``start()`` varies by ten times as much. The
whole is timed too, in the JVM and in Python. With a busy interpreter Python's clock mostly shows
how long the caller waits for the interpreter's lock.
"""

import sys
from contextlib import ExitStack

from pyspark.sql import SparkSession

from ..common.difference import balanced
from ..common.interpreter import IDLE, INTERPRETERS, interpreter
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
from ..common.pushgateway import Pushgateway, pushgateway
from ..common.result import lines, write
from ..common.session import await_quiet_bus, session
from .candidates import Candidate, alone, nobody, ours
from .clock import StartClock
from .table import PEER_SLOW, Starts, details, rows

SLOW_RECEIVER_SECONDS = 4.0
SLOW_GATEWAY_SECONDS = 2.0
STARTS_A_TURN = 4
SLOW_STARTS = 3
WARM_UP_STARTS = 30


def main() -> int:
    """Measure, print, write."""
    with ExitStack() as stack:
        spark = session("start cost")
        stack.callback(spark.stop)
        starts = _measure(spark, StartClock(spark), stack)
    table = rows(starts)
    write("start_cost", table, starts)
    print(*details(starts), *lines("Milliseconds of start() above no listener", table), sep="\n")
    return 0


def _measure(spark: SparkSession, clock: StartClock, stack: ExitStack) -> dict[str, Starts]:
    receiver = stack.enter_context(pushgateway(SLOW_RECEIVER_SECONDS))
    gateway = stack.enter_context(pushgateway())
    slow_gateway = stack.enter_context(pushgateway(SLOW_GATEWAY_SECONDS))
    candidates: dict[str, Candidate] = {
        NONE: nobody,
        NOTHING: alone(NothingListener()),
        OURS: ours(receiver),
        STOCK: alone(StockListener()),
        PEER: alone(peer(gateway.url)),
    }
    with clock.running():
        for _ in range(WARM_UP_STARTS):
            clock.start()
    measured = {}
    for state in INTERPRETERS:
        with interpreter(state):
            measured[state] = _rounds(spark, clock, candidates)
    with alone(peer(slow_gateway.url))(spark), clock.running():
        measured[IDLE][PEER_SLOW] = [clock.start() for _ in range(SLOW_STARTS)]
    _check_pushed(gateway, slow_gateway)
    return measured


def _rounds(spark: SparkSession, clock: StartClock, candidates: dict[str, Candidate]) -> Starts:
    found: Starts = {name: [] for name in candidates}
    for order in balanced(list(candidates)):
        for name in order:
            with candidates[name](spark), clock.running():
                await_quiet_bus(spark)
                found[name] += [clock.start() for _ in range(STARTS_A_TURN)]
    return found


def _check_pushed(*gateways: Pushgateway) -> None:
    if not all(gateway.taken().answered for gateway in gateways):
        raise RuntimeError("the peer has pushed nothing")


if __name__ == "__main__":
    sys.exit(main())
