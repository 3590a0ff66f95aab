"""Spark's JSON is decoded into records, whatever its shape; other text is rejected."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.recorded import recorded

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

    assert event.batch_seconds is None
    assert event.output_rows is None
    assert event.input_rows_per_second is None
    assert event.watermark_timestamp is None
    assert event.state_rows is None
    assert event.sources == ()
    assert not event.committed


@pytest.mark.parametrize("rate", ["NaN", "Infinity", "-Infinity", None, "fast"])
def test_rate_that_is_not_a_number_is_none(rate):
    assert progress(inputRowsPerSecond=rate).input_rows_per_second is None


def test_minus_one_output_rows_of_a_v1_sink_are_unknown():
    assert progress(sink={"numOutputRows": -1}).output_rows is None


@pytest.mark.fault("Events", "Fields of a Spark that does not exist yet", "They are ignored")
def test_unknown_fields_are_ignored():
    assert progress(fromTheFuture={"a": [1]}).batch_id == 7


def test_idle_progress_of_spark_3_4_is_not_a_commit():
    assert not progress(durationMs={"latestOffset": 1, "triggerExecution": 1}).committed
    assert progress(durationMs={"addBatch": 1, "triggerExecution": 3}).committed


def test_first_watermark_is_zero_not_a_date_in_1970():
    assert progress(eventTime={"watermark": "1970-01-01T00:00:00.000Z"}).watermark_timestamp == 0
    assert (
        progress(eventTime={"watermark": "2026-01-01T00:00:00.500Z"}).watermark_timestamp
        == 1767225600.5
    )


def test_lag_is_known_only_if_both_offsets_are_known():
    cases = [
        ({"t": {"0": 5, "1": 7}}, {"t": {"0": 6, "1": 9}}, 3),
        ('{"t":{"0":5}}', '{"t":{"0":9}}', 4),
        (10, 14, 4),
        ("10", "14", 4),
        ({"t": {"0": 9}}, {"t": {"0": 5}}, 0),
        ({"t": {"0": 9}}, {"t": {"0": 9, "1": 100}}, 0),
        ({"t": {"0": 9}}, {"u": {"0": 10}}, None),
        (None, 14, None),
        (10, None, None),
        ({"logOffset": 3}, None, None),
        ("opaque", "other", None),
        (True, False, None),
    ]
    sources = [
        {"description": "s", "endOffset": end, "latestOffset": latest} for end, latest, _ in cases
    ]
    lags = [source.lag_offsets for source in progress(sources=sources).sources]

    assert lags == [lag for _, _, lag in cases]


@pytest.mark.parametrize("kind", list(EventKind))
def test_text_that_is_no_event_is_rejected(kind):
    for text in ("", "{", "[]", "null", '{"progress": {}}', "{}", "\ud800", '{"id":1}'):
        with pytest.raises(DecodeError):
            decode(kind, text)


DEEP = "[" * 100_000
TOO_LARGE = "9" * 400


@pytest.mark.parametrize("kind", list(EventKind))
def test_text_that_is_nested_too_deeply_is_rejected(kind):
    for text in (DEEP, f'{{"id": "q", "runId": "r", "x": {DEEP}', f'{{"progress": {{"x": {DEEP}'):
        with pytest.raises(DecodeError):
            decode(kind, text)


@pytest.mark.parametrize(
    "fields",
    [
        '"batchId": N',
        '"batchId": 1, "numInputRows": N',
        '"batchId": 1, "batchDuration": -N',
        '"batchId": 1, "durationMs": {"addBatch": N}',
        '"batchId": 1, "stateOperators": [{"numRowsTotal": N}]',
        '"batchId": 1, "sink": {"numOutputRows": N}',
        '"batchId": 1, "sources": [{"numInputRows": N}]',
    ],
)
def test_number_that_no_long_can_hold_is_rejected(fields):
    for number in (TOO_LARGE, str(2**63 + 1)):
        text = fields.replace("N", number)
        with pytest.raises(DecodeError):
            decode(EventKind.PROGRESS, f'{{"progress": {{"id": "q", "runId": "r", {text}}}}}')


@pytest.mark.parametrize("offset", [TOO_LARGE, str(2**63), f"-{2**63 + 1}", "1e300"])
def test_offset_that_no_long_can_hold_is_only_text(offset):
    for text in (offset, f'{{"t": {{"0": {offset}}}}}', f'{{"logOffset": {offset}}}'):
        assert isinstance(parse_offsets(text), str)


def test_offset_that_is_nested_too_deeply_is_only_text():
    assert parse_offsets(DEEP) == DEEP


def test_largest_offsets_are_numbers():
    assert parse_offsets(str(2**63 - 1)) == {WHOLE: 2**63 - 1}
    assert parse_offsets(str(-(2**63))) == {WHOLE: -(2**63)}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = ["name", "batchDuration", "durationMs", "eventTime", "stateOperators", "sources", "sink",
          "numInputRows", "inputRowsPerSecond", "batchId"]  # fmt: skip


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
@given(
    RECORDED,
    st.lists(CUTS, max_size=3),
    st.sampled_from(list(EventKind)),
    st.booleans(),
)
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
