"""Replays one application: evaluates its files as if live, by the clock of its log."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ..alerting.alert import FIRING, RESOLVED
from ..alerting.evaluate import Evaluation, evaluate
from ..alerting.finding import Finding, Severity
from ..alerting.policy import Policy
from ..listener.events import Event, Started, Terminated
from ..listener.probe import Context, ProbeReport
from ..listener.state.identity import UNNAMED
from ..listener.state.snapshot import Snapshot
from ..listener.state.state import State
from .log_files import Application, ReplayError, read_lines
from .recording import Began, Entry, Reader, Stopped
from .results import Change, Replayed, iso

# -- engine -----------------------------------------------------------------------------------
# Evaluates one application as if live, by the clock of its log.


LONGEST_STRETCH = 60
"""A stretch of up to so many seconds is evaluated at its end only, unless that shows a change."""
FORGET_EVERY_SECONDS = 60.0


class ReplayEngine:
    """Receives the events of a log in order, and returns the changes of alerts.

    Times are Unix seconds of the log and never go back; the state uses them as monotonic time.
    A log has no probe results: stalls are found by events alone, and no trigger is known.
    """

    def __init__(self, policy: Policy, app: str, began_at: float) -> None:
        self.now = began_at
        self.opened = 0
        self.notifications = 0
        self._app = app
        self._policy = policy
        self._state = State(began_at, policy.expected)
        self._context = Context.RUNNING
        self._firing: dict[tuple[str, str], Finding] = {}
        self._last_received: dict[str, float] = {}
        self._began_at = self._forgot_at = began_at
        # Whole seconds since the beginning, the precision of an alert's time: the last one seen,
        # the last one evaluated, and the last one before an event.
        self._seen = self._evaluated = self._received = 0
        self._pending: list[Snapshot] = []
        seconds = _seconds(policy)
        self._expects_rows = any(name == "expected_input_seconds" for name, _ in seconds)
        # In a stretch shorter than every limit, no alert can both fire and resolve.
        self._stretch = max(1, min(LONGEST_STRETCH, int(min(limit for _, limit in seconds)) - 1))

    def apply(self, event: Event, at: float) -> list[Change]:
        """Apply an event, after evaluating the silence before it."""
        changes = self.wait(at)
        key = event.query_id
        if isinstance(event, (Started, Terminated)) or self._has_news(key):
            # This event may end a problem or start a run: evaluate before applying it.
            changes += self.evaluate()
        self._last_received[key] = self.now
        self._received = self._seen
        self._state.apply_event(event, self.now, self._context)
        return changes + self.evaluate() if isinstance(event, Terminated) else changes

    def stop(self, at: float) -> list[Change]:
        """The application stops its SparkContext: queries that end from now on end as planned."""
        changes = self.wait(at) + self.evaluate()
        self._context = Context.STOPPED_BY_APPLICATION
        self._state.apply_probe(ProbeReport(self.now, self.now, runs=(), context=self._context))
        return changes + self.evaluate()

    def wait(self, until: float) -> list[Change]:
        """Advance the time without an event."""
        self.now = max(self.now, until)
        changes: list[Change] = []
        last = int(self.now - self._began_at)
        while last > self._seen:
            # The longer a silence, the rarer the evaluations.
            stretch = max(self._stretch, self._evaluated - self._received)
            due = max(self._seen + 1, self._evaluated + stretch)
            self._seen = min(due, last)
            self._pending.append(self._state.snapshot(self._began_at + self._seen))
            if self._seen == due:
                changes += self._evaluate(due)
                self._evaluated = due
        return changes

    def evaluate(self) -> list[Change]:
        """Evaluate now, however little time has passed."""
        self._pending.append(self._state.snapshot(self.now))
        passed = self.now - self._began_at
        changes = self._evaluate(math.ceil(passed))
        self._evaluated = int(passed)
        return changes

    def _has_news(self, query_id: str) -> bool:
        """Whether the findings of one query, evaluated alone, have changed.

        Without an event that is possible only if the query was silent for long, has a trend
        under way, or must read rows.
        """
        query = self._state.query(query_id)
        if query is None:
            return False
        silence = self.now - self._last_received.get(query_id, -math.inf)
        is_brief = silence <= self._stretch
        if is_brief and not self._expects_rows and not query.trends.under_way:
            return False
        snapshot = self._state.snapshot(self.now)
        expected = tuple(name for name in self._policy.expected if name == query.name)
        evaluation = evaluate(
            replace(snapshot, queries=(query,)), self.now, replace(self._policy, expected=expected)
        )
        shown = UNNAMED if query.is_unnamed else query.label
        before = {alertname for alertname, label in self._firing if label == shown}
        return before != {finding.alertname for finding in evaluation.findings}

    def _evaluate(self, end: int) -> list[Change]:
        """Evaluate the last pending second and, if it shows a change, search the others."""
        changes = self._search(min(self._evaluated, end), end, self._evaluation(end))
        self._pending.clear()
        if self.now - self._forgot_at >= FORGET_EVERY_SECONDS:
            self._forget()
        return changes

    def _search(self, begin: int, end: int, evaluation: Evaluation) -> list[Change]:
        """The changes between two seconds; a binary search finds that of each change."""
        if end - begin > 1 and _found(evaluation) != self._firing.keys():
            middle = (begin + end) // 2
            changes = self._search(begin, middle, self._evaluation(middle))
            return changes + self._search(middle, end, evaluation)
        return list(self._report(evaluation, self._pending_at(end)[0]))

    def _evaluation(self, second: int) -> Evaluation:
        at, snapshot = self._pending_at(second)
        return evaluate(snapshot, at, self._policy)

    def _pending_at(self, second: int) -> tuple[float, Snapshot]:
        """The time and snapshot of a pending second; the last one may be incomplete."""
        at, last = self._began_at + second, self._pending[-1]
        if at >= last.at:
            return last.at, last
        return at, self._pending[bisect_left(self._pending, at, key=lambda snapshot: snapshot.at)]

    def _forget(self) -> None:
        self._forgot_at = self.now
        self._state.forget(self.now)
        query_ids = {query.query_id for query in self._state.snapshot(self.now).queries}
        self._last_received = {
            key: at for key, at in self._last_received.items() if key in query_ids
        }

    def _report(self, evaluation: Evaluation, now: float) -> Iterator[Change]:
        """The alerts that opened or resolved since the last evaluation.

        A replay evaluates rules, not messages: an alert is open for as long as its finding holds.
        """
        before = self._firing
        self._firing = {
            (finding.alertname, finding.query): finding for finding in evaluation.findings
        }
        urgency = _urgency(before.values())
        self.notifications += sum(
            rank > urgency.get(query, 0) for query, rank in _urgency(evaluation.findings).items()
        )
        for key, finding in before.items():
            if key not in self._firing:
                yield self._change(RESOLVED, finding, now)
        for key, finding in self._firing.items():
            if key not in before:
                self.opened += 1
                yield self._change(FIRING, finding, now)

    def _change(self, status: str, finding: Finding, now: float) -> Change:
        return Change(
            at=iso(now),
            status=status,
            alertname=finding.alertname,
            query=finding.query,
            severity=finding.severity.value,
            reason=finding.reason,
            app=self._app,
        )


def _urgency(findings: Iterable[Finding]) -> dict[str, int]:
    """By query, how urgent its incident is, which holds all its alerts."""
    urgency: dict[str, int] = {}
    for finding in findings:
        rank = 2 if finding.severity is Severity.CRITICAL else 1
        urgency[finding.query] = max(rank, urgency.get(finding.query, 0))
    return urgency


def _found(evaluation: Evaluation) -> set[tuple[str, str]]:
    return {(finding.alertname, finding.query) for finding in evaluation.findings}


def _seconds(policy: Policy) -> list[tuple[str, float]]:
    """Every time limit that is set. At an end, to which a grace of 0 applies, all is evaluated; not
    so at a start.
    """
    limits = [msgspec.structs.asdict(policy.defaults), *(own for _, own in policy.overrides)]
    return [
        (name, value)
        for own in limits
        for name, value in own.items()
        if name.endswith("_seconds") and (value or name == "start_grace_seconds")
    ]


# -- replaying --------------------------------------------------------------------------------
# Replays one application: reads its files line by line and evaluates their events.


class Replay:
    """One application, to be replayed once; ``app_name`` overrides its name."""

    def __init__(self, application: Application, policy: Policy, app_name: str | None) -> None:
        self.replayed = Replayed(app_name or application.label, application.path)
        """The counts and times so far."""
        self._files = application.files
        self._policy = policy
        self._app_name = app_name
        self._reader = Reader()
        self._engine: ReplayEngine | None = None

    def changes(self, on_read: Callable[[int], object]) -> Iterator[Change]:
        """Replay from beginning to end; ``on_read`` receives the number of bytes of each read.

        Raises:
            NotInstalledError: a file's codec needs a package that is not installed.

        """
        replayed, reader = self.replayed, self._reader
        try:
            for file in self._files:
                for entry in reader.entries(read_lines(Path(file), on_read)):
                    yield from self._take(entry)
        except ReplayError as error:
            replayed.error = str(error)
        if self._engine is not None:
            yield from self._engine.wait(reader.newest_time() or self._engine.now)
            yield from self._finish(self._engine)
        replayed.unread = reader.unread
        if replayed.error is None and reader.unread and not reader.understood:
            replayed.error = f"{replayed.path}: neither an event log nor recorded events"

    def _take(self, entry: Entry) -> list[Change]:
        engine = self._engine
        if isinstance(entry, Began):
            changes = self._finish(engine) if engine is not None else []
            self.replayed.app = self._app_name or entry.name or self.replayed.app
            self._engine = None if entry.at is None else self._start(entry.at)
            return changes
        at = entry.at if entry.at is not None or engine is None else engine.now
        if at is None:
            return []
        engine = engine or self._start(at)
        if isinstance(entry, Stopped):
            return engine.stop(at)
        self.replayed.events += 1
        return engine.apply(entry.event, at)

    def _start(self, at: float) -> ReplayEngine:
        """Start an evaluation; a file with several applications has several."""
        self._engine = ReplayEngine(self._policy, self.replayed.app, at)
        self.replayed.began_at = min(at, self.replayed.began_at or at)
        return self._engine

    def _finish(self, engine: ReplayEngine) -> list[Change]:
        """Evaluate the last events, and add up the totals."""
        changes, replayed = engine.evaluate(), self.replayed
        replayed.ended_at = max(engine.now, replayed.ended_at or engine.now)
        replayed.opened += engine.opened
        replayed.notifications += engine.notifications
        return changes
