"""The webhook signs by Standard Webhooks, follows rotated secrets, and tries once with less."""

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

from querypulse.alerting.receivers.answer import DeliveryOutcome
from querypulse.alerting.receivers.http import HttpError
from querypulse.alerting.receivers.secret import Secret
from querypulse.alerting.receivers.standard_webhooks import message_id, signing_key
from querypulse.alerting.receivers.webhook import MAX_BODY_BYTES, Webhook

(ALERT,) = ONE.alerts


@pytest.fixture
def double() -> Iterator[HttpDouble]:
    with HttpDouble() as double:
        yield double


def test_each_attempt_is_signed_at_its_own_time(double):
    """The signature is over the bytes sent; the id says that it is one and the same alert."""
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
    """Verified by the standardwebhooks package, and not for another body."""
    webhook(double, secrets=[Secret(SIGNING_SECRET)]).send(ONE, time.time())
    (request,) = double.requests
    verifier = standardwebhooks.Webhook(SIGNING_SECRET)

    assert verifier.verify(request.body, dict(request.headers))["version"] == "4"
    with pytest.raises(Exception, match="No matching signature"):
        verifier.verify(request.body + b" ", dict(request.headers))


def test_without_a_secret_nothing_is_signed(double):
    """Only the idempotency key tells repetitions."""
    webhook(double).send(ONE, time.time())
    (request,) = double.requests

    assert request.headers["webhook-signature"] is None
    assert request.headers["Idempotency-Key"] == message_id(ONE)


def test_ids_differ_by_status_by_occurrence_and_by_revision():
    """A resolve, a reminder, and the next time the same alert fires, are other messages."""
    again = incident(starts_at=ALERT.starts_at + 60)
    reminder = replace(ONE, revision=1)
    ids = [message_id(one) for one in (ONE, ENDED_ONE, again, reminder)]

    assert len(set(ids)) == 4
    assert "." not in "".join(ids)


def test_an_id_does_not_depend_on_the_words():
    """A delay that is noted at the time of sending makes no new message."""
    late = incident(delivery_delay_seconds="90", reason="other words")

    assert message_id(late) == message_id(ONE)


def test_while_a_secret_is_rotated_both_sign(double):
    """A receiver verifies with the one that it knows."""
    webhook(double, secrets=[Secret(SIGNING_SECRET), Secret(NEXT_SIGNING_SECRET)]).send(
        ONE, time.time()
    )
    (request,) = double.requests

    for known in (SIGNING_SECRET, NEXT_SIGNING_SECRET):
        assert standardwebhooks.Webhook(known).verify(request.body, dict(request.headers))


def test_a_secret_that_was_rotated_signs_the_next_post(double, tmp_path):
    """Without a restart of the driver."""
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


def test_a_secret_that_has_become_unusable_is_a_fault_of_the_configuration(double, tmp_path):
    """The page is kept until it is mended, and nothing leaves unsigned."""
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
    """To another place, or to none that can be used."""
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
def test_a_disliked_body_is_tried_once_more_in_plain(double, status):
    """With the words a person needs most, under the same id, signed anew."""
    double.script.append(reply(status))
    reported = incident(stream_thread="x" * 5000, reason="y" * 5000)
    webhook(double, secrets=[Secret(SIGNING_SECRET)]).send(reported, time.time())
    full, plain = double.requests
    body = standardwebhooks.Webhook(SIGNING_SECRET).verify(plain.body, dict(plain.headers))

    assert set(body["alerts"][0]["annotations"]) == {"summary", "reason", "runbook_url"}
    assert len(body["alerts"][0]["annotations"]["reason"]) == 512
    assert plain.headers["webhook-id"] == full.headers["webhook-id"]


@pytest.mark.parametrize("status", [406, 411, 414, 415, 431])
def test_what_no_other_body_mends_is_not_tried_again(double, status):
    """It is poison at once."""
    double.otherwise = reply(status)
    with pytest.raises(HttpError) as caught:
        webhook(double).send(incident(stream_thread="x"), time.time())

    assert caught.value.answer is DeliveryOutcome.REJECTED
    assert len(double.requests) == 1


def test_a_body_that_has_nothing_to_leave_out_is_not_tried_again(double):
    """It would be the same."""
    double.otherwise = reply(400)
    with pytest.raises(HttpError):
        webhook(double).send(ONE, time.time())

    assert len(double.requests) == 1


def test_a_doubt_of_the_first_try_outlives_the_second(double):
    """The full body may have arrived before it was refused."""
    double.script.append(raw())
    double.otherwise = reply(400)
    with pytest.raises(HttpError) as caught:
        webhook(double).send(incident(stream_thread="x"), time.time())

    assert caught.value.answer is DeliveryOutcome.REJECTED
    assert caught.value.may_have_arrived


def test_too_large_a_body_is_sent_in_plain_at_once(double):
    """Many queries with long stories are one page all the same."""
    many = incident(*(f"q{n}" for n in range(200)), stream_thread="x" * 10_000)
    webhook(double).send(many, time.time())
    (request,) = double.requests

    assert len(request.body) <= MAX_BODY_BYTES
    assert len(json.loads(request.body)["alerts"]) == 200


def test_a_secret_from_a_file_may_end_in_a_newline():
    """As files do."""
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
def test_a_bad_secret_is_refused_without_showing_it(secret):
    """The error names the setting and the form."""
    with pytest.raises(ValueError, match="webhook_secret_file must hold 'whsec_'") as caught:
        Webhook(Secret("https://example.com"), secrets=[Secret(secret)])

    assert len(secret) < 10 or secret.removeprefix("whsec_") not in str(caught.value)


def test_the_object_shows_no_secret():
    """Neither repr nor str."""
    url = Secret("https://example.com/T000/B000")
    receiver = Webhook(url, secrets=[Secret(SIGNING_SECRET)])

    assert SIGNING_SECRET not in f"{receiver!r}{receiver}"
    assert "B000" not in f"{receiver!r}{receiver}"
