"""StreamingDriverDown, detected from inside: the JVM has ended, but the Python process still runs.

``querypulse watch`` detects from outside that Python has ended too; both raise the same alert.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...core.states import QueryState
from ...core.text import listed
from ...listener.probe import Context
from ...listener.state.snapshot import Snapshot
from ..finding import WHOLE_DRIVER, Finding, Severity
from ..policy import Policy

NAME = "StreamingDriverDown"
MAX_NAMED = 20
ENDED = "the JVM of the driver has ended"


def check(snapshot: Snapshot, now: float, policy: Policy) -> Finding | None:
    """Fire immediately: a JVM that has ended does not come back.

    If several processes watch the JVM, each one reports the queries it is responsible for.
    """
    del now
    if snapshot.context is not Context.JVM_GONE:
        return None
    died = sorted(_died(snapshot, policy))
    if not died and not snapshot.ownership.is_eldest:
        return None
    count = f"{len(died)} streaming {'query' if len(died) == 1 else 'queries'}"
    ended = f"{ENDED}, and {count} with it" if died else f"{ENDED}; no query was running"
    reason = f"{ended}: {listed(died, MAX_NAMED)}" if died else ended
    summary = f"driver is down: {reason}"
    critical, state = Severity.CRITICAL, QueryState.MISSING
    return Finding(NAME, WHOLE_DRIVER, critical, state, reason, summary, {})


def _died(snapshot: Snapshot, policy: Policy) -> Iterator[str]:
    for label, query in snapshot.labels().items():
        ignored = policy.limits(query.base_name).ignore
        if query.alive and not ignored and snapshot.ownership.covers(query.session):
            yield label
