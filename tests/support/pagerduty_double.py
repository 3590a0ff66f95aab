"""PagerDuty's Events API v2 as its documents describe it, on loopback.

https://developer.pagerduty.com/docs/send-alert-event
"""

from __future__ import annotations

import json
from typing import Any

from .http_double import Answer, DoubleHandler, HttpDouble, reply

MAX_EVENT_BYTES = 512_000
SEVERITIES = {"critical", "error", "warning", "info"}


class PagerDutyDouble(HttpDouble):
    """Applies the documented limits to events and keeps incidents by ``dedup_key``.

    ``incidents`` maps each key to the number of incidents opened with it, ``open`` has the open
    keys, ``dropped_resolves`` the keys resolved without an open incident, ``invalid`` the errors
    of each rejected event, ``events`` all accepted events. ``notified`` has the summaries of
    triggers that opened an incident; a trigger on an open key, acknowledged or not, notifies
    nobody.
    """

    def __init__(self, *script: Answer) -> None:
        super().__init__(*script, otherwise=self.process)
        self.incidents: dict[str, int] = {}
        self.open: set[str] = set()
        self.dropped_resolves: list[str] = []
        self.invalid: list[list[str]] = []
        self.events: list[dict[str, Any]] = []
        self.notified: list[str] = []

    @property
    def enqueue_url(self) -> str:
        return f"{self.url}/v2/enqueue"

    def process(self, handler: DoubleHandler) -> None:
        """Answer the newest request as PagerDuty would."""
        request = self.requests[-1]
        if (request.method, request.path) != ("POST", "/v2/enqueue"):
            return reply(404)(handler)
        if len(request.body) > MAX_EVENT_BYTES:
            return reply(413)(handler)
        event = json.loads(request.body)
        errors = problems(event)
        if errors:
            self.invalid.append(errors)
            said = {"status": "invalid event", "errors": errors}
            return reply(400, body=json.dumps(said).encode())(handler)
        self._apply(event)
        said = {"status": "success", "dedup_key": event["dedup_key"]}
        return reply(202, body=json.dumps(said).encode())(handler)

    def _apply(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        key = event["dedup_key"]
        if event["event_action"] == "trigger" and key not in self.open:
            self.open.add(key)
            self.incidents[key] = self.incidents.get(key, 0) + 1
            self.notified.append(event["payload"]["summary"])
        elif event["event_action"] == "resolve":
            if key not in self.open:
                self.dropped_resolves.append(key)
            self.open.discard(key)


def problems(event: dict[str, Any]) -> list[str]:
    """The errors that PagerDuty would report."""
    errors = []
    if len(event.get("routing_key", "")) != 32:
        errors.append("Length of 'routing_key' is incorrect (should be 32 characters)")
    if event.get("event_action") not in {"trigger", "acknowledge", "resolve"}:
        errors.append("'event_action' is missing or unknown")
    if not 0 < len(event.get("dedup_key", "")) <= 255:
        errors.append("'dedup_key' is missing or longer than 255 characters")
    if event.get("event_action") == "trigger":
        errors += _payload_problems(event.get("payload", {}))
        errors += [
            f"link without href: {link}" for link in event.get("links", []) if not link["href"]
        ]
    return errors


def _payload_problems(payload: dict[str, Any]) -> list[str]:
    errors = [f"'{name}' is missing" for name in ("summary", "source") if not payload.get(name)]
    if len(payload.get("summary", "")) > 1024:
        errors.append("'summary' is too long (maiximum is 1024 characters)")
    if payload.get("severity") not in SEVERITIES:
        errors.append("'severity' is missing or unknown")
    if not isinstance(payload.get("custom_details", {}), dict):
        errors.append("'custom_details' is not an object")
    return errors
