"""Which alert suppresses which: the table of ``alerting/inhibition.py``, row by row."""

from __future__ import annotations

import pytest
from support.lifecycle_harness import WALL, LifecycleHarness
from support.story import run
from support.worker_harness import WorkerHarness

from querypulse.alerting.active_alert import ActiveAlert
from querypulse.alerting.alert import Alert
from querypulse.alerting.inhibition import Inhibition
from querypulse.alerting.recovery import DriverHealth, RecoveryWindow
from querypulse.alerting.silences import Silence

WAIT = 30.0


def alert_of(name, query="a", severity="critical", **state):
    labels = {"app": "etl", "query": query, "alertname": name, "severity": severity}
    return ActiveAlert(Alert(labels, {}, 0.0), **state)


def silent_driver(**state):
    return alert_of("StreamingQueryStalled", "*", **({"begun": True, "polls": 2} | state))


def suppressed_by(new, *others, silenced=()):
    harness = WorkerHarness().poll(run(), run("b")).step()
    evaluated = harness.worker.evaluated
    health = DriverHealth(evaluated.evaluation, evaluated.snapshot, harness.clock())
    known = {one.alert.key: one for one in others}
    inhibition = Inhibition(known, health, WAIT, lambda other: other.alert.name in silenced)
    by = inhibition.suppressor(new)
    return None if by is None else (by.alert.name, by.query)


@pytest.mark.parametrize(
    ("new", "other"),
    [
        (alert_of("StreamingQueryStopped"), silent_driver()),
        (alert_of("StreamingBatchSlow", severity="warning"), silent_driver()),
        (alert_of("QuerypulseMonitoringDegraded", "*", "warning"), silent_driver()),
        (alert_of("StreamingQueryStalled"), silent_driver(found=False, recovery=RecoveryWindow(990.0, 0))),
        (alert_of("StreamingBatchSlow", severity="warning"), alert_of("StreamingQueryStalled", begun=True)),
        (alert_of("StreamingQueryLagging", severity="warning"), alert_of("StreamingQueryFailed", begun=True, found=False)),
        (alert_of("StreamingInputMissing", severity="warning"),
         alert_of("StreamingQueryLagging", severity="warning", begun=True, found=False)),
    ],
    ids=["of a query", "a warning", "of the signals", "shortly after", "its own critical alert",
         "its own recovering alert", "missing input by a warning"],
)  # fmt: skip
def test_consequence_is_suppressed(new, other):
    assert suppressed_by(new, other) == (other.alert.name, other.query)


@pytest.mark.parametrize(
    ("new", "other"),
    [
        (alert_of("StreamingQueryFailed"), silent_driver()),
        (alert_of("StreamingQueryFailed"), alert_of("StreamingQueryStopped", "*", begun=True, polls=9)),
        (alert_of("StreamingDriverDown", "*"), silent_driver()),
        (alert_of("StreamingQueryStalled"), silent_driver(polls=0)),
        (alert_of("StreamingQueryStalled"), silent_driver(begun=False)),
        (alert_of("StreamingQueryStalled"), silent_driver(found=False, recovery=RecoveryWindow(960.0, 0))),
        (alert_of("StreamingQueryStalled"), alert_of("QuerypulseMonitoringDegraded", "*", "warning", begun=True, polls=9)),
        (alert_of("StreamingBatchSlow", severity="warning"), alert_of("StreamingQueryStalled", "b", begun=True)),
        (alert_of("StreamingDataLossRisk", severity="warning"), alert_of("StreamingQueryStalled", begun=True)),
        (alert_of("StreamingQueryStopped"), alert_of("StreamingQueryStalled", begun=True)),
        (alert_of("StreamingBatchSlow", severity="warning"), alert_of("StreamingQueryLagging", severity="warning", begun=True)),
        (alert_of("StreamingInputMissing", severity="warning"), alert_of("StreamingQueryLagging", "b", "warning", begun=True)),
        (alert_of("StreamingQueryLagging", severity="warning"), alert_of("StreamingInputMissing", severity="warning", begun=True)),
    ],
    ids=["a failure", "a failure under a stopped driver", "another driver alert", "restored",
         "not firing", "long after", "a warning of the driver", "another query's",
         "data loss risk", "a critical alert", "a warning by a warning",
         "missing input by another query's", "a warning by missing input"],
)  # fmt: skip
def test_independent_alert_is_not_suppressed(new, other):
    assert suppressed_by(new, other) is None


def test_silenced_alert_suppresses_nothing():
    new = alert_of("StreamingQueryStopped")

    assert suppressed_by(new, silent_driver()) == ("StreamingQueryStalled", "*")
    assert suppressed_by(new, silent_driver(), silenced={"StreamingQueryStalled"}) is None


def failed_then_slow(silenced_until):
    """What is reported of a query that fails, recovers for a while and then is slow."""
    harness = LifecycleHarness(resolve_after_seconds=1000)
    harness.silences = [Silence("a", WALL + silenced_until)]
    story = [(0, "a", "StreamingQueryFailed"), (5, "a", "commits"), (20, "a", "StreamingBatchSlow")]
    return harness.play(story, until=40).reported


def test_recovering_alert_that_was_never_sent_suppresses_nothing_after_its_silence():
    assert failed_then_slow(silenced_until=10) == ["21 + StreamingBatchSlow a"]


@pytest.mark.parametrize("silenced_until", [0, 3])
def test_recovering_alert_that_was_sent_suppresses_a_warning(silenced_until):
    """Whether it was sent at once, or when its silence ended."""
    assert failed_then_slow(silenced_until) == [f"{silenced_until} + StreamingQueryFailed a"]


@pytest.mark.parametrize(
    ("silenced_from", "also"), [(3, []), (0, ["21 + StreamingBatchSlow a"])], ids=["sent", "unsent"]
)
def test_member_of_a_group_suppresses_a_warning_only_if_it_was_sent(silenced_from, also):
    harness = LifecycleHarness(resolve_after_seconds=1000)
    story = [(0, query, "StreamingQueryFailed") for query in "abc"]
    story += [(5, "a", "commits"), (20, "a", "StreamingBatchSlow")]
    harness.play([one for one in story if one[0] < silenced_from], until=silenced_from - 1)
    harness.silences = [Silence("a", WALL + 10)]
    harness.play([one for one in story if one[0] >= silenced_from], until=40)

    assert [line for line in harness.reported if "Slow" in line] == also


def test_suppressed_alert_is_listed_with_its_suppressor():
    harness = LifecycleHarness().condition("*", "StreamingQueryStalled").condition("a", "commits")
    for _ in range(3):
        harness.tick()
    harness.condition("a", "StreamingOffsetsStalled")
    for _ in range(3):
        harness.tick()
    (pair,) = harness.lifecycle.suppressed

    assert (pair.alert.name, pair.alert.labels["query"]) == ("StreamingOffsetsStalled", "a")
    assert (pair.by.name, pair.by.labels["query"]) == ("StreamingQueryStalled", "*")


def test_warning_becomes_critical_only_after_the_alert_of_the_whole_driver():
    """The driver's alert has just said so: a second page would be no news."""
    harness = LifecycleHarness().condition("a", "StreamingBatchSlow+commits").play([], 5)
    harness.play([(6, "*", "StreamingQueryStalled")], 20)
    harness.warnings = frozenset()
    harness.play([(30, "*", "healthy")], 100)
    lines = [line for line in harness.reported if " - " not in line]

    assert lines[:2] == ["1 + StreamingBatchSlow a", "7 + StreamingQueryStalled *"]
    assert lines[2:] == ["60 + StreamingBatchSlow a"]


def test_warning_becomes_critical_at_once_if_the_alert_of_the_whole_driver_is_silenced():
    harness = LifecycleHarness().condition("a", "StreamingBatchSlow+commits").play([], 5)
    harness.silences = [Silence("*", WALL + 1000, alertname="StreamingQueryStalled")]
    harness.play([(6, "*", "StreamingQueryStalled")], 20)
    harness.warnings = frozenset()
    harness.play([], 30)

    assert harness.reported[1] == "21 + StreamingBatchSlow a"
