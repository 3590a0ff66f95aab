"""Kafka to Kafka in each mode in which Spark reports commits late or not at all."""

from __future__ import annotations

import os
import signal
from inspect import signature
from typing import Any

from pyspark.sql.streaming import DataStreamWriter
from support.connectors import Kafka

POISON = "poison"
VALUE = f"CASE WHEN CAST(value AS STRING) = '{POISON}' THEN raise_error('boom') ELSE value END"
HOUR = 3_600_000
WRITE_SECONDS = 1
HAS_REAL_TIME = "realTime" in signature(DataStreamWriter.trigger).parameters
"""From Spark 4.2 on."""


class FarBroker(Kafka):
    """A broker that can be made to hang, with all its connections open."""

    def freeze(self) -> None:
        os.kill(self.broker.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.broker.pid, signal.SIGCONT)


class Modes:
    """Starts a query that writes each value of ``topic`` to a topic of the broker ``to``."""

    def __init__(self, harness: Any, to: Kafka) -> None:
        self._harness = harness
        self._to = to
        self._session = harness.spark.newSession()
        # The default minimum is 5 s.
        self._session.conf.set("spark.sql.streaming.realTimeMode.minBatchDuration", "1000")

    def continuous(self, name: str, topic: str) -> Any:
        """Each of its tasks occupies a core as long as the query runs."""
        return self._start(name, topic, trigger={"continuous": "1 second"})

    def real_time(self, name: str, topic: str) -> Any:
        """Its tasks occupy cores too; a batch lasts as long as its trigger interval."""
        return self._start(name, topic, trigger={"realTime": "2 seconds"}, mode="update")

    def asynchronous(
        self, name: str, topic: str, *, milliseconds: int = 1000 * WRITE_SECONDS
    ) -> Any:
        """Its log is written at most every ``milliseconds``."""
        return self._start(
            name,
            topic,
            trigger={"processingTime": "1 second"},
            asyncProgressTrackingEnabled=True,
            asyncProgressTrackingCheckpointIntervalMs=milliseconds,
        )

    def _start(self, name: str, topic: str, **options: Any) -> Any:
        stream = self._harness.kafka.stream(self._session, topic).selectExpr(f"{VALUE} AS value")
        servers = {"kafka.bootstrap.servers": self._to.bootstrap_servers}
        return self._harness.start(
            stream, name, "kafka", topic=self._to.topic(), **servers, **options
        )
