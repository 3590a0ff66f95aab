"""Spark's JSON is decoded into records, whatever its shape; other text is rejected."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.event_log import recorded

from querypulse.listener.events import (
    DecodeError,
    EventKind,
    Idle,
    Progress,
    Started,
    Terminated,
    decode,
)
from querypulse.listener.offsets import WHOLE, parse_offsets

KINDS = {
    EventKind.STARTED: Started,
    EventKind.PROGRESS: Progress,
    EventKind.IDLE: Idle,
    EventKind.TERMINATED: Terminated,
}
PROGRESS = {"id": "q", "runId": "r", "batchId": 7}


def progress(**fields):
    return decode(EventKind.PROGRESS, json.dumps({"progress": {**PROGRESS, **fields}}))


@pytest.mark.parametrize(
    ("operator", "counted", "mean", "dropped"),
    [
        ("stateStoreSave", 52, "08:00:36", 990),
        ("sessionWindowStateStoreSaveExec", 52, "08:00:36", 990),
        # More may be late, but a mean before the watermark only shows that some are.
        ("stateStoreSave", 52, "08:58:30", 52),
        ("stateStoreSave", 52, "08:59:30", 52),
        ("stateStoreSave", 995, "08:00:36", 995),
        ("stateStoreSave", 0, "08:00:36", 0),
        # They count rows.
        ("dedupe", 52, "08:00:36", 52),
        ("symmetricHashJoin", 52, "08:00:36", 52),
        (None, 52, "08:00:36", 52),
        ("stateStoreSave", 52, "07:00:00", 52),
        ("stateStoreSave", 52, None, 52),
    ],
)
def test_late_groups_are_at_least_as_many_rows_as_their_mean_event_time_shows(
    operator, counted, mean, dropped
):
    times = {"min": "08:00:00", "avg": mean, "max": "09:00:00", "watermark": "08:59:00"}
    event = progress(
        numInputRows=1000,
        eventTime={
            name: f"2026-11-29T{time}.000Z" for name, time in times.items() if time is not None
        },
        stateOperators=[{"operatorName": operator, "numRowsDroppedByWatermark": counted}],
    )

    assert event.least_dropped == dropped


def test_every_recorded_event_of_spark_decodes():
    events = [(kind, text, decode(kind, text)) for kind, text in recorded()]

    for shape in ("json", "event_log"):
        assert {kind for kind, _ in recorded(shape=shape)} == set(EventKind)
    assert [
        (kind, text)
        for kind, text, event in events
        if not isinstance(event, KINDS[kind]) or {len(event.query_id), len(event.run_id)} != {36}
    ] == []


def test_live_events_and_event_log_decode_to_the_same_batches():
    def by_batch(shape):
        events = [decode(kind, text) for kind, text in recorded("progress", shape)]
        return {(e.run_id, e.batch_id): (e.committed, e.phase_seconds, e.sources) for e in events}

    assert by_batch("json") == by_batch("event_log")


def test_real_stateful_batch_has_its_state_and_watermark():
    events = [decode(kind, text) for kind, text in recorded("progress", "json")]
    stateful = [e for e in events if e.name == "stateful"]

    assert all(e.state_memory_bytes > 0 for e in stateful)
    assert any(e.watermark_timestamp for e in stateful)


def test_absent_fields_are_none_not_zero():
    event = progress()
    figures = (
        "batch_seconds",
        "output_rows",
        "input_rows_per_second",
        "watermark_timestamp",
        "state_rows",
    )

    assert {getattr(event, figure) for figure in figures} == {None}
    assert (event.sources, event.committed) == ((), False)


def test_duration_of_a_clock_that_was_set_back_is_not_below_zero():
    for total in ({"batchDuration": -5}, {}):
        event = progress(durationMs={"addBatch": -3, "triggerExecution": -9}, **total)
        assert (event.batch_seconds, event.phase_seconds) == (0.0, {"addBatch": 0.0})


@pytest.mark.fault("Events", "Fields of a Spark that does not exist yet", "They are ignored")
def test_unknown_fields_are_ignored():
    assert progress(fromTheFuture={"a": [1]}).batch_id == 7


def test_times_of_any_year_that_spark_writes_are_read():
    """Spark prints years beyond 9999 with a sign."""
    texts = {
        "2026-01-01T00:00:00.500Z": 1767225600.5,
        "+10000-01-01T00:00:00.000Z": 253402300800.0,
        "+292278994-08-17T07:12:55.807Z": 9223372036854775.0,
        "+12026-13-01T00:00:00.000Z": None,
        "tomorrow": None,
    }
    for text, seconds in texts.items():
        event = progress(eventTime={"watermark": text, "max": text})
        assert event.watermark_timestamp == pytest.approx(seconds, abs=1)
        assert event.event_time_max == event.watermark_timestamp


def test_lag_is_known_only_if_both_offsets_are_known_and_comes_before_reported_records():
    cases = [
        ({"t": {"0": 5, "1": 7}}, {"t": {"0": 6, "1": 9}}, 3),
        ('{"t":{"0":5}}', '{"t":{"0":9}}', 4),
        (10, 14, 4),
        ("10", "14", 4),
        ({"t": {"0": 9}}, {"t": {"0": 5}}, 0),
        ({"t": {"0": 9}}, {"t": {"0": 9, "1": 100}}, 0),
        *(
            (end, latest, None)
            for end, latest in (
                ({"t": {"0": 9}}, {"u": {"0": 10}}),
                (None, 14),
                (10, None),
                ({"logOffset": 3}, None),
                ("opaque", "other"),
                (True, False),
            )
        ),
    ]
    for metrics, otherwise in (({}, None), ({"numRecordsReadyToProcess": "100"}, 100)):
        sources = [
            {"endOffset": end, "latestOffset": latest, "metrics": metrics}
            for end, latest, _ in cases
        ]
        lags = [source.lag_offsets for source in progress(sources=sources).sources]
        assert lags == [otherwise if lag is None else lag for _, _, lag in cases]


@pytest.mark.parametrize(
    ("metrics", "reported"),
    [
        ({"numFilesOutstanding": "100", "numBytesOutstanding": "7"}, (None, 100, 7, None)),
        ({"approximateQueueSize": "30"}, (None, 30, None, None)),
        (
            {"numRecordsReadyToProcess": "5", "sizeOfRecordsReadyToProcess": "80"},
            (5, None, 80, None),
        ),
        ({"maxMsBehindLatest": "90500", "avgMsBehindLatest": "3"}, (None, None, None, 90.5)),
        ({"estimatedTotalBytesBehindLatest": "5920.0"}, (None, None, 5920, None)),
        ({"numFilesOutstanding": "-1", "maxMsBehindLatest": "NaN"}, (None,) * 4),
        *(
            ({"numFilesOutstanding": odd}, (None,) * 4)
            for odd in ("many", None, [], {}, "Infinity")
        ),
        *((odd, (None,) * 4) for odd in ("none", None, [], 5)),
    ],
)
def test_backlog_that_a_source_reports_itself_is_read(metrics, reported):
    (found,) = progress(sources=[{"metrics": metrics}]).sources
    figures = found.lag_offsets, found.backlog_files, found.backlog_bytes, found.behind_seconds

    assert figures == reported


DEEP = "[" * 100_000
TOO_LARGE = "9" * 400
NO_EVENTS = [
    "",
    "{",
    "[]",
    "null",
    '{"progress": {}}',
    "{}",
    "\ud800",
    '{"id":1}',
    DEEP,
    f'{{"id": "q", "runId": "r", "x": {DEEP}',
    f'{{"progress": {{"x": {DEEP}',
]


@pytest.mark.parametrize("kind", list(EventKind))
def test_text_that_is_no_event_or_nested_too_deeply_is_rejected(kind):
    for text in NO_EVENTS:
        with pytest.raises(DecodeError):
            decode(kind, text)


ODD = [
    *((f'"inputRowsPerSecond": {rate}', {"input_rows_per_second": None}, ()) for rate in ('"NaN"', '"-Infinity"', "null", '"fast"')),
    ('"sink": {"numOutputRows": -1}', {"output_rows": None}, ()),
    ('"durationMs": {"latestOffset": 1, "triggerExecution": 1}', {"committed": False}, ()),
    ('"durationMs": {"addBatch": 1, "triggerExecution": 3}', {"committed": True}, ()),
    ('"eventTime": {"watermark": "1970-01-01T00:00:00.000Z"}', {"watermark_timestamp": 0}, ()),
    ('"eventTime": {"max": null, "watermark": "2026-01-01T00:00:00.000Z"}', {}, ()),
    ('"stateOperators": [{"numRowsTotal": null, "memoryUsedBytes": 5}]', {"state_rows": None, "state_memory_bytes": 5}, ()),
    ('"durationMs": {"addBatch": 1.5, "walCommit": null}', {"committed": True, "phase_seconds": {"addBatch": 0.0015}}, ()),
    ('"observedMetrics": {"quality": {"mean": NaN}}', {}, ()),
    ('"eventTime": {"max": 5, "watermark": "2026-01-01T00:00:00.000Z"}', {"watermark_timestamp": None}, ("eventTime",)),
    ('"eventTime": "soon"', {"watermark_timestamp": None}, ("eventTime",)),
    ('"durationMs": {"addBatch": "long", "walCommit": 2}', {"committed": False, "phase_seconds": {}}, ("durationMs",)),
    ('"durationMs": {"addBatch": NaN, "commitOffsets": Infinity}', {"committed": False, "phase_seconds": {}}, ("durationMs",)),
    ('"stateOperators": [{"numRowsTotal": "x", "memoryUsedBytes": 5}, 7]', {"state_rows": None, "state_memory_bytes": None}, ("stateOperators",)),
    ('"durationMs": "x", "numInputRows": 100', {"committed": True, "input_rows": 100}, ("durationMs",)),
    ('"durationMs": "x", "numInputRows": 0', {"committed": False}, ("durationMs",)),
    ('"stateOperators": [{"numRowsDroppedByWatermark": -1}]', {"late_rows": 0}, ()),
    ('"sources": [{"description": null, "numInputRows": 4}], "numInputRows": 4', {"input_rows": 4, "sources": ()}, ("sources",)),
    (f'"sources": [{{"numInputRows": 4, "metrics": {{"numFilesOutstanding": {TOO_LARGE}}}}}]', {"input_rows": 4}, ()),
    ('"stateOperators": {"a": 1}', {"state_rows": None}, ("stateOperators",)),
    ('"sink": {"description": 5, "numOutputRows": 3}', {"sink": "", "output_rows": None}, ("sink",)),
    ('"sink": "noop"', {"sink": "", "output_rows": None}, ("sink",)),
    ('"name": "\\ud800"', {"name": None}, ("name",)),
    ('"name": ["a"], "numInputRows": 3', {"name": None, "input_rows": 3}, ("name",)),
    *(
        (f'"numInputRows": {number}', {"input_rows": 0}, ("numInputRows",))
        for number in (TOO_LARGE, 2**63 + 1, "1.5", '"many"', "1e400")
    ),
]  # fmt: skip


def decoded(fields):
    text = f'{{"progress": {{"id": "q", "runId": "r", "batchId": 7, {fields}}}}}'
    return decode(EventKind.PROGRESS, text)


@pytest.mark.fault("Events", "An odd value in a part of a progress", "It costs that part")
@pytest.mark.parametrize(("fields", "kept", "lost"), ODD)
def test_odd_value_costs_its_part_and_never_the_event(fields, kept, lost):
    event = decoded(fields)

    assert (event.batch_id, event.lost_parts) == (7, lost)
    assert {name: getattr(event, name) for name in kept} == kept


def test_odd_identity_of_an_event_is_rejected():
    for fields in ('"batchId": null', '"batchId": 1.5', f'"batchId": {TOO_LARGE}', '"id": 5'):
        with pytest.raises(DecodeError):
            decoded(fields)


def test_offset_that_no_long_can_hold_or_is_nested_too_deeply_is_only_text():
    for offset in (TOO_LARGE, str(2**63), f"-{2**63 + 1}", "1e300"):
        for text in (offset, f'{{"t": {{"0": {offset}}}}}', f'{{"logOffset": {offset}}}'):
            assert isinstance(parse_offsets(text), str)
    assert parse_offsets(DEEP) == DEEP
    for offset in (2**63 - 1, -(2**63)):
        assert parse_offsets(str(offset)) == {WHOLE: offset}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = [
    "name",
    "batchDuration",
    "durationMs",
    "eventTime",
    "stateOperators",
    "sources",
    "sink",
    "numInputRows",
    "inputRowsPerSecond",
    "batchId",
]


@pytest.mark.fault("Events", "Progress of any shape", "It is decoded, or rejected and counted")
@given(st.dictionaries(st.sampled_from(FIELDS), json_values))
def test_progress_of_any_shape_is_decoded_or_rejected(fields):
    try:
        event = progress(**fields)
    except DecodeError:
        return

    assert event.input_rows >= 0
    assert all(source.lag_offsets is None or source.lag_offsets >= 0 for source in event.sources)


RECORDED = st.deferred(lambda: st.sampled_from(recorded()))
CUTS = st.tuples(st.integers(0, 5000), st.integers(0, 40), st.binary(max_size=12))


@pytest.mark.fault(
    "Events",
    "Recorded events of each kind, with bytes changed, or a value of another type",
    "They are decoded, or rejected and counted",
)
@given(RECORDED, st.lists(CUTS, max_size=3), st.sampled_from(list(EventKind)), st.booleans())
def test_garbled_event_of_each_kind_is_decoded_or_rejected(event, cuts, other, swapped):
    kind, text = event
    data = text.encode()
    for place, length, inserted in cuts:
        begin = place % (len(data) + 1)
        data = data[:begin] + inserted + data[begin + length :]

    assert_decoded_or_rejected(other if swapped else kind, data)


@given(RECORDED, st.data())
def test_event_with_a_value_of_another_type_is_decoded_or_rejected(event, data):
    kind, text = event
    fields = json.loads(text)
    changed = fields.get("progress", fields)
    changed[data.draw(st.sampled_from(sorted(changed)))] = data.draw(json_values)

    assert_decoded_or_rejected(kind, json.dumps(fields))


def assert_decoded_or_rejected(kind, text):
    try:
        event = decode(kind, text)
    except DecodeError:
        return

    assert isinstance(event, KINDS[kind])
    assert isinstance(event.query_id, str)
