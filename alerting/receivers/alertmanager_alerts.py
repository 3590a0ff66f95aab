"""The alerts of Alertmanager's API v2: ``POST /api/v2/alerts``. Pure.

https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

import msgspec

from ..alert import OCCURRENCE, Alert, Incident
from ..details import shown_annotations
from ..finding import Severity
from .encoding import rfc3339
from .receiver import LeftOpen

PATH = "/api/v2/alerts"
RESEND_SECONDS = 60.0
"""How often firing alerts are posted again, as Prometheus does."""
RESEND_RESOLVED_SECONDS = 300.0
LAPSE_SECONDS = 4 * RESEND_SECONDS
"""A warning ends by itself this long after its last post, as with Prometheus."""
CRITICAL_LAPSE_SECONDS = 24 * 3600.0
"""The same for critical alerts: a driver that crashed with its query sends no more posts, and an
``endsAt`` that lapses would make Alertmanager report the failed query as resolved.
"""


def alerts_url(base: str) -> str:
    """The URL where one Alertmanager takes alerts; ``base`` may contain a path."""
    return base.rstrip("/") + PATH


def open_alerts_url(url: str, app: str) -> str:
    """The URL where an Alertmanager that takes alerts at ``url`` lists those of one app."""
    value = json.dumps(app, ensure_ascii=False)
    return f"{url}?{urlencode({'filter': f'app={value}'})}"


class Shown(msgspec.Struct, frozen=True):
    """An alert that is open at an Alertmanager, and when it was last posted; times have a zone."""

    labels: dict[str, str]
    startsAt: datetime  # noqa: N815 - the API's name
    updatedAt: datetime  # noqa: N815 - as above


def shown(body: bytes) -> tuple[Shown, ...]:
    """The alerts in the answer to a ``GET``.

    Raises:
        msgspec.MsgspecError, UnicodeDecodeError, RecursionError: it is not a list of alerts.

    """
    return msgspec.json.decode(body, type=tuple[Shown, ...])


def still_open(stale_resolves: Iterable[Incident], alerts: Iterable[Shown]) -> tuple[LeftOpen, ...]:
    """The incidents of ``stale_resolves`` that are open, as Alertmanager knows them.

    An alert that began after its resolve was made is another occurrence of another process.
    """
    known: dict[tuple[str, ...], list[Shown]] = {}
    for alert in alerts:
        known.setdefault(_identity(alert.labels), []).append(alert)
    found = (_left_open(one, known) for one in stale_resolves)
    return tuple(one for one in found if one is not None)


def _identity(labels: dict[str, str]) -> tuple[str, ...]:
    """All labels but the severity and the occurrence, which may have been another."""
    return tuple(
        f"{name}={value}"
        for name, value in sorted(labels.items())
        if name not in {"severity", OCCURRENCE}
    )


def _left_open(
    stale_resolve: Incident, known: Mapping[tuple[str, ...], list[Shown]]
) -> LeftOpen | None:
    (ours,) = stale_resolve.alerts
    ends_at = ours.ends_at or ours.starts_at
    matching = [
        one for one in known.get(_identity(ours.labels), []) if one.startsAt.timestamp() <= ends_at
    ]
    if not matching:
        return None
    alerts = (
        Alert(one.labels, ours.annotations, one.startsAt.timestamp(), ends_at) for one in matching
    )
    posted_at = max(one.updatedAt.timestamp() for one in matching)
    return LeftOpen(Incident(tuple(alerts), opened_as=stale_resolve.key), posted_at)


def api_alerts(incident: Incident, wall: float, external_url: str = "") -> list[dict[str, Any]]:
    """All alerts of an incident; resolved ones have the time of their end."""
    return [_api_alert(alert, wall, external_url) for alert in incident.alerts]


def _api_alert(alert: Alert, wall: float, external_url: str) -> dict[str, Any]:
    link = {"generatorURL": external_url} if external_url else {}
    return {
        "labels": alert.labels,
        "annotations": shown_annotations(alert),
        "startsAt": rfc3339(alert.starts_at),
        "endsAt": rfc3339(_ends_at(alert, wall)),
        **link,
    }


def _ends_at(alert: Alert, wall: float) -> float:
    if alert.ends_at is not None:
        return max(alert.ends_at, alert.starts_at)
    critical = alert.labels["severity"] == Severity.CRITICAL.value
    return wall + (CRITICAL_LAPSE_SECONDS if critical else LAPSE_SECONDS)
