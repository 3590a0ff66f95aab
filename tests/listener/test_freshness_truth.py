"""What is counted, against the truth of simulated months: outages, hangs, planned stops and restarts.

The truth is written down beside: since when data is unread, and which seconds nobody planned.
"""

from __future__ import annotations

import random

import msgspec
import pytest
from support.story import Story

from querypulse.listener.state.freshness import Freshness, FreshnessCounts, Promise

HOUR = 3600.0
WALL = 1_700_000_000.0
STORED_EVERY = 15.0
BATCH = 2.0
PROMISE = Promise(120.0, 0.99)


class Truth:
    """The data is complete until ``until``, and gets older from then on where that is not raised."""

    def __init__(self):
        self.at = self.until = self.total = self.bad = 0.0

    def passes(self, until, *, planned=False):
        passed = until - self.at
        if planned:
            self.until += passed
        else:
            self.total += passed
            self.bad += min(passed, max(0.0, until - self.until - PROMISE.seconds))
        self.at = until


class Life:
    """A query in one process after the other, with data in most triggers."""

    def __init__(self, seed, trigger):
        self.random = random.Random(seed)
        self.trigger = trigger
        self.truth = Truth()
        self.now = 0.0
        self.restarts = 0
        self.left: dict[str, Freshness] = {}
        self.start_process()

    def start_process(self):
        """A new process, whose monotonic clock begins somewhere."""
        self.zero = self.now - self.random.uniform(0, 1e6)
        self.story = Story()
        self.counts = FreshnessCounts()
        self.counts.restore(self.left, self.now - self.zero, WALL + self.zero)
        self.batch = 0
        self.stored_at = 0.0
        self.story.started(at=self.now - self.zero)
        self.evaluate()

    def evaluate(self, planned=False):
        """Count until now, and store that if it is due."""
        at = self.now - self.zero
        until = {"a": float("inf")} if planned else {}
        snapshot = self.story.state.snapshot(at)
        self.newest = self.counts.update(snapshot, {"a": PROMISE}, until, WALL + self.now)["a"]
        if planned or self.now - self.stored_at >= STORED_EVERY:
            self.stored_at = self.now
            self.left = self.counts.kept(WALL + self.zero)

    def works(self, until):
        """A batch or an idle trigger again and again; all that has arrived is read."""
        while self.now < until:
            began = self.now + self.random.uniform(0.7, 1.1) * self.trigger
            self.truth.passes(began)
            self.now = began
            has_data = self.random.random() < 0.8
            if has_data:
                self.now += BATCH
                self.truth.passes(self.now)
                self.batch += 1
                self.story.commit(batch=self.batch, at=self.now - self.zero, seconds=BATCH)
            else:
                self.story.idle(at=self.now - self.zero)
            self.truth.until = max(self.truth.until, began)
            self.evaluate()

    def waits(self, seconds, *, counts=True, planned=False):
        """Nothing is committed; the process counts while it lives."""
        end = self.now + seconds
        while counts and end - self.now > STORED_EVERY:
            self.now += STORED_EVERY
            self.truth.passes(self.now, planned=planned)
            self.evaluate(planned)
        self.now = end
        self.truth.passes(end, planned=planned)
        if counts:
            self.evaluate(planned)

    def is_killed(self):
        """Between two stores, for as long as a page takes, or a node."""
        died_at = self.now + self.random.uniform(0, STORED_EVERY)
        self.truth.passes(died_at)
        self.now = died_at
        self.waits(self.random.expovariate(1 / 900), counts=False)
        self.restarts += 1
        self.left = msgspec.json.decode(msgspec.json.encode(self.left), type=dict[str, Freshness])
        self.start_process()

    def fails(self):
        """The query fails and is started again."""
        self.story.failed(at=self.now - self.zero)
        self.waits(self.random.expovariate(1 / 300))
        self.story.started(at=self.now - self.zero)
        self.evaluate()

    def hangs(self):
        self.waits(self.random.expovariate(1 / 600))

    def is_stopped(self):
        """A planned stop, and a planned restart of the process in the middle of it."""
        self.evaluate(planned=True)
        self.story.ended(at=self.now - self.zero)
        self.waits(self.random.expovariate(1 / 1800), planned=True)
        self.waits(self.random.expovariate(1 / 600), counts=False, planned=True)
        self.restarts += 1
        self.start_process()


def lived(seed, *, hours, restarts, trigger=10.0) -> Life:
    """So many hours with so many restarts, and other trouble between them."""
    life = Life(seed, trigger)
    events = [life.is_killed] * 4 + [life.fails, life.hangs, life.is_stopped]
    pause = hours * HOUR / restarts * 5 / len(events)
    while life.now < hours * HOUR:
        life.works(life.now + life.random.uniform(0, 2 * pause))
        life.random.choice(events)()
    return life


def assert_true(life):
    """Both counters are right within a thousandth."""
    truth = life.truth
    good = truth.total - truth.bad
    assert life.newest.total_seconds == pytest.approx(truth.total, rel=0.001)
    assert life.newest.good_seconds == pytest.approx(good, rel=0.001)
    assert truth.bad > 0.005 * truth.total
    assert life.newest.left_out_seconds == pytest.approx(life.now - truth.total, rel=0.001)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_counters_are_right_over_simulated_days_with_restarts(seed):
    life = lived(seed, hours=60, restarts=12)

    assert life.restarts > 2
    assert_true(life)


@pytest.mark.nightly
def test_counters_are_right_over_10_000_simulated_hours_with_500_restarts():
    life = lived(7, hours=10_000, restarts=500, trigger=50.0)

    assert life.restarts > 450
    assert_true(life)
