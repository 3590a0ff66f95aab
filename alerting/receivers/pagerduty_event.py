"""PagerDuty's Events API v2: events and their limits. Pure.

https://developer.pagerduty.com/docs/send-alert-event gives the fields and limits.
"""

from __future__ import annotations

from typing import Any

from ..alert import Alert
from .encoding import rfc3339, shorten, to_json

ROUTING_KEY_CHARACTERS = 32
MAX_SUMMARY_CHARACTERS = 1024
MINIMAL_SUMMARY_CHARACTERS = 512
MAX_EVENT_BYTES = 512_000
"""512 KB, read as Alertmanager does: decimal."""

SEVERITIES = {"critical": "critical", "warning": "warning", "info": "info"}
DROPPED = {"note": "left out: the event was larger than PagerDuty takes"}


def check_routing_key(routing_key: str) -> str:
    """The key without surrounding blanks.

    Raises:
        ValueError: it does not have 32 characters; the message does not show it.

    """
    key = routing_key.strip()
    if len(key) != ROUTING_KEY_CHARACTERS:
        raise ValueError(
            f"pagerduty_routing_key must have {ROUTING_KEY_CHARACTERS} characters, not {len(key)}"
        )
    return key


def resolve_event(alert: Alert, routing_key: str) -> dict[str, Any]:
    """Ends what a trigger with the same key began; without an open alert PagerDuty drops it."""
    return {"routing_key": routing_key, "event_action": "resolve", "dedup_key": alert.key}


def trigger_event(alert: Alert, routing_key: str, source: str, client_url: str) -> dict[str, Any]:
    """Opens an alert, or adds to the open one of the same key, which is why resending is safe."""
    event = _bare_trigger(alert, routing_key, source, MAX_SUMMARY_CHARACTERS)
    event["payload"]["custom_details"] = alert.annotations
    event["client"] = "querypulse"
    if client_url:
        event["client_url"] = client_url
    runbook = alert.annotations.get("runbook_url")
    if runbook:
        event["links"] = [{"href": runbook, "text": "Runbook"}]
    return event


def minimal_trigger_event(alert: Alert, routing_key: str, source: str) -> dict[str, Any]:
    """What still pages when something about the full event was not liked."""
    return _bare_trigger(alert, routing_key, source, MINIMAL_SUMMARY_CHARACTERS)


def encode(event: dict[str, Any]) -> bytes:
    """Serialise within the limit, if need be without the details."""
    body = to_json(event)
    if len(body) <= MAX_EVENT_BYTES:
        return body
    return to_json({**event, "payload": {**event["payload"], "custom_details": DROPPED}})


def _bare_trigger(alert: Alert, routing_key: str, source: str, limit: int) -> dict[str, Any]:
    labels = alert.labels
    summary = alert.annotations.get("summary") or f"{alert.name}: {labels['query']}"
    return {
        "routing_key": routing_key,
        "event_action": "trigger",
        "dedup_key": alert.key,
        "payload": {
            "summary": shorten(summary, limit),
            "source": source,
            "severity": SEVERITIES.get(labels["severity"], "error"),
            "timestamp": rfc3339(alert.starts_at),
            "component": labels["query"],
            "group": labels["app"],
            "class": alert.name,
        },
    }
