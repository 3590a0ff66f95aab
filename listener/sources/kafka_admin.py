"""What a Kafka cluster tells an admin client of the partitions that a query reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from py4j.protocol import Py4JError

from ..checkpoint import short_reason
from .kafka_java import KafkaJava
from .kafka_texts import Kept, kept_in, led_partitions, offsets_in

CONFIG_EVERY_SECONDS = 300.0


class Retention(msgspec.Struct, frozen=True):
    """How long, and how much of, each topic is kept; ``untold`` says why that is not known."""

    by_topic: dict[str, Kept] = {}
    untold: str = ""


class KafkaAdmin:
    """Asks through one admin client, which it closes; used by one thread."""

    def __init__(self, java: KafkaJava, client: Any, isolation: str) -> None:
        self._java = java
        self._client = client
        java.use_package_of(client)
        level = java.kafka("common.IsolationLevel").valueOf(isolation.upper())
        self._options = java.kafka("clients.admin.ListOffsetsOptions")(level)
        self._partitions: tuple[str, ...] = ()
        self._from: Any = None
        self._to: Any = None
        self._topics: tuple[str, ...] = ()
        self._told_at = 0.0
        self._retention = Retention()

    def led(self, topics: Sequence[str]) -> set[str]:
        """Those of the topics' partitions that have a leader; a deleted topic has none.

        An offset of a partition without a leader would be waited for until time is up.
        """
        names = self._java.array_list(*topics)
        futures = self._client.describeTopics(names).topicNameValues()
        return led_partitions("".join(self._described(futures.get(topic)) for topic in topics))

    def ends(self, partitions: tuple[str, ...]) -> tuple[dict[str, int], dict[str, int]]:
        """The earliest and the latest offset of partitions, both asked for at once."""
        if partitions != self._partitions:
            spec = self._java.kafka("clients.admin.OffsetSpec")
            self._from, self._to = self._each(partitions, spec.earliest(), spec.latest())
            self._partitions = partitions
        begins = self._client.listOffsets(self._from, self._options).all()
        ends = self._client.listOffsets(self._to, self._options).all()
        return offsets_in(self._java.text(begins)), offsets_in(self._java.text(ends))

    def retention(self, topics: tuple[str, ...], now: float) -> Retention:
        """How long topics are kept, asked every few minutes; not everybody may know."""
        if topics != self._topics or now - self._told_at >= CONFIG_EVERY_SECONDS:
            self._topics, self._told_at = topics, now
            try:
                self._retention = Retention(kept_in(self._configs(topics)))
            except Py4JError as error:
                self._retention = Retention(untold=short_reason(str(error)))
        return self._retention

    def close(self) -> None:
        """Drop the connections at once."""
        self._client.close(self._java.millis(0))

    def _described(self, future: Any) -> str:
        try:
            return self._java.text(future)
        except Py4JError as error:
            if "UnknownTopicOrPartitionException" in str(error):
                return ""
            raise

    def _each(self, partitions: tuple[str, ...], *specs: Any) -> list[Any]:
        """For each of ``specs`` a map that asks it of all partitions."""
        asked = [self._java.java("java.util.HashMap")() for _ in specs]
        for partition in partitions:
            key = self._java.partition(partition)
            for one, spec in zip(asked, specs, strict=True):
                one.put(key, spec)
        return asked

    def _configs(self, topics: tuple[str, ...]) -> str:
        resource = self._java.kafka("common.config.ConfigResource")
        kind = self._java.kafka("common.config.ConfigResource$Type").TOPIC
        asked = self._java.array_list(*(resource(kind, topic) for topic in topics))
        return self._java.text(self._client.describeConfigs(asked).all())
