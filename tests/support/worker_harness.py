"""A worker whose clock, inbox, probe and dispatch the test controls."""

from __future__ import annotations

from collections.abc import Callable

from support.patience import WALL, Clock
from support.story import progress

from querypulse.alerting.alert import Incident
from querypulse.alerting.delivery.spool import FailureHistory
from querypulse.alerting.evaluate import Evaluation
from querypulse.alerting.incidents.lifecycle import Evaluated, Lifecycle, LifecycleSettings
from querypulse.alerting.policy import Limits, Policy
from querypulse.alerting.silences import Silence
from querypulse.alerting.words.messages import Guidance
from querypulse.listener.events import Event, Started, Terminated
from querypulse.listener.mailbox import Arrived, Mailbox, Marker
from querypulse.listener.probe_report import ProbedRun, ProbeReport
from querypulse.listener.python_frames import MainThread
from querypulse.sidecar.worker import TICK_SECONDS, Inputs, Worker


class WorkerHarness:
    """Feeds the worker; ``published`` and ``offers`` are the results of each evaluation."""

    def __init__(self, failure_history: FailureHistory | None = None, **limits: float) -> None:
        self.clock = Clock(1000.0)
        self.wall = WALL
        self.inbox: Mailbox[Arrived | Marker] = Mailbox(100)
        self.report: ProbeReport | None = None
        self.published: list[Evaluated] = []
        self.offers: list[tuple[Incident, ...]] = []
        self.stale: list[str] = []
        """The keys of what an earlier process may have left open."""
        self.silences: list[Silence] = []
        self.errors: list[tuple[str, Exception]] = []
        self.main_thread_is = ""
        self.asked_for_main_thread = 0
        self.redactor: Callable[[Evaluation], Evaluation] | None = None
        self.worker = Worker(
            Inputs(
                inbox=self.inbox,
                report=lambda: self.report,
                silences=lambda: self.silences,
                main_thread=self.main_thread,
            ),
            Policy(defaults=Limits(**limits)),
            Lifecycle(
                "etl",
                Guidance("https://runbooks.example/{alertname}.md"),
                LifecycleSettings(resolve_after_seconds=10.0),
            ),
            self,
            failure_history=failure_history,
            redact=self.redact,
            on_error=lambda where, error: self.errors.append((where, error)),
            on_evaluated=self.on_evaluated,
            clock=self.clock,
            wall=lambda: self.wall + self.clock.now,
        )

    def on_evaluated(self, evaluated: Evaluated) -> None:
        self.published.append(evaluated)

    def main_thread(self) -> MainThread:
        self.asked_for_main_thread += 1
        return MainThread(self.main_thread_is)

    def redact(self, evaluation: Evaluation) -> Evaluation:
        return evaluation if self.redactor is None else self.redactor(evaluation)

    def offer(self, incidents: tuple[Incident, ...]) -> None:
        self.offers.append(tuple(incident for incident in incidents if not incident.is_orphan))
        self.stale += [incident.key for incident in incidents if incident.is_orphan]

    def receive(self, event: Event) -> WorkerHarness:
        lifecycle = isinstance(event, (Started, Terminated))
        self.inbox.put(Arrived(event, self.clock()), lifecycle=lifecycle)
        return self

    def started(self, query: str = "a") -> WorkerHarness:
        return self.receive(Started(f"id-{query}", f"{query}-1", query))

    def commit(self, query: str = "a", *, batch: int = 0) -> WorkerHarness:
        return self.receive(progress(query, batch=batch))

    def ended(self, query: str = "a", exception: str | None = None) -> WorkerHarness:
        return self.receive(Terminated(f"id-{query}", f"{query}-1", exception, None))

    def poll(self, *runs: ProbedRun, began_at: float | None = None) -> WorkerHarness:
        """Give the probe a new report, which by default began just now."""
        began = self.clock() if began_at is None else began_at
        before = None if self.report is None else self.report.at
        self.report = ProbeReport(began_at=began, at=began, runs=runs, previous_at=before)
        return self

    def mark(self) -> Marker:
        marker = Marker()
        self.inbox.put(marker, lifecycle=True)
        return marker

    def step(self, after: float = TICK_SECONDS) -> WorkerHarness:
        """Run one step of the worker, ``after`` seconds later."""
        self.clock.now += after
        self.inbox.wake()
        self.worker.step()
        return self

    @property
    def reported(self) -> list[tuple[str, str]]:
        """The alerts of the newest evaluation."""
        return [(alert.name, alert.labels["query"]) for alert in self.published[-1].alerts]
