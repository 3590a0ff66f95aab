"""How often a night of eight hours wakes the person on call: lifecycle, outbox and PagerDuty.

One fake clock. PagerDuty notifies when a trigger opens an incident; it drops a trigger of a key
that is open, and a resolve of one that is not.
"""

from __future__ import annotations

import pytest
from support.lifecycle_harness import WALL, LifecycleHarness
from support.lifecycle_table import HEALTHY, all_of

from querypulse.alerting.delivery import Route
from querypulse.alerting.outbox import Outbox
from querypulse.alerting.receivers.pagerduty import PagerDuty

A = "a"
FAILS, STALLS, SLOW = "StreamingQueryFailed", "StreamingQueryStalled", "StreamingBatchSlow"
HOUR, NIGHT = 3600, 8 * 3600
PROCESS_SECONDS = 300
CRITICAL = Route(("critical",))
PER_MINUTE = 120
"""PagerDuty refuses more requests."""


class Pager:
    """PagerDuty: ``pages`` are the keys that notified the person on call, ``open`` open incidents."""

    def __init__(self):
        self.requests, self.pages, self.open = [], [], set()

    def take(self, message, now):
        self.requests.append(now)
        assert sum(now - at < 60.0 for at in self.requests) <= PER_MINUTE
        if message.is_over:
            self.open.discard(message.key)
        elif message.key not in self.open:
            self.open.add(message.key)
            self.pages.append(message.key)


class Process(LifecycleHarness):
    """One process of the driver, from second ``began``, with an outbox that the pager accepts."""

    def __init__(self, pager, began=0):
        super().__init__()
        self.pager, self.now = pager, float(began)
        self.outbox = Outbox(PagerDuty.capabilities)

    def restore(self, earlier):
        """Continue from the spool of an earlier process."""
        rows = earlier.outbox.rows
        self.outbox.restore(rows, WALL + self.now)
        self.lifecycle.restore([row.incident for row in rows], self.now)
        self.lifecycle.restore_opened(earlier.lifecycle.opened, self.now)

    def tick(self):
        incidents, wall = super().tick(), WALL + self.now
        self.outbox.offer(
            [one for one in self.updated if CRITICAL.takes(one) or self.outbox.holds(one.key)], wall
        )
        while (message := self.outbox.begin(self.now, wall)) is not None:
            self.pager.take(message, self.now)
            self.outbox.delivered(wall)
        return incidents

    def _shown(self):
        return *super()._shown(), len(self.pager.requests)


def every(seconds, name, *, lasting):
    """Unhealthy for so long at each multiple of ``seconds``, otherwise healthy."""
    return [
        entry
        for at in range(seconds, NIGHT, seconds)
        for entry in ((at, A, name), (at + lasting, A, "commits"))
    ]


COMMITS = all_of(0, "commits", "abc")
RECOVER = all_of(2 * HOUR, "commits", "abc")
CAUSES = {"a": "OutOfMemoryError", "b": "ConcurrentAppendException", "c": "KafkaException"}


@pytest.mark.parametrize(
    ("story", "causes", "pages"),
    [
        pytest.param(COMMITS, {}, [], id="healthy"),
        pytest.param([HEALTHY, *every(1200, SLOW, lasting=300)], {}, [], id="slow every 20 min"),
        pytest.param([HEALTHY, *every(60, STALLS, lasting=1)], {}, [], id="a glitch a minute"),
        pytest.param([HEALTHY, (HOUR, A, "stopped")], {}, [], id="an announced stop"),
        pytest.param([HEALTHY, (HOUR, A, FAILS)], {}, ["a"], id="a failure until the morning"),
        pytest.param([HEALTHY, *every(1200, FAILS, lasting=60)], {}, ["a"] * 3, id="heals itself every 20 min"),
        pytest.param([*COMMITS, *all_of(HOUR, FAILS, "abc"), *RECOVER], {}, ["*"], id="one cause"),
        pytest.param([*COMMITS, (HOUR, A, FAILS), *all_of(HOUR + 5, FAILS, "bc"), *RECOVER], {}, ["a", "*"], id="one cause within 10 s"),
        pytest.param([*COMMITS, *all_of(HOUR, FAILS, "abc"), *RECOVER], CAUSES, ["a", "b", "c"], id="three causes"),
        pytest.param([*COMMITS, (HOUR, "*", STALLS), (HOUR + 60, A, FAILS), *RECOVER, (2 * HOUR, "*", "healthy")], {}, ["*", "a"], id="a failure while the driver is stalled"),
    ],
)  # fmt: skip
def test_night_of_one_process(story, causes, pages):
    process = Process(Pager())
    process.causes = causes
    process.play(story, NIGHT)

    assert [key.rpartition("/")[2] for key in process.pager.pages] == pages


@pytest.mark.parametrize(
    ("healthy_seconds", "is_restored", "pages"),
    [(10, True, 1), (10, False, 1), (240, True, 3), (240, False, 96)],
    ids=["fails at once", "fails at once, no spool", "fails after 4 min", "after 4 min, no spool"],
)
def test_night_of_a_crash_loop_over_processes(healthy_seconds, is_restored, pages):
    """Without a spool, a process that was healthy for a while ends what earlier ones left open."""
    process = Process(Pager())
    for began in range(0, NIGHT, PROCESS_SECONDS):
        earlier, process = process, Process(process.pager, began)
        if is_restored:
            process.restore(earlier)
        story = [(began, A, "commits"), (began + healthy_seconds, A, FAILS)]
        process.play(story, began + PROCESS_SECONDS - 1)

    assert len(process.pager.pages) == pages
    assert process.pager.open == {"querypulse/etl/a"}


@pytest.mark.parametrize("count", [1, 8, 100])
def test_start_of_healthy_queries_costs_one_request_for_each_and_one_for_the_driver(count):
    """That ends what an earlier process may have left open."""
    process = Process(Pager())
    process.play([(0, f"q{number}", "commits") for number in range(count)], 600)

    assert len(process.pager.requests) == count + 1
    assert process.pager.pages == []
