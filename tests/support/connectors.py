"""The connectors that exist for this Spark: one real Kafka broker, tables of Delta and Iceberg."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyspark
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from support.patience import PATIENCE_SECONDS
from support.queries import until
from support.spark_harness import SparkHarness

from querypulse.examples.delta import delta_pipeline
from querypulse.examples.delta.artifacts import ArtifactsError, cache_folder, fetch
from querypulse.examples.delta.broker import Broker

KNOWN = {
    "kafka": delta_pipeline.kafka,
    "delta": delta_pipeline.delta,
    "iceberg": delta_pipeline.iceberg,
}
EXTENSIONS = {
    "delta": "io.delta.sql.DeltaSparkSessionExtension",
    "iceberg": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}
DELTA_CONF = {
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # The default of 50 tasks per snapshot of a table is meant for large tables.
    "spark.databricks.delta.snapshotPartitions": "1",
}

DAYS_AGO = time.time() - 5 * 86_400

OPEN_SECONDS = 600
"""The longest transaction."""


def trouble(name: str) -> str:
    """Why a connector is not available here; empty when it is."""
    return trouble_of(partial(_jars, name))


def trouble_of(fetched: Callable[[], object]) -> str:
    """Why artifacts are not available here; empty when they are."""
    try:
        fetched()
    except ArtifactsError as error:
        return str(error)
    return ""


def spark_conf(warehouse: Path, wanted: Collection[str]) -> dict[str, str]:
    """Spark configuration of the ``wanted`` connectors that are available."""
    here = [name for name in KNOWN if name in wanted and not trouble(name)]
    if not here:
        return {}
    jars = dict.fromkeys(str(jar) for name in here for jar in _jars(name))
    extensions = [extension for name, extension in EXTENSIONS.items() if name in here]
    conf = {
        "spark.jars": ",".join(jars),
        "spark.sql.extensions": ",".join(extensions),
        "spark.sql.warehouse.dir": str(warehouse),
    }
    if "iceberg" in here:
        conf |= {
            "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.ice.type": "hadoop",
            "spark.sql.catalog.ice.warehouse": str(warehouse / "ice"),
        }
    return conf | (DELTA_CONF if "delta" in here else {})


class Kafka:
    """A broker and helpers for tests. By default, topics have one partition."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.broker = Broker(fetch([delta_pipeline.BROKER], cache_folder()), folder, settings)
        self.broker.start()
        self.bootstrap_servers = self.broker.bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})

    def close(self) -> None:
        self.broker.kill()

    def topic(self, partitions: int = 1, **config: str) -> str:
        """A new topic with a unique name; ``config`` has underscores for dots."""
        name = f"t-{uuid.uuid4().hex[:8]}"
        self.create(name, partitions, **config)
        return name

    def create(self, name: str, partitions: int = 1, **config: str) -> None:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(name, partitions, replication_factor=1, config=settings)
        self.admin.create_topics([new])[name].result(PATIENCE_SECONDS)

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(PATIENCE_SECONDS)

    def add_partitions(self, topic: str, total: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, total)])[topic].result(PATIENCE_SECONDS)

    def produce(
        self, topic: str, values: Sequence[str], *, key: str | None = None, partition: int = -1
    ) -> None:
        """Write values; all are acknowledged when this returns."""
        producer = Producer({"bootstrap.servers": self.bootstrap_servers})
        for value in values:
            producer.produce(topic, value, key=key, partition=partition)
        assert producer.flush(PATIENCE_SECONDS) == 0, "the broker takes nothing"

    def transaction(self, topic: str, values: Sequence[str], *, commit: bool = True) -> None:
        """Write values in one transaction, which is committed or aborted."""
        with self.open_transaction(topic, values, commit=commit):
            pass

    @contextmanager
    def open_transaction(
        self, topic: str, values: Sequence[str], *, commit: bool = True
    ) -> Iterator[None]:
        """Write values in a transaction that stays open within the block."""
        identity = {
            "bootstrap.servers": self.bootstrap_servers,
            "transactional.id": uuid.uuid4().hex,
            "transaction.timeout.ms": OPEN_SECONDS * 1000,
        }
        producer = Producer(identity)
        producer.init_transactions(PATIENCE_SECONDS)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(PATIENCE_SECONDS) == 0, "the broker takes nothing"
        yield
        end = producer.commit_transaction if commit else producer.abort_transaction
        end(PATIENCE_SECONDS)

    def edges(self, topic: str, partition: int = 0, **config: Any) -> tuple[int, int]:
        """The first offset of a partition and the next one, as another client reads them."""
        with closing(self.reader(**config)) as consumer:
            place = TopicPartition(topic, partition)
            first, following = consumer.get_watermark_offsets(place, PATIENCE_SECONDS)
            return first, following

    def reader(self, **config: Any) -> Consumer:
        """Another client; ``config`` has underscores for dots."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        own = {"bootstrap.servers": self.bootstrap_servers, "group.id": "observer"}
        return Consumer({**own, "enable.auto.commit": False, **settings})

    def stream(self, spark: Any, topic: str, **options: Any) -> Any:
        """A streaming DataFrame of a topic, from its beginning."""
        reader = spark.readStream.format("kafka").option("subscribe", topic)
        reader = reader.option("kafka.bootstrap.servers", self.bootstrap_servers)
        return reader.option("startingOffsets", "earliest").options(**options).load()

    def forget(self, topic: str, before: int) -> None:
        """Delete the records before an offset of the topic's first partition; -1 for all."""
        edge = TopicPartition(topic, 0, before)
        self.admin.delete_records([edge])[edge].result(PATIENCE_SECONDS)


@cache
def _jars(name: str) -> tuple[Path, ...]:
    return tuple(fetch(KNOWN[name](pyspark.__version__), cache_folder()))


class DeltaTable:
    """A Delta table in a folder of its own; each write is one version of one file."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.folder = folder

    def __str__(self) -> str:
        return f"delta.`{self.folder}`"

    def write(
        self,
        times: int = 1,
        *,
        mode: str = "append",
        columns: tuple[str, ...] = ("id",),
        **options: Any,
    ) -> DeltaTable:
        """Write three rows per version."""
        rows = self.spark.range(3).selectExpr(*columns).coalesce(1)
        for _ in range(times):
            rows.write.format("delta").mode(mode).options(**options).save(str(self.folder))
        return self

    def sql(self, statement: str) -> None:
        """Run a statement in which ``{}`` is the table."""
        self.spark.sql(statement.format(self))

    def stream(self, **options: Any) -> Any:
        return self.spark.readStream.format("delta").options(**options).load(str(self.folder))

    def history(self) -> list[int]:
        rows = self.spark.sql(f"DESCRIBE HISTORY {self}").select("version").collect()
        return sorted(row.version for row in rows)

    def forget(self, *, before: int) -> None:
        """Remove commits as Delta does when they are older than ``logRetentionDuration``."""
        for version in range(before):
            for old in (self.folder / "_delta_log").glob(f"*{version:020d}.json*"):
                old.unlink()

    def clean(self) -> int:
        """Let Delta delete all commits before a new one, as when they are old; return that version.

        It deletes what is in a checkpoint that is older than ``logRetentionDuration``.
        """
        log = self.folder / "_delta_log"
        self.sql(
            "ALTER TABLE {} SET TBLPROPERTIES ('delta.logRetentionDuration' = '1 days',"
            " 'delta.deletedFileRetentionDuration' = '1 days')"
        )
        first = self.history()[-1] + 1
        self._checkpoint()
        for number, path in enumerate(sorted(log.glob("*.*"))):
            os.utime(path, (DAYS_AGO + number,) * 2)
        self.write()
        self._checkpoint()
        kept = sorted(path.stem for path in log.glob("*.json"))
        assert kept == [f"{first:020d}"], "Delta has cleaned the log"
        return first

    def _checkpoint(self) -> None:
        log = getattr(self.spark._jvm, "org.apache.spark.sql.delta.DeltaLog")
        table = log.forTable(self.spark._jsparkSession, str(self.folder))
        none = getattr(self.spark._jvm, "scala.Option").empty()
        table.update(False, none, none)
        table.checkpoint()

    def vacuum(self) -> None:
        """Remove the files that the newest version does not hold, as ``VACUUM`` with no retention."""
        held = self.spark.read.format("delta").load(str(self.folder)).inputFiles()
        names = {name.rpartition("/")[2] for name in held}
        for path in self.folder.glob("*.parquet"):
            if path.name not in names:
                path.unlink()

    def replace_by(self, other: DeltaTable) -> None:
        """Replace the table as if it was dropped and recreated between two polls."""
        self.folder.rename(self.folder.with_suffix(".old"))
        other.folder.rename(self.folder)

    def drop(self) -> None:
        shutil.rmtree(self.folder)


class IcebergTable:
    """A table of the catalog ``ice``; each write is one snapshot of one file."""

    def __init__(self, spark: Any, warehouse: str, name: str) -> None:
        self.spark = spark
        self.name = f"ice.db.{name}"
        self.metadata = Path(warehouse) / "db" / name / "metadata"
        spark.sql(f"CREATE TABLE {self.name} (id bigint) USING iceberg")

    def write(self, times: int = 1) -> IcebergTable:
        for _ in range(times):
            self.spark.range(3).coalesce(1).writeTo(self.name).append()
        return self

    def keep(self, *, seconds: int) -> IcebergTable:
        """Set for how long its snapshots are kept."""
        setting = f"'history.expire.max-snapshot-age-ms' = '{seconds * 1000}'"
        self.spark.sql(f"ALTER TABLE {self.name} SET TBLPROPERTIES ({setting})")
        return self

    def expire(self) -> None:
        """Remove all snapshots but the current one."""
        self._call("expire_snapshots", "retain_last => 1, older_than => TIMESTAMP '2100-01-01'")

    def compact(self) -> None:
        """Rewrite all files as one, which is a snapshot without new rows."""
        self._call("rewrite_data_files", "options => map('rewrite-all', 'true')")

    def _call(self, procedure: str, arguments: str) -> None:
        name = self.name.removeprefix("ice.")
        self.spark.sql(f"CALL ice.system.{procedure}(table => '{name}', {arguments})").collect()

    def stream(self, **options: Any) -> Any:
        return self.spark.readStream.format("iceberg").options(**options).load(self.name)

    def rows(self) -> int:
        # The catalog keeps a table as it was read first, as long as it is asked for again and again.
        self.spark.sql(f"REFRESH TABLE {self.name}")
        return self.spark.table(self.name).count()

    def commit_file(self, ahead: int) -> str:
        """The metadata file that the commit after ``ahead`` other commits will write."""
        versions = [int(path.name[1:].split(".")[0]) for path in self.metadata.glob("v*.json")]
        return f"{self.metadata}/v{max(versions) + 1 + ahead}.metadata.json"


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
            return self.kept(topic) < self.kafka.edges(topic)[1]

        until(compacted, f"{topic} is compacted")

    def kept(self, topic: str) -> int:
        """The number of records in partition 0, without transaction markers."""
        with closing(self.kafka.reader(enable_partition_eof=True)) as consumer:
            consumer.assign([TopicPartition(topic, 0, 0)])
            rows = 0
            while (message := consumer.poll(PATIENCE_SECONDS)) and message.error() is None:
                rows += 1
            return rows
