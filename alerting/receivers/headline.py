"""What an incident is about, in one line. Pure."""

from __future__ import annotations

from ..alert import Alert, Incident

SICK_OF = {
    "QueryFailed": "failed",
    "QueryGone": "ended and are not back",
    "QueryMissing": "are missing",
    "CommitStalled": "commit nothing",
    "BatchSlow": "are slow",
    "OffsetStalled": "do not advance",
    "OffsetRewound": "went back",
    "QueryLagging": "lag",
    "QueryFlapping": "fail again and again",
    "WatermarkStuck": "have a watermark that stands",
    "DataLossRisk": "may lose data",
}
"""How "5 streaming queries ..." goes on, for each alert that is told of several."""


def headline(incident: Incident) -> str:
    """The summary of a single alert; of several, how many of which queries are sick of what."""
    if len(incident.alerts) == 1:
        return summary_of(incident.alerts[0])
    sick_of = SICK_OF.get(incident.name, f"have {incident.name}")
    text = f"{len(incident.alerts)} streaming queries {sick_of}: {', '.join(queries(incident))}"
    well = [one.labels["query"] for one in incident.alerts if one.ends_at is not None]
    if incident.ends_at is None and well:
        text += f"; well again: {', '.join(well)}"
    return text


def summary_of(alert: Alert) -> str:
    """The alert's own summary, or what can be said without one."""
    return alert.annotations.get("summary") or f"{alert.name}: {alert.labels['query']}"


def queries(incident: Incident) -> list[str]:
    """The names of the queries, in the order in which they joined."""
    return [alert.labels["query"] for alert in incident.alerts]


def status(incident: Incident | Alert) -> str:
    """``firing`` or ``resolved``."""
    return "firing" if incident.ends_at is None else "resolved"


def common(members: list[dict[str, str]]) -> dict[str, str]:
    """The pairs that all members have: how Alertmanager sums up labels and annotations."""
    first, *others = members
    return {
        name: value
        for name, value in first.items()
        if all(other.get(name) == value for other in others)
    }
