"""One row for each incident: what is sent of it, in which order, and what is lost."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from msgspec.structs import replace
from support.deliveries import (
    WALL,
    gone,
    incident,
    lost_answer,
    outage,
    over,
    poison,
    said,
    stale,
    wrong_token,
)

from querypulse.alerting.delivery.outbox import Outbox, OutboxRow
from querypulse.alerting.receivers.receiver import ReceiverCapabilities

PAGER = ReceiverCapabilities(per_minute=100.0, orphan_after_seconds=0.0)
PLAIN = ReceiverCapabilities()
GROUPS = ReceiverCapabilities(
    resend_seconds=60.0,
    resend_resolved_seconds=300.0,
    orphan_after_seconds=90.0,
    groups_itself=True,
)
FIRING, RESOLVED = ("a", "firing"), ("a", "resolved")
WARNING = {"severity": "warning"}


def stored(outbox):
    """Its rows, written and read again."""
    return msgspec.json.decode(msgspec.json.encode(outbox.rows), type=tuple[OutboxRow, ...])


class Harness:
    """An outbox, a clock, and what the receiver gets."""

    def __init__(self, capabilities=PLAIN, **limits):
        self.capabilities = capabilities
        self.outbox = Outbox(capabilities, **limits)
        self.now = 0.0

    @property
    def wall(self):
        return WALL + self.now

    def offer(self, *incidents):
        self.now += 0.001
        self.outbox.offer(incidents, self.wall)
        return self

    def at(self, seconds):
        self.now = float(seconds)
        return self

    def begin(self):
        return self.outbox.begin(self.now, self.wall)

    def end(self, error=None):
        if error is None:
            self.outbox.delivered(self.wall)
        else:
            self.outbox.failed(error, self.now, self.wall)

    def send(self, error=None, flush=0):
        message = self.outbox.begin(self.now, self.wall, flush)
        if message is None:
            return None
        self.end(error)
        return said(message)

    def send_all(self):
        return list(iter(self.send, None))

    def crash(self):
        successor = Harness(self.capabilities).at(self.now)
        successor.outbox.restore(stored(self.outbox), self.wall)
        return successor

    @property
    def losses(self):
        return {why: count for why, count in self.outbox.losses.items() if count}


def delivered(*incidents, capabilities=PLAIN):
    harness = Harness(capabilities).offer(*incidents)
    harness.send_all()
    return harness


def test_incident_is_sent_once_and_resolved_once():
    harness = Harness().offer(incident())
    assert harness.send_all() == [FIRING]
    assert harness.offer(incident(summary="new text")).send_all() == []
    assert harness.offer(incident(revision=1)).send_all() == [FIRING]
    assert harness.offer().send_all() == [RESOLVED]
    assert (harness.outbox.rows, harness.losses) == ((), {})


@pytest.mark.parametrize(
    ("options", "error", "sent", "losses"),
    [
        (WARNING, outage(), [], {"obsolete": 1}),
        (WARNING, lost_answer(), [RESOLVED], {}),
        ({}, outage(), [FIRING, RESOLVED], {}),
        ({}, lost_answer(), [FIRING, RESOLVED], {}),
        ({}, wrong_token(), [FIRING, RESOLVED], {}),
        (WARNING, wrong_token(), [], {"obsolete": 1}),
    ],
)
def test_incident_that_ends_before_it_was_accepted(options, error, sent, losses):
    harness = Harness().offer(incident(**options))
    harness.send(error)
    harness.offer().at(1000)
    assert harness.send_all() == sent
    assert harness.losses == losses


@pytest.mark.parametrize(
    ("error", "sent"), [(outage(), []), (lost_answer(), [FIRING]), (None, [FIRING])]
)
def test_incident_that_begins_again_is_open_until_its_resolve_was_accepted(error, sent):
    harness = delivered(incident()).offer()
    harness.send(error)
    harness.offer(incident()).at(1000)
    assert harness.send_all() == sent


def test_short_occurrence_while_a_resolve_is_in_flight_is_sent():
    harness = delivered(incident()).offer()
    assert harness.begin().is_over
    harness.offer(incident()).offer()
    harness.end()
    assert harness.send_all() == [FIRING, RESOLVED]


@pytest.mark.parametrize("error", [None, outage(), lost_answer()])
def test_successor_sends_what_the_receiver_may_not_know(error):
    harness = Harness().offer(incident())
    harness.send(error)
    successor = harness.crash().offer(incident())
    assert successor.send_all() == ([] if error is None else [FIRING])
    assert successor.offer().send_all() == [RESOLVED]


@pytest.mark.parametrize("own", [[], [FIRING]], ids=["not sent yet", "sent"])
def test_receiver_does_not_get_again_what_a_row_that_is_restored_late_says_it_knows(own):
    """The spool of an earlier process could not be read at once."""
    earlier, harness = delivered(incident()), Harness().offer(incident())
    assert [harness.send() for _ in own] == own
    harness.outbox.restore(stored(earlier.outbox), harness.wall)

    assert harness.offer(incident()).send_all() == []
    assert harness.offer(incident(revision=1)).send_all() == [FIRING]
    assert harness.offer().send_all() == [RESOLVED]


def test_warning_that_has_ended_before_it_was_offered_is_not_sent_and_a_page_is():
    ended = [over(incident(query, **words), WALL) for query, words in (("w", WARNING), ("a", {}))]

    assert Harness().offer(*ended).send_all() == [FIRING, RESOLVED]


def test_muted_incident_is_sent_when_the_silence_ends_and_is_no_loss():
    harness = Harness().offer(incident(muted="silenced"))
    assert harness.send_all() == []
    assert harness.outbox.take_overdue(harness.wall + 999, 60.0) == ()
    assert harness.offer(incident()).send_all() == [FIRING]
    assert harness.offer(incident(muted="silenced", revision=1)).send_all() == []
    assert harness.offer().send_all() == [RESOLVED]
    assert harness.losses == {}


def test_rejected_message_is_sent_again_when_its_version_changes_or_a_resolve_is_refused():
    harness = Harness().offer(incident())
    assert (harness.send(poison()), harness.at(1000).send()) == (FIRING, None)
    assert [one.query for one in harness.outbox.take_overdue(harness.wall, 9e9)] == ["a"]
    assert harness.offer(incident(revision=1)).send_all() == [FIRING]
    assert harness.offer().send(poison()) == RESOLVED
    began = harness.now
    assert harness.at(began + 299).send() is None
    assert harness.at(began + 300).send() == RESOLVED
    assert harness.losses == {"rejected": 1}


def test_most_urgent_is_sent_first_and_failed_ones_last():
    harness = delivered(incident("x")).offer(
        incident("w", severity="warning"), incident("b", starts_at=WALL + 1), incident("a")
    )
    assert harness.send(wrong_token()) == FIRING
    assert [query for query, _ in harness.send_all()] == ["b", "w", "x"]


def test_once_a_receiver_is_back_the_page_that_failed_most_goes_before_resolves_and_warnings():
    """In the outage all took turns, the page first, so it has failed at least as often."""
    harness = delivered(incident("x"), incident("y"))
    harness.offer(incident("w", severity="warning"), incident("a"))
    for _ in range(5):
        harness.at(harness.outbox.next_at(harness.now, harness.wall)).send(outage())
    assert harness.outbox.circuit_open
    harness.at(harness.outbox.next_at(harness.now, harness.wall)).send()
    assert harness.send() == FIRING


def test_flush_tries_each_difference_once_despite_its_pause():
    harness = Harness().offer(incident("a"), incident("b"))
    harness.send(gone())
    harness.send(gone())
    assert harness.send() is None
    assert {harness.send(gone(), flush=1), harness.send(gone(), flush=1)} == {
        FIRING,
        ("b", "firing"),
    }
    assert harness.send(flush=1) is None
    assert harness.outbox.is_flushed(harness.wall, 1)


def test_late_page_says_how_late_it_is():
    harness = Harness().offer(incident())
    message = harness.at(100).begin()
    assert round(message.alerts[0].late_seconds) == 100


def test_receiver_of_single_alerts_learns_which_of_them_go_on_in_another_incident():
    """A member of a group recovers, and fails alone later: the group's message must not end it."""
    harness = delivered(incident("*"), capabilities=GROUPS)
    (group,) = [row.incident for row in harness.outbox.rows]
    ended = replace(group, alerts=(*group.alerts, group.alerts[0].ended(WALL + 5)))
    own = replace(incident("b"), alerts=group.alerts)
    messages = {}
    harness.offer(ended, own)
    while (message := harness.begin()) is not None:
        messages[message.query] = message
        harness.end()

    assert [alert.is_superseded for alert in messages["*"].alerts] == [False, True]
    assert [alert.is_superseded for alert in messages["b"].alerts] == [False]


def test_receiver_that_groups_itself_gets_each_change_and_repeats():
    harness = delivered(incident("a", "b"), capabilities=GROUPS)
    assert harness.send() is None
    both = incident("a", "b")
    one_ended = replace(both, alerts=(both.alerts[0], both.alerts[1].ended(harness.wall)))
    assert harness.offer(one_ended).send_all() == [("a+b", "firing")]
    assert harness.at(harness.now + 59).send() is None
    assert harness.at(harness.now + 60).send() == ("a+b", "firing")
    assert harness.offer(over(both, harness.wall)).send_all() == [("a+b", "resolved")]
    assert harness.at(harness.now + 60).send() == ("a+b", "resolved")
    assert harness.at(harness.now + 300).send() is None
    assert harness.outbox.rows == ()


@pytest.mark.parametrize(
    ("capabilities", "after", "sent"),
    [
        (PAGER, 0, [RESOLVED]),
        (GROUPS, 80, []),
        (GROUPS, 91, [RESOLVED]),
        (ReceiverCapabilities(), 999, []),
    ],
)
def test_stale_incident_is_ended_where_it_may_be_open(capabilities, after, sent):
    harness = Harness(capabilities).offer(stale())
    harness.offer()
    assert harness.outbox.pending(harness.wall) == 0
    assert harness.at(after).send_all() == sent
    assert harness.losses == {}


def test_hundred_stale_incidents_cost_a_hundred_requests_and_wait_for_real_ones():
    harness = Harness(PAGER).offer(*[stale(f"q{number}") for number in range(100)])
    harness.offer(incident("a"))
    assert harness.send(outage()) == FIRING
    assert harness.send() is None
    sent = []
    while (at := harness.outbox.next_at(harness.now, harness.wall)) is not None:
        sent.append(harness.at(max(at, harness.now)).send())
    assert sent[0] == FIRING
    assert len([one for one in sent if one is not None]) == 101


def test_resolve_that_is_refused_for_good_does_not_hold_stale_incidents_back():
    harness = delivered(incident(), capabilities=PAGER).offer()
    assert harness.send(poison()) == RESOLVED
    assert harness.offer(stale("b")).send() == ("b", "resolved")


def test_stale_incident_waits_while_a_firing_one_waits_to_be_posted_again():
    harness = Harness(GROUPS).offer(incident(), stale(**WARNING))
    assert harness.send_all() == [FIRING]
    assert harness.at(61).send(outage()) == FIRING
    assert harness.at(200).send_all() == [FIRING, RESOLVED]


def test_incident_under_a_stale_key_is_sent_and_restored_rows_end_what_is_stale():
    harness = Harness(PAGER).offer(stale()).offer(incident())
    assert harness.send_all() == [FIRING]
    successor = harness.crash().offer(incident(), stale("b"))
    assert successor.send_all() == []


def test_driver_may_have_reported_its_end_and_left_no_row_of_it():
    harness = Harness(PAGER).offer(incident())
    assert harness.send_all() == [FIRING]
    successor = harness.crash().offer(incident(), stale("*"), stale("*", "warning"), stale("b"))
    assert successor.send_all() == [("*", "resolved"), ("*", "resolved")]


def test_full_outbox_keeps_what_is_most_urgent_and_counts_each_loss_once():
    harness = Harness(max_rows=2)
    warning, first, second = incident("w", **WARNING), incident("a"), incident("b")
    harness.offer(warning, first)
    harness.offer(warning, first, second)
    harness.offer(warning, first, second)
    assert {row.incident.query for row in harness.outbox.rows} == {"a", "b"}
    assert harness.losses == {"evicted": 1}
    harness.send_all()
    harness.offer(warning, first)
    harness.send_all()
    harness.offer(warning, first)
    assert harness.send_all() == [("w", "firing")]


def test_what_a_receiver_knows_already_gives_way_first_and_is_no_loss():
    harness = Harness(GROUPS, max_rows=2).offer(incident("a"), incident("b"))
    harness.send_all()
    harness.offer(incident("b")).send_all()
    harness.offer(incident("b"), incident("w", **WARNING))

    assert {row.incident.query for row in harness.outbox.rows} == {"b", "w"}
    assert harness.losses == {}


def test_refused_repeat_of_a_resolve_is_the_last():
    harness = delivered(incident(), capabilities=GROUPS).offer()
    assert harness.send() == RESOLVED
    assert harness.at(harness.now + 60).send(poison()) == RESOLVED

    assert (harness.outbox.rows, harness.losses) == ((), {"rejected": 1})


def test_incident_that_ended_a_day_ago_is_given_up():
    harness = Harness().offer(incident())
    harness.send(wrong_token())
    harness.offer().at(24 * 3600 + 10)
    assert (harness.send(), harness.losses) == (None, {"expired": 1})


# -- any history ----------------------------------------------------------------------------------


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


class OneReceiver(RuleBasedStateMachine):
    """Whatever happens: after quiet, the receiver knows what is wanted, with few requests."""

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
        rows, self.outbox = stored(self.outbox), Outbox(PAGER)
        self.outbox.restore(rows, WALL + self.now)
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


@pytest.mark.slow
class TestOneReceiver(OneReceiver.TestCase):
    settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
