"""For how long the first record has been unread, as far as that is certain. Pure.

A record's timestamp comes from its producer: it is old in a replayed log, and in the future if a
clock is wrong. So it counts only between the two polls that bracket the record: the earlier one
saw the partition end before it, the later one after it. Times are monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from .report import SourcePoll

MAX_MARKS = 16
MAX_POINTS = 32


class Mark(msgspec.Struct, frozen=True, gc=False):
    """A partition's end, and when it was first seen there."""

    at: float
    end: int


class Backlog(msgspec.Struct, frozen=True):
    """The ends of a partition seen beyond ``first``, the first unread offset.

    The first of ``marks`` may be the last end that was not beyond it.
    """

    first: int
    marks: tuple[Mark, ...]

    @property
    def has_beginning(self) -> bool:
        """Whether its first record arrived while we polled."""
        return self.marks[0].end <= self.first

    def unread_since(self, written_at: float) -> float:
        """Since when, at the latest, its first record is unread; by its timestamp if plausible."""
        after = next(mark.at for mark in self.marks if mark.end > self.first)
        is_known = self.has_beginning and self.marks[0].at <= written_at <= after
        return written_at if is_known else after


class Wait(msgspec.Struct, frozen=True, gc=False):
    """How long the first record had been unread at the first poll after a commit with rows.

    ``partition`` is empty if nothing was unread. ``noise`` is the seconds between two polls, by
    which a poll may be late.
    """

    at: float
    seconds: float
    partition: str
    committed: int
    """The sum of the committed offsets, which grows with each commit that brought rows."""
    lag: int
    """All unread offsets."""
    is_least: bool
    """Whether it was unread before the first poll, so that ``seconds`` grow while it is read."""
    noise: float = 0.0


class Unread(msgspec.Struct, frozen=True):
    """All sources of one run, by index; ``waits`` are thinned when many, the oldest first."""

    backlogs: dict[int, dict[str, Backlog]] = {}
    waits: tuple[Wait, ...] = ()
    polled_at: float | None = None


def follow_unread(known: Unread, polls: Mapping[int, SourcePoll]) -> Unread:
    """Apply new polls of the sources of one run."""
    if not polls:
        return known
    backlogs = {
        index: _follow(known.backlogs.get(index, {}), poll) for index, poll in polls.items()
    }
    at = max(poll.at for poll in polls.values())
    committed = sum(sum(poll.committed.values()) for poll in polls.values())
    waits = known.waits
    if not waits or committed > waits[-1].committed:
        longest = max(_longest(backlogs[index], poll) for index, poll in polls.items())
        lag = sum(poll.lag_offsets or 0 for poll in polls.values())
        noise = 0.0 if known.polled_at is None else at - known.polled_at
        seconds, partition, is_least = longest
        waits = _thinned((*waits, Wait(at, seconds, partition, committed, lag, is_least, noise)))
    elif committed < waits[-1].committed:
        waits = ()
    return Unread(backlogs, waits, at)


def _follow(known: Mapping[str, Backlog], poll: SourcePoll) -> dict[str, Backlog]:
    return {
        partition: _follow_partition(
            known.get(partition),
            Mark(poll.at, poll.latest[partition]),
            poll.latest[partition] - lag,
        )
        for partition, lag in poll.lag_by_partition.items()
        if lag
    }


def _follow_partition(before: Backlog | None, now: Mark, first: int) -> Backlog:
    """Add only an end further on; start over for a recreated topic or a rewound query."""
    marks = before.marks if before is not None and first >= before.first else ()
    if marks and now.end < marks[-1].end:
        marks = ()
    if not marks or now.end > marks[-1].end:
        marks = (*marks, now)
    while len(marks) > 1 and marks[1].end <= first:
        marks = marks[1:]
    return Backlog(first, marks if len(marks) <= MAX_MARKS else _without_closest(marks))


def _without_closest(marks: tuple[Mark, ...]) -> tuple[Mark, ...]:
    """Drop the mark whose neighbours are closest, so that the others still cover all the time."""
    gaps = [marks[place + 1].at - marks[place - 1].at for place in range(1, len(marks) - 1)]
    place = gaps.index(min(gaps)) + 1
    return (*marks[:place], *marks[place + 1 :])


def _longest(backlogs: Mapping[str, Backlog], poll: SourcePoll) -> tuple[float, str, bool]:
    """The longest wait of all partitions whose first unread record has a known timestamp."""
    waits = [
        (
            poll.at - backlog.unread_since(written - poll.wall + poll.at),
            partition,
            not backlog.has_beginning,
        )
        for partition, backlog in backlogs.items()
        if (written := poll.waiting_since.get(partition)) is not None
    ]
    return max(waits, default=(0.0, "", False))


def _thinned(waits: tuple[Wait, ...]) -> tuple[Wait, ...]:
    """Drop every other wait when there are too many: older waits become fewer."""
    return waits if len(waits) <= MAX_POINTS else (*waits[:-1:2], waits[-1])
