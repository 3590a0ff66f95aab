"""Redaction covers a whole evaluation: its findings, its health and its alerts."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from support.planted import HUNTER, PLANTED

from querypulse.alerting.alert_text import Guidance, alert_of
from querypulse.alerting.evaluate import Evaluation
from querypulse.alerting.finding import Finding, QueryHealth, Severity
from querypulse.core.redaction import REDACTED, WITHHELD, Redactor
from querypulse.core.states import QueryState
from querypulse.settings.secrets import ERROR_CLASS, redacted

planted = st.sampled_from(PLANTED)


def finding(text, **changes):
    entry = Finding(
        alertname="StreamingQueryFailed",
        query="bronze",
        severity=Severity.CRITICAL,
        state=QueryState.FAILED,
        reason=f"ValueError: {text}",
        summary=f"bronze failed: {text}",
        evidence={"error_message": text, "checkpoint": f"/tables/{text}", "siblings": "7 of 8"},
        cause=text,
    )
    return msgspec.structs.replace(entry, **changes)


def evaluated(*findings):
    health = {entry.query: QueryHealth(entry.state, entry.reason, 60.0) for entry in findings}
    return Evaluation(findings, {**health, "silver": QueryHealth(QueryState.RUNNING, "", 60.0)})


def rendered(evaluation):
    """Everything that can be sent or shown of an evaluation."""
    alerts = [
        alert_of(entry, "app", Guidance("https://runbooks/{alertname}.md"), 0.0)
        for entry in evaluation.findings
    ]
    return msgspec.json.encode([evaluation, alerts]).decode()


@given(st.lists(planted, min_size=1, max_size=4), st.text(max_size=20), st.text(max_size=20))
def test_many_secrets_in_any_text_are_redacted_from_the_evaluation(secrets, begin, end):
    findings = [finding(f"{begin}\n{entry.text}\n{end}", query=entry.kind) for entry in secrets]
    text = rendered(redacted(evaluated(*findings), Redactor().text))

    assert [item.kind for item in secrets if item.secret in text] == []


def test_labels_of_an_alert_are_not_redacted():
    """Labels are the identity: an alert under another key would never be resolved."""
    before = finding("x", query=f"token={HUNTER}")
    (after,) = redacted(evaluated(before), Redactor().text).findings

    assert (after.alertname, after.query, after.severity, after.state) == (
        before.alertname, before.query, before.severity, before.state
    )  # fmt: skip


def test_redaction_changes_only_the_reason_of_a_health():
    evaluation = Evaluation(
        (), {"a": QueryHealth(QueryState.STALLED, f"token={HUNTER}", 7.0, ignored=True)}
    )

    assert redacted(evaluation, Redactor().text).health == {
        "a": QueryHealth(QueryState.STALLED, f"token={REDACTED}", 7.0, ignored=True)
    }


def test_withheld_finding_keeps_its_error_class():
    evidence = {ERROR_CLASS: "ConcurrentAppendException", "error_message": HUNTER}
    evaluation = evaluated(finding(HUNTER, evidence=evidence))
    (reported,) = redacted(evaluation, Redactor(patterns=["("]).text).findings

    assert reported.reason == f"ConcurrentAppendException: {WITHHELD}"
    assert reported.evidence == {
        ERROR_CLASS: "ConcurrentAppendException",
        "error_message": WITHHELD,
    }
    assert reported.summary == WITHHELD


def test_withheld_finding_without_an_error_is_still_reported():
    (reported,) = redacted(evaluated(finding(HUNTER)), Redactor(patterns=["("]).text).findings

    assert (reported.alertname, reported.query, reported.reason) == (
        "StreamingQueryFailed",
        "bronze",
        WITHHELD,
    )
