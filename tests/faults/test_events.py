"""Events of any size cost bounded memory and text."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from support.story import Story

from querypulse.listener.events import EventKind, decode

FRAME = "secret=hunter2 at line 1\n\tat a.b.C(D.java:1)\n"
ERROR = "org.apache.spark.SparkException: " + FRAME * (10_000_000 // len(FRAME))
COPIES = 4


@pytest.mark.fault(
    "Events",
    "An exception of 10 MB",
    "It is kept as a short text; memory is bounded and freed",
)
def test_exception_of_ten_megabytes_is_kept_as_a_short_text():
    """A search that does not scale with its length would not end within the limit of a test."""
    event = json.dumps({"id": "id-a", "runId": "a-1", "exception": ERROR})
    story = Story().started("a", at=0)
    story.state.apply_event(decode(EventKind.TERMINATED, event), 1.0)
    kept = str(story.state.snapshot(2.0).queries)
    tracemalloc.start()
    try:
        story.state.apply_event(decode(EventKind.TERMINATED, event), 2.0)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < COPIES * len(event)
    assert after < 100_000
    assert len(kept) < 20_000
    assert "hunter2" not in kept
