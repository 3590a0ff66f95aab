"""Sends incidents to a Microsoft Teams channel, as Adaptive Cards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.text import shorten, utc
from ..alert import Incident
from ..words.headlines import headline_of
from ..words.messages import as_lines, incident_details, line, links, more_labels, others
from .http import HttpReceiver
from .receiver import UrlReceiverSettings

MAX_TITLE_CHARACTERS = 1024
MAX_REASON_CHARACTERS = 500
MAX_EVIDENCE_CHARACTERS = 4000
MAX_LINES = 40
MAX_URL_CHARACTERS = 2000
"""Of a link that Teams can open."""
COLORS = {"critical": "Attention", "warning": "Warning"}
CARD_VERSION = "1.4"
"""Teams on every platform shows this version; a newer one is shown as an error."""


class Teams(HttpReceiver):
    """A Teams channel with a workflow; 202 means that the workflow has started.

    https://learn.microsoft.com/power-automate/teams/send-a-message-in-teams
    """

    max_bytes = 27 * 1024
    """Teams takes 28 KB. The workflow has answered 202 by then, so nobody would see the refusal."""

    def message(self, incident: Incident, *, minimal: bool = False) -> dict[str, Any]:
        """See ``HttpReceiver.message``."""
        return minimal_message(incident) if minimal else teams_message(incident, self.external_url)


def teams_message(incident: Incident, external_url: str = "") -> dict[str, Any]:
    """A message with one card: headline, details, and links as buttons.

    All text is in runs of rich text, in which Teams reads no Markdown: no text of a query can make
    a link or mention people.
    """
    first = incident.alerts[0]
    body = [_title(incident, MAX_TITLE_CHARACTERS)]
    body += [
        _text(shorten(line(name, reason), MAX_REASON_CHARACTERS))
        for name, reason in others(incident).items()
    ]
    body += _facts(incident_details(incident))
    own = [f"{name}={value}" for name, value in more_labels(incident).items()]
    since = f"since {utc(incident.starts_at)}"
    body.append(_text(" · ".join([first.name, *own, since]), isSubtle=True))
    urls = links(first, external_url) if incident.ends_at is None else {}
    buttons: list[dict[str, Any]] = [
        {"type": "Action.OpenUrl", "title": title, "url": url}
        for title, url in urls.items()
        if len(url) <= MAX_URL_CHARACTERS
    ]
    return _message(incident, body, buttons)


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
    text = shorten(f"{incident.severity}: {headline}", most)
    return _text(text, weight="Bolder", color=COLORS[incident.severity])


def _facts(details: Mapping[str, str]) -> list[dict[str, Any]]:
    text = shorten(as_lines(details), MAX_EVIDENCE_CHARACTERS)
    lines = [line for line in text.splitlines() if line.strip()]
    return [_text(line, fontType="Monospace", size="Small") for line in lines[:MAX_LINES]]


def _text(text: str, **style: str | bool) -> dict[str, Any]:
    run = {"type": "TextRun", "text": text, **style}
    return {"type": "RichTextBlock", "inlines": [run]}


class TeamsSettings(UrlReceiverSettings, tag_field="type", tag="teams", frozen=True, kw_only=True):
    """The URL of a workflow "Post to a channel when a webhook request is received"."""

    makes = Teams
