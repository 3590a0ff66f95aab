"""The fourth signal: one poll of a source system.

Spark reports a source's latest offset as of when it planned a batch. So its lag is always zero if
batches have no size limit, and it freezes while the query hangs or after it failed. The broker
has the current offset. Partitions are named as in ``offsets.py`` (``topic/0``).
"""

from __future__ import annotations

import msgspec

OFFSET = "offset"


class SourceError(Exception):
    """A source did not answer; the message is short and holds no secret."""


class SourceSilentError(SourceError):
    """The system did not answer in time: it is slow or unreachable."""


class StoreSilentError(SourceError):
    """It was not asked, because its store has not answered another poll yet."""


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
    missing_folder: str = ""
    """The folder of a file source that was there before and is not any more."""
    log_end: dict[str, int] = {}
    """The end of the log, where open transactions may keep this query from reading up to it."""
    unit: str = OFFSET
    """What a position counts: an offset, a version (Delta), a snapshot (Iceberg)."""
    within: dict[str, int] = {}
    """How far the query has read into ``committed``, where that is a version or a snapshot."""
    retention_setting: str = ""
    """The table's setting behind ``retention_seconds``, with its value."""
    gone: dict[str, str] = {}
    """What a query must still find to read on, and is deleted, although newer data exists."""
    system: str = ""
    """Where the source was polled: offsets of two systems cannot be compared."""
    oldest: dict[str, int] = {}
    """The first version that is still kept, if that was looked up; ``earliest`` of a table is the
    one from which this query can read on."""
    begins: dict[str, int] = {}
    """Where a new checkpoint begins, if the source knows that and the checkpoint does not."""
    passed: dict[str, tuple[int, int]] = {}
    """What the first batch of the run passed over, because it was deleted before; without the
    second position."""
    topic_ids: dict[str, str] = {}
    """By topic: the id that a topic gets when it is created, if the broker reports it."""
    at_rest: bool = False
    """Whether the query had planned no batch beyond ``committed`` when ``earliest`` was known."""
    written_since: dict[str, int] = {}
    """The first offset that was written at the time that was asked for, or later."""

    @property
    def kept_from(self) -> dict[str, int]:
        """By partition: the first position that is still kept, where that is known."""
        return self.earliest if self.unit == OFFSET else self.oldest

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
        lags = self.lag_by_partition
        oldest = dict[str, float]()
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
