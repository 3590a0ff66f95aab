"""Alerts about slow batches name a likely cause, where something explains most of the time."""

from __future__ import annotations

import pytest
from support.rules.causes import CAUSES, growing
from support.slow_batches import TROUBLES, UNKNOWN, as_table, confusion

from querypulse.alerting.evidence import SlowCause
from querypulse.alerting.rules.causes import SlowBatch, likely_cause
from querypulse.alerting.words.messages import say
from querypulse.listener.foresight.phases import BatchPhases, Phase, Usual
from querypulse.listener.foresight.tasks import BatchTasks


@pytest.mark.parametrize("words", CAUSES)
def test_likely_cause(words):
    story, alertname, expected = CAUSES[words]
    findings = story.evaluate(story.ends_at).findings
    texts = {finding.alertname: say(finding).evidence for finding in findings}

    assert texts[alertname].get("likely_cause", "") == expected


@pytest.mark.slow
def test_causes_are_named_rightly_in_95_of_100_histories_and_wrongly_in_two():
    named = confusion(range(100))
    table = as_table(named)

    for trouble in TROUBLES:
        truth = getattr(trouble, "value", UNKNOWN)
        name = getattr(trouble, "value", trouble)
        silent = {UNKNOWN: "", "not slow": ""}
        right = sum(
            n
            for said, n in named[name].items()
            if silent.get(said, said) == silent.get(truth, truth)
        )
        wrong = sum(n for said, n in named[name].items() if said not in (*silent, truth))
        assert right >= 95, table
        assert wrong <= 2, table


def test_more_rows_are_shown_without_a_cause():
    story = growing("addBatch", rows=200)
    (finding,) = story.evaluate(story.ends_at).findings
    texts = say(finding).evidence

    assert texts["batch_rows"] == "batch 54 had 200 rows, usually 10; it took 4 min, usually 19.4 s"


@pytest.mark.parametrize("rows", [0, 10, 19])
def test_no_more_rows_than_usual_are_not_shown(rows):
    story = growing("addBatch", rows=rows)
    (finding,) = story.evaluate(story.ends_at).findings

    assert "batch_rows" not in say(finding).evidence


@pytest.mark.parametrize(("waited", "cause"), [(0.9, None), (1.1, SlowCause.WAITING_FOR_SLOTS)])
def test_tasks_that_are_launched_tenths_of_a_second_late_do_not_wait_for_slots(waited, cause):
    usual = Usual((BatchPhases(0, 20, 0.3, (0.01, 0.02, 0.0, 0.02, 0.2, 0.02)),))
    slow = SlowBatch(
        batch_id=9,
        seconds=1.5,
        usual=usual,
        usual_seconds=usual.seconds,
        phase_seconds={Phase.ADD_BATCH: 1.4},
        tasks=BatchTasks(9, waited_seconds=waited),
    )
    named = likely_cause(slow)

    assert (named and named.cause) is cause
