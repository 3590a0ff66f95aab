"""The job as in production: Kafka -> bronze in Delta Lake -> domain tables in Delta Lake."""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tenacity import retry, retry_if_exception_message, stop_after_delay

from ...commands.demo.pipeline import ALERTS, BRONZE, KINDS, SCHEMA, Pipeline, kind_of, make_folder
from .artifacts import IN_SPARK, ArtifactsError, Packages, cache_folder, fetch
from .broker import Broker

# -- telemetry of a fleet of vehicles ---------------------------------------------------------

VEHICLES = 12
ROWS_AT_ONCE = 30
SECONDS_BETWEEN = 1.0


def telemetry(seed: int = 1) -> Iterator[list[dict[str, object]]]:
    """Endless batches of readings; alerts are created and, some batches later, resolved."""
    dice = random.Random(seed)  # noqa: S311 - a demo's data, not a secret
    opened: list[str] = []
    number = 0
    while True:
        rows: list[dict[str, object]] = [_reading(dice) for _ in range(ROWS_AT_ONCE)]
        number += 1
        opened.append(f"alert-{number}")
        rows.append(_alert(dice, opened[-1], "CREATE"))
        if len(opened) > dice.randint(1, 4):
            rows.append(_alert(dice, opened.pop(0), "RESOLVE"))
        yield rows


def _reading(dice: random.Random) -> dict[str, object]:
    vehicle = f"vehicle-{dice.randrange(VEHICLES)}"
    return {"vehicle": vehicle, "kind": dice.choice(KINDS), "value": dice.uniform(0, 100)}


def _alert(dice: random.Random, alert_id: str, action: str) -> dict[str, object]:
    return {**_reading(dice), "kind": "alert", "alert_id": alert_id, "action": action}


class Fleet:
    """Sends readings once a second, in its own thread, until it is stopped."""

    def __init__(self, send: Callable[[list[dict[str, object]]], None]) -> None:
        self._send = send
        self._parked = threading.Event()
        self._thread = threading.Thread(target=self._drive, name="demo-fleet", daemon=True)

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def stop(self) -> None:
        """Stop sending."""
        self._parked.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _drive(self) -> None:
        for rows in telemetry():
            self._send(rows)
            if self._parked.wait(SECONDS_BETWEEN):
                return


# -- topic ------------------------------------------------------------------------------------
# Telemetry through a Kafka topic, written with the client in Spark's connector.


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


# -- delta tables -----------------------------------------------------------------------------
# The job's tables in Delta Lake, and the second writer of one of them.


DELTA_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Its default of 50 tasks per snapshot is meant for large tables.
    "spark.databricks.delta.snapshotPartitions": "1",
}
DATABASE = "fleet"
# A late CREATE does not open a resolved alert again.
PAIR = """\
MERGE INTO fleet.alert_resolution AS known
USING (
  SELECT alert_id, if(bool_or(action = 'RESOLVE'), 'resolved', 'open') AS status
  FROM actions GROUP BY alert_id
) AS news
ON known.alert_id = news.alert_id
WHEN MATCHED AND news.status = 'resolved' THEN UPDATE SET *
WHEN NOT MATCHED THEN INSERT *
"""
BACKFILL = """\
MERGE INTO fleet.alert_resolution AS known
USING old
ON known.alert_id = old.alert_id
WHEN NOT MATCHED THEN INSERT *
"""
_LOST = "DELTA_CONCURRENT_"


class DeltaTables:
    """Tables by name, each in its own folder; creates those that are read or merged into.

    The tables stay when the job ends, and the next job continues with them.
    """

    def __init__(self, spark: Any, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._another = spark.newSession()
        self._numbers = itertools.count()
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
        self._make(BRONZE, SCHEMA)
        self._make(ALERTS, "alert_id string, status string")

    def path(self, name: str) -> Path:
        """The folder of a table."""
        return self._folder / name

    def stream(self, name: str) -> Any:
        """A table's rows as a stream."""
        return self._spark.readStream.format("delta").load(str(self.path(name)))

    def merge(self, batch: Any) -> None:
        """Pair the alerts of a batch; for ``foreachBatch``.

        Delta Lake raises its own exception when another writer commits meanwhile.
        """
        batch.createOrReplaceTempView("actions")
        batch.sparkSession.sql(PAIR)

    def backfill(self) -> None:
        """Add an old alert in another session, as another job would; a lost conflict is fine."""
        number = next(self._numbers)
        old = self._another.range(number, number + 1)
        old = old.selectExpr("concat('backfill-', id) AS alert_id", "'resolved' AS status")
        old.createOrReplaceTempView("old")
        try:
            self._another.sql(BACKFILL)
        except Exception as error:
            if _LOST not in str(error):
                raise

    def _make(self, name: str, schema: str) -> None:
        self._spark.sql(
            f"CREATE TABLE IF NOT EXISTS {DATABASE}.{name} ({schema}) USING delta "
            f"LOCATION '{self.path(name)}'"
        )


# -- connectors -------------------------------------------------------------------------------
# The connectors for each Spark version, and the Kafka broker of demo and tests.


_TOKENS = "org.apache.spark:spark-token-provider-kafka-0-10_2.13"
_DELTA = "4.4.0"
_ICEBERG = "1.12.0"

KAFKA_TOKENS = Packages((f"{_TOKENS}:4.0.0",), (*IN_SPARK, "org.apache.kafka:*"))
"""Delegation tokens: unused here, but the connector's classes refer to them. Their code has not
changed in Spark 4, and not every registry has a newer version."""

# Without a logger, a broker that cannot start ends without a word.
BROKER = Packages(("org.apache.kafka:kafka_2.13:4.3.1", "org.slf4j:slf4j-simple:1.7.36"))
"""Apache Kafka's own server; the Scala library is the one in PySpark."""


def installed_spark() -> str:
    """The version of PySpark, which is that of Spark."""
    import pyspark

    return str(pyspark.__version__)


def kafka(spark: str) -> list[Packages]:
    """Spark's own Kafka connector, released with Spark.

    Raises:
        ArtifactsError: none is known for this version of Spark.

    """
    _series(spark, ("4.0", "4.1", "4.2"), "Kafka")
    connector = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark}"
    return [Packages((connector,), (*IN_SPARK, _TOKENS)), KAFKA_TOKENS]


def delta(spark: str) -> list[Packages]:
    """Delta Lake's connector.

    Raises:
        ArtifactsError: none is known for this version of Spark.

    """
    series = _series(spark, ("4.0", "4.1", "4.2"), "Delta Lake")
    return [Packages((f"io.delta:delta-spark_{series}_2.13:{_DELTA}",), IN_SPARK)]


def iceberg(spark: str) -> list[Packages]:
    """Apache Iceberg's connector, in one jar.

    Raises:
        ArtifactsError: none is known for this version of Spark.

    """
    series = _series(spark, ("4.1",), "Iceberg")
    return [Packages((f"org.apache.iceberg:iceberg-spark-runtime-{series}_2.13:{_ICEBERG}",))]


def _series(spark: str, supported: tuple[str, ...], what: str) -> str:
    series = ".".join(spark.split(".")[:2])
    if series not in supported:
        raise ArtifactsError(
            f"no {what} connector is known for Spark {spark}, only for {', '.join(supported)}: "
            f"install one of these (pip install 'pyspark=={supported[-1]}.*')"
        )
    return series


# -- delta pipeline ---------------------------------------------------------------------------


TOPIC = "telemetry"


class DeltaPipeline(Pipeline):
    """Alerts are paired by a MERGE in ``foreachBatch``; the conflict is Delta Lake's own."""

    # Eight queries start at once, in code that the JVM has not compiled yet.
    stall_floor_seconds = 30.0

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
        spark = installed_spark()
        wanted = [*kafka(spark), *delta(spark)]
        folder = cache_folder()
        self._say(f"Kafka and Delta Lake for Spark {spark}, and a Kafka broker: in {folder}")
        jars = fetch(wanted, folder, self._say)
        self._start_broker(fetch([BROKER], folder, self._say))
        return {**DELTA_CONF, "spark.jars": ",".join(map(str, jars))}

    def start(self, spark: Any) -> None:
        """Start telemetry and every query."""
        assert self._broker is not None, "prepare() comes first"
        self._topic = Topic(spark, self._broker.bootstrap_servers, TOPIC)
        self._fleet = Fleet(self._topic)
        self._fleet.start()
        self._say(f"sending telemetry to the topic {TOPIC}")
        self._tables = DeltaTables(spark, make_folder(self._folder / "tables"))
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
        self._broker = Broker(jars, make_folder(self._folder / "kafka"))
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
