"""Sends incidents to a webhook, in Alertmanager's format or in that of querypulse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ...core.outcomes import DeliveryOutcome
from ...core.secret import Secret
from ..alert import Incident
from .alertmanager_message import message
from .declaration import ReceiverContext, ReceiverType, SecretFile, UrlReceiverSettings
from .encoding import to_json
from .http import HttpError, HttpPoster
from .http_options import HttpOptions
from .minimal_payload import post_or_less
from .raw_message import raw_message
from .receiver import ReceiverCapabilities
from .standard_webhooks import message_id, signed_headers, signing_key

MAX_BODY_BYTES = 1024 * 1024
"""The largest body that nginx, in front of many receivers, takes by default."""


class WebhookSettings(
    UrlReceiverSettings, tag_field="type", tag="webhook", frozen=True, kw_only=True
):
    """``format``: Alertmanager's version-4 JSON, or querypulse's own, with a published schema."""

    secret_files: tuple[SecretFile, ...] = ()
    """More than one during a rotation: each secret signs."""
    format: Literal["alertmanager", "raw"] = "alertmanager"


class Webhook:
    """One POST per incident: Alertmanager's version-4 JSON (``format`` "alertmanager") or our own
    ("raw"), signed with each of ``secrets``: there are two during a rotation.

    ``Idempotency-Key`` is the same for every attempt to send the same message.
    """

    capabilities = ReceiverCapabilities()

    def __init__(
        self,
        url: Secret,
        *,
        name: str = "webhook",
        secrets: Sequence[Secret] = (),
        format: Literal["alertmanager", "raw"] = "alertmanager",  # noqa: A002 - the setting's name
        http: HttpOptions | None = None,
        external_url: str = "",
    ) -> None:
        """Check the settings; ``external_url`` is the link to more information.

        Raises:
            ValueError: ``url`` or a secret cannot be used; the message names the setting.

        """
        self.name = name
        self._secrets = tuple(secrets)
        self._signing_keys()
        self._format = format
        self._external_url = external_url
        self._poster = HttpPoster(url, setting="webhook_url", http=http)

    def send(self, incident: Incident, wall: float) -> None:
        """Send one incident; see ``Receiver.send``."""
        identity = message_id(incident)
        try:
            keys = self._signing_keys()
        except ValueError as error:
            raise HttpError(str(error), DeliveryOutcome.MISCONFIGURED) from None

        def post(body: bytes) -> bytes:
            def headers(attempt_wall: float) -> dict[str, str]:
                signed = signed_headers(keys, identity, attempt_wall, body) if keys else {}
                return {"Idempotency-Key": identity, **signed}

            return self._poster.post(body, wall, headers)

        full, less = (self._body(incident, identity, plain=plain) for plain in (False, True))
        post_or_less(post, full if len(full) <= MAX_BODY_BYTES else less, less)

    def close(self) -> None:
        """Close the connection."""
        self._poster.close()

    def _body(self, incident: Incident, identity: str, *, plain: bool) -> bytes:
        if self._format == "raw":
            return to_json(raw_message(incident, identity, self._external_url, plain=plain))
        return to_json(message(incident, self.name, self._external_url, plain=plain))

    def _signing_keys(self) -> list[bytes]:
        return [signing_key(secret.reveal()) for secret in self._secrets]


def make(given: WebhookSettings, context: ReceiverContext) -> Webhook:
    """Make a webhook from its settings."""
    return Webhook(
        context.secret("url"),
        name=given.name,
        secrets=context.secret_files("secret_files"),
        format=given.format,
        http=context.http,
        external_url=context.external_url,
    )


TYPE = ReceiverType(
    WebhookSettings,
    make,
    one_of=("url", "url_file"),
    short_form={
        "url": "webhook_url",
        "url_file": "webhook_url_file",
        "secret_files": "webhook_secret_file",
    },
)
