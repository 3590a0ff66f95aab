"""Tells alerts to PagerDuty."""

from __future__ import annotations

import socket

from ..alert import Alert
from .http import HttpError, HttpPoster
from .pagerduty_event import (
    check_routing_key,
    encode,
    minimal_trigger_event,
    resolve_event,
    trigger_event,
)

EVENTS_URL = "https://events.pagerduty.com/v2/enqueue"
"""The US service region; the EU's host is events.eu.pagerduty.com."""

BODY_DISLIKED = frozenset({400, 413})


class PagerDuty:
    """Triggers and resolves through the Events API v2; the alert's key is the ``dedup_key``."""

    def __init__(
        self,
        routing_key: str,
        *,
        name: str = "pagerduty",
        url: str = EVENTS_URL,
        source: str | None = None,
        client_url: str = "",
        allow_http: bool = False,
    ) -> None:
        """Check the settings; ``source`` is this machine's name unless given.

        Raises:
            ValueError: ``routing_key`` or ``url`` cannot be used; the message names the setting.

        """
        self.name = name
        self._routing_key = check_routing_key(routing_key)
        self._source = source or socket.gethostname() or "unknown"
        self._client_url = client_url
        self._poster = HttpPoster(url, setting="pagerduty_url", allow_http=allow_http)

    def send(self, alert: Alert, wall: float) -> None:
        """Tell one alert; see ``Receiver.send``. 202 means queued, the API says no more."""
        if alert.ends_at is not None:
            self._poster.post(encode(resolve_event(alert, self._routing_key)), wall)
        elif not self._told_in_full(alert, wall):
            event = minimal_trigger_event(alert, self._routing_key, self._source)
            self._poster.post(encode(event), wall)

    def close(self) -> None:
        """Give the connection back."""
        self._poster.close()

    def _told_in_full(self, alert: Alert, wall: float) -> bool:
        """False when PagerDuty dislikes the body: a decoration must not cost a page."""
        event = trigger_event(alert, self._routing_key, self._source, self._client_url)
        try:
            self._poster.post(encode(event), wall)
        except HttpError as error:
            if error.status in BODY_DISLIKED:
                return False
            raise
        return True
