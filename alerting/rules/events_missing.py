"""QuerypulseEventsMissing: the probe sees commits that no event reports, or Spark drops events.

Spark has one serial, bounded queue for all listeners: another slow listener delays our events, and
a full queue drops them. The probe still detects failures, but metrics and trends become stale.
"""

from __future__ import annotations

from ...core.states import QueryState
from ...listener.probe import Context
from ...listener.state.snapshot import Snapshot
from ..finding import WHOLE_DRIVER, Finding, Severity
from ..policy import Policy

NAME = "QuerypulseEventsMissing"


def check(snapshot: Snapshot, now: float, policy: Policy) -> Finding | None:
    """Fire for the whole driver: all its queries share one queue."""
    if snapshot.context is not Context.RUNNING:
        return None
    window = policy.defaults.stall_floor_seconds
    texts = _unreported(snapshot, now, window), _dropped(snapshot, now, window)
    reason = "; ".join(text for text in texts if text)
    if not reason:
        return None
    summary = f"querypulse does not receive Spark's events: {reason}"
    is_there = snapshot.probe is not None and snapshot.probe.listener.registered
    facts = {"listener_registered": "yes" if is_there else "no: it was removed from Spark"}
    warning, state = Severity.WARNING, QueryState.RUNNING
    return Finding(NAME, WHOLE_DRIVER, warning, state, reason, summary, facts)


def _unreported(snapshot: Snapshot, now: float, window: float) -> str:
    waits = {
        label: snapshot.watched(query.unreported.since, now)
        for label, query in snapshot.labels().items()
        if query.alive and query.unreported is not None
    }
    late = sorted(label for label, seconds in waits.items() if seconds > window)
    if not late:
        return ""
    longest = max(waits[label] for label in late)
    return f"the probe saw commits that no event reported for {longest:.0f} s: {', '.join(late)}"


def _dropped(snapshot: Snapshot, now: float, window: float) -> str:
    at, probe = snapshot.events_dropped_at, snapshot.probe
    if at is None or probe is None or snapshot.watched(at, now) > window:
        return ""
    return f"Spark's listener queue has dropped {probe.listener.dropped_events} events"
