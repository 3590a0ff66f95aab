"""A receiver that is down is left alone, but never for much longer than it is down."""

import pytest
from support.deliveries import incident, outage, wrong_token

from querypulse.alerting.outbox.breaker import Breaker
from querypulse.alerting.outbox.pending_send import PendingSend, SendReason
from querypulse.alerting.outbox.send_schedule import SendSchedule


def failed(times, breaker=None, **options):
    """The breaker after failures at these times."""
    breaker = breaker or Breaker()
    for now in times:
        breaker = breaker.failed(now, **options)
    return breaker


# -- the breaker ------------------------------------------------------------------------------


def test_four_failures_hold_nothing():
    breaker = failed([0, 1, 3, 7])

    assert not breaker.is_open
    assert breaker.not_before <= 7


def test_the_fifth_opens_it():
    """A single page has failed at these times; the next is tried 22 seconds after the first."""
    breaker = failed([0, 1, 3, 7, 15])

    assert breaker.is_open
    assert breaker.not_before == 22


def test_a_young_outage_is_polled_again_soon():
    """Five pages failed at once; a receiver that only restarts is back in a few seconds."""
    breaker, times = failed([0, 0, 0, 0, 0]), []
    while breaker.not_before <= 30:
        times.append(breaker.not_before)
        breaker = breaker.failed(breaker.not_before)

    assert times == [1, 3, 7, 15, 22, 30]


def test_an_old_outage_is_left_alone_for_half_a_minute():
    """Each was a hanging request of ten seconds."""
    assert failed([0, 10, 20, 30, 40]).not_before == 70


def test_the_pauses_double_up_to_five_minutes():
    breaker = failed([0, 10, 20, 30])
    pauses, now = [], 40.0
    for _ in range(7):
        breaker = breaker.failed(now)
        pauses.append(breaker.not_before - now)
        now = breaker.not_before

    assert pauses == [30, 60, 120, 240, 300, 300, 300]


def test_failures_out_of_turn_do_not_make_the_pause_longer():
    """A flush overrides it; a job that flushes every second must not end up unheard."""
    breaker = failed([0, 10, 20, 30, 40])

    after = failed(range(41, 69), breaker)
    assert (after.not_before, after.pauses) == (breaker.not_before, breaker.pauses)


def test_a_wish_for_rest_is_granted_at_once():
    breaker = Breaker().failed(10.0, retry_after=3.0)

    assert not breaker.is_open
    assert breaker.not_before == 13


def test_who_asks_for_rest_is_up_again_and_is_taken_at_its_word():
    """Three seconds, not the next minute; asked for again, the pauses go on."""
    breaker = failed([0, 1, 3, 7, 15]).failed(30, retry_after=3.0)
    assert (breaker.is_open, breaker.not_before) == (True, 33)

    assert breaker.failed(33, retry_after=3.0).not_before == 63


def test_a_wish_for_a_longer_rest_than_the_pause_is_granted():
    assert failed([0, 0, 0, 0]).failed(0, retry_after=200.0).not_before == 200


def test_a_new_page_waits_for_five_seconds_only_but_not_less_than_was_asked_for():
    breaker = failed([0, 10, 20, 30, 40])
    assert (breaker.not_before, breaker.news_at) == (70, 45)
    assert breaker.failed(45).news_at == 50

    assert failed([0, 0, 0, 0]).failed(0, retry_after=100.0).news_at == 100


# -- together with retries --------------------------------------------------------------------

A, B, C = (PendingSend(incident(query), SendReason.TRIGGER) for query in "abc")


class Play:
    """A pace whose receiver is up or down as told."""

    def __init__(self, *wants):
        self.pace = SendSchedule()
        self.wants = list(wants)
        self.now = 0.0
        self.attempts = []

    def until(self, end, error=None):
        """Attempt what is due up to then; each attempt fails with ``error``, or succeeds."""
        while self.wants and (at := self.pace.next_at(self.wants, self.now)) <= end:
            self.now = max(self.now, at)
            want = self.pace.choose(self.wants, self.now)
            self.attempts.append((self.now, want.incident.alerts[0].labels["query"]))
            if error is None:
                self.wants.remove(want)
                self.pace.delivered(want.incident.key)
            else:
                self.pace.failed(want.incident.key, error, self.now, 0)
        self.now = end
        return self

    @property
    def times(self):
        return [at for at, _ in self.attempts]


def test_an_outage_is_tried_again_after_1_2_4_8_seconds_and_then_every_so_often():
    play = Play(A).until(1000, outage())

    assert play.times == [0, 1, 3, 7, 15, 22, 30, 60, 120, 240, 480, 780]


@pytest.mark.parametrize(("seconds", "sent_at"), [(0.5, 1), (2, 3), (5, 7), (20, 22)])
@pytest.mark.parametrize("count", [1, 2, 3, 8, 50])
def test_a_short_outage_is_over_for_all_pages_at_once_and_soon(count, seconds, sent_at):
    """However many wait: the first that gets through takes the others along."""
    wants = [PendingSend(incident(f"q{number}"), SendReason.TRIGGER) for number in range(count)]
    play = Play(*wants).until(seconds, outage()).until(60)

    assert play.wants == []
    (at,) = {at for at in play.times if at > seconds}
    assert at <= sent_at


def test_what_a_flush_has_just_tried_goes_along_too():
    """Its own pause is longer than the outage."""
    play = Play(A, B, C).until(239, outage())
    for _ in play.wants:
        want = play.pace.choose(play.wants, 239.0, 1)
        play.pace.failed(want.incident.key, outage(), 239.0, 1)
    play.until(240)

    assert play.wants == []


def test_many_pages_do_not_mean_many_attempts_in_an_outage():
    """Each is tried once, five seconds apart; then they take turns at the circuit's pace."""
    wants = [PendingSend(incident(f"q{number}"), SendReason.TRIGGER) for number in range(50)]
    times = Play(*wants).until(1000, outage()).times

    assert times[:9] == [0, 0, 0, 0, 0, 1, 3, 7, 12]
    assert len(times) < 65


def test_a_new_critical_page_does_not_wait_for_the_end_of_a_long_pause():
    """The receiver may be back for minutes; it takes the others along."""
    play = Play(A).until(250, outage())
    play.wants.append(B)

    assert play.until(250).times[-2:] == [250, 250]
    assert play.wants == []


def test_a_new_critical_page_is_tried_once_and_then_waits_like_all():
    play = Play(A).until(250, outage())
    play.wants.append(B)

    assert play.until(470, outage()).times[-2:] == [240, 250]


def test_a_new_warning_waits_like_all():
    play = Play(A).until(250, outage())
    play.wants = [PendingSend(incident("b", severity="warning"), SendReason.TRIGGER)]

    assert play.pace.next_at(play.wants, 250.0) == 480


def test_an_outage_that_ends_in_a_wish_for_rest_ends_with_it():
    """500 for 20 seconds, then 429 with ``Retry-After: 3``, then 202."""
    play = Play(A).until(20, outage()).until(23, outage(retry_after=3.0)).until(60)

    assert play.times == [0, 1, 3, 7, 15, 22, 25]


def test_a_wish_for_rest_after_failures_is_taken_at_its_word():
    """Three seconds; the third failure of an outage would mean four."""
    play = Play(A).until(2, outage()).until(3, outage(retry_after=3.0)).until(60)

    assert play.times == [0, 1, 3, 6]


def test_a_wish_for_rest_holds_everything_else_too():
    """It is the receiver that is busy, not the one incident."""
    play = Play(A, B).until(0, outage(retry_after=45.0)).until(44.9)
    assert play.times == [0]

    assert play.until(45).wants == []


def test_a_short_wish_for_rest_does_not_make_a_pause_shorter():
    """Answered again and again, the schedule is the usual one."""
    play = Play(A).until(20, outage(retry_after=0.5))

    assert play.times == [0, 1, 3, 7, 15]


def test_one_page_that_is_never_taken_does_not_keep_the_others():
    """A receiver that answers 500 to that very page is open for others at each attempt."""
    play = Play(A).until(100, outage())
    play.wants.append(C)
    want = play.pace.choose(play.wants, 120.0)

    assert play.pace.is_open
    assert want == C

    play.pace.failed(C.incident.key, outage(), 120.0, 0)
    assert play.pace.choose(play.wants, 240.0) == C, "it has had fewer turns"


def test_the_end_of_an_outage_is_no_reason_to_ask_again_where_the_token_is_wrong():
    play = Play(C).until(0, wrong_token())
    play.wants.append(A)
    play.until(20, outage()).until(60)

    assert play.attempts[0] == (0, "c")
    assert play.attempts[-1] == (22, "a")
    assert play.wants == [C]


def test_a_wrong_token_does_not_open_the_circuit():
    """The receiver is there; each page has its own slow schedule."""
    play = Play(A, B).until(3000, wrong_token())

    assert not play.pace.is_open
    assert play.times == [at for at in range(0, 3001, 300) for _ in "ab"]


def test_another_answer_closes_the_circuit():
    """Even a refusal shows that the receiver is there."""
    play = Play(A, B).until(20, outage())
    assert play.pace.is_open

    play.pace.failed(A.incident.key, wrong_token(), 30.0, 0)
    assert not play.pace.is_open
    assert play.pace.choose([A, B], 30.0) == B


def test_the_first_new_page_is_tried_at_once_while_others_fail():
    """Before the circuit opens nobody waits for anybody."""
    play = Play(A).until(2, outage())
    play.wants.append(B)
    play.until(2, None)

    assert play.attempts[-1] == (2, "b")


def test_a_flush_ignores_the_circuit_but_asks_each_page_only_once():
    play = Play(A, B).until(20, outage())
    asked = []
    for _ in "ab":
        asked.append(play.pace.choose([A, B], 20.0, 1))
        play.pace.failed(asked[-1].incident.key, outage(), 20.0, 1)

    assert A in asked
    assert B in asked
    assert play.pace.choose([A, B], 20.0, 1) is None
    assert play.pace.is_attempted([A, B], 1)


def test_repetitions_are_no_business_of_a_flush():
    repetition = PendingSend(incident(), SendReason.REPEAT)
    play = Play(A).until(20, outage())

    assert play.pace.choose([repetition], 20.0, 1) is None
