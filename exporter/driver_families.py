"""Metric families about the driver, labelled with its app. Pure.

A rule about a vanished driver can only compare the last samples, so both families hold the time of
the same heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .families import Family
from .row import QueryRow


def driver_families(
    app: str, heartbeat: float | None, rows: Sequence[QueryRow]
) -> Iterator[Family]:
    """The heartbeat (Unix seconds), and the same value while the driver should keep running."""
    beat = Family(
        "querypulse_driver_heartbeat_timestamp_seconds",
        "When the monitor last evaluated the queries, by its app.",
        ("app",),
    )
    beat.add((app,), heartbeat)
    yield beat
    needed = Family(
        "querypulse_driver_expected_timestamp_seconds",
        "The same time while a query should keep running, so that the driver should not end; "
        "absent otherwise.",
        ("app",),
    )
    if any(row.is_needed for row in rows):
        needed.add((app,), heartbeat)
    yield needed
