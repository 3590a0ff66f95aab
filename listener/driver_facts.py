"""What the polls of a driver have shown of it as a whole. Pure."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from .probing import Context, ProbeReport


class DriverFacts(msgspec.Struct, frozen=True):
    """The newest poll, and times (monotonic seconds) that later polls do not show any more.

    The fields have the names and the meanings of ``Snapshot``.
    """

    probe: ProbeReport | None = None
    context_stopped_at: float | None = None
    context_ran_at: float | None = None
    events_dropped_at: float | None = None


def with_poll(known: DriverFacts, report: ProbeReport) -> DriverFacts:
    """Add a poll."""
    before = known.probe.listener.dropped_events if known.probe is not None else None
    dropped = report.listener.dropped_events
    if before is not None and dropped is not None and dropped > before:
        known = replace(known, events_dropped_at=report.at)
    if report.context is Context.RUNNING:
        # A Spark Connect server can be reached again after it seemed to have ended.
        known = replace(known, context_ran_at=report.began_at, context_stopped_at=None)
    elif known.context_stopped_at is None:
        known = replace(known, context_stopped_at=report.at)
    return replace(known, probe=report)
