"""Metric families about the driver and its open alerts. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from .families import Family, Labels
from .published_state import ShownAlert
from .row import QueryRow

LABELS = ("app", "query", "alertname", "severity")
OCCURRENCE = "occurrence"
"""A further label of an alert that was held open and then lasted; others lack it."""


def driver_families(
    app: str, heartbeat: float | None, rows: Sequence[QueryRow]
) -> Iterator[Family]:
    """The heartbeat (Unix seconds), and the same value while the driver should keep running.

    A rule about a vanished driver can only compare the last samples, so both families hold the time
    of the same heartbeat.
    """
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


def alert_families(alerts: Sequence[ShownAlert]) -> Iterator[Family]:
    """Each open alert as a series of value 1, and the number of alerts of each kind."""
    yield _open(alerts)
    yield _firing(alerts)


def _open(alerts: Sequence[ShownAlert]) -> Family:
    family = Family(
        "spark_streaming_query_alert",
        'Whether querypulse has this alert open; query "*" is the whole driver, and an alert that '
        "was held open and then lasted has an occurrence.",
        LABELS,
    )
    for labels, further in dict.fromkeys(map(_labels, alerts)):
        family.add_info(labels, dict(further))
    return family


def _labels(alert: ShownAlert) -> tuple[Labels, tuple[tuple[str, str], ...]]:
    known = alert.labels
    further = ((OCCURRENCE, known[OCCURRENCE]),) if OCCURRENCE in known else ()
    return tuple(known[name] for name in LABELS), further


def _firing(alerts: Sequence[ShownAlert]) -> Family:
    family = Family("querypulse_alerts_firing", "Alerts firing now.", ("alertname", "severity"))
    kinds = Counter((alert.labels["alertname"], alert.labels["severity"]) for alert in alerts)
    for labels, count in kinds.items():
        family.add(labels, count)
    return family
