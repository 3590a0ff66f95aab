"""Replays one application: evaluates its files as if live, by the clock of its log."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ..alerting.alert import FIRING, RESOLVED, Alert, Incident
from ..alerting.evaluate import Evaluation, evaluate
from ..alerting.incidents.lifecycle import Evaluated, Held, Lifecycle, LifecycleSettings
from ..alerting.policy import Policy
from ..alerting.silences import Silence
from ..alerting.words.messages import Guidance
from ..listener.events import Event, Started, Terminated
from ..listener.probe_report import Context, ProbeReport
from ..listener.state.identity import UNNAMED
from ..listener.state.snapshot import Snapshot
from ..listener.state.state import State
from .log_files import Application, Entry, Reader, ReplayError, read_lines
from .recordings import AppRecordings, Recordings

# -- results ---------------------------------------------------------------------------------


class Change(msgspec.Struct, frozen=True):
    """One alert opened or resolved; ``at`` is ISO 8601 in UTC, to the millisecond."""

    at: str
    status: str
    alertname: str
    query: str
    severity: str
    reason: str
    app: str


class Replayed(msgspec.Struct):
    """One application, while it is evaluated and after; times in Unix seconds, None if unknown.

    ``error`` says why the log could not be read to its end.
    """

    app: str
    path: str
    events: int = 0
    unread: int = 0
    began_at: float | None = None
    ended_at: float | None = None
    opened: int = 0
    notifications: int = 0
    """How often people would have been notified."""
    error: str | None = None
    notes: tuple[str, ...] = ()
    """What is less exact than usual."""
    is_recording: bool = False


def iso(seconds: float) -> str:
    """Unix seconds as Spark writes times: ``2026-11-21T10:36:51.898Z``."""
    moment = datetime.fromtimestamp(seconds, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# -- engine -----------------------------------------------------------------------------------
# Evaluates one application as if live, by the clock of its log.


LONGEST_STRETCH = 60
"""A stretch of up to so many seconds is evaluated at its end only, unless that shows a change."""
LONGEST_SILENCE_STRETCH = 3600
"""The same in a long silence: a reminder is late by no more."""
FORGET_EVERY_SECONDS = 60.0

NO_LINKS = Guidance("")

Identity = tuple[str, str]
"""The name of an alert, and its query."""


class Terms(msgspec.Struct, frozen=True):
    """What a replay evaluates by; ``app_name`` overrides the name in the log."""

    policy: Policy
    lifecycle: LifecycleSettings = LifecycleSettings()
    app_name: str | None = None
    labels: Mapping[str, str] = {}
    guidance: Guidance = NO_LINKS


class Reporter:
    """Opens and ends alerts as a driver does, and reports each change.

    ``replayed`` gets the counts, ``recordings`` all that was found. Where ``subject`` is not empty,
    only its incidents count.
    """

    def __init__(
        self,
        terms: Terms,
        replayed: Replayed,
        recordings: AppRecordings | None = None,
        subject: str = "",
    ) -> None:
        self.lifecycle = Lifecycle(replayed.app, terms.guidance, terms.lifecycle, terms.labels)
        self._replayed = replayed
        self._recordings = recordings
        self._subject = subject
        self._open: dict[Identity, Alert] = {}
        self._notified: dict[str, int] = {}
        """By key of an open incident: the revision that people were notified of."""

    def update(
        self,
        evaluation: Evaluation,
        snapshot: Snapshot,
        wall: float,
        silences: Sequence[Silence] = (),
        *,
        is_last: bool = False,
    ) -> list[Change]:
        """The alerts that this evaluation, at Unix time ``wall``, opens or ends."""
        before = Held() if self._recordings is None else self.lifecycle.held
        incidents = self.lifecycle.update(
            evaluation, snapshot, snapshot.at, wall, silences, is_last=is_last
        )
        sent = list(self._sent(incidents))
        self._replayed.notifications += sum(not incident.is_over for incident in sent)
        if self._recordings is not None:
            evaluated = Evaluated(
                snapshot,
                evaluation,
                self.lifecycle.alerts,
                self.lifecycle.inhibited,
                wall=wall,
                incidents=incidents,
                opened=self.lifecycle.opened,
                before=before,
            )
            self._recordings.update(evaluated, sent)
        open_before = self._open
        self._open = {
            (alert.name, alert.query): alert
            for alert in self.lifecycle.alerts
            if self._is_meant(alert.incident or alert.query)
        }
        ended = [alert for identity, alert in open_before.items() if identity not in self._open]
        opened = [alert for identity, alert in self._open.items() if identity not in open_before]
        self._replayed.opened += len(opened)
        return [
            *(self._change(RESOLVED, alert, wall) for alert in ended),
            *(self._change(FIRING, alert, wall) for alert in opened),
        ]

    def restore(self, incidents: Sequence[Incident], now: float) -> None:
        """Go on with what an earlier process left open, and has notified people of."""
        self.lifecycle.restore(incidents, now)
        self._notified |= {
            incident.key: incident.revision for incident in incidents if not incident.muted
        }

    def _is_meant(self, subject: str) -> bool:
        return self._subject in ("", subject)

    def _sent(self, incidents: Iterable[Incident]) -> Iterator[Incident]:
        """What people are notified of: news of open incidents, and the ends of those."""
        for incident in incidents:
            if not self._is_meant(incident.query):
                continue
            if incident.is_over:
                if self._notified.pop(incident.key, None) is not None:
                    yield incident
            elif not incident.muted and self._notified.get(incident.key) != incident.revision:
                self._notified[incident.key] = incident.revision
                yield incident

    def _change(self, status: str, alert: Alert, at: float) -> Change:
        return Change(
            at=iso(at),
            status=status,
            alertname=alert.name,
            query=alert.query,
            severity=alert.labels["severity"],
            reason=alert.annotations["reason"],
            app=self._replayed.app,
        )


class ReplayEngine:
    """Receives the events of a log in order, and returns the changes of alerts.

    Times are Unix seconds of the log and never go back; the state uses them as monotonic time.
    A log has no probe results: stalls are found by events alone, and no trigger is known.
    Alerts open and end as in a driver. ``replayed`` gets the counts, ``recordings`` all that was
    found.
    """

    def __init__(
        self,
        terms: Terms,
        replayed: Replayed,
        began_at: float,
        recordings: AppRecordings | None = None,
    ) -> None:
        policy = terms.policy
        self.now = began_at
        self._policy = policy
        self._state = State(began_at, policy.expected)
        self._context = Context.RUNNING
        self._reporter = Reporter(terms, replayed, recordings)
        self._recordings = recordings
        self._found: set[Identity] = set()
        """What the last evaluation found."""
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
        if isinstance(event, (Started, Terminated)) or self._has_news(event.query_id):
            # This event may end a problem or start a run: evaluate before applying it.
            changes += self.evaluate()
        self._received = self._seen
        self._state.apply_event(event, self.now, self._context)
        return changes + self.evaluate() if isinstance(event, Terminated) else changes

    def receive(self, event: Event, text: str | bytes, at: float) -> list[Change]:
        """Apply an event that was read from this JSON."""
        if self._recordings is not None:
            self._recordings.receive(event, text, max(at, self.now))
        return self.apply(event, at)

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
            due = max(self._seen + 1, self._evaluated + self._next_stretch())
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

    def close(self) -> list[Change]:
        """Evaluate the last events."""
        changes = self.evaluate()
        if self._recordings is not None:
            self._recordings.close(self.now)
        return changes

    def _next_stretch(self) -> int:
        """Seconds until the next evaluation: the longer a silence, the rarer they are."""
        pause = self._reporter.lifecycle.longest_pause_seconds
        silent = min(LONGEST_SILENCE_STRETCH, self._evaluated - self._received)
        return int(min(pause, max(self._stretch, silent)))

    def _has_news(self, query_id: str) -> bool:
        """Whether the findings of one query, evaluated alone, have changed.

        Without an event that is possible only if the query was silent for long, has a trend
        under way, or must read rows.
        """
        query = self._state.query(query_id)
        if query is None:
            return False
        is_brief = self.now - (query.run.last_event_at or -math.inf) <= self._stretch
        if is_brief and not self._expects_rows and not query.checkpoint.trends.under_way:
            return False
        snapshot = self._state.snapshot(self.now)
        expected = tuple(name for name in self._policy.expected if name == query.name)
        evaluation = evaluate(
            replace(snapshot, queries=(query,)), self.now, replace(self._policy, expected=expected)
        )
        shown = UNNAMED if query.is_unnamed else query.label
        before = {alertname for alertname, label in self._found if label == shown}
        return before != {finding.alertname for finding in evaluation.findings}

    def _evaluate(self, end: int) -> list[Change]:
        """Evaluate up to a pending second; while alerts open or end, each second before it, too."""
        second = min(self._evaluated, end)
        changes: list[Change] = []
        while True:
            second, evaluation = self._next(second, end)
            self._found = _identities(evaluation)
            snapshot = self._snapshot_at(second)
            changes += self._reporter.update(evaluation, snapshot, snapshot.at)
            if second == end:
                break
        self._pending.clear()
        if self.now - self._forgot_at >= FORGET_EVERY_SECONDS:
            self._forgot_at = self.now
            self._state.forget(self.now)
        return changes

    def _next(self, begin: int, end: int) -> tuple[int, Evaluation]:
        """The next second to evaluate, that of a change or the last one before it, and what it
        finds.
        """
        end = int(min(end, begin + self._reporter.lifecycle.longest_pause_seconds))
        evaluation = self._evaluation(end)
        if _identities(evaluation) == self._found:
            return end, evaluation
        before, unchanged = begin, evaluation
        while end - before > 1:
            middle = (before + end) // 2
            between = self._evaluation(middle)
            if _identities(between) == self._found:
                before, unchanged = middle, between
            else:
                end, evaluation = middle, between
        return (before, unchanged) if before > begin else (end, evaluation)

    def _evaluation(self, second: int) -> Evaluation:
        snapshot = self._snapshot_at(second)
        return evaluate(snapshot, snapshot.at, self._policy)

    def _snapshot_at(self, second: int) -> Snapshot:
        """The snapshot of a pending second; the last one may be incomplete."""
        at, last = self._began_at + second, self._pending[-1]
        if at >= last.at:
            return last
        index = bisect_left(self._pending, at, key=lambda snapshot: snapshot.at)
        return replace(self._pending[index], at=at)


def _identities(evaluation: Evaluation) -> set[Identity]:
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


def replay_application(
    application: Application,
    terms: Terms,
    replayed: Replayed,
    on_read: Callable[[int], object] = lambda _: None,
    recordings: Recordings | None = None,
) -> Iterator[Change]:
    """Evaluate one application from beginning to end; a file with several is evaluated in parts.

    ``replayed`` gets the counts and times so far, ``on_read`` the bytes of each read, and
    ``recordings`` each incident.

    Raises:
        NotInstalledError: a file's codec needs a package that is not installed.

    """
    reader = Reader()
    engine: ReplayEngine | None = None
    for at, what, text in _entries(application.files, reader, replayed, on_read):
        if isinstance(what, str):
            yield from _finish(engine, replayed)
            engine, replayed.app = None, terms.app_name or what or replayed.app
        if engine is None and at is not None:
            of_app = None if recordings is None else recordings.begin(replayed.app)
            engine = ReplayEngine(terms, replayed, at, of_app)
            replayed.began_at = min(at, replayed.began_at or at)
        if engine is None or isinstance(what, str):
            continue
        if what is None:
            yield from engine.stop(at or engine.now)
        else:
            replayed.events += 1
            yield from engine.receive(what, text, at or engine.now)
    if engine is not None:
        yield from engine.wait(reader.newest_time() or engine.now)
    yield from _finish(engine, replayed)


def _entries(
    files: Iterable[str], reader: Reader, replayed: Replayed, on_read: Callable[[int], object]
) -> Iterator[Entry]:
    try:
        for file in files:
            yield from reader.entries(read_lines(Path(file), on_read))
    except ReplayError as error:
        replayed.error = str(error)
    replayed.unread = reader.unread
    if replayed.error is None and reader.unread and not reader.understood:
        replayed.error = f"{replayed.path}: neither an event log nor recorded events"


def _finish(engine: ReplayEngine | None, replayed: Replayed) -> list[Change]:
    """Evaluate the last events."""
    if engine is None:
        return []
    replayed.ended_at = max(engine.now, replayed.ended_at or engine.now)
    return engine.close()
