"""Events of any size cost bounded memory and text."""

from __future__ import annotations

import json
import time
import tracemalloc

import pytest
from support.story import Story

from querypulse.listener.events import EventKind, decode

MEGABYTES_10 = 10_000_000
AT_MOST_SECONDS = 5.0
COPIES = 4
ERROR = "org.apache.spark.SparkException: " + "secret=hunter2 at line 1\n\tat a.b.C(D.java:1)\n" * (
    MEGABYTES_10 // 45
)


@pytest.mark.fault(
    "Events",
    "An exception of 10 MB",
    "It is read within seconds and kept as a short text; memory is bounded and freed",
)
def test_exception_of_ten_megabytes_is_kept_as_a_short_text(measured):
    event = json.dumps({"id": "id-a", "runId": "a-1", "exception": ERROR})
    story = Story().started("a", at=0)
    began = time.monotonic()
    story.state.apply_event(decode(EventKind.TERMINATED, event), 1.0)
    seconds = time.monotonic() - began
    kept = str(story.state.snapshot(2.0).queries)
    peak, after = memory_of(
        lambda: story.state.apply_event(decode(EventKind.TERMINATED, event), 2.0)
    )

    measured(
        f"{len(event) / 1e6:.0f} MB in {seconds:.2f} s, {peak / 1e6:.0f} MB more memory meanwhile, "
        f"{len(kept)} characters kept"
    )
    assert seconds < AT_MOST_SECONDS
    assert peak < COPIES * len(event)
    assert after < 100_000
    assert len(kept) < 20_000
    assert "hunter2" not in kept


def memory_of(action):
    """Bytes that Python has allocated: at most during ``action``, and after it."""
    tracemalloc.start()
    try:
        action()
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak, after
