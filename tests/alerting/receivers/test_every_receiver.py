"""What holds for every receiver over HTTP: the meaning of answers, refused bodies, secrets."""

import json
import time

import pytest
from support.http_double import reply
from support.receiver_incidents import ENDED, ENDED_ONE, ONE, incident
from support.receivers import KINDS, NEXT_SIGNING_SECRET, ROUTING_KEY, SIGNING_SECRET, at, receiver

from querypulse.alerting.receivers.receiver import DeliveryError
from querypulse.core.states import DeliveryOutcome
from querypulse.sidecar import SettingsError

NOW = ENDED
EVERY_STATUS = range(101, 600)
WITH_LESS = [kind for kind in KINDS if kind != "alertmanager"]
"""They send a body with less if the full one is refused."""
LONG = incident(stream_thread="x" * 5000)


def meaning(status):
    """The table of meanings, written out independently."""
    if 200 <= status <= 299:
        return DeliveryOutcome.DELIVERED
    if status in {408, 425, 429} or status >= 500:
        return DeliveryOutcome.TRANSIENT
    if status in {400, 406, 411, 413, 414, 415, 422, 431}:
        return DeliveryOutcome.REJECTED
    return DeliveryOutcome.MISCONFIGURED


def answer_of(receiver, sent):
    try:
        receiver.send(sent, NOW)
    except DeliveryError as error:
        return error.answer
    return DeliveryOutcome.DELIVERED


def refusal(made, sent=LONG):
    with pytest.raises(DeliveryError) as caught:
        made.send(sent, time.time())
    return caught.value


@pytest.mark.fault(
    "Receivers",
    "Every HTTP status",
    "Retried, rejected or misconfigured, as the table of deliveries says",
)
@pytest.mark.parametrize("sent", [ONE, ENDED_ONE], ids=["firing", "resolved"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_status_has_its_meaning(kind, sent, double):
    """A 204 cannot contain the "ok" that Slack sends, so it does not count as delivered."""
    expected = {status: meaning(status) for status in EVERY_STATUS}
    if kind == "slack":
        expected[204] = DeliveryOutcome.TRANSIENT
    made = at(kind, double.url)
    found = {}
    for status in EVERY_STATUS:
        double.otherwise = reply(status, body=b"ok")
        found[status] = answer_of(made, sent)

    assert found == expected


@pytest.mark.fault(
    "Receivers",
    "A proxy answers 200 in place of PagerDuty, an Alertmanager, Slack or Teams",
    "It does not count as delivered",
)
@pytest.mark.parametrize(
    ("kind", "body", "answer"),
    [
        ("slack", b"<html>Please log in</html>", DeliveryOutcome.MISCONFIGURED),
        ("slack", b'{"ok":false,"error":"not_authed"}', DeliveryOutcome.MISCONFIGURED),
        ("slack", b"", DeliveryOutcome.TRANSIENT),
        ("teams", b"\n<html>Please log in</html>", DeliveryOutcome.MISCONFIGURED),
        ("pagerduty", b"\n<html>Please log in</html>", DeliveryOutcome.MISCONFIGURED),
        ("alertmanager", b"\n<html>Please log in</html>", DeliveryOutcome.MISCONFIGURED),
    ],
)
def test_200_of_another_server_is_not_a_delivery(double, kind, body, answer):
    double.otherwise = reply(200, body=body)
    error = refusal(at(kind, double.url))

    assert (error.answer, error.may_have_arrived) == (answer, True)


@pytest.mark.parametrize("status", [400, 413, 422])
@pytest.mark.parametrize("kind", WITH_LESS)
def test_refused_body_is_sent_once_more_with_less(double, kind, status):
    """A decoration must not cost a page."""
    double.script.append(reply(status))
    at(kind, double.url).send(LONG, time.time())
    full, less = double.requests

    assert len(less.body) < len(full.body)
    assert b"bronze" in less.body
    assert less.headers["Idempotency-Key"] == full.headers["Idempotency-Key"]


@pytest.mark.parametrize(
    ("kind", "sent", "answers", "requests"),
    [
        *((kind, LONG, [], 2) for kind in WITH_LESS),
        ("webhook", ONE, [], 1),
        ("pagerduty", ENDED_ONE, [], 1),
        ("alertmanager", ONE, [], 1),
        *(("webhook", LONG, [reply(status)], 1) for status in (406, 411, 414, 415, 431)),
    ],
)
def test_refused_body_is_rejected(double, kind, sent, answers, requests):
    """Nothing is sent again that would be the same, nor for what no other body fixes."""
    double.script.extend(answers)
    double.otherwise = reply(400)
    error = refusal(at(kind, double.url), sent)

    assert (error.answer, error.may_have_arrived) == (DeliveryOutcome.REJECTED, False)
    assert len(double.requests) == requests


@pytest.mark.parametrize("kind", ["webhook", "slack", "teams"])
def test_url_from_a_file_may_change(double, kind, tmp_path):
    """To another URL, or to an unusable one: then the page is kept."""
    path = tmp_path / "url"
    path.write_text("http://127.0.0.1:9/old")
    made = receiver(kind, url_file=str(path))
    path.write_text(f"{double.url}/new\n")
    made.send(ONE, time.time())
    path.write_text("ftp://hunter2")
    error = refusal(made)

    assert [request.path for request in double.requests] == ["/new"]
    assert error.answer is DeliveryOutcome.MISCONFIGURED
    assert "hunter2" not in str(error)


@pytest.mark.parametrize(
    ("kind", "secrets"),
    [
        ("webhook", (SIGNING_SECRET, NEXT_SIGNING_SECRET)),
        ("pagerduty", (ROUTING_KEY, ROUTING_KEY[::-1])),
    ],
)
def test_rotated_secret_is_used_without_a_restart(double, tmp_path, kind, secrets):
    """With an unusable one, the page is kept, and nothing is sent."""
    path = tmp_path / "secret"
    path.write_text(secrets[0])
    table = {"secret_files": [str(path)]} if kind == "webhook" else {"routing_key_file": str(path)}
    made = at(kind, double.url, **table)
    signs = []
    for text in secrets:
        path.write_text(f"{text}\n")
        made.send(ONE, NOW)
        request = double.requests[-1]
        key = json.loads(request.body).get("routing_key")
        signs.append(key or request.headers["webhook-signature"])
    path.write_text("hunter2")
    error = refusal(made)

    assert len(set(signs)) == len(double.requests) == 2
    assert error.answer is DeliveryOutcome.MISCONFIGURED
    assert "hunter2" not in str(error)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_shows_a_secret(double, caplog, kind):
    double.otherwise = reply(403)
    made = at(kind, f"{double.url}/B0000SECRET")
    with caplog.at_level("DEBUG"):
        error = refusal(made)

    for secret in ("B0000SECRET", ROUTING_KEY):
        assert secret not in f"{made!r}{made}{error!r}{caplog.text}"


@pytest.mark.parametrize(
    ("kind", "wrong", "says"),
    [
        ("webhook", {"url": "ftp://h/hidden"}, "url must be an https:// URL"),
        ("slack", {"url": "http://h/hidden"}, "url must be https://"),
        ("teams", {"url": "http://h/hidden"}, "url must be https://"),
        ("teams", {}, "needs 'url' or 'url_file'"),
        ("pagerduty", {"url": "http://h/hidden"}, "url must be https://"),
        ("alertmanager", {"urls": []}, "urls"),
        ("alertmanager", {"urls": ["https://ok:9093", "ftp://x/hidden"]}, "urls must"),
        ("pagerduty", {"routing_key": "hidden"}, "routing_key must have 32 characters"),
    ],
)
def test_unusable_settings_are_rejected_without_showing_them(kind, wrong, says):
    with pytest.raises(SettingsError) as error:
        receiver(kind, **wrong)

    assert says in str(error.value)
    assert "hidden" not in str(error.value)
