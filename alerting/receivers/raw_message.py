"""The webhook JSON of querypulse, as ``webhook.schema.json`` describes it. Pure."""

from __future__ import annotations

from typing import Any

from ..alert import Alert, Incident
from ..details import shown_annotations
from ..headline import headline_of, status
from .encoding import rfc3339, shorten

VERSION = 1
PLAIN_CHARACTERS = 512


def raw_message(
    incident: Incident, identity: str, external_url: str = "", *, plain: bool = False
) -> dict[str, Any]:
    """The whole body; ``plain`` leaves the annotations out and shortens the rest."""
    limit = PLAIN_CHARACTERS if plain else None
    return {
        "version": VERSION,
        "id": identity,
        "key": incident.key,
        "status": status(incident),
        "revision": incident.revision,
        "alertname": incident.name,
        "app": incident.alerts[0].labels["app"],
        "severity": incident.severity,
        "summary": _cut(headline_of(incident), limit),
        "starts_at": rfc3339(incident.starts_at),
        "ends_at": _moment(incident.ends_at),
        "url": external_url,
        "alerts": [_alert(alert, limit) for alert in incident.alerts],
    }


def _alert(alert: Alert, limit: int | None) -> dict[str, Any]:
    return {
        "key": alert.key,
        "status": status(alert),
        "query": alert.labels["query"],
        "severity": alert.labels["severity"],
        "reason": _cut(alert.annotations.get("reason", ""), limit),
        "runbook_url": _cut(alert.annotations.get("runbook_url", ""), limit),
        "starts_at": rfc3339(alert.starts_at),
        "ends_at": _moment(alert.ends_at),
        "annotations": shown_annotations(alert) if limit is None else {},
    }


def _moment(wall: float | None) -> str | None:
    return None if wall is None else rfc3339(wall)


def _cut(text: str, limit: int | None) -> str:
    return text if limit is None else shorten(text, limit)
