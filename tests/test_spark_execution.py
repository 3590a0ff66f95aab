"""What a Spark does not tell, or tells in a way nobody understands, costs that detail only."""

from __future__ import annotations

import json

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from support.recorded import recorded

from querypulse.listener.details import Details
from querypulse.listener.spark_execution import SparkExecution

COMMITTED = json.loads(recorded("progress", "json")[0][1])["progress"]
WITHOUT_BATCH = {**COMMITTED, "durationMs": {"latestOffset": 2, "triggerExecution": 2}}


class Text:
    """A Java object that says one thing."""

    def __init__(self, text):
        self.text = text

    def toString(self):
        return self.text

    def getSimpleName(self):
        return self.text

    def json(self):
        return self.text


class Java:
    """A StreamExecution that answers, or refuses, everything alike."""

    def __init__(self, *, progress=None, refuse=None, called="MicroBatchExecution"):
        self.progress = progress
        self.refuse = refuse
        self.called = called

    def runId(self):
        return Text("run")

    def name(self):
        return None

    def lastProgress(self):
        return self._answer(None if self.progress is None else Text(self.progress))

    def getClass(self):
        return self._answer(Text(self.called))

    def asyncProgressTrackingCheckpointingIntervalMs(self):
        return self._answer(12_000)

    def trigger(self):
        return self._answer(Text("ProcessingTimeTrigger(0)"))

    def sink(self):
        return self._answer(Text("NoopTable"))

    def resolvedCheckpointRoot(self):
        return self._answer("file:/cp")

    def _answer(self, answer):
        if self.refuse is not None:
            raise self.refuse
        return answer


def execution(java):
    details = Details()
    return SparkExecution(java, None, 4, details), details


def test_a_trigger_without_a_batch_is_told():
    one, _ = execution(Java(progress=json.dumps(WITHOUT_BATCH)))

    found = one.idle_progress()
    assert (found.batch_id, found.committed) == (WITHOUT_BATCH["batchId"], False)


@pytest.mark.parametrize(
    "text",
    [None, "", json.dumps(COMMITTED), "{}", "null", "not JSON", '{"id":1}', "{}}{"],
)
def test_what_is_no_trigger_without_a_batch_proves_nothing(text):
    one, details = execution(Java(progress=text))

    assert one.idle_progress() is None
    assert details.missing == set()


@pytest.mark.parametrize(
    ("called", "is_async"),
    [
        ("AsyncProgressTrackingMicroBatchExecution", True),
        ("MicroBatchExecution", False),
        ("ContinuousExecution", False),
    ],
)
def test_async_progress_tracking_is_told_by_what_runs_the_query(called, is_async):
    one, _ = execution(Java(called=called))

    assert one.facts("id").async_progress is is_async


def test_how_rarely_an_async_log_is_written_is_told_in_seconds():
    one, _ = execution(Java(called="AsyncProgressTrackingMicroBatchExecution"))
    plain, _ = execution(Java())

    assert one.facts("id").log_interval_seconds == 12
    assert plain.facts("id").log_interval_seconds == 0


def test_what_a_spark_refuses_is_named_and_the_rest_still_known():
    one, details = execution(Java(refuse=Py4JError("Method does not exist")))

    facts = one.facts("id")
    assert (facts.run_id, facts.trigger.kind, facts.async_progress) == ("run", "Unknown", False)
    assert one.idle_progress() is None
    assert details.missing == {"trigger", "sink", "checkpoint", "async_progress", "idle_progress"}


def test_a_jvm_that_is_gone_is_no_missing_detail():
    one, details = execution(Java(refuse=Py4JNetworkError("Answer from Java side is empty")))

    with pytest.raises(Py4JNetworkError):
        one.idle_progress()
    assert details.missing == set()
