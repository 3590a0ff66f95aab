"""Metric families of the open alerts. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from .families import Family
from .published_state import ShownAlert

LABELS = ("app", "query", "alertname", "severity")


def alert_families(alerts: Sequence[ShownAlert]) -> Iterator[Family]:
    """Each open alert as a series of value 1, and the number of alerts of each kind."""
    yield _open(alerts)
    yield _firing(alerts)


def _open(alerts: Sequence[ShownAlert]) -> Family:
    family = Family(
        "spark_streaming_query_alert",
        'Whether querypulse has this alert open; query "*" is the whole driver.',
        LABELS,
    )
    for labels in dict.fromkeys(tuple(alert.labels[name] for name in LABELS) for alert in alerts):
        family.add(labels, 1)
    return family


def _firing(alerts: Sequence[ShownAlert]) -> Family:
    family = Family("querypulse_alerts_firing", "Alerts firing now.", ("alertname", "severity"))
    kinds = Counter((alert.labels["alertname"], alert.labels["severity"]) for alert in alerts)
    for labels, count in kinds.items():
        family.add(labels, count)
    return family
