"""``querypulse demo``: the job runs in the main thread, which blocks where real jobs block."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import textwrap
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from ...alerting.words.messages import contains
from ...core.text import listed
from ...exporter.status import QueryStatus
from ...sidecar.failure import QueryFailure
from ...sidecar.sidecar import Sidecar, attach
from ..exit_code import INTERRUPTED
from .pipeline import ALERTS, BRONZE, POLL_SECONDS, FilePipeline, Pipeline
from .scenarios import SCENARIOS, DemoSettings, Scenario


class ReceivedAlert(msgspec.Struct, frozen=True):
    """One alert as it arrived, and when (Unix seconds)."""

    arrived_at: float
    status: str
    labels: dict[str, str]
    annotations: dict[str, str]


class PageReceiver:
    """A webhook on a free loopback port, from construction to ``close``.

    ``pages`` is what it got and nobody has taken yet.
    """

    def __init__(self) -> None:
        self.pages = pages = deque[ReceivedAlert]()

        class PageHandler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                for alert in json.loads(body)["alerts"]:
                    received = {**alert, "arrived_at": time.time()}
                    pages.append(msgspec.convert(received, ReceivedAlert))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
                """Log nothing: the terminal is for the demo's own output."""

        self._server = server = ThreadingHTTPServer(("127.0.0.1", 0), PageHandler)
        self.url = f"http://127.0.0.1:{server.server_port}/pages"
        self._thread = threading.Thread(target=server.serve_forever, name="demo-pages", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


_HEALTHY = frozenset({"running", "idle", "waiting", "slow", "lagging"})
_SHOWN = (
    *("summary", "reason", "python_line", "all_queries", "downstream"),
    *("last_commit", "time_allowed", "tasks"),
)


class DemoOutput:
    """Prints what happens, in lines with the seconds since the beginning."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._last = ""

    def say(self, text: str) -> None:
        """Print one line."""
        elapsed = time.monotonic() - self._began
        sys.stdout.write(f"[{elapsed:6.1f} s] {text}\n")
        sys.stdout.flush()

    def queries(self, queries: Sequence[QueryStatus]) -> None:
        """Print how many queries are healthy, whenever that changes."""
        healthy = sum(query.state in _HEALTHY for query in queries)
        text = f"job RUNNING, {healthy} of {len(queries)} queries healthy"
        others = _by_state([query for query in queries if query.state not in _HEALTHY])
        if others:
            text += f" ({others})"
        if text != self._last:
            self._last = text
            self.say(text)

    def page(self, page: ReceivedAlert, seconds: float | None) -> None:
        """Print a page as the person on call reads it, ``seconds`` after its cause, if known."""
        labels = page.labels
        annotations = page.annotations
        if page.status == "resolved":
            self.say(annotations["summary"])
            return
        self.say("a page arrives" + ("" if seconds is None else f", {seconds:.2f} s later"))
        rows = [(name, labels[name]) for name in ("alertname", "query", "severity")]
        reason = annotations.get("reason", "")
        code = reason.partition(": ")[0]
        redundant = contains(annotations.get("summary", ""), reason, code)
        shown = [name for name in _SHOWN if name != "reason" or not redundant]
        rows += [(name, annotations[name]) for name in shown if annotations.get(name)]
        sys.stdout.write("\n  +-- PAGE " + "-" * 70 + "\n")
        for name, text in rows:
            lines = textwrap.wrap(text, 64) or [""]
            sys.stdout.write(f"  | {name:<12} {lines[0]}\n")
            sys.stdout.writelines(f"  | {'':<12} {line}\n" for line in lines[1:])
        sys.stdout.write("  +" + "-" * 79 + "\n\n")
        sys.stdout.flush()

    def facts(self, facts: dict[str, str]) -> None:
        """Print the final facts."""
        sys.stdout.write("\nThe facts\n")
        for name, text in facts.items():
            sys.stdout.write(f"  {name:<18} {text}\n")
        sys.stdout.flush()


def _by_state(queries: Sequence[QueryStatus]) -> str:
    """Which queries are in which state: "a failed, b, c and 3 more starting"."""
    names: dict[str, list[str]] = {}
    for query in queries:
        names.setdefault(query.state, []).append(str(query.name))
    return ", ".join(f"{listed(some, 2)} {state}" for state, some in names.items())


# Spark ignores a configuration without appenders, and would log.
SILENT_LOG4J = """\
appender.none.type = Null
appender.none.name = none
rootLogger.level = off
rootLogger.appenderRef.none.ref = none
"""

# In a short demo, full optimization costs more than it gains. The code cache gets Java's default
# size, which this option would reduce.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"


def local_spark(folder: Path, conf: dict[str, str]) -> Any:
    """Start Spark with two cores and ``conf``, without logging; it writes below ``folder``."""
    from pyspark.sql import SparkSession

    log4j = folder / "log4j2.properties"
    log4j.write_text(SILENT_LOG4J)
    # Py4J logs the traceback of every foreachBatch that raises; the page shows it more clearly.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    java = f"{QUICK_START} -Dlog4j2.configurationFile={log4j.as_uri()}"
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-java-options '{java}' pyspark-shell"
    builder = SparkSession.builder.master("local[2]").appName("telemetry")
    for key, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **conf,
    }.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


OUTAGE_SECONDS = 120.0
"""How long a delivery to the user's own webhook may take."""
HEALTHY_SECONDS = 60.0
AFTERMATH_SECONDS = 5.0
OTHERS_SECONDS = 60.0
"""How long it may take until every other query has committed once more."""


class DemoRun(msgspec.Struct, eq=False):
    """Waits as the job does, while the scenario runs in a thread, and checks what is reported."""

    settings: DemoSettings
    sidecar: Sidecar
    pipeline: Pipeline
    receiver: PageReceiver
    output: DemoOutput
    interrupted: threading.Event
    started: threading.Event = msgspec.field(default_factory=threading.Event)
    """Set when every query has been started."""
    over: threading.Event = msgspec.field(default_factory=threading.Event)
    """Set when the job has ended by itself, after sending its alerts."""
    as_expected: bool = False
    """Whether exactly the expected alerts were reported."""
    firing: list[ReceivedAlert] = []
    struck_at: float | None = None
    commits_before: dict[str, int | None] = {}
    error: Exception | None = None
    """What ended the scenario early, as an output that cannot be written."""

    @property
    def scenario(self) -> Scenario:
        """What is played."""
        return SCENARIOS[self.settings.scenario]

    @property
    def awaited(self) -> Any:
        """The query for which an unsupervised job waits."""
        return self.pipeline.queries[ALERTS if self.scenario.query == BRONZE else BRONZE]

    def wait_with_job(self, spark: Any) -> QueryFailure | None:
        """Start the job and wait as its main thread does, until the scenario is over.

        An unsupervised job waits for one query, which is the trap of the incident. Returns the
        failure that ended a supervised job.
        """
        thread = threading.Thread(target=self._run, name="demo-run", daemon=True)
        thread.start()
        self.pipeline.start(spark)
        self.started.set()
        failure = None
        try:
            if self.settings.supervised:
                self.sidecar.await_any_failure()
            else:
                self.awaited.awaitTermination()
        except QueryFailure as error:
            failure = error
            self.output.say(f"await_any_failure() raises QueryFailure: {failure.reason}")
            self.over.set()
        thread.join()
        if self.error is not None:
            raise self.error
        return failure

    def _run(self) -> None:
        """Run the scenario to its end, then release the main thread."""
        try:
            self._play()
        except Exception as error:  # noqa: BLE001 - the main thread raises it
            self.error = error
        self.pipeline.is_free.set()
        self.started.wait()
        if self.settings.supervised:
            self.sidecar.close()
        else:
            self.awaited.stop()

    def _play(self) -> None:
        settings = self.settings
        scenario = self.scenario
        if not self._watch(self.pipeline.startup_seconds, self._all_have_committed):
            if not self.interrupted.is_set():
                self.output.say("not every query has committed")
            return
        began = time.monotonic()
        self._watch(settings.after, self.over.is_set)
        if self.interrupted.is_set():
            return
        self.output.say(f"now {scenario.description}")
        self.struck_at = scenario.strike(self.pipeline) or time.time()
        self.commits_before = self._commits()
        quiet = max(0.0, (settings.duration or HEALTHY_SECONDS) - settings.after)
        self._watch(scenario.within_seconds or quiet, lambda: bool(self.firing))
        fired_at = self.sidecar.snapshot().at
        self._watch(OUTAGE_SECONDS, lambda: self._all_is_delivered(fired_at))
        self._watch(OTHERS_SECONDS, lambda: self.over.is_set() or self._others_have_gone_on())
        left = (settings.duration or 0.0) - (time.monotonic() - began)
        self._watch(max(AFTERMATH_SECONDS, left), self.over.is_set)
        fired = [(alert.labels["alertname"], alert.labels["query"]) for alert in self.firing]
        expected = [(scenario.alertname, scenario.query)] if scenario.alertname else []
        ended = settings.supervised and scenario.ends_supervised
        self.as_expected = fired == expected and self.over.is_set() == ended
        self.output.facts(self._facts())

    def _watch(self, seconds: float, done: Callable[[], bool]) -> bool:
        """Print what happens until ``done()``; False when ``seconds`` passed before."""
        deadline = time.monotonic() + seconds
        while not self.interrupted.is_set():
            self.output.queries(self.sidecar.snapshot().queries)
            while self.receiver.pages:
                page = self.receiver.pages.popleft()
                if page.status == "firing":
                    self.firing.append(page)
                self.output.page(page, self._seconds_after(page))
            if done():
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_SECONDS)
        return False

    def _seconds_after(self, page: ReceivedAlert) -> float | None:
        """How long after the scenario began a page arrived; None for one that came before."""
        return None if self.struck_at is None else page.arrived_at - self.struck_at

    def _commits(self) -> dict[str, int | None]:
        """The last batch that each query has committed."""
        return {query.name: query.last_commit_batch for query in self.sidecar.snapshot().queries}

    def _all_have_committed(self) -> bool:
        commits = self._commits()
        return all(commits.get(name) is not None for name in self.pipeline.names)

    def _all_is_delivered(self, fired_at: str) -> bool:
        """A page may arrive before its state is published: only a later state counts it."""
        status = self.sidecar.snapshot()
        is_later = status.at > fired_at or self.over.is_set()
        return is_later and not any(status.monitor.outbox_pending.values())

    def _gone_on(self) -> set[str]:
        """The queries that have committed since the scenario began."""
        return {name for name, _ in self._commits().items() - self.commits_before.items()}

    def _starving(self) -> set[str]:
        """The queries that are idle because bronze failed."""
        starving = ("idle", f"upstream {BRONZE} failed")
        queries = self.sidecar.snapshot().queries
        return {query.name for query in queries if (query.state, query.reason) == starving}

    def _others_have_gone_on(self) -> bool:
        others = set(self.pipeline.names) - {self.scenario.query}
        return (self._starving() if self.scenario.query == BRONZE else self._gone_on()) >= others

    def _facts(self) -> dict[str, str]:
        scenario = self.scenario
        facts = {"scenario": f"{self.settings.scenario}: {scenario.description}", "page": "none"}
        for page in self.firing[:1]:
            facts["page"] = f"{page.labels['alertname']} for {page.labels['query']}"
            if (seconds := self._seconds_after(page)) is not None:
                facts[f"{scenario.event} to webhook"] = f"{seconds:.2f} s"
        facts["job"] = self._job()
        facts["committed since"] = f"{len(self._gone_on())} of {len(self.pipeline.names)} queries"
        if scenario.query == BRONZE:
            facts["starving"] = listed(sorted(self._starving())) or "none"
        facts["result"] = "as expected" if self.as_expected else "NOT as expected"
        return facts

    def _job(self) -> str:
        """The state of the job, without its queries: what a scheduler would see."""
        if self.over.is_set():
            return "ended by its own await_any_failure()"
        call = "await_any_failure" if self.settings.supervised else "awaitTermination"
        active = [query.isActive for query in self.pipeline.queries.values()]
        return (
            f"RUNNING all the time, {sum(active)} of {len(active)} queries active; "
            f"Python waits in {call}()"
        )


GONE_GRACE_SECONDS = 10.0
# Exit codes.
REPORTED = 0
NOT_REPORTED = 1
ENDED_BY_FAILURE = 3
"""A scheduler restarts a supervised job that ends with it."""


def run(settings: DemoSettings, kind: type[Pipeline] = FilePipeline) -> int:
    """Run the demo; the exit code says whether the scenario was detected and reported.

    What prevents a pipeline of this kind from starting is raised.
    """
    output = DemoOutput()
    interrupted = threading.Event()
    output.say(f"{settings.queries} streaming queries in one driver; scenario: {settings.scenario}")
    with (
        TemporaryDirectory(prefix="querypulse-demo-", ignore_cleanup_errors=True) as name,
        closing(kind(folder := Path(name), settings.queries, output.say)) as pipeline,
        closing(PageReceiver()) as receiver,
    ):
        spark = local_spark(folder, pipeline.prepare())
        # PySpark's own handler calls the JVM from inside the interrupted call, and fails.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: interrupted.set())
        try:
            sidecar = attach(
                spark,
                webhook_url=settings.webhook_url,
                receivers=[{"type": "webhook", "name": "demo", "url": receiver.url}],
                http_port=settings.http_port,
                stall_floor_seconds=pipeline.stall_floor_seconds,
                enabled=True,
                gone_grace_seconds=GONE_GRACE_SECONDS,
            )
            output.say(f"Spark {spark.version}")
            if sidecar.url is not None:
                output.say(f"status page: {sidecar.url}/  metrics: {sidecar.url}/metrics")
            demo = DemoRun(settings, sidecar, pipeline, receiver, output, interrupted)
            try:
                failure = demo.wait_with_job(spark)
            finally:
                sidecar.close()
                pipeline.stop()
            if failure is not None:
                output.say(f"the job ends with {ENDED_BY_FAILURE}; its scheduler starts it again")
        finally:
            spark.stop()
    if interrupted.is_set():
        output.say("interrupted")
        return INTERRUPTED
    if not demo.as_expected:
        return NOT_REPORTED
    return REPORTED if failure is None else ENDED_BY_FAILURE
