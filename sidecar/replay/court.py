"""Judges one application as if live, on the clock of its log. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ...alerting.alert import Alert, Alerts
from ...alerting.evaluate import Judgement, evaluate
from ...alerting.policy import Policy
from ...alerting.rules import commit_stalled
from ...listener.events import Event, Terminated
from ...listener.probing import Context, ProbeReport
from ...listener.snapshot import Snapshot
from ...listener.state import State
from .changes import FIRING, RESOLVED, Change, Stall, iso

TICK_SECONDS = 1.0
"""How exactly the time of an alert is told."""
STRETCH_SECONDS = 15.0
"""The longest silence that is judged by its end alone, unless that shows a change."""
FORGET_EVERY_SECONDS = 60.0


class Court:
    """Hears what a log says, in its order, and tells what changed.

    Times are Unix seconds of the log and go forward only; the state takes them for monotonic
    ones. No probe was there: stalls are judged by events alone, and no trigger is known.
    """

    def __init__(self, policy: Policy, app: str, began_at: float) -> None:
        self.now = began_at
        self.opened = 0
        self.longest_stall: Stall | None = None
        self._app = app
        self._policy = policy
        self._state = State(began_at)
        self._context = Context.RUNNING
        self._alerts = Alerts(app, "")
        self._firing: dict[str, Alert] = {}
        self._found: set[tuple[str, str]] = set()
        self._heard_at = self._judged_at = self._forgot_at = began_at
        self._patience = _longest_limit(policy)
        self._window = 0.0

    def hear(self, event: Event, at: float) -> Iterator[Change]:
        """Take in an event, after judging the silence before it."""
        yield from self.wait(at)
        self._heard_at = self.now
        self._state.hear(event, self.now, self._context)
        if isinstance(event, Terminated):
            yield from self.judge()

    def stop(self, at: float) -> Iterator[Change]:
        """The application stops its own SparkContext: what ends from now on was meant to."""
        yield from self.wait(at)
        self._context = Context.STOPPED_BY_APPLICATION
        self._state.look(ProbeReport(self.now, self.now, runs=(), context=self._context))
        yield from self.judge()

    def wait(self, until: float) -> Iterator[Change]:
        """Let time pass in which nothing is heard."""
        self.now = max(self.now, until)
        while self.now - self._judged_at >= TICK_SECONDS:
            end = min(self._judged_at + STRETCH_SECONDS, self.now)
            if self._judged_at - self._heard_at > self._patience + self._window + STRETCH_SECONDS:
                # Every window and every grace is over: only an event can change anything.
                end = self.now
            yield from self._settle(max(self._judged_at, self._heard_at), end)

    def judge(self) -> Iterator[Change]:
        """Judge now, however little time has passed."""
        yield from self._settle(self.now, self.now)

    def _settle(self, since: float, until: float) -> Iterator[Change]:
        """Judge ``until``; if that shows a change, find the tick at which it came."""
        if until - self._forgot_at >= FORGET_EVERY_SECONDS:
            self._forgot_at = until
            self._state.forget(until)
        snapshot = self._state.snapshot(until)
        judgement = evaluate(snapshot, until, self._policy)
        found = {(finding.alertname, finding.query) for finding in judgement.findings}
        if found != self._found and until - since > TICK_SECONDS:
            middle = (since + until) / 2
            yield from self._settle(since, middle)
            yield from self._settle(middle, until)
            return
        self._found = found
        self._judged_at = until
        self._note(snapshot, judgement)
        yield from self._tell(judgement, until)

    def _note(self, snapshot: Snapshot, judgement: Judgement) -> None:
        """Remember the longest window, and the longest stall of all."""
        windows = (verdict.window_seconds for verdict in judgement.verdicts.values())
        self._window = max((seconds for seconds in windows if seconds), default=0.0)
        for alertname, label in self._found:
            if alertname == commit_stalled.NAME:
                silence = snapshot.at - snapshot.labels()[label].last_sign_at
                if self.longest_stall is None or silence > self.longest_stall.seconds:
                    self.longest_stall = Stall(label, silence)

    def _tell(self, judgement: Judgement, now: float) -> Iterator[Change]:
        """What is resolved and what opened since the last judgement."""
        before = self._firing
        self._firing = {alert.key: alert for alert in self._alerts.update(judgement.findings, now)}
        for key, alert in before.items():
            if key not in self._firing:
                yield self._change(RESOLVED, alert, now)
        for key, alert in self._firing.items():
            if key not in before:
                self.opened += 1
                yield self._change(FIRING, alert, now)

    def _change(self, status: str, alert: Alert, now: float) -> Change:
        return Change(
            at=iso(now),
            status=status,
            alertname=alert.name,
            query=alert.labels["query"],
            severity=alert.labels["severity"],
            reason=alert.annotations["reason"],
            app=self._app,
        )


def _longest_limit(policy: Policy) -> float:
    """The longest time that any limit names, in seconds."""
    limits = [msgspec.structs.asdict(policy.defaults), *(own for _, own in policy.overrides)]
    times = (value for own in limits for name, value in own.items() if name.endswith("_seconds"))
    return max(times, default=0.0)
