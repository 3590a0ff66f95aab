"""The webhook speaks Alertmanager's version 4 and Standard Webhooks."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator

import pytest
import standardwebhooks
from msgspec.structs import replace
from support.http_double import HttpDouble, raw, reply

from querypulse.alerting import Alert
from querypulse.alerting.receivers.alertmanager_message import fingerprint, message
from querypulse.alerting.receivers.encoding import rfc3339, shorten, to_json
from querypulse.alerting.receivers.standard_webhooks import message_id, signing_key
from querypulse.alerting.receivers.webhook import Webhook

KEY = bytes(range(24))
SECRET = "whsec_" + base64.b64encode(KEY).decode()
ALERT = Alert(
    labels={"alertname": "QueryFailed", "app": "etl", "query": "bronze", "severity": "critical"},
    annotations={"summary": "bronze failed", "runbook_url": "https://x/QueryFailed.md"},
    starts_at=1795251728.119,
)
RESOLVED = replace(ALERT, ends_at=1795251788.5)


@pytest.fixture
def double() -> Iterator[HttpDouble]:
    with HttpDouble() as double:
        yield double


def test_a_firing_alert_is_told_as_alertmanager_would(double):
    """Every key, in the types that receivers were written against."""
    webhook = Webhook(f"{double.url}/hook", name="hook", external_url="http://driver:9719")
    webhook.send(ALERT, time.time())
    webhook.close()

    assert json.loads(double.requests[0].body) == {
        "receiver": "hook",
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
        "groupLabels": {"alertname": "QueryFailed", "app": "etl", "query": "bronze"},
        "commonLabels": ALERT.labels,
        "commonAnnotations": ALERT.annotations,
        "externalURL": "http://driver:9719",
        "version": "4",
        "groupKey": '{}:{alertname="QueryFailed", app="etl", query="bronze"}',
        "truncatedAlerts": 0,
    }


def test_a_resolved_alert_says_when_it_ended():
    """Both statuses change, the identity stays."""
    body = message(RESOLVED, "hook")

    assert body["status"] == body["alerts"][0]["status"] == "resolved"
    assert body["alerts"][0]["endsAt"] == "2026-11-21T09:03:08.500Z"
    assert body["alerts"][0]["fingerprint"] == fingerprint(ALERT.labels)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (
            {"severity": "critical", "alertname": "QueryStalled", "query": "a"},
            "a8dd04438e90e322",
        ),
        (
            {
                "alertname": "QueryFailed",
                "app": "etl",
                "query": 'bro"nze\nä\a',
                "severity": "critical",
            },
            "a4fe88bc602eab39",
        ),
        ({}, "cbf29ce484222325"),
    ],
)
def test_the_fingerprint_is_alertmanagers_own(labels, expected):
    """Captured from Alertmanager 0.25."""
    assert fingerprint(labels) == expected


def test_group_keys_are_quoted():
    """A quote in a query's name cannot break out."""
    odd = replace(ALERT, labels={**ALERT.labels, "query": 'a"b\nc'})

    assert message(odd, "hook")["groupKey"].endswith('query="a\\"b\\nc"}')


def test_a_broken_text_does_not_cost_an_alert():
    """Lone surrogates, as broken exceptions hold them, become question marks."""
    assert json.loads(to_json({"a": "x\ud800é"})) == {"a": "x?é"}
    assert fingerprint({"a": "\ud800"}) == fingerprint({"a": "?"})


def test_times_are_rfc_3339_in_utc():
    """With milliseconds and a Z."""
    assert rfc3339(0.0) == "1970-01-01T00:00:00.000Z"


def test_long_texts_end_in_an_ellipsis():
    """The limit includes it."""
    assert (shorten("abcd", 4), shorten("abcde", 4)) == ("abcd", "abc…")


def test_each_attempt_is_signed_at_its_own_time(double):
    """The signature is over the bytes sent; the id says that it is one and the same alert."""
    double.script.extend([reply(503), raw()])
    Webhook(double.url, secret=SECRET).send(ALERT, 1_800_000_000.9)
    requests = double.wait_for(3)

    for request in requests:
        signed = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}."
        digest = hmac.new(KEY, signed.encode() + request.body, hashlib.sha256).digest()
        assert request.headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode()
        assert 1_800_000_000 <= int(request.headers["webhook-timestamp"]) < 1_800_000_010
        assert request.headers["Idempotency-Key"] == request.headers["webhook-id"]
    assert len({request.headers["webhook-id"] for request in requests}) == 1


def test_the_reference_library_accepts_the_signature(double):
    """Verified by the standardwebhooks package, and not for another body."""
    Webhook(double.url, secret=SECRET).send(ALERT, time.time())
    (request,) = double.requests
    verifier = standardwebhooks.Webhook(SECRET)

    assert verifier.verify(request.body, dict(request.headers))["version"] == "4"
    with pytest.raises(Exception, match="No matching signature"):
        verifier.verify(request.body + b" ", dict(request.headers))


def test_without_a_secret_nothing_is_signed(double):
    """Only the idempotency key tells repetitions."""
    Webhook(double.url).send(ALERT, time.time())
    (request,) = double.requests

    assert request.headers["webhook-signature"] is None
    assert request.headers["Idempotency-Key"] == message_id(ALERT)


def test_ids_differ_by_status_and_by_occurrence():
    """A resolve, and the next time the same alert fires, are other messages."""
    again = replace(ALERT, starts_at=ALERT.starts_at + 60)
    reworded = replace(ALERT, annotations={"summary": "other words"})
    ids = [message_id(alert) for alert in (ALERT, RESOLVED, again)]

    assert len(set(ids)) == 3
    assert message_id(reworded) == message_id(ALERT)
    assert "." not in "".join(ids)


def test_a_secret_from_a_file_may_end_in_a_newline():
    """As files do."""
    assert signing_key(SECRET + "\n") == KEY


@pytest.mark.parametrize(
    "secret",
    [
        "",
        base64.b64encode(KEY).decode(),
        "whsec_" + base64.b64encode(bytes(23)).decode(),
        "whsec_" + base64.b64encode(bytes(65)).decode(),
        "whsec_not base64, hunter2!!",
        "whsec_" + "é" * 40,
    ],
)
def test_a_bad_secret_is_refused_without_showing_it(secret):
    """The error names the setting and the form."""
    with pytest.raises(ValueError, match="webhook_secret must be 'whsec_'") as caught:
        Webhook("https://example.com", secret=secret)

    assert len(secret) < 10 or secret.removeprefix("whsec_") not in str(caught.value)


def test_the_object_shows_no_secret():
    """Neither repr nor str."""
    webhook = Webhook("https://example.com/T000/B000", secret=SECRET)

    assert SECRET not in f"{webhook!r}{webhook}"
    assert "B000" not in f"{webhook!r}{webhook}"
