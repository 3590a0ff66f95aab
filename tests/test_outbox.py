"""The account of one receiver: what is due, in which order, when again, and what is given up."""

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
from querypulse.alerting.outbox.entry import DeliveryState, OutboxEntry
from querypulse.alerting.outbox.outbox import LOSSES, Outbox
from querypulse.alerting.receivers.receiver import ReceiverCapabilities

DAY = 24 * 3600.0


class Harness:
    """An outbox, a clock, and what was sent of it."""

    def __init__(self, *reported, capabilities=None):
        self.outbox = Outbox(capabilities)
        self.now = 0.0
        if reported:
            self.offer(*reported)
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
        """Send what is due, if anything, and let it fail with ``error``."""
        sent = self.begin(urgent_round)
        if sent is None:
            return None
        if error is None:
            self.outbox.delivered(sent, self.wall)
        else:
            self.outbox.failed(sent, error, self.now, self.wall, urgent_round)
        return said(sent)

    def send_all(self):
        """All that is due, delivered."""
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
        """The driver is killed; its successor has the rows."""
        successor = Harness(capabilities=self.outbox._capabilities).at(self.now)
        successor.outbox.restore(self.outbox.entries, self.wall)
        return successor


# -- triggers and resolves --------------------------------------------------------------------


def test_a_firing_incident_is_due_until_it_was_delivered():
    """Success is recorded afterwards, so a crash repeats rather than loses."""
    harness = Harness().offer(incident())
    assert harness.send(outage()) == ("a", "firing")
    assert harness.at(1).send() == ("a", "firing")
    assert harness.at(9e6).send() is None


def test_other_words_are_not_another_incident():
    """Annotations change with every look; nobody is told again for that."""
    harness = Harness(incident(summary="60 s without a commit"))
    harness.offer(incident(summary="61 s without a commit"))

    assert harness.send() is None


def test_a_new_revision_is_reported_once():
    """A member joined, or a reminder is due."""
    harness = Harness(incident())
    harness.offer(incident("a", "b", revision=1))

    assert harness.send_all() == [("a+b", "firing")]


@pytest.mark.parametrize("ended", ["left out", "offered with its end"])
def test_an_incident_that_ended_is_resolved_with_its_end(ended):
    """Whenever the resolve gets through; returned once as ended, or absent."""
    harness = Harness(incident()).at(60)
    harness.offer(*([over(incident(), WALL + 60)] if ended != "left out" else []))
    harness.send(outage())
    harness.at(90).offer()
    resolve = harness.begin()

    assert (resolve.starts_at, resolve.ends_at) == (WALL, WALL + 60)


def test_a_member_that_ended_before_keeps_its_end():
    """Only those that fire end with the incident."""
    harness = Harness(incident("a", "b"))
    first, second = incident("a", "b").alerts
    ended_first = over(incident("a"), WALL + 5).alerts[0]
    both = incident("a", "b")
    harness.offer(type(both)((ended_first, second))).at(60).offer()

    assert [one.ends_at for one in harness.begin().alerts] == [WALL + 5, WALL + 60]
    assert first.ends_at is None


def test_an_end_is_never_before_the_beginning():
    """Wall clocks are set back now and then."""
    harness = Harness(incident()).at(-500).offer()

    assert harness.begin().ends_at == WALL


def test_a_warning_that_came_and_went_unheard_is_not_reported():
    """During an outage nothing arrived, so there is nothing to resolve; it is counted."""
    harness = Harness().offer(incident(severity="warning"))
    harness.send(outage())
    harness.at(60).offer()

    assert harness.at(999).send() is None
    assert harness.losses == {"obsolete": 1}
    assert harness.outbox.entries == ()


def test_a_critical_one_that_came_and_went_unheard_is_reported_and_then_resolved():
    """Somebody should know that a query died in the night, also when it came back."""
    harness = Harness().offer(incident())
    harness.send(outage())
    harness.at(60).offer()

    assert harness.send_all() == [("a", "firing"), ("a", "resolved")]
    assert (harness.losses, harness.outbox.entries) == ({}, ())


def test_a_trigger_of_a_warning_that_may_have_arrived_is_resolved():
    """Or the incident would stay open for ever."""
    harness = Harness().offer(incident(severity="warning"))
    harness.send(lost_answer())
    harness.at(60).offer()

    assert harness.send_all() == [("a", "resolved")]


def test_a_critical_trigger_that_may_not_have_arrived_is_sent_again_before_its_resolve():
    """A repetition costs nothing, a lost page does."""
    harness = Harness().offer(incident())
    harness.send(lost_answer())
    harness.at(60).offer()

    assert harness.send_all() == [("a", "firing"), ("a", "resolved")]


def test_a_trigger_that_may_have_arrived_is_sent_again_while_it_fires():
    harness = Harness().offer(incident())
    harness.send(lost_answer())

    assert harness.at(1).send() == ("a", "firing")


@pytest.mark.parametrize("severity", ["critical", "warning"])
def test_a_trigger_that_lands_after_its_incident_ended_is_resolved(severity):
    """The set changed while the request was under way."""
    harness = Harness().offer(incident(severity=severity))
    sent = harness.begin()
    harness.at(5).offer()
    harness.outbox.delivered(sent, harness.wall)

    assert harness.send_all() == [("a", "resolved")]


def test_a_resolve_that_lands_after_its_incident_came_back_is_followed_by_a_trigger():
    """The receiver believes that all is well."""
    harness = Harness(incident()).at(60).offer()
    sent = harness.begin()
    harness.offer(incident(starts_at=WALL + 60))
    harness.outbox.delivered(sent, harness.wall)

    assert harness.send_all() == [("a", "firing")]


def test_an_occurrence_that_came_and_went_while_a_resolve_was_under_way_is_reported():
    """A critical one; the receiver has only heard of the one before."""
    harness = Harness(incident()).at(60).offer()
    sent = harness.begin()
    harness.at(61).offer(incident(starts_at=WALL + 61))
    harness.outbox.delivered(sent, harness.wall)
    harness.at(62).offer()

    assert harness.send_all() == [("a", "firing"), ("a", "resolved")]


def test_firing_again_before_the_resolve_left_is_reported_after_that_resolve():
    """A trigger on a key that is still open would notify nobody."""
    harness = Harness(incident(revision=3)).at(60).offer()
    harness.send(outage())
    harness.at(70).offer(incident(starts_at=WALL + 70))
    resolve = harness.at(999).begin()
    harness.outbox.delivered(resolve, harness.wall)

    assert (resolve.starts_at, resolve.ends_at) == (WALL, WALL + 60)
    assert harness.send_all() == [("a", "firing")]
    harness.offer(incident(starts_at=WALL + 70, revision=1))
    assert harness.send_all() == [("a", "firing")], "its own first reminder is news"


def test_firing_again_after_a_resolve_that_may_have_arrived_is_reported():
    """And however short it fires: it is another occurrence, and a critical one."""
    harness = Harness(incident()).at(60).offer()
    harness.send(lost_answer())
    harness.at(70).offer(incident(starts_at=WALL + 70)).at(80).offer()

    assert harness.send_all() == [("a", "resolved"), ("a", "firing"), ("a", "resolved")]


def test_firing_again_after_a_trigger_that_may_have_arrived_is_reported_after_a_resolve():
    harness = Harness().offer(incident())
    harness.send(lost_answer())
    harness.at(60).offer().at(70).offer(incident(starts_at=WALL + 70))

    assert harness.send_all() == [("a", "resolved"), ("a", "firing")]


def test_the_end_of_an_occurrence_that_is_not_taken_does_not_cost_the_next_its_page():
    harness = Harness(incident()).at(60).offer()
    harness.send(outage())
    harness.at(70).offer(incident(starts_at=WALL + 70)).at(80).send(poison())

    assert harness.send_all() == [("a", "firing")]


def test_the_end_of_a_silenced_occurrence_before_is_reported_all_the_same():
    harness = Harness(incident()).at(60).offer()
    harness.send(outage())
    harness.at(70).offer(incident(starts_at=WALL + 70, muted="silenced"))

    assert harness.at(90).send_all() == [("a", "resolved")]


def test_an_end_that_was_not_reported_survives_the_driver():
    harness = Harness(incident()).at(60).offer()
    harness.send(outage())
    harness.at(70).offer(incident(starts_at=WALL + 70))
    heir = harness.crash().offer(incident(starts_at=WALL + 70))

    assert heir.send_all() == [("a", "resolved"), ("a", "firing")]


def test_a_trigger_is_sent_before_a_resolve_of_another():
    """What supersedes is told before what is superseded ends."""
    harness = Harness(incident("slow", severity="warning")).at(60)
    harness.offer(incident("dead", starts_at=WALL + 60))

    assert harness.send_all() == [("dead", "firing"), ("slow", "resolved")]


# -- muted ------------------------------------------------------------------------------------


def test_a_muted_incident_is_not_reported_and_not_lost():
    harness = Harness().offer(incident(muted="silenced until noon"))
    assert harness.send() is None
    harness.at(60).offer()

    assert harness.send() is None
    assert (harness.losses, harness.outbox.entries) == ({}, ())


def test_a_muted_incident_is_reported_when_the_silence_ends():
    """It was queued only then: it is no late page, and no fallback's business."""
    harness = Harness().offer(incident(muted="silenced until noon")).at(7200).offer(incident())

    assert harness.outbox.overdue(harness.wall, 60.0) == ()
    assert "delivery_delay_seconds" not in harness.begin().alerts[0].annotations


def test_what_was_reported_before_it_was_muted_is_resolved_and_not_repeated():
    harness = Harness(incident()).offer(incident(revision=1, muted="silenced until noon"))
    assert harness.send() is None
    harness.at(60).offer()

    assert harness.send_all() == [("a", "resolved")]


# -- failures ---------------------------------------------------------------------------------


def test_new_before_failed_then_critical_then_oldest():
    """A failing incident never stands in the way of one that was not tried yet."""
    harness = Harness().offer(failing := incident("failing"))
    harness.send(outage())
    fresh = [
        incident("warning", severity="warning", starts_at=WALL - 9),
        incident("later", starts_at=WALL - 3),
        incident("earlier", starts_at=WALL - 5),
    ]
    harness.at(10).offer(failing, *fresh)

    assert [query for query, _ in harness.send_all()] == ["earlier", "later", "warning", "failing"]


def test_a_wrong_token_keeps_the_page_and_tries_it_every_five_minutes():
    """It is put right in the end."""
    harness = Harness().offer(incident())
    for attempt in range(50):
        assert harness.at(attempt * 300).send(wrong_token()) == ("a", "firing")
        assert harness.at(attempt * 300 + 299.9).send() is None

    assert harness.at(50 * 300).send() == ("a", "firing")
    assert harness.losses == {}


def test_a_warning_that_comes_back_does_not_inherit_its_pause():
    """It is a new occurrence, and due at once."""
    harness = Harness()
    for seconds in (0, 60):
        harness.at(seconds).offer(incident(severity="warning", starts_at=harness.wall))
        assert harness.send(wrong_token()) == ("a", "firing")
        harness.at(seconds + 1).offer()

    assert harness.outbox.next_at(harness.now, harness.wall) is None


def test_a_message_that_is_not_taken_is_not_sent_again():
    harness = Harness().offer(incident())
    harness.send(poison())

    assert harness.at(9e4).offer(incident(summary="other words")).send() is None
    assert harness.losses == {"rejected": 1}
    assert harness.outbox.pending(harness.wall) == 0


def test_a_message_that_was_not_taken_is_tried_once_more_when_it_is_another():
    """Its revision grew, or it ended."""
    harness = Harness().offer(incident())
    harness.send(poison())
    harness.offer(incident(revision=1))
    assert harness.send(poison()) == ("a", "firing")
    harness.at(60).offer()
    assert harness.send(poison()) == ("a", "firing")

    assert harness.send() is None
    assert harness.losses == {"rejected": 3}
    assert [one.key for one in harness.outbox.overdue(harness.wall, 1e9)] == [incident().key]


def test_a_message_that_changed_while_it_was_refused_is_tried():
    harness = Harness().offer(incident())
    sent = harness.begin()
    harness.offer(incident(revision=1))
    harness.outbox.failed(sent, poison(), harness.now, harness.wall)

    assert harness.send_all() == [("a", "firing")]


def test_a_resolve_that_is_not_taken_is_tried_again_for_a_day():
    """While the incident is open there, the next failure would notify nobody."""
    harness = Harness(incident()).at(60).offer()
    for attempt in range(3):
        assert harness.at(60 + attempt * 300).send(poison()) == ("a", "resolved")
        assert harness.at(60 + attempt * 300 + 299).send() is None
    assert harness.losses == {}

    harness.at(60 + 25 * 3600).offer()
    assert (harness.outbox.entries, harness.losses) == ((), {"expired": 1})


def test_a_failure_after_a_resolve_that_was_not_taken_is_sent_after_that_resolve():
    harness = Harness(incident()).at(60).offer()
    harness.send(poison())
    harness.at(70).offer(incident(starts_at=WALL + 70))

    assert harness.send_all() == [("a", "resolved"), ("a", "firing")]


def test_a_failure_is_sent_though_the_resolve_before_it_is_refused_for_good():
    harness = Harness(incident()).at(60).offer()
    harness.send(poison())
    harness.at(70).offer(incident(starts_at=WALL + 70))
    assert harness.send(poison()) == ("a", "resolved")

    assert harness.send_all() == [("a", "firing")]
    assert harness.losses == {"rejected": 1}


def refused_resolve():
    """It fails again at 70 s, under a key whose resolve is refused."""
    harness = Harness(incident()).at(60).offer()
    harness.send(poison())
    harness.at(70).offer(incident(starts_at=WALL + 70))
    harness.send(poison())
    return harness


def overdue(harness):
    return [said(one) for one in harness.outbox.overdue(harness.wall, 60.0)]


def test_a_failure_under_a_key_whose_resolve_is_refused_is_overdue_though_it_was_taken():
    """The first incident is still open there, so the receiver notifies nobody."""
    harness = refused_resolve()
    assert harness.send_all() == [("a", "firing")]

    assert overdue(harness.at(129)) == []
    assert overdue(harness.at(130)) == [("a", "firing")]
    assert harness.send_all() == []
    assert overdue(harness.crash().at(7200)) == [("a", "firing")]


def test_once_a_resolve_is_taken_the_next_failure_under_that_key_is_not_overdue():
    harness = refused_resolve()
    harness.send_all()
    assert harness.at(400).offer().send_all() == [("a", "resolved")]

    assert harness.offer(incident(starts_at=WALL + 400)).send_all() == [("a", "firing")]
    assert overdue(harness.at(4000)) == []


def test_a_resolve_that_is_taken_at_the_second_try_leaves_nothing_overdue():
    harness = Harness(incident()).at(60).offer()
    harness.send(poison())
    harness.at(70).offer(incident(starts_at=WALL + 70))

    assert harness.send_all() == [("a", "resolved"), ("a", "firing")]
    assert overdue(harness.at(4000)) == []


def listing(*members, words="as found"):
    """The alert that queries without a name share."""
    return Incident((replace(alert("unnamed", summary=words), members=members),))


def test_a_refused_alert_of_queries_without_a_name_is_tried_again_when_one_more_joins_it():
    harness = Harness().offer(listing("c9c58242"))
    harness.send(poison())
    assert harness.offer(listing("c9c58242", words="other words")).send() is None

    assert harness.offer(listing("c9c58242", "2d1a0d2d")).send() == ("unnamed", "firing")


def test_one_more_that_joins_while_the_message_is_refused_is_a_reason_to_try_it_again():
    harness = Harness().offer(listing("c9c58242"))
    sent = harness.outbox.begin(harness.now, harness.wall)
    harness.offer(listing("c9c58242", "2d1a0d2d"))
    harness.outbox.failed(sent, poison(), harness.now, harness.wall)

    assert harness.send() == ("unnamed", "firing")


def test_one_that_leaves_it_is_no_reason_to_try_it_again():
    harness = Harness().offer(listing("c9c58242", "2d1a0d2d"))
    harness.send(poison())

    assert harness.offer(listing("2d1a0d2d")).send() is None


def test_one_more_that_joins_an_alert_which_was_taken_notifies_nobody():
    harness = Harness(listing("c9c58242"))

    assert harness.offer(listing("c9c58242", "2d1a0d2d")).send() is None


def test_a_receiver_that_answers_410_is_tried_hourly_and_nothing_is_lost():
    harness = Harness().offer(incident())
    for attempt in range(4):
        assert harness.at(attempt * 3600).send(gone()) == ("a", "firing")
        assert harness.at(attempt * 3600 + 3599).send() is None

    assert harness.losses == {}
    assert not harness.outbox.circuit_open
    assert harness.outbox.pending(harness.wall) == 1
    assert harness.at(4 * 3600).send() == ("a", "firing")


def test_after_a_410_what_is_new_is_tried_at_once_and_takes_along_what_waits():
    harness = Harness().offer(incident("a"))
    harness.send(gone())
    harness.at(600).offer(incident("a"), incident("b"))

    assert harness.send_all() == [("b", "firing"), ("a", "firing")]


def test_what_waits_after_a_410_is_overdue_as_any_other():
    harness = Harness().offer(incident())
    harness.send(gone())

    assert harness.at(59).outbox.overdue(harness.wall, 60.0) == ()
    assert [said(one) for one in harness.at(60).outbox.overdue(harness.wall, 60.0)] == [
        ("a", "firing")
    ]


def test_a_flush_overrides_every_pause_once():
    """It attempts what is pending at once, and each only once."""
    harness = Harness().offer(incident())
    harness.send(wrong_token())
    assert not harness.outbox.is_attempted(harness.wall, 1)
    assert harness.send(wrong_token(), urgent_round=1) == ("a", "firing")

    assert harness.send(urgent_round=1) is None
    assert harness.outbox.is_attempted(harness.wall, 1)


# -- late -------------------------------------------------------------------------------------


def test_a_page_reported_late_says_how_late_and_stays_the_same_page():
    """Told at the end of an outage of an hour; the revision, so the message's id, is its own."""
    harness = Harness().offer(incident())
    harness.send(outage())
    sent = harness.at(3600).begin()

    assert sent.alerts[0].annotations["delivery_delay_seconds"] == "3600"
    assert (sent.key, sent.starts_at, sent.revision) == (incident().key, WALL, 0)
    harness.outbox.delivered(sent, harness.wall)
    assert "delivery_delay_seconds" not in harness.entry().incident.alerts[0].annotations


def test_a_reminder_and_a_resolve_are_not_late():
    harness = Harness(incident()).at(14_400).offer(incident(revision=1))
    reminder = harness.begin()
    harness.outbox.delivered(reminder, harness.wall)
    resolve = harness.at(20_000).offer().begin()

    for sent in (reminder, resolve):
        assert "delivery_delay_seconds" not in sent.alerts[0].annotations


def test_what_is_over_for_a_day_is_given_up():
    """And only what is over: what fires is told however long it took."""
    harness = Harness().offer(incident("dead"), incident("back"))
    harness.at(60).offer(incident("dead"))
    for _ in range(2):
        harness.send(wrong_token())
    harness.at(60 + DAY).offer(incident("dead"))
    assert harness.losses == {}
    harness.at(61 + DAY).offer(incident("dead"))

    assert harness.losses == {"expired": 1}
    assert harness.send_all() == [("dead", "firing")]


# -- habits -----------------------------------------------------------------------------------

FORGETFUL = ReceiverCapabilities(resend_seconds=60.0, resend_resolved_seconds=300.0)


def test_a_receiver_that_forgets_is_reported_again_and_again():
    """Every minute what fires, and for five minutes what has ended."""
    harness = Harness(incident(), capabilities=FORGETFUL)
    assert harness.at(59).send() is None
    assert harness.at(60).send_all() == [("a", "firing")]
    assert harness.outbox.pending(harness.wall) == 0
    harness.at(100).offer()
    assert harness.send_all() == [("a", "resolved")]
    reported = [harness.at(seconds).offer().send_all() for seconds in range(101, 900)]

    assert sum(map(len, reported)) == 4
    assert harness.outbox.entries == ()


def test_a_repetition_does_not_wait_for_ever_when_the_clock_was_set_back():
    harness = Harness(incident(), capabilities=FORGETFUL)

    assert harness.at(-3600).send_all() == [("a", "firing")]
    assert harness.at(-3590).send() is None


def test_a_repetition_that_fails_is_no_difference():
    """Nobody waits for it in a flush, and it is tried again."""
    harness = Harness(incident(), capabilities=FORGETFUL).at(60)
    assert harness.send(lost_answer()) == ("a", "firing")
    assert harness.outbox.pending(harness.wall) == 0
    assert harness.send(urgent_round=1) is None

    assert harness.at(61).send_all() == [("a", "firing")]


def test_what_ends_and_comes_back_is_reported_to_a_receiver_that_still_repeats_its_end():
    harness = Harness(incident(), capabilities=FORGETFUL).at(60).offer()
    assert harness.send_all() == [("a", "resolved")]
    harness.at(70).offer(incident(starts_at=WALL + 70))

    assert harness.send_all() == [("a", "firing")]


def test_an_occurrence_that_came_and_went_while_an_end_was_repeated_is_reported():
    harness = Harness(incident(), capabilities=FORGETFUL).at(60).offer()
    harness.send_all()
    repetition = harness.at(120).begin()
    harness.at(121).offer(incident(starts_at=WALL + 121))
    harness.outbox.failed(repetition, outage(), harness.now, harness.wall)
    harness.at(122).offer()

    assert harness.at(130).send_all() == [("a", "firing"), ("a", "resolved")]


def test_a_full_minute_of_pages_waits_for_tokens_and_that_is_no_failure():
    """A fifth of them at once, then they flow."""
    harness = Harness(capabilities=ReceiverCapabilities(per_minute=60.0))
    harness.offer(*[incident(f"q{number}") for number in range(20)])
    assert len(harness.send_all()) == 12
    assert harness.outbox.next_at(harness.now, harness.wall) == pytest.approx(1.25)
    assert harness.at(1.3).send() is not None
    assert harness.send() is None

    assert harness.at(60).offer(*[incident(f"q{number}") for number in range(20)]).send_all()
    assert harness.outbox.pending(harness.wall) == 0


def test_a_flush_does_not_let_a_page_wait_for_a_token():
    """The driver may be about to exit; a resolve may wait."""
    reported = [incident(f"t{number}") for number in range(12)]
    harness = Harness(*reported, capabilities=ReceiverCapabilities(per_minute=60.0)).offer(
        incident("new")
    )

    assert harness.send(urgent_round=1) == ("new", "firing")
    assert harness.send(urgent_round=1) is None


# -- successors -------------------------------------------------------------------------------


def test_what_an_earlier_driver_reported_is_not_reported_again():
    harness = Harness(incident(revision=2)).crash()
    harness.offer(incident(revision=0))

    assert harness.send() is None


def test_what_an_earlier_driver_could_not_report_is_reported():
    harness = Harness().offer(incident())
    harness.send(outage())

    assert harness.crash().send_all() == [("a", "firing")]


def test_what_an_earlier_driver_left_open_is_resolved_when_it_is_over():
    harness = Harness(incident()).crash()

    assert harness.offer().send_all() == [("a", "resolved")]


@pytest.mark.parametrize("severity", ["critical", "warning"])
def test_a_driver_killed_while_a_trigger_was_under_way_leaves_a_doubt(severity):
    """The successor tells it again while it fires, and never leaves it open."""
    harness = Harness().offer(incident(severity=severity))
    harness.begin()
    assert harness.entry().state is DeliveryState.UNSURE
    assert harness.crash().offer(incident(severity=severity)).send_all() == [("a", "firing")]

    assert harness.crash().offer().send_all()[-1] == ("a", "resolved")


def test_a_driver_killed_while_a_resolve_was_under_way_leaves_a_doubt():
    """Firing again in the successor is told, and the end before it: one or none of both arrived."""
    harness = Harness(incident()).at(60).offer()
    harness.begin()
    again = harness.crash().offer(incident(starts_at=WALL + 60))
    assert again.send_all() == [("a", "resolved"), ("a", "firing")]

    assert harness.crash().offer().send_all() == [("a", "resolved")]


def test_entries_that_come_late_do_not_undo_what_is_known():
    """Another process had the spool; meanwhile this one has told things itself."""
    earlier = Harness(incident("open"), incident("both"))
    harness = Harness(incident("both", revision=1)).offer(
        incident("both", revision=1), incident("open", summary="newer words")
    )
    harness.outbox.restore(earlier.outbox.entries, harness.wall)

    assert harness.send() is None
    assert {
        entry.incident.alerts[0].annotations["summary"] for entry in harness.outbox.entries
    } == {
        "newer words",
        "both failed",
    }


CLOSING = over(incident(), WALL)
RECONCILES = ReceiverCapabilities(reconciles=True)


def test_what_an_earlier_driver_without_a_spool_may_have_left_open_is_resolved():
    harness = Harness(capabilities=RECONCILES).offer(stale_resolves=[CLOSING])

    assert harness.send_all() == [("a", "resolved")]
    assert (harness.losses, harness.outbox.entries) == ({}, ())


def test_a_closing_that_could_not_be_sent_pages_nobody():
    """It is critical and over, and yet no page that was missed."""
    harness = Harness(capabilities=RECONCILES).offer(stale_resolves=[CLOSING])
    harness.send(outage())

    assert harness.at(9).send_all() == [("a", "resolved")]


@pytest.mark.parametrize("why", ["no habit", "open", "spool"])
def test_nothing_is_closed_without_need(why):
    """The receiver does not ask for it, it fires, or the spool knows what was left open."""
    harness = Harness(capabilities=ReceiverCapabilities() if why == "no habit" else RECONCILES)
    if why == "spool":
        harness.outbox.restore((), harness.wall)
    fires = [incident()] if why == "open" else []
    harness.offer(*fires, stale_resolves=[CLOSING])

    assert ("a", "resolved") not in harness.send_all()


def test_a_query_that_falls_failing_before_its_closing_was_sent_is_reported():
    harness = Harness(capabilities=RECONCILES).offer(stale_resolves=[CLOSING])
    harness.send(outage())
    harness.at(5).offer(incident(starts_at=WALL + 5))

    assert harness.send_all() == [("a", "resolved"), ("a", "firing")]


def test_every_loss_is_counted_from_zero():
    assert Outbox().losses == dict.fromkeys(LOSSES, 0)


def test_a_warning_offered_only_when_it_is_over_is_nothing_to_report():
    """It found no room while it fired, and was counted then."""
    harness = Harness().offer(over(incident(severity="warning"), WALL + 1))

    assert (harness.send(), harness.losses) == (None, {})


def test_what_is_overdue_is_what_nobody_surely_received_of_in_time():
    harness = Harness(incident("told")).offer(
        incident("told"), incident("b"), incident("muted", muted="x")
    )
    harness.send(outage())
    assert harness.at(59).outbox.overdue(harness.wall, 60.0) == ()

    assert [said(one) for one in harness.at(60).outbox.overdue(harness.wall, 60.0)] == [
        ("b", "firing")
    ]
