"""The driver as those outside see it -> metric families labelled with its app. Pure.

A rule about a driver that has vanished can only compare what was said last: so both families
tell the moment of the same heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .families import Family
from .row import QueryRow


def driver_families(
    app: str, heartbeat: float | None, rows: Sequence[QueryRow]
) -> Iterator[Family]:
    """The heartbeat (Unix seconds), and the same while the driver should go on."""
    beat = Family(
        "querypulse_driver_heartbeat_timestamp_seconds",
        "When the monitor last judged, by the app it is in.",
        ("app",),
    )
    beat.add((app,), heartbeat)
    yield beat
    needed = Family(
        "querypulse_driver_expected_timestamp_seconds",
        "The same moment, absent unless some query should go on: the driver should not end then.",
        ("app",),
    )
    if any(row.is_needed for row in rows):
        needed.add((app,), heartbeat)
    yield needed
