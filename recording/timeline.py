"""What happened, in order, as a recording shows it: for the command, the page and JSON.

``timeline_of`` reads the parts of one recording (see ``Begin.continues``) as one story.
"""

from __future__ import annotations

from enum import Enum

import msgspec


class What(str, Enum):
    """What a moment is about; a page shows each with a mark of its own."""

    ALERT = "alert"
    NOTIFICATION = "notification"
    RUN = "run"
    """A query started, ended, failed, or was restarted."""
    BATCH = "batch"
    """What held a batch, or that it went on."""
    SILENCE = "silence"
    REQUEST = "request"
    RECORDING = "recording"
    """The recording began, was thinned, went on in another process, or ended."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened at ``at`` (Unix seconds), in one sentence without the time."""

    at: float
    what: What
    text: str
    query: str = ""
    severity: str = ""
    """``critical`` or ``warning`` of an alert that opens or changes; else empty."""
    detail: str = ""
    """More lines, such as a stack or an error; a page folds them."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Something that lasted: an alert, a run, a batch in flight, or a silence.

    ``until`` is None where the recording ends before it does.
    """

    what: What
    since: float
    until: float | None
    label: str
    query: str = ""
    severity: str = ""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """One batch as its progress event shows it; None where the event does not say."""

    at: float
    """When its event arrived, in Unix seconds."""
    batch_id: int
    seconds: float | None = None
    input_rows: int | None = None
    lag_offsets: float | None = None
    state_memory_bytes: int | None = None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One incident in one row of a table; times are Unix seconds."""

    id: str
    app: str
    query: str
    since: float
    until: float | None
    """None where it is open, or where its process ended first."""
    headline: str
    """The summary of its most prominent alert."""
    alertname: str
    severity: str
    """The highest one that it had."""
    cause: str
    """The error class, or the code, of its first cause."""
    how: str
    """How it ended, in words; ``open``, or that the process ended, while it has not."""
    notifications: int
    """How many messages receivers accepted."""
    receivers: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    """The ids of its files, in order."""


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """The whole story; ``answers`` are what a stranger asks, each in one sentence."""

    summary: Summary
    answers: dict[str, str]
    """``first``, ``held_by``, ``notified``, ``done``, ``ended``."""
    moments: tuple[Moment, ...]
    spans: tuple[Span, ...] = ()
    batches: dict[str, tuple[Batch, ...]] = {}
    """By query, in order."""
    unread: int = 0
    """Lines that could not be read."""
