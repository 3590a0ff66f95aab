"""How often a night of eight hours wakes the person on call: lifecycle, outbox and PagerDuty.

One fake clock. PagerDuty notifies when a trigger opens an incident; it drops a trigger of a key
that is open, and a resolve of one that is not.
"""

from __future__ import annotations

import pytest
from support.lifecycle_harness import WALL, LifecycleHarness
from support.lifecycle_table import HEALTHY, cycles

from querypulse.alerting.delivery.deliveries import Route
from querypulse.alerting.delivery.outbox import Outbox
from querypulse.alerting.receivers.pagerduty import PagerDuty

A = "a"
FAILS = "StreamingQueryFailed"
NIGHT = 8 * 3600
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


def test_query_that_heals_itself_every_twenty_minutes_pages_three_times():
    process, beginnings = Process(Pager()), range(1200, NIGHT, 1200)
    process.play([HEALTHY, *cycles(FAILS, *beginnings, failing=60, recovery="commits")], NIGHT)

    assert process.pager.pages == ["querypulse/etl/a"] * 3


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
