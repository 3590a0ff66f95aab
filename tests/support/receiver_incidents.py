"""Incidents in the form in which receivers get them."""

from __future__ import annotations

from querypulse.alerting.alert import Alert, Incident

STARTED = 1795251728.119
ENDED = 1795251788.5
FIVE = ("bronze", "silver", "gold", "alerts", "audit")


def alert(
    query: str = "bronze",
    *,
    name: str = "StreamingQueryFailed",
    severity: str = "critical",
    ends_at: float | None = None,
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
        ends_at=ends_at,
    )


def incident(*queries: str, revision: int = 0, **words) -> Incident:
    """An incident with one alert per query, by default of bronze."""
    names = queries or ("bronze",)
    return Incident(tuple(alert(name, **words) for name in names), revision=revision)


ONE = incident()
ENDED_ONE = incident(ends_at=ENDED)
SEVERAL = incident(*FIVE)
"""Five queries that failed together."""
