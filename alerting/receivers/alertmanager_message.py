"""Alertmanager's webhook JSON, version 4, with one alert. Pure.

The shape was captured from Alertmanager 0.25; https://prometheus.io/docs/alerting/latest/configuration/#webhook_config
describes it. Some 45 receivers understand it.
"""

from __future__ import annotations

import json
from typing import Any

from ..alert import Alert
from .encoding import rfc3339

NOT_ENDED = "0001-01-01T00:00:00Z"
"""Go's zero time: how Alertmanager says that an alert still fires."""

GROUPED_BY = ("alertname", "app", "query")

FNV_OFFSET = 0xCBF29CE484222325
FNV_PRIME = 0x100000001B3


def message(alert: Alert, receiver: str, external_url: str = "") -> dict[str, Any]:
    """The whole body; ``external_url`` is where a person can look further."""
    group = {name: alert.labels[name] for name in GROUPED_BY}
    return {
        "receiver": receiver,
        "status": status(alert),
        "alerts": [
            {
                "status": status(alert),
                "labels": alert.labels,
                "annotations": alert.annotations,
                "startsAt": rfc3339(alert.starts_at),
                "endsAt": NOT_ENDED if alert.ends_at is None else rfc3339(alert.ends_at),
                "generatorURL": external_url,
                "fingerprint": fingerprint(alert.labels),
            }
        ],
        "groupLabels": group,
        "commonLabels": alert.labels,
        "commonAnnotations": alert.annotations,
        "externalURL": external_url,
        "version": "4",
        "groupKey": _group_key(group),
        "truncatedAlerts": 0,
    }


def status(alert: Alert) -> str:
    """``firing`` or ``resolved``."""
    return "firing" if alert.ends_at is None else "resolved"


def fingerprint(labels: dict[str, str]) -> str:
    """Prometheus' own: FNV-1a 64 over the sorted ``name 0xff value 0xff``, 16 hex digits."""
    digest = FNV_OFFSET
    for name, value in sorted(labels.items()):
        for byte in b"%b\xff%b\xff" % (_utf8(name), _utf8(value)):
            digest = ((digest ^ byte) * FNV_PRIME) & 0xFFFFFFFFFFFFFFFF
    return f"{digest:016x}"


def _group_key(group: dict[str, str]) -> str:
    pairs = (f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in group.items())
    return f"{{}}:{{{', '.join(pairs)}}}"


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")
