"""What the fourth witness, the systems that sources read from, has seen: frozen records.

Spark tells a source's latest offset as of when it planned a batch: zero lag by construction
where nothing limits a batch, and a frozen one while it hangs or is dead. A broker knows better.
Partitions are named as in ``offsets.py`` (``topic/0``).
"""

from __future__ import annotations

import msgspec

from .offsets import lag_between


class SourceLook(msgspec.Struct, frozen=True):
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

    @property
    def lag_offsets(self) -> float | None:
        """The sum over all partitions, each at least 0; None where nothing is committed."""
        return lag_between(dict(self.committed), dict(self.latest))


class SourceReport(msgspec.Struct, frozen=True):
    """One round of asking, by run id and the source's index; ``at`` is monotonic seconds.

    ``wall`` is the same moment in Unix seconds. A source that is not named was not asked, or
    there is nobody to ask; those that did not answer are in ``unreadable``, by run id, with the
    reason.
    """

    at: float
    wall: float
    looks: dict[str, dict[int, SourceLook]] = {}
    unreadable: dict[str, str] = {}
