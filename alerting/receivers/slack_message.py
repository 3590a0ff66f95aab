"""An incident as a Slack message. Pure.

https://docs.slack.dev/reference/block-kit/blocks gives the limits; a message beyond them is
refused whole.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote

from ..alert import Alert, Incident
from .encoding import shorten
from .headline import headline

MAX_SECTION_CHARACTERS = 3000
MAX_TITLE_CHARACTERS = 1024
MAX_FIELD_CHARACTERS = 500
MAX_EVIDENCE_CHARACTERS = 1200
"""Together less than a section, so that no mark that ends something is cut off."""
MAX_ALERTS = 20
"""Each is a section of its own; a message takes 50 blocks."""
MINIMAL_CHARACTERS = 512

SIGNS = {"critical": ":rotating_light:", "warning": ":warning:"}
URL_MARKS = "!#$%'()*+,/:;=?@[]~&"
"""What may stand in a link; anything else, such as ``|`` or ``>``, would end it."""
TOLD_ELSEWHERE = {"summary", "description", "reason", "runbook_url"}


def slack_message(incident: Incident, external_url: str = "") -> dict[str, Any]:
    """The text is what a notification shows, the blocks what the channel shows."""
    more = len(incident.alerts) - MAX_ALERTS
    title = shorten(_title(incident), MAX_TITLE_CHARACTERS)
    blocks = [_section(f"*{title}*")]
    told = incident.alerts[:MAX_ALERTS]
    blocks += [_section(_story(alert, alone=len(told) == 1)) for alert in told]
    if more > 0:
        blocks.append(_section(f"and {more} more"))
    blocks.append(_context(incident, external_url))
    return {"text": title, "blocks": blocks}


def minimal_message(incident: Incident) -> dict[str, Any]:
    """What is still told when something about the full message was not liked."""
    return {"text": shorten(_title(incident), MINIMAL_CHARACTERS)}


def escape(text: str) -> str:
    """No text of a query can mention a channel, make a link or open a block of code."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("`", "'")


def _title(incident: Incident) -> str:
    words = escape(" ".join(headline(incident).split()))
    if incident.ends_at is not None:
        lasted = _duration(incident.ends_at - incident.starts_at)
        return f":white_check_mark: resolved after {lasted}: {words}"
    return f"{SIGNS.get(incident.severity, ':grey_question:')} {incident.severity}: {words}"


def _story(alert: Alert, *, alone: bool) -> str:
    """The reason and the way to the runbook; of one that is alone, the evidence line by line."""
    told = alert.annotations
    text = f"*{_cut(alert.labels['query'])}*: {_cut(told.get('reason', ''))}"
    if alert.ends_at is not None:
        return f"{text}\n_well again_"
    evidence = [f"{key}: {value}" for key, value in told.items() if key not in TOLD_ELSEWHERE]
    if evidence and alone:
        lines = escape("\n".join(evidence))
        text += f"\n```{shorten(lines, MAX_EVIDENCE_CHARACTERS)}```"
    return text + _link("\n", told.get("runbook_url", ""), "Runbook")


def _link(before: str, url: str, words: str) -> str:
    """Nothing for a URL that is absent or would be cut."""
    target = quote(url, safe=URL_MARKS, errors="replace").replace("&", "&amp;")
    if not target or len(target) > MAX_FIELD_CHARACTERS:
        return ""
    return f"{before}<{target}|{words}>"


def _context(incident: Incident, external_url: str) -> dict[str, Any]:
    app = incident.alerts[0].labels["app"]
    since = datetime.fromtimestamp(incident.starts_at, timezone.utc)
    parts = [incident.name, f"app {_cut(app)}", f"since {since:%Y-%m-%d %H:%M:%S} UTC"]
    text = " · ".join(parts) + _link(" · ", external_url, "status")
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": text}]}


def _section(text: str) -> dict[str, Any]:
    cut = shorten(text, MAX_SECTION_CHARACTERS)
    return {"type": "section", "text": {"type": "mrkdwn", "text": cut}}


def _cut(text: str) -> str:
    return shorten(escape(text), MAX_FIELD_CHARACTERS)


def _duration(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3 h 20 min``."""
    whole = max(0, round(seconds))
    if whole < 120:  # noqa: PLR2004 - two minutes
        return f"{whole} s"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
