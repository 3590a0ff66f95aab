"""The delivery queue of one receiver: what is due, in which order, when it is retried or dropped."""

import pytest
from msgspec.structs import replace
from support.deliveries import (
    WALL,
    alert,
    gone,
    incident,
    lost_answer,
    outage,
    over,
    poison,
    said,
    wrong_token,
)

from querypulse.alerting.alert import Incident
from querypulse.alerting.outbox import Outbox
from querypulse.alerting.outbox_entry import DeliveryState, OutboxEntry
from querypulse.alerting.receivers.receiver import ReceiverCapabilities
from querypulse.core.states import LOSS_REASONS

DAY = 24 * 3600.0


class OutboxHarness:
    """An outbox, a clock, and the messages that were sent."""

    def __init__(self, *delivered, capabilities=None):
        self.outbox = Outbox(capabilities)
        self.now = 0.0
        if delivered:
            self.offer(*delivered)
            self.send_all()

    @property
    def wall(self):
        return WALL + self.now

    def offer(self, *incidents, stale_resolves=()):
        self.outbox.offer(incidents, self.wall, stale_resolves)
        return self

    def begin(self, urgent_round=0):
        return self.outbox.begin(self.now, self.wall, urgent_round)

    def send(self, error=None, urgent_round=0):
        """Send the next due message, if any, and let it fail with ``error``."""
        sent = self.begin(urgent_round)
        if sent is None:
            return None
        if error is None:
            self.outbox.delivered(sent, self.wall)
        else:
            self.outbox.failed(sent, error, self.now, self.wall, urgent_round)
        return said(sent)

    def send_all(self):
        """Send and deliver everything that is due."""
        return list(iter(self.send, None))

    def at(self, seconds):
        self.now = float(seconds)
        return self

    @property
    def losses(self):
        return {why: count for why, count in self.outbox.losses.items() if count}

    def entry(self, key=None) -> OutboxEntry:
        (entry,) = self.outbox.entries
        return entry

    def crash(self):
        """The driver is killed; its successor restores the entries."""
        successor = OutboxHarness(capabilities=self.outbox._capabilities).at(self.now)
        successor.outbox.restore(self.outbox.entries, self.wall)
        return successor


# -- triggers and resolves --------------------------------------------------------------------


def test_firing_incident_is_due_until_it_is_delivered():
    """Success is recorded after the send, so a crash repeats a message rather than losing it."""
    harness = OutboxHarness().offer(incident())
    assert harness.send(outage()) == ("a", "firing")
    assert harness.at(1).send() == ("a", "firing")
    assert harness.at(9e6).send() is None


def test_changed_annotations_do_not_notify_again():
    """Annotations change with every poll; that is no reason to notify."""
    harness = OutboxHarness(incident(summary="60 s without a commit"))
    harness.offer(incident(summary="61 s without a commit"))

    assert harness.send() is None


def test_new_revision_is_sent_once():
    """The revision grows when a member joins or a reminder is due."""
    harness = OutboxHarness(incident())
    harness.offer(incident("a", "b", revision=1))

    assert harness.send_all() == [("a+b", "firing")]


@pytest.mark.parametrize("ended", ["left out", "offered with its end"])
def test_ended_incident_is_resolved_with_its_end_time(ended):
    """The end time does not depend on when the resolve gets through."""
    harness = OutboxHarness(incident()).at(60)
    harness.offer(*([over(incident(), WALL + 60)] if ended != "left out" else []))
    harness.send(outage())
    harness.at(90).offer()
    resolve = harness.begin()

    assert (resolve.starts_at, resolve.ends_at) == (WALL, WALL + 60)


def test_member_that_ended_earlier_keeps_its_end_time():
    """Only members that still fire end with the incident."""
    harness = OutboxHarness(incident("a", "b"))
    first, second = incident("a", "b").alerts
    ended_first = over(incident("a"), WALL + 5).alerts[0]
    both = incident("a", "b")
    harness.offer(type(both)((ended_first, second))).at(60).offer()

    assert [one.ends_at for one in harness.begin().alerts] == [WALL + 5, WALL + 60]
    assert first.ends_at is None


def test_incident_never_ends_before_it_starts():
    """Wall clocks are sometimes set back."""
    harness = OutboxHarness(incident()).at(-500).offer()

    assert harness.begin().ends_at == WALL


def test_undelivered_warning_that_ended_is_dropped_and_counted():
    """Nothing arrived during the outage, so there is nothing to resolve."""
    harness = OutboxHarness().offer(incident(severity="warning"))
    harness.send(outage())
    harness.at(60).offer()

    assert harness.at(999).send() is None
    assert harness.losses == {"obsolete": 1}
    assert harness.outbox.entries == ()


def test_undelivered_critical_incident_that_ended_is_sent_and_resolved():
    """People should learn that a query failed at night, even if it recovered."""
    harness = OutboxHarness().offer(incident())
    harness.send(outage())
    harness.at(60).offer()

    assert harness.send_all() == [("a", "firing"), ("a", "resolved")]
    assert (harness.losses, harness.outbox.entries) == ({}, ())


def test_warning_trigger_that_may_have_arrived_is_resolved():
    """Otherwise the incident would stay open forever."""
    harness = OutboxHarness().offer(incident(severity="warning"))
    harness.send(lost_answer())
    harness.at(60).offer()

    assert harness.send_all() == [("a", "resolved")]


def test_critical_trigger_that_may_not_have_arrived_is_sent_again_before_its_resolve():
    """A duplicate costs nothing; a lost page does."""
    harness = OutboxHarness().offer(incident())
    harness.send(lost_answer())
    harness.at(60).offer()

    assert harness.send_all() == [("a", "firing"), ("a", "resolved")]


def test_trigger_that_may_have_arrived_is_sent_again_while_firing():
    harness = OutboxHarness().offer(incident())
    harness.send(lost_answer())

    assert harness.at(1).send() == ("a", "firing")


@pytest.mark.parametrize("severity", ["critical", "warning"])
def test_trigger_delivered_after_the_incident_ended_is_resolved(severity):
    """The incident ends while the request is in progress."""
    harness = OutboxHarness().offer(incident(severity=severity))
    sent = harness.begin()
    harness.at(5).offer()
    harness.outbox.delivered(sent, harness.wall)

    assert harness.send_all() == [("a", "resolved")]


def test_resolve_delivered_after_the_incident_reopened_is_followed_by_a_trigger():
    """Otherwise the receiver would believe that the incident is over."""
    harness = OutboxHarness(incident()).at(60).offer()
    sent = harness.begin()
    harness.offer(incident(starts_at=WALL + 60))
    harness.outbox.delivered(sent, harness.wall)

    assert harness.send_all() == [("a", "firing")]


def test_short_occurrence_during_a_resolve_request_is_sent():
    """The occurrence is critical, and the receiver knows only the previous one."""
    harness = OutboxHarness(incident()).at(60).offer()
    sent = harness.begin()
    harness.at(61).offer(incident(starts_at=WALL + 61))
    harness.outbox.delivered(sent, harness.wall)
    harness.at(62).offer()

    assert harness.send_all() == [("a", "firing"), ("a", "resolved")]


def test_reopened_incident_is_sent_after_its_pending_resolve():
    """A trigger on a key that is still open would notify nobody."""
    harness = OutboxHarness(incident(revision=3)).at(60).offer()
    harness.send(outage())
    harness.at(70).offer(incident(starts_at=WALL + 70))
    resolve = harness.at(999).begin()
    harness.outbox.delivered(resolve, harness.wall)

    assert (resolve.starts_at, resolve.ends_at) == (WALL, WALL + 60)
    assert harness.send_all() == [("a", "firing")]
    harness.offer(incident(starts_at=WALL + 70, revision=1))
    assert harness.send_all() == [("a", "firing")], "its first reminder is sent"


def test_new_occurrence_after_a_resolve_that_may_have_arrived_is_sent():
    """Even a short critical occurrence is sent."""
    harness = OutboxHarness(incident()).at(60).offer()
    harness.send(lost_answer())
    harness.at(70).offer(incident(starts_at=WALL + 70)).at(80).offer()

    assert harness.send_all() == [("a", "resolved"), ("a", "firing"), ("a", "resolved")]


def test_new_occurrence_after_a_trigger_that_may_have_arrived_follows_a_resolve():
    harness = OutboxHarness().offer(incident())
    harness.send(lost_answer())
    harness.at(60).offer().at(70).offer(incident(starts_at=WALL + 70))

    assert harness.send_all() == [("a", "resolved"), ("a", "firing")]


def test_rejected_resolve_does_not_suppress_the_next_page():
    harness = OutboxHarness(incident()).at(60).offer()
    harness.send(outage())
    harness.at(70).offer(incident(starts_at=WALL + 70)).at(80).send(poison())

    assert harness.send_all() == [("a", "firing")]


def test_resolve_is_sent_although_the_next_occurrence_is_silenced():
    harness = OutboxHarness(incident()).at(60).offer()
    harness.send(outage())
    harness.at(70).offer(incident(starts_at=WALL + 70, muted="silenced"))

    assert harness.at(90).send_all() == [("a", "resolved")]


def test_pending_resolve_survives_a_driver_crash():
    harness = OutboxHarness(incident()).at(60).offer()
    harness.send(outage())
    harness.at(70).offer(incident(starts_at=WALL + 70))
    successor = harness.crash().offer(incident(starts_at=WALL + 70))

    assert successor.send_all() == [("a", "resolved"), ("a", "firing")]


def test_trigger_is_sent_before_the_resolve_of_another_incident():
    """The superseding alert arrives before the superseded one ends."""
    harness = OutboxHarness(incident("slow", severity="warning")).at(60)
    harness.offer(incident("dead", starts_at=WALL + 60))

    assert harness.send_all() == [("dead", "firing"), ("slow", "resolved")]


# -- muted ------------------------------------------------------------------------------------


def test_muted_incident_is_neither_sent_nor_counted_as_lost():
    harness = OutboxHarness().offer(incident(muted="silenced until noon"))
    assert harness.send() is None
    harness.at(60).offer()

    assert harness.send() is None
    assert (harness.losses, harness.outbox.entries) == ({}, ())


def test_muted_incident_is_sent_when_the_silence_ends():
    """Its delivery is neither late nor overdue, because it is queued only then."""
    harness = (
        OutboxHarness().offer(incident(muted="silenced until noon")).at(7200).offer(incident())
    )

    assert harness.outbox.overdue(harness.wall, 60.0) == ()
    assert "delivery_delay_seconds" not in harness.begin().alerts[0].annotations


def test_incident_muted_after_delivery_is_resolved_and_not_repeated():
    harness = OutboxHarness(incident()).offer(incident(revision=1, muted="silenced until noon"))
    assert harness.send() is None
    harness.at(60).offer()

    assert harness.send_all() == [("a", "resolved")]


# -- failures ---------------------------------------------------------------------------------


def test_send_order_is_new_before_failed_then_critical_then_oldest():
    """An incident that fails to send never delays one that was not tried yet."""
    harness = OutboxHarness().offer(failing := incident("failing"))
    harness.send(outage())
    fresh = [
        incident("warning", severity="warning", starts_at=WALL - 9),
        incident("later", starts_at=WALL - 3),
        incident("earlier", starts_at=WALL - 5),
    ]
    harness.at(10).offer(failing, *fresh)

    assert [query for query, _ in harness.send_all()] == ["earlier", "later", "warning", "failing"]


def test_wrong_token_keeps_the_page_and_retries_every_five_minutes():
    """Someone corrects the token eventually."""
    harness = OutboxHarness().offer(incident())
    for attempt in range(50):
        assert harness.at(attempt * 300).send(wrong_token()) == ("a", "firing")
        assert harness.at(attempt * 300 + 299.9).send() is None

    assert harness.at(50 * 300).send() == ("a", "firing")
    assert harness.losses == {}


def test_new_occurrence_of_a_warning_does_not_inherit_the_retry_pause():
    """The new occurrence is due at once."""
    harness = OutboxHarness()
    for seconds in (0, 60):
        harness.at(seconds).offer(incident(severity="warning", starts_at=harness.wall))
        assert harness.send(wrong_token()) == ("a", "firing")
        harness.at(seconds + 1).offer()

    assert harness.outbox.next_at(harness.now, harness.wall) is None


def test_rejected_message_is_not_sent_again():
    harness = OutboxHarness().offer(incident())
    harness.send(poison())

    assert harness.at(9e4).offer(incident(summary="changed text")).send() is None
    assert harness.losses == {"rejected": 1}
    assert harness.outbox.pending(harness.wall) == 0


def test_rejected_message_is_tried_once_more_when_it_changes():
    """The message changes when its revision grows or the incident ends."""
    harness = OutboxHarness().offer(incident())
    harness.send(poison())
    harness.offer(incident(revision=1))
    assert harness.send(poison()) == ("a", "firing")
    harness.at(60).offer()
    assert harness.send(poison()) == ("a", "firing")

    assert harness.send() is None
    assert harness.losses == {"rejected": 3}
    assert [one.key for one in harness.outbox.overdue(harness.wall, 1e9)] == [incident().key]


def test_incident_that_may_be_open_is_resolved_although_its_message_was_rejected():
    """The answer to the first attempt is lost, and the second attempt is rejected."""
    harness = OutboxHarness().offer(incident())
    harness.send(lost_answer())
    assert harness.at(100).offer().send(poison()) == ("a", "firing")

    assert harness.send_all() == [("a", "resolved")]
    assert harness.losses == {"rejected": 1}
    assert [one.key for one in harness.outbox.overdue(harness.wall, 1e9)] == [incident().key]


def test_rejected_message_that_cannot_be_open_is_not_resolved():
    harness = OutboxHarness().offer(incident())
    harness.send(outage())
    assert harness.at(100).offer().send(poison()) == ("a", "firing")

    assert harness.send_all() == []


def test_message_that_changed_during_its_rejected_request_is_tried():
    harness = OutboxHarness().offer(incident())
    sent = harness.begin()
    harness.offer(incident(revision=1))
    harness.outbox.failed(sent, poison(), harness.now, harness.wall)

    assert harness.send_all() == [("a", "firing")]


def test_rejected_resolve_is_retried_for_a_day():
    """While the incident is open at the receiver, the next failure would notify nobody."""
    harness = OutboxHarness(incident()).at(60).offer()
    for attempt in range(3):
        assert harness.at(60 + attempt * 300).send(poison()) == ("a", "resolved")
        assert harness.at(60 + attempt * 300 + 299).send() is None
    assert harness.losses == {}

    harness.at(60 + 25 * 3600).offer()
    assert (harness.outbox.entries, harness.losses) == ((), {"expired": 1})


def test_failure_after_a_rejected_resolve_is_sent_after_that_resolve():
    harness = OutboxHarness(incident()).at(60).offer()
    harness.send(poison())
    harness.at(70).offer(incident(starts_at=WALL + 70))

    assert harness.send_all() == [("a", "resolved"), ("a", "firing")]


def test_failure_is_sent_even_if_the_preceding_resolve_is_rejected_for_good():
    harness = OutboxHarness(incident()).at(60).offer()
    harness.send(poison())
    harness.at(70).offer(incident(starts_at=WALL + 70))
    assert harness.send(poison()) == ("a", "resolved")

    assert harness.send_all() == [("a", "firing")]
    assert harness.losses == {"rejected": 1}


def refused_resolve():
    """The query fails again at 70 s, under a key whose resolve is rejected."""
    harness = OutboxHarness(incident()).at(60).offer()
    harness.send(poison())
    harness.at(70).offer(incident(starts_at=WALL + 70))
    harness.send(poison())
    return harness


def overdue(harness):
    return [said(one) for one in harness.outbox.overdue(harness.wall, 60.0)]


def test_delivered_failure_is_overdue_while_the_resolve_of_its_key_is_rejected():
    """The first incident is still open at the receiver, so the receiver notifies nobody."""
    harness = refused_resolve()
    assert harness.send_all() == [("a", "firing")]

    assert overdue(harness.at(129)) == []
    assert overdue(harness.at(130)) == [("a", "firing")]
    assert harness.send_all() == []
    assert overdue(harness.crash().at(7200)) == [("a", "firing")]


def test_failure_is_not_overdue_once_the_resolve_of_its_key_is_accepted():
    harness = refused_resolve()
    harness.send_all()
    assert harness.at(400).offer().send_all() == [("a", "resolved")]

    assert harness.offer(incident(starts_at=WALL + 400)).send_all() == [("a", "firing")]
    assert overdue(harness.at(4000)) == []


def test_resolve_accepted_at_the_second_attempt_leaves_nothing_overdue():
    harness = OutboxHarness(incident()).at(60).offer()
    harness.send(poison())
    harness.at(70).offer(incident(starts_at=WALL + 70))

    assert harness.send_all() == [("a", "resolved"), ("a", "firing")]
    assert overdue(harness.at(4000)) == []


def listing(*members, words="as found"):
    """The alert that queries without a name share."""
    return Incident((replace(alert("unnamed", summary=words), members=members),))


def test_rejected_alert_of_unnamed_queries_is_retried_when_another_query_joins():
    harness = OutboxHarness().offer(listing("c9c58242"))
    harness.send(poison())
    assert harness.offer(listing("c9c58242", words="changed text")).send() is None

    assert harness.offer(listing("c9c58242", "2d1a0d2d")).send() == ("unnamed", "firing")


def test_query_that_joins_during_a_rejected_request_triggers_a_retry():
    harness = OutboxHarness().offer(listing("c9c58242"))
    sent = harness.outbox.begin(harness.now, harness.wall)
    harness.offer(listing("c9c58242", "2d1a0d2d"))
    harness.outbox.failed(sent, poison(), harness.now, harness.wall)

    assert harness.send() == ("unnamed", "firing")


def test_query_that_leaves_a_rejected_alert_triggers_no_retry():
    harness = OutboxHarness().offer(listing("c9c58242", "2d1a0d2d"))
    harness.send(poison())

    assert harness.offer(listing("2d1a0d2d")).send() is None


def test_query_that_joins_a_delivered_alert_notifies_nobody():
    harness = OutboxHarness(listing("c9c58242"))

    assert harness.offer(listing("c9c58242", "2d1a0d2d")).send() is None


def test_receiver_that_answers_410_is_retried_hourly_without_loss():
    harness = OutboxHarness().offer(incident())
    for attempt in range(4):
        assert harness.at(attempt * 3600).send(gone()) == ("a", "firing")
        assert harness.at(attempt * 3600 + 3599).send() is None

    assert harness.losses == {}
    assert not harness.outbox.circuit_open
    assert harness.outbox.pending(harness.wall) == 1
    assert harness.at(4 * 3600).send() == ("a", "firing")


def test_after_a_410_a_new_incident_is_tried_at_once_and_releases_the_pending_ones():
    harness = OutboxHarness().offer(incident("a"))
    harness.send(gone())
    harness.at(600).offer(incident("a"), incident("b"))

    assert harness.send_all() == [("b", "firing"), ("a", "firing")]


def test_incidents_pending_after_a_410_become_overdue():
    harness = OutboxHarness().offer(incident())
    harness.send(gone())

    assert harness.at(59).outbox.overdue(harness.wall, 60.0) == ()
    assert [said(one) for one in harness.at(60).outbox.overdue(harness.wall, 60.0)] == [
        ("a", "firing")
    ]


def test_flush_overrides_every_pause_once():
    """A flush attempts each pending message at once, and only once."""
    harness = OutboxHarness().offer(incident())
    harness.send(wrong_token())
    assert not harness.outbox.is_attempted(harness.wall, 1)
    assert harness.send(wrong_token(), urgent_round=1) == ("a", "firing")

    assert harness.send(urgent_round=1) is None
    assert harness.outbox.is_attempted(harness.wall, 1)


# -- late -------------------------------------------------------------------------------------


def test_late_page_states_its_delay_and_keeps_its_identity():
    """A page sent after an outage of an hour keeps its revision, and thus its message id."""
    harness = OutboxHarness().offer(incident())
    harness.send(outage())
    sent = harness.at(3600).begin()

    assert sent.alerts[0].annotations["delivery_delay_seconds"] == "3600"
    assert (sent.key, sent.starts_at, sent.revision) == (incident().key, WALL, 0)
    harness.outbox.delivered(sent, harness.wall)
    assert "delivery_delay_seconds" not in harness.entry().incident.alerts[0].annotations


def test_reminders_and_resolves_carry_no_delay():
    harness = OutboxHarness(incident()).at(14_400).offer(incident(revision=1))
    reminder = harness.begin()
    harness.outbox.delivered(reminder, harness.wall)
    resolve = harness.at(20_000).offer().begin()

    for sent in (reminder, resolve):
        assert "delivery_delay_seconds" not in sent.alerts[0].annotations


def test_incident_that_ended_a_day_ago_is_dropped():
    """Only ended incidents expire; a firing one is sent however long that takes."""
    harness = OutboxHarness().offer(incident("dead"), incident("back"))
    harness.at(60).offer(incident("dead"))
    for _ in range(2):
        harness.send(wrong_token())
    harness.at(60 + DAY).offer(incident("dead"))
    assert harness.losses == {}
    harness.at(61 + DAY).offer(incident("dead"))

    assert harness.losses == {"expired": 1}
    assert harness.send_all() == [("dead", "firing")]


# -- receiver capabilities --------------------------------------------------------------------

FORGETFUL = ReceiverCapabilities(resend_seconds=60.0, resend_resolved_seconds=300.0)


def test_receiver_that_forgets_gets_repeats():
    """Firing incidents repeat every minute, ended ones for five minutes."""
    harness = OutboxHarness(incident(), capabilities=FORGETFUL)
    assert harness.at(59).send() is None
    assert harness.at(60).send_all() == [("a", "firing")]
    assert harness.outbox.pending(harness.wall) == 0
    harness.at(100).offer()
    assert harness.send_all() == [("a", "resolved")]
    sent = [harness.at(seconds).offer().send_all() for seconds in range(101, 900)]

    assert sum(map(len, sent)) == 4
    assert harness.outbox.entries == ()


@pytest.mark.fault(
    "Time and pauses", "The wall clock is set back while a reminder waits", "The reminder is sent"
)
def test_repeat_is_not_delayed_forever_when_the_clock_is_set_back():
    harness = OutboxHarness(incident(), capabilities=FORGETFUL)

    assert harness.at(-3600).send_all() == [("a", "firing")]
    assert harness.at(-3590).send() is None


def test_failed_repeat_changes_nothing():
    """A flush does not wait for the repeat, and the repeat is retried."""
    harness = OutboxHarness(incident(), capabilities=FORGETFUL).at(60)
    assert harness.send(lost_answer()) == ("a", "firing")
    assert harness.outbox.pending(harness.wall) == 0
    assert harness.send(urgent_round=1) is None

    assert harness.at(61).send_all() == [("a", "firing")]


def test_reopened_incident_is_sent_while_its_end_is_still_repeated():
    harness = OutboxHarness(incident(), capabilities=FORGETFUL).at(60).offer()
    assert harness.send_all() == [("a", "resolved")]
    harness.at(70).offer(incident(starts_at=WALL + 70))

    assert harness.send_all() == [("a", "firing")]


def test_short_occurrence_during_a_repeated_resolve_is_sent():
    harness = OutboxHarness(incident(), capabilities=FORGETFUL).at(60).offer()
    harness.send_all()
    repetition = harness.at(120).begin()
    harness.at(121).offer(incident(starts_at=WALL + 121))
    harness.outbox.failed(repetition, outage(), harness.now, harness.wall)
    harness.at(122).offer()

    assert harness.at(130).send_all() == [("a", "firing"), ("a", "resolved")]


def test_rate_limit_delays_messages_without_counting_a_failure():
    """A fifth of the budget is available at once; the rest accrues."""
    harness = OutboxHarness(capabilities=ReceiverCapabilities(per_minute=60.0))
    harness.offer(*[incident(f"q{number}") for number in range(20)])
    assert len(harness.send_all()) == 12
    assert harness.outbox.next_at(harness.now, harness.wall) == pytest.approx(1.25)
    assert harness.at(1.3).send() is not None
    assert harness.send() is None

    assert harness.at(60).offer(*[incident(f"q{number}") for number in range(20)]).send_all()
    assert harness.outbox.pending(harness.wall) == 0


def test_flush_sends_pages_without_waiting_for_the_rate_limit():
    """The driver may be about to exit; a resolve may wait."""
    delivered = [incident(f"t{number}") for number in range(12)]
    harness = OutboxHarness(*delivered, capabilities=ReceiverCapabilities(per_minute=60.0)).offer(
        incident("new")
    )

    assert harness.send(urgent_round=1) == ("new", "firing")
    assert harness.send(urgent_round=1) is None


# -- successors -------------------------------------------------------------------------------


def test_incident_delivered_by_an_earlier_driver_is_not_sent_again():
    harness = OutboxHarness(incident(revision=2)).crash()
    harness.offer(incident(revision=0))

    assert harness.send() is None


def test_incident_undelivered_by_an_earlier_driver_is_sent():
    harness = OutboxHarness().offer(incident())
    harness.send(outage())

    assert harness.crash().send_all() == [("a", "firing")]


def test_incident_left_open_by_an_earlier_driver_is_resolved_when_it_ends():
    harness = OutboxHarness(incident()).crash()

    assert harness.offer().send_all() == [("a", "resolved")]


@pytest.mark.parametrize("severity", ["critical", "warning"])
def test_driver_killed_during_a_trigger_leaves_its_delivery_unsure(severity):
    """The successor repeats the trigger while it fires, and never leaves it open."""
    harness = OutboxHarness().offer(incident(severity=severity))
    harness.begin()
    assert harness.entry().state is DeliveryState.UNSURE
    assert harness.crash().offer(incident(severity=severity)).send_all() == [("a", "firing")]

    assert harness.crash().offer().send_all()[-1] == ("a", "resolved")


def test_driver_killed_during_a_resolve_leaves_its_delivery_unsure():
    """If the incident fires again, the successor sends the resolve first and then the trigger."""
    harness = OutboxHarness(incident()).at(60).offer()
    harness.begin()
    again = harness.crash().offer(incident(starts_at=WALL + 60))
    assert again.send_all() == [("a", "resolved"), ("a", "firing")]

    assert harness.crash().offer().send_all() == [("a", "resolved")]


def test_entries_restored_late_do_not_override_newer_ones():
    """Another process held the spool while this one already sent messages."""
    earlier = OutboxHarness(incident("open"), incident("both"))
    harness = OutboxHarness(incident("both", revision=1)).offer(
        incident("both", revision=1), incident("open", summary="newer text")
    )
    harness.outbox.restore(earlier.outbox.entries, harness.wall)

    assert harness.send() is None
    assert {
        entry.incident.alerts[0].annotations["summary"] for entry in harness.outbox.entries
    } == {
        "newer text",
        "both failed",
    }


STALE = over(incident(), WALL)
RECONCILES = ReceiverCapabilities(reconciles=True)


def test_incident_possibly_left_open_by_a_driver_without_a_spool_is_resolved():
    harness = OutboxHarness(capabilities=RECONCILES).offer(stale_resolves=[STALE])

    assert harness.send_all() == [("a", "resolved")]
    assert (harness.losses, harness.outbox.entries) == ({}, ())


def test_stale_resolve_that_could_not_be_sent_pages_nobody():
    """The stale resolve is critical and ended, yet it is not a page that got lost."""
    harness = OutboxHarness(capabilities=RECONCILES).offer(stale_resolves=[STALE])
    harness.send(outage())

    assert harness.at(9).send_all() == [("a", "resolved")]


@pytest.mark.parametrize("why", ["not requested", "open", "spool"])
def test_unneeded_stale_resolve_is_not_sent(why):
    """The receiver does not ask for it, the incident fires, or the spool knows what is open."""
    harness = OutboxHarness(
        capabilities=ReceiverCapabilities() if why == "not requested" else RECONCILES
    )
    if why == "spool":
        harness.outbox.restore((), harness.wall)
    fires = [incident()] if why == "open" else []
    harness.offer(*fires, stale_resolves=[STALE])

    assert ("a", "resolved") not in harness.send_all()


@pytest.mark.parametrize("refused", [outage, gone, wrong_token])
def test_query_that_fails_before_its_stale_resolve_was_sent_is_reported_at_once(refused):
    harness = OutboxHarness(capabilities=RECONCILES).offer(stale_resolves=[STALE])
    harness.send(refused())
    harness.at(5).offer(incident(starts_at=WALL + 5))

    assert harness.send_all() == [("a", "resolved"), ("a", "firing")]


def test_every_loss_is_counted_from_zero():
    assert Outbox().losses == dict.fromkeys(LOSS_REASONS, 0)


def test_warning_offered_only_after_its_end_is_ignored():
    """It was counted when it found no room while firing."""
    harness = OutboxHarness().offer(over(incident(severity="warning"), WALL + 1))

    assert (harness.send(), harness.losses) == (None, {})


def test_overdue_incidents_are_those_not_surely_delivered_in_time():
    harness = OutboxHarness(incident("delivered")).offer(
        incident("delivered"), incident("b"), incident("muted", muted="x")
    )
    harness.send(outage())
    assert harness.at(59).outbox.overdue(harness.wall, 60.0) == ()

    assert [said(one) for one in harness.at(60).outbox.overdue(harness.wall, 60.0)] == [
        ("b", "firing")
    ]
