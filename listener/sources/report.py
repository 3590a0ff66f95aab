"""What the fourth witness, the systems that sources read from, has seen: frozen records.

Spark tells a source's latest offset as of when it planned a batch: zero lag by construction
where nothing limits a batch, and a frozen one while it hangs or is dead. A broker knows better.
Partitions are named as in ``offsets.py`` (``topic/0``).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class SourcePoll(msgspec.Struct, frozen=True):
    """One source of one run: where the query stands, and where its data begins and ends.

    ``committed`` are the run's last committed offsets: the first record of each partition that
    it has not read. What could not be found out is left out of the dictionaries.
    """

    description: str
    committed: dict[str, int]
    earliest: dict[str, int]
    """The first offset that is still kept (Kafka's log start offset)."""
    latest: dict[str, int]
    """The end, as far as this query may read (``isolation.level``)."""
    waiting_since: dict[str, float] = {}
    """Unix seconds: the time of the first record that waits."""
    retention_seconds: dict[str, float] = {}
    """By topic: for how long records are kept; unlimited ones are left out (``retention.ms``)."""
    first_waiting: dict[str, int] = {}
    """The first offset from ``committed`` on that may hold a record: what lies before it is none
    (a transaction's marker, an aborted one's records, what compaction took)."""
    at: float = 0.0
    """Monotonic seconds: when the source was asked."""
    wall: float = 0.0
    """The same moment in Unix seconds."""
    bounded_by_size: frozenset[str] = frozenset()
    """Topics of which only so many bytes are kept (``retention.bytes``), however young."""
    missing_reason: str = ""
    """Why something could not be found out, though the rest could."""

    @property
    def lag_by_partition(self) -> dict[str, int]:
        """Offsets that wait, at least 0; a partition that is gone, or nothing of it read, is out.

        What retention has taken does not wait any more. A deleted and recreated topic ends
        before the committed offset: nothing waits in it, as far as this query will ever know.
        """
        return {
            partition: max(0, self.latest[partition] - self._begin(partition, offset))
            for partition, offset in self.committed.items()
            if partition in self.latest
        }

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
        """The sum over all partitions; None where nothing is committed."""
        lags = self.lag_by_partition
        return sum(lags.values()) if lags else None

    @property
    def waiting_since_by_topic(self) -> dict[str, float]:
        """Unix seconds of the first record that waits, as far as it is known."""
        lags, oldest = self.lag_by_partition, dict[str, float]()
        for partition, since in self.waiting_since.items():
            if lags.get(partition):
                topic = topic_of(partition)
                oldest[topic] = min(since, oldest.get(topic, since))
        return oldest

    def _begin(self, partition: str, committed: int) -> int:
        known = self.first_waiting.get(partition, 0), self.earliest.get(partition, 0)
        return max(committed, *known)


class SourceReport(msgspec.Struct, frozen=True):
    """All that is known of all sources asked, by run id and the source's index.

    Every report is complete: a look that is no newer stands until the next one succeeds, and its
    ``at`` tells its age. ``unreadable`` says of a run, by its id, why a source of it did not
    answer when it was last asked, or why none was asked.
    """

    at: float
    polls: dict[str, dict[int, SourcePoll]] = {}
    unreadable: dict[str, str] = {}


def topic_of(partition: str) -> str:
    """``orders`` of ``orders/0``."""
    return partition.rpartition("/")[0]


def inflow(before: Mapping[int, SourcePoll], now: Mapping[int, SourcePoll]) -> int:
    """How many offsets came in between two looks at the same sources."""
    return sum(
        max(0, end - before[index].latest.get(partition, end))
        for index, poll in now.items()
        if index in before
        for partition, end in poll.latest.items()
    )
