"""What batches on files and tables report, recorded from real Spark and real connectors."""

from __future__ import annotations

import json

import pytest
from support.exporter_exposition import samples
from support.published_states import published
from support.recorded import FIXTURES
from support.story import Story, policy, source

from querypulse.alerting.evidence import evidence
from querypulse.alerting.rule_context import rule_context
from querypulse.listener.events import EventKind, decode
from querypulse.listener.offsets import BASE_INDEX
from querypulse.listener.source_polls import SourcePoll
from querypulse.listener.state.sources import Shortfall, follow_source

KINDS = ("file", "delta", "iceberg")


def reported(kind):
    """The sources of all recorded batches on that kind of source."""
    lines = [
        json.loads(line)
        for path in sorted(FIXTURES.glob("sources-spark-*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    texts = [line["text"] for line in lines if line["source"] == kind]
    assert len(texts) > 5
    return [entry for text in texts for entry in _decoded(text).sources]


def _decoded(text):
    return decode(EventKind.PROGRESS, json.dumps({"progress": json.loads(text)}))


@pytest.mark.parametrize("kind", KINDS)
def test_open_source_reports_no_latest_offset_and_no_backlog(kind):
    """If a later version reports more, this test fails first."""
    for entry in reported(kind):
        assert (entry.latest, entry.lag_offsets) == (None, None)
        assert (entry.backlog_files, entry.backlog_bytes) == (None, None)


@pytest.mark.parametrize("kind", KINDS)
def test_end_of_each_batch_is_known(kind):
    assert all(isinstance(entry.end, dict) and len(entry.end) == 1 for entry in reported(kind))


def test_delta_positions_grow_by_file_and_version():
    ends = [next(iter(entry.end.values())) for entry in reported("delta")]

    assert ends == sorted(ends)
    assert {index for _, index in ends} > {BASE_INDEX, 0}


def test_iceberg_source_has_the_same_name_in_all_runs():
    """Java's default name differs in each run and could not be followed over a restart."""
    names = {entry.description for entry in reported("iceberg")}

    assert names == {"org.apache.iceberg.spark.source.SparkMicroBatchStream"}


def test_source_name_with_an_at_sign_is_unchanged():
    text = '{"progress": {"id": "q", "runId": "r", "batchId": 7, "sources": [{"description": "abfss://c@lake/x"}]}}'

    assert decode(EventKind.PROGRESS, text).sources[0].description == "abfss://c@lake/x"


# -- reported backlog -------------------------------------------------------------------------------


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

    assert evidence(context)["backlog"] == (
        "DeltaSource[/t]: 8 files, 3456 bytes, as Spark reported 2 s ago"
    )


# -- sources that end before what was read --------------------------------------------------------


def test_shortfall_counts_each_poll_once_until_it_ends():
    source, seen = None, []
    for at, committed, latest in (
        (1, {"": 5}, {"": 2}),
        (1, {"": 5}, {"": 2}),
        (9, {"": 5}, {"": 3}),
        (10, {"": 5}, {"": 5}),
        (11, {"t/0": 5}, {"t/1": 2}),
    ):
        source = follow_source(source, SourcePoll("s", committed, {}, latest, at=at, wall=at))
        seen.append(source.shortfalls)

    first, second = Shortfall(1, 1, 5, 2), Shortfall(1, 2, 5, 3)
    assert seen == [{"": first}, {"": first}, {"": second}, {}, {}]
