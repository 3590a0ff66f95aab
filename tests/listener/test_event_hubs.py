"""Event Hubs' native connector: its offsets are decoded, and its lag is unknown, not 0.

The connector is a V1 source, whose one offset Spark reports as both the end of the batch and the
newest offset. That offset is limited by ``maxEventsPerTrigger``, by default 1000 for each partition
(EventHubsSource.scala, ``getOffset``; MicroBatchExecution.scala). Its JSON is that of its
JsonUtils.scala, ``partitionSeqNos``.
"""

from __future__ import annotations

import json

import pytest
from support.exporter_exposition import values
from support.published_states import published
from support.story import Story

from querypulse.exporter.status import status
from querypulse.listener.events import EventKind, decode

NATIVE = "org.apache.spark.sql.eventhubs.EventHubsSource@5e91993f"
KAFKA = "KafkaV2[Subscribe[orders]]"
LAGS = ("spark_streaming_source_lag_offsets", "spark_streaming_source_lag_reported_offsets")


def batch(number, end, latest=None, description=NATIVE):
    """The progress of a batch; a V1 source has one offset for both."""
    reported = {"description": description, "startOffset": None, "numInputRows": 2000}
    reported |= {"endOffset": end, "latestOffset": end if latest is None else latest}
    event = {"id": "id-a", "runId": "a-1", "name": "a", "batchId": number, "sources": [reported]}
    event["durationMs"] = {"addBatch": 900, "triggerExecution": 1000}
    return decode(EventKind.PROGRESS, json.dumps({"progress": event}))


def seen(*batches):
    """A story in which a batch is committed every ten seconds."""
    story = Story().started("a", at=0)
    for number, event in enumerate(batches):
        story.state.apply_event(event, 10.0 * (number + 1))
    return story


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
    story = seen(*(batch(number, {"orders": {"0": 1000 * number}}) for number in range(3)))
    shown = published(story, now=40.0)

    assert [values(shown, name, app="shop", query="a") for name in LAGS] == [{}, {}]
    assert status(shown).queries[0].lag_offsets is None


@pytest.mark.parametrize("description", [KAFKA, "RateStreamV2[rowsPerSecond=1]", "", "EventHubs"])
def test_lag_of_every_other_source_is_known(description):
    behind = batch(0, {"orders": {"0": 5}}, {"orders": {"0": 9}}, description).sources
    none = batch(0, {"orders": {"0": 5}}, description=description).sources

    assert [source.lag_offsets for source in (*behind, *none)] == [4, 0]


def test_only_numbers_that_go_back_are_reported():
    """An event hub that was deleted and created again counts from 0."""
    assert alerts_of([5000, 6000, *range(10, 100, 10)]) == {"StreamingOffsetsRewound"}
    for healthy in (range(1000, 12_000, 1000), [1000] * 11, [-1, -1, *range(9)]):
        assert alerts_of(healthy) == set()


def alerts_of(ends):
    """The alerts after batches that end at these numbers of one partition."""
    story = seen(*(batch(number, {"orders": {"0": end}}) for number, end in enumerate(ends)))
    evaluation = story.evaluate(10.0 * len(ends) + 5)
    return {finding.alertname for finding in evaluation.findings}
