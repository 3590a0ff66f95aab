"""The input of a rule: one query, its limits, and the time."""

from __future__ import annotations

import msgspec

from ..listener.query import Query
from ..listener.snapshot import Snapshot
from .policy import Limits
from .window import Window


class RuleContext(msgspec.Struct, frozen=True, gc=False):
    """One query at ``now`` (monotonic seconds), with all that the rules need."""

    label: str
    query: Query
    limits: Limits
    window: Window
    batch_window: Window
    """The window of a batch in flight."""
    trend_seconds: float
    """How long a trend must last, in seconds; at least the window."""
    is_running: bool
    """Whether the query and its SparkContext are active."""
    batches_come: bool
    """Whether the last commit is no older than the window."""
    expected: bool
    probe_stale_seconds: float
    snapshot: Snapshot
    now: float
    received_at: float | None = None
    """When the last signal of any query of the driver was received."""

    def watched_since(self, at: float) -> float:
        """Seconds since ``at``, without the time in which querypulse was paused."""
        return self.snapshot.watched(at, self.now)

    @property
    def probe_is_stale(self) -> bool:
        """Whether there is a probe report, but it is too old."""
        probe = self.snapshot.probe
        return probe is not None and self.watched_since(probe.at) > self.probe_stale_seconds

    @property
    def driver_is_silent(self) -> bool:
        """Whether neither the probe nor any event has arrived for a whole window."""
        at = self.received_at
        return at is not None and self.watched_since(at) > self.window.seconds
