"""A batch that an earlier process planned and that no process has committed. Pure.

The checkpoint alone shows it, so querypulse needs no stored state. It does not show why the last
process ended: a planned stop in the middle of a batch leaves the same files as a crash. So an old
plan raises no alert by itself; it shows how old the batch is that fails or is stuck now.
"""

from __future__ import annotations

import msgspec

from ..core.durations import duration
from .rule_context import RuleContext

CLOCKS_DIFFER_SECONDS = 5.0
"""The clocks of the storage and of this machine may differ by this much."""
ANNOTATION = "over_restarts"
"""The annotation of an alert about such a batch."""


class Unfinished(msgspec.Struct, frozen=True):
    """The batch, and how many seconds ago it was planned."""

    batch_id: int
    age_seconds: float

    def __str__(self) -> str:
        age = duration(self.age_seconds)
        return f"batch {self.batch_id} was planned {age} ago and never committed, over restarts"


def unfinished(context: RuleContext) -> Unfinished | None:
    """The uncommitted batch that an earlier process planned longer than the window ago."""
    query, point = context.query, context.query.start_point
    batch = point.unfinished if point is not None else None
    if batch is None or batch.at is None:
        return None
    if query.last_commit_batch is not None and query.last_commit_batch >= batch.batch_id:
        return None
    # A run that was active before monitoring began may have planned the batch itself.
    was_active = query.start is None and not query.totals.restarts
    if was_active or batch.at > context.snapshot.began_at - CLOCKS_DIFFER_SECONDS:
        return None
    if query.newest_commit is not None and query.newest_commit[0] < batch.batch_id:
        # This process planned it after that commit, whatever the clock of the storage shows.
        return None
    age = context.now - batch.at
    return Unfinished(batch.batch_id, age) if age > context.window.seconds else None


def window_seconds(context: RuleContext) -> float:
    """Seconds that a run may take for such a batch; earlier batches in its checkpoint count too."""
    point = context.query.start_point
    usual = point.usual_seconds if point is not None else None
    return max(context.batch_window.seconds, (usual or 0.0) * (context.limits.stall_tolerance + 2))


def facts(context: RuleContext) -> dict[str, str]:
    """The evidence about such a batch; empty if there is none."""
    found = unfinished(context)
    return {} if found is None else {ANNOTATION: str(found)}


def with_age(reason: str, context: RuleContext) -> str:
    """The reason, with the age of such a batch if there is one."""
    found = unfinished(context)
    return reason if found is None else f"{reason}; {found}"
