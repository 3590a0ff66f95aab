"""Rules about the driver and the signals, not about a single query."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.states import QueryState
from ...core.text import listed
from ...listener.probe_report import Context
from ...listener.state.query import Query
from ...listener.state.snapshot import Snapshot
from ..finding import (
    DRIVER_DOWN,
    EVENTS_MISSING,
    MONITORING_DEGRADED,
    WHOLE_DRIVER,
    Finding,
    Severity,
)
from ..policy import Policy

# -- driver down --------------------------------------------------------------------------------

MAX_NAMED = 20
JVM_ENDED = "the JVM of the driver has ended"


def driver_down(snapshot: Snapshot, now: float, policy: Policy) -> Finding | None:
    """``StreamingDriverDown``, detected from inside: the JVM has ended, but Python still runs.

    It fires immediately: a JVM that has ended does not come back. If several processes watch the
    JVM, each one reports the queries it is responsible for. ``querypulse watch`` detects from
    outside that Python has ended too; both raise the same alert.
    """
    del now
    if snapshot.context is not Context.JVM_GONE:
        return None
    died = sorted(_died(snapshot, policy))
    if not died and not snapshot.ownership.is_eldest:
        return None
    count = f"{len(died)} streaming {'query' if len(died) == 1 else 'queries'}"
    ended = f"{JVM_ENDED}, and {count} with it" if died else f"{JVM_ENDED}; no query was running"
    reason = f"{ended}: {listed(died, MAX_NAMED)}" if died else ended
    summary = f"driver is down: {reason}"
    critical, state = Severity.CRITICAL, QueryState.MISSING
    return Finding(DRIVER_DOWN, WHOLE_DRIVER, critical, state, reason, summary, {})


def _died(snapshot: Snapshot, policy: Policy) -> Iterator[str]:
    for label, query in snapshot.labels().items():
        ignored = policy.limits(query.base_name).ignore
        if query.alive and not ignored and snapshot.ownership.covers(query.session):
            yield label


# -- events missing -----------------------------------------------------------------------------


def events_missing(snapshot: Snapshot, now: float, policy: Policy) -> Finding | None:
    """``QuerypulseEventsMissing``: the probe sees commits without events, or Spark drops events.

    Spark has one serial, bounded queue for all listeners: another slow listener delays our events,
    and a full queue drops them, of all queries. The probe still detects failures, but metrics and
    trends become stale.
    """
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
    return Finding(EVENTS_MISSING, WHOLE_DRIVER, warning, state, reason, summary, facts)


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


# -- monitoring degraded ------------------------------------------------------------------------


def monitoring_degraded(
    snapshot: Snapshot, now: float, policy: Policy, failed_rules: tuple[str, ...] = ()
) -> Finding | None:
    """Fire for the whole driver when querypulse cannot read one of its signals.

    ``failed_rules`` have raised an error, which is a bug in querypulse.
    """
    texts = [_failed_text(failed_rules)] if failed_rules else []
    if policy.probe_expected and snapshot.context is Context.RUNNING:
        texts += [_probe_silent(snapshot, now, policy), _logs_unread(snapshot, now, policy)]
    reason = "; ".join(text for text in texts if text)
    return _degraded(reason) if reason else None


def rules_failed(failed_rules: tuple[str, ...]) -> Finding:
    """What is left to report if this rule itself has raised an error."""
    return _degraded(_failed_text(failed_rules))


def _failed_text(failed_rules: tuple[str, ...]) -> str:
    return f"rules that fail: {', '.join(failed_rules)}"


def _degraded(reason: str) -> Finding:
    summary = f"querypulse cannot see every query: {reason}"
    warning, state = Severity.WARNING, QueryState.RUNNING
    return Finding(MONITORING_DEGRADED, WHOLE_DRIVER, warning, state, reason, summary, {})


def _probe_silent(snapshot: Snapshot, now: float, policy: Policy) -> str:
    last = snapshot.probe.at if snapshot.probe is not None else snapshot.began_at
    silent = snapshot.watched(last, now)
    if silent <= policy.defaults.stall_floor_seconds:
        return ""
    return f"the JVM has not answered the probe for {silent:.0f} s"


def _logs_unread(snapshot: Snapshot, now: float, policy: Policy) -> str:
    if snapshot.probe is not None and not snapshot.probe.listener.checkpoints_visible:
        return ""
    why = snapshot.log.unreadable if snapshot.log is not None else {}
    unread = [
        f"{label}: {why.get(query.run_id, 'no answer')}"
        for label, query in snapshot.labels().items()
        if query.alive
        and (facts := query.facts) is not None
        and (facts.trigger.is_continuous or facts.async_progress)
        and _is_unread(snapshot, query, now, policy)
    ]
    return f"checkpoints cannot be read: {'; '.join(unread)}" if unread else ""


def _is_unread(snapshot: Snapshot, query: Query, now: float, policy: Policy) -> bool:
    limits = policy.limits(query.base_name)
    if query.logged_at is None:
        grace = max(limits.stall_floor_seconds, limits.start_grace_seconds)
        return snapshot.watched(query.started_at, now) > grace
    return snapshot.watched(query.logged_at, now) > limits.stall_floor_seconds
