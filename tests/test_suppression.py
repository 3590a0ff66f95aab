"""Which alert suppresses which: the table of ``alerting/lifecycle/inhibition.py``, row by row."""

from __future__ import annotations

import pytest
from support.lifecycle_harness import LifecycleHarness
from support.story import run
from support.worker_harness import WorkerHarness

from querypulse.alerting.alert import Alert
from querypulse.alerting.lifecycle.active_alert import ActiveAlert
from querypulse.alerting.lifecycle.health import DriverHealth, RecoveryWindow
from querypulse.alerting.lifecycle.inhibition import suppressor

WAIT = 30.0


def course(name, query="a", severity="critical", **state):
    labels = {"app": "etl", "query": query, "alertname": name, "severity": severity}
    return ActiveAlert(Alert(labels, {}, 0.0), **state)


def silent_driver(**state):
    return course("StreamingQueryStalled", "*", **({"begun": True, "polls": 2} | state))


def suppressed_by(new, *others, silenced=()):
    harness = WorkerHarness().poll(run(), run("b")).step()
    evaluated = harness.worker.evaluated
    health = DriverHealth(evaluated.evaluation, evaluated.snapshot, harness.clock())
    by = suppressor(new, others, health, WAIT, lambda alert: alert.name in silenced)
    return None if by is None else (by.alert.name, by.query)


@pytest.mark.parametrize(
    ("new", "other"),
    [
        (course("StreamingQueryStopped"), silent_driver()),
        (course("StreamingBatchSlow", severity="warning"), silent_driver()),
        (course("QuerypulseMonitoringDegraded", "*", "warning"), silent_driver()),
        (course("StreamingQueryStalled"), silent_driver(found=False, recovery=RecoveryWindow(990.0, 0))),
        (course("StreamingBatchSlow", severity="warning"), course("StreamingQueryStalled", begun=True)),
        (course("StreamingQueryLagging", severity="warning"), course("StreamingQueryFailed", begun=True, found=False)),
        (course("StreamingInputMissing", severity="warning"),
         course("StreamingQueryLagging", severity="warning", begun=True, found=False)),
    ],
    ids=["of a query", "a warning", "of the signals", "a while after", "its own critical one",
         "its own that recovers", "missing input by a warning"],
)  # fmt: skip
def test_what_is_suppressed(new, other):
    assert suppressed_by(new, other) == (other.alert.name, other.query)


@pytest.mark.parametrize(
    ("new", "other"),
    [
        (course("StreamingQueryFailed"), silent_driver()),
        (course("StreamingQueryFailed"), course("StreamingQueryStopped", "*", begun=True, polls=9)),
        (course("StreamingDriverDown", "*"), silent_driver()),
        (course("StreamingQueryStalled"), silent_driver(polls=0)),
        (course("StreamingQueryStalled"), silent_driver(begun=False)),
        (course("StreamingQueryStalled"), silent_driver(found=False, recovery=RecoveryWindow(960.0, 0))),
        (course("StreamingQueryStalled"), course("QuerypulseMonitoringDegraded", "*", "warning", begun=True, polls=9)),
        (course("StreamingBatchSlow", severity="warning"), course("StreamingQueryStalled", "b", begun=True)),
        (course("StreamingDataLossRisk", severity="warning"), course("StreamingQueryStalled", begun=True)),
        (course("StreamingQueryStopped"), course("StreamingQueryStalled", begun=True)),
        (course("StreamingBatchSlow", severity="warning"), course("StreamingQueryLagging", severity="warning", begun=True)),
        (course("StreamingInputMissing", severity="warning"), course("StreamingQueryLagging", "b", "warning", begun=True)),
        (course("StreamingQueryLagging", severity="warning"), course("StreamingInputMissing", severity="warning", begun=True)),
    ],
    ids=["a failure", "a failure under its driver's end", "another of the driver", "inherited",
         "not begun", "long after", "a warning of the driver", "another query's",
         "data in danger", "a critical one", "a warning by a warning",
         "missing input by another query's", "anything by missing input"],
)  # fmt: skip
def test_what_is_not_suppressed(new, other):
    assert suppressed_by(new, other) is None


def test_what_is_silenced_suppresses_nothing():
    new = course("StreamingQueryStopped")

    assert suppressed_by(new, silent_driver()) == ("StreamingQueryStalled", "*")
    assert suppressed_by(new, silent_driver(), silenced={"StreamingQueryStalled"}) is None


def test_what_is_suppressed_is_listed_with_what_suppresses_it():
    harness = LifecycleHarness().condition("*", "StreamingQueryStalled").condition("a", "commits")
    for _ in range(3):
        harness.tick()
    harness.condition("a", "StreamingOffsetsStalled")
    for _ in range(3):
        harness.tick()
    (pair,) = harness.lifecycle.suppressed

    assert (pair.alert.name, pair.alert.labels["query"]) == ("StreamingOffsetsStalled", "a")
    assert (pair.by.name, pair.by.labels["query"]) == ("StreamingQueryStalled", "*")
