"""Sends incidents to PagerDuty."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from ...core.secret import Address, Key, Secret, SecretFile
from ...core.states import DeliveryOutcome
from ...core.text import rfc3339, shorten
from ..alert import Alert, Incident
from ..words.headlines import called, headline_of, queries, status
from ..words.messages import (
    by_difference,
    details,
    incident_details,
    links,
    more_labels,
    says_reason,
)
from ..words.next_steps import NEXT_STEPS
from .http import HttpReceiver
from .receiver import (
    DeliveryError,
    HttpReceiverSettings,
    ReceiverCapabilities,
    ReceiverContext,
    SeverityName,
)

# -- pagerduty event --------------------------------------------------------------------------
# https://developer.pagerduty.com/docs/send-alert-event gives the fields and limits.

ROUTING_KEY_CHARACTERS = 32
MAX_SUMMARY_CHARACTERS = 1024
MINIMAL_SUMMARY_CHARACTERS = 512
MAX_COMPONENT_CHARACTERS = 255

ABOUT_THE_KEY = re.compile(rb"routing[ _]?key", re.IGNORECASE)
"""In the body of a 400 that is not about the event."""


def check_routing_key(routing_key: Secret) -> str:
    """The current key without surrounding blanks.

    Raises:
        ValueError: it does not have 32 characters; the message does not show it.

    """
    key = routing_key.reveal().strip()
    if len(key) != ROUTING_KEY_CHARACTERS:
        raise ValueError(
            f"{routing_key.setting or 'routing_key'} must have {ROUTING_KEY_CHARACTERS} "
            f"characters, not {len(key)}"
        )
    return key


def resolve_event(incident: Incident, routing_key: str) -> dict[str, Any]:
    """Resolves the alert with the same key; PagerDuty drops the event if none is open."""
    return {"routing_key": routing_key, "event_action": "resolve", "dedup_key": incident.key}


def trigger_event(
    incident: Incident, routing_key: str, source: str, client_url: str
) -> dict[str, Any]:
    """Opens an alert, or updates the open one with the same key, so that resending is safe."""
    event = _bare_trigger(incident, routing_key, source, MAX_SUMMARY_CHARACTERS)
    event["payload"]["custom_details"] = _details(incident)
    event["client"] = "querypulse"
    if client_url:
        event["client_url"] = client_url
    urls = links(incident.alerts[0])
    if urls:
        event["links"] = [{"href": url, "text": title} for title, url in urls.items()]
    return event


def _details(incident: Incident) -> dict[str, Any]:
    """A single alert's details; of several, those of each by its name or by its query."""
    members = _members(incident)
    if len(members) == 1:
        return {**more_labels(incident), **details(incident.alerts[0])}
    shared = incident_details(incident) if len(queries(incident)) > 1 else {}
    headline = headline_of(incident)
    own = {name: _member(alert, headline, shared) for name, alert in members.items()}
    return {**more_labels(incident), **shared, **own}


def _members(incident: Incident) -> dict[str, Alert]:
    """The open alerts; of a group also those that have ended."""
    is_group = len({alert.query for alert in incident.alerts}) > 1
    return by_difference(incident.alerts if is_group else incident.firing)


def _member(alert: Alert, headline: str, shared: Mapping[str, str]) -> dict[str, str]:
    reason = alert.annotations.get("reason", "")
    said = alert.ends_at is not None or says_reason(headline, alert)
    own = {"status": status(alert)} | ({} if said else {"reason": reason})
    dropped = {"reason", NEXT_STEPS} if NEXT_STEPS in shared else {"reason"}
    return own | {
        name: text
        for name, text in details(alert).items()
        if name not in dropped and shared.get(name) != text
    }


def _bare_trigger(incident: Incident, routing_key: str, source: str, limit: int) -> dict[str, Any]:
    return {
        "routing_key": routing_key,
        "event_action": "trigger",
        "dedup_key": incident.key,
        "payload": {
            "summary": shorten(headline_of(incident), limit),
            "source": source,
            "severity": incident.severity,
            "timestamp": rfc3339(incident.starts_at),
            "component": shorten(
                ", ".join(map(called, queries(incident))), MAX_COMPONENT_CHARACTERS
            ),
            "group": incident.labels["app"],
            "class": incident.alerts[0].name,
        },
    }


# -- pagerduty --------------------------------------------------------------------------------

EVENTS_URLS = {
    "us": "https://events.pagerduty.com/v2/enqueue",
    "eu": "https://events.eu.pagerduty.com/v2/enqueue",
}
"""By service region."""

BAD_REQUEST = 400


class PagerDuty(HttpReceiver):
    """Triggers and resolves through the Events API v2; the incident's key is the ``dedup_key``.

    PagerDuty takes about 120 events a minute for each routing key. 202 means queued; the API
    reports no more.
    """

    capabilities = ReceiverCapabilities(per_minute=100.0, orphan_after_seconds=0.0)
    max_bytes = 512_000
    """512 KB, read as Alertmanager does: decimal."""

    def __init__(self, given: PagerDutySettings, context: ReceiverContext) -> None:
        """Check the settings, and the key; see ``HttpReceiver``."""
        super().__init__(given, context, Secret(given.targets()[0]))
        self._routing_key = context.secret("routing_key")
        check_routing_key(self._routing_key)
        self._source = socket.gethostname() or "unknown"

    def send(self, incident: Incident, wall: float) -> None:
        """Send one incident; see ``Receiver.send``."""
        try:
            super().send(incident, wall)
        except DeliveryError as error:
            if error.status == BAD_REQUEST and ABOUT_THE_KEY.search(error.body):
                error.answer = DeliveryOutcome.MISCONFIGURED
                error.args = (f"{error}: it does not know the routing key",)
            raise

    def message(self, incident: Incident, *, minimal: bool = False) -> dict[str, Any]:
        """See ``HttpReceiver.message``."""
        try:
            key = check_routing_key(self._routing_key)
        except ValueError as error:
            raise DeliveryError(str(error), DeliveryOutcome.MISCONFIGURED) from None
        if incident.ends_at is not None:
            return resolve_event(incident, key)
        if minimal:
            return _bare_trigger(incident, key, self._source, MINIMAL_SUMMARY_CHARACTERS)
        return trigger_event(incident, key, self._source, self.external_url)


class PagerDutySettings(
    HttpReceiverSettings, tag_field="type", tag="pagerduty", frozen=True, kw_only=True
):
    """``region`` is the service region; ``url`` replaces it. By default warnings do not page."""

    makes = PagerDuty

    one_of: ClassVar[tuple[str, ...]] = ("routing_key", "routing_key_file")
    short_form: ClassVar[Mapping[str, str]] = {
        "routing_key": "pagerduty_routing_key",
        "routing_key_file": "pagerduty_routing_key_file",
        "url": "pagerduty_url",
    }
    severities: tuple[SeverityName, ...] = ("critical",)
    routing_key: Key | None = None
    routing_key_file: SecretFile | None = None
    region: Literal["us", "eu"] = "us"
    url: Address | None = None

    def targets(self) -> Sequence[str]:
        """Where events are posted."""
        return (self.url if self.url is not None else EVENTS_URLS[self.region],)
