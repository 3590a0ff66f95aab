"""When a receiver is sent what: pauses, an outage, and the rate limit."""

from __future__ import annotations

import pytest
from support.deliveries import WALL, gone, incident, lost_answer, outage, wrong_token

from querypulse.alerting.delivery.outbox import Outbox, Schedule
from querypulse.alerting.receivers.receiver import ReceiverCapabilities


class Tries:
    """Messages that wait, tried as soon as they are due."""

    def __init__(self, *keys):
        self.schedule, self.keys, self.now, self.times = Schedule(), list(keys), 0.0, []
        self.failures = dict.fromkeys(keys)

    def until(self, end, error=None, *, is_news=False):
        def due(key):
            return self.schedule.due_at(self.failures[key], is_news=is_news)

        while self.keys and min(map(due, self.keys)) <= end:
            self.now = max(self.now, min(map(due, self.keys)))
            ready = [key for key in self.keys if due(key) <= self.now]
            key = min(ready, key=lambda key: self.failures[key].count if self.failures[key] else 0)
            self.times.append(self.now)
            if error is None:
                self.keys.remove(key)
                self.schedule.delivered()
            else:
                failures = self.schedule.failed(self.failures[key], error, self.now, 0)
                self.failures[key] = failures
        self.now = end
        return self


@pytest.mark.parametrize(
    ("error", "times"),
    [
        (outage(), [0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 811]),
        (lost_answer(), [0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 811]),
        (wrong_token(), [0, 300, 600, 900]),
        (gone(), [0]),
        (outage(retry_after=200.0), [0, 200, 400, 600, 800, 1000]),
    ],
)
@pytest.mark.fault("Receivers", "A receiver is down", "Attempts follow the schedule")
def test_retries_follow_the_table(error, times):
    assert Tries("a").until(1000, error).times == times


@pytest.mark.parametrize(("seconds", "sent_at"), [(0.5, 1), (2, 3), (5, 7), (20, 31)])
@pytest.mark.parametrize("count", [1, 3, 8, 50])
def test_first_success_after_an_outage_sends_all_that_waits(count, seconds, sent_at):
    keys = [f"q{number}" for number in range(count)]
    tries = Tries(*keys).until(seconds, outage()).until(60)
    assert tries.keys == []
    (at,) = {at for at in tries.times if at > seconds}
    assert at <= sent_at


@pytest.mark.fault(
    "Receivers", "Many alerts while a receiver is down", "They cause no more attempts than one"
)
def test_many_pages_cause_few_attempts_in_an_outage():
    assert len(Tries(*map(str, range(50))).until(1000, outage(), is_news=True).times) < 65


def test_new_page_waits_five_seconds_in_an_outage_but_never_less_than_asked():
    tries = Tries("a").until(500, outage())
    schedule = tries.schedule
    assert schedule.is_open
    assert schedule.due_at(None, is_news=True) == 260
    assert schedule.due_at(None, is_news=False) == 511
    schedule.failed(tries.failures["a"], outage(retry_after=100.0), 511.0, 0)
    assert schedule.due_at(None, is_news=True) == 611
    schedule.failed(None, wrong_token(), 900.0, 0)
    assert not schedule.is_open
    assert schedule.due_at(None, is_news=False) < 900


def test_lost_connection_after_many_busy_answers_is_the_first_failure_of_an_outage():
    tries = Tries("a").until(45, outage(retry_after=5.0))
    assert len(tries.times) == 10
    assert not tries.schedule.is_open

    tries.schedule.failed(None, outage(), 50.0, 0)
    assert tries.schedule.due_at(None, is_news=False) == 51


@pytest.mark.parametrize(
    ("error", "attempts"),
    [(outage(), 2), (lost_answer(), 2), (outage(retry_after=1.0), 1), (wrong_token(), 1)],
)
def test_flush_tries_again_at_once_after_a_lost_connection(error, attempts):
    """The driver is about to exit: nothing would try later."""
    outbox, made = Outbox(ReceiverCapabilities()), 0
    outbox.offer((incident(),), WALL)
    while not outbox.is_flushed(WALL, 7):
        assert outbox.begin(0.0, WALL, 7)
        outbox.failed(error, 0.0, WALL)
        made += 1

    assert made == attempts


@pytest.mark.parametrize("per_minute", [1.0, 30.0, 100.0])
def test_no_minute_exceeds_the_limit(per_minute):
    schedule, now, times = Schedule(per_minute), 0.0, []
    for _ in range(300):
        now = schedule.token_at(now)
        times.append(now)
        schedule.spend(now)
    for began in times:
        assert sum(began <= at < began + 60.0 for at in times) <= per_minute
