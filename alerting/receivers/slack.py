"""Sends incidents to a Slack channel."""

from __future__ import annotations

from ...core.outcomes import DeliveryOutcome
from ..alert import Incident
from .channel import Channel, channel_type
from .declaration import UrlReceiverSettings
from .encoding import to_json
from .http import HttpError
from .slack_message import minimal_message, slack_message

ACCEPTED = b"ok"


class SlackSettings(UrlReceiverSettings, tag_field="type", tag="slack", frozen=True, kw_only=True):
    """An incoming webhook."""


class Slack(Channel):
    """A Slack channel with an incoming webhook.

    https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks
    """

    setting = "slack_webhook_url"

    def _bodies(self, incident: Incident) -> tuple[bytes, bytes]:
        full = to_json(slack_message(incident, self._external_url))
        return full, to_json(minimal_message(incident))

    def _checked(self, answer: bytes) -> bytes:
        """A 2xx counts only with the body "ok": any other body is not from Slack."""
        answer = answer.strip()
        if answer == ACCEPTED:
            return answer
        # An empty answer is a broken connection; another body comes from another server.
        meant = DeliveryOutcome.MISCONFIGURED if answer else DeliveryOutcome.TRANSIENT
        text = f"{self._poster.place} answered 2xx without Slack's 'ok'"
        raise HttpError(text, meant, may_have_arrived=True)


TYPE = channel_type(
    SlackSettings,
    Slack,
    {"url": "slack_webhook_url", "url_file": "slack_webhook_url_file"},
)
