"""Slack's incoming webhook with its documented limits.

https://docs.slack.dev/reference/block-kit/blocks
"""

from __future__ import annotations

import json
from typing import Any

from .http_double import Answer, DoubleHandler, HttpDouble, reply

MAX_BLOCKS = 50
MAX_TEXT = 40_000
MAX_SECTION = 3000


class SlackDouble(HttpDouble):
    """Keeps accepted messages in ``messages``; answers "ok" or the error in the body."""

    def __init__(self, *script: Answer) -> None:
        super().__init__(*script, otherwise=self.process)
        self.messages: list[dict[str, Any]] = []

    def process(self, handler: DoubleHandler) -> None:
        message = json.loads(self.requests[-1].body)
        if problems(message):
            return reply(400, body=b"invalid_blocks")(handler)
        self.messages.append(message)
        return reply(200, body=b"ok")(handler)


def problems(message: dict[str, Any]) -> list[str]:
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
