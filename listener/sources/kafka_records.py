"""Reads the first unread record of a partition, through a consumer without a group.

The consumer uses ``assign`` and ``seek``, reads one record and commits nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from .kafka_java import KafkaJava
from .waiting import Found, Search

SEARCH_SECONDS = 2.0
"""The time limit for all searches of one poll."""
POLL_SECONDS = 0.5
OPTIONS = {
    "enable.auto.commit": "false",
    "auto.offset.reset": "earliest",
    # Reading a deleted topic must not create it again.
    "allow.auto.create.topics": "false",
    "max.poll.records": "1",
    "max.partition.fetch.bytes": "65536",
    "fetch.max.bytes": "1048576",
}
OF_GROUPS = ("group.id", "group.instance.id", "interceptor.classes")


class KafkaRecords:
    """One consumer, created when first needed; used by one thread at a time."""

    def __init__(self, java: KafkaJava, params: Any, client_id: str) -> None:
        self._java = java
        params = java.java("java.util.HashMap")(params)
        for name in OF_GROUPS:
            params.remove(name)
        for name, value in {**OPTIONS, "client.id": f"{client_id}-records"}.items():
            params.put(name, value)
        self._consumer = java.kafka("clients.consumer.KafkaConsumer")(params)

    def find(self, searches: Iterable[Search]) -> dict[str, Found]:
        """Find the first record of each search, within ``SEARCH_SECONDS`` in total."""
        until = time.monotonic() + SEARCH_SECONDS
        found = {}
        for search in searches:
            if time.monotonic() >= until:
                break
            found[search.partition] = self._find(search, until)
        self._consumer.unsubscribe()
        return found

    def close(self) -> None:
        """Drop the connections at once."""
        self._consumer.close(self._java.millis(0))

    def _find(self, search: Search, until: float) -> Found:
        partition = self._java.partition(search.partition)
        self._consumer.assign(self._java.array_list(partition))
        self._consumer.seek(partition, search.start)
        position = search.start
        while position < search.end and (left := until - time.monotonic()) > 0:
            records = self._consumer.poll(self._java.millis(min(POLL_SECONDS, left)))
            if not records.isEmpty():
                return _first(search, records.iterator().next())
            position = int(self._consumer.position(partition, self._java.millis(POLL_SECONDS)))
        return Found(search.committed, min(position, search.end))


def _first(search: Search, record: Any) -> Found:
    """The result for a record; records of old formats have no timestamp (-1)."""
    millis, offset = int(record.timestamp()), int(record.offset())
    if offset >= search.end:
        return Found(search.committed, search.end)
    return Found(search.committed, offset, millis / 1000 if millis > 0 else None)
