"""Directs the demo: waits until all queries commit, lets the fate strike, watches what is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from ..sidecar import Sidecar
from .fates import FATES
from .narrator import Narrator
from .page_receiver import Page, PageReceiver
from .pipeline import ALERTS, BRONZE, Pipeline
from .script import Script

STARTUP_SECONDS = 90.0
POLL_SECONDS = 0.05
OUTAGE_SECONDS = 120.0
"""How long a page may be on its way to somebody else's webhook."""
HEALTHY_SECONDS = 60.0


class Stage(msgspec.Struct, frozen=True):
    """Where the demo is played: its files, its receiver, its teller, and a way to end it early."""

    folder: Path
    receiver: PageReceiver
    narrator: Narrator
    interrupted: threading.Event


class Director:
    """Plays the script in a thread of its own, beside the job's blocked main thread."""

    def __init__(self, script: Script, sidecar: Sidecar, pipeline: Pipeline, stage: Stage) -> None:
        self.as_fated = False
        """Whether in the end exactly what had to be told was told."""
        self._script = script
        self._fate = FATES[script.fate]
        self._sidecar = sidecar
        self._pipeline = pipeline
        self._receiver = stage.receiver
        self._narrator = stage.narrator
        self._interrupted = stage.interrupted
        self._pages: list[Page] = []
        self._struck_at = 0.0

    def direct(self) -> None:
        """Play to the end, then let the job's main thread go."""
        try:
            self._play()
        finally:
            self._pipeline.table.unlock()
            self._pipeline.queries[BRONZE].stop()

    def _play(self) -> None:
        if not self._watch(STARTUP_SECONDS, self._all_committing):
            self._narrator.say("not every query came to commit")
            return
        began = time.monotonic()
        self._watch(self._script.after, lambda: False)
        if self._interrupted.is_set():
            return
        self._narrator.say(f"now {self._fate.told}")
        self._struck_at = self._fate.strike(self._pipeline)
        if not self._watch(self._patience(), lambda: bool(self._pages)) and self._on_its_way():
            self._watch(OUTAGE_SECONDS, lambda: bool(self._pages))
        self._watch(self._script.remaining(time.monotonic() - began), lambda: False)
        fired = [(page.labels["alertname"], page.labels["query"]) for page in self._pages]
        alertname = self._fate.alertname
        self.as_fated = fired == ([] if alertname is None else [(alertname, ALERTS)])
        self._narrator.facts(self._facts())

    def _watch(self, seconds: float, done: Callable[[], bool]) -> bool:
        """Tell what happens until ``done()``; False when ``seconds`` passed before."""
        deadline = time.monotonic() + seconds
        while not self._interrupted.is_set():
            self._narrator.queries(self._sidecar.snapshot().queries)
            for page in self._new_pages():
                self._pages.append(page)
                self._narrator.page(page, page.arrived_at - self._struck_at)
            if done():
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_SECONDS)
        return False

    def _all_committing(self) -> bool:
        queries = self._sidecar.snapshot().queries
        committing = {query.name for query in queries if query.last_commit_batch is not None}
        return committing >= set(self._pipeline.names)

    def _patience(self) -> float:
        if self._fate.alertname is not None:
            return self._fate.within_seconds
        return max(0.0, (self._script.duration or HEALTHY_SECONDS) - self._script.after)

    def _new_pages(self) -> list[Page]:
        """Pages as they arrived or, when they go to somebody else's webhook, were delivered."""
        if self._script.webhook_url is None:
            return self._receiver.pages[len(self._pages) :]
        if self._on_its_way():
            return []
        now, known = time.time(), [page.labels for page in self._pages]
        return [
            Page(now, "firing", dict(alert.labels), dict(alert.annotations))
            for alert in self._sidecar.snapshot().alerts
            if alert.labels not in known
        ]

    def _on_its_way(self) -> bool:
        """Whether a receiver has still to be told of something."""
        return any(self._sidecar.snapshot().monitor.outbox_pending.values())

    def _facts(self) -> dict[str, str]:
        facts = {"fate": f"{self._fate.name}: {self._fate.told}", "page": "none"}
        if self._pages:
            page = self._pages[0]
            seconds = page.arrived_at - self._struck_at
            facts["page"] = f"{page.labels['alertname']} for {page.labels['query']}"
            facts[f"{self._fate.event} to webhook"] = f"{seconds:.2f} s"
        monitor = self._sidecar.snapshot().monitor
        facts["job"] = "RUNNING all the time; Python blocked in bronze.awaitTermination()"
        facts["events heard"] = str(sum(monitor.events.values()))
        facts["verdict"] = "as it should be" if self.as_fated else "NOT as it should be"
        return facts
