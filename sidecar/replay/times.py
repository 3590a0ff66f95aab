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
_STAMP = msgspec.json.Decoder(datetime)
_KEY = b'"timestamp":"'


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
    return None if stamp is None else _seconds(stamp)


def first_timestamp(line: bytes) -> float | None:
    """The first ``timestamp`` in a line, without parsing the rest; None where there is none.

    For lines that begin as Spark writes them, where only ids and a name stand before it: what
    looks like a key within a text has its quotes escaped.

    Raises:
        msgspec.MsgspecError: it is no time.

    """
    key = line.find(_KEY)
    begin = key + len(_KEY)
    end = line.find(b'"', begin)
    if key < 0 or end < 0:
        return None
    return _seconds(_STAMP.decode(line[begin - 1 : end + 1]))


def _seconds(stamp: datetime) -> float:
    if stamp.tzinfo is None:
        stamp = stamp.replace(tzinfo=timezone.utc)
    return stamp.timestamp()
