"""Directs the demo: waits until all queries commit, plays the scenario, checks the alerts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import msgspec

from ..sidecar import Sidecar
from .demo_output import DemoOutput
from .demo_settings import DemoSettings
from .page_receiver import PageReceiver, ReceivedAlert
from .pipelines.pipeline import ALERTS, Pipeline
from .scenarios import SCENARIOS
from .waiting import Waiting, main_thread_stuck_in

POLL_SECONDS = 0.05
OUTAGE_SECONDS = 120.0
"""How long a page may be on its way to somebody else's webhook."""
HEALTHY_SECONDS = 60.0
OTHERS_SECONDS = 60.0
"""How long it may take until every other query has committed once more."""


class DemoSetup(msgspec.Struct, frozen=True):
    """Where the demo is played: its receiver, its teller, and two ways to end it early."""

    receiver: PageReceiver
    narrator: DemoOutput
    interrupted: threading.Event = msgspec.field(default_factory=threading.Event)
    over: threading.Event = msgspec.field(default_factory=threading.Event)
    """The job has ended by itself; what is still to be told is told."""


class DemoRun:
    """Plays the script in a thread of its own, beside the job's waiting main thread."""

    def __init__(
        self,
        script: DemoSettings,
        sidecar: Sidecar,
        pipeline: Pipeline,
        waiting: Waiting,
        stage: DemoSetup,
    ) -> None:
        self.as_expected = False
        """Whether in the end exactly what had to be told was told."""
        self._script = script
        self._scenario = SCENARIOS[script.scenario]
        self._sidecar = sidecar
        self._pipeline = pipeline
        self._waiting = waiting
        self._receiver = stage.receiver
        self._narrator = stage.narrator
        self._interrupted = stage.interrupted
        self._over = stage.over
        self._pages: list[ReceivedAlert] = []
        self._struck_at = 0.0
        # What is open from an earlier start of the job was told then.
        self._born_at = time.time()
        self._commits_before: dict[str | None, int | None] = {}

    def direct(self) -> None:
        """Play to the end, then let the job's main thread go."""
        try:
            self._play()
        finally:
            self._pipeline.lock.give_back()
            self._waiting.let_go()

    def _play(self) -> None:
        if not self._watch(self._pipeline.startup_seconds, self._all_committing):
            if not self._interrupted.is_set():
                self._narrator.say("not every query came to commit")
            return
        began = time.monotonic()
        self._watch(self._script.after, self._over.is_set)
        if self._interrupted.is_set():
            return
        self._narrator.say(f"now {self._scenario.reported}")
        self._struck_at = self._scenario.strike(self._pipeline)
        self._commits_before = self._commits()
        if not self._watch(self._patience(), self._paged) and self._on_its_way():
            self._watch(OUTAGE_SECONDS, self._paged)
        self._watch(OTHERS_SECONDS, lambda: self._over.is_set() or self._others_went_on())
        self._watch(self._script.remaining(time.monotonic() - began), self._over.is_set)
        self.as_expected = self._reported_as_expected()
        self._narrator.facts(self._facts())

    def _reported_as_expected(self) -> bool:
        firing = [page for page in self._pages if page.status == "firing"]
        fired = [(page.labels["alertname"], page.labels["query"]) for page in firing]
        alertname = self._scenario.alertname
        ended = self._script.supervised and self._scenario.ends_supervised
        reported = fired == ([] if alertname is None else [(alertname, ALERTS)])
        return reported and self._over.is_set() == ended

    def _paged(self) -> bool:
        return any(page.status == "firing" for page in self._pages)

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
        committing = {name for name, batch in self._commits().items() if batch is not None}
        return committing >= set(self._pipeline.names)

    def _commits(self) -> dict[str | None, int | None]:
        """The last batch that each query has committed."""
        queries = self._sidecar.snapshot().queries
        return {query.name: query.last_commit_batch for query in queries}

    def _went_on(self) -> set[str | None]:
        """Who has committed since the scenario struck."""
        after = self._commits()
        return {name for name in after if after[name] != self._commits_before.get(name)}

    def _others_went_on(self) -> bool:
        return self._went_on() >= set(self._pipeline.names) - {ALERTS}

    def _patience(self) -> float:
        if self._scenario.alertname is not None:
            return self._scenario.within_seconds
        return max(0.0, (self._script.duration or HEALTHY_SECONDS) - self._script.after)

    def _new_pages(self) -> list[ReceivedAlert]:
        """Pages as they arrived or, when they go to somebody else's webhook, were delivered."""
        if self._script.webhook_url is None:
            return self._receiver.pages[len(self._pages) :]
        if self._on_its_way():
            return []
        now, known = time.time(), [page.labels for page in self._pages]
        return [
            ReceivedAlert(now, "firing", dict(alert.labels), dict(alert.annotations))
            for alert in self._sidecar.alerts()
            if alert.labels not in known and alert.starts_at >= self._born_at
        ]

    def _on_its_way(self) -> bool:
        """Whether a receiver has still to be told of something."""
        return any(self._sidecar.snapshot().monitor.outbox_pending.values())

    def _facts(self) -> dict[str, str]:
        facts = {"scenario": f"{self._scenario.name}: {self._scenario.reported}", "page": "none"}
        page = next((page for page in self._pages if page.status == "firing"), None)
        if page is not None:
            seconds = page.arrived_at - self._struck_at
            facts["page"] = f"{page.labels['alertname']} for {page.labels['query']}"
            facts[f"{self._scenario.event} to webhook"] = f"{seconds:.2f} s"
        facts["job"] = self._job()
        facts["committed since"] = f"{len(self._went_on())} of {len(self._pipeline.names)} queries"
        facts["events heard"] = str(sum(self._sidecar.snapshot().monitor.events.values()))
        facts["result"] = "as it should be" if self.as_expected else "NOT as it should be"
        return facts

    def _job(self) -> str:
        """What somebody would see who looks at the job, not at its queries."""
        if not main_thread_stuck_in(self._waiting.where):
            return "ended by its own await_any_failure()"
        active = sum(query.isActive for query in self._pipeline.queries.values())
        return (
            f"RUNNING all the time, {active} of {len(self._pipeline.queries)} queries active; "
            f"Python stands in {self._waiting.where}()"
        )
