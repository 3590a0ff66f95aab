"""One failure blinds nothing else: an error in one stage hides no finding of another query."""

from __future__ import annotations

from importlib import import_module

import pytest
from support.story import CONFLICT, Story, policy

from querypulse.alerting import rules
from querypulse.alerting.evaluate import evaluate
from querypulse.alerting.incidents.recovery import DriverHealth
from querypulse.alerting.policy import Policy
from querypulse.alerting.words.reasons import reason_of
from querypulse.listener.python_frames import MainThread
from querypulse.sidecar.failure import first_failure

EVALUATION = import_module("querypulse.alerting.evaluate")
DEGRADED = "QuerypulseMonitoringDegraded"
FAILED = ("StreamingQueryFailed", "b")
ABSENT = ("StreamingQueryMissing", "expected")


def two_queries():
    """Query ``a`` runs, ``b`` has failed, and an expected one never started."""
    story = Story().started(at=1).commit(batch=1, at=299).started("b", at=1)
    return story.commit("b", batch=1, at=2).ended("b", at=299, exception=CONFLICT)


def found(story):
    evaluation = evaluate(story.snapshot(301), 301, Policy(expected=("expected",)))
    return {(one.alertname, one.query) for one in evaluation.findings}, evaluation


def broken_for_a(function):
    """The function, which raises if its call is about query ``a``."""

    def run(*args, **kwargs):
        if getattr(args[0], "query", args[0]).label == "a":
            raise KeyError("a")
        return function(*args, **kwargs)

    return run


def broken(*_args, **_kwargs):
    raise KeyError("broken")


@pytest.mark.parametrize("stage", ["rule_context", "_evaluate_query", "_healthy_state"])
def test_error_in_one_query_hides_no_other(monkeypatch, stage):
    monkeypatch.setattr(EVALUATION, stage, broken_for_a(getattr(EVALUATION, stage)))
    findings, evaluation = found(two_queries())

    assert findings == {FAILED, ABSENT, (DEGRADED, "*")}
    assert evaluation.health["a"].state.value == "starting"
    assert reason_of(evaluation.health["a"].why) == "could not be evaluated"


@pytest.mark.parametrize("stage", ["rule_context", "_evaluate_query"])
def test_failed_query_stays_failed_although_it_cannot_be_evaluated(monkeypatch, stage):
    monkeypatch.setattr(EVALUATION, stage, broken)

    assert found(two_queries())[1].health["b"].state.value == "failed"


@pytest.mark.parametrize("rule", rules.RULES)
def test_error_in_one_rule_hides_no_finding_of_the_others(monkeypatch, rule):
    checks = [broken if one is rules.RULES[rule] else one for one in rules.ORDER]
    monkeypatch.setattr(EVALUATION, "ORDER", tuple(checks))
    expected = {FAILED, ABSENT, (DEGRADED, "*")} - {(rule, "b")}

    assert found(two_queries())[0] == expected


@pytest.mark.parametrize(
    ("stage", "lost"),
    [
        ("_absent", {ABSENT}),
        ("query_absent", {ABSENT}),
        ("_health", set()),
        ("is_restarted", set()),
        ("flow_of", set()),
        ("_trace_flow", set()),
        ("was_flapping_already", {(DEGRADED, "*")}),
        ("driver_down", set()),
        ("events_missing", set()),
        ("monitoring_degraded", set()),
        ("gather", {(DEGRADED, "*")}),
    ],
)
def test_error_in_a_stage_hides_no_other_finding(monkeypatch, stage, lost):
    """No query flaps here, and what gathers the findings comes after they were counted."""
    monkeypatch.setattr(EVALUATION, stage, broken)
    findings, evaluation = found(two_queries())

    assert findings == {FAILED, ABSENT, (DEGRADED, "*")} - lost
    assert bool(evaluation.errors) == (stage != "was_flapping_already")


def test_main_thread_that_cannot_be_read_hides_no_finding():
    story, expects = two_queries(), Policy(expected=("expected",))
    evaluation = evaluate(story.snapshot(301), 301, expects, main_thread=broken)

    assert evaluation.findings == found(story)[1].findings
    assert [name for name, _ in evaluation.errors] == ["broken"]


@pytest.mark.parametrize(("supervised", "ends"), [((), ["b"]), (("b",), []), (("a",), ["b"])])
def test_failure_that_supervise_restarts_does_not_end_a_driver_that_awaits_any(supervised, ends):
    story, thread = two_queries(), MainThread("waits", awaits_failure=True)
    for query in supervised:
        story.supervised(query)
    snapshot = story.snapshot(301)
    evaluation = evaluate(snapshot, 301, policy(), main_thread=lambda: thread)
    found = [finding.query for finding in evaluation.findings if finding.evidence.ends_driver]

    assert found == ends
    assert (first_failure(snapshot, evaluation) is not None) == bool(ends)


def test_error_in_words_is_reported_and_loses_no_alert(monkeypatch):
    """The code is then all that the alert says."""
    words_of = EVALUATION.say

    def broken_for_failures(finding):
        if finding.alertname == FAILED[0]:
            raise KeyError("words")
        return words_of(finding)

    monkeypatch.setattr(EVALUATION, "say", broken_for_failures)
    findings, evaluation = found(two_queries())

    assert findings == {FAILED, ABSENT, (DEGRADED, "*")}
    reasons = {finding.alertname: finding.reason for finding in evaluation.findings}
    assert reasons[FAILED[0]] == "failed"
    assert reasons[DEGRADED] == f"rules that fail: words of {FAILED[0]}"


def test_query_that_is_supervised_and_was_never_started_has_no_reason():
    evaluation = Story().supervised("a").evaluate(1)

    assert (evaluation.health["a"].state.value, evaluation.health["a"].reason) == ("starting", "")


@pytest.mark.parametrize("ignore", [False, True])
def test_query_that_cannot_be_evaluated_neither_recovers_nor_counts_where_it_is_ignored(
    monkeypatch, ignore
):
    monkeypatch.setattr(EVALUATION, "rule_context", broken)
    story = two_queries().commit(batch=2, at=300).commit(batch=3, at=301)
    snapshot = story.snapshot(302)
    ignoring = Policy(overrides=(("*", {"ignore": True}),) if ignore else ())
    evaluation = evaluate(snapshot, 302, ignoring)
    health = DriverHealth(evaluation, snapshot, 302)

    assert [health.recovery(label, "warning", None) for label in ("a", "b")] == [None, None]
    failure = first_failure(snapshot, evaluation)
    if ignore:
        assert failure is None
    else:
        assert failure is not None
        assert failure.query == "b"
        assert failure.reason.endswith("; could not be evaluated")
