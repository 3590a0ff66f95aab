"""The harness of workloads at a broker: it feeds and changes their topics during the test."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from support.connectors import Kafka
from support.patience import PATIENCE_SECONDS
from support.queries import until
from support.spark_harness import SparkHarness


class KafkaHarness(SparkHarness):
    """Workloads of one broker; the feeding of their topics ends with the harness."""

    def __init__(self, spark: Any, folder: Path, kafka: Kafka) -> None:
        super().__init__(spark, folder)
        self.kafka = kafka
        # By default it checks for new partitions every five minutes.
        often = {"topic.metadata.refresh.interval.ms": 1000}
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap_servers} | often)

    def stream(self, topic: str, **options: Any) -> Any:
        return self.kafka.stream(self.spark, topic, **options)

    def put(self, topic: str, rows: int = 1, *, keys: int = 0, partition: int = -1) -> None:
        """Write rows with ``keys`` different keys, or without keys."""
        for number in range(rows):
            key = f"k{number % keys}" if keys else None
            self._producer.produce(topic, f"v{number}", key=key, partition=partition)
        assert self._producer.flush(PATIENCE_SECONDS) == 0, "the broker takes nothing"

    def feed(self, topic: str, rows: int = 1, *, every: float = 1.0, partition: int = -1) -> None:
        self.repeat(lambda: self.put(topic, rows, partition=partition), every)

    def repeat(self, action: Callable[[], object], every: float) -> None:
        def go_on() -> None:
            while not self.closing.wait(every):
                action()

        self.help(go_on)

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        def wait() -> None:
            if not self.closing.wait(seconds):
                action()

        self.help(wait)

    def open_transaction(self, topic: str) -> None:
        """Write a row in a transaction that ends with the harness."""
        transaction = self.kafka.open_transaction(topic, ["undecided"], commit=False)
        transaction.__enter__()
        self.at_close(partial(transaction.__exit__, None, None, None))

    def compact(self, topic: str) -> None:
        """Wait until the broker has compacted a record away."""

        def compacted() -> bool:
            self.put(topic, keys=1)
            return self.kept(topic) < self.end(topic)

        until(compacted, f"{topic} is compacted")

    def end(self, topic: str) -> int:
        """The offset of the next record of partition 0."""
        with closing(self._reader()) as consumer:
            return consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_SECONDS)[1]

    def kept(self, topic: str) -> int:
        """The number of records in partition 0, without transaction markers."""
        with closing(self._reader()) as consumer:
            consumer.assign([TopicPartition(topic, 0, 0)])
            rows = 0
            while (message := consumer.poll(PATIENCE_SECONDS)) and message.error() is None:
                rows += 1
            return rows

    def _reader(self) -> Consumer:
        settings = {
            "bootstrap.servers": self.kafka.bootstrap_servers,
            "group.id": "workloads",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
        return Consumer(settings)
