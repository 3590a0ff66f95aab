"""What the third witness, the checkpoint's logs, has seen: frozen records, no files behind them.

``offsets/N`` is written when batch N is planned, ``commits/N`` when it is done: the durable
truth, whatever events and probe say (``OffsetSeqLog``, ``CommitLog``).
"""

from __future__ import annotations

import msgspec

from .starting_point import StartingPoint


class LoggedBatches(msgspec.Struct, frozen=True):
    """The newest batch ids in a checkpoint's ``offsets`` and ``commits``; None for an empty log."""

    planned: int | None = None
    committed: int | None = None


class LogReport(msgspec.Struct, frozen=True):
    """One round of reading, by run id; ``at`` is monotonic seconds, when the round began.

    A run that is not named was not read. What could not be read is in ``unreadable``, with
    the reason. ``starts`` names every run of which it is known where it began.
    """

    at: float
    logs: dict[str, LoggedBatches] = {}
    unreadable: dict[str, str] = {}
    starts: dict[str, StartingPoint] = {}
