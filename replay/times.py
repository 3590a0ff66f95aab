"""The time at which a line was written, if it contains one: Unix seconds."""

from __future__ import annotations

import re
from datetime import datetime, timezone

import msgspec

# Only these keys hold the time of the event: others hold durations, or much older times.
_MILLIS = re.compile(
    rb'"(?:Timestamp|(?:Submission|Launch|Finish|Completion) Time|time)":\s?(\d{13})\b'
)


class _ProgressTime(msgspec.Struct):
    timestamp: datetime | None = None


class _Event(msgspec.Struct):
    timestamp: datetime | None = None
    progress: _ProgressTime | None = None


_EVENT = msgspec.json.Decoder(_Event)
_STAMP = msgspec.json.Decoder(datetime)
_KEY = b'"timestamp":"'


def latest_millis(line: bytes) -> float | None:
    """The latest time in a line of Spark's own events; None if it has none."""
    return max((int(millis) / 1000 for millis in _MILLIS.findall(line)), default=None)


def timestamp(text: str | bytes) -> float | None:
    """The ``timestamp`` in a streaming event's JSON; None if it has none.

    Raises:
        msgspec.MsgspecError: this is not the JSON of an event.

    """
    event = _EVENT.decode(text)
    stamp = event.progress.timestamp if event.progress is not None else event.timestamp
    return None if stamp is None else _seconds(stamp)


def first_timestamp(line: bytes) -> float | None:
    """The first ``timestamp`` in a line, without parsing the rest; None if it has none.

    For lines as Spark writes them, where only ids and a name come before it. A key inside a text
    cannot match, because its quotes are escaped.

    Raises:
        msgspec.MsgspecError: the value is not a time.

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
