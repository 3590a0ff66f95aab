"""What was asked for on the command line."""

from __future__ import annotations

import msgspec

AFTERMATH_SECONDS = 5.0


class DemoSettings(msgspec.Struct, frozen=True):
    """How the demo is to be played; times in seconds."""

    scenario: str = "failure"
    queries: int = 8
    after: float = 20.0
    duration: float | None = None
    """How long to play at least, once every query has committed."""
    webhook_url: str | None = None
    http_port: int = 0
    pipeline: str = "files"
    """What the job runs on: one of ``PIPELINES``."""
    supervised: bool = False
    """Whether the job waits for any failure, and ends with it, as jobs should."""
    folder: str | None = None
    """Where the job's tables, topics and checkpoints stay; they are gone with it by default."""
    event_log: str | None = None
    """Where Spark's own event log is kept, as in production; none by default."""

    def remaining(self, elapsed: float) -> float:
        """How long to go on when all is told; ``elapsed`` counts from the commits, as above."""
        return max(AFTERMATH_SECONDS, (self.duration or 0.0) - elapsed)
