"""The fourth signal: what the polls of the source systems show, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from .events import Progress

# -- report -----------------------------------------------------------------------------------
# Spark reports a source's latest offset as of when it planned a batch. So its lag is always zero if
# batches have no size limit, and it freezes while the query hangs or after it failed. The broker
# has the current offset. Partitions are named as in ``offsets.py`` (``topic/0``).


class SourceError(Exception):
    """A source did not answer; the message is short and holds no secret."""


class SourceSilentError(SourceError):
    """The system did not answer in time: it is slow or unreachable."""


class SourcePoll(msgspec.Struct, frozen=True):
    """One source of one run: the query's position, and where its data begins and ends.

    ``committed`` are the run's last committed offsets: the first unread record of each
    partition. Unknown values are left out of the dictionaries.
    """

    description: str
    committed: dict[str, int]
    earliest: dict[str, int]
    """The first offset that is still kept (Kafka's log start offset)."""
    latest: dict[str, int]
    """The end that this query may read up to (``isolation.level``)."""
    waiting_since: dict[str, float] = {}
    """Unix seconds: the timestamp of the first unread record."""
    retention_seconds: dict[str, float] = {}
    """By topic: for how long records are kept; unlimited ones are left out (``retention.ms``)."""
    first_waiting: dict[str, int] = {}
    """The first offset from ``committed`` on that may hold a record; offsets before it hold none
    (transaction markers, aborted records, compacted records)."""
    at: float = 0.0
    """Monotonic seconds: when the source was polled."""
    wall: float = 0.0
    """The same moment in Unix seconds."""
    bounded_by_size: frozenset[str] = frozenset()
    """Topics with a size limit (``retention.bytes``), which deletes records of any age."""
    missing_reason: str = ""
    """Why a part of the poll failed although the rest succeeded."""
    log_end: dict[str, int] = {}
    """The end of the log, where open transactions may keep this query from reading up to it."""

    @property
    def lag_by_partition(self) -> dict[str, int]:
        """Unread offsets, at least 0; without partitions that are deleted or never read.

        Offsets that retention deleted do not count. A deleted and recreated topic ends before the
        committed offset, so this query will read nothing from it and its lag is 0.
        """
        lags = {}
        for partition, committed in self.committed.items():
            if partition in self.latest:
                first = self.first_waiting.get(partition, 0), self.earliest.get(partition, 0)
                lags[partition] = max(0, self.latest[partition] - max(committed, *first))
        return lags

    @property
    def lag_by_topic(self) -> dict[str, int]:
        """The sum over the partitions of each topic."""
        lags: dict[str, int] = {}
        for partition, lag in self.lag_by_partition.items():
            topic = topic_of(partition)
            lags[topic] = lags.get(topic, 0) + lag
        return lags

    @property
    def lag_offsets(self) -> int | None:
        """The sum over all partitions; None if nothing is committed."""
        lags = self.lag_by_partition
        return sum(lags.values()) if lags else None

    @property
    def waiting_since_by_topic(self) -> dict[str, float]:
        """Unix seconds of the first unread record by topic, where it is known."""
        lags, oldest = self.lag_by_partition, dict[str, float]()
        for partition, since in self.waiting_since.items():
            if lags.get(partition):
                topic = topic_of(partition)
                oldest[topic] = min(since, oldest.get(topic, since))
        return oldest


class SourceReport(msgspec.Struct, frozen=True):
    """The newest polls of all sources, by run id and source index.

    Every report is complete: it keeps an old poll until the next one succeeds, and the poll's
    ``at`` shows its age. ``unreadable`` holds, by run id, why a source did not answer its last
    poll or why none was polled.
    """

    at: float
    polls: dict[str, dict[int, SourcePoll]] = {}
    unreadable: dict[str, str] = {}


def topic_of(partition: str) -> str:
    """``orders`` for ``orders/0``."""
    return partition.rpartition("/")[0]


def inflow(before: Mapping[int, SourcePoll], now: Mapping[int, SourcePoll]) -> int:
    """How many offsets arrived between two polls of the same sources."""
    return sum(
        max(0, end - before[index].latest.get(partition, end))
        for index, poll in now.items()
        if index in before
        for partition, end in poll.latest.items()
    )


# -- shortfall --------------------------------------------------------------------------------
# Detects sources that end before the query's offsets: recreated or restored ones.
#
# A Delta query idles forever on a table that was replaced by one with fewer versions, and skips new
# data in it (seen on Delta 4.4.0). A hung query does not notice a recreated topic.


class Shortfall(msgspec.Struct, frozen=True):
    """A partition that ended at ``end``, before ``committed``, in ``polls`` polls in a row."""

    since: float
    polls: int
    committed: int
    end: int
    polled_at: float


Shortfalls = dict[int, dict[str, Shortfall]]
"""By source index and partition."""


def follow_shortfalls(shortfalls: Shortfalls, polls: Mapping[int, SourcePoll]) -> Shortfalls:
    """Apply the newest poll of each source; a repeated poll counts once."""
    followed: Shortfalls = {}
    for index, poll in polls.items():
        for partition, committed in poll.committed.items():
            end = poll.latest.get(partition, committed)
            if end < committed:
                before = shortfalls.get(index, {}).get(partition)
                shortfall = _follow_shortfall(before, poll.at, committed, end)
                followed.setdefault(index, {})[partition] = shortfall
    return followed


def _follow_shortfall(before: Shortfall | None, at: float, committed: int, end: int) -> Shortfall:
    if before is None:
        return Shortfall(at, 1, committed, end, at)
    polls = before.polls + (at > before.polled_at)
    return Shortfall(before.since, polls, committed, end, at)


class Transaction(msgspec.Struct, frozen=True):
    """The transaction that is open at a partition's last stable offset since ``since``.

    It keeps ``records`` from being read; without any, none is open. ``took`` are the seconds that
    the last ones before it were open.
    """

    since: float
    stable: int
    records: int
    polled_at: float
    took: tuple[float, ...] = ()


MAX_TOOK = 3
Transactions = dict[int, dict[str, Transaction]]
"""By source index and partition."""


def follow_transactions(
    transactions: Transactions, polls: Mapping[int, SourcePoll]
) -> Transactions:
    """Apply the newest poll of each source."""
    return {
        index: {
            partition: _follow_transaction(
                transactions.get(index, {}).get(partition), poll, partition
            )
            for partition in poll.log_end
        }
        for index, poll in polls.items()
        if poll.log_end
    }


def _follow_transaction(
    before: Transaction | None, poll: SourcePoll, partition: str
) -> Transaction:
    end = poll.log_end[partition]
    stable = poll.latest.get(partition, end)
    now = Transaction(poll.at, stable, max(0, end - stable), poll.at)
    if before is None:
        return now
    if not before.records:
        return replace(now, took=before.took)
    if now.records and stable == before.stable:
        return replace(now, since=before.since, took=before.took)
    return replace(now, took=(*before.took, poll.at - before.since)[-MAX_TOOK:])


# -- unread -----------------------------------------------------------------------------------
# For how long the first record has been unread, as far as that is certain.
#
# A record's timestamp comes from its producer: it is old in a replayed log, and in the future if a
# clock is wrong. So it counts only between the two polls that bracket the record: the earlier one
# saw the partition end before it, the later one after it. Times are monotonic seconds.


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
        is_plausible = self.has_beginning and self.marks[0].at <= written_at <= after
        return written_at if is_plausible else after


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
    """All sources of one run, by index; ``waits`` are thinned when many, the oldest first.

    ``reported`` are those of sources that report by themselves how late they are (Kinesis).
    """

    backlogs: dict[int, dict[str, Backlog]] = {}
    waits: tuple[Wait, ...] = ()
    reported: tuple[Wait, ...] = ()
    polled_at: float | None = None


def follow_unread(unread: Unread, polls: Mapping[int, SourcePoll]) -> Unread:
    """Apply new polls of the sources of one run."""
    if not polls:
        return unread
    backlogs = {
        index: _follow_backlogs(unread.backlogs.get(index, {}), poll)
        for index, poll in polls.items()
    }
    at = max(poll.at for poll in polls.values())
    committed = sum(sum(poll.committed.values()) for poll in polls.values())
    waits = unread.waits
    if not waits or committed > waits[-1].committed:
        seconds, partition, is_least = max(
            _longest(backlogs[index], poll) for index, poll in polls.items()
        )
        lag = sum(poll.lag_offsets or 0 for poll in polls.values())
        noise = 0.0 if unread.polled_at is None else at - unread.polled_at
        wait = Wait(at, seconds, partition, committed, lag, is_least, noise)
        waits = thinned((*waits, wait), MAX_POINTS)
    elif committed < waits[-1].committed:
        waits = ()
    return replace(unread, backlogs=backlogs, waits=waits, polled_at=at)


def follow_reported(unread: Unread, progress: Progress, at: float) -> Unread:
    """Apply a batch with rows whose sources report by themselves how late they are (Kinesis)."""
    late = [s.behind_seconds for s in progress.sources if s.behind_seconds is not None]
    if not late or not progress.input_rows:
        return unread
    wait = Wait(at, max(late), "", progress.batch_id, lag=0, is_least=False)
    return replace(unread, reported=thinned((*unread.reported, wait), MAX_POINTS))


def _follow_backlogs(backlogs: Mapping[str, Backlog], poll: SourcePoll) -> dict[str, Backlog]:
    return {
        partition: _follow_partition(
            backlogs.get(partition),
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
    return Backlog(first, spread(marks, MAX_MARKS))


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


# -- thinning ---------------------------------------------------------------------------------


T = TypeVar("T", bound=Any)
"""A point with a time ``at``."""


def thinned(points: tuple[T, ...], most: int) -> tuple[T, ...]:
    """At most so many: without every other one if there are more, so that older ones are fewer."""
    return points if len(points) <= most else (*points[:-1:2], points[-1])


def spread(points: tuple[T, ...], most: int) -> tuple[T, ...]:
    """At most so many: without the one whose neighbours are closest, to cover all the time."""
    if len(points) <= most:
        return points
    gaps = [points[place + 1].at - points[place - 1].at for place in range(1, len(points) - 1)]
    place = gaps.index(min(gaps)) + 1
    return (*points[:place], *points[place + 1 :])
