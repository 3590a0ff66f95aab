"""StreamingQueryStalled: alive, no commit for the window W, and no proof of idleness.

The reason says how:

* ``batch_hung``: a batch is in flight and none of its tasks has finished for W;
* ``task_running``, ``no_executors``, ``waiting_for_slots``: the same, and Spark runs a task of it,
  has no executor, or has given all slots to others; these are warnings at first;
* ``source_hung``: the query has been asking a source for offsets for W;
* ``no_trigger``: nothing is in flight and no trigger has come;
* ``commit_log_behind``: the checkpoint's commit log stands, though batches go on (async
  progress tracking) or epochs should (Continuous);
* ``silent``: neither events nor the probe tell anything.
"""

from __future__ import annotations

from msgspec.structs import replace

from ...listener.query import InFlight
from .. import over_restarts, stuck_batch
from ..case import Case
from ..evidence import evidence
from ..finding import Finding, Severity, State
from ..headline import code_last
from ..on_restart import on_restart

NAME = "StreamingQueryStalled"
SHARED_SILENCE = "the JVM does not answer"
MIN_LOOKS = 2


def check(case: Case) -> Finding | None:
    """Fire when the query has shown no sign of life for longer than its window."""
    if not case.is_running:
        return None
    reason = _log_behind(case) or (_epochs_stopped(case) if _is_continuous(case) else None)
    if reason is not None:
        return _finding(case, reason)
    reason = None if _is_continuous(case) else _stall_reason(case)
    if reason is None:
        return None
    flight, reason = case.query.in_flight, over_restarts.with_age(reason, case)
    if flight is None or case.probe_is_stale or _waits_for_log(case):
        return _finding(case, reason)
    severity = stuck_batch.stall_severity(case, flight)
    told = stuck_batch.batch_evidence(case, severity) | on_restart(case.query)
    return replace(_finding(case, reason), severity=severity, evidence=told)


def _finding(case: Case, reason: str) -> Finding:
    return Finding(
        alertname=NAME,
        query=case.label,
        severity=Severity.CRITICAL,
        state=State.STALLED,
        reason=reason,
        summary=f"{case.label} is stalled: {code_last(reason)}",
        evidence=evidence(case) | on_restart(case.query),
        cause=SHARED_SILENCE if case.driver_is_silent else "",
    )


def _is_continuous(case: Case) -> bool:
    return case.query.facts is not None and case.query.facts.trigger.is_continuous


def _epochs_stopped(case: Case) -> str | None:
    """Continuous tells nothing but its log: without having read it, nothing can be said."""
    query = case.query
    if query.logged_at is None or case.probe_is_stale:
        return None
    unseen = case.watched_since(query.logged_at)
    silence = case.watched_since(query.last_sign_at) - unseen
    if silence <= case.window.seconds:
        return None
    return f"commit_log_behind: no epoch committed for {silence:.0f} s"


def _log_behind(case: Case) -> str | None:
    """Async progress tracking: batches went on at look after look, the log did not.

    A log that is written rarely may stand as long as that takes, while batches come. Spark
    itself blocks when too much waits to be written; only idleness excuses a log then.
    """
    lag, facts = case.query.log_behind, case.query.facts
    if lag is None or lag.looks < MIN_LOOKS or facts is None or _idle_since_commit(case):
        return None
    stood = case.watched_since(lag.since) - _in_flight(case)
    allowed = case.window.seconds
    if case.batches_come:
        allowed = max(allowed, facts.log_interval_seconds * (case.limits.stall_tolerance + 2))
    if stood <= allowed:
        return None
    logged = case.query.logged.committed if case.query.logged is not None else None
    where = "been empty" if logged is None else f"stood at batch {logged}"
    return (
        f"commit_log_behind: the commit log has {where} for {stood:.0f} s, "
        f"batches have come to {case.query.last_commit_batch}"
    )


def _in_flight(case: Case) -> float:
    """Seconds of the batch in flight, if no more than a warning: the log waits for its end."""
    flight = case.query.in_flight
    if flight is None or case.probe_is_stale or _waits_for_log(case):
        return 0.0
    delayed = stuck_batch.stall_severity(case, flight) is Severity.WARNING
    gets_on = delayed or stuck_batch.moved_lately(case, flight)
    return stuck_batch.lasted(case, flight) if gets_on else 0.0


def _idle_since_commit(case: Case) -> bool:
    idle_at, commit_at = case.query.last_idle_at, case.query.last_commit_at
    return idle_at is not None and (commit_at is None or idle_at > commit_at)


def _silence(case: Case) -> float:
    """Since the last sign of life; a JVM that says nothing counts from a whole window on only."""
    silence = case.watched_since(case.query.last_sign_at)
    if not case.probe_is_stale or case.received_at is None or case.driver_is_silent:
        return silence
    return silence - case.watched_since(case.received_at)


def _stall_reason(case: Case) -> str | None:
    """The reason, or None while the query may still go on."""
    flight, silence = case.query.in_flight, _silence(case)
    if case.query.probed is None or case.probe_is_stale:
        at_work = flight is not None and case.watched_since(flight.moved_at) <= case.window.seconds
        if silence <= case.window.seconds or (at_work and not _waits_for_log(case)):
            return None
        return f"silent: no sign of it for {silence:.0f} s, from any witness"
    if flight is None:
        if silence <= case.window.seconds:
            return None
        return f"no_trigger: nothing in flight and no trigger for {silence:.0f} s"
    return _flight_reason(case, flight) if silence > case.batch_window.seconds else None


def _flight_reason(case: Case, flight: InFlight) -> str | None:
    since = stuck_batch.lasted(case, flight)
    if _waits_for_log(case):
        return f"commit_log_behind: the next batch waits for the commit log for {since:.0f} s"
    if stuck_batch.moved_lately(case, flight):
        return None
    still = stuck_batch.still(case, flight)
    what = (
        "looking for a batch" if flight.batch_id is None else f"batch {flight.batch_id} in flight"
    )
    delay = stuck_batch.delay_text(case)
    if delay is not None:
        word, facts = delay
        return f"{word}: {what} for {since:.0f} s, {facts}, none finished for {still:.0f} s"
    if flight.batch_id is None:
        probed = case.query.probed
        asked = (probed.message if probed is not None else "") or "looking for data"
        return f"source_hung: {asked!r} for {since:.0f} s"
    return f"batch_hung: {what} for {since:.0f} s, no task of its own finished for {still:.0f} s"


def _waits_for_log(case: Case) -> bool:
    """Whether Spark itself says that the query does nothing but wait for its log."""
    probed = case.query.probed
    return probed is not None and probed.work is not None and probed.work.waits_for_log
