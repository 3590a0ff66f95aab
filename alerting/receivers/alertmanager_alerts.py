"""What Alertmanager's API v2 takes: ``POST /api/v2/alerts``. Pure.

https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml
"""

from __future__ import annotations

from typing import Any

from ..alert import Alert, Incident
from ..finding import Severity
from .encoding import rfc3339

PATH = "/api/v2/alerts"
RESEND_SECONDS = 60.0
"""How often what fires is posted again, as Prometheus does."""
RESEND_RESOLVED_SECONDS = 300.0
LAPSE_SECONDS = 4 * RESEND_SECONDS
"""After how long without news a warning ends by itself, as with Prometheus."""
CRITICAL_LAPSE_SECONDS = 24 * 3600.0
"""The same for what is critical: a driver that died with its query says no more, and an
``endsAt`` that lapses would make Alertmanager tell people that the dead query is well.
"""


def alerts_url(base: str) -> str:
    """Where one Alertmanager takes alerts; ``base`` may have a path of its own."""
    return base.rstrip("/") + PATH


def api_alerts(incident: Incident, wall: float, external_url: str = "") -> list[dict[str, Any]]:
    """All alerts of an incident, those that have ended with the time when they did."""
    return [_api_alert(alert, wall, external_url) for alert in incident.alerts]


def _api_alert(alert: Alert, wall: float, external_url: str) -> dict[str, Any]:
    link = {"generatorURL": external_url} if external_url else {}
    return {
        "labels": alert.labels,
        "annotations": alert.annotations,
        "startsAt": rfc3339(alert.starts_at),
        "endsAt": rfc3339(_ends_at(alert, wall)),
        **link,
    }


def _ends_at(alert: Alert, wall: float) -> float:
    if alert.ends_at is not None:
        return max(alert.ends_at, alert.starts_at)
    critical = alert.labels["severity"] == Severity.CRITICAL.value
    return wall + (CRITICAL_LAPSE_SECONDS if critical else LAPSE_SECONDS)
