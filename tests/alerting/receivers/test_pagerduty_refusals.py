"""Events that PagerDuty rejects: the page is kept, sent in a minimal form, or dropped."""

import time
from collections.abc import Iterator

import pytest
from support.http_double import raw, reply
from support.pagerduty_double import PagerDutyDouble, rate_limited
from support.receiver_incidents import ENDED_ONE, ONE, incident
from support.receivers import ROUTING_KEY, pagerduty

from querypulse.alerting.receivers.http import HttpError
from querypulse.alerting.receivers.pagerduty import PagerDuty
from querypulse.core.secret import Secret
from querypulse.core.states import DeliveryOutcome

NEXT_ROUTING_KEY = "S0123456789abcdefghijklmnopqrstu"


@pytest.fixture
def double() -> Iterator[PagerDutyDouble]:
    with PagerDutyDouble() as double:
        yield double


@pytest.mark.parametrize("status", [400, 413])
def test_rejected_event_is_retried_once_in_minimal_form(double, status):
    """A decoration must not cost a page."""
    double.script.append(reply(status))
    pagerduty(double).send(incident(summary="x" * 2000), time.time())
    (event,) = double.events

    assert len(double.requests) == 2
    assert set(event) == {"routing_key", "event_action", "dedup_key", "payload"}
    assert "custom_details" not in event["payload"]
    assert len(event["payload"]["summary"]) == 512


def test_rejected_minimal_form_is_final(double):
    """Two attempts, no more."""
    double.otherwise = reply(400)
    with pytest.raises(HttpError) as caught:
        pagerduty(double).send(ONE, time.time())

    assert caught.value.answer is DeliveryOutcome.REJECTED
    assert len(double.requests) == 2


def test_rejected_resolve_is_not_retried_at_once(double):
    """A resolve has nothing to leave out."""
    double.otherwise = reply(400)
    with pytest.raises(HttpError) as caught:
        pagerduty(double).send(ENDED_ONE, time.time())

    assert caught.value.answer is DeliveryOutcome.REJECTED
    assert len(double.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b'{"status":"invalid event","errors":["Length of \'routing_key\' is incorrect"]}',
        b'{"status":"invalid event","message":"Invalid Routing Key"}',
    ],
)
@pytest.mark.parametrize("sent", [ONE, ENDED_ONE], ids=["trigger", "resolve"])
def test_400_about_the_routing_key_is_a_misconfiguration(double, answer, sent):
    """The page is kept until the key is corrected; a minimal form would not help."""
    double.otherwise = reply(400, body=answer)
    with pytest.raises(HttpError, match="routing key") as caught:
        pagerduty(double).send(sent, time.time())

    assert caught.value.answer is DeliveryOutcome.MISCONFIGURED
    assert len(double.requests) == 1


def test_uncertain_first_attempt_stays_uncertain_after_the_second(double):
    """The full event may have arrived before it was rejected."""
    double.script.append(raw())
    double.otherwise = reply(400)
    with pytest.raises(HttpError) as caught:
        pagerduty(double).send(ONE, time.time())

    assert caught.value.may_have_arrived


def test_throttling_delays_the_retry(double):
    """PagerDuty states no delay, so the schedule waits at least five seconds."""
    double.otherwise = rate_limited()
    with pytest.raises(HttpError) as caught:
        pagerduty(double).send(ONE, time.time())

    assert (caught.value.answer, caught.value.retry_after) == (DeliveryOutcome.TRANSIENT, 5.0)
    assert len(double.requests) == 1


@pytest.mark.parametrize("key", ["", "hunter2", "x" * 31, "x" * 33])
def test_routing_key_of_wrong_length_is_rejected_without_showing_it(key):
    """The error names the setting and the expected length."""
    with pytest.raises(ValueError, match="pagerduty_routing_key must have 32") as caught:
        PagerDuty(Secret(key))

    assert not key or key not in str(caught.value)


def test_routing_key_from_a_file_may_end_in_a_newline(double):
    """As files usually do."""
    receiver = PagerDuty(Secret(f"{ROUTING_KEY}\n"), url=double.enqueue_url)
    receiver.send(ONE, time.time())

    assert double.events[0]["routing_key"] == ROUTING_KEY


def test_routing_key_is_shown_nowhere(double, caplog):
    """Not by the object, not in an error, not in a log."""
    double.otherwise = reply(403)
    receiver = pagerduty(double)
    with caplog.at_level("DEBUG"), pytest.raises(HttpError) as caught:
        receiver.send(ONE, time.time())

    assert ROUTING_KEY not in f"{receiver!r}{receiver}{caught.value!r}{caplog.text}"


def test_rotated_routing_key_is_used_for_the_next_event(double, tmp_path):
    """With an unusable key, the page is kept."""
    path = tmp_path / "key"
    path.write_text(ROUTING_KEY)
    key = Secret.from_file(path, setting="pagerduty_routing_key_file")
    receiver = PagerDuty(key, url=double.enqueue_url)
    path.write_text(NEXT_ROUTING_KEY)
    receiver.send(ONE, time.time())
    path.write_text("hunter2")
    with pytest.raises(HttpError) as caught:
        receiver.send(ONE, time.time())

    assert [event["routing_key"] for event in double.events] == [NEXT_ROUTING_KEY]
    assert caught.value.answer is DeliveryOutcome.MISCONFIGURED
    assert "hunter2" not in str(caught.value)
