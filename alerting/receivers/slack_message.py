"""An incident as a Slack message. Pure.

https://docs.slack.dev/reference/block-kit/blocks gives the limits; a message beyond them is
refused whole.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from ..alert import Alert, Incident
from .encoding import shorten
from .headline import headline, queries

MAX_SECTION_CHARACTERS = 3000
MAX_FIELD_CHARACTERS = 600
"""Of one alert's reason or evidence, so that a section holds both and the marks around them."""
MAX_ALERTS = 20
"""Each is a section of its own; a message takes 50 blocks."""
MINIMAL_CHARACTERS = 512

SIGNS = {"critical": ":rotating_light:", "warning": ":warning:"}
TOLD_ELSEWHERE = {"summary", "description", "reason", "runbook_url"}


def slack_message(incident: Incident, external_url: str = "") -> dict[str, Any]:
    """The text is what a notification shows, the blocks what the channel shows."""
    more = len(incident.alerts) - MAX_ALERTS
    blocks = [_section(f"*{_title(incident)}*")]
    blocks += [_section(_story(alert)) for alert in incident.alerts[:MAX_ALERTS]]
    if more > 0:
        blocks.append(_section(f"and {more} more"))
    blocks.append(_context(incident, external_url))
    return {"text": shorten(_title(incident), MAX_SECTION_CHARACTERS), "blocks": blocks}


def minimal_message(incident: Incident) -> dict[str, Any]:
    """What is still told when something about the full message was not liked."""
    return {"text": shorten(_title(incident), MINIMAL_CHARACTERS)}


def escape(text: str) -> str:
    """Slack's three: so that no text of a query can mention a channel or make a link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _title(incident: Incident) -> str:
    words = escape(headline(incident))
    if incident.ends_at is not None:
        lasted = _duration(incident.ends_at - incident.starts_at)
        return f":white_check_mark: resolved after {lasted}: {words}"
    return f"{SIGNS.get(incident.severity, ':grey_question:')} {incident.severity}: {words}"


def _story(alert: Alert) -> str:
    """The reason; while it fires, the evidence line by line, and the way to the runbook."""
    told = alert.annotations
    name = escape(alert.labels["query"])
    text = f"*{_cut(name)}*: {_cut(escape(told.get('reason', '')))}"
    if alert.ends_at is not None:
        return f"{text}\n_well again_"
    evidence = [f"{key}: {value}" for key, value in told.items() if key not in TOLD_ELSEWHERE]
    if evidence:
        lines = escape("\n".join(evidence)).replace("```", "'''")
        text += f"\n```{_cut(lines)}```"
    if runbook := told.get("runbook_url"):
        text += f"\n<{escape(runbook).replace('|', '%7C')}|Runbook>"
    return text


def _context(incident: Incident, external_url: str) -> dict[str, Any]:
    app = incident.alerts[0].labels["app"]
    since = datetime.fromtimestamp(incident.starts_at, timezone.utc)
    parts = [incident.name, f"app {escape(app)}", f"since {since:%Y-%m-%d %H:%M:%S} UTC"]
    if external_url:
        parts.append(f"<{escape(external_url)}|status>")
    text = shorten(" · ".join(parts), MAX_FIELD_CHARACTERS)
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": text}]}


def _section(text: str) -> dict[str, Any]:
    cut = shorten(text, MAX_SECTION_CHARACTERS)
    return {"type": "section", "text": {"type": "mrkdwn", "text": cut}}


def _cut(text: str) -> str:
    return shorten(text, MAX_FIELD_CHARACTERS)


def _duration(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3 h 20 min``."""
    whole = max(0, round(seconds))
    if whole < 120:  # noqa: PLR2004 - two minutes
        return f"{whole} s"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
