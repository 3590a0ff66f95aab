"""Alertmanager's webhook JSON, version 4. Pure.

The shape was captured from Alertmanager 0.25; https://prometheus.io/docs/alerting/latest/configuration/#webhook_config
describes it. Some 45 receivers understand it.
"""

from __future__ import annotations

import json
from typing import Any

from ..alert import Alert, Incident
from ..details import shown_annotations
from ..headline import status
from .encoding import rfc3339, shorten

NOT_ENDED = "0001-01-01T00:00:00Z"
"""Go's zero time: how Alertmanager says that an alert still fires."""

SHARED = ("alertname", "app")
"""The labels that all alerts of an incident share."""
GROUPED_BY = (*SHARED, "query")
PLAIN = ("summary", "reason", "runbook_url")
"""The annotations that a person needs most, ..."""
PLAIN_CHARACTERS = 512
"""... and the most characters of each."""

FNV_OFFSET = 0xCBF29CE484222325
FNV_PRIME = 0x100000001B3


def message(
    incident: Incident, receiver: str, external_url: str = "", *, plain: bool = False
) -> dict[str, Any]:
    """The whole body; ``external_url`` is the link to more information.

    ``plain`` keeps only the annotations that a person needs most, and shortens them.
    """
    annotations = [_plain(one) if plain else shown_annotations(one) for one in incident.alerts]
    labels = _common([one.labels for one in incident.alerts])
    sent = zip(incident.alerts, annotations, strict=True)
    return {
        "receiver": receiver,
        "status": status(incident),
        "alerts": [_alert(alert, words, external_url) for alert, words in sent],
        "groupLabels": {name: labels[name] for name in GROUPED_BY if name in labels},
        "commonLabels": labels,
        "commonAnnotations": _common(annotations),
        "externalURL": external_url,
        "version": "4",
        "groupKey": _group_key(incident),
        "truncatedAlerts": 0,
    }


def fingerprint(labels: dict[str, str]) -> str:
    """Prometheus' own: FNV-1a 64 over the sorted ``name 0xff value 0xff``, 16 hex digits."""
    digest = FNV_OFFSET
    for name, value in sorted(labels.items()):
        for byte in b"%b\xff%b\xff" % (_utf8(name), _utf8(value)):
            digest = ((digest ^ byte) * FNV_PRIME) & 0xFFFFFFFFFFFFFFFF
    return f"{digest:016x}"


def _alert(alert: Alert, annotations: dict[str, str], external_url: str) -> dict[str, Any]:
    return {
        "status": status(alert),
        "labels": alert.labels,
        "annotations": annotations,
        "startsAt": rfc3339(alert.starts_at),
        "endsAt": NOT_ENDED if alert.ends_at is None else rfc3339(alert.ends_at),
        "generatorURL": external_url,
        "fingerprint": fingerprint(alert.labels),
    }


def _plain(alert: Alert) -> dict[str, str]:
    sent = shown_annotations(alert)
    return {name: shorten(sent[name], PLAIN_CHARACTERS) for name in PLAIN if name in sent}


def _common(members: list[dict[str, str]]) -> dict[str, str]:
    """The pairs that all members have: Alertmanager's common labels and annotations."""
    first, *others = members
    return {
        name: value
        for name, value in first.items()
        if all(other.get(name) == value for other in others)
    }


def _group_key(incident: Incident) -> str:
    """The group key of an incident; like its own key, it stays the same while it is open."""
    labels = incident.alerts[0].labels
    if not incident.opened_as:
        return f"{{}}:{{{_pairs(labels, GROUPED_BY)}}}"
    route = _pairs({"dedup_key": incident.key}, ("dedup_key",))
    return f"{{}}/{{{route}}}:{{{_pairs(labels, SHARED)}}}"


def _pairs(labels: dict[str, str], names: tuple[str, ...]) -> str:
    return ", ".join(f"{name}={json.dumps(labels[name], ensure_ascii=False)}" for name in names)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")
