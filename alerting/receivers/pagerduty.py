"""Sends incidents to PagerDuty."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Literal

from ...core.outcomes import DeliveryOutcome
from ...core.secret import Secret
from ..alert import Incident
from .declaration import (
    Address,
    HttpReceiverSettings,
    Key,
    ReceiverContext,
    ReceiverType,
    SecretFile,
    Severity,
)
from .encoding import to_json
from .http import HttpError, HttpPoster
from .http_options import HttpOptions
from .minimal_payload import post_or_less
from .pagerduty_event import (
    check_routing_key,
    encode,
    is_about_the_key,
    minimal_trigger_event,
    resolve_event,
    trigger_event,
)
from .receiver import ReceiverCapabilities
from .web_page import not_a_page

EVENTS_URLS = {
    "us": "https://events.pagerduty.com/v2/enqueue",
    "eu": "https://events.eu.pagerduty.com/v2/enqueue",
}
"""By service region."""
EVENTS_URL = EVENTS_URLS["us"]

BAD_REQUEST = 400


class PagerDutySettings(
    HttpReceiverSettings, tag_field="type", tag="pagerduty", frozen=True, kw_only=True
):
    """``region`` is the service region; ``url`` replaces it. By default warnings do not page."""

    severities: tuple[Severity, ...] = ("critical",)
    routing_key: Key | None = None
    routing_key_file: SecretFile | None = None
    region: Literal["us", "eu"] = "us"
    url: Address | None = None


class PagerDuty:
    """Triggers and resolves through the Events API v2; the incident's key is the ``dedup_key``.

    PagerDuty takes about 120 events a minute for each routing key.
    """

    capabilities = ReceiverCapabilities(per_minute=100.0, reconciles=True)

    def __init__(
        self,
        routing_key: Secret,
        *,
        name: str = "pagerduty",
        url: str = EVENTS_URL,
        source: str | None = None,
        client_url: str = "",
        http: HttpOptions | None = None,
    ) -> None:
        """Check the settings; ``source`` is this machine's name unless given.

        Raises:
            ValueError: ``routing_key`` or ``url`` cannot be used; the message names the setting.

        """
        self.name = name
        check_routing_key(routing_key.reveal())
        self._routing_key = routing_key
        self._source = source or socket.gethostname() or "unknown"
        self._client_url = client_url
        self._poster = HttpPoster(Secret(url), setting="pagerduty_url", http=http)

    def send(self, incident: Incident, wall: float) -> None:
        """Send one incident; see ``Receiver.send``. 202 means queued; the API reports no more."""
        try:
            key = check_routing_key(self._routing_key.reveal())
        except ValueError as error:
            raise HttpError(str(error), DeliveryOutcome.MISCONFIGURED) from None
        full, less = self._bodies(incident, key)
        post_or_less(lambda body: self._post(body, wall), full, less)

    def close(self) -> None:
        """Close the connection."""
        self._poster.close()

    def _bodies(self, incident: Incident, key: str) -> tuple[bytes, bytes]:
        if incident.ends_at is not None:
            resolve = to_json(resolve_event(incident, key))
            return resolve, resolve
        full = trigger_event(incident, key, self._source, self._client_url)
        less = minimal_trigger_event(incident, key, self._source)
        return encode(full, incident), to_json(less)

    def _post(self, body: bytes, wall: float) -> bytes:
        try:
            return not_a_page(self._poster.post(body, wall), self._poster.place)
        except HttpError as error:
            if error.status != BAD_REQUEST or not is_about_the_key(error.body):
                raise
            raise HttpError(
                f"{error}: it does not know the routing key",
                DeliveryOutcome.MISCONFIGURED,
                status=error.status,
                body=error.body,
                retry_after=error.retry_after,
                may_have_arrived=error.may_have_arrived,
            ) from None


def urls(given: PagerDutySettings) -> Sequence[str]:
    """Where events are posted."""
    return (given.url if given.url is not None else EVENTS_URLS[given.region],)


def make(given: PagerDutySettings, context: ReceiverContext) -> PagerDuty:
    """Make a PagerDuty service from its settings."""
    return PagerDuty(
        context.secret("routing_key"),
        name=given.name,
        url=urls(given)[0],
        http=context.http,
        client_url=context.external_url,
    )


TYPE = ReceiverType(
    PagerDutySettings,
    make,
    one_of=("routing_key", "routing_key_file"),
    short_form={
        "routing_key": "pagerduty_routing_key",
        "routing_key_file": "pagerduty_routing_key_file",
        "url": "pagerduty_url",
    },
    urls=urls,
)
