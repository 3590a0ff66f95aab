"""What a query reads and writes, from Spark's descriptions."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest
from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JJavaError
from support.fake_spark import FakeSpark
from support.story import progress, source

from querypulse.listener.spark.execution import kafka_sink, plan_datasets
from querypulse.listener.state.flow import (
    TABLE,
    TOPIC,
    Dataset,
    Datasets,
    PlanDatasets,
    brokers_of,
    datasets_of,
    path_dataset,
)

NO_PLAN = PlanDatasets()


def read(*descriptions, end=None, plan=NO_PLAN):
    sources = tuple(source(end, description=text) for text in descriptions)
    return datasets_of(Datasets(), "", progress(batch=1, sources=sources), plan).reads


def written(sink, plan=NO_PLAN):
    return datasets_of(Datasets(), sink, None, plan).writes


def test_one_folder_has_one_name_and_different_ones_differ():
    pairs = {
        ("file:/data/in", "/data/in"): True,
        ("file:/data/in", "file:///data/in/"): True,
        ("s3a://lake/bronze", "s3://lake/bronze/"): True,
        ("hdfs://nn:8020/lake", "/lake"): True,
        ("dbfs:/lake/a b", "/lake/./a b"): True,
        ("s3://lake/bronze", "s3://pond/bronze"): False,
        ("hdfs://nn:8020/lake", "file:/lake"): False,
        ("/lake/bronze", "/lake/bronze2"): False,
        ("/lake/bronze", "/lake"): False,
        ("/lake/Bronze", "/lake/bronze"): False,
    }

    assert {pair: path_dataset(pair[0]).may_be(path_dataset(pair[1])) for pair in pairs} == pairs


@pytest.mark.parametrize("kind", ["File", "Delta"])
def test_sink_and_source_of_one_folder_match(kind):
    source_kind = "FileStreamSource" if kind == "File" else "DeltaSource"
    (dataset,) = read(f"{source_kind}[file:/lake/bronze]")

    assert dataset.may_be(written(f"{kind}Sink[/lake/bronze]")[0])


def test_topics_of_two_clusters_differ():
    plan = PlanDatasets(brokers=(brokers_of("b2:9092,B1:9092"),))
    (here,) = read("KafkaV2[Subscribe[orders]]", plan=plan)

    assert here.owners == ("b1:9092", "b2:9092")
    assert here.may_be(Dataset(TOPIC, "orders", ("b1:9092",)))
    assert here.may_be(Dataset(TOPIC, "orders"))
    assert not here.may_be(Dataset(TOPIC, "orders", ("c1:9092",)))


def test_descriptions_and_the_plan_name_what_a_query_reads_and_writes():
    table, topic = Dataset(TABLE, "local.db.orders"), Dataset(TOPIC, "orders", ("b:9092",))
    two_clusters = PlanDatasets(brokers=(("a:1",), ("b:1",)))
    orders, doors = Dataset(TOPIC, "orders"), Dataset(TOPIC, "doors")
    reads = [
        ("KafkaV2[Subscribe[orders]]", None, NO_PLAN, (orders,)),
        ("KafkaV2[Subscribe[orders, doors]]", {"orders": {"0": 1}}, NO_PLAN, (orders, doors)),
        ("KafkaV2[Assign[my-topic-0, my-topic-1]]", None, NO_PLAN, (Dataset(TOPIC, "my-topic"),)),
        ("KafkaV2[SubscribePattern[ord.*]]", {"orders": {"0": 1, "1": 2}}, NO_PLAN, (orders,)),
        ("KafkaV2[SubscribePattern[ord.*]]", None, NO_PLAN, ()),
        ("KafkaV2[Subscribe[]]", None, NO_PLAN, ()),
        ("KafkaV2[Subscribe[orders]]", None, two_clusters, (orders,)),
        (
            "org.apache.iceberg.spark.source.SparkMicroBatchStream",
            None,
            PlanDatasets((table,)),
            (table,),
        ),
    ]
    writes = [
        (
            "org.apache.spark.sql.kafka010.KafkaSourceProvider$KafkaTable",
            PlanDatasets((), (topic,)),
            (topic,),
        ),
        ("local.db.orders", NO_PLAN, (table,)),
        ("FileSink[out]", NO_PLAN, ()),
    ]

    for text, end, plan, datasets in reads:
        assert read(text, end=end, plan=plan) == datasets, text
    for sink, plan, datasets in writes:
        assert written(sink, plan) == datasets, sink


def test_other_descriptions_name_no_place():
    others = [
        "",
        "ForeachBatchSink",
        "MemorySink",
        "NoopTable",
        "RateStreamV2[rowsPerSecond=20]",
        "FileSink[]",
        "org.apache.spark.sql.execution.datasources.noop.NoopTable$",
        "KafkaV2[",
        "[redacted]",
    ]

    assert [text for text in others if read(text) or written(text)] == []


def test_places_change_only_with_descriptions_or_the_topics_of_a_pattern():
    def after(before, text, end=None):
        event = progress(batch=1, sources=(source(end, description=text),))
        return datasets_of(before, "DeltaSink[/b]", event, NO_PLAN)

    table, pattern = "DeltaSource[file:/a]", "KafkaV2[SubscribePattern[ord.*]]"
    datasets, few = after(Datasets(), table), after(Datasets(), pattern, {"orders": {"0": 1}})

    assert after(datasets, table) is datasets
    assert len(after(few, pattern, {"orders": {"0": 1}, "ordinals": {"0": 1}}).reads) == 2


def test_number_of_places_is_bounded():
    text = ", ".join(f"t{number}" for number in range(5000))

    assert len(read(f"KafkaV2[Subscribe[{text}]]")) == 200


def relation(spark, source_name, table="", **options):
    return spark.java(
        getClass=spark.text("StreamingRelationV2"),
        sourceName=source_name,
        table=spark.java(name=table),
        extraOptions=spark.java(get=options.get),
    )


def test_plan_shows_tables_and_brokers_and_no_other_option():
    servers = {"kafka.bootstrap.servers": "b:9092", "kafka.sasl.jaas.config": "secret"}
    spark = FakeSpark()
    leaves = [
        relation(spark, "iceberg", "ice.db.orders"),
        relation(spark, "kafka", **servers),
        spark.java(getClass=spark.text("StreamingRelation")),
        relation(spark, "rate", "rate"),
    ]
    collected = spark.java(size=len(leaves), apply=leaves.__getitem__)
    java = spark.java(analyzedPlan=spark.java(collectLeaves=collected))

    assert plan_datasets(java) == PlanDatasets(
        (Dataset(TABLE, "ice.db.orders"),), (), (("b:9092",),)
    )


def sink_of(**options):
    spark = FakeSpark()
    given = {name: spark.java(isDefined=True, get=value) for name, value in options.items()}
    absent = spark.java(isDefined=False)
    answer = spark.java(get=lambda name: given.get(name, absent))
    field = spark.java(setAccessible=None, get=answer)
    missing = Py4JJavaError("NoSuchFieldException", JavaObject("o1", MagicMock()))
    own = spark.java(getDeclaredField=missing, getSuperclass=spark.java(getDeclaredField=field))
    return kafka_sink(spark.java(getClass=own))


def test_options_show_the_topic_of_a_kafka_sink():
    options = {"topic": "orders", "kafka.bootstrap.servers": "b:9092", "kafka.ssl.key": "secret"}

    assert sink_of(**options).writes == (Dataset(TOPIC, "orders", ("b:9092",)),)


def test_kafka_sink_whose_rows_name_the_topic_has_no_place():
    assert sink_of(**{"kafka.bootstrap.servers": "b:9092"}) == NO_PLAN
