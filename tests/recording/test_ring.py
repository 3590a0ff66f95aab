"""The newest events of Spark, within a bound."""

from __future__ import annotations

import msgspec
import pytest

from querypulse.recording.ring import (
    ENTRY_BYTES,
    KEPT_SHARE,
    LONGEST_EVENT,
    QUERY_BYTES,
    Ring,
    shortened,
)

TEXT = "x" * 1000
SIZE = len(TEXT) + ENTRY_BYTES


def held(ring, *query_ids):
    return [(event.query_id, event.number) for event in ring.since(0, frozenset(query_ids))]


def test_events_come_in_order_of_arrival_and_only_of_the_queries_asked_for():
    ring = Ring()
    for query in "abcab":
        ring.add(query, "progress", "{}", 1.0)

    assert held(ring, "a", "b") == [("a", 1), ("b", 2), ("a", 4), ("b", 5)]
    assert [event.number for event in ring.since(2, frozenset("ab"))] == [4, 5]
    assert ring.newest == 5


def test_unknown_query_and_empty_ring_have_no_events():
    assert held(Ring(), "a") == []


def test_million_events_stay_within_the_bound():
    most = 100 * (SIZE + QUERY_BYTES)
    ring = Ring(most)
    for number in range(1_000_000):
        ring.add(f"q{number % 200}", "progress", TEXT, float(number))

    events = ring.since(0, frozenset(f"q{number}" for number in range(200)))
    assert ring._used == len(events) * SIZE + len(ring._queries) * QUERY_BYTES
    assert KEPT_SHARE * most - SIZE - QUERY_BYTES <= ring._used <= most
    assert events[-1].number == 1_000_000


def test_query_with_many_events_takes_away_none_of_another_with_few():
    ring = Ring(100 * SIZE)
    for at in range(5):
        ring.add("quiet", "progress", TEXT, float(at))
    for at in range(10_000):
        ring.add("loud", "progress", TEXT, float(at))

    assert [number for _, number in held(ring, "quiet")] == [1, 2, 3, 4, 5]


def test_of_queries_with_one_event_each_those_that_have_been_quiet_for_longest_lose_it():
    ring = Ring(100 * (SIZE + QUERY_BYTES))
    for number in range(101):
        ring.add(f"q{number}", "progress", TEXT, float(number))

    kept = held(ring, *(f"q{number}" for number in range(101)))
    assert [number for _, number in kept] == list(range(12, 102))


def test_queries_that_come_and_go_stay_within_the_bound():
    ring = Ring(10 * SIZE)
    for number in range(10_000):
        ring.add(f"id-{number}", "started", TEXT, float(number))

    assert len(ring._queries) <= 10
    assert ring._queries.keys() == ring._sizes.keys()


def test_text_beyond_ascii_counts_as_four_bytes_a_character():
    ring = Ring(10 * SIZE)
    for at in range(100):
        ring.add("a", "progress", "名" * 1000, float(at))

    assert len(held(ring, "a")) <= 3


def test_long_event_that_is_no_object_is_left_out_as_a_whole():
    ring = Ring()
    ring.add("a", "progress", "[" + "1," * LONGEST_EVENT + "1]", 1.0)

    (event,) = ring.since(0, frozenset("a"))
    assert (event.text, event.left_out) == ("{}", ("*",))


def kept(text):
    ring = Ring()
    ring.add("id-a", "progress", text, at=1.0)
    (received,) = ring.since(0, frozenset({"id-a"}))
    return msgspec.json.decode(received.text), received.left_out


@pytest.mark.parametrize("nested", [True, False])
def test_of_a_progress_of_5_mb_its_longest_members_are_left_out_and_the_others_stay(nested):
    progress = {"batchId": 7, "numInputRows": 5, "sources": ["x" * 5_000_000], "sink": "y" * 100}
    event = {"progress": progress} if nested else progress
    short = {name: value for name, value in progress.items() if name != "sources"}

    assert kept(msgspec.json.encode(event).decode()) == (
        {"progress": short} if nested else short,
        ("sources",),
    )


def test_event_of_usual_length_stays_as_it_is():
    event = {"progress": {"batchId": 7, "sources": ["x" * (LONGEST_EVENT - 100)]}}

    assert kept(msgspec.json.encode(event).decode()) == (event, ())


def test_shortened_event_names_all_that_it_left_out_the_longest_first():
    event = {"a": "x" * LONGEST_EVENT, "b": "y" * (LONGEST_EVENT + 1), "c": 1}

    assert shortened(msgspec.json.encode(event).decode()) == ('{"c":1}', ("b", "a"))
