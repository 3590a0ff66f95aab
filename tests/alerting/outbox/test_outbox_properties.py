"""No page is lost, whatever happens on the way: a random test.

It plays random incidents, failures of every kind, lost answers, advancing clocks, and drivers that
are killed at any moment, even during a request; the successor restores the spool's entries.
"""

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.deliveries import (
    WALL,
    incident,
    lost_answer,
    outage,
    over,
    poison,
    said,
    wrong_token,
)

from querypulse.alerting.outbox import Outbox
from querypulse.alerting.outbox_entry import OutboxEntry
from querypulse.alerting.receivers.receiver import ReceiverCapabilities

pytestmark = pytest.mark.slow

QUERIES = ("a", "b", "c")
SEVERITIES = {"a": "critical", "b": "critical", "c": "warning"}
OUTAGES = {
    "down": (outage(), False),
    "busy": (outage(retry_after=3.0), False),
    "wrong token": (wrong_token(), False),
    "lost on the way": (lost_answer(), False),
    "taken but unanswered": (lost_answer(), True),
}
LONG = 2000.0


class Wire(RuleBasedStateMachine):
    """One outbox and one receiver; ``fires`` is the truth, ``open`` what the receiver believes."""

    capabilities = ReceiverCapabilities()

    def __init__(self):
        super().__init__()
        self.outbox = Outbox(self.capabilities)
        self.now = 0.0
        self.fires = {}
        self.open = set()
        self.left = set()
        self.must_receive = set()
        self.surely = {}
        self.under_way = None

    @property
    def wall(self):
        return WALL + self.now

    # -- events -------------------------------------------------------------------------------

    @rule(query=st.sampled_from(QUERIES))
    def start_failing(self, query):
        if query not in self.fires:
            self.now += 1.0
            severity = SEVERITIES[query]
            self.fires[query] = incident(query, severity=severity, starts_at=self.wall)
            self.offer()
            if severity == "critical":
                self.must_receive.add((query, self.fires[query].starts_at))

    @rule(query=st.sampled_from(QUERIES))
    def remind(self, query):
        if query in self.fires:
            one = self.fires[query]
            self.fires[query] = msgspec.structs.replace(one, revision=one.revision + 1)
            self.offer()

    @rule(query=st.sampled_from(QUERIES), with_end=st.booleans())
    def recover(self, query, with_end):
        ended = self.fires.pop(query, None)
        if ended is not None:
            self.now += 1.0
            self.offer(*([over(ended, self.wall)] if with_end else []))

    @rule(seconds=st.sampled_from([0.3, 2.0, 70.0, 400.0]))
    def time_passes(self, seconds):
        self.now += seconds
        self.offer()

    @precondition(lambda self: self.under_way is None)
    @rule(flushing=st.booleans())
    def begin_request(self, flushing):
        """Send a request, if one is due."""
        self.under_way = self.outbox.begin(self.now, self.wall, int(flushing))
        if self.under_way is not None:
            self.keep_order(self.under_way)

    @precondition(lambda self: self.under_way is not None)
    @rule()
    def succeed(self):
        sent, self.under_way = self.under_way, None
        self.receive(sent)
        self.note(sent)
        self.outbox.delivered(sent, self.wall)

    @precondition(lambda self: self.under_way is not None)
    @rule(kind=st.sampled_from(sorted(OUTAGES)))
    def fail(self, kind):
        sent, self.under_way = self.under_way, None
        error, taken = OUTAGES[kind]
        if taken:
            self.receive(sent)
        self.outbox.failed(sent, error, self.now, self.wall)

    @rule(arrived=st.booleans())
    def crash(self, arrived):
        """The entries are on disk; a request in progress has arrived or not."""
        if self.under_way is not None and arrived:
            self.receive(self.under_way)
        self.under_way = None
        text = msgspec.json.encode(self.outbox.entries)
        self.outbox = Outbox(self.capabilities)
        self.outbox.restore(msgspec.json.decode(text, type=tuple[OutboxEntry, ...]), self.wall)

    # -- invariants ---------------------------------------------------------------------------

    def offer(self, *ended):
        self.outbox.offer([*self.fires.values(), *ended], self.wall)

    def keep_order(self, sent):
        (query, state) = said(sent)
        assert state == "firing" or query in self.left, "a resolve was sent before its trigger"
        self.left.add(query)

    def receive(self, sent):
        (query, state) = said(sent)
        if state == "firing":
            if query not in self.open:
                # Like PagerDuty: a trigger on an open key notifies nobody.
                received = {one for one in self.must_receive if one <= (query, sent.starts_at)}
                self.must_receive -= {one for one in received if one[0] == query}
            self.open.add(query)
        else:
            self.open.discard(query)
            self.surely.pop(query, None)

    def note(self, sent):
        """A revision that was surely delivered is never delivered twice."""
        (query, state) = said(sent)
        if state == "firing":
            delivered = (sent.starts_at, sent.revision)
            assert self.surely.get(query) != delivered, f"{query} received {delivered} twice"
            self.surely[query] = delivered

    @invariant()
    def at_most_one_entry_per_key(self):
        keys = [entry.incident.key for entry in self.outbox.entries]
        assert len(keys) == len(set(keys)) <= len(QUERIES)

    def teardown(self):
        """Once the failures stop, the receiver learns the truth and got every page."""
        if self.under_way is not None:
            self.outbox.failed(self.under_way, outage(), self.now, self.wall)
        for _ in range(20):
            self.now += LONG
            self.offer()
            while (sent := self.outbox.begin(self.now, self.wall)) is not None:
                self.keep_order(sent)
                self.receive(sent)
                self.outbox.delivered(sent, self.wall)
        assert self.open == set(self.fires)
        assert self.must_receive == set()
        assert self.outbox.pending(self.wall) == 0
        assert not any(self.outbox.losses[why] for why in ("evicted", "rejected"))


class TestOneReceiver(Wire.TestCase):
    settings = settings(max_examples=120, stateful_step_count=40, deadline=None)


class SlowWire(Wire):
    """The same with a receiver that takes few requests a minute."""

    capabilities = ReceiverCapabilities(per_minute=20.0, reconciles=True)


class TestOneSlowReceiver(SlowWire.TestCase):
    settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


class Crowd(RuleBasedStateMachine):
    """Far more incidents than the outbox has room for."""

    MAX_ENTRIES, MAX_BYTES = 4, 4000

    def __init__(self):
        super().__init__()
        self.outbox = Outbox(max_entries=self.MAX_ENTRIES, max_bytes=self.MAX_BYTES)
        self.now = 0.0
        self.fires = {}

    @rule(
        number=st.integers(0, 11),
        severity=st.sampled_from(["critical", "warning"]),
        size=st.sampled_from([1, 900]),
    )
    def start_failing(self, number, severity, size):
        query = f"{severity}-{number}"
        one = incident(query, severity=severity, summary="x" * size, starts_at=WALL + self.now)
        self.fires.setdefault(query, one)
        self.offer()

    @rule(number=st.integers(0, 11), severity=st.sampled_from(["critical", "warning"]))
    def recover(self, number, severity):
        self.fires.pop(f"{severity}-{number}", None)
        self.offer()

    @rule(error=st.sampled_from([None, outage(), poison(), lost_answer()]))
    def send(self, error):
        sent = self.outbox.begin(self.now, WALL + self.now)
        if sent is None:
            return
        if error is None:
            self.outbox.delivered(sent, WALL + self.now)
        else:
            self.outbox.failed(sent, error, self.now, WALL + self.now)

    def offer(self):
        self.now += 1.0
        protected = {entry.incident.key for entry in self.outbox.entries if must_stay(entry)}
        self.outbox.offer(self.fires.values(), WALL + self.now)
        left = {entry.incident.key for entry in self.outbox.entries}
        # One that is over gives way to one that fires, and may leave room for a warning.
        firing = {one.key for one in self.fires.values()}
        for key in (protected & firing) - left:
            rest = [entry for entry in self.outbox.entries if not must_stay(entry)]
            assert rest == [], f"{key} was evicted, and a less important one stayed"

    @invariant()
    def there_is_room(self):
        entries = self.outbox.entries
        assert len(entries) <= self.MAX_ENTRIES
        assert (
            len(entries) <= 1
            or sum(map(len, map(msgspec.json.encode, entries))) <= self.MAX_BYTES + 99
        )


def must_stay(entry):
    return entry.is_critical and entry.is_unsent and not entry.is_over and not entry.dead


class TestCrowd(Crowd.TestCase):
    settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
