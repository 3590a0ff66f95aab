"""No page is lost as long as one of two receivers works: a random test.

The pager randomly works, fails, rejects or answers 410, the phone works or fails; drivers are
killed between steps, and their successors restore the entries.
"""

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from support.clock import Clock
from support.deliveries import WALL, gone, incident, lost_answer, outage, poison, said, wrong_token

from querypulse.alerting.delivery import Delivery, Dispatch, Route
from querypulse.alerting.outbox_entry import OutboxEntry
from querypulse.alerting.receivers.receiver import ReceiverCapabilities
from querypulse.core.guard import Guard

pytestmark = pytest.mark.slow

QUERIES = ("a", "b", "c")
MODES = {
    "up": None,
    "down": outage(),
    "busy": outage(retry_after=5.0),
    "mute": lost_answer(),
    "wrong token": wrong_token(),
    "poisoned": poison(),
    "gone": gone(),
}


class FallibleReceiver:
    """A receiver; ``open`` holds the incidents it believes open, ``received`` every trigger it
    took.
    """

    capabilities = ReceiverCapabilities(per_minute=100.0)

    def __init__(self, name):
        self.name = name
        self.mode = "up"
        self.open = set()
        self.received = []

    def send(self, one, wall):
        (query, state) = said(one)
        if self.mode in {"up", "mute"}:
            if state == "firing":
                self.open.add(query)
                self.received.append((query, one.starts_at))
            else:
                self.open.discard(query)
        if MODES[self.mode] is not None:
            raise MODES[self.mode]

    def close(self):
        """Nothing needs closing."""


class TwoReceivers(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.clock, self.wall = Clock(), Clock(WALL)
        self.pager, self.phone = FallibleReceiver("pager"), FallibleReceiver("phone")
        self.fires = {}
        self.must_receive = {}
        self.has_rejected = False
        self.begin()

    def begin(self):
        routes = {"pager": Route(fallback="phone"), "phone": Route(severities=())}
        self.deliveries = [
            Delivery(line, Guard(), route=routes[line.name], clock=self.clock, wall=self.wall)
            for line in (self.pager, self.phone)
        ]
        self.dispatch = Dispatch(self.deliveries, wall=self.wall)

    @rule(query=st.sampled_from(QUERIES))
    def start_failing(self, query):
        if query not in self.fires:
            self.pass_time(1.0)
            self.fires[query] = incident(query, starts_at=self.wall.now)
            if query not in self.pager.open | self.phone.open:
                self.must_receive[query, self.wall.now] = len(
                    self.pager.received + self.phone.received
                )
            self.offer()

    @rule(query=st.sampled_from(QUERIES))
    def recover(self, query):
        if self.fires.pop(query, None) is not None:
            self.offer()

    @rule(seconds=st.sampled_from([0.3, 20.0, 61.0, 400.0]))
    def time_passes(self, seconds):
        self.pass_time(seconds)
        self.offer()

    @rule(mode=st.sampled_from(sorted(MODES)))
    def the_pager_changes(self, mode):
        self.pager.mode = mode
        self.has_rejected |= mode == "poisoned"

    @rule(mode=st.sampled_from(["up", "down", "wrong token"]))
    def the_phone_changes(self, mode):
        self.phone.mode = mode

    @rule()
    def crash(self):
        entries = {one.name: one._outbox.entries for one in self.deliveries}
        kept = msgspec.json.decode(
            msgspec.json.encode(entries), type=dict[str, tuple[OutboxEntry, ...]]
        )
        self.begin()
        restored = {said(one)[0] for one in self.dispatch.restore(kept)}
        assert restored >= set(self.fires), "an open incident was forgotten"
        self.offer()

    def pass_time(self, seconds):
        self.clock.now += seconds
        self.wall.now += seconds

    def offer(self):
        """One evaluation of the worker, and the steps of the delivery threads."""
        self.dispatch.offer(self.fires.values())
        for one in self.deliveries:
            while (one._outbox.next_at(self.clock.now, self.wall.now) or 0) <= self.clock.now:
                if not one._outbox._wants(self.wall.now):
                    break
                one._step()

    def teardown(self):
        self.pager.mode = "up"
        self.phone.mode = "up"
        for _ in range(40):
            self.pass_time(400.0)
            self.offer()
        for (query, starts_at), received_before in self.must_receive.items():
            received = {*self.pager.received, *self.phone.received}
            later = (self.pager.received + self.phone.received)[received_before:]
            assert (query, starts_at) in received or query in dict(later), (
                f"the page of {query} was lost"
            )
        assert self.phone.open <= set(self.fires)
        if not self.has_rejected:
            assert self.pager.open == set(self.fires)


class TestTwoReceivers(TwoReceivers.TestCase):
    settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
