"""The findings of a waiting run's newest trigger are kept only while they are current."""

from __future__ import annotations

import json

import pytest
from support.story import processing, run

from querypulse.listener.probe import with_idle_progress

DURATIONS = {"addBatch": 1, "latestOffset": 2, "triggerExecution": 3}
COMMITTED = {"id": "q", "runId": "r", "batchId": 7, "numInputRows": 1, "durationMs": DURATIONS}
NOTHING_FOUND = {**COMMITTED, "durationMs": {"latestOffset": 2, "triggerExecution": 2}}
TEXT = json.dumps(NOTHING_FOUND)
WAITS, OFFSETS = run(batch=3), run(batch=3, message="Getting offsets from X", busy=True)


@pytest.mark.parametrize(
    ("polls", "rows"),
    [
        ([(WAITS, TEXT)], 1),
        ([(run(batch=3, message="Waiting for next trigger"), TEXT)], 1),
        ([(WAITS, TEXT), (WAITS, ""), (WAITS, TEXT)], 1),
        ([(WAITS, TEXT), (WAITS, json.dumps({**NOTHING_FOUND, "numInputRows": 7}))], 7),
        ([(WAITS, TEXT), (OFFSETS, ""), (WAITS, "")], 1),
        ([(OFFSETS, TEXT), (WAITS, "")], 1),
        ([(WAITS, TEXT), (processing(batch=3), ""), (run(batch=4), "")], None),
        ([(WAITS, TEXT), (WAITS, json.dumps(COMMITTED))], None),
        *[([(WAITS, text)], None) for text in ("", "{}", "null", "not JSON", '{"id":1}', "{}}{")],
    ],
)
def test_newest_trigger_without_a_batch_is_known_until_a_batch(polls, rows):
    before = run(batch=3)
    for seen, text in polls:
        before = with_idle_progress(seen, text, before)
    progress = before.idle_progress

    assert (progress and progress.input_rows) == rows
    assert progress is None or not progress.committed


def test_only_a_waiting_run_waits():
    runs = [
        processing(batch=3),
        run(batch=3, busy=True),
        OFFSETS,
        run(batch=3, message="Initializing sources"),
        run(message="Running", trigger="ContinuousTrigger(1000)"),
        run(message="Committing epoch 5", trigger="ContinuousTrigger(1000)"),
        run(batch=3, message="Stopped"),
    ]

    assert WAITS.waiting
    assert [seen for seen in runs if seen.waiting] == []
