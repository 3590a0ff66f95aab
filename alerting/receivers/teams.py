"""Sends incidents to a Microsoft Teams channel, as Adaptive Cards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from ...core.secret import Secret
from ..alert import Alert, Incident
from ..details import NEXT_STEPS, details, links, members, next_steps
from ..headline import called, headline_of
from .answer import DeliveryOutcome
from .declaration import (
    HttpReceiverSettings,
    ReceiverContext,
    ReceiverType,
    SecretFile,
    SecretUrl,
)
from .encoding import shorten, to_json
from .http import HttpError, HttpPoster
from .http_options import HttpOptions
from .minimal_payload import post_or_less
from .receiver import ReceiverCapabilities

MAX_TITLE_CHARACTERS = 1024
MAX_REASON_CHARACTERS = 500
MAX_EVIDENCE_CHARACTERS = 4000
MAX_LINES = 40
MAX_ALERTS = 20
MAX_MESSAGE_BYTES = 27 * 1024
"""Teams takes 28 KB. The workflow has answered 202 by then, so nobody would see the refusal."""
MAX_URL_CHARACTERS = 2000
COLORS = {"critical": "Attention", "warning": "Warning"}
CARD_VERSION = "1.4"
"""Teams on every platform shows this version; a newer one is shown as an error."""


class TeamsSettings(HttpReceiverSettings, tag_field="type", tag="teams", frozen=True, kw_only=True):
    """The URL of a workflow "Post to a channel when a webhook request is received"."""

    url: SecretUrl | None = None
    url_file: SecretFile | None = None


class Teams:
    """One card per incident through a workflow's webhook.

    https://learn.microsoft.com/power-automate/teams/send-a-message-in-teams
    """

    capabilities = ReceiverCapabilities(per_minute=60.0)

    def __init__(
        self,
        url: Secret,
        *,
        name: str = "teams",
        http: HttpOptions | None = None,
        external_url: str = "",
    ) -> None:
        """Check the settings; ``external_url`` is the link to more information.

        Raises:
            ValueError: ``url`` cannot be used; the message names the setting.

        """
        self.name = name
        self._external_url = external_url
        self._poster = HttpPoster(url, setting="url", http=http)

    def send(self, incident: Incident, wall: float) -> None:
        """Send one incident; see ``Receiver.send``. 202 means that the workflow has started."""
        full = to_json(teams_message(incident, self._external_url))
        less = to_json(minimal_message(incident))
        if len(full) > MAX_MESSAGE_BYTES:
            full = less
        post_or_less(lambda body: self._post(body, wall), full, less)

    def _post(self, body: bytes, wall: float) -> bytes:
        """A page of HTML comes from something else, such as the login of a proxy."""
        answer = self._poster.post(body, wall)
        if answer.lstrip().startswith(b"<"):
            text = f"{self._poster.place} answered 2xx with a page of HTML"
            raise HttpError(text, DeliveryOutcome.MISCONFIGURED, may_have_arrived=True)
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._poster.close()


def teams_message(incident: Incident, external_url: str = "") -> dict[str, Any]:
    """A message with one card: headline, details, and links as buttons.

    All text is in runs of rich text, in which Teams reads no Markdown: no text of a query can make
    a link or mention people.
    """
    firing = incident.ends_at is None
    alerts = incident.alerts
    body = [_title(incident, MAX_TITLE_CHARACTERS)]
    body += _members(incident) if len(alerts) > 1 else _facts(details(alerts[0]))
    since = datetime.fromtimestamp(incident.starts_at, timezone.utc)
    body.append(_text(f"{incident.name} · since {since:%Y-%m-%d %H:%M:%S} UTC", isSubtle=True))
    return _message(incident, body, list(_buttons(alerts[0], external_url)) if firing else [])


def minimal_message(incident: Incident) -> dict[str, Any]:
    """The message that is sent when Teams refuses the full one."""
    return _message(incident, [_title(incident, MAX_REASON_CHARACTERS)], [])


def _message(
    incident: Incident, body: list[dict[str, Any]], actions: list[dict[str, Any]]
) -> dict[str, Any]:
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": CARD_VERSION,
        "fallbackText": shorten(headline_of(incident), MAX_TITLE_CHARACTERS),
        "msteams": {"width": "Full"},
        "body": body,
        **({"actions": actions} if actions else {}),
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return {"type": "message", "attachments": [attachment]}


def _title(incident: Incident, most: int) -> dict[str, Any]:
    headline = " ".join(headline_of(incident).split())
    if incident.ends_at is not None:
        return _text(shorten(headline, most), weight="Bolder", color="Good")
    color = COLORS.get(incident.severity, "Default")
    text = shorten(f"{incident.severity}: {headline}", most)
    return _text(text, weight="Bolder", color=color)


def _members(incident: Incident) -> list[dict[str, Any]]:
    """The firing alerts of a group with their reasons, and the next steps once."""
    shown = members(incident)
    lines = [
        shorten(
            f"{called(alert.labels['query'])}: {alert.annotations.get('reason', '')}",
            MAX_REASON_CHARACTERS,
        )
        for alert in shown[:MAX_ALERTS]
    ]
    if len(shown) > MAX_ALERTS:
        lines.append(f"and {len(shown) - MAX_ALERTS} more")
    steps = next_steps(incident)
    return [*map(_text, lines), *_facts({NEXT_STEPS: steps} if steps else {})]


def _facts(facts: Mapping[str, str]) -> list[dict[str, Any]]:
    text = "\n".join(f"{name}: {text}" for name, text in facts.items())
    lines = [line for line in shorten(text, MAX_EVIDENCE_CHARACTERS).splitlines() if line.strip()]
    return [_text(line, fontType="Monospace", size="Small") for line in lines[:MAX_LINES]]


def _text(text: str, **style: str | bool) -> dict[str, Any]:
    run = {"type": "TextRun", "text": text, **style}
    return {"type": "RichTextBlock", "inlines": [run]}


def _buttons(alert: Alert, external_url: str) -> Iterator[dict[str, Any]]:
    """One for each link that Teams can open."""
    for title, url in {**links(alert), "Status page": external_url}.items():
        if url and len(url) <= MAX_URL_CHARACTERS:
            yield {"type": "Action.OpenUrl", "title": title, "url": url}


def make(given: TeamsSettings, context: ReceiverContext) -> Teams:
    """Make a Teams channel from its settings."""
    return Teams(
        context.secret("url"),
        name=given.name,
        http=context.http,
        external_url=context.external_url,
    )


TYPE = ReceiverType(TeamsSettings, make, one_of=("url", "url_file"))
