"""Messages must be readable for a person who was just woken up: they are compared as a whole."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace
from support.messages import APP, BEGAN, CASES, GUIDANCE, LASTED, page, resolved
from support.receiver_incidents import alert, holding
from support.repository import ROOT
from support.slack_double import problems

from querypulse.alerting.alert_text import (
    COMPLETED,
    IDLE,
    alert_of,
    details,
    headline_of,
    others,
    summary_of,
)
from querypulse.alerting.finding import Finding, Severity, code_last
from querypulse.alerting.receivers.pagerduty import trigger_event
from querypulse.alerting.receivers.slack import slack_message
from querypulse.core.states import QueryState
from querypulse.core.text import to_json

GOLDEN = ROOT / "tests" / "fixtures" / "messages.txt"
"""Written by ``python -m support.messages``, here in ``tests/``; read it before you commit."""


def test_every_receiver_shows_the_expected_messages():
    assert page() == GOLDEN.read_text()


def test_error_appears_once_in_a_message():
    failures = {
        title: shown
        for title, make in CASES.items()
        for one in make().alerts
        for cause in [one.annotations["reason"].rpartition(": ")[2]]
        for shown in ["\n".join([headline_of(holding(one)), *details(one).values()])]
        if shown.count(cause) != 1 and len(cause.split()) >= 3
    }

    assert failures == {}


def test_slack_and_pagerduty_accept_every_message():
    at_slack = {
        title: found
        for title, make in CASES.items()
        for one in (make(), resolved(make()))
        if (found := problems(json.loads(to_json(slack_message(one)))))
    }
    events = {
        title: trigger_event(make(), "0" * 32, "driver-1", "") for title, make in CASES.items()
    }

    assert at_slack == {}
    assert [title for title, one in events.items() if len(one["payload"]["summary"]) > 1024] == []


# -- headlines --------------------------------------------------------------------------------------


def finding(summary: str, query: str = "billing") -> Finding:
    return Finding(
        "StreamingQueryFailed", query, Severity.CRITICAL, QueryState.FAILED, "why", summary, {}
    )


def over(**notes: str):
    return alert_of(finding("billing failed: x"), APP, GUIDANCE, BEGAN).ended(
        BEGAN + LASTED, **notes
    )


@pytest.mark.parametrize(
    ("notes", "text"),
    [
        ({}, "Resolved: [orders] billing commits again after 4 min"),
        ({"outcome": IDLE[0]}, "Resolved: [orders] billing is healthy again and idle after 4 min"),
        ({"outcome": COMPLETED[0]}, "Resolved: [orders] billing has completed after 4 min"),
        (
            {"superseded_by": "StreamingQueryFlapping"},
            "Replaced by StreamingQueryFlapping: [orders] billing after 4 min",
        ),
    ],
)
def test_resolve_states_the_outcome_of_the_query(notes, text):
    assert summary_of(over(**notes)) == text


@pytest.mark.parametrize(
    ("name", "query", "notes", "text"),
    [
        ("StreamingDriverDown", "*", {}, "driver is up again"),
        ("StreamingDriverDown", "*", {"outcome": "driver was shut down"}, "driver was shut down"),
        ("QuerypulseEventsMissing", "*", {}, "querypulse receives Spark's events again"),
        ("StreamingQueryStalled", "*", {}, "all queries are healthy again"),
        ("StreamingQueryFailed", "unnamed", {}, "queries without a name are healthy again"),
        ("QuerypulseTest", "*", {"outcome": "test alert has ended"}, "test alert has ended"),
        ("SomeOtherAlert", "a", {}, "a is healthy again"),
    ],
)
def test_resolve_of_a_driver_or_group_alert_states_what_is_healthy(name, query, notes, text):
    one = alert(query, name=name, starts_at=BEGAN, ends_at=BEGAN + LASTED, **notes)

    assert summary_of(one) == f"Resolved: [etl] {text} after 4 min"


def test_group_with_different_outcomes_names_no_outcome():
    one, two = over(), over(outcome=COMPLETED[0])

    assert headline_of(holding(one, replace(two, labels={**two.labels, "query": "b"}))) == (
        "Resolved: [orders] StreamingQueryFailed of 2 queries is over after 4 min (billing, b)"
    )


SLOW = alert(name="StreamingBatchSlow", severity="warning", summary="bronze is slow", reason="slow")
FAILED = alert()
REPLACED = "the critical incident"


def at_end(one, seconds, **notes):
    return one.ended(one.starts_at + seconds, **notes)


@pytest.mark.parametrize(
    ("alerts", "headline", "listed"),
    [
        ((FAILED,), "bronze failed", {}),
        ((FAILED, SLOW), "bronze failed", {"StreamingBatchSlow": "slow"}),
        ((SLOW, at_end(FAILED, 60)), "bronze is slow", {}),
        (
            (alert("a"), alert("b"), alert("*", name="QuerypulseEventsMissing", reason="none")),
            "[etl] 2 queries failed: ConcurrentAppendException (a, b)",
            {
                "StreamingQueryFailed of a": "ConcurrentAppendException",
                "StreamingQueryFailed of b": "ConcurrentAppendException",
                "QuerypulseEventsMissing of all queries": "none",
            },
        ),
        (
            (
                at_end(FAILED, 240, outcome="commits again"),
                at_end(SLOW, 60, outcome="is no longer slow"),
            ),
            "Resolved: [etl] bronze commits again after 4 min",
            {},
        ),
        (
            (at_end(SLOW, 240, superseded_by=REPLACED), at_end(FAILED, 60)),
            "Replaced by the critical incident: [etl] bronze after 4 min",
            {},
        ),
        (
            (
                at_end(alert("a"), 240),
                at_end(alert("b"), 240),
                at_end(alert("a", severity="warning"), 60, superseded_by="x"),
            ),
            "Resolved: [etl] 2 queries commit again after 4 min (a, b)",
            {},
        ),
    ],
    ids=["one", "several of one query", "one is over", "group and driver", "resolved", "replaced",
         "resolved group"],
)  # fmt: skip
def test_headline_is_of_the_first_alert_and_the_others_are_listed(alerts, headline, listed):
    incident = holding(*alerts)

    assert headline_of(incident) == headline
    assert others(incident) == listed


def test_labels_of_the_settings_are_shown():
    message = slack_message(holding(FAILED, env="prod"))

    assert message["blocks"][-1]["elements"][0]["text"].startswith(
        "StreamingQueryFailed · env=prod · since "
    )


def group(*reasons: str) -> str:
    alerts = (alert(f"q{number}", reason=reason) for number, reason in enumerate(reasons))
    return headline_of(holding(*(alerts)))


@pytest.mark.parametrize(
    ("reasons", "text"),
    [
        (("E: no", "E: no"), "[etl] 2 queries failed: E: no (q0, q1)"),
        (("E: no", "E: but"), "[etl] 2 queries failed: E (q0, q1)"),
        (("E: no", "F: no"), "[etl] 2 queries failed (q0, q1)"),
        (("E: no", "E"), "[etl] 2 queries failed (q0, q1)"),
        (("", ""), "[etl] 2 queries failed (q0, q1)"),
    ],
)
def test_group_names_the_shared_cause(reasons, text):
    assert group(*reasons) == text


def test_large_group_names_the_first_ten():
    assert group(*["E: no"] * 40).endswith("q8, q9 and 30 more)")


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("batch_hung: batch 3 in flight", "batch 3 in flight (batch_hung)"),
        ("lag rose from 1 to 2", "lag rose from 1 to 2"),
        ("ValueError: no", "ValueError: no"),
        ("Kafka t/0: from 5 back to 3", "Kafka t/0: from 5 back to 3"),
        ("the JVM does not answer: a, b", "the JVM does not answer: a, b"),
    ],
)
def test_description_comes_before_the_code(reason, text):
    assert code_last(reason) == text
