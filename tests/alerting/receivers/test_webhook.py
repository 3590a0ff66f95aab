"""The webhook sends version 4 of Alertmanager's format, signed by Standard Webhooks."""

import base64
import hashlib
import hmac
import json
import time

import pytest
import standardwebhooks
from msgspec.structs import replace
from support.http_double import reply
from support.receiver_incidents import ENDED, ENDED_ONE, ONE, SEVERAL, alert, holding, incident
from support.receivers import NEXT_SIGNING_SECRET, SIGNING_KEY, SIGNING_SECRET, webhook

from querypulse.alerting.receivers.webhook import (
    Webhook,
    fingerprint,
    message,
    message_id,
    signing_key,
)
from querypulse.core.text import rfc3339, shorten, to_json

(ALERT,) = ONE.alerts


def test_firing_alert_has_the_format_of_alertmanager(double):
    webhook(double, external_url="http://driver:9719").send(ONE, time.time())

    assert json.loads(double.requests[0].body) == {
        "receiver": "webhook",
        "status": "firing",
        "alerts": [
            {
                "status": "firing",
                "labels": ALERT.labels,
                "annotations": ALERT.annotations,
                "startsAt": "2026-11-21T09:02:08.119Z",
                "endsAt": "0001-01-01T00:00:00Z",
                "generatorURL": "http://driver:9719",
                "fingerprint": fingerprint(ALERT.labels),
            }
        ],
        "groupLabels": {"app": "etl", "query": "bronze"},
        "commonLabels": ALERT.labels,
        "commonAnnotations": ALERT.annotations,
        "externalURL": "http://driver:9719",
        "version": "4",
        "groupKey": "querypulse/etl/bronze",
        "truncatedAlerts": 0,
    }


def test_resolved_alert_says_when_it_ended():
    body = message(ENDED_ONE, "hook")

    assert body["status"] == body["alerts"][0]["status"] == "resolved"
    assert body["alerts"][0]["endsAt"] == "2026-11-21T09:03:08.500Z"
    assert body["alerts"][0]["fingerprint"] == fingerprint(ALERT.labels)


FAILURES = {"alertname": "StreamingQueryFailed", "app": "etl", "severity": "critical"}


@pytest.mark.parametrize(
    ("sent", "statuses", "group", "common", "annotations"),
    [
        (
            SEVERAL,
            ["firing"] * 5,
            {"app": "etl", "query": "*"},
            FAILURES,
            {"reason", "runbook_url"},
        ),
        (
            holding(alert(), alert(name="Slow", severity="warning"), env="prod"),
            ["firing"] * 2,
            {"app": "etl", "query": "bronze", "env": "prod"},
            {"app": "etl", "query": "bronze"},
            {"summary", "reason", "runbook_url"},
        ),
        (
            holding(alert("a", ends_at=ENDED), alert("b")),
            ["resolved", "firing"],
            {"app": "etl", "query": "*"},
            FAILURES,
            {"reason", "runbook_url"},
        ),
    ],
    ids=["several queries", "alerts of one query", "one has ended"],
)
def test_incident_is_one_post(sent, statuses, group, common, annotations):
    """It fires until its last alert has ended; what all share is common."""
    body = message(sent, "hook")

    assert body["status"] == "firing"
    assert [one["status"] for one in body["alerts"]] == statuses
    assert (body["groupLabels"], body["commonLabels"]) == (group, common)
    assert set(body["commonAnnotations"]) == annotations


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"severity": "critical", "alertname": "QueryStalled", "query": "a"}, "a8dd04438e90e322"),
        ({**ALERT.labels, "query": 'bro"nze\nä\a'}, "efeb9cef03ed181f"),
        ({}, "cbf29ce484222325"),
    ],
)
def test_fingerprint_is_alertmanagers_own(labels, expected):
    """Captured from Alertmanager 0.25."""
    assert fingerprint(labels) == expected


def test_texts_and_times_are_what_json_readers_expect():
    """Lone surrogates, which broken exceptions contain, become question marks."""
    assert json.loads(to_json({"a": "x\ud800é"})) == {"a": "x?é"}
    assert fingerprint({"a": "\ud800"}) == fingerprint({"a": "?"})
    assert rfc3339(0.0) == "1970-01-01T00:00:00.000Z"
    assert (shorten("abcd", 4), shorten("abcde", 4)) == ("abcd", "abc…")


def test_body_that_is_too_large_is_sent_in_plain_at_once(double):
    """Many queries with long evidence are still one page."""
    many = incident(*(f"q{n}" for n in range(200)), stream_thread="x" * 10_000)
    webhook(double).send(many, time.time())
    (request,) = double.requests

    assert len(request.body) <= Webhook.max_bytes
    assert len(json.loads(request.body)["alerts"]) == 200


def secret_files(folder, *secrets):
    paths = [folder / f"secret-{number}" for number, _ in enumerate(secrets)]
    for path, secret in zip(paths, secrets, strict=True):
        path.write_text(f"{secret}\n")
    return [str(path) for path in paths]


def test_each_body_is_signed_under_one_id(double, tmp_path):
    """The signature covers the bytes sent; without details they are other bytes."""
    double.script.append(reply(422))
    reported = incident(stream_thread="x" * 5000, reason="y" * 5000)
    signing = webhook(double, secret_files=secret_files(tmp_path, SIGNING_SECRET))
    signing.send(reported, 1_800_000_000.9)
    requests = double.wait_for(2)

    for request in requests:
        signed = f"{message_id(reported)}.1800000000."
        digest = hmac.new(SIGNING_KEY, signed.encode() + request.body, hashlib.sha256).digest()
        assert request.headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode()
        assert request.headers["Idempotency-Key"] == request.headers["webhook-id"]
    annotations = json.loads(requests[-1].body)["alerts"][0]["annotations"]
    assert set(annotations) == {"summary", "reason", "runbook_url"}
    assert len(annotations["reason"]) == 512


def test_reference_library_accepts_the_signatures_of_both_secrets_of_a_rotation(double, tmp_path):
    """The standardwebhooks package verifies them, and rejects another body."""
    paths = secret_files(tmp_path, SIGNING_SECRET, NEXT_SIGNING_SECRET)
    webhook(double, secret_files=paths).send(ONE, time.time())
    (request,) = double.requests
    headers = dict(request.headers)

    for known in (SIGNING_SECRET, NEXT_SIGNING_SECRET):
        assert standardwebhooks.Webhook(known).verify(request.body, headers)["version"] == "4"
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(SIGNING_SECRET).verify(request.body + b" ", headers)


def test_without_a_secret_nothing_is_signed(double):
    """Only the idempotency key identifies repetitions."""
    webhook(double).send(ONE, time.time())
    (request,) = double.requests

    assert request.headers["webhook-signature"] is None
    assert request.headers["Idempotency-Key"] == message_id(ONE)


def test_ids_differ_by_status_by_occurrence_and_by_revision_and_not_by_words():
    """A resolve, a reminder and the next occurrence of an alert are separate messages."""
    again = incident(starts_at=ALERT.starts_at + 60)
    reminder = replace(ONE, revision=1)
    ids = [message_id(one) for one in (ONE, ENDED_ONE, again, reminder)]
    late = incident(delivery_delay_seconds="90", reason="other words")

    assert len(set(ids)) == 4
    assert "." not in "".join(ids)
    assert message_id(late) == message_id(ONE)


@pytest.mark.parametrize(
    "secret",
    [
        "",
        base64.b64encode(SIGNING_KEY).decode(),
        "whsec_" + base64.b64encode(bytes(23)).decode(),
        "whsec_" + base64.b64encode(bytes(65)).decode(),
        "whsec_not base64, hunter2!!",
        "whsec_" + "é" * 40,
    ],
)
def test_bad_secret_is_rejected_without_showing_it(secret):
    with pytest.raises(ValueError, match="secret_files must hold 'whsec_'") as caught:
        signing_key(secret)

    assert len(secret) < 10 or secret.removeprefix("whsec_") not in str(caught.value)
