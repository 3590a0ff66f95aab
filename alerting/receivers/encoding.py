"""Values in the JSON that receivers read. Pure."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any


def to_json(body: dict[str, Any] | list[dict[str, Any]]) -> bytes:
    """Serialise once: the same bytes are signed, measured and sent.

    Text from a broken exception may contain lone surrogates; they become ``?``, so that an
    annotation never prevents a page.
    """
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def rfc3339(wall: float) -> str:
    """Unix seconds as RFC 3339 in UTC with milliseconds: ``2026-11-21T08:58:49.119Z``."""
    moment = datetime.fromtimestamp(wall, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def utc(wall: float) -> str:
    """Unix seconds for people: ``2026-11-21 08:58:49 UTC``."""
    return f"{datetime.fromtimestamp(wall, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def shorten(text: str, limit: int) -> str:
    """At most ``limit`` characters; a cut text ends in an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
