"""Every shape in which people keep Spark's events is understood; what is nothing is counted."""

from __future__ import annotations

import json

import pytest
from support.event_log import BEGAN, STREAMING, EventLog, ids, progress, spark_time
from support.recorded import FIXTURES, recorded

from querypulse.listener.decode import decode
from querypulse.listener.events import EventKind, Idle, Progress, Started, Terminated
from querypulse.sidecar.replay.recording import Began, Reader, RecordedEvent, Stopped


def read(*lines):
    """(what lines say, how many were nothing)."""
    reader = Reader()
    texts = (line if isinstance(line, bytes) else f"{line}\n".encode() for line in lines)
    return list(reader.entries(texts)), reader.unread


def one(line):
    (said,), unread = read(line)
    assert unread == 0
    return said


BARE = progress("a", 1, 7, 10.0, 2.5)
SHAPES = {
    "started": ({**ids("a", 1), "name": "a", "timestamp": spark_time(1)}, Started, 1.0),
    "started without a name": (
        {**ids("a", 1), "name": None, "timestamp": spark_time(1)},
        Started,
        1.0,
    ),
    "idle": ({**ids("a", 1), "timestamp": spark_time(2)}, Idle, 2.0),
    "progress of a listener": ({"progress": BARE}, Progress, 10.0),
    "progress of recentProgress": (BARE, Progress, 10.0),
    "recorder": (
        {"kind": "progress", "shape": "json", "text": json.dumps({"progress": BARE})},
        Progress,
        10.0,
    ),
    "failed": (
        {**ids("a", 1), "exception": "x: y", "errorClassOnException": None},
        Terminated,
        None,
    ),
    "stopped": (
        {**ids("a", 1), "exception": None, "errorClassOnException": None},
        Terminated,
        None,
    ),
    "stopped, as 3.4 says it": (ids("a", 1), Terminated, None),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_of_a_recorded_event_is_understood(shape):
    content, kind, at = SHAPES[shape]
    said = one(json.dumps(content))

    assert isinstance(said.event, kind)
    assert said.at == (None if at is None else BEGAN + at)
    assert (said.event.query_id, said.event.run_id) == ("id-a", "a-1")


def test_a_bare_progress_says_what_a_whole_one_says():
    assert one(json.dumps(BARE)) == one(json.dumps({"progress": BARE}))


@pytest.mark.parametrize("shape", ["json", "event_log"])
@pytest.mark.parametrize("spark", ["3.5.9", "4.3.0"])
def test_what_real_spark_wrote_is_understood_as_the_listener_understands_it(spark, shape):
    texts = recorded(shape=shape, spark=spark)
    said, unread = read(*(text for _, text in texts))

    assert unread == 0
    assert [one.event for one in said] == [decode(kind, text) for kind, text in texts]


def test_the_recorders_own_files_are_understood():
    for path in FIXTURES.glob("events-*.jsonl"):
        said, unread = read(*path.read_text().splitlines())

        assert (len(said) > 50, unread) == (True, 0)


def test_all_shapes_may_be_mixed():
    log = EventLog().started(at=1).commit(batch=0, at=3)
    shapes = [json.dumps(content) for content, _, _ in SHAPES.values()]
    said, unread = read(*log.lines, *shapes, *log.lines)

    assert (len(said), unread) == (3 + len(SHAPES) + 3, 0)


def test_json_with_blanks_and_its_keys_in_any_order_is_understood():
    (line,) = EventLog(None).commit(batch=0, at=3).lines

    assert one(json.dumps(json.loads(line), sort_keys=True)) == one(line)
    assert one("  " + json.dumps(json.loads(line))) == one(line)


# -- times --------------------------------------------------------------------------------------


def test_a_batch_arrives_when_its_trigger_ends():
    said = one(json.dumps({"progress": progress("a", 1, 0, at=100.0, seconds=30.0)}))

    assert said.at == BEGAN + 100


def test_where_spark_reports_no_batch_duration_the_trigger_reports_it():
    content = progress("a", 1, 0, at=100.0, seconds=30.0)
    del content["batchDuration"]

    assert one(json.dumps(content)).at == BEGAN + 100


def test_a_time_without_a_zone_is_utc():
    content = {**ids("a", 1), "timestamp": "2026-09-21T14:13:20.000"}

    assert one(json.dumps(content)).at == BEGAN


def test_a_name_that_polls_like_a_time_reports_none():
    name = '"timestamp":"2001-01-01T00:00:00.000Z"'
    (line,) = EventLog(None).commit(name, batch=0, at=3).lines

    assert one(line).at == BEGAN + 3


def test_a_time_that_stuck_last_is_found_as_well():
    content = progress("a", 1, 0, at=100.0, seconds=30.0)
    content["timestamp"] = content.pop("timestamp")
    (line,) = EventLog(None).add(STREAMING.format("Progress"), progress=content, more={}).lines

    assert one(line).at == BEGAN + 100


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


@pytest.mark.parametrize("event", TIMED)
def test_the_end_of_a_query_is_timed_by_the_line_before_it(event):
    log = EventLog().add(event, **in_millis(TIMED[event])).ended(exception="x")
    said, _ = read(*log.lines)

    assert said[-1].at == pytest.approx(1_790_000_000.009)


def test_times_that_are_durations_or_text_time_nothing():
    log = EventLog().work(at=5)
    log.add(
        "SparkListenerTaskEnd",
        **{"Executor CPU Time": 1_999_999_999_999, "Plan": '"time":1999999999999'},
    )
    said, _ = read(*log.ended().lines)

    assert said[-1].at in (BEGAN, BEGAN + 5)


def test_an_end_is_no_earlier_than_anything_reported_before():
    log = EventLog().commit(batch=0, at=50).work(at=20).ended()
    said, _ = read(*log.lines)

    assert said[-1].at == BEGAN + 50


# -- applications ---------------------------------------------------------------------------------


def test_an_application_reports_its_name_its_beginning_and_its_end():
    log = EventLog("nightly loads").stopped(at=60)

    assert read(*log.lines) == ([Began(BEGAN, "nightly loads"), Stopped(BEGAN + 60)], 0)


# -- what is nothing ------------------------------------------------------------------------------

NOTHING = [
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


@pytest.mark.parametrize(
    "line", [*NOTHING, b"\xff\xfe\x00binary\n", b'{"id": "\xff", "runId": "b"}\n']
)
def test_a_line_that_is_nothing_is_counted_and_passed_over(line):
    log = EventLog(None).commit(batch=0, at=3)
    said, unread = read(line, *log.lines)

    assert (len(said), unread) == (1, 1)


QUIET = [
    "",
    "   ",
    '{"Event":"SparkListenerEnvironmentUpdate"}',
    '{"Event":"com.example.TheirOwnEvent","x":1}',
    '{"Event":"org.apache.spark.sql.streaming.StreamingQueryListener$QueryNewEvent","id":"a"}',
    b'{"Event":"org.apache.spark.sql.streaming.StreamingQueryListener$QueryPro',
    b'{"progress": {"id": "a", "ru',
    b"{",
]


@pytest.mark.parametrize("line", QUIET)
def test_other_events_blank_lines_and_an_unfinished_last_one_are_no_complaint(line):
    assert read(line) == ([], 0)


@pytest.mark.parametrize("kind", EventKind)
def test_no_beginning_of_a_line_is_an_accident(kind):
    """As a log ends that a killed driver was writing."""
    text = recorded(kind.value, "event_log", "4.3.0")[0][1].encode()

    for end in range(len(text)):
        assert read(text[:end]) == ([], 0)
    assert isinstance(read(text)[0][0], RecordedEvent)
