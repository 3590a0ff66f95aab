"""How long it takes from a query's death, or its hanging, to an accepted page.

``python -m benchmarks.time_to_page``. All candidates watch the same queries of one driver and send
to the same receiver: ours, Prometheus with the shipped rules every 15 seconds, and what people
write themselves, a stock listener that pages. The bus is first idle, without that listener, which
keeps a core busy (a stock listener takes Spark's thread for 0.2 s an event); then that listener
joins, and a neighbour in Python that clogs the queue of all streaming listeners.
"""

import json
import math
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import inf, isinf
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import requests
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from querypulse.listener.spark.event_paths import EventQueue
from querypulse.sidecar import Sidecar, attach

from .candidates import OURS, StockListener
from .harness import ROOT, Row, at_most, listener_bus, report, rows_of, session
from .receiver import Receiver, receiving

EVENT_ONLY = "event-only"
PROMETHEUS = "prometheus"
DEATH = "StreamingQueryFailed"
HANG = "StreamingQueryStalled"
WATCHDOG = "QuerypulseWatchdog"
WORDS = {DEATH: "death", HANG: "hang"}
IDLE = "idle"
CLOGGED = "clogged"
CANDIDATES = {IDLE: (OURS, PROMETHEUS), CLOGGED: (OURS, EVENT_ONLY, PROMETHEUS)}
"""By phase."""
MEDIAN_SECONDS = 0.6
P99_SECONDS = 1.5
RULES = ROOT / "dashboards" / "prometheus" / "*.yaml"
PROMETHEUS_INTERVAL = "15s"
STALL_FLOOR_SECONDS = 5.0
PHASE_SECONDS = 35.0
HANG_REPORTED_SECONDS = 8.0
"""Hangs begin at least this long before the end of a phase, so that they are reported in it."""
SPANS = {DEATH: (20, PHASE_SECONDS), HANG: (8, PHASE_SECONDS - HANG_REPORTED_SECONDS)}
"""How many, in which time; with more, a stock listener alone would clog the bus."""
HEALTHY_SECONDS = 4.5
"""How long a query runs before it fails or hangs."""
TRIGGER_MILLISECONDS = (1200, 1800)
LEAST_BATCHES = 2
HUNG_SECONDS = 11.0
KEPT_EVERY = 5
"""One of this many hung queries hangs to the end, for candidates that report slowly."""
WARM_UP_SECONDS = 6.0
ALL_SECONDS = 150.0
"""Prometheus takes a minute and more."""
NEIGHBOUR_SECONDS = 0.3
# Events that wait for Spark's streaming listeners at the end of a phase.
MOST_IDLE = 20
LEAST_CLOGGED = 100
QUICK_COMPILER = "-XX:TieredStopAtLevel=1"
"""The JVM's thorough one takes a core of our two for as long as this lasts."""


def main() -> int:
    """Measure, print, write."""
    with ExitStack() as stack:
        delays = _measure(stack)
    report("time_to_page", __doc__, list(_rows(delays)), [delay._asdict() for delay in delays])
    return 0


class ReportDelay(NamedTuple):
    """How late one candidate reported one query; ``seconds`` is infinite if it did not.

    For a hang, ``seconds`` counts from the end of the window. ``watched`` is how long it had.
    """

    candidate: str
    phase: str
    alertname: str
    seconds: float
    watched: float


def _measure(stack: ExitStack) -> list[ReportDelay]:
    receiver = stack.enter_context(receiving())
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    spark = session("time to page", QUICK_COMPILER)
    stack.callback(spark.stop)
    sidecar = attach(
        spark,
        http_port=0,
        webhook_url=f"{receiver.url}/{OURS}",
        stall_floor_seconds=STALL_FLOOR_SECONDS,
    )
    stack.callback(sidecar.close)
    stack.enter_context(_prometheus(folder, str(sidecar.url), receiver.place))
    began = time.monotonic()
    healthy = _writer(spark, "healthy", "1 second").format("noop").start()
    stack.callback(healthy.stop)
    time.sleep(WARM_UP_SECONDS)
    failing = {IDLE: _phase(stack, spark, IDLE)}
    time.sleep(1)
    waited = {IDLE: _waiting_events(spark)}
    event_only = EventOnly(f"{receiver.url}/{EVENT_ONLY}")
    neighbour = Neighbour()
    stack.callback(event_only.ended.set)
    for listener in (event_only, neighbour):
        spark.streams.addListener(listener)
    # Spark's end waits until every listener has received every event.
    stack.callback(spark.streams.removeListener, event_only)
    stack.callback(neighbour.free.set)
    failing[CLOGGED] = _phase(stack, spark, CLOGGED)
    waited[CLOGGED] = _waiting_events(spark)
    time.sleep(max(0.0, began + ALL_SECONDS - time.monotonic()))
    pages = _pages(receiver)
    _check(sidecar, pages, waited)
    queries = sidecar.snapshot().queries
    windows = {query.name: query.window_seconds or STALL_FLOOR_SECONDS for query in queries}
    return list(_delays(failing, pages, windows, time.monotonic()))


def _check(
    sidecar: Sidecar, pages: dict[tuple[str, ...], list[float]], waited: dict[str, int]
) -> None:
    """Check that all ran in their normal mode, and that the bus was idle or not as it should."""
    monitor = sidecar.snapshot().monitor
    if monitor.listener_path != EventQueue.name or monitor.internal_errors:
        raise RuntimeError(f"not our normal way: {monitor}")
    sent = {(candidate, alertname) for candidate, alertname, _ in pages}
    candidates = {candidate for candidate, _ in sent}
    if candidates != set(CANDIDATES[CLOGGED]) or (PROMETHEUS, WATCHDOG) not in sent:
        raise RuntimeError(f"not every candidate sent a page: {sorted(sent)}")
    if waited[IDLE] > MOST_IDLE or waited[CLOGGED] < LEAST_CLOGGED:
        raise RuntimeError(f"not an idle and then a slow bus: {waited}")


def _delays(
    failing: dict[str, list["FailingQuery"]],
    pages: dict[tuple[str, ...], list[float]],
    windows: dict[str, float],
    ended: float,
) -> Iterator[ReportDelay]:
    """One for each candidate and query; ``windows`` by query, the event-only one has its own.

    Hangs that end before Prometheus can report them do not count for it. A page from before the
    query failed or hung does not count.
    """
    for phase, queries in failing.items():
        for query in queries:
            for candidate in CANDIDATES[phase]:
                if candidate == PROMETHEUS and query.alertname == HANG and not query.kept:
                    continue
                window = STALL_FLOOR_SECONDS if candidate == EVENT_ONLY else windows[query.name]
                due = query.met_at + (window if query.alertname == HANG else 0.0)
                times = pages.get((candidate, query.alertname, query.name), [])
                reported_at = min((at for at in times if at >= query.met_at), default=inf)
                yield ReportDelay(candidate, phase, query.alertname, reported_at - due, ended - due)


def _rows(delays: Sequence[ReportDelay]) -> Iterator[Row]:
    """Ours against its targets, and the others, in each phase."""
    by_case: dict[tuple[str, str, str], list[ReportDelay]] = {}
    for delay in delays:
        by_case.setdefault((delay.alertname, delay.phase, delay.candidate), []).append(delay)
    for alertname, word in WORDS.items():
        for phase, (_, *others) in CANDIDATES.items():
            ours = sorted(delay.seconds for delay in by_case[alertname, phase, OURS])
            title = f"{word} to page, {phase} bus"
            p99 = ours[min(len(ours) - 1, int(0.99 * len(ours)))]
            yield at_most(f"{title}: median", median(ours), MEDIAN_SECONDS, " s")
            yield at_most(f"{title}: p99 of {len(ours)}", p99, P99_SECONDS, " s")
            for name in others:
                theirs = by_case[alertname, phase, name]
                yield Row(f"{title}: {name}, to ours", _compared(theirs, median(ours)))


def _compared(theirs: Sequence[ReportDelay], ours: float) -> str:
    waited = [delay.watched for delay in theirs if isinf(delay.seconds)]
    unreported = f"{len(waited)} of {len(theirs)} not reported in {min(waited, default=0):.0f} s"
    middle = median(delay.seconds for delay in theirs)
    if isinf(middle):
        return unreported
    # A candidate whose window begins at its last event may report a hang too early.
    times = f"{middle / ours:.0f}x" if middle > 0 else "too early"
    return ", ".join([f"{middle:.3g} s", times, *([unreported] if waited else [])])


class FailingQuery:
    """The ``foreachBatch`` of one query: from ``due_at`` on, it does what ``alertname`` reports.

    ``met_at`` is when it failed or its hung batch began, in monotonic seconds; infinite before.
    """

    def __init__(self, name: str, alertname: str, due_at: float, *, kept: bool) -> None:
        self.name = name
        self.alertname = alertname
        self.due_at = due_at
        self.kept = kept
        self.met_at = math.inf
        self.free = threading.Event()
        self._batches = 0
        self._query: Any = None

    def start(self, spark: SparkSession) -> None:
        """Start the query before ``due_at``."""
        trigger = f"{random.randint(*TRIGGER_MILLISECONDS)} milliseconds"
        self._query = _writer(spark, self.name, trigger).foreachBatch(self).start()

    def __call__(self, _: Any, __: int) -> None:
        left = self.due_at - time.monotonic()
        self._batches += 1
        if left > TRIGGER_MILLISECONDS[1] / 1000 or self._batches <= LEAST_BATCHES:
            return
        if self.alertname == DEATH:
            # Triggers and probes run at fixed intervals; the failure must not follow them.
            time.sleep(max(0.0, left))
            self.met_at = time.monotonic()
            raise RuntimeError("files were added by a concurrent update")
        if math.isinf(self.met_at):
            self.met_at = time.monotonic()
            self.free.wait(None if self.kept else HUNG_SECONDS)
            threading.Thread(target=self._query.stop).start()


def _phase(stack: ExitStack, spark: SparkSession, phase: str) -> list[FailingQuery]:
    """Start each query in time; return when all have failed or hang."""
    print(f"phase: {phase} bus", flush=True)
    began = time.monotonic() + HEALTHY_SECONDS
    failing = [
        FailingQuery(
            f"{phase}-{alertname}-{number}",
            alertname,
            began + random.uniform(0, seconds),
            kept=number % KEPT_EVERY == 0,
        )
        for alertname, (count, seconds) in SPANS.items()
        for number in range(count)
    ]
    for query in sorted(failing, key=lambda query: query.due_at):
        stack.callback(query.free.set)
        time.sleep(max(0.0, query.due_at - HEALTHY_SECONDS - time.monotonic()))
        query.start(spark)
    deadline = time.monotonic() + 30
    while waiting := [query.name for query in failing if math.isinf(query.met_at)]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing happened to {waiting}")
        time.sleep(0.1)
    return failing


def _writer(spark: SparkSession, name: str, trigger: str) -> Any:
    """A writer of a query that has new rows at every trigger."""
    return rows_of(spark).writeStream.queryName(name).trigger(processingTime=trigger)


class EventOnly(StreamingQueryListener):
    """Pages for an exception at once, and for a query without events for a window of its own."""

    def __init__(self, url: str) -> None:
        self.ended = threading.Event()
        self._url = url
        self._names: dict[str, str] = {}
        self._received_at: dict[str, float] = {}
        threading.Thread(target=self._watch, daemon=True).start()

    def onQueryStarted(self, event: Any) -> None:
        self._names[str(event.runId)] = event.name
        self._received_at[str(event.runId)] = time.monotonic()

    def onQueryProgress(self, event: Any) -> None:
        run = str(event.progress.runId)
        self._names[run] = event.progress.name
        self._received_at[run] = time.monotonic()

    def onQueryIdle(self, event: Any) -> None:
        self._received_at[str(event.runId)] = time.monotonic()

    def onQueryTerminated(self, event: Any) -> None:
        run = str(event.runId)
        self._received_at.pop(run, None)
        if event.exception is not None:
            self._page(DEATH, self._names[run])

    def _watch(self) -> None:
        reported: set[str] = set()
        while not self.ended.wait(1.0):
            now = time.monotonic()
            for run, received_at in list(self._received_at.items()):
                if now - received_at <= STALL_FLOOR_SECONDS:
                    reported.discard(run)
                elif run not in reported:
                    reported.add(run)
                    self._page(HANG, self._names[run])

    def _page(self, alertname: str, query: str) -> None:
        labels = {"alertname": alertname, "query": query}
        requests.post(self._url, json={"alerts": [{"labels": labels}]}, timeout=5)


class Neighbour(StockListener):
    """A stock listener that works for a while on every progress event, until it is ``free``."""

    def __init__(self) -> None:
        self.free = threading.Event()

    def onQueryProgress(self, _: Any) -> None:
        self.free.wait(NEIGHBOUR_SECONDS)


def _waiting_events(spark: SparkSession) -> int:
    """How many events wait in Spark's queue for streaming listeners."""
    registry = listener_bus(spark).metrics().metricRegistry()
    return int(registry.getGauges().get("queue.streams.size").getValue())


def _pages(receiver: Receiver) -> dict[tuple[str, ...], list[float]]:
    """When each candidate reported what: by candidate, alert and query.

    Alertmanager's API takes a list of alerts, its webhooks an object.
    """
    pages: dict[tuple[str, ...], list[float]] = {}
    for post in receiver.posts():
        message: Any = json.loads(post.body)
        for alert in message if isinstance(message, list) else message["alerts"]:
            labels = alert["labels"]
            if alert.get("status", "firing") == "firing":
                key = (post.path.split("/")[1], labels["alertname"], labels.get("query", ""))
                pages.setdefault(key, []).append(post.at)
    return pages


@contextmanager
def _prometheus(folder: Path, driver_url: str, receiver: str) -> Iterator[None]:
    """Scrapes the driver, as most people run it; ``receiver`` is its Alertmanager."""
    manager = {"path_prefix": f"/{PROMETHEUS}", "static_configs": [{"targets": [receiver]}]}
    driver = {"static_configs": [{"targets": [urlsplit(driver_url).netloc]}]}
    config = folder / "prometheus.yml"
    config.write_text(
        json.dumps(  # YAML, of which JSON is a part
            {
                "global": {
                    "scrape_interval": PROMETHEUS_INTERVAL,
                    "evaluation_interval": PROMETHEUS_INTERVAL,
                },
                "rule_files": [str(RULES)],
                "alerting": {"alertmanagers": [manager]},
                "scrape_configs": [{"job_name": "spark", "honor_labels": True, **driver}],
            }
        )
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


if __name__ == "__main__":
    sys.exit(main())
