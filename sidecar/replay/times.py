"""When a line was written, as far as it says so: Unix seconds."""

from __future__ import annotations

import re
from datetime import datetime, timezone

import msgspec

# Milliseconds of these keys only: others hold durations, or times long past.
_MILLIS = re.compile(
    rb'"(?:Timestamp|(?:Submission|Launch|Finish|Completion) Time|time)":\s?(\d{13})\b'
)


class _Progress(msgspec.Struct):
    timestamp: datetime | None = None


class _Event(msgspec.Struct):
    timestamp: datetime | None = None
    progress: _Progress | None = None


_EVENT = msgspec.json.Decoder(_Event)


def latest_millis(line: bytes) -> float | None:
    """The latest time that a line of Spark's own events tells; None where it tells none."""
    return max((int(millis) / 1000 for millis in _MILLIS.findall(line)), default=None)


def timestamp(text: str | bytes) -> float | None:
    """The ``timestamp`` of a streaming event's JSON; None where it has none.

    Raises:
        msgspec.MsgspecError: this is no such JSON.

    """
    event = _EVENT.decode(text)
    stamp = event.progress.timestamp if event.progress is not None else event.timestamp
    if stamp is None:
        return None
    if stamp.tzinfo is None:
        stamp = stamp.replace(tzinfo=timezone.utc)
    return stamp.timestamp()
