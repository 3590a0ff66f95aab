"""Rules about the driver and the signals, not about a single query."""

from __future__ import annotations

from collections.abc import Iterator

from ...listener.probe_report import Context, ListenerHealth
from ...listener.state.query import Query
from ...listener.state.snapshot import Snapshot
from ..facts import AttemptLost, Degraded, EventsMissing, JvmEnded
from ..finding import WHOLE_DRIVER, Finding, Severity, finding_about
from ..kinds import DRIVER_DOWN, EVENTS_MISSING, MONITORING_DEGRADED
from ..policy import Policy

# -- driver down --------------------------------------------------------------------------------


def driver_down(snapshot: Snapshot, now: float, policy: Policy) -> Finding | None:
    """``StreamingDriverDown``, detected from inside: the JVM has ended, but Python still runs.

    It fires immediately: a JVM that has ended does not come back. If several processes watch the
    JVM, each one reports the queries it is responsible for. ``querypulse watch`` detects from
    outside that Python has ended too; both raise the same alert. Where somebody has announced the
    end of the driver, Python has ``gone_grace_seconds`` to end, too.

    Where the attempt before this one ended without a report, this one reports it.
    """
    if snapshot.context is not Context.JVM_GONE:
        lost = snapshot.lost_attempt
        return None if lost is None else _is_down(AttemptLost(attempt=lost))
    gone_at = now if snapshot.context_stopped_at is None else snapshot.context_stopped_at
    is_recent = snapshot.watched(gone_at, now) <= policy.defaults.gone_grace_seconds
    if snapshot.end_expected and is_recent:
        return None
    died = sorted(_died(snapshot, policy))
    if not died and not snapshot.ownership.is_eldest:
        return None
    return _is_down(JvmEnded(queries=tuple(died)))


def _is_down(found: JvmEnded | AttemptLost) -> Finding:
    return finding_about(WHOLE_DRIVER, DRIVER_DOWN, Severity.CRITICAL, found)


def _died(snapshot: Snapshot, policy: Policy) -> Iterator[str]:
    for label, query in snapshot.labels().items():
        ignored = policy.limits(query.base_name).ignore
        if query.run.alive and not ignored and snapshot.ownership.covers(query.run.session):
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
    late, seconds = _unreported(snapshot, now, window)
    dropped = _dropped(snapshot, now, window)
    if not late and dropped is None:
        return None
    listener = snapshot.probe.listener if snapshot.probe is not None else ListenerHealth()
    found = EventsMissing(
        late=tuple(late),
        late_seconds=seconds,
        dropped=dropped,
        is_registered=listener.registered,
        full_queues=tuple(map(str, listener.full_queues)),
    )
    return finding_about(WHOLE_DRIVER, EVENTS_MISSING, Severity.WARNING, found)


def _unreported(snapshot: Snapshot, now: float, window: float) -> tuple[list[str], float]:
    """The queries whose commits no event has reported for too long, and the longest wait."""
    waits = {
        label: snapshot.watched(query.run.unreported.since, now)
        for label, query in snapshot.labels().items()
        if query.run.alive and query.run.unreported is not None
    }
    late = sorted(label for label, seconds in waits.items() if seconds > window)
    return late, max((waits[label] for label in late), default=0.0)


def _dropped(snapshot: Snapshot, now: float, window: float) -> int | None:
    """How many events Spark has dropped, if it has lately."""
    at = snapshot.events_dropped_at
    probe = snapshot.probe
    if at is None or probe is None or snapshot.watched(at, now) > window:
        return None
    return probe.listener.dropped_events


# -- monitoring degraded ------------------------------------------------------------------------


def monitoring_degraded(
    snapshot: Snapshot, now: float, policy: Policy, failed_rules: tuple[str, ...] = ()
) -> Finding | None:
    """Fire for the whole driver when querypulse cannot read one of its signals.

    ``failed_rules`` have raised an error, which is a bug in querypulse.
    """
    silent_seconds = None
    unread: tuple[tuple[str, str], ...] = ()
    if policy.probe_expected and snapshot.context is Context.RUNNING:
        silent_seconds = _probe_silent(snapshot, now, policy)
        unread = tuple(_logs_unread(snapshot, now, policy))
    if not failed_rules and silent_seconds is None and not unread:
        return None
    return _degraded(
        Degraded(
            failed_rules=failed_rules, silent_seconds=silent_seconds, unread_checkpoints=unread
        )
    )


def rules_failed(failed_rules: tuple[str, ...]) -> Finding:
    """Return what is left to report if this rule itself has raised an error."""
    return _degraded(Degraded(failed_rules=failed_rules))


def _degraded(found: Degraded) -> Finding:
    return finding_about(WHOLE_DRIVER, MONITORING_DEGRADED, Severity.WARNING, found)


def _probe_silent(snapshot: Snapshot, now: float, policy: Policy) -> float | None:
    """For how long the probe has had no answer, if that is too long."""
    last = snapshot.probe.at if snapshot.probe is not None else snapshot.began_at
    silent = snapshot.watched(last, now)
    return silent if silent > policy.defaults.stall_floor_seconds else None


def _logs_unread(snapshot: Snapshot, now: float, policy: Policy) -> Iterator[tuple[str, str]]:
    """The queries whose checkpoints cannot be read, and why."""
    if snapshot.probe is not None and not snapshot.probe.listener.checkpoints_visible:
        return
    why = snapshot.log.unreadable if snapshot.log is not None else {}
    for label, query in snapshot.labels().items():
        facts = query.run.facts
        if not query.run.alive or facts is None:
            continue
        needs_log = facts.trigger.is_continuous or facts.async_progress
        if needs_log and _is_unread(snapshot, query, now, policy):
            yield label, why.get(query.run.run_id, "no answer")


def _is_unread(snapshot: Snapshot, query: Query, now: float, policy: Policy) -> bool:
    limits = policy.limits(query.base_name)
    if query.run.logged_at is None:
        grace = max(limits.stall_floor_seconds, limits.start_grace_seconds)
        return snapshot.watched(query.run.started_at, now) > grace
    return snapshot.watched(query.run.logged_at, now) > limits.stall_floor_seconds
