"""A batch that processes before this one planned and none has committed, as the rules see it. Pure.

The checkpoint alone says it, so no memory of ours has to survive. It does not say why the last
process ended: a planned stop in the middle of a batch leaves the same files as a crash. So an old
plan raises no alert by itself; it says since when the batch that fails or is stuck now has waited.
"""

from __future__ import annotations

import msgspec

from .rule_context import RuleContext

CLOCKS_DIFFER_SECONDS = 5.0
"""So far the clocks of the storage and of this machine may be apart."""
ANNOTATION = "over_restarts"
"""Of an alert about such a batch."""


class Unfinished(msgspec.Struct, frozen=True):
    """The batch, and how many seconds ago it was planned."""

    batch_id: int
    age_seconds: float

    def __str__(self) -> str:
        age = age_text(self.age_seconds)
        return f"batch {self.batch_id} was planned {age} ago and never committed, over restarts"


def unfinished(context: RuleContext) -> Unfinished | None:
    """What a process before this one planned longer than the window ago, and is not committed."""
    query, point = context.query, context.query.start_point
    batch = point.unfinished if point is not None else None
    if batch is None or batch.at is None:
        return None
    if query.last_commit_batch is not None and query.last_commit_batch >= batch.batch_id:
        return None
    # A run that was there when we came may be the one that planned it.
    was_there = query.start is None and not query.totals.restarts
    if was_there or batch.at > context.snapshot.began_at - CLOCKS_DIFFER_SECONDS:
        return None
    if query.newest_commit is not None and query.newest_commit[0] < batch.batch_id:
        # Planned after that, in this process, whatever the storage's clock shows.
        return None
    age = context.now - batch.at
    return Unfinished(batch.batch_id, age) if age > context.window.seconds else None


def window_seconds(context: RuleContext) -> float:
    """How long a run may take for such a batch, by the batches that its checkpoint shows, too."""
    point = context.query.start_point
    usual = point.usual_seconds if point is not None else None
    return max(context.batch_window.seconds, (usual or 0.0) * (context.limits.stall_tolerance + 2))


def facts(context: RuleContext) -> dict[str, str]:
    """What an alert says of it; nothing where there is no such batch."""
    found = unfinished(context)
    return {} if found is None else {ANNOTATION: str(found)}


def with_age(reason: str, context: RuleContext) -> str:
    """A reason that says it, where there is such a batch."""
    found = unfinished(context)
    return reason if found is None else f"{reason}; {found}"


def age_text(seconds: float) -> str:
    """``95 s``, ``40 min``, ``64 h``, ``9 days``: the unit in which it is at least two."""
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds:.0f} s"
