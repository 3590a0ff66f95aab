"""DriverGone, seen from inside: the JVM has ended, and Python is left.

``querypulse watch`` reports from outside when Python is gone too; both raise the same alert.
"""

from __future__ import annotations

from ...listener.probing import Context
from ...listener.snapshot import Snapshot
from ..finding import WHOLE_DRIVER, Finding, Severity, State
from ..policy import Policy

NAME = "DriverGone"
MAX_NAMED = 20
ENDED = "the JVM of the driver has ended"


def check(snapshot: Snapshot, now: float, policy: Policy) -> Finding | None:
    """Fire at once: a JVM that has ended does not come back."""
    del now
    if snapshot.context is not Context.JVM_GONE:
        return None
    labels = snapshot.labels().items()
    died = sorted(
        label
        for label, query in labels
        if query.alive and not policy.limits(query.base_name).ignore
    )
    count = f"{len(died)} streaming {'query' if len(died) == 1 else 'queries'}"
    ended = f"{ENDED}, and {count} with it" if died else f"{ENDED}; no query was running"
    return Finding(
        alertname=NAME,
        query=WHOLE_DRIVER,
        severity=Severity.CRITICAL,
        state=State.MISSING,
        reason=f"{ended}: {_named(died)}" if died else ended,
        summary=ended[0].upper() + ended[1:],
        evidence={},
    )


def _named(labels: list[str]) -> str:
    shown = ", ".join(labels[:MAX_NAMED])
    more = len(labels) - MAX_NAMED
    return f"{shown} and {more} more" if more > 0 else shown
