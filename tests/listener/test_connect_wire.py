"""Spark Connect's messages as events, triggers and runs."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from querypulse.listener.connect.client import (
    MAX_RUNS,
    SeenBatches,
    milliseconds_of,
    received_events,
    started_run,
    trigger_text,
)
from querypulse.listener.events import EventKind, Started, decode
from querypulse.listener.probe import parse_trigger


class WriteStart(SimpleNamespace):
    """As ``WriteStreamOperationStart``."""

    def WhichOneof(self, name):
        kinds = ("processing_time_interval", "available_now", "once")
        kinds += ("continuous_checkpoint_interval", "real_time_batch_duration", "later_kind")
        return next((kind for kind in kinds if hasattr(self, kind)), None)

    def HasField(self, name):
        return hasattr(self, name)


def event(kind, text="{}"):
    return SimpleNamespace(event_type=kind, event_json=text)


def progress(run, batch):
    return json.dumps({"progress": {"id": "q", "runId": run, "batchId": batch}})


def test_trigger_is_written_as_spark_prints_it():
    starts = [
        (WriteStart(), "ProcessingTime"),
        (WriteStart(processing_time_interval="1 second"), "ProcessingTime(1 s)"),
        (
            WriteStart(processing_time_interval="INTERVAL 1 minute 30 seconds"),
            "ProcessingTime(90 s)",
        ),
        (WriteStart(available_now=True), "AvailableNow"),
        (WriteStart(once=True), "Once"),
        (WriteStart(continuous_checkpoint_interval="500 milliseconds"), "Continuous(0.5 s)"),
        (WriteStart(real_time_batch_duration="5 minutes"), "RealTime(300 s)"),
    ]

    assert [(start, str(parse_trigger(trigger_text(start)))) for start, _ in starts] == starts


@pytest.mark.parametrize(
    "start", [WriteStart(processing_time_interval="1 month"), WriteStart(later_kind="1 second")]
)
def test_trigger_that_is_not_understood_is_unknown(start):
    assert trigger_text(start) == ""


def test_interval_in_milliseconds():
    intervals = {
        "10 seconds": 10_000,
        "10SECONDS": 10_000,
        "2 hours 1 minute": 7_260_000,
        "1 day": 86_400_000,
        "": None,
        "1": None,
        "1 second or so": None,
        "1.5 seconds": None,
    }

    assert {text: milliseconds_of(text) for text in intervals} == intervals


def test_each_known_kind_of_event_is_received():
    message = SimpleNamespace(events=[event(1), event(2), event(3), event(0), event(99)])

    received = received_events(message, 5.0, "s")

    kinds = [EventKind.PROGRESS, EventKind.TERMINATED, EventKind.IDLE]
    assert [one.kind for one in received] == kinds
    assert {(one.at, one.session) for one in received} == {(5.0, "s")}


@pytest.mark.parametrize("has_event", [True, False])
def test_start_of_a_run_is_an_event_and_facts(has_event):
    start = WriteStart(available_now=True, format="delta", options={"checkpointLocation": "/c"})
    text = json.dumps({"id": "q", "runId": "r", "name": "bronze", "timestamp": None})
    answer = SimpleNamespace(
        query_id=SimpleNamespace(id="q", run_id="r"),
        name="bronze",
        query_started_event_json=text if has_event else "",
    )

    facts, event = started_run(start, answer, 1.0, "session")

    assert decode(event.kind, event.payload) == Started("q", "r", "bronze")
    assert event.trigger == "AvailableNowTrigger"
    assert (facts.sink, facts.checkpoint, facts.session) == ("delta", "/c", "session")
    assert facts.trigger.ends_by_itself


def test_batch_is_passed_on_once():
    seen = SeenBatches()
    batches = [("r", 0), ("r", 0), ("r", 1), ("r", 0), ("other", 0)]

    assert [seen.is_new(progress(*one)) for one in batches] == [True, False, True, False, True]


def test_text_that_is_no_batch_is_left_to_the_decoder():
    assert SeenBatches().is_new("nonsense")


def test_memory_of_batches_is_bounded():
    seen = SeenBatches()
    for number in range(MAX_RUNS + 100):
        seen.is_new(progress(f"run-{number}", 1))

    assert len(seen._newest) == MAX_RUNS
    assert not seen.is_new(progress(f"run-{MAX_RUNS}", 1))
