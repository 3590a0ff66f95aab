"""A day of receivers that are down, slow or lying costs bounded attempts and memory. Fake clock.

The real dispatch, deliveries and outboxes; the steps of their threads are called by the test.
"""

from __future__ import annotations

import gc
import logging
from functools import partial
from itertools import cycle

import pytest
from support.clock import Clock
from support.deliveries import WALL, gone, incident, lost_answer, outage, poison, said, wrong_token

from querypulse.alerting.delivery import Delivery, Notifier, Route
from querypulse.alerting.outbox import Outbox
from querypulse.alerting.receivers.receiver import ReceiverCapabilities
from querypulse.core.guard import Guard

HOUR = 3600.0
TICK = 60.0
SLOW_SECONDS = 10.0
"""The longest that one attempt takes; see ``TOTAL_SECONDS``."""
EVERY, OPEN_FOR = 300.0, 900.0
LIES = (gone, poison, wrong_token, lost_answer, partial(outage, 300.0), None)
ROOM = 20
"""Rows of each outbox: small, so that they are full early in the day."""

DOWN = Route(fallback="works")
ROUTES = {"down": DOWN, "slow": DOWN, "works": Route(severities=())}
"""The one that works gets only what the others do not take."""
MOST_ATTEMPTS = 2 * 24 * 60
MORE_OBJECTS = 2000


class DayReceiver:
    """A receiver whose attempts take ``seconds`` each and end as ``outcomes`` say, in turn."""

    capabilities = ReceiverCapabilities(per_minute=60.0, resend_seconds=60.0)

    def __init__(self, name, clock, outcomes, seconds=0.0):
        self.name = name
        self.attempts = 0
        self.accepted = set()
        self.free_at = 0.0
        self.outcomes = cycle(outcomes)
        self._clock = clock
        self._seconds = seconds

    def send(self, incident, wall):
        self.attempts += 1
        self.free_at = self._clock.now + self._seconds
        # An error that is raised twice would keep both tracebacks.
        if (make := next(self.outcomes)) is not None:
            raise make()
        self.accepted.add(said(incident)[0])

    def close(self):
        """Nothing needs closing."""


class Day:
    """Four receivers; every five minutes a query fails, and recovers after a quarter of an hour."""

    def __init__(self):
        self.clock, self.wall = Clock(), Clock(WALL)
        self.lines = [
            DayReceiver("down", self.clock, [outage]),
            DayReceiver("slow", self.clock, [lost_answer], SLOW_SECONDS),
            DayReceiver("lying", self.clock, LIES),
            DayReceiver("works", self.clock, [None]),
        ]
        self.deliveries = [
            Delivery(
                line,
                Guard(),
                route=ROUTES.get(line.name, Route()),
                clock=self.clock,
                wall=self.wall,
            )
            for line in self.lines
        ]
        for delivery in self.deliveries:
            delivery._outbox = Outbox(DayReceiver.capabilities, max_rows=ROOM)
        self.notifier = Notifier(self.deliveries, wall=self.wall)

    def pass_until(self, seconds):
        while self.clock.now < seconds:
            self.clock.now += TICK
            self.wall.now += TICK
            first, last = (self.clock.now - OPEN_FOR) // EVERY, self.clock.now // EVERY
            self.failed = int(last)
            firing = range(max(0, int(first)), self.failed)
            self.notifier.offer(
                incident(f"q{number}", starts_at=WALL + EVERY * number) for number in firing
            )
            for line, delivery in zip(self.lines, self.deliveries, strict=True):
                self._work(line, delivery)
        gc.collect()
        return len(gc.get_objects())

    def _work(self, line, delivery):
        """Step its thread while it is free and something is due."""
        while line.free_at <= self.clock.now and self._is_due(delivery):
            delivery._step()

    def _is_due(self, delivery):
        due_at = delivery._outbox.next_at(self.clock.now, self.wall.now)
        return due_at is not None and due_at <= self.clock.now


@pytest.mark.slow
@pytest.mark.fault(
    "Receivers",
    "24 simulated hours of receivers that are down, slow or lying, with an alert every five minutes",
    "Attempts and memory are bounded, losses are counted, the fallback gets every alert",
)
def test_day_of_failing_receivers_costs_bounded_attempts_and_memory(caplog):
    # pytest keeps every record.
    caplog.set_level(logging.CRITICAL, "querypulse")
    day = Day()
    early = day.pass_until(8 * HOUR)
    late = day.pass_until(24 * HOUR)

    down, slow, lying, works = day.lines
    assert late - early < MORE_OBJECTS
    assert lying.attempts < MOST_ATTEMPTS
    assert max(down.attempts, slow.attempts) < MOST_ATTEMPTS / 4
    assert {len(delivery._outbox.rows) for delivery in day.deliveries} <= set(range(ROOM + 1))
    assert day.deliveries[0].losses["evicted"] >= day.failed - 2 * ROOM
    # The last ones are not overdue yet.
    assert works.accepted >= {f"q{number}" for number in range(day.failed - 1)}
    assert down.accepted == set()


@pytest.mark.slow
def test_receiver_that_is_back_gets_what_is_still_open(caplog):
    caplog.set_level(logging.CRITICAL, "querypulse")
    day = Day()
    day.pass_until(6 * HOUR)
    down = day.lines[0]
    down.outcomes = cycle([None])
    day.pass_until(6 * HOUR + 600.0)

    assert down.accepted >= {f"q{number}" for number in range(day.failed - 3, day.failed - 1)}
