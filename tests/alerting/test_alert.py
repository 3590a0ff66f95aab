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


def test_key_is_readable_and_hashed_where_it_is_longer_than_pagerduty_accepts():
    """Product, application, query, alert; two long names must not become one incident."""
    fits, long = "q" * (255 - len(alert("").key)), "q" * 300
    keys = {alert(long).key, alert(long + "x").key}

    assert alert("bronze").key == "querypulse/etl/bronze/StreamingQueryFailed"
    assert alert(fits).key.endswith(f"/{fits}/StreamingQueryFailed")
    assert not alert(fits + "q").key.endswith("/StreamingQueryFailed")
    assert len(keys) == 2
    assert all(len(key) <= 255 for key in keys)


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


def test_incident_follows_its_first_worst_and_last_alert():
    mild, bad = alert("b", severity="warning"), alert("a", starts_at=900.0)
    incident = Incident((mild, bad))

    assert (incident.key, incident.name) == (mild.key, "StreamingQueryFailed")
    assert (incident.starts_at, incident.severity) == (900.0, "critical")
    assert Incident((mild,)).severity == "warning"
    assert Incident((alert(ends_at=1010.0), bad)).ends_at is None
    assert Incident((alert("b", ends_at=1020.0), alert(ends_at=1010.0))).ends_at == 1020.0
