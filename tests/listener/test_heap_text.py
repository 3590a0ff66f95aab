"""The heap in the answer of ``DriverHeap.java``: what is unreadable hides no run."""

from __future__ import annotations

import pytest

from querypulse.listener.foresight.resources import Heap
from querypulse.listener.spark.execution import parse_living_runs
from querypulse.listener.spark.jvm import FIELD, RECORD


def heap_of(*fields):
    living = parse_living_runs(RECORD.join(["true", FIELD.join(fields)]), 0.0)
    assert living.stopped
    return living.heap


def test_heap_is_read():
    assert heap_of("500", "300", "1000", "1500", "7") == Heap(500, 300, 1000, 1.5, 7)


def test_nothing_is_left_before_the_first_collection():
    heap = heap_of("500", "", "1000", "0", "0")

    assert heap is not None
    assert heap.after_gc_bytes is None


@pytest.mark.parametrize(
    "fields",
    [
        ("",),
        ("500",),
        ("500", "300", "1000", "1500"),
        ("500", "300", "1000", "1500", "7", "8"),
        ("500", "300", "", "1500", "7"),
        ("500", "300", "0", "1500", "7"),
        ("500", "300", "-1", "1500", "7"),
        ("NaN", "300", "1000", "1500", "7"),
        ("500", "3e2", "1000", "1500", "7"),
        ("java.lang.OutOfMemoryError: Java heap space",),
        ("9" * 5000, "300", "1000", "1500", "7"),
    ],
)
def test_what_is_not_due_or_unreadable_is_unknown(fields):
    assert heap_of(*fields) is None
