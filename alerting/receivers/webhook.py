"""Tells alerts to a webhook, as Alertmanager would."""

from __future__ import annotations

from ..alert import Alert
from .alertmanager_message import message
from .encoding import to_json
from .http import HttpPoster
from .standard_webhooks import message_id, signed_headers, signing_key


class Webhook:
    """One POST per alert: Alertmanager's version-4 JSON, signed when there is a secret.

    ``Idempotency-Key`` is the same for every attempt to tell the same thing.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str = "webhook",
        secret: str | None = None,
        allow_http: bool = False,
        external_url: str = "",
    ) -> None:
        """Check the settings.

        Raises:
            ValueError: ``url`` or ``secret`` cannot be used; the message names the setting.

        """
        self.name = name
        self._key = signing_key(secret) if secret is not None else None
        self._external_url = external_url
        self._poster = HttpPoster(url, setting="webhook_url", allow_http=allow_http)

    def send(self, alert: Alert, wall: float) -> None:
        """Tell one alert; see ``Receiver.send``."""
        body = to_json(message(alert, self.name, self._external_url))
        identity = message_id(alert)

        def headers(attempt_wall: float) -> dict[str, str]:
            key = self._key
            signed = {} if key is None else signed_headers(key, identity, attempt_wall, body)
            return {"Idempotency-Key": identity, **signed}

        self._poster.post(body, wall, headers)

    def close(self) -> None:
        """Give the connection back."""
        self._poster.close()
