"""What batches report of their sources: of files and tables, recorded from real connectors, and of
Event Hubs, whose native connector has offsets and an unknown lag.
"""

from __future__ import annotations

import json

import pytest
from support.event_log import FIXTURES
from support.published_states import published, samples, values
from support.story import Story, policy, source

from querypulse.alerting.facts import NotSeenYet
from querypulse.alerting.rules.context import rule_context
from querypulse.alerting.rules.evidence import collect
from querypulse.alerting.words.evidence import evidence_texts
from querypulse.exporter.status import status
from querypulse.listener.events import EventKind, decode
from querypulse.listener.offsets import BASE_INDEX


def reported(kind):
    """The sources of all recorded batches on that kind of source."""
    lines = [
        json.loads(line)
        for path in sorted(FIXTURES.glob("sources-spark-*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    texts = [line["text"] for line in lines if line["source"] == kind]
    assert len(texts) > 5
    events = [decode(EventKind.PROGRESS, f'{{"progress": {text}}}') for text in texts]
    return [entry for event in events for entry in event.sources]


@pytest.mark.parametrize("kind", ["file", "delta", "iceberg"])
def test_open_source_reports_the_end_of_each_batch_and_no_latest_offset_or_backlog(kind):
    """If a later version reports more, this test fails first."""
    for entry in reported(kind):
        assert len(entry.end) == 1
        assert (entry.latest, entry.lag_offsets) == (None, None)
        assert (entry.backlog_files, entry.backlog_bytes) == (None, None)


def test_delta_positions_grow_by_file_and_version():
    ends = [next(iter(entry.end.values())) for entry in reported("delta")]

    assert ends == sorted(ends)
    assert {index for _, index in ends} > {BASE_INDEX, 0}


def test_iceberg_source_has_the_same_name_in_all_runs():
    """Java's default name differs in each run and could not be followed over a restart."""
    names = {entry.description for entry in reported("iceberg")}

    assert names == {"org.apache.iceberg.spark.source.SparkMicroBatchStream"}


def behind():
    delta = source(None, description="DeltaSource[/t]", backlog_files=8, backlog_bytes=3456)
    return Story().started(at=0).commit(batch=7, at=10, sources=(source({"logOffset": 1}), delta))


def test_backlog_metric_is_labelled_by_source_index():
    shown = [
        (entry.labels["source"], entry.value)
        for entry in samples(published(behind()))
        if entry.name == "spark_streaming_source_backlog_files"
    ]

    assert shown == [("1", 8)]
    assert "spark_streaming_source_backlog_files" not in {
        entry.name for entry in samples(published(Story().commit(batch=0, at=1)))
    }


def test_backlog_is_in_the_evidence():
    snapshot = behind().state.snapshot(12)
    context = rule_context(snapshot.queries[0], snapshot, 12, policy())

    assert evidence_texts(NotSeenYet(), collect(context))["backlog"] == (
        "DeltaSource[/t]: 8 files, 3456 bytes, as Spark reported 2 s ago"
    )


NATIVE = "org.apache.spark.sql.eventhubs.EventHubsSource@5e91993f"
"""A V1 source, whose one offset Spark reports as both the end of the batch and the newest offset.

That offset is limited by ``maxEventsPerTrigger``, by default 1000 for each partition
(EventHubsSource.scala, ``getOffset``; MicroBatchExecution.scala). Its JSON is that of its
JsonUtils.scala, ``partitionSeqNos``.
"""
KAFKA = "KafkaV2[Subscribe[orders]]"
LAGS = ("spark_streaming_source_lag_offsets", "spark_streaming_source_lag_reported_offsets")


def batch(number, end, latest=None, description=NATIVE):
    """The progress of a batch; a V1 source has one offset for both."""
    reported = {"description": description, "startOffset": None, "numInputRows": 2000}
    reported |= {"endOffset": end, "latestOffset": end if latest is None else latest}
    event = {"id": "id-a", "runId": "a-1", "name": "a", "batchId": number, "sources": [reported]}
    event["durationMs"] = {"addBatch": 900, "triggerExecution": 1000}
    return decode(EventKind.PROGRESS, json.dumps({"progress": event}))


def test_sequence_numbers_are_decoded_by_partition():
    offsets = [
        ({"orders": {"0": 1234, "1": 99}}, {"orders/0": 1234, "orders/1": 99}),
        ('{"orders":{"0":1234}}', {"orders/0": 1234}),
        ({"orders": {"0": 23, "1": -1}, "b": {"0": -2}}, {"orders/0": 23, "orders/1": -1, "b/0": -2}),
    ]  # fmt: skip
    for offset, positions in offsets:
        (source,) = batch(0, offset).sources
        assert (source.end, source.latest) == (positions, None)
        assert source.description == NATIVE.partition("@")[0]


def test_lag_is_absent_where_the_end_is_unknown():
    story = Story().started("a", at=0)
    for number in range(3):
        story.state.apply_event(batch(number, {"orders": {"0": 1000 * number}}), 10.0 * number)
    shown = published(story, now=40.0)

    assert [values(shown, name, app="shop", query="a") for name in LAGS] == [{}, {}]
    assert status(shown).queries[0].lag_offsets is None


@pytest.mark.parametrize("description", [KAFKA, "abfss://c@lake/x", "", "EventHubs"])
def test_lag_of_every_other_source_is_known(description):
    behind = batch(0, {"orders": {"0": 5}}, {"orders": {"0": 9}}, description).sources
    none = batch(0, {"orders": {"0": 5}}, description=description).sources

    assert [source.lag_offsets for source in (*behind, *none)] == [4, 0]
    assert {source.description for source in (*behind, *none)} == {description}
