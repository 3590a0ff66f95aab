"""Whatever happens: after quiet, the receiver knows what is wanted, with few requests."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from support.deliveries import (
    WALL,
    gone,
    incident,
    lost_answer,
    outage,
    poison,
    said,
    stale,
    wrong_token,
)

from querypulse.alerting.outbox import Outbox, OutboxRow
from querypulse.alerting.receivers.receiver import ReceiverCapabilities

pytestmark = pytest.mark.slow

QUERIES = ("a", "b", "c")
PAGER = ReceiverCapabilities(per_minute=100.0, stale_after_seconds=0.0)
MODES = {
    "up": None,
    "down": outage(),
    "busy": outage(retry_after=5.0),
    "mute": lost_answer(),
    "wrong token": wrong_token(),
    "poisoned": poison(),
    "gone": gone(),
}


class OneReceiver(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.outbox, self.now, self.mode = Outbox(PAGER), 0.0, "up"
        self.open, self.pages, self.wanted, self.owed = set(), [], {}, {}
        self.requests = self.changes = 0
        self.has_rejected = False

    @rule(query=st.sampled_from(QUERIES))
    def fails(self, query):
        if query not in self.wanted:
            self.now += 1.0
            self.wanted[query] = incident(query, starts_at=WALL + self.now)
            if query not in self.open:
                self.owed[query] = len(self.pages)
            self.evaluate()

    @rule(query=st.sampled_from(QUERIES))
    def recovers(self, query):
        if self.wanted.pop(query, None) is not None:
            self.evaluate()

    @rule(query=st.sampled_from(QUERIES))
    def is_seen_healthy(self, query):
        if query not in self.wanted:
            self.outbox.offer([*self.wanted.values(), stale(query)], WALL + self.now)
            self.changes += 1
            self.evaluate()

    @rule(seconds=st.sampled_from([0.3, 20.0, 61.0, 400.0]))
    def time_passes(self, seconds):
        self.now += seconds
        self.evaluate()

    @rule(mode=st.sampled_from(sorted(MODES)))
    def receiver_changes(self, mode):
        self.mode = mode
        self.has_rejected |= mode == "poisoned"

    @rule()
    def crash(self):
        rows = msgspec.json.encode(self.outbox.rows)
        self.outbox = Outbox(PAGER)
        self.outbox.restore(msgspec.json.decode(rows, type=tuple[OutboxRow, ...]), WALL + self.now)
        self.evaluate()

    def evaluate(self):
        self.changes += 1
        self.outbox.offer(self.wanted.values(), WALL + self.now)
        while (message := self.outbox.begin(self.now, WALL + self.now)) is not None:
            self.requests += 1
            self.answer(message)

    def answer(self, message):
        query, status = said(message)
        if self.mode in {"up", "mute"}:
            if status == "firing":
                self.open.add(query)
                self.pages.append(query)
            else:
                self.open.discard(query)
        if (error := MODES[self.mode]) is None:
            self.outbox.delivered(WALL + self.now)
        else:
            self.outbox.failed(error, self.now, WALL + self.now)

    def teardown(self):
        self.mode = "up"
        for _ in range(30):
            self.now += 400.0
            self.evaluate()
        assert self.requests <= 12 * self.changes, "the receiver gets too many requests"
        if not self.has_rejected:
            assert self.open == set(self.wanted)
            for query, before in self.owed.items():
                assert query in self.pages[before:], f"the page of {query} was lost"


class TestOneReceiver(OneReceiver.TestCase):
    settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
