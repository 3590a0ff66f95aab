"""What a rule gets to see: one query, its limits, and the moment."""

from __future__ import annotations

import msgspec

from ..listener.query import Query
from ..listener.snapshot import Snapshot
from .policy import Limits
from .window import Window


class RuleContext(msgspec.Struct, frozen=True, gc=False):
    """One query before the judge at ``now`` (monotonic seconds)."""

    label: str
    query: Query
    limits: Limits
    window: Window
    batch_window: Window
    """The window of a batch in flight."""
    trend_seconds: float
    """How long a trend must last; never shorter than the window."""
    is_running: bool
    """Whether the query is there, in a SparkContext that is."""
    batches_come: bool
    """Whether the last commit is no older than the window."""
    expected: bool
    probe_stale_seconds: float
    snapshot: Snapshot
    now: float
    received_at: float | None = None
    """When anything of the whole driver was last received."""

    def watched_since(self, at: float) -> float:
        """Seconds since ``at`` in which we were awake to watch."""
        return self.snapshot.watched(at, self.now)

    @property
    def probe_is_stale(self) -> bool:
        """Whether the second witness exists but has fallen silent."""
        probe = self.snapshot.probe
        return probe is not None and self.watched_since(probe.at) > self.probe_stale_seconds

    @property
    def driver_is_silent(self) -> bool:
        """Whether neither the probe nor any event has shown anything for a whole window."""
        at = self.received_at
        return at is not None and self.watched_since(at) > self.window.seconds
