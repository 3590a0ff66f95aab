"""CommitStalled: alive, no commit for the window W, and no proof of idleness.

The reason says how:

* ``batch_hung``: a batch is in flight and none of its tasks has finished for W;
* ``source_hung``: the query has been asking a source for offsets for W;
* ``no_trigger``: nothing is in flight and no trigger has come;
* ``silent``: neither events nor the probe tell anything.
"""

from __future__ import annotations

from ...listener.probing import Context
from ..case import Case
from ..evidence import evidence
from ..finding import Finding, Severity, State

NAME = "CommitStalled"


def check(case: Case) -> Finding | None:
    """Fire when the query has shown no sign of life for longer than its window."""
    if not _is_watchable(case) or _silence(case) <= case.window.seconds:
        return None
    reason = _how(case)
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
    )


def _is_watchable(case: Case) -> bool:
    query = case.query
    if not query.alive or case.snapshot.context is not Context.RUNNING:
        return False
    return query.facts is None or query.facts.trigger.shows_batches


def _silence(case: Case) -> float:
    return case.watched_since(case.query.last_sign_at)


def _how(case: Case) -> str | None:
    """The reason, or None while the query still gets on with its batch."""
    flight = case.query.in_flight
    if flight is not None and case.watched_since(flight.moved_at) <= case.window.seconds:
        return None
    if case.query.probed is None or case.probe_is_stale:
        return f"silent: no sign of it for {_silence(case):.0f} s, from events or probe"
    if flight is None:
        return f"no_trigger: nothing in flight and no trigger for {_silence(case):.0f} s"
    since = case.watched_since(flight.since)
    if flight.batch_id is None:
        asked = case.query.probed.message or "looking for data"
        return f"source_hung: {asked!r} for {since:.0f} s"
    still = case.watched_since(flight.moved_at)
    return (
        f"batch_hung: batch {flight.batch_id} in flight for {since:.0f} s, "
        f"no task finished for {still:.0f} s"
    )
