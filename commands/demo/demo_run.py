"""Runs the demo: waits until all queries commit, runs the scenario, checks the alerts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import msgspec

from ...alerting.starving import DOWNSTREAM
from ...core.listing import listed
from ...sidecar.sidecar import Sidecar
from .demo_arguments import DemoSettings
from .demo_output import DemoOutput
from .page_receiver import PageReceiver, ReceivedAlert
from .pipeline import BRONZE, POLL_SECONDS, Pipeline
from .scenarios import SCENARIOS
from .waiting import Waiting, main_thread_stuck_in

OUTAGE_SECONDS = 120.0
"""How long a delivery to the user's own webhook may take."""
HEALTHY_SECONDS = 60.0
OTHERS_SECONDS = 60.0
"""How long it may take until every other query has committed once more."""


class DemoSetup(msgspec.Struct, frozen=True):
    """The receiver and the output of the demo, and two events that end it early."""

    receiver: PageReceiver
    output: DemoOutput
    interrupted: threading.Event = msgspec.field(default_factory=threading.Event)
    over: threading.Event = msgspec.field(default_factory=threading.Event)
    """The job has ended by itself, after sending its alerts."""


class DemoRun:
    """Runs the scenario in its own thread, beside the job's waiting main thread."""

    def __init__(
        self,
        settings: DemoSettings,
        sidecar: Sidecar,
        pipeline: Pipeline,
        waiting: Waiting,
        setup: DemoSetup,
    ) -> None:
        self.as_expected = False
        """Whether exactly the expected alerts were reported."""
        self._settings = settings
        self._scenario = SCENARIOS[settings.scenario]
        self._sidecar = sidecar
        self._pipeline = pipeline
        self._waiting = waiting
        self._receiver = setup.receiver
        self._output = setup.output
        self._interrupted = setup.interrupted
        self._over = setup.over
        self._pages: list[ReceivedAlert] = []
        self._struck_at = 0.0
        # Alerts that an earlier start of the job left open do not count.
        self._began_at = time.time()
        self._commits_before: dict[str | None, int | None] = {}

    def run(self) -> None:
        """Run to the end, then release the job's main thread."""
        try:
            self._play()
        finally:
            self._pipeline.lock.give_back()
            self._waiting.let_go()

    def _play(self) -> None:
        if not self._watch(self._pipeline.startup_seconds, self._all_committing):
            if not self._interrupted.is_set():
                self._output.say("not every query has committed")
            return
        began = time.monotonic()
        self._watch(self._settings.after, self._over.is_set)
        if self._interrupted.is_set():
            return
        self._output.say(f"now {self._scenario.description}")
        self._struck_at = self._scenario.strike(self._pipeline)
        self._commits_before = self._commits()
        if not self._watch(self._patience(), self._paged) and self._on_its_way():
            self._watch(OUTAGE_SECONDS, self._paged)
        self._watch(OTHERS_SECONDS, lambda: self._over.is_set() or self._others_went_on())
        self._watch(self._settings.remaining(time.monotonic() - began), self._over.is_set)
        self.as_expected = self._reported_as_expected()
        self._output.facts(self._facts())

    def _reported_as_expected(self) -> bool:
        firing = [page for page in self._pages if page.status == "firing"]
        fired = [(page.labels["alertname"], page.labels["query"]) for page in firing]
        alertname = self._scenario.alertname
        ended = self._settings.supervised and self._scenario.ends_supervised
        reported = fired == ([] if alertname is None else [(alertname, self._scenario.query)])
        return reported and self._over.is_set() == ended and self._starving_as_expected()

    def _starving_as_expected(self) -> bool:
        """Whether all others are named as starving, if the query that broke feeds them."""
        if self._scenario.query != BRONZE:
            return True
        others = set(self._pipeline.names) - {BRONZE}
        listing = self._firing().annotations.get(DOWNSTREAM, "")
        return self._over.is_set() or (self._starving() == others and listing != "")

    def _starving(self) -> set[str]:
        """The queries that are idle because bronze failed."""
        reason = f"upstream {BRONZE} failed"
        queries = self._sidecar.snapshot().queries
        return {query.name for query in queries if (query.state, query.reason) == ("idle", reason)}

    def _firing(self) -> ReceivedAlert:
        return next(page for page in self._pages if page.status == "firing")

    def _paged(self) -> bool:
        return any(page.status == "firing" for page in self._pages)

    def _watch(self, seconds: float, done: Callable[[], bool]) -> bool:
        """Print what happens until ``done()``; False when ``seconds`` passed before."""
        deadline = time.monotonic() + seconds
        while not self._interrupted.is_set():
            self._output.queries(self._sidecar.snapshot().queries)
            for page in self._new_pages():
                self._pages.append(page)
                self._output.page(page, page.arrived_at - self._struck_at)
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
        """The queries that have committed since the scenario began."""
        after = self._commits()
        return {name for name in after if after[name] != self._commits_before.get(name)}

    def _others_went_on(self) -> bool:
        others = set(self._pipeline.names) - {self._scenario.query}
        return (self._starving() if self._scenario.query == BRONZE else self._went_on()) >= others

    def _patience(self) -> float:
        if self._scenario.alertname is not None:
            return self._scenario.within_seconds
        return max(0.0, (self._settings.duration or HEALTHY_SECONDS) - self._settings.after)

    def _new_pages(self) -> list[ReceivedAlert]:
        """New pages at our own receiver or, with the user's own webhook, delivered alerts."""
        if self._settings.webhook_url is None:
            return self._receiver.pages[len(self._pages) :]
        if self._on_its_way():
            return []
        now, known = time.time(), [page.labels for page in self._pages]
        return [
            ReceivedAlert(now, "firing", dict(alert.labels), dict(alert.annotations))
            for alert in self._sidecar.alerts()
            if alert.labels not in known and alert.starts_at >= self._began_at
        ]

    def _on_its_way(self) -> bool:
        """Whether a delivery is pending."""
        return any(self._sidecar.snapshot().monitor.outbox_pending.values())

    def _facts(self) -> dict[str, str]:
        facts = {"scenario": f"{self._scenario.name}: {self._scenario.description}", "page": "none"}
        page = next((page for page in self._pages if page.status == "firing"), None)
        if page is not None:
            seconds = page.arrived_at - self._struck_at
            facts["page"] = f"{page.labels['alertname']} for {page.labels['query']}"
            facts[f"{self._scenario.event} to webhook"] = f"{seconds:.2f} s"
        facts["job"] = self._job()
        facts["committed since"] = f"{len(self._went_on())} of {len(self._pipeline.names)} queries"
        if self._scenario.query == BRONZE:
            facts["starving"] = listed(sorted(self._starving())) or "none"
        facts["events received"] = str(sum(self._sidecar.snapshot().monitor.events.values()))
        facts["result"] = "as expected" if self.as_expected else "NOT as expected"
        return facts

    def _job(self) -> str:
        """The state of the job, without its queries: what a scheduler would see."""
        if not main_thread_stuck_in(self._waiting.where):
            return "ended by its own await_any_failure()"
        active = sum(query.isActive for query in self._pipeline.queries.values())
        return (
            f"RUNNING all the time, {active} of {len(self._pipeline.queries)} queries active; "
            f"Python waits in {self._waiting.where}()"
        )
