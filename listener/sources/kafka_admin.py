"""Reads offsets and retention of a query's partitions through a Kafka admin client."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
from py4j.protocol import Py4JError

from ..checkpoint import short_reason
from .kafka_java import KafkaJava
from .kafka_texts import Kept, kept_in, led_partitions, offsets_in
from .shared_clients import Lease

CONFIG_EVERY_SECONDS = 300.0
CONSUMERS_ONLY = (
    "allow.auto.create.topics",
    "auto.commit.interval.ms",
    "auto.offset.reset",
    "check.crcs",
    "client.id",
    "client.rack",
    "enable.auto.commit",
    "exclude.internal.topics",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "group.id",
    "group.instance.id",
    "heartbeat.interval.ms",
    "interceptor.classes",
    "isolation.level",
    "key.deserializer",
    "max.partition.fetch.bytes",
    "max.poll.interval.ms",
    "max.poll.records",
    "partition.assignment.strategy",
    "session.timeout.ms",
    "value.deserializer",
)
"""Options that admin clients ignore (``ConsumerConfig``), and the client's name, which we set."""


class Retention(msgspec.Struct, frozen=True):
    """How long, and how much of, each topic is kept; ``missing_reason``: why it is unknown."""

    by_topic: dict[str, Kept] = {}
    missing_reason: str = ""


def admin_config(java: KafkaJava, params: Any) -> Any:
    """A query's options for an admin client; sources with equal maps may share a client."""
    config = java.java("java.util.HashMap")(params)
    for name in CONSUMERS_ONLY:
        config.remove(name)
    return config


def close_client(java: KafkaJava, client: Any) -> None:
    """Drop the connections of an admin client at once; the cluster may be unreachable."""
    with suppress(Py4JError, OSError):
        client.close(java.millis(0))


class KafkaAdmin:
    """One source's calls to its cluster, through a client that it may share."""

    def __init__(self, java: KafkaJava, lease: Lease, isolation: str) -> None:
        self._java = java
        self._lease = lease
        java.use_package_of(lease.client())
        level = java.kafka("common.IsolationLevel").valueOf(isolation.upper())
        self._options = java.kafka("clients.admin.ListOffsetsOptions")(level)
        self._partitions: tuple[str, ...] = ()
        self._from: Any = None
        self._to: Any = None
        self._topics: tuple[str, ...] = ()
        self._reported_at = 0.0
        self._retention = Retention()

    def led(self, topics: Sequence[str]) -> set[str]:
        """The partitions of the topics that have a leader; a deleted topic has none.

        A request for an offset of a partition without a leader would wait until its timeout.
        """
        names = self._java.array_list(*topics)
        futures = self._lease.client().describeTopics(names).topicNameValues()
        return led_partitions("".join(self._described(futures.get(topic)) for topic in topics))

    def begins(self, partitions: tuple[str, ...]) -> dict[str, int]:
        """The first offset of each partition that is still kept."""
        self._prepare(partitions)
        return self._listed(self._from)

    def ends(self, partitions: tuple[str, ...]) -> dict[str, int]:
        """The offset after the last record of each partition visible at the isolation level."""
        self._prepare(partitions)
        return self._listed(self._to)

    def _prepare(self, partitions: tuple[str, ...]) -> None:
        if partitions != self._partitions:
            spec = self._java.kafka("clients.admin.OffsetSpec")
            self._from, self._to = self._each(partitions, spec.earliest(), spec.latest())
            self._partitions = partitions

    def _listed(self, specs: Any) -> dict[str, int]:
        answer = self._lease.client().listOffsets(specs, self._options).all()
        return offsets_in(self._java.text(answer))

    def retention(self, topics: tuple[str, ...], now: float) -> Retention:
        """How long topics are kept, read every few minutes; the user may lack permission."""
        if topics != self._topics or now - self._reported_at >= CONFIG_EVERY_SECONDS:
            self._topics, self._reported_at = topics, now
            try:
                self._retention = Retention(kept_in(self._configs(topics)))
            except Py4JError as error:
                self._retention = Retention(missing_reason=short_reason(str(error)))
        return self._retention

    def _described(self, future: Any) -> str:
        try:
            return self._java.text(future)
        except Py4JError as error:
            if "UnknownTopicOrPartitionException" in str(error):
                return ""
            raise

    def _each(self, partitions: tuple[str, ...], *specs: Any) -> list[Any]:
        """One map for each of ``specs``, from every partition to that spec."""
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
        return self._java.text(self._lease.client().describeConfigs(asked).all())
