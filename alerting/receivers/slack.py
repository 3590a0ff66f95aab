"""Sends incidents to a Slack channel."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import starmap
from typing import Any, ClassVar
from urllib.parse import quote

from ...core.states import DeliveryOutcome
from ...core.text import shorten, utc
from ..alert import Incident
from ..words.headlines import headline_of
from ..words.messages import (
    STATUS_PAGE,
    as_lines,
    incident_details,
    line,
    links,
    more_labels,
    others,
)
from .http import HttpReceiver
from .receiver import DeliveryError, UrlReceiverSettings

# -- slack message ----------------------------------------------------------------------------
# https://docs.slack.dev/reference/block-kit/blocks gives the limits; a message beyond them is
# refused whole. https://docs.slack.dev/messaging/formatting-message-text gives the marks.

MAX_TITLE_CHARACTERS = 1024
MAX_FIELD_CHARACTERS = 500
MAX_EVIDENCE_CHARACTERS = 1200
"""Whatever is in one section is cut to less than the 3000 that it takes, before its marks."""
MINIMAL_CHARACTERS = 512

SIGNS = {"critical": ":rotating_light:", "warning": ":warning:"}
URL_MARKS = "!#$%'()*+,/:;=?@[]~&"
"""The characters allowed in a link; others, such as ``|`` or ``>``, would end it."""
LOOKALIKES = str.maketrans("*~", "\N{ASTERISK OPERATOR}\N{TILDE OPERATOR}")
"""Slack cannot escape the marks of bold and struck-out text, so other characters replace them."""


def slack_message(incident: Incident, external_url: str = "") -> dict[str, Any]:
    """The text is what a notification shows, the blocks what the channel shows.

    Each alert that the headline does not name is a section of its own; a message takes 50. Names
    are written as code, in which no mark counts.
    """
    title = shorten(_title(incident), MAX_TITLE_CHARACTERS)
    alerts = incident.alerts
    texts = [
        line(f"`{_cut(name)}`", _plain(reason)) if reason else _plain(name)
        for name, reason in others(incident).items()
    ]
    texts.append(_as_code(incident_details(incident)))
    if incident.ends_at is None:
        texts.append(" · ".join(filter(None, starmap(_link, links(alerts[0]).items()))))
    blocks = [_section(f"*{title}*"), *(_section(text) for text in texts if text)]
    return {"text": title, "blocks": [*blocks, _context(incident, external_url)]}


def minimal_message(incident: Incident) -> dict[str, Any]:
    """The message that is sent when Slack refuses the full one."""
    return {"text": shorten(_title(incident), MINIMAL_CHARACTERS)}


def escape(text: str) -> str:
    """No text of a query can mention a channel, make a link or open a block of code."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("`", "'")


def _title(incident: Incident) -> str:
    """The headline without markup of its own: all of it is bold."""
    words = escape(" ".join(headline_of(incident).split())).translate(LOOKALIKES)
    if incident.ends_at is not None:
        return f":white_check_mark: {words}"
    return f"{SIGNS[incident.severity]} {incident.severity}: {words}"


def _as_code(details: Mapping[str, str]) -> str:
    lines = escape(as_lines(details))
    return f"```{shorten(lines, MAX_EVIDENCE_CHARACTERS)}```" if lines else ""


def _link(title: str, url: str) -> str:
    """The link; empty if the URL is absent or would be cut."""
    target = quote(url, safe=URL_MARKS, errors="replace").replace("&", "&amp;")
    if not target or len(target) > MAX_FIELD_CHARACTERS:
        return ""
    return f"<{target}|{title}>"


def _context(incident: Incident, external_url: str) -> dict[str, Any]:
    own = (_plain(f"{name}={value}") for name, value in more_labels(incident).items())
    parts = [incident.alerts[0].name, *own, f"since {utc(incident.starts_at)}"]
    parts.append(_link(STATUS_PAGE, external_url))
    text = " · ".join(filter(None, parts))
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": text}]}


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def _cut(text: str) -> str:
    return shorten(escape(text), MAX_FIELD_CHARACTERS)


def _plain(text: str) -> str:
    return _cut(text).translate(LOOKALIKES)


# -- slack ------------------------------------------------------------------------------------

ACCEPTED = b"ok"


class Slack(HttpReceiver):
    """A Slack channel with an incoming webhook.

    https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks
    """

    def message(self, incident: Incident, *, minimal: bool = False) -> dict[str, Any]:
        """See ``HttpReceiver.message``."""
        return minimal_message(incident) if minimal else slack_message(incident, self.external_url)

    def check(self, answer: bytes) -> None:
        """A 2xx counts only with the body "ok": any other body is not from Slack."""
        if answer.strip() != ACCEPTED:
            # An empty answer is a broken connection; another body comes from another server.
            meant = DeliveryOutcome.MISCONFIGURED if answer.strip() else DeliveryOutcome.TRANSIENT
            text = f"{self.poster.place} answered 2xx without Slack's 'ok'"
            raise DeliveryError(text, meant, may_have_arrived=True)


class SlackSettings(UrlReceiverSettings, tag_field="type", tag="slack", frozen=True, kw_only=True):
    """An incoming webhook."""

    makes = Slack

    short_form: ClassVar[Mapping[str, str]] = {"url_file": "slack_webhook_url_file"}
