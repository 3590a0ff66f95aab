"""Judges one application as if live, on the clock of its log. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from ...alerting.evaluate import Judgement, evaluate
from ...alerting.finding import Finding
from ...alerting.policy import Policy
from ...alerting.rules import commit_stalled
from ...listener.events import Event, Started, Terminated
from ...listener.probing import Context, ProbeReport
from ...listener.snapshot import Snapshot
from ...listener.state import State
from .changes import FIRING, RESOLVED, Change, Stall, iso, longest

TICK_SECONDS = 1.0
"""How exactly the time of an alert is told."""
MAX_STRETCH_SECONDS = 15.0
"""So long a stretch is judged by its last tick alone, unless that one shows a change."""
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
        self._firing: dict[tuple[str, str], Finding] = {}
        self._found: set[tuple[str, str]] = set()
        self._pending: list[Snapshot] = []
        self._last_heard: dict[str, float] = {}
        self._heard_at = self._ticked_at = self._forgot_at = began_at
        limits = _seconds(policy)
        # Nothing comes and goes within a stretch that is shorter than every limit.
        self._stretch = max(TICK_SECONDS, min(MAX_STRETCH_SECONDS, *limits))
        self._patience = MAX_STRETCH_SECONDS + max(limits)
        self._window = 0.0

    def hear(self, event: Event, at: float) -> Iterator[Change]:
        """Take in an event, after judging the silence before it."""
        yield from self.wait(at)
        silence = self.now - self._last_heard.get(event.query_id, -math.inf)
        if silence > self._stretch or isinstance(event, (Started, Terminated)):
            # What this event may heal, or begin anew, must be seen before it is heard.
            yield from self.judge()
        self._heard_at = self._last_heard[event.query_id] = self.now
        self._state.hear(event, self.now, self._context)
        if isinstance(event, Terminated):
            yield from self.judge()

    def stop(self, at: float) -> Iterator[Change]:
        """The application stops its own SparkContext: what ends from now on was meant to."""
        yield from self.wait(at)
        yield from self.judge()
        self._context = Context.STOPPED_BY_APPLICATION
        self._state.look(ProbeReport(self.now, self.now, runs=(), context=self._context))
        yield from self.judge()

    def wait(self, until: float) -> Iterator[Change]:
        """Let time pass in which nothing is heard."""
        self.now = max(self.now, until)
        while self.now - self._ticked_at >= TICK_SECONDS:
            # Once every window and every grace is over, only an event can change anything.
            settled = self._ticked_at - self._heard_at > self._patience + self._window
            self._ticked_at = self.now if settled else self._ticked_at + TICK_SECONDS
            self._pending.append(self._state.snapshot(self._ticked_at))
            if settled or len(self._pending) * TICK_SECONDS >= self._stretch:
                yield from self._judge()

    def judge(self) -> Iterator[Change]:
        """Judge now, however little time has passed."""
        self._pending.append(self._state.snapshot(self.now))
        yield from self._judge()

    def _judge(self) -> Iterator[Change]:
        """Judge the last of the pending ticks, and each of them where that shows a change."""
        *earlier, last = self._pending
        self._pending = []
        judgement = evaluate(last, last.at, self._policy)
        if _found(judgement) != self._found:
            for tick in earlier:
                yield from self._pass(tick, evaluate(tick, tick.at, self._policy))
        yield from self._pass(last, judgement)
        if self.now - self._forgot_at >= FORGET_EVERY_SECONDS:
            self._forget()

    def _pass(self, tick: Snapshot, judgement: Judgement) -> Iterator[Change]:
        self._found = _found(judgement)
        self._note(tick, judgement)
        yield from self._tell(judgement, tick.at)

    def _forget(self) -> None:
        self._forgot_at = self.now
        self._state.forget(self.now)
        known = {query.query_id for query in self._state.snapshot(self.now).queries}
        self._last_heard = {key: at for key, at in self._last_heard.items() if key in known}

    def _note(self, snapshot: Snapshot, judgement: Judgement) -> None:
        """Remember the longest window, and the longest stall of all."""
        windows = (verdict.window_seconds for verdict in judgement.verdicts.values())
        self._window = max((seconds for seconds in windows if seconds), default=0.0)
        for alertname, label in self._found:
            if alertname == commit_stalled.NAME:
                silence = snapshot.at - snapshot.labels()[label].last_sign_at
                self.longest_stall = longest((self.longest_stall, Stall(label, silence)))

    def _tell(self, judgement: Judgement, now: float) -> Iterator[Change]:
        """What is resolved and what opened since the last judgement.

        A replay judges rules, not messages: an alert is open for as long as its finding holds.
        """
        before = self._firing
        self._firing = {(found.alertname, found.query): found for found in judgement.findings}
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


def _found(judgement: Judgement) -> set[tuple[str, str]]:
    return {(finding.alertname, finding.query) for finding in judgement.findings}


def _seconds(policy: Policy) -> list[float]:
    """Every time that a limit names."""
    limits = [msgspec.structs.asdict(policy.defaults), *(own for _, own in policy.overrides)]
    return [value for own in limits for name, value in own.items() if name.endswith("_seconds")]
