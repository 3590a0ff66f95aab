"""A recording that is thinned out keeps its beginning, its end, and what became of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.patience import WALL
from support.recorded import final_states

from querypulse.recording.lines import (
    AlertChanged,
    Begin,
    Change,
    End,
    Event,
    How,
    Notification,
    SeenFrom,
    State,
    Thinned,
    decode,
    encode,
    patch_between,
    patched,
)
from querypulse.recording.thinning import Lines, thinned

BEGIN = Begin(at=WALL, version=1, id="i", app="etl", query="a", seen_from=SeenFrom.DRIVER)
names = st.sampled_from(["a", "b", "$", "$removed", "$$removed", ""])
values = st.recursive(
    st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(names, values, max_size=4)


@given(objects, objects)
def test_patch_leads_from_one_object_to_the_other(before, after):
    assert patched(before, patch_between(before, after)) == after


@given(objects)
def test_patch_between_the_same_is_empty(value):
    assert patch_between(value, value) == {}


def state(number, driver, queries):
    return State(at=WALL + number, now=float(number), driver=driver, queries=queries)


@given(st.lists(st.tuples(objects, st.dictionaries(names, objects, max_size=3)), max_size=20))
def test_thinning_keeps_the_final_state(states):
    driver = {}
    queries = {}
    lines = []
    for number, (next_driver, next_queries) in enumerate(states):
        patches = patch_between(driver, next_driver), patch_between(queries, next_queries)
        lines.append(state(number, *patches))
        driver, queries = next_driver, next_queries

    recording = decode(thinned(encode([BEGIN, *lines]), 400), "")

    assert final_states(recording) == (driver, queries)


def alert(number, change):
    return AlertChanged(
        at=WALL + number,
        change=change,
        incident="k",
        alertname="Failed",
        query="a",
        severity="critical",
        code="failed",
        starts_at=WALL,
    )


def long_recording(count=2000):
    lines = [alert(0, Change.OPENED)]
    for number in range(count):
        lines.append(
            state(number, {"number": number, "text": f"{number} " * 20}, {"a": {"n": number}})
        )
        lines.append(Event(at=WALL + number, query="a", event="progress", data={"n": "y" * 100}))
        if number == count // 2:
            lines.append(alert(number, Change.ENDED))
            lines.append(alert(number, Change.OPENED))
    lines.append(alert(count, Change.ENDED))
    lines.append(End(at=WALL + count, how=How.RESOLVED))
    return [BEGIN, *lines]


@pytest.mark.parametrize("most_bytes", [20_000, 100_000, 400_000])
def test_thinned_recording_is_within_its_bound_and_keeps_openings_and_ends(most_bytes):
    lines = long_recording()
    content = thinned(encode(lines), most_bytes)

    recording = decode(content, "")
    changes = [line.change for line in recording.lines if isinstance(line, AlertChanged)]
    assert len(content) <= most_bytes
    assert changes == [Change.OPENED, Change.ENDED, Change.OPENED, Change.ENDED]
    assert recording.lines[-1] == lines[-1]


def test_beginning_and_end_stay_as_they_are():
    lines = long_recording()
    recording = decode(thinned(encode(lines), 100_000), "")

    assert list(recording.lines[:20]) == lines[1:21]
    assert list(recording.lines[-20:]) == lines[-20:]


def test_one_line_says_how_many_were_left_out_also_after_thinning_again():
    lines = long_recording()
    once = thinned(encode(lines), 200_000)
    twice = decode(thinned(once, 100_000), "")

    (gap,) = [line for line in twice.lines if isinstance(line, Thinned)]
    assert gap.lines == len(lines) - 1 - (len(twice.lines) - 1)
    assert WALL < gap.at < gap.until < WALL + 2000


def test_recording_within_its_bound_is_not_changed():
    lines = Lines(BEGIN)
    lines.add(alert(0, Change.OPENED))

    lines.take(10_000)
    assert lines.take(10_000) is None
    assert lines.whole == encode([BEGIN, alert(0, Change.OPENED)])


def test_what_was_added_is_taken_once_and_an_alert_is_urgent():
    lines = Lines(BEGIN)
    lines.take(10_000)

    lines.add(state(1, {"a": 1}, {}))
    assert lines.take(10_000) == (encode([state(1, {"a": 1}, {})]), False)
    lines.add(alert(2, Change.OPENED))
    assert lines.take(10_000) == (encode([alert(2, Change.OPENED)]), True)


def test_after_thinning_nothing_was_added_and_all_is_new():
    lines = Lines(BEGIN)
    lines.take(1000)
    for number in range(100):
        lines.add(state(number, {"n": number}, {}))

    assert lines.take(1000) == (b"", False)
    assert len(lines.whole) <= 1000


def test_recording_that_cannot_be_shorter_is_not_thinned_out_at_each_line():
    lines = Lines(replace(BEGIN, labels={"team": "x" * 2000}))
    lines.take(1000)
    taken = []
    for number in range(50):
        lines.add(state(number, {"n": number}, {}))
        taken.append(lines.take(1000))

    rewritten = [entry for entry in taken if entry[0] == b""]
    assert 1 <= len(rewritten) <= 5
    assert len(lines.whole) < 4000


def test_attempts_to_notify_go_only_where_nothing_else_can():
    attempt = Notification(
        at=WALL, incident="k", receiver="r", status="firing", outcome="transient", error="e" * 100
    )
    few = thinned(encode([*long_recording(), attempt]), 100_000)
    many = thinned(encode([BEGIN, *[attempt] * 5000]), 100_000)

    assert decode(few, "").lines[-1] == attempt
    assert len(many) <= 100_000
