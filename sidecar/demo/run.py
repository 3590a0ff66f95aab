"""``querypulse demo``: the job runs in the main thread, blocked where real jobs block.

A second thread directs: it waits until all queries commit, lets the fate strike, and
watches what is told.
"""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import msgspec

from ..attach import attach
from ..sidecar import Sidecar
from .fates import FATES, Fate
from .narrator import Narrator
from .page_receiver import Page, PageReceiver
from .pipeline import ALERTS, BRONZE, Pipeline
from .spark_session import local_spark
from .telemetry import Fleet

STARTUP_SECONDS = 90.0
AFTERMATH_SECONDS = 5.0
POLL_SECONDS = 0.05
STALL_FLOOR_SECONDS = 15.0
GONE_GRACE_SECONDS = 10.0


class Script(msgspec.Struct, frozen=True):
    """What was asked for on the command line; times in seconds."""

    fate: str = "dies"
    queries: int = 8
    after: float = 20.0
    duration: float | None = None
    webhook_url: str | None = None
    http_port: int = 0


class Told(msgspec.Struct, frozen=True):
    """What came of it."""

    pages: tuple[Page, ...]
    struck_at: float
    as_fated: bool


def run(script: Script) -> int:
    """Play the script; 0 when the fate was seen and told, 1 when not.

    Raises:
        NotInstalledError: Java or PySpark is missing.

    """
    narrator = Narrator()
    narrator.say(f"{script.queries} streaming queries in one driver; fate: {script.fate}")
    with tempfile.TemporaryDirectory(prefix="querypulse-demo-") as name:
        folder = Path(name)
        spark = local_spark(folder)
        receiver = PageReceiver()
        try:
            return _play(script, spark, folder, receiver, narrator)
        except KeyboardInterrupt:
            narrator.say("interrupted")
            return 130
        finally:
            spark.stop()
            receiver.close()


def _play(
    script: Script, spark: Any, folder: Path, receiver: PageReceiver, narrator: Narrator
) -> int:
    sidecar = attach(
        spark,
        webhook_url=script.webhook_url or receiver.url,
        http_port=script.http_port,
        stall_floor_seconds=STALL_FLOOR_SECONDS,
        gone_grace_seconds=GONE_GRACE_SECONDS,
    )
    pipeline = Pipeline(spark, folder, script.queries)
    fleet = Fleet(pipeline.landing)
    director = _Director(script, sidecar, pipeline, receiver, narrator)
    narrator.say(f"Spark {spark.version}; metrics at {sidecar.url}/metrics")
    fleet.start()
    pipeline.start()
    thread = threading.Thread(target=director.direct, name="demo-director", daemon=True)
    thread.start()
    try:
        # The trap of the incident: who waits for one query does not see another die.
        pipeline.queries[BRONZE].awaitTermination()
    finally:
        director.curtain.set()
        pipeline.table.unlock()
        fleet.stop()
        for query in spark.streams.active:
            query.stop()
    thread.join()
    return 0 if director.told is not None and director.told.as_fated else 1


class _Director:
    def __init__(
        self,
        script: Script,
        sidecar: Sidecar,
        pipeline: Pipeline,
        receiver: PageReceiver,
        narrator: Narrator,
    ) -> None:
        self.curtain = threading.Event()
        self.told: Told | None = None
        self._script = script
        self._fate = FATES[script.fate]
        self._sidecar = sidecar
        self._pipeline = pipeline
        self._receiver = receiver
        self._narrator = narrator

    def direct(self) -> None:
        """Play to the end, then let the job's main thread go."""
        try:
            self._direct()
        finally:
            self._pipeline.table.unlock()
            if not self.curtain.is_set():
                self._pipeline.queries[BRONZE].stop()

    def _direct(self) -> None:
        if not self._watch(STARTUP_SECONDS, self._all_committing):
            self._narrator.say("not all queries came to commit in time")
            return
        self._watch(self._script.after, lambda: False)
        self._narrator.say(f"now {self._fate.told}")
        struck_at = self._fate.strike(self._pipeline)
        self._watch(self._patience(), self._is_told)
        self._watch(AFTERMATH_SECONDS, lambda: False)
        self.told = self._tell(struck_at)

    def _watch(self, seconds: float, done: Any) -> bool:
        """Tell what happens until ``done()``; False when ``seconds`` passed before."""
        deadline = time.monotonic() + seconds
        while not self.curtain.is_set():
            self._narrator.queries(self._sidecar.snapshot().queries)
            if done():
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_SECONDS)
        return False

    def _patience(self) -> float:
        if self._fate.alertname is not None:
            return self._fate.within_seconds
        return max(0.0, (self._script.duration or 60.0) - self._script.after)

    def _all_committing(self) -> bool:
        queries = self._sidecar.snapshot().queries
        committing = {query.name for query in queries if query.last_commit_batch is not None}
        return committing >= set(self._pipeline.names)

    def _is_told(self) -> bool:
        return bool(self._pages())

    def _pages(self) -> tuple[Page, ...]:
        """Pages as they arrived, or, when they went elsewhere, as they were delivered."""
        if self._script.webhook_url is None:
            return tuple(self._receiver.pages)
        if not self._sidecar.alerts() or not self._sidecar.flush(timeout=POLL_SECONDS * 20):
            return ()
        now = time.time()
        return tuple(
            Page(now, "firing", alert.labels, alert.annotations) for alert in self._sidecar.alerts()
        )

    def _tell(self, struck_at: float) -> Told:
        pages = self._pages()
        for page in pages:
            self._narrator.page(page.labels, page.annotations)
        fired = [(page.labels["alertname"], page.labels["query"]) for page in pages]
        wanted = [] if self._fate.alertname is None else [(self._fate.alertname, ALERTS)]
        told = Told(pages, struck_at, fired == wanted)
        self._narrator.facts(_facts(self._fate, told, self._sidecar))
        return told


def _facts(fate: Fate, told: Told, sidecar: Sidecar) -> dict[str, str]:
    facts = {"fate": f"{fate.name}: {fate.told}"}
    if told.pages:
        page = told.pages[0]
        facts["page"] = f"{page.labels['alertname']} for {page.labels['query']}"
        facts[f"{fate.name} to webhook"] = f"{page.arrived_at - told.struck_at:.2f} s"
        facts["siblings"] = page.annotations.get("siblings", "")
    else:
        facts["page"] = "none"
    facts["job"] = "RUNNING all the time; Python blocked in bronze.awaitTermination()"
    monitor = sidecar.snapshot().monitor
    facts["events heard"] = str(sum(monitor.events.values()))
    facts["verdict"] = "as it should be" if told.as_fated else "NOT as it should be"
    return facts
