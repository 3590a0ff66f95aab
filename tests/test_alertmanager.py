"""Every member of a cluster is told, and one that listens is enough."""

import json
import threading
import time

import pytest
from support.alertmanager_double import AlertmanagerDouble
from support.http_double import HttpDouble, held, raw, reply
from support.receiver_incidents import ENDED, ENDED_ONE, FIVE, ONE, SEVERAL, alert, incident

from querypulse.alerting.alert import Incident
from querypulse.alerting.receivers import alertmanager
from querypulse.alerting.receivers.alertmanager import Alertmanager
from querypulse.alerting.receivers.alertmanager_alerts import api_alerts
from querypulse.alerting.receivers.answer import DeliveryOutcome
from querypulse.alerting.receivers.http import HttpError

NOW = 1_800_000_000.0


@pytest.fixture
def double():
    with AlertmanagerDouble() as double:
        yield double


def send(reported, *doubles, **options):
    receiver = Alertmanager([double.url for double in doubles], **options)
    try:
        receiver.send(reported, NOW)
    finally:
        receiver.close()


def refusal(reported, *doubles):
    with pytest.raises(HttpError) as caught:
        send(reported, *doubles)
    return caught.value


def ends_in(reported):
    """For each alert, how long after now it is said to end, in seconds."""
    from datetime import datetime

    ends = [one["endsAt"].replace("Z", "+00:00") for one in api_alerts(reported, NOW)]
    return [datetime.fromisoformat(end).timestamp() - NOW for end in ends]


def test_an_alert_is_posted_with_all_that_identifies_and_explains_it(double):
    send(ONE, double, external_url="https://driver:9719/")

    assert double.alerts == [
        {
            "labels": ONE.alerts[0].labels,
            "annotations": ONE.alerts[0].annotations,
            "startsAt": "2026-11-21T09:02:08.119Z",
            "endsAt": "2027-01-16T08:00:00.000Z",
            "generatorURL": "https://driver:9719/",
        }
    ]


def test_an_unknown_home_is_left_out(double):
    send(ONE, double)

    assert "generatorURL" not in double.alerts[0]


def test_several_alerts_are_one_array(double):
    send(SEVERAL, double)

    assert double.queries == list(FIVE)
    assert len(double.requests) == 1


def test_what_is_critical_lapses_after_a_day_and_a_warning_after_four_minutes():
    """A driver that died with its query must not make Alertmanager say that all is well."""
    assert ends_in(ONE) == [24 * 3600]
    assert ends_in(incident(name="StreamingQueryLagging", severity="warning")) == [240]


def test_what_has_ended_says_when():
    assert api_alerts(ENDED_ONE, NOW)[0]["endsAt"] == "2026-11-21T09:03:08.500Z"
    assert ends_in(Incident((alert("a", ends_at=ENDED), alert("b"))))[1] == 24 * 3600


def test_nothing_ends_before_it_began():
    """Alertmanager would refuse it."""
    (reported,) = api_alerts(incident(starts_at=NOW, ends_at=NOW - 1), NOW)

    assert reported["endsAt"] == reported["startsAt"]


def test_it_is_reported_again_and_again_and_of_the_end_for_a_while():
    """For it forgets what it does not hear."""
    capabilities = Alertmanager.capabilities

    assert (capabilities.resend_seconds, capabilities.resend_resolved_seconds) == (60, 300)
    assert capabilities.reconciles


def test_a_base_url_may_have_a_path():
    with HttpDouble() as double:
        receiver = Alertmanager([f"{double.url}/am/"])
        receiver.send(ONE, NOW)
        receiver.close()

        assert double.requests[0].path == "/am/api/v2/alerts"


def test_every_member_is_reported(double):
    with AlertmanagerDouble() as other:
        send(ONE, double, other)

        assert double.queries == other.queries == ["bronze"]


@pytest.mark.parametrize("answer", [reply(503), reply(401), reply(400), reply(410), raw()])
def test_one_member_that_listens_is_enough(double, answer, caplog):
    with HttpDouble(otherwise=answer) as deaf:
        send(ONE, deaf, double)

    assert double.queries == ["bronze"]
    assert caplog.text.count("a member did not take an alert") == 1


def test_a_member_that_refuses_is_logged_once_until_it_listens_again(double, caplog):
    """And then anew."""
    with HttpDouble(otherwise=reply(401)) as other:
        receiver = Alertmanager([double.url, other.url])
        receiver.send(ONE, NOW)
        receiver.send(ONE, NOW)
        assert caplog.text.count("answered 401") == 1
        other.otherwise = reply(200)
        receiver.send(ONE, NOW)
        other.otherwise = reply(401)
        receiver.send(ONE, NOW)
        receiver.close()

    assert caplog.text.count("answered 401") == 2


def test_when_no_member_listens_the_soonest_second_try_decides():
    """A member that is only down may be up in a second."""
    with HttpDouble(otherwise=reply(401)) as wrong, HttpDouble(otherwise=reply(503)) as down:
        assert refusal(ONE, wrong, down).answer is DeliveryOutcome.TRANSIENT
        assert refusal(ONE, wrong).answer is DeliveryOutcome.MISCONFIGURED


def test_a_doubt_about_any_member_is_a_doubt():
    with HttpDouble(otherwise=reply(503)) as down, HttpDouble(otherwise=raw()) as broken:
        assert refusal(ONE, down, broken).may_have_arrived


def test_members_that_hang_share_the_time_of_one(monkeypatch):
    monkeypatch.setattr(alertmanager, "TOTAL_SECONDS", 2.0)
    monkeypatch.setattr(alertmanager, "LEAST_SECONDS", 0.5)
    never = held(threading.Event(), reply(200))
    with HttpDouble(otherwise=never) as one, HttpDouble(otherwise=never) as two:
        began = time.monotonic()
        assert refusal(ONE, one, two).answer is DeliveryOutcome.TRANSIENT

    assert time.monotonic() - began < 3.5


def test_one_alert_that_is_refused_does_not_cost_the_others(caplog):
    """A batch is refused whole though its good alerts were taken; each is told alone."""
    with AlertmanagerDouble(disliked=frozenset({"gold"})) as double:
        send(SEVERAL, double)

        assert len(double.requests) == 1 + len(FIVE)
        assert set(double.queries) == set(FIVE) - {"gold"}
    assert "StreamingQueryFailed of gold is not taken" in caplog.text


def test_a_batch_of_which_no_alert_is_taken_is_poison():
    with AlertmanagerDouble(disliked=frozenset(FIVE)) as double:
        assert refusal(SEVERAL, double).answer is DeliveryOutcome.REJECTED


def test_an_outage_during_the_single_posts_is_an_outage():
    with AlertmanagerDouble(reply(400), reply(200), reply(401)) as double:
        assert refusal(SEVERAL, double).answer is DeliveryOutcome.MISCONFIGURED


def test_a_single_alert_that_is_refused_is_poison_at_once():
    with AlertmanagerDouble(disliked=frozenset({"bronze"})) as double:
        assert refusal(ONE, double).answer is DeliveryOutcome.REJECTED
        assert len(double.requests) == 1


def test_broken_text_is_valid_json_all_the_same(double):
    send(incident(reason="x\ud800"), double)

    assert json.loads(double.requests[0].body)[0]["annotations"]["reason"] == "x?"


@pytest.mark.parametrize(
    "urls", [[], ["http://elsewhere:9093/s3cret"], ["https://ok:9093", "ftp://x/s3cret"]]
)
def test_urls_that_cannot_be_used_are_refused_at_the_start(urls):
    with pytest.raises(ValueError, match="alertmanager_urls must") as caught:
        Alertmanager(urls)

    assert "s3cret" not in str(caught.value)
