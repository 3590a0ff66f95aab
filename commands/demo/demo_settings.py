"""The arguments of the command line."""

from __future__ import annotations

import msgspec

AFTERMATH_SECONDS = 5.0


class DemoSettings(msgspec.Struct, frozen=True):
    """How to run the demo; times in seconds."""

    scenario: str = "failure"
    queries: int = 8
    after: float = 20.0
    duration: float | None = None
    """How long to run at least, once every query has committed."""
    webhook_url: str | None = None
    http_port: int = 0
    supervised: bool = False
    """Whether the job waits for any failure and ends with it, as jobs should."""
    folder: str | None = None
    """Keeps the job's tables, topics and checkpoints; by default they are deleted at the end."""
    event_log: str | None = None
    """The folder for Spark's own event log, as in production; none by default."""

    def remaining(self, elapsed: float) -> float:
        """How long to go on after the report; ``elapsed`` counts from the commits, as above."""
        return max(AFTERMATH_SECONDS, (self.duration or 0.0) - elapsed)
