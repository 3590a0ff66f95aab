"""The webhook signs by Standard Webhooks, follows rotated secrets, and retries with less."""

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
from support.receiver_incidents import ENDED_ONE, ONE, incident
from support.receivers import NEXT_SIGNING_SECRET, SIGNING_KEY, SIGNING_SECRET, webhook

from querypulse.alerting.receivers.http import HttpError
from querypulse.alerting.receivers.webhook import MAX_BODY_BYTES, Webhook, message_id, signing_key
from querypulse.core.secret import Secret
from querypulse.core.states import DeliveryOutcome

(ALERT,) = ONE.alerts


@pytest.fixture
def double() -> Iterator[HttpDouble]:
    with HttpDouble() as double:
        yield double


def test_each_attempt_is_signed_at_its_own_time(double):
    """The signature covers the bytes sent; the id is the same for all attempts."""
    double.script.extend([reply(503), raw()])
    webhook(double, secrets=[Secret(SIGNING_SECRET)]).send(ONE, 1_800_000_000.9)
    requests = double.wait_for(3)

    for request in requests:
        signed = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}."
        digest = hmac.new(SIGNING_KEY, signed.encode() + request.body, hashlib.sha256).digest()
        assert request.headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode()
        assert 1_800_000_000 <= int(request.headers["webhook-timestamp"]) < 1_800_000_010
        assert request.headers["Idempotency-Key"] == request.headers["webhook-id"]
    assert len({request.headers["webhook-id"] for request in requests}) == 1


def test_the_reference_library_accepts_the_signature(double):
    """The standardwebhooks package verifies it, and rejects another body."""
    webhook(double, secrets=[Secret(SIGNING_SECRET)]).send(ONE, time.time())
    (request,) = double.requests
    verifier = standardwebhooks.Webhook(SIGNING_SECRET)

    assert verifier.verify(request.body, dict(request.headers))["version"] == "4"
    with pytest.raises(Exception, match="No matching signature"):
        verifier.verify(request.body + b" ", dict(request.headers))


def test_without_a_secret_nothing_is_signed(double):
    """Only the idempotency key identifies repetitions."""
    webhook(double).send(ONE, time.time())
    (request,) = double.requests

    assert request.headers["webhook-signature"] is None
    assert request.headers["Idempotency-Key"] == message_id(ONE)


def test_ids_differ_by_status_by_occurrence_and_by_revision():
    """A resolve, a reminder and the next occurrence of an alert are separate messages."""
    again = incident(starts_at=ALERT.starts_at + 60)
    reminder = replace(ONE, revision=1)
    ids = [message_id(one) for one in (ONE, ENDED_ONE, again, reminder)]

    assert len(set(ids)) == 4
    assert "." not in "".join(ids)


def test_an_id_does_not_depend_on_the_words():
    """A delay added at sending time does not make a new message."""
    late = incident(delivery_delay_seconds="90", reason="other words")

    assert message_id(late) == message_id(ONE)


def test_both_secrets_sign_during_a_rotation(double):
    """A receiver verifies with the secret that it knows."""
    webhook(double, secrets=[Secret(SIGNING_SECRET), Secret(NEXT_SIGNING_SECRET)]).send(
        ONE, time.time()
    )
    (request,) = double.requests

    for known in (SIGNING_SECRET, NEXT_SIGNING_SECRET):
        assert standardwebhooks.Webhook(known).verify(request.body, dict(request.headers))


def test_a_rotated_secret_signs_the_next_post(double, tmp_path):
    """No restart of the driver is needed."""
    path = tmp_path / "secret"
    path.write_text(SIGNING_SECRET)
    receiver = webhook(double, secrets=[Secret.from_file(path, setting="webhook_secret_file")])
    receiver.send(ONE, time.time())
    path.write_text(f"{NEXT_SIGNING_SECRET}\n")
    receiver.send(ONE, time.time())

    verifier = standardwebhooks.Webhook(NEXT_SIGNING_SECRET)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        verifier.verify(double.requests[0].body, dict(double.requests[0].headers))
    assert verifier.verify(double.requests[1].body, dict(double.requests[1].headers))


def test_an_unusable_secret_is_a_misconfiguration(double, tmp_path):
    """The page is kept until the secret is fixed, and nothing is sent unsigned."""
    path = tmp_path / "secret"
    path.write_text(SIGNING_SECRET)
    receiver = webhook(double, secrets=[Secret.from_file(path, setting="webhook_secret_file")])
    path.write_text("hunter2")
    with pytest.raises(HttpError, match="webhook_secret_file") as caught:
        receiver.send(ONE, time.time())

    assert caught.value.answer is DeliveryOutcome.MISCONFIGURED
    assert "hunter2" not in str(caught.value)
    assert not double.requests


def test_a_url_from_a_file_may_change(double, tmp_path):
    """To another URL, or to an unusable one."""
    path = tmp_path / "url"
    path.write_text("http://127.0.0.1:9/old")
    receiver = Webhook(Secret.from_file(path, setting="webhook_url_file"))
    path.write_text(f"{double.url}/new")
    receiver.send(ONE, time.time())
    path.write_text("ftp://B0000SECRET")
    with pytest.raises(HttpError, match="webhook_url must be") as caught:
        receiver.send(ONE, time.time())

    assert double.requests[0].path == "/new"
    assert caught.value.answer is DeliveryOutcome.MISCONFIGURED


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_rejected_body_is_retried_once_in_plain(double, status):
    """With the most important texts, under the same id, signed again."""
    double.script.append(reply(status))
    reported = incident(stream_thread="x" * 5000, reason="y" * 5000)
    webhook(double, secrets=[Secret(SIGNING_SECRET)]).send(reported, time.time())
    full, plain = double.requests
    body = standardwebhooks.Webhook(SIGNING_SECRET).verify(plain.body, dict(plain.headers))

    assert set(body["alerts"][0]["annotations"]) == {"summary", "reason", "runbook_url"}
    assert len(body["alerts"][0]["annotations"]["reason"]) == 512
    assert plain.headers["webhook-id"] == full.headers["webhook-id"]


@pytest.mark.parametrize("status", [406, 411, 414, 415, 431])
def test_a_status_that_no_other_body_fixes_is_not_retried(double, status):
    """It is rejected at once."""
    double.otherwise = reply(status)
    with pytest.raises(HttpError) as caught:
        webhook(double).send(incident(stream_thread="x"), time.time())

    assert caught.value.answer is DeliveryOutcome.REJECTED
    assert len(double.requests) == 1


def test_a_body_without_optional_parts_is_not_retried(double):
    """It would be the same."""
    double.otherwise = reply(400)
    with pytest.raises(HttpError):
        webhook(double).send(ONE, time.time())

    assert len(double.requests) == 1


def test_a_doubtful_first_attempt_stays_doubtful_after_the_second(double):
    """The full body may have arrived before it was refused."""
    double.script.append(raw())
    double.otherwise = reply(400)
    with pytest.raises(HttpError) as caught:
        webhook(double).send(incident(stream_thread="x"), time.time())

    assert caught.value.answer is DeliveryOutcome.REJECTED
    assert caught.value.may_have_arrived


def test_a_body_that_is_too_large_is_sent_in_plain_at_once(double):
    """Many queries with long evidence are still one page."""
    many = incident(*(f"q{n}" for n in range(200)), stream_thread="x" * 10_000)
    webhook(double).send(many, time.time())
    (request,) = double.requests

    assert len(request.body) <= MAX_BODY_BYTES
    assert len(json.loads(request.body)["alerts"]) == 200


def test_a_secret_from_a_file_may_end_in_a_newline():
    """Files usually end in one."""
    assert signing_key(SIGNING_SECRET + "\n") == SIGNING_KEY


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
def test_a_bad_secret_is_rejected_without_showing_it(secret):
    """The error names the setting and the form."""
    with pytest.raises(ValueError, match="webhook_secret_file must hold 'whsec_'") as caught:
        Webhook(Secret("https://example.com"), secrets=[Secret(secret)])

    assert len(secret) < 10 or secret.removeprefix("whsec_") not in str(caught.value)


def test_the_object_shows_no_secret():
    """Neither repr nor str shows it."""
    url = Secret("https://example.com/T000/B000")
    receiver = Webhook(url, secrets=[Secret(SIGNING_SECRET)])

    assert SIGNING_SECRET not in f"{receiver!r}{receiver}"
    assert "B000" not in f"{receiver!r}{receiver}"
