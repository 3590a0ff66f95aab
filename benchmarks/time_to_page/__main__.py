"""From death to page accepted, and from hang to page: ours, event-only, Prometheus alone.

``python -m benchmarks.time_to_page``. All candidates watch the same queries of one driver and
send to the same receiver. The bus is first idle; then a listener blocks the queue that all
streaming listeners share, without CPU; then it is idle again; then the event-only listener joins,
which keeps a core busy (a stock listener takes Spark's thread for 0.2 s an event); then a neighbour
in Python clogs the queue, too. Ours has a queue of its own: what a blocked bus costs must be within
noise. The more queries have run, the longer all takes: idle phases before and after cancel that.
"""

import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from pyspark.sql import SparkSession

from querypulse.listener.spark.event_paths import BusPath
from querypulse.sidecar import Sidecar, attach

from ..common.result import lines, write
from ..common.session import session
from .event_only import EventOnly
from .neighbour import BusyListener, blocked_bus, waiting_events
from .page_receiver import (
    CANDIDATES,
    DEATH,
    EVENT_ONLY,
    HANG,
    OURS,
    PROMETHEUS,
    WATCHDOG,
    ReceiverProcess,
)
from .prometheus import prometheus
from .table import (
    BLOCKED,
    CLOGGED,
    IDLE,
    PHASES,
    SHARED,
    ReportDelay,
    for_nothing,
    outcomes,
    rows,
    shown,
)
from .workload import FailingQuery, bystanders, failing_queries, run_all

STALL_FLOOR_SECONDS = 5.0
HANG_REPORTED_SECONDS = 8.0
"""Hangs begin at least this long before the end of a phase, so that they are reported in it."""
PHASE_SECONDS = 35.0
SPANS = {DEATH: (20, PHASE_SECONDS), HANG: (8, PHASE_SECONDS - HANG_REPORTED_SECONDS)}
"""With more at a time, a stock listener alone would clog the bus."""
BYSTANDERS = 1
WARM_UP_SECONDS = 6.0
IDLE_AGAIN = "idle again"
ALL_SECONDS = 215.0
"""Prometheus takes a minute and more."""
QUICK_COMPILER = "-XX:TieredStopAtLevel=1"
"""The JVM's thorough one takes a core of our two for as long as this lasts."""
MOST_IDLE, LEAST_CLOGGED = 20, 100
"""Events that wait for Spark's streaming listeners at the end of a phase."""
ALONE = 1000
"""Only this many queries that fail together share a page: here each failure has its own."""


def main() -> int:
    """Measure, print, write."""
    with ExitStack() as stack:
        found, notes = _measured(stack)
    print(*shown(found, PHASES), *notes, sep="\n")
    made = rows(found, PHASES)
    write("time_to_page", made, [one._asdict() for one in found])
    print(*lines("Until the page is accepted", made), sep="\n")
    return 0


def _measured(stack: ExitStack) -> tuple[list[ReportDelay], list[str]]:
    receiver = stack.enter_context(ReceiverProcess())
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    spark = session("time to page", QUICK_COMPILER)
    stack.callback(spark.stop)
    event_only = EventOnly(receiver.url(EVENT_ONLY), STALL_FLOOR_SECONDS)
    stack.callback(event_only.close)
    sidecar = attach(
        spark,
        http_port=0,
        webhook_url=receiver.url(OURS),
        stall_floor_seconds=STALL_FLOOR_SECONDS,
        group_min_queries=ALONE,
    )
    stack.callback(sidecar.close)
    stack.enter_context(prometheus(folder, str(sidecar.url), receiver.place))
    began = time.monotonic()
    for query in bystanders(spark, BYSTANDERS):
        stack.callback(query.stop)
    time.sleep(WARM_UP_SECONDS)
    failing, idle_backlog, blocked_backlog = _alone(stack, spark)
    spark.streams.addListener(event_only)
    # Spark's end waits until every listener has received every event.
    stack.callback(spark.streams.removeListener, event_only)
    failing[SHARED] = _phase(stack, spark, SHARED)
    neighbour = BusyListener()
    stack.callback(neighbour.free.set)
    spark.streams.addListener(neighbour)
    failing[CLOGGED] = _phase(stack, spark, CLOGGED)
    backlog = waiting_events(spark)
    time.sleep(max(0.0, began + ALL_SECONDS - time.monotonic()))
    ended = time.monotonic()
    queries = sidecar.snapshot().queries
    windows = {query.name: query.window_seconds or STALL_FLOOR_SECONDS for query in queries}
    found = outcomes(failing, receiver.pages(), windows, STALL_FLOOR_SECONDS, ended)
    _check(sidecar, receiver, idle_backlog, min(blocked_backlog, backlog))
    probe = sidecar.snapshot().monitor.probe_duration_seconds
    poll = probe.total_seconds / probe.count
    wrong = for_nothing(failing, receiver.pages())
    waited = {IDLE: idle_backlog, BLOCKED: blocked_backlog, CLOGGED: backlog}
    return found, [
        f"  events waiting on the bus after a phase: {waited}",
        f"  our probe: {poll * 1e3:.0f} ms per poll, p99 at most {probe.p99_seconds} s",
        "  pages about healthy queries: " + ", ".join(f"{n} {k}" for n, k in wrong.items()),
    ]


def _alone(stack: ExitStack, spark: SparkSession) -> tuple[dict[str, list[FailingQuery]], int, int]:
    """The phases without the event-only listener; the events that waited, idle and blocked."""
    idle = _phase(stack, spark, IDLE)
    time.sleep(1)
    idle_backlog = waiting_events(spark)
    with blocked_bus(spark):
        blocked = _phase(stack, spark, BLOCKED)
        blocked_backlog = waiting_events(spark)
    idle += _phase(stack, spark, IDLE_AGAIN)
    return {IDLE: idle, BLOCKED: blocked}, idle_backlog, blocked_backlog


def _phase(stack: ExitStack, spark: SparkSession, name: str) -> list[FailingQuery]:
    print(f"phase: {name} bus", flush=True)
    failing = failing_queries(name, time.monotonic(), SPANS)
    for query in failing:
        stack.callback(query.free.set)
    run_all(spark, failing)
    return failing


def _check(sidecar: Sidecar, receiver: ReceiverProcess, idle_backlog: int, backlog: int) -> None:
    """Check that all ran in their normal mode, and that the bus was idle or not as it should."""
    monitor = sidecar.snapshot().monitor
    if monitor.listener_path != BusPath.name or monitor.internal_errors:
        raise RuntimeError(f"not our normal way: {monitor}")
    sent = {(page.candidate, page.alertname) for page in receiver.pages()}
    if (PROMETHEUS, WATCHDOG) not in sent or {one for one, _ in sent} != set(CANDIDATES):
        raise RuntimeError(f"not every candidate sent a page: {sorted(sent)}")
    if idle_backlog > MOST_IDLE or backlog < LEAST_CLOGGED:
        raise RuntimeError(f"not an idle and then a slow bus: {idle_backlog}, {backlog} waited")


if __name__ == "__main__":
    sys.exit(main())
