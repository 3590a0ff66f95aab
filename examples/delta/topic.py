"""Telemetry through a Kafka topic, written with the client in Spark's connector."""

from __future__ import annotations

import json
from typing import Any

from tenacity import retry, retry_if_exception_message, stop_after_delay

_SERIALIZER = "org.apache.kafka.common.serialization.StringSerializer"
# A demo that ends must not wait for a broker that is gone.
_BLOCKED_MS = "5000"
_CREATED_WITHIN_SECONDS = 60


class Topic:
    """A topic, created on first use, because a stream of a missing topic fails."""

    def __init__(self, spark: Any, bootstrap_servers: str, name: str) -> None:
        self._spark = spark
        self._bootstrap_servers = bootstrap_servers
        self._name = name
        kafka = spark._jvm.org.apache.kafka.clients.producer  # noqa: SLF001 - no public way
        self._record = kafka.ProducerRecord
        self._producer = kafka.KafkaProducer(
            {
                "bootstrap.servers": bootstrap_servers,
                "max.block.ms": _BLOCKED_MS,
                "key.serializer": _SERIALIZER,
                "value.serializer": _SERIALIZER,
            }
        )
        self._wait_for_topic()

    @retry(
        retry=retry_if_exception_message(match=r"(?s).*TimeoutException"),
        stop=stop_after_delay(_CREATED_WITHIN_SECONDS),
        reraise=True,
    )
    def _wait_for_topic(self) -> None:
        """Wait until the broker has created the topic, which it does when asked for it."""
        self._producer.partitionsFor(self._name)

    def __call__(self, rows: list[dict[str, object]]) -> None:
        """Write readings, each keyed by its vehicle, and wait until the broker has them."""
        for row in rows:
            record = self._record(self._name, row.get("vehicle"), json.dumps(row))
            self._producer.send(record)
        self._producer.flush()

    def read(self, schema: str) -> Any:
        """The topic as a stream of readings, from its beginning."""
        records = self._spark.readStream.format("kafka").options(
            **{
                "kafka.bootstrap.servers": self._bootstrap_servers,
                "subscribe": self._name,
                "startingOffsets": "earliest",
            }
        )
        reading = f"from_json(CAST(value AS STRING), '{schema}') AS reading"
        return records.load().selectExpr(reading).select("reading.*")

    def close(self) -> None:
        """Close the producer."""
        self._producer.close()
