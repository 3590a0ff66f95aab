"""Alerts and incidents: their identity, which every receiver relies on, and their texts."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace
from support.receiver_incidents import alert

from querypulse.alerting.alert import (
    Incident,
    incident_key,
    is_generic,
    problem_of,
    recording_id,
)
from querypulse.alerting.facts import Reported
from querypulse.alerting.finding import Severity, finding_about
from querypulse.alerting.kinds import QUERY_FAILED
from querypulse.alerting.words.messages import Guidance, alert_of, details, links

LABELS = {"app": "etl", "query": "bronze"}


@pytest.mark.parametrize(
    ("labels", "severity", "key"),
    [
        ({}, "critical", "querypulse/etl/bronze"),
        ({}, "warning", "querypulse/etl/bronze/warning"),
        ({"query": "*"}, "critical", "querypulse/etl/*"),
        ({"team": "pay", "env": "a=b"}, "critical", "querypulse/etl;env=a%3Db;team=pay/bronze"),
        ({"query": "bronze/warning"}, "critical", "querypulse/etl/bronze%2Fwarning"),
        ({"app": "a;b"}, "critical", "querypulse/a%3Bb/bronze"),
    ],
)
def test_key_names_job_and_query(labels, severity, key):
    assert incident_key({**LABELS, **labels}, severity) == key


def test_key_that_is_longer_than_pagerduty_accepts_ends_in_its_hash():
    """Two long names must not become one incident."""
    fits = "q" * (255 - len(incident_key({**LABELS, "query": ""}, "critical")))
    longer = [f"{fits}a", f"{fits}b", fits * 2]
    keys = {incident_key({**LABELS, "query": query}, "critical") for query in (fits, *longer)}

    assert len(keys) == 4
    assert f"querypulse/etl/{fits}" in keys
    assert all(len(key) <= 255 for key in keys)


def test_labels_are_the_identity_and_annotations_are_the_texts_and_the_evidence():
    """No label names a run, a batch or an error."""
    evidence = {"run_id": "1", "tasks": "none"}
    finding = finding_about(
        "bronze",
        QUERY_FAILED,
        Severity.CRITICAL,
        Reported(reason="died", summary="bronze failed: died", evidence=evidence),
    )
    steps = {"StreamingQueryFailed": "1. Read it."}
    guidance = Guidance("https://runbooks/{alertname}.md", next_steps=steps)
    one = alert_of(finding, "etl", guidance, 1000.0, labels={"env": "prod"})

    assert set(one.labels) == {"alertname", "app", "query", "severity", "env"}
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


@pytest.mark.parametrize(
    ("lives", "starts_at", "ends_at"),
    [
        ([(1000.0, None), (900.0, None)], 900.0, None),
        ([(1000.0, 1010.0), (900.0, None)], 900.0, None),
        ([(1000.0, 1020.0), (1000.0, 1010.0)], 1000.0, 1020.0),
        ([], 0.0, 0.0),
    ],
    ids=["open", "partly over", "over", "stale"],
)
def test_incident_lasts_from_its_first_alert_to_its_last_end(lives, starts_at, ends_at):
    alerts = tuple(alert(starts_at=began, ends_at=ended) for began, ended in lives)
    incident = Incident("k", LABELS, "critical", alerts)

    assert (incident.starts_at, incident.ends_at) == (starts_at, ends_at)
    assert incident.is_over == (ends_at is not None)
    assert incident.is_orphan == (not alerts)


OWN = ("orders", "pyspark-shell-orders", "orders main.py", "etl", "Databricks Shell 2", "spark-etl")


@pytest.mark.parametrize("app", ["pyspark-shell", "PySparkShell", "SPARK SHELL", "main.py", *OWN])
def test_only_the_default_name_of_a_platform_is_generic_and_a_problem(app):
    problem = problem_of(app)

    assert is_generic(app) is bool(problem) is (app not in OWN)
    assert (repr(app) in problem and "set app_name" in problem) is bool(problem)


# -- recordings ---------------------------------------------------------------------------------

NAME = re.compile(r"20270115T080000Z-[A-Za-z0-9_-]+-[A-Za-z0-9_-]+-[0-9a-f]{6}")


@pytest.mark.parametrize(
    "name", ["bronze", "../../etc/passwd", "a b\n", "", "名前", "q" * 500, "\ud800"]
)
def test_id_of_a_recording_is_a_file_name_whatever_the_names_are(name):
    labels = {"app": name, "query": name}

    assert NAME.fullmatch(recording_id(labels, 1_800_000_000.5))


def test_recordings_of_other_queries_labels_and_times_have_other_ids():
    others = [
        LABELS,
        {**LABELS, "query": "*"},
        {**LABELS, "env": "prod"},
        {**LABELS, "app": "e tl"},
    ]
    ids = {recording_id(labels, at) for labels in others for at in (1.8e9, 1.8e9 + 0.001)}

    assert len(ids) == 8
    assert recording_id(LABELS, 1.8e9) in ids


ALERT = replace(alert(query="bronze"), annotations={"description": "what was found"})
RECORDING = "20270115T080000Z-etl-bronze-123456"


def test_message_names_the_file_of_its_incident_and_links_to_its_page():
    guidance = Guidance("", recordings="s3a://team/incidents", external_url="https://spark/orders")
    (one,) = guidance.recorded([ALERT], RECORDING)

    file = f"s3a://team/incidents/{RECORDING}.jsonl"
    assert details(one)["recording"] == file
    assert one.annotations["description"].endswith(f"\nrecording: {file}")
    assert links(one)["Incident"] == f"https://spark/orders/incidents/{RECORDING}.html"


def test_message_names_no_file_and_no_page_where_there_is_none():
    assert Guidance("").recorded([ALERT], RECORDING) == (ALERT,)
    (linked,) = Guidance("", external_url="https://spark").recorded([ALERT], RECORDING)

    assert linked.annotations["description"] == "what was found"
    assert "recording" not in linked.annotations
