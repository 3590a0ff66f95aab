"""What was asked for on the command line."""

from __future__ import annotations

import msgspec


class Script(msgspec.Struct, frozen=True):
    """How the demo is to be played; times in seconds."""

    fate: str = "dies"
    queries: int = 8
    after: float = 20.0
    duration: float | None = None
    webhook_url: str | None = None
    http_port: int = 0
    event_log: str | None = None
    """Where Spark's own event log is kept, as in production; none by default."""
