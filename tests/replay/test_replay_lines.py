"""Replay reads every format in which Spark's events are stored and counts unreadable lines."""

from __future__ import annotations

import json

import pytest
from support.event_log import BEGAN, FIXTURES, EventLog, ids, progress, recorded, spark_time

from querypulse.listener.events import EventKind, Idle, Progress, Started, Terminated, decode
from querypulse.replay.log_files import Reader


def read(*lines):
    """(times and events of the lines, number of unreadable lines)."""
    reader = Reader()
    texts = (line if isinstance(line, bytes) else f"{line}\n".encode() for line in lines)
    return [entry[:2] for entry in reader.entries(texts)], reader.unread


def one(line):
    """The time and the event of a line."""
    (entry,), unread = read(line)
    assert unread == 0
    return entry


def at_of(content):
    return one(json.dumps(content))[0]


BARE = progress("a", 1, 7, 10.0, 2.5)
ENDED = {**ids("a", 1), "exception": None, "errorClassOnException": None}
STARTED = {**ids("a", 1), "name": "a", "timestamp": spark_time(1)}
RECORDED = {"kind": "progress", "shape": "json", "text": json.dumps({"progress": BARE})}
SHAPES = {
    "started": (STARTED, Started, 1.0),
    "started without a name": (STARTED | {"name": None}, Started, 1.0),
    "idle": ({**ids("a", 1), "timestamp": spark_time(2)}, Idle, 2.0),
    "progress of a listener": ({"progress": BARE}, Progress, 10.0),
    "progress of recentProgress": (BARE, Progress, 10.0),
    "recorder": (RECORDED, Progress, 10.0),
    "failed": (ENDED | {"exception": "x: y"}, Terminated, None),
    "stopped": (ENDED, Terminated, None),
    "stopped, as Spark 3.4 writes it": (ids("a", 1), Terminated, None),
}


def test_every_format_of_a_recorded_event_is_read():
    entries = {shape: one(json.dumps(content)) for shape, (content, _, _) in SHAPES.items()}

    assert {shape: (type(event), at) for shape, (at, event) in entries.items()} == {
        shape: (kind, None if at is None else BEGAN + at) for shape, (_, kind, at) in SHAPES.items()
    }
    assert {(event.query_id, event.run_id) for _, event in entries.values()} == {("id-a", "a-1")}
    progresses = [event for _, event in entries.values() if isinstance(event, Progress)]
    assert progresses == [decode(EventKind.PROGRESS, RECORDED["text"])] * 3


@pytest.mark.parametrize("shape", ["json", "event_log"])
@pytest.mark.parametrize("spark", ["3.5.9", "4.3.0"])
def test_events_written_by_spark_decode_as_in_the_listener(spark, shape):
    texts = recorded(shape=shape, spark=spark)
    entries, unread = read(*(text for _, text in texts))

    assert unread == 0
    assert [event for _, event in entries] == [decode(kind, text) for kind, text in texts]


def test_files_of_the_recorder_are_read():
    for path in FIXTURES.glob("events-*.jsonl"):
        entries, unread = read(*path.read_text().splitlines())

        assert (len(entries) > 50, unread) == (True, 0)


def test_formats_may_be_mixed_in_one_file():
    log = EventLog().started(at=1).commit(batch=0, at=3)
    shapes = [json.dumps(content) for content, _, _ in SHAPES.values()]
    entries, unread = read(*log.lines, *shapes, *log.lines)

    assert (len(entries), unread) == (3 + len(SHAPES) + 3, 0)


def test_json_with_spaces_and_any_key_order_is_read():
    (line,) = EventLog(None).commit(batch=0, at=3).lines

    assert one(json.dumps(json.loads(line), sort_keys=True)) == one(line)
    assert one("  " + json.dumps(json.loads(line))) == one(line)


WITHOUT_DURATION = progress("a", 1, 0, at=100.0, seconds=30.0)
del WITHOUT_DURATION["batchDuration"]
TIMES = [
    (
        "a batch arrives when its trigger ends",
        {"progress": progress("a", 1, 0, at=100.0, seconds=30.0)},
        BEGAN + 100,
    ),
    ("the trigger's duration replaces that of the batch", WITHOUT_DURATION, BEGAN + 100),
    ("without a zone it is UTC", {**ids("a", 1), "timestamp": "2026-09-21T14:13:20.000"}, BEGAN),
]


@pytest.mark.parametrize("row", [row[1:] for row in TIMES], ids=[row[0] for row in TIMES])
def test_the_time_of_an_event_is_that_of_its_arrival(row):
    content, at = row

    assert at_of(content) == at


TIMED = {
    "SparkListenerTaskEnd": {"Task Info": {"Launch Time": 1, "Finish Time": 9}},
    "SparkListenerTaskStart": {"Task Info": {"Launch Time": 9, "Finish Time": 0}},
    "SparkListenerJobStart": {"Job ID": 1, "Submission Time": 9},
    "SparkListenerJobEnd": {"Job ID": 1, "Completion Time": 9},
    "SparkListenerStageSubmitted": {"Stage Info": {"Submission Time": 9}},
    "SparkListenerStageCompleted": {"Stage Info": {"Submission Time": 1, "Completion Time": 9}},
    "SparkListenerExecutorAdded": {"Timestamp": 9},
    "SparkListenerExecutorRemoved": {"Timestamp": 9},
    "SparkListenerBlockManagerAdded": {"Timestamp": 9},
    "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart": {"time": 9},
    "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd": {"time": 9},
}


def in_millis(fields):
    return {
        key: in_millis(value) if isinstance(value, dict) else value and 1_790_000_000_000 + value
        for key, value in fields.items()
    }


def test_the_end_of_a_query_is_timed_by_the_line_before_it():
    logs = {
        event: EventLog().add(event, **in_millis(fields)).ended(exception="x")
        for event, fields in TIMED.items()
    }

    assert {event: read(*log.lines)[0][-1][0] for event, log in logs.items()} == dict.fromkeys(
        TIMED, pytest.approx(1_790_000_000.009)
    )


def test_durations_and_texts_are_not_timestamps():
    log = EventLog().work(at=5)
    log.add(
        "SparkListenerTaskEnd",
        **{"Executor CPU Time": 1_999_999_999_999, "Plan": '"time":1999999999999'},
    )
    entries, _ = read(*log.ended().lines)

    assert entries[-1][0] in (BEGAN, BEGAN + 5)


def test_end_of_a_query_is_not_earlier_than_previous_lines():
    log = EventLog().commit(batch=0, at=50).work(at=20).ended()
    entries, _ = read(*log.lines)

    assert entries[-1][0] == BEGAN + 50


def test_application_has_name_start_and_end():
    log = EventLog("nightly loads").stopped(at=60)

    assert read(*log.lines) == ([(BEGAN, "nightly loads"), (BEGAN + 60, None)], 0)


UNREADABLE = [
    "hello",
    "{}",
    "[]",
    "1",
    '"text"',
    '{"progress": 1}',
    '{"progress": {}}',
    '{"id": "a"}',
    '{"id": 1, "runId": 2, "timestamp": "2026-09-21T14:13:20.000Z"}',
    '{"id": "a", "runId": "b", "timestamp": "yesterday"}',
    '{"kind": "progress", "text": "{}"}',
    '{"kind": "dance", "text": "{}"}',
    '{"Event": 1}',
    "[" * 100_000,
    '{"Event":"org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"}',
]


def test_unreadable_line_is_counted_and_skipped():
    log = EventLog(None).commit(batch=0, at=3)
    lines = [*UNREADABLE, b"\xff\xfe\x00binary\n", b'{"id": "\xff", "runId": "b"}\n']
    counts = [
        (line, len(entries), unread)
        for line in lines
        for entries, unread in [read(line, *log.lines)]
    ]

    assert [count for count in counts if count[1:] != (1, 1)] == []


IGNORED = [
    "",
    "   ",
    '{"Event":"SparkListenerEnvironmentUpdate"}',
    '{"Event":"com.example.TheirOwnEvent","x":1}',
    '{"Event":"org.apache.spark.sql.streaming.StreamingQueryListener$QueryNewEvent","id":"a"}',
    b'{"Event":"org.apache.spark.sql.streaming.StreamingQueryListener$QueryPro',
    b'{"progress": {"id": "a", "ru',
    b"{",
]


def test_foreign_events_blank_and_unfinished_lines_are_not_counted():
    assert [line for line in IGNORED if read(line) != ([], 0)] == []


@pytest.mark.parametrize("kind", EventKind)
def test_unfinished_line_of_any_length_is_not_counted(kind):
    """The log of a killed driver ends in an unfinished line."""
    text = recorded(kind.value, "event_log", "4.3.0")[0][1].encode()

    for end in range(len(text)):
        assert read(text[:end]) == ([], 0)
    assert read(text)[0][0][1] == decode(kind, text)
