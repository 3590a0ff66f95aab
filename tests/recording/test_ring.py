"""The ring of recent events: what it keeps of a long one, and of many."""

import msgspec
import pytest

from querypulse.recording.ring import LONGEST_EVENT, Ring, shortened


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
