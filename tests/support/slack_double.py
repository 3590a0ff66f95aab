"""The documented limits of Slack's incoming webhook.

https://docs.slack.dev/reference/block-kit/blocks
"""

from __future__ import annotations

from typing import Any

MAX_BLOCKS = 50
MAX_TEXT = 40_000
MAX_SECTION = 3000


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
