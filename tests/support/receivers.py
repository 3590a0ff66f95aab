"""Receivers for tests, made from settings, with made-up secrets; and the limits of Slack's webhook."""

from __future__ import annotations

import base64
from typing import Any

from querypulse.alerting.receivers.receiver import Receiver
from querypulse.settings.settings import Settings
from querypulse.sidecar.assemble import make_receivers

from .http_double import HttpDouble
from .pagerduty_double import PagerDutyDouble

SIGNING_KEY = bytes(range(24))
SIGNING_SECRET = "whsec_" + base64.b64encode(SIGNING_KEY).decode()
NEXT_SIGNING_SECRET = "whsec_" + base64.b64encode(bytes(32)).decode()
ROUTING_KEY = "R0123456789abcdefghijklmnopqrstu"
OWN = {"pagerduty": {"routing_key": ROUTING_KEY}}
KINDS = ("webhook", "pagerduty", "alertmanager", "slack", "teams")
"""Every kind of receiver over HTTP."""


def receiver(kind: str, *, external_url: str | None = None, **table: Any) -> Receiver:
    """The receiver of one table of the setting ``receivers``; its name is its kind."""
    given = {"type": kind, "name": kind, **OWN.get(kind, {}), **table}
    if "routing_key_file" in given:
        del given["routing_key"]
    settings = Settings(receivers=[given], external_url=external_url)
    (made,) = make_receivers(settings)
    return made


def at(kind: str, url: str, **table: Any) -> Receiver:
    """A receiver of this kind that sends to ``url``."""
    where = {"urls": [url]} if kind == "alertmanager" else {"url": url}
    return receiver(kind, **where, **table)


def webhook(double: HttpDouble, **table: Any) -> Receiver:
    return at("webhook", f"{double.url}/hook", **table)


def pagerduty(double: PagerDutyDouble, **table: Any) -> Receiver:
    return at("pagerduty", double.enqueue_url, **table)


MAX_BLOCKS = 50
MAX_TEXT = 40_000
MAX_SECTION = 3000


def slack_problems(message: dict[str, Any]) -> list[str]:
    """The problems for which Slack would reject a message."""
    blocks = message.get("blocks", [])
    errors = [] if 0 < len(message["text"]) <= MAX_TEXT else ["no_text"]
    errors += ["too many blocks"] if len(blocks) > MAX_BLOCKS else []
    for block in blocks:
        texts = [block["text"]] if block["type"] == "section" else block["elements"]
        errors += [
            f"bad text of {len(text['text'])} characters"
            for text in texts
            if text["type"] != "mrkdwn" or not 0 < len(text["text"]) <= MAX_SECTION
        ]
        errors += ["a code block is open" for text in texts if text["text"].count("```") % 2]
    return errors
