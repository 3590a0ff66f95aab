"""Incidents in the form in which receivers get them."""

from __future__ import annotations

from querypulse.alerting.alert import (
    Alert,
    AlertOutcome,
    End,
    GoesOn,
    Incident,
    incident_key,
    incident_labels,
)

STARTED = 1795251728.119
ENDED = 1795251788.5
FIVE = ("bronze", "silver", "gold", "alerts", "audit")


def alert(
    query: str = "bronze",
    *,
    name: str = "StreamingQueryFailed",
    severity: str = "critical",
    ends_at: float | None = None,
    outcome: AlertOutcome | None = None,
    goes_on: GoesOn | None = None,
    starts_at: float = STARTED,
    **annotations: str,
) -> Alert:
    """One alert; ``annotations`` replace or extend the usual ones."""
    return Alert(
        labels={"alertname": name, "app": "etl", "query": query, "severity": severity},
        annotations={
            "summary": f"{query} failed",
            "reason": "ConcurrentAppendException",
            "runbook_url": "https://x/StreamingQueryFailed.md",
            **annotations,
        },
        starts_at=starts_at,
        end=None if ends_at is None else End(ends_at, outcome, goes_on),
    )


def incident(*queries: str, revision: int = 0, **words) -> Incident:
    """An incident with one alert per query, by default of bronze."""
    return holding(*(alert(name, **words) for name in queries or ("bronze",)), revision=revision)


def holding(*alerts: Alert, revision: int = 0, **labels: str) -> Incident:
    """The incident that holds these alerts: of their query, or of the driver for several."""
    queries = {alert.query for alert in alerts}
    query = queries.pop() if len(queries) == 1 else "*"
    severities = {alert.labels["severity"] for alert in alerts}
    severity = "critical" if "critical" in severities else min(severities)
    app = alerts[0].labels["app"]
    own = incident_labels(app, query, labels)
    return Incident(incident_key(own, severity), own, severity, tuple(alerts), revision)


ONE = incident()
ENDED_ONE = incident(ends_at=ENDED)
SEVERAL = incident(*FIVE)
"""Five queries that failed together."""
