"""For how long the first unread record has waited, as far as that is certain. Pure.

A record's own time is what its producer says: old in a log that is replayed, in the future where a
clock is wrong. So it counts only within what was seen: a record lies between two looks at the end
of its partition, of which only the later reaches beyond it. Times are monotonic seconds.
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
    """The ends of a partition that were seen beyond ``first``, the first offset that is unread.

    The first of ``marks`` may be the last end that was not beyond it.
    """

    first: int
    marks: tuple[Mark, ...]

    @property
    def has_beginning(self) -> bool:
        """Whether its first record came while we watched."""
        return self.marks[0].end <= self.first

    def unread_since(self, written_at: float) -> float:
        """Since when, at the latest, its first record waits: by its own time where that can be."""
        after = next(mark.at for mark in self.marks if mark.end > self.first)
        is_known = self.has_beginning and self.marks[0].at <= written_at <= after
        return written_at if is_known else after


class Wait(msgspec.Struct, frozen=True, gc=False):
    """How long the first unread record had waited at the first look after a commit with rows.

    ``partition`` is empty where nothing waited. ``noise``: the seconds between two looks, by which
    a look may come late.
    """

    at: float
    seconds: float
    partition: str
    committed: int
    """The sum of the committed offsets, which grows with each commit that brought rows."""
    lag: int
    """All offsets that waited."""
    is_least: bool
    """Whether it had waited already when we came, so that ``seconds`` grow while it is read."""
    noise: float = 0.0


class Unread(msgspec.Struct, frozen=True):
    """All sources of one run, by index; ``waits`` are thinned when many, what is old first."""

    backlogs: dict[int, dict[str, Backlog]] = {}
    waits: tuple[Wait, ...] = ()
    polled_at: float | None = None


def follow_unread(known: Unread, polls: Mapping[int, SourcePoll]) -> Unread:
    """Take in new looks at the sources of one run."""
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
    """Only an end that is further on is news; a topic made anew and a query set back begin anew."""
    marks = before.marks if before is not None and first >= before.first else ()
    if marks and now.end < marks[-1].end:
        marks = ()
    if not marks or now.end > marks[-1].end:
        marks = (*marks, now)
    while len(marks) > 1 and marks[1].end <= first:
        marks = marks[1:]
    return Backlog(first, marks if len(marks) <= MAX_MARKS else _without_closest(marks))


def _without_closest(marks: tuple[Mark, ...]) -> tuple[Mark, ...]:
    """Without the mark whose neighbours are closest: the others cover all of the time."""
    gaps = [marks[place + 1].at - marks[place - 1].at for place in range(1, len(marks) - 1)]
    place = gaps.index(min(gaps)) + 1
    return (*marks[:place], *marks[place + 1 :])


def _longest(backlogs: Mapping[str, Backlog], poll: SourcePoll) -> tuple[float, str, bool]:
    """The longest wait, of the partitions whose first unread record is known by its time."""
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
    """Every other one of too many: fewer of what is long ago, all of what is recent."""
    return waits if len(waits) <= MAX_POINTS else (*waits[:-1:2], waits[-1])
