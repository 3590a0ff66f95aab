"""The meaning of every HTTP status, for every receiver, over real sockets."""

import pytest
from support.http_double import HttpDouble, raw, reply
from support.receiver_incidents import ENDED, ENDED_ONE, ONE

from querypulse.alerting import retries
from querypulse.alerting.receivers.alertmanager import Alertmanager
from querypulse.alerting.receivers.http import HttpError
from querypulse.alerting.receivers.pagerduty import PagerDuty
from querypulse.alerting.receivers.slack import Slack
from querypulse.alerting.receivers.teams import Teams
from querypulse.alerting.receivers.webhook import Webhook
from querypulse.core.secret import Secret
from querypulse.core.states import DeliveryOutcome

NOW = ENDED
EVERY_STATUS = range(101, 600)
"""100 is not a final answer; see the last test."""
NO_BODY = {204, 304}

MAKE = {
    "webhook": lambda url: Webhook(Secret(url)),
    "raw webhook": lambda url: Webhook(Secret(url), format="raw"),
    "pagerduty": lambda url: PagerDuty(Secret("R" * 32), url=url),
    "alertmanager": lambda url: Alertmanager([url]),
    "slack": lambda url: Slack(Secret(url)),
    "teams": lambda url: Teams(Secret(url)),
}


@pytest.fixture(autouse=True)
def one_attempt(monkeypatch):
    """The second and third attempt would only repeat the first."""
    monkeypatch.setattr(retries, "ATTEMPTS", 1)


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
    except HttpError as error:
        return error.answer
    return DeliveryOutcome.DELIVERED


@pytest.mark.fault(
    "Receivers",
    "Every HTTP status",
    "Retried, rejected or misconfigured, as the table of deliveries says",
)
@pytest.mark.parametrize("sent", [ONE, ENDED_ONE], ids=["firing", "resolved"])
@pytest.mark.parametrize("kind", MAKE)
def test_every_status_has_its_meaning(kind, sent):
    """A 204 cannot contain the "ok" that Slack sends, so it does not count as delivered."""
    expected = {status: meaning(status) for status in EVERY_STATUS}
    if kind == "slack":
        expected[204] = DeliveryOutcome.TRANSIENT
    with HttpDouble() as double:
        receiver = MAKE[kind](double.url)
        found = {}
        for status in EVERY_STATUS:
            double.otherwise = reply(status, body=b"ok")
            found[status] = answer_of(receiver, sent)
        receiver.close()

    assert found == expected


@pytest.mark.parametrize("kind", MAKE)
def test_lone_100_is_an_outage(kind):
    with HttpDouble(otherwise=raw(b"HTTP/1.1 100 Continue\r\n\r\n")) as double:
        receiver = MAKE[kind](double.url)
        assert answer_of(receiver, ONE) is DeliveryOutcome.TRANSIENT
        receiver.close()


@pytest.mark.parametrize("host", ["hooks..example.com", f"{'x' * 70}.example.com"])
def test_host_that_can_be_no_name_is_a_misconfiguration(host):
    webhook = Webhook(Secret(f"https://{host}/hook"))
    with pytest.raises(HttpError) as refused:
        webhook.send(ONE, 0.0)
    webhook.close()

    assert refused.value.answer is DeliveryOutcome.MISCONFIGURED
