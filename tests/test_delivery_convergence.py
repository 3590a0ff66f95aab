"""Whatever happens on the way, a receiver ends up knowing what fires: played by chance."""

from hypothesis import given
from hypothesis import strategies as st

from querypulse.alerting import Alert
from querypulse.alerting.ledger import Ledger
from querypulse.alerting.receivers.receiver import DeliveryError

QUERIES = ("a", "b", "c")
LOST_ANSWER = DeliveryError("no answer", transient=True, may_have_arrived=True)
ERRORS = {
    "refused": DeliveryError("answered 401", transient=False),
    "lost on the way": DeliveryError("down", transient=True),
    "taken but unanswered": LOST_ANSWER,
    "lost and unanswered": LOST_ANSWER,
}
OUTCOMES = st.sampled_from(["taken", *ERRORS])
STEPS = st.lists(
    st.tuples(
        st.sets(st.sampled_from(QUERIES)), st.lists(OUTCOMES, max_size=4), st.floats(0.0, 400.0)
    ),
    max_size=20,
)


def alert(query, starts_at) -> Alert:
    labels = {"alertname": "QueryFailed", "app": "etl", "query": query, "severity": "critical"}
    return Alert(labels, {}, starts_at)


class Play:
    """A ledger and a receiver that takes, refuses and loses as told."""

    def __init__(self):
        self.ledger = Ledger()
        self.now = 0.0
        self.holds = set()
        self.triggered = set()
        self.sends = 0

    def step(self, firing, outcomes, seconds):
        self.now += seconds
        offered = [alert(query, 1000.0 + self.now) for query in sorted(firing)]
        self.ledger.offer(offered, 1000.0 + self.now)
        outcomes = list(outcomes)
        while waiting := self.ledger.due(self.now, 0):
            self.send(waiting[0], outcomes.pop(0) if outcomes else "taken")

    def send(self, one, outcome):
        self.sends += 1
        query = one.labels["query"]
        if one.ends_at is None:
            self.triggered.add(query)
        assert query in self.triggered, "a resolve was sent before its trigger"
        if outcome.startswith("taken"):
            (self.holds.add if one.ends_at is None else self.holds.discard)(query)
        wall = 1000.0 + self.now
        if outcome == "taken":
            self.ledger.delivered(one, wall)
        else:
            self.ledger.failed(one, ERRORS[outcome], self.now, wall, 0)


@given(STEPS, st.sets(st.sampled_from(QUERIES)))
def test_whatever_fails_the_receiver_ends_up_knowing_what_fires(steps, last):
    """After the failures stop, its view is the truth, and nothing is pending."""
    play = Play()
    for firing, outcomes, seconds in steps:
        play.step(firing, outcomes, seconds)
    play.step(last, [], 1000.0)

    assert play.holds == last
    assert play.ledger.differences() == []


@given(STEPS)
def test_without_failures_each_change_is_told_exactly_once(steps):
    """No repetition, no omission."""
    play, before, changes = Play(), set(), 0
    for firing, _, seconds in steps:
        changes += len(before ^ firing)
        before = firing
        play.step(firing, [], seconds)

        assert play.holds == firing

    assert play.sends == changes
