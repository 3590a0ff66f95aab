"""The job as in production: Kafka -> bronze in Delta Lake -> domain tables in Delta Lake."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...commands.demo.pipeline import BRONZE, SCHEMA, Fleet, Pipeline, kind_of, made
from . import connectors
from .artifacts import cache_folder, fetch
from .broker import Broker
from .delta_tables import DELTA_CONF, DeltaTables
from .topic import Topic

TOPIC = "telemetry"


class DeltaPipeline(Pipeline):
    """Alerts are paired by a MERGE in ``foreachBatch``; the conflict is Delta Lake's own."""

    # Eight queries start at once, in code that the JVM has not compiled yet.
    stall_floor_seconds = 30.0
    startup_seconds = 240.0

    def __init__(self, folder: Path, queries: int, say: Callable[[str], None]) -> None:
        super().__init__(folder, queries, say)
        self._broker: Broker | None = None
        self._topic: Topic | None = None
        self._fleet: Fleet | None = None
        self._tables: DeltaTables | None = None

    def prepare(self) -> dict[str, str]:
        """Fetch connectors and broker, and start the broker.

        Raises:
            ArtifactsError: there is no connector for this Spark, or Maven Central is unreachable.
            BrokerError: the broker does not start.

        """
        spark = connectors.installed_spark()
        wanted = [*connectors.kafka(spark), *connectors.delta(spark)]
        folder = cache_folder()
        self._say(f"Kafka and Delta Lake for Spark {spark}, and a Kafka broker: in {folder}")
        jars = fetch(wanted, folder, self._say)
        self._start_broker(fetch([connectors.BROKER], folder, self._say))
        return {**DELTA_CONF, "spark.jars": ",".join(map(str, jars))}

    def start(self, spark: Any) -> None:
        """Start telemetry and every query."""
        assert self._broker is not None, "prepare() comes first"
        self._topic = Topic(spark, self._broker.bootstrap_servers, TOPIC)
        self._fleet = Fleet(self._topic)
        self._fleet.start()
        self._say(f"sending telemetry to the topic {TOPIC}")
        self._tables = DeltaTables(spark, made(self._folder / "tables"))
        self._say("the tables exist; starting the queries")
        self._append(BRONZE, self._topic.read(SCHEMA))
        for name in self.names[1:-1]:
            self._append(name, self._tables.stream(BRONZE).where(f"kind = '{kind_of(name)}'"))
        self._write_alerts(self._tables.stream(BRONZE).where("kind = 'alert'"))

    def stop(self) -> None:
        """Stop telemetry and every query."""
        if self._fleet is not None:
            self._fleet.stop()
        if self._topic is not None:
            self._topic.close()
        super().stop()

    def close(self) -> None:
        """End the broker."""
        if self._broker is not None:
            self._broker.kill()

    def _start_broker(self, jars: list[Path]) -> None:
        began = time.monotonic()
        self._broker = Broker(jars, made(self._folder / "kafka"))
        self._broker.start()
        seconds = time.monotonic() - began
        self._say(f"Kafka broker up at {self._broker.bootstrap_servers}, in {seconds:.1f} s")

    def _append(self, name: str, rows: Any) -> None:
        assert self._tables is not None
        self._write(name, rows, "delta", self._tables.path(name))

    def _commit_as_another(self) -> None:
        assert self._tables is not None
        self._tables.backfill()

    def _merge(self, batch: Any) -> None:
        assert self._tables is not None
        self._tables.merge(batch)
