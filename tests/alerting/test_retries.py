"""The policy of retries, and the table that states it."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest
from support.deliveries import gone, lost_answer, outage, poison, wrong_token
from support.repository import ROOT

from querypulse.alerting import retries
from querypulse.alerting.receivers.receiver import DeliveryError
from querypulse.alerting.retries import Breaker, attempts, pause_seconds


def rows(text):
    return [line for line in text.splitlines() if line.startswith("| ")]


def pauses(error, count):
    return [pause_seconds(error, failures) for failures in range(1, count + 1)]


def test_documentation_has_the_table_of_the_module():
    shown = rows(retries.__doc__)

    assert len(shown) == 10
    assert set(shown) <= set(rows((ROOT / "docs" / "notifications.md").read_text()))


@pytest.mark.parametrize("error", [outage(), lost_answer()])
def test_pauses_between_posts_double_up_to_a_minute(error):
    assert pauses(error, 9) == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert pause_seconds(error, 5000) == 60


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (wrong_token(), 300),
        (poison(), 300),
        (gone(), 3600),
        (outage(retry_after=0.5), 1),
        (outage(retry_after=200.0), 200),
    ],
)
def test_pause_after_one_failure(error, seconds):
    assert pause_seconds(error, 1) == seconds


def test_pauses_of_a_receiver_that_is_down():
    """Nobody waits within a pause; an attempt takes no time."""
    breaker, times = Breaker(), [0.0, 0.0, 0.0, 0.0, 0.0]
    for now in times:
        breaker = breaker.failed(now)
    for _ in range(12):
        times.append(breaker.not_before)
        breaker = breaker.failed(times[-1])

    assert times[5:11] == [1, 3, 7, 15, 22, 30]
    assert [b - a for a, b in pairwise(times[10:])] == [
        30,
        60,
        120,
        240,
        300,
        300,
    ]


class Post:
    """Fails with ``error``; records the waits instead of sleeping."""

    def __init__(self, error: DeliveryError, total_seconds: float = 10.0) -> None:
        self.error, self.count, self.waits = error, 0, []
        policy = attempts(total_seconds, threading.Event()).copy(sleep=self.waits.append)
        with pytest.raises(DeliveryError):
            policy(self.attempt)

    def attempt(self):
        self.count += 1
        raise self.error


def test_post_is_attempted_three_times_after_transient_errors():
    for _ in range(50):
        post = Post(outage())
        assert post.count == 3
        assert 0 <= post.waits[0] <= 0.25
        assert 0 <= post.waits[1] <= 0.5


def test_post_waits_as_long_as_the_receiver_asks_for_if_that_is_short():
    assert Post(outage(retry_after=2.0)).waits == [2.0, 2.0]


@pytest.mark.parametrize("error", [outage(retry_after=2.1), wrong_token(), poison(), gone()])
def test_post_is_attempted_once_after_other_errors(error):
    assert Post(error).count == 1


def test_post_does_not_begin_a_wait_that_its_time_does_not_allow():
    assert Post(outage(retry_after=2.0), total_seconds=1.0).count == 1


def test_closing_ends_the_attempts():
    closing = threading.Event()
    closing.set()
    counted = []

    def attempt():
        counted.append(1)
        raise outage()

    with pytest.raises(DeliveryError):
        attempts(10.0, closing)(attempt)
    assert len(counted) == 1
