"""Alerts and incidents: their identity, which every receiver relies on, and their texts."""

from __future__ import annotations

from msgspec.structs import replace

from querypulse.alerting import Alert
from querypulse.alerting.alert import Incident
from querypulse.alerting.alert_text import Guidance, alert_of
from querypulse.alerting.finding import Finding, Severity
from querypulse.core.states import QueryState


def alert(query: str = "bronze", severity: str = "critical", **fields) -> Alert:
    labels = {
        "alertname": "StreamingQueryFailed",
        "app": "etl",
        "query": query,
        "severity": severity,
    }
    return Alert(labels, {}, **{"starts_at": 1000.0, **fields})


FINDING = Finding(
    "StreamingQueryFailed",
    "bronze",
    Severity.CRITICAL,
    QueryState.FAILED,
    "died",
    "bronze failed: died",
    {},
)


def test_key_is_readable():
    """Product, application, query, alert."""
    assert alert("bronze").key == "querypulse/etl/bronze/StreamingQueryFailed"


def test_long_key_is_hashed_and_stays_distinct():
    """PagerDuty accepts 255 characters; two long names must not become one incident."""
    long = "q" * 300
    keys = {alert(long).key, alert(long + "x").key}

    assert len(keys) == 2
    assert all(len(key) <= 255 for key in keys)
    assert alert(long).key == alert(long).key


def test_longest_plain_key_stays_plain():
    """255 characters are allowed."""
    fits = "q" * (255 - len(alert("").key))

    assert alert(fits).key.endswith(f"/{fits}/StreamingQueryFailed")
    assert not alert(fits + "q").key.endswith("/StreamingQueryFailed")


def test_labels_are_the_identity_and_nothing_more():
    """No run, no batch, no error text."""
    one = alert_of(FINDING, "etl", Guidance("https://r/{alertname}"), wall=1000.0)

    assert set(one.labels) == {"alertname", "app", "query", "severity"}
    assert replace(one, annotations={}).key == one.key


def test_annotations_are_the_texts_and_the_evidence():
    one = alert_of(
        replace(FINDING, evidence={"run_id": "1", "tasks": "none"}),
        "etl",
        Guidance(
            "https://runbooks/{alertname}.md", next_steps={"StreamingQueryFailed": "1. Read it."}
        ),
        wall=1000.0,
    )

    assert list(one.annotations.items()) == [
        ("summary", "[etl] bronze failed: died"),
        ("description", "next_steps: 1. Read it.\ntasks: none"),
        ("reason", "died"),
        ("runbook_url", "https://runbooks/StreamingQueryFailed.md"),
        ("next_steps", "1. Read it."),
        ("tasks", "none"),
        ("run_id", "1"),
    ]
    assert (one.starts_at, one.ends_at) == (1000.0, None)


# -- incidents --------------------------------------------------------------------------------


def test_incident_is_identified_by_its_first_alert():
    incident = Incident((alert("b"), alert("a", starts_at=900.0)))

    assert (incident.key, incident.name) == (alert("b").key, "StreamingQueryFailed")
    assert incident.starts_at == 900.0


def test_incident_is_as_severe_as_its_worst_alert():
    assert Incident((alert(severity="warning"), alert("b"))).severity == "critical"
    assert Incident((alert(severity="warning"),)).severity == "warning"


def test_incident_ends_with_its_last_alert():
    over, later = alert(ends_at=1010.0), alert("b", ends_at=1020.0)

    assert Incident((over, alert("b"))).ends_at is None
    assert Incident((later, over)).ends_at == 1020.0
