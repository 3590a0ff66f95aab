"""Sends incidents to a Slack channel."""

from __future__ import annotations

from ...core.secret import Secret
from ..alert import Incident
from .answer import DeliveryOutcome
from .declaration import (
    HttpReceiverSettings,
    ReceiverContext,
    ReceiverType,
    SecretFile,
    SecretUrl,
)
from .encoding import to_json
from .http import HttpError, HttpPoster
from .http_options import HttpOptions
from .minimal_payload import post_or_less
from .receiver import ReceiverCapabilities
from .slack_message import minimal_message, slack_message

ACCEPTED = b"ok"


class SlackSettings(HttpReceiverSettings, tag_field="type", tag="slack", frozen=True, kw_only=True):
    """An incoming webhook."""

    url: SecretUrl | None = None
    url_file: SecretFile | None = None


class Slack:
    """One message per incident through an incoming webhook, which takes one a second.

    https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks
    """

    capabilities = ReceiverCapabilities(per_minute=60.0)

    def __init__(
        self,
        url: Secret,
        *,
        name: str = "slack",
        http: HttpOptions | None = None,
        external_url: str = "",
    ) -> None:
        """Check the settings; ``external_url`` is the link to more information.

        Raises:
            ValueError: ``url`` cannot be used; the message names the setting.

        """
        self.name = name
        self._external_url = external_url
        self._poster = HttpPoster(url, setting="slack_webhook_url", http=http)

    def send(self, incident: Incident, wall: float) -> None:
        """Send one incident; see ``Receiver.send``."""
        full = to_json(slack_message(incident, self._external_url))
        less = to_json(minimal_message(incident))
        post_or_less(lambda body: self._post(body, wall), full, less)

    def close(self) -> None:
        """Close the connection."""
        self._poster.close()

    def _post(self, body: bytes, wall: float) -> bytes:
        """A 2xx counts only with the body "ok": any other body is not from Slack."""
        answer = self._poster.post(body, wall).strip()
        if answer == ACCEPTED:
            return answer
        # An empty answer is a broken connection; another body comes from another server.
        meant = DeliveryOutcome.MISCONFIGURED if answer else DeliveryOutcome.TRANSIENT
        text = f"{self._poster.place} answered 2xx without Slack's 'ok'"
        raise HttpError(text, meant, may_have_arrived=True)


def make(given: SlackSettings, context: ReceiverContext) -> Slack:
    """Make a Slack channel from its settings."""
    return Slack(
        context.secret("url"),
        name=given.name,
        http=context.http,
        external_url=context.external_url,
    )


TYPE = ReceiverType(
    SlackSettings,
    make,
    one_of=("url", "url_file"),
    short_form={"url": "slack_webhook_url", "url_file": "slack_webhook_url_file"},
)
