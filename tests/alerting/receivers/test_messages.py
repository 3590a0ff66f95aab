"""Messages must be readable for a person who was just woken up: they are compared as a whole."""

from __future__ import annotations

import pytest
from support.messages import BEGAN, CASES, GUIDANCE, LASTED, page, without_alertmanager
from support.receiver_incidents import alert, holding
from support.repository import ROOT

from querypulse.alerting.alert import AlertOutcome, GoesOn
from querypulse.alerting.words.headlines import headline_of, summary_of
from querypulse.alerting.words.messages import details, incident_details, others

GOLDEN = ROOT / "tests" / "fixtures" / "messages.txt"
"""Written by ``python -m support.messages``, here in ``tests/``; read it before you commit."""


def test_every_receiver_shows_the_expected_messages():
    assert page() == without_alertmanager(GOLDEN.read_text())


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


def test_an_end_of_the_driver_says_who_starts_it_again_and_nothing_else_does():
    ends = {"A query failed, and the driver ends", "The JVM has ended", "The main program ended"}
    said = {
        title
        for title, make in CASES.items()
        for one in make().alerts
        if one.annotations.get("restarted_by") == GUIDANCE.restarted_by
    }

    assert said == ends


HINTED = "1. Restart it.\nTo restart it here: "


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ((HINTED + "x", HINTED + "x"), HINTED + "x"),
        ((HINTED + "x", "1. Wait."), HINTED + "x"),
        (("1. Wait.", HINTED + "x"), "1. Wait."),
        (
            (HINTED + "x", HINTED + "y"),
            "1. Restart it.\nTo restart a here: x\nTo restart b here: y",
        ),
        (
            (HINTED + "x", HINTED + "y", HINTED + "x"),
            "1. Restart it.\nTo restart a, c here: x\nTo restart b here: y",
        ),
    ],
)
def test_group_whose_queries_are_restarted_differently_names_those_of_each_hint(steps, expected):
    group = holding(
        *(alert(query, next_steps=text) for query, text in zip("abc", steps, strict=False))
    )

    assert incident_details(group)["next_steps"] == expected


@pytest.mark.parametrize(
    ("name", "query", "notes", "text"),
    [
        ("StreamingQueryFailed", "a", {}, "a commits again"),
        (
            "StreamingQueryFailed",
            "a",
            {"outcome": AlertOutcome.IDLE},
            "a is healthy again and idle",
        ),
        ("StreamingQueryFailed", "a", {"outcome": AlertOutcome.COMPLETED}, "a has completed"),
        ("StreamingDriverDown", "*", {}, "driver is up again"),
        (
            "StreamingDriverDown",
            "*",
            {"outcome": AlertOutcome.SHUT_DOWN},
            "driver was shut down gracefully",
        ),
        ("QuerypulseEventsMissing", "*", {}, "querypulse receives Spark's events again"),
        ("StreamingQueryStalled", "*", {}, "all queries are healthy again"),
        ("StreamingQueryFailed", "unnamed", {}, "queries without a name are healthy again"),
        (
            "QuerypulseTest",
            "*",
            {"outcome": AlertOutcome.TEST_OVER},
            "test alert of querypulse has ended",
        ),
        ("SomeOtherAlert", "a", {}, "a is healthy again"),
    ],
)
def test_resolve_states_the_outcome(name, query, notes, text):
    one = alert(query, name=name, starts_at=BEGAN, ends_at=BEGAN + LASTED, **notes)

    assert summary_of(one) == f"Resolved: [etl] {text} after 4 min"


SLOW = alert(name="StreamingBatchSlow", severity="warning", summary="bronze is slow", reason="slow")
FAILED = alert()


def test_headline_of_several_queries_leaves_a_lower_case_class_where_it_is():
    """Such as ``zlib.error``: it is no code of ours."""
    reason = "error: Error -3 while decompressing"
    failed = [alert(query, reason=reason) for query in ("a", "b", "c")]

    assert headline_of(holding(*failed)) == f"[etl] 3 queries failed: {reason} (a, b, c)"


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
                at_end(FAILED, 240, outcome=AlertOutcome.COMMITS),
                at_end(SLOW, 60, outcome=AlertOutcome.HEALTHY),
            ),
            "Resolved: [etl] bronze commits again after 4 min",
            {},
        ),
        (
            (at_end(SLOW, 240, goes_on=GoesOn.CRITICAL_INCIDENT), at_end(FAILED, 60)),
            "Replaced by the critical incident: [etl] bronze after 4 min",
            {},
        ),
        (
            (at_end(FAILED, 240), at_end(alert("b"), 240, outcome=AlertOutcome.COMPLETED)),
            "Resolved: [etl] StreamingQueryFailed of 2 queries is over after 4 min (bronze, b)",
            {},
        ),
        (
            (
                at_end(alert("a"), 240),
                at_end(alert("b"), 240),
                at_end(alert("a", severity="warning"), 60, goes_on=GoesOn.CRITICAL_ALERT),
            ),
            "Resolved: [etl] 2 queries commit again after 4 min (a, b)",
            {},
        ),
    ],
    ids=[
        "one",
        "several of one query",
        "one is over",
        "group and driver",
        "resolved",
        "replaced",
        "group with different outcomes",
        "resolved group",
    ],
)
def test_headline_is_of_the_first_alert_and_the_others_are_listed(alerts, headline, listed):
    incident = holding(*alerts)

    assert headline_of(incident) == headline
    assert others(incident) == listed


@pytest.mark.parametrize(
    ("reasons", "text"),
    [
        (("E: no", "E: no"), "[etl] 2 queries failed: E: no (q0, q1)"),
        (("E: no", "E: but"), "[etl] 2 queries failed: E (q0, q1)"),
        (("E: no", "F: no"), "[etl] 2 queries failed (q0, q1)"),
        (("E: no", "E"), "[etl] 2 queries failed (q0, q1)"),
        (("", ""), "[etl] 2 queries failed (q0, q1)"),
        (
            ("E: no",) * 40,
            "[etl] 40 queries failed: E: no (q0, q1, q2, q3, q4, q5, q6, q7, q8, q9 and 30 more)",
        ),
    ],
)
def test_group_names_the_shared_cause_and_the_first_ten(reasons, text):
    alerts = (alert(f"q{number}", reason=reason) for number, reason in enumerate(reasons))

    assert headline_of(holding(*alerts)) == text
