"""Queries that read, through Kafka, Delta Lake and Iceberg, what other queries write."""

from __future__ import annotations

import pytest
from support.connectors import IcebergTable
from support.queries import rate, shown, start, until

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


def upstream(sidecar, name):
    query = shown(sidecar, name)
    return query.upstream if query is not None else ()


def connected(sidecar, **expected):
    def all_are():
        return all(upstream(sidecar, name) == (writer,) for name, writer in expected.items())

    until(all_are, f"{expected}")


def write(rows, name, form, folder, **options):
    checkpoint = str(folder / f"checkpoint-{name}")
    writer = rows.writeStream.queryName(name).format(form).options(**options)
    writer = writer.option("checkpointLocation", checkpoint)
    return writer.trigger(processingTime="500 milliseconds")


@pytest.mark.nightly
@pytest.mark.kafka
@pytest.mark.delta
def test_topics_and_tables_connect_queries(spark, kafka, watch, tmp_path):
    topic, here = kafka.topic(), {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    sidecar = watch()
    values = rate(spark).selectExpr("string(value) AS value")
    write(values, "producer", "kafka", tmp_path, topic=topic, **here).start()
    table = str(tmp_path / "table")
    write(kafka.stream(spark, topic).select("value"), "bronze", "delta", tmp_path).start(table)
    pattern = spark.readStream.format("kafka").options(**here)
    pattern = pattern.option("subscribePattern", f"{topic}.*")
    start(pattern.option("startingOffsets", "earliest").load(), "by_pattern")
    commits = (tmp_path / "table" / "_delta_log").glob
    until(lambda: [*commits("*.json")], "the table exists")
    start(spark.readStream.format("delta").load(table), "gold")

    connected(sidecar, bronze="producer", by_pattern="producer", gold="bronze")
    assert upstream(sidecar, "producer") == ()


@pytest.mark.iceberg
def test_tables_of_a_catalog_connect_queries(spark, watch, tmp_path):
    spark.sql("CREATE NAMESPACE IF NOT EXISTS ice.db")
    table = IcebergTable(spark, spark.conf.get("spark.sql.catalog.ice.warehouse"), "connected")
    sidecar = watch()
    rows = rate(spark).selectExpr("value AS id")
    write(rows, "bronze", "iceberg", tmp_path).toTable(table.name)
    start(table.stream(), "gold")

    connected(sidecar, gold="bronze")
