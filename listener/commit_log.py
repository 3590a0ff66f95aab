"""Frozen records of what the third signal, the checkpoint's logs, shows.

Spark writes ``offsets/N`` when it plans batch N and ``commits/N`` when the batch is done. The
files are durable and overrule events and probe (``OffsetSeqLog``, ``CommitLog``).
"""

from __future__ import annotations

import msgspec

from .starting_point import StartingPoint


class LoggedBatches(msgspec.Struct, frozen=True):
    """The newest batch ids in a checkpoint's ``offsets`` and ``commits``; None for an empty log."""

    planned: int | None = None
    committed: int | None = None


class LogReport(msgspec.Struct, frozen=True):
    """One round of reading, by run id; ``at`` is when the round began, in monotonic seconds.

    A run without an entry was not read. ``unreadable`` holds the reason for each failed read.
    ``starts`` holds every run whose starting point is known.
    """

    at: float
    logs: dict[str, LoggedBatches] = {}
    unreadable: dict[str, str] = {}
    starts: dict[str, StartingPoint] = {}
