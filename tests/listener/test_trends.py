"""Trends over many batches stay small and correct."""

from __future__ import annotations

import json
from math import inf

from hypothesis import given
from hypothesis import strategies as st
from support.story import progress, source

from querypulse.listener.offsets import WHOLE, behind, is_before, lag_between, parse_offsets
from querypulse.listener.state.trends import MAX_POINTS, Trends, carry_over, follow

ICEBERG = {"version": 1, "snapshot_id": 528590441509334017, "position": 1, "scan_all_files": False}
DELTA = {"sourceVersion": 1, "reservoirId": "r", "reservoirVersion": 12, "index": -1}


def test_offsets_of_a_known_shape_are_parsed_by_partition():
    offsets = [
        ({"t": {"0": 5, "1": 7}, "u": {"0": 1}}, {"t/0": 5, "t/1": 7, "u/0": 1}),
        ('{"t":{"0":5}}', {"t/0": 5}),
        (42, {WHOLE: 42}),
        ("42", {WHOLE: 42}),
        (42.0, {WHOLE: 42}),
        ({"logOffset": 3}, {WHOLE: 3}),
        ('{"offset": 3}', {WHOLE: 3}),
        (DELTA, {"r": (12, -100)}),
        (DELTA | {"index": -20}, {"r": (12, -20)}),
        (DELTA | {"index": 3}, {"r": (12, 3)}),
        ({"partition-1": 2, "partition-2": 3}, {"partition-1": 2, "partition-2": 3}),
        ({"0": 2, "1": 3}, {"0": 2, "1": 3}),
        (
            {"sourceVersion": 1, "seqNum": 4, "fetchEpoch": 2},
            '{"fetchEpoch":2,"seqNum":4,"sourceVersion":1}',
        ),
        ({"offset": 10, "timestamp": 1000}, '{"offset":10,"timestamp":1000}'),
        ({"a-0": 2, "b-0": 3}, '{"a-0":2,"b-0":3}'),
        ({"a-0": 2, "a": 3}, '{"a":3,"a-0":2}'),
        ({"a-0": 2, "a-1": "x"}, '{"a-0":2,"a-1":"x"}'),
        ({"version": 1, "index": 3}, '{"index":3,"version":1}'),
        (ICEBERG, {"528590441509334017": (1,)}),
        ({"snapshot_id": 7, "position": None}, '{"position":null,"snapshot_id":7}'),
        ("token-1", "token-1"),
        (True, "true"),
        ([1, 2], "[1,2]"),
        ({}, "{}"),
        ({"t": {}}, '{"t":{}}'),
        (None, None),
        ("null", None),
        ("None", None),
    ]

    assert [(wire, parse_offsets(wire)) for wire, _ in offsets] == offsets


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(JSON, JSON)
def test_offsets_of_any_shape_can_be_compared(value, other):
    first, second = parse_offsets(value), parse_offsets(other)

    assert not is_before(1, (2, 0))
    assert not is_before((1, 0), 2)
    assert parse_offsets(json.dumps(value)) == first or isinstance(value, str)
    assert behind(first, first) == ()
    assert not set(behind(first, second)) & set(behind(second, first))
    lag = lag_between(first, second)
    assert lag is None or lag >= 0


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=400))
def test_rise_keeps_few_points_and_knows_when_the_lag_last_fell(lags):
    trends = Trends()
    for at, lag in enumerate(lags):
        behind_by = progress(batch=at, sources=(source(0, lag),))
        trends = follow(trends, behind_by, at, {})

    falls = [at for at in range(1, len(lags)) if lags[at] < lags[at - 1]]
    rise = trends.rises["offsets"]
    assert len(rise) <= MAX_POINTS
    assert rise[-1].fell_at == max(falls, default=-inf)
    assert rise == tuple(sorted(rise, key=lambda point: point.lag))
    assert (rise[-1].at, rise[-1].lag) == (len(lags) - 1, lags[-1])
    assert [point.lag for point in rise] == [lags[int(point.at)] for point in rise]


def test_next_run_inherits_only_the_offsets():
    trends = Trends()
    for batch, end in enumerate((9, 3)):
        trends = follow(trends, progress(batch=batch, sources=(source(end, 50),)), batch, {})
    assert trends.sources[0].rewound
    trends = carry_over(trends, at=2.0, completed=None)

    (one,) = trends.sources
    assert (one.end, one.stuck, one.rewound, trends.rises) == ({WHOLE: 3}, {}, {}, {})


def test_source_with_a_new_description_is_another_source():
    trends = follow(Trends(), progress(batch=0, sources=(source(9),)), 0.0, {})
    other = progress(batch=1, sources=(source(3, description="Delta"),))

    assert follow(trends, other, 1.0, {}).sources[0].rewound == {}
