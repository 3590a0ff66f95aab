"""CommitStalled: alive, no commit for the window W, and no proof of idleness.

The reason says how:

* ``batch_hung``: a batch is in flight and none of its tasks has finished for W;
* ``source_hung``: the query has been asking a source for offsets for W;
* ``no_trigger``: nothing is in flight and no trigger has come;
* ``commit_log_behind``: the checkpoint's commit log stands, though batches go on (async
  progress tracking) or epochs should (Continuous);
* ``silent``: neither events nor the probe tell anything.
"""

from __future__ import annotations

from ...listener.query import InFlight
from ..case import Case
from ..evidence import evidence
from ..finding import Finding, Severity, State

NAME = "CommitStalled"
SHARED_SILENCE = "the JVM does not answer"
MIN_LOOKS = 2


def check(case: Case) -> Finding | None:
    """Fire when the query has shown no sign of life for longer than its window."""
    if not case.is_running:
        return None
    reason = _log_behind(case) or (
        _epochs_stopped(case) if _is_continuous(case) else _stalled(case)
    )
    if reason is None:
        return None
    return Finding(
        alertname=NAME,
        query=case.label,
        severity=Severity.CRITICAL,
        state=State.STALLED,
        reason=reason,
        summary=f"Streaming query {case.label} has stopped committing: {reason}",
        evidence=evidence(case),
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
    """Seconds of the batch in flight that gets on: no log is written before it is done."""
    flight = case.query.in_flight
    if flight is None or case.probe_is_stale or _waits_for_log(case):
        return 0.0
    return case.watched_since(flight.since) if _moved_lately(case, flight) else 0.0


def _idle_since_commit(case: Case) -> bool:
    idle_at, commit_at = case.query.last_idle_at, case.query.last_commit_at
    return idle_at is not None and (commit_at is None or idle_at > commit_at)


def _stalled(case: Case) -> str | None:
    return _how(case) if _silence(case) > case.window.seconds else None


def _silence(case: Case) -> float:
    """Since the last sign of life; a JVM that says nothing counts from a whole window on only."""
    silence = case.watched_since(case.query.last_sign_at)
    if not case.probe_is_stale or case.received_at is None or case.driver_is_silent:
        return silence
    return silence - case.watched_since(case.received_at)


def _how(case: Case) -> str | None:
    """The reason, or None while the query still gets on with its batch."""
    flight = case.query.in_flight
    waits_for_log = _waits_for_log(case)
    if flight is not None and not waits_for_log and _moved_lately(case, flight):
        return None
    if case.query.probed is None or case.probe_is_stale:
        return f"silent: no sign of it for {_silence(case):.0f} s, from any witness"
    if flight is None:
        return f"no_trigger: nothing in flight and no trigger for {_silence(case):.0f} s"
    since = case.watched_since(flight.since)
    if waits_for_log:
        return f"commit_log_behind: the next batch waits for the commit log for {since:.0f} s"
    if flight.batch_id is None:
        asked = case.query.probed.message or "looking for data"
        return f"source_hung: {asked!r} for {since:.0f} s"
    still = case.watched_since(flight.moved_at)
    return (
        f"batch_hung: batch {flight.batch_id} in flight for {since:.0f} s, "
        f"no task of its own finished for {still:.0f} s"
    )


def _moved_lately(case: Case, flight: InFlight) -> bool:
    return case.watched_since(flight.moved_at) <= case.window.seconds


def _waits_for_log(case: Case) -> bool:
    """Whether Spark itself says that the query does nothing but wait for its log."""
    probed = case.query.probed
    return probed is not None and probed.work is not None and probed.work.waits_for_log
