"""A detail that Spark refuses or returns in an unknown form loses only that detail."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from querypulse.listener.probe import RunFacts, parse_trigger
from querypulse.listener.spark.execution import LivingRun, RunStatus, SparkExecution
from querypulse.listener.spark.jvm import OptionalCalls

STATUS = '{"message":"Waiting for data to arrive","isDataAvailable":false,"isTriggerActive":false}'
MICRO_BATCH = RunFacts("id", "run", None, parse_trigger("ProcessingTimeTrigger(0)"), "", "")
CONTINUOUS = RunFacts("id", "run", None, parse_trigger("ContinuousTrigger(1000)"), "", "")


class Text:
    """A Java object with a constant text."""

    def __init__(self, text):
        self.text = text

    def toString(self):
        return self.text

    def getSimpleName(self):
        return self.text

    def json(self):
        return self.text


class ExecutionContext:
    """The execution context of the batch in flight."""

    def batchId(self):
        return 7


class Session:
    """The session that started the query."""

    def sessionUUID(self):
        return "session"


class FakeExecution:
    """A StreamExecution that answers or refuses every call."""

    def __init__(
        self, *, progress=None, refuse=None, called="MicroBatchExecution", active=True, works=False
    ):
        self.progress = progress
        self.active = active
        self.works = works
        self.refuse = refuse
        self.called = called

    def sparkSession(self):
        return self._answer(Session())

    def runId(self):
        return Text("run")

    def name(self):
        return None

    def isActive(self):
        return self.active

    def exception(self):
        return SimpleNamespace(isDefined=lambda: False)

    def queryExecutionThread(self):
        return SimpleNamespace(isAlive=lambda: self.works)

    def status(self):
        return Text(STATUS)

    def getLatestExecutionContext(self):
        return self._answer(ExecutionContext())

    def committedOffsets(self):
        return self._answer(Text("{source: 5}"))

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


WAITING = RunStatus("Waiting for data to arrive", False, False)


def execution(java):
    details = OptionalCalls()
    return SparkExecution(java, None, details, has_context=True), details


def test_living_run_is_read_from_its_execution():
    one, details = execution(FakeExecution(progress="{}"))

    assert one.living_run(MICRO_BATCH, None) == LivingRun(
        "run", True, WAITING, 7, None, "{source: 5}", "{}"
    )
    assert details.missing == set()


def test_continuous_run_has_no_batch_id():
    one, _ = execution(FakeExecution())

    assert one.living_run(CONTINUOUS, None).batch_id is None


def test_ended_run_has_no_living_run():
    one, _ = execution(FakeExecution(active=False))

    assert one.living_run(MICRO_BATCH, 3) is None


def test_stopped_run_whose_thread_works_lives():
    one, _ = execution(FakeExecution(active=False, works=True))

    assert one.living_run(MICRO_BATCH, 3).stopping


def test_execution_class_shows_async_progress_tracking():
    classes = {
        "AsyncProgressTrackingMicroBatchExecution": True,
        "MicroBatchExecution": False,
        "ContinuousExecution": False,
    }
    seen = {
        called: execution(FakeExecution(called=called))[0].facts("id", "run").async_progress
        for called in classes
    }

    assert seen == classes


def test_log_interval_of_async_progress_is_in_seconds():
    one, _ = execution(FakeExecution(called="AsyncProgressTrackingMicroBatchExecution"))
    plain, _ = execution(FakeExecution())

    assert one.facts("id", "run").log_interval_seconds == 12
    assert plain.facts("id", "run").log_interval_seconds == 0


def test_refused_details_are_named_and_the_rest_is_read():
    one, details = execution(FakeExecution(refuse=Py4JError("Method does not exist")))

    facts = one.facts("id", "run")
    assert (facts.run_id, facts.trigger.kind, facts.async_progress) == ("run", "Unknown", False)
    assert one.living_run(MICRO_BATCH, 3) == LivingRun("run", True, WAITING, 3)
    assert details.missing == {
        *("trigger", "sink", "checkpoint", "async_progress", "session_id"),
        *("batch_id", "offsets", "idle_progress", "plan"),
    }


def test_lost_jvm_is_not_a_missing_detail():
    one, details = execution(
        FakeExecution(refuse=Py4JNetworkError("Answer from Java side is empty"))
    )

    with pytest.raises(Py4JNetworkError):
        one.living_run(MICRO_BATCH, None)
    assert details.missing == set()
