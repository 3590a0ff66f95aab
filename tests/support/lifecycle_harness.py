"""Queries that fail and recover on a fake clock, and the notifications that a receiver gets.

A story is a list of (second, query, condition). A condition is the alerts that hold for the query
from then on, joined by ``+`` (``StreamingQueryMissing`` holds for a query that was never seen;
``!`` marks a warning that has become critical), or one of

* ``commits``: a batch every 5 s; ``idle``: proven idle every second; alone, it means healthy;
* ``healthy``: of a whole driver, no alert;
* ``waits``: alive, without further activity;
* ``starts``: alive, without any activity yet;
* ``ends``: an unannounced stop;
* ``stopped``: an announced stop; ``completed``; ``forgotten``; ``expected``: not seen yet.
"""

from __future__ import annotations

from copy import deepcopy

from msgspec.structs import replace
from support.patience import WALL
from support.rules.case import WARNINGS

from querypulse.alerting.alert import Incident
from querypulse.alerting.evaluate import Evaluation
from querypulse.alerting.facts import Facts, Failed, Reported
from querypulse.alerting.finding import WHOLE_DRIVER, Finding, QueryHealth, Severity
from querypulse.alerting.incidents.lifecycle import Lifecycle, LifecycleSettings
from querypulse.alerting.silences import Silence
from querypulse.alerting.words.messages import Guidance
from querypulse.core.states import QueryState
from querypulse.listener.failure import Failure
from querypulse.listener.probe_report import RunFacts, parse_trigger
from querypulse.listener.state.history import count_failure
from querypulse.listener.state.query import Query
from querypulse.listener.state.run import Ended, Outcome, Run
from querypulse.listener.state.snapshot import Pause, Snapshot

COMMIT_EVERY_SECONDS = 5
SETTLING_SECONDS = 5
"""For so long after a change of conditions, every second is evaluated."""
SKIPPED_SECONDS = (600, 60)
"""Multiples of the interval of commits: a query commits at every second that is evaluated."""

STATES = {
    "StreamingQueryFailed": QueryState.FAILED,
    "StreamingQueryGivenUp": QueryState.FAILED,
    "StreamingQueryStopped": QueryState.STOPPED_UNEXPECTEDLY,
    "StreamingQueryMissing": QueryState.MISSING,
    "StreamingQueryStalled": QueryState.STALLED,
    "StreamingOffsetsStalled": QueryState.STALLED,
    "StreamingQueryFlapping": QueryState.FLAPPING,
    "StreamingOffsetsRewound": QueryState.REWOUND,
    "StreamingBatchSlow": QueryState.SLOW,
    "StreamingDataLossRisk": QueryState.LAGGING,
    "StreamingQueryLagging": QueryState.LAGGING,
    "StreamingWatermarkStuck": QueryState.WATERMARK_STUCK,
    "StreamingRowsDropped": QueryState.LAGGING,
    "StreamingQueryFallingBehind": QueryState.SLOW,
    "StreamingStateGrowing": QueryState.RUNNING,
    "StreamingDriverDown": QueryState.STOPPED_UNEXPECTEDLY,
    "StreamingDriverMemory": QueryState.RUNNING,
    "StreamingDiskFilling": QueryState.RUNNING,
    "QuerypulseEventsMissing": QueryState.RUNNING,
    "QuerypulseMonitoringDegraded": QueryState.RUNNING,
}
STATES_WITHOUT_ALERT = {
    "commits": QueryState.RUNNING,
    "idle": QueryState.IDLE,
    "starts": QueryState.STARTING,
    "waits": QueryState.RUNNING,
    "ends": QueryState.STOPPED,
    "stopped": QueryState.STOPPED,
    "completed": QueryState.COMPLETED,
    "expected": QueryState.STARTING,
}
FAILED = "StreamingQueryFailed"
FACTS = RunFacts("id", "run", "name", parse_trigger("ProcessingTimeTrigger(0)"), "noop", "/cp")


class LifecycleHarness:
    """One driver's queries; ``reported`` has the notifications, such as ``"12 + a Failed"``.

    ``+``: a new incident; ``^``: notified again; ``-``: resolved. Then the end of the key, and the
    names of the open alerts, the most prominent first; of a group, also the queries.
    ``closed`` has what an earlier process may have left open, as ``"30 a"``.
    """

    def __init__(self, app: str = "etl", labels: dict | None = None, **terms: float) -> None:
        self.lifecycle = Lifecycle(
            app,
            Guidance("https://runbooks.example/{alertname}.md"),
            LifecycleSettings(**terms),
            labels,
        )
        self.now = 0.0
        self.reported: list[str] = []
        self.ended: list[Incident] = []
        self.closed: list[str] = []
        self.updated: tuple[Incident, ...] = ()
        """What the newest update returned, with stale incidents."""
        self.incidents: tuple[Incident, ...] = ()
        self.silences: list[Silence] = []
        self.pauses: tuple[Pause, ...] = ()
        self.wall_jump = 0.0
        self.reason = "as found"
        self.causes: dict[str, str] = {}
        """By query: the error class of its failures."""
        self.places: dict[str, str] = {}
        """By query: the place that its failures name."""
        self.trigger = "ProcessingTimeTrigger(0)"
        self.batches: dict[str, int] = {}
        """By query: the batch in which it fails, if that is not the next one; -1 is unknown."""
        self.is_last = False
        self.warnings = WARNINGS
        self._conditions: dict[str, str] = {}
        self._queries: dict[str, Query] = {}
        self._known: dict[str, int] = {}

    def condition(self, query: str, what: str, name: str | None = None) -> LifecycleHarness:
        """Set the condition of a query from now on; its name is its label unless ``name`` is given."""
        fails = FAILED in what and FAILED not in self._conditions.get(query, "")
        self._conditions[query] = what
        if what in {"forgotten", "expected", "StreamingQueryMissing"} or query == WHOLE_DRIVER:
            self._queries.pop(query, None)
            if what == "forgotten":
                del self._conditions[query]
        elif query not in self._queries:
            self._queries[query] = Query(
                query_id=f"id-{query}",
                name=name or query,
                label=query,
                run=Run(run_id="1", started_at=self.now, facts=self._facts()),
            )
        if fails and query in self._queries:
            self._queries[query] = self._failed(self._queries[query])
        return self

    def _facts(self) -> RunFacts:
        return replace(FACTS, trigger=parse_trigger(self.trigger))

    def _failed(self, query: Query) -> Query:
        totals = replace(query.history.totals, failed=query.history.totals.failed + 1)
        batch_id = self.batches.get(query.label, totals.commits)
        history = count_failure(query.history, self._failure(query.label), self.now, batch_id)
        return replace(query, history=replace(history, totals=totals))

    def _failure(self, query: str) -> Failure:
        name = self.causes.get(query, "OutOfMemoryError")
        return Failure(name, f"of {query}", place=self.places.get(query, ""))

    def tick(self) -> tuple[Incident, ...]:
        for label, query in self._queries.items():
            self._queries[label] = self._live(query, self._conditions[label])
        evaluation = Evaluation(tuple(self._findings()), self._healths())
        snapshot = Snapshot(self.now, 0.0, tuple(self._queries.values()), pauses=self.pauses)
        wall = WALL + self.now + self.wall_jump
        self.updated = self.lifecycle.update(
            evaluation, snapshot, self.now, wall, self.silences, is_last=self.is_last
        )
        self.closed += [
            f"{self.now:g} {subject(incident)}" for incident in self.updated if incident.is_orphan
        ]
        self.incidents = tuple(incident for incident in self.updated if not incident.is_orphan)
        self._report()
        return self.incidents

    def play(self, story: list[tuple[float, str, str]], until: int) -> LifecycleHarness:
        """Evaluate every second up to ``until``, but skip those in which nothing changes."""
        story = sorted(story, key=lambda entry: entry[0])
        while self.now <= until:
            while story and story[0][0] <= self.now:
                _, query, what = story.pop(0)
                self.condition(query, what)
            self.tick()
            calm = min(story[0][0] - 1 if story else until, until)
            self._evaluate(min(self.now + SETTLING_SECONDS, calm))
            self._evaluate(calm, *SKIPPED_SECONDS)
            self.now += 1.0
        return self

    def _evaluate(self, until: float, step: int = 1, *shorter: int) -> None:
        """Evaluate up to ``until`` in steps; go back, and take shorter ones, if one changes anything."""
        while self.now < until:
            target = (self.now // step + 1) * step
            if not shorter and step == 1:
                self.now += 1.0
                self.tick()
                continue
            if target > until:
                self._evaluate(until, *shorter)
                continue
            before, shown = deepcopy(self.__dict__), self._shown()
            self.now = target
            self.tick()
            if self._shown() != shown:
                self.__dict__ = before
                self._evaluate(target, *shorter)

    def _shown(self) -> tuple[object, ...]:
        """What an evaluation may change, but the newest evidence."""
        lifecycle = self.lifecycle
        return (
            *map(len, (self.reported, self.ended, self.closed)),
            [
                (incident.key, incident.revision, incident.ends_at, incident.muted)
                for incident in self.incidents
            ],
            [alert.labels for alert in lifecycle.alerts],
            [pair.alert.labels for pair in lifecycle.inhibited],
        )

    def _live(self, query: Query, what: str) -> Query:
        # Every condition but an end restarts the query.
        run = replace(query.run, ended=None, stop_expected=what == "stopped")
        history = query.history
        if what == "starts":
            run = replace(run, last_commit_at=None, last_idle_at=None)
        elif run.last_commit_at is None:
            run = replace(run, last_commit_at=self.now)
        if "commits" in what.split("+") and self.now % COMMIT_EVERY_SECONDS == 0:
            totals = replace(history.totals, commits=history.totals.commits + 1)
            history = replace(history, totals=totals)
            run = replace(run, last_commit_at=self.now)
        elif "idle" in what.split("+"):
            run = replace(run, last_idle_at=self.now)
        elif what in {"ends", "stopped", "completed"}:
            outcome = Outcome.COMPLETED if what == "completed" else Outcome.STOPPED
            run = replace(run, ended=Ended(self.now, outcome, "event"))
        return replace(query, history=history, run=run)

    def _findings(self) -> list[Finding]:
        return [
            Finding(
                alertname=name.rstrip("!"),
                query=query,
                severity=Severity.WARNING if name in self.warnings else Severity.CRITICAL,
                state=STATES[name.rstrip("!")],
                facts=self._found(query),
            )
            for query, what in self._conditions.items()
            for name in what.split("+")
            if name.rstrip("!") in STATES
        ]

    def _found(self, query: str) -> Facts:
        if query in self.places:
            return Failed(failure=self._failure(query))
        return Reported(
            reason=self.reason,
            summary=f"{query} is unhealthy",
            evidence={
                "at": f"{self.now:g}",
                "error_class": self.causes.get(query, "OutOfMemoryError"),
            },
        )

    def _healths(self) -> dict[str, QueryHealth]:
        return {
            query: QueryHealth(
                STATES_WITHOUT_ALERT.get(what) or STATES[what.split("+")[0].rstrip("!")]
            )
            for query, what in self._conditions.items()
            if query != WHOLE_DRIVER
        }

    def _report(self) -> None:
        """Record what a receiver gets at once: new incidents and reminders, then resolves."""
        before = self._known
        self._known = {}
        for incident in sorted(self.incidents, key=lambda incident: incident.ends_at is not None):
            revision = before.pop(incident.key, None)
            if incident.ends_at is not None:
                self.ended.append(incident)
                if revision is not None:
                    self._record("-", incident)
                continue
            if not incident.muted and (revision is None or incident.revision > revision):
                self._record("+" if revision is None else "^", incident)
                revision = incident.revision
            if revision is not None:
                self._known[incident.key] = revision
        assert before == {}, "every reported incident must resolve explicitly"

    def _record(self, what: str, incident: Incident) -> None:
        names = [alert.name.removeprefix("StreamingQuery") for alert in incident.firing]
        text = "+".join(dict.fromkeys(names))
        if any(alert.query != incident.query for alert in incident.firing):
            text += f"({','.join(dict.fromkeys(alert.query for alert in incident.firing))})"
        self.reported.append(f"{self.now:g} {what} {subject(incident)} {text}".rstrip())


def subject(incident: Incident) -> str:
    """The end of its key: the query, and ``/warning``."""
    return incident.key.split("/", 2)[2]
