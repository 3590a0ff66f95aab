"""A receiver that is down is left alone, but not for much longer than it is down."""

import pytest
from support.deliveries import incident, outage, wrong_token

from querypulse.alerting.outbox import SendSchedule
from querypulse.alerting.outbox_entry import PendingSend, SendReason
from querypulse.alerting.retries import Breaker


def failed(times, breaker=None, **options):
    """The breaker after failures at these times."""
    breaker = breaker or Breaker()
    for now in times:
        breaker = breaker.failed(now, **options)
    return breaker


# -- the breaker ------------------------------------------------------------------------------


def test_four_failures_do_not_open_the_circuit():
    breaker = failed([0, 1, 3, 7])

    assert not breaker.is_open
    assert breaker.not_before <= 7


def test_fifth_failure_opens_the_circuit():
    """A single page has failed at these times; its next attempt is 22 seconds after the first."""
    breaker = failed([0, 1, 3, 7, 15])

    assert breaker.is_open
    assert breaker.not_before == 22


def test_new_outage_is_probed_again_soon():
    """Five pages failed at once; a receiver that only restarts is back in a few seconds."""
    breaker, times = failed([0, 0, 0, 0, 0]), []
    while breaker.not_before <= 30:
        times.append(breaker.not_before)
        breaker = breaker.failed(breaker.not_before)

    assert times == [1, 3, 7, 15, 22, 30]


def test_older_outage_pauses_for_half_a_minute():
    """Each failure was a hanging request of ten seconds."""
    assert failed([0, 10, 20, 30, 40]).not_before == 70


def test_pauses_double_up_to_five_minutes():
    breaker = failed([0, 10, 20, 30])
    pauses, now = [], 40.0
    for _ in range(7):
        breaker = breaker.failed(now)
        pauses.append(breaker.not_before - now)
        now = breaker.not_before

    assert pauses == [30, 60, 120, 240, 300, 300, 300]


def test_failures_during_a_pause_do_not_prolong_it():
    """A flush overrides the pause; flushing every second must not block the alerts."""
    breaker = failed([0, 10, 20, 30, 40])

    after = failed(range(41, 69), breaker)
    assert (after.not_before, after.pauses) == (breaker.not_before, breaker.pauses)


def test_retry_after_is_obeyed_at_once():
    breaker = Breaker().failed(10.0, retry_after=3.0)

    assert not breaker.is_open
    assert breaker.not_before == 13


def test_retry_after_replaces_the_next_pause():
    """It is three seconds, not the next minute; if the receiver asks again, the pauses go on."""
    breaker = failed([0, 1, 3, 7, 15]).failed(30, retry_after=3.0)
    assert (breaker.is_open, breaker.not_before) == (True, 33)

    assert breaker.failed(33, retry_after=3.0).not_before == 63


def test_retry_after_longer_than_the_pause_is_obeyed():
    assert failed([0, 0, 0, 0]).failed(0, retry_after=200.0).not_before == 200


def test_new_page_waits_five_seconds_or_the_retry_after():
    breaker = failed([0, 10, 20, 30, 40])
    assert (breaker.not_before, breaker.news_at) == (70, 45)
    assert breaker.failed(45).news_at == 50

    assert failed([0, 0, 0, 0]).failed(0, retry_after=100.0).news_at == 100


# -- with retries -----------------------------------------------------------------------------

A, B, C = (PendingSend(incident(query), SendReason.TRIGGER) for query in "abc")


class Simulation:
    """A send schedule whose receiver is up or down as requested."""

    def __init__(self, *pending):
        self.schedule = SendSchedule()
        self.pending = list(pending)
        self.now = 0.0
        self.attempts = []

    def until(self, end, error=None):
        """Attempt what is due up to then; each attempt fails with ``error``, or succeeds."""
        while self.pending and (at := self.schedule.next_at(self.pending, self.now)) <= end:
            self.now = max(self.now, at)
            send = self.schedule.choose(self.pending, self.now)
            self.attempts.append((self.now, send.incident.alerts[0].labels["query"]))
            if error is None:
                self.pending.remove(send)
                self.schedule.delivered(send.incident.key)
            else:
                self.schedule.failed(send.incident.key, error, self.now, 0)
        self.now = end
        return self

    @property
    def times(self):
        return [at for at, _ in self.attempts]


@pytest.mark.fault("Receivers", "A receiver is down", "Attempts follow the schedule")
def test_retries_in_an_outage_follow_the_schedule():
    simulation = Simulation(A).until(1000, outage())

    assert simulation.times == [0, 1, 3, 7, 15, 22, 30, 60, 120, 240, 480, 780]


@pytest.mark.parametrize(("seconds", "sent_at"), [(0.5, 1), (2, 3), (5, 7), (20, 22)])
@pytest.mark.parametrize("count", [1, 2, 3, 8, 50])
def test_short_outage_ends_soon_for_all_pages_at_once(count, seconds, sent_at):
    """However many are pending, the first that gets through releases the others."""
    pending = [PendingSend(incident(f"q{number}"), SendReason.TRIGGER) for number in range(count)]
    simulation = Simulation(*pending).until(seconds, outage()).until(60)

    assert simulation.pending == []
    (at,) = {at for at in simulation.times if at > seconds}
    assert at <= sent_at


def test_page_just_tried_by_a_flush_is_released_too():
    """Its own pause is longer than the outage."""
    simulation = Simulation(A, B, C).until(239, outage())
    for _ in simulation.pending:
        send = simulation.schedule.choose(simulation.pending, 239.0, 1)
        simulation.schedule.failed(send.incident.key, outage(), 239.0, 1)
    simulation.until(240)

    assert simulation.pending == []


@pytest.mark.fault(
    "Receivers", "Many alerts while a receiver is down", "They cause no more attempts than one"
)
def test_many_pages_do_not_cause_many_attempts_in_an_outage():
    """Each page is tried once, five seconds apart; then they alternate at the pace of the circuit."""
    pending = [PendingSend(incident(f"q{number}"), SendReason.TRIGGER) for number in range(50)]
    times = Simulation(*pending).until(1000, outage()).times

    assert times[:9] == [0, 0, 0, 0, 0, 1, 3, 7, 12]
    assert len(times) < 65


def test_new_critical_page_does_not_wait_for_the_end_of_a_long_pause():
    """The receiver may have recovered minutes ago; then the new page releases the others."""
    simulation = Simulation(A).until(250, outage())
    simulation.pending.append(B)

    assert simulation.until(250).times[-2:] == [250, 250]
    assert simulation.pending == []


def test_new_critical_page_is_tried_once_and_then_waits_for_the_circuit():
    simulation = Simulation(A).until(250, outage())
    simulation.pending.append(B)

    assert simulation.until(470, outage()).times[-2:] == [240, 250]


def test_new_warning_waits_for_the_circuit():
    simulation = Simulation(A).until(250, outage())
    simulation.pending = [PendingSend(incident("b", severity="warning"), SendReason.TRIGGER)]

    assert simulation.schedule.next_at(simulation.pending, 250.0) == 480


def test_outage_that_ends_with_a_retry_after_ends_on_time():
    """500 for 20 seconds, then 429 with ``Retry-After: 3``, then 202."""
    simulation = Simulation(A).until(20, outage()).until(23, outage(retry_after=3.0)).until(60)

    assert simulation.times == [0, 1, 3, 7, 15, 22, 25]


def test_retry_after_following_failures_is_obeyed():
    """Three seconds, where the third failure of an outage would mean four."""
    simulation = Simulation(A).until(2, outage()).until(3, outage(retry_after=3.0)).until(60)

    assert simulation.times == [0, 1, 3, 6]


def test_retry_after_delays_all_incidents():
    """The receiver is busy, not just the one incident."""
    simulation = Simulation(A, B).until(0, outage(retry_after=45.0)).until(44.9)
    assert simulation.times == [0]

    assert simulation.until(45).pending == []


def test_short_retry_after_does_not_shorten_a_pause():
    """If every answer carries it, the schedule is the usual one."""
    simulation = Simulation(A).until(20, outage(retry_after=0.5))

    assert simulation.times == [0, 1, 3, 7, 15]


def test_page_that_always_fails_does_not_block_the_others():
    """If a receiver answers 500 to one page, each attempt may still try another one."""
    simulation = Simulation(A).until(100, outage())
    simulation.pending.append(C)
    send = simulation.schedule.choose(simulation.pending, 120.0)

    assert simulation.schedule.is_open
    assert send == C

    simulation.schedule.failed(C.incident.key, outage(), 120.0, 0)
    assert simulation.schedule.choose(simulation.pending, 240.0) == C, "it has had fewer attempts"


def test_end_of_an_outage_does_not_retry_a_page_with_a_wrong_token():
    simulation = Simulation(C).until(0, wrong_token())
    simulation.pending.append(A)
    simulation.until(20, outage()).until(60)

    assert simulation.attempts[0] == (0, "c")
    assert simulation.attempts[-1] == (22, "a")
    assert simulation.pending == [C]


def test_wrong_token_does_not_open_the_circuit():
    """The receiver answers; each page has its own slow schedule."""
    simulation = Simulation(A, B).until(3000, wrong_token())

    assert not simulation.schedule.is_open
    assert simulation.times == [at for at in range(0, 3001, 300) for _ in "ab"]


def test_any_other_answer_closes_the_circuit():
    """Even a rejection shows that the receiver is up."""
    simulation = Simulation(A, B).until(20, outage())
    assert simulation.schedule.is_open

    simulation.schedule.failed(A.incident.key, wrong_token(), 30.0, 0)
    assert not simulation.schedule.is_open
    assert simulation.schedule.choose([A, B], 30.0) == B


def test_first_new_page_is_tried_at_once_while_others_fail():
    """Until the circuit opens, no page waits for another."""
    simulation = Simulation(A).until(2, outage())
    simulation.pending.append(B)
    simulation.until(2, None)

    assert simulation.attempts[-1] == (2, "b")


def test_flush_ignores_the_circuit_but_tries_each_page_only_once():
    simulation = Simulation(A, B).until(20, outage())
    asked = []
    for _ in "ab":
        asked.append(simulation.schedule.choose([A, B], 20.0, 1))
        simulation.schedule.failed(asked[-1].incident.key, outage(), 20.0, 1)

    assert A in asked
    assert B in asked
    assert simulation.schedule.choose([A, B], 20.0, 1) is None
    assert simulation.schedule.is_attempted([A, B], 1)


def test_flush_skips_repeats():
    repetition = PendingSend(incident(), SendReason.REPEAT)
    simulation = Simulation(A).until(20, outage())

    assert simulation.schedule.choose([repetition], 20.0, 1) is None
