"""The findings of a waiting run's newest trigger are kept only while they are current."""

from __future__ import annotations

import json

import pytest
from support.story import processing, run

from querypulse.listener.probe import IdleProgress

DURATIONS = {"addBatch": 1, "latestOffset": 2, "triggerExecution": 3}
COMMITTED = {"id": "q", "runId": "r", "batchId": 7, "numInputRows": 1, "durationMs": DURATIONS}
NOTHING_FOUND = {**COMMITTED, "durationMs": {"latestOffset": 2, "triggerExecution": 2}}
TEXT = json.dumps(NOTHING_FOUND)


@pytest.mark.parametrize("message", ["Waiting for data to arrive", "Waiting for next trigger"])
def test_last_trigger_of_a_waiting_run_is_reported(message):
    progress = IdleProgress().poll(run(batch=3, message=message), TEXT)

    assert (progress.batch_id, progress.committed) == (NOTHING_FOUND["batchId"], False)


def test_run_that_does_not_wait_reports_no_trigger():
    runs = [
        processing(batch=3),
        run(batch=3, busy=True),
        run(batch=3, message="Getting offsets from FileStreamSource[file:/in]", busy=True),
        run(batch=3, message="Initializing sources"),
        run(message="Running", trigger="ContinuousTrigger(1000)"),
        run(message="Committing epoch 5", trigger="ContinuousTrigger(1000)"),
        run(batch=3, message="Stopped"),
    ]

    assert [seen for seen in runs if IdleProgress().poll(seen, TEXT) is not None] == []


def test_findings_stay_until_a_new_trigger_is_reported():
    idle = IdleProgress()
    first = idle.poll(run(batch=3), TEXT)

    assert [idle.poll(run(batch=3), text) for text in ("", TEXT, "")] == [first] * 3
    newer = json.dumps({**NOTHING_FOUND, "numInputRows": 7})
    assert idle.poll(run(batch=3), newer).input_rows == 7


def test_brief_poll_for_data_forgets_nothing():
    idle = IdleProgress()
    first = idle.poll(run(batch=3), TEXT)

    assert idle.poll(run(batch=3, message="Getting offsets from X", busy=True), "") is None
    assert idle.poll(run(batch=3), "") is first


def test_trigger_reported_while_busy_is_known_when_the_run_waits():
    idle = IdleProgress()

    assert idle.poll(run(batch=3, busy=True), TEXT) is None
    assert idle.poll(run(batch=3), "") is not None


def test_batch_discards_earlier_findings():
    idle = IdleProgress()
    idle.poll(run(batch=3), TEXT)
    idle.poll(processing(batch=3), "")

    assert idle.poll(run(batch=4), "") is None


def test_other_progress_proves_nothing():
    texts = ["", json.dumps(COMMITTED), "{}", "null", "not JSON", '{"id":1}', "{}}{"]

    assert {IdleProgress().poll(run(batch=3), text) for text in texts} == {None}
