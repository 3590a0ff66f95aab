"""The listener is registered once per session, again when Spark drops it, and removed fully."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JNetworkError
from support.fake_driver import Execution, JavaListener, Manager

from querypulse.listener.spark.event_paths import CHECK_EVERY_SECONDS, SessionListeners


class Registration:
    """Our listener in the first session; ``wirings`` counts PySpark's additions and removals."""

    def __init__(self, first=None, *, registered=False, dropped=lambda: 0):
        self.listener = JavaListener()
        self.first = first or Manager()
        if registered:
            self.first.listeners.append(self.listener)
        self.wirings = 1
        self.now = 0.0
        self.sessions = SessionListeners(
            self.listener, self.first, wirings=lambda: self.wirings, dropped_events=dropped
        )

    def check(self, checks=1):
        """The health after so many more checks that are due."""
        for _ in range(checks):
            self.now += CHECK_EVERY_SECONDS
            self.sessions.check(self.now)
        return self.sessions.health

    def counts(self, *managers):
        return [each.listeners.count(self.listener) for each in (self.first, *managers)]


# -- adding -----------------------------------------------------------------------------------


def test_listener_is_added_to_the_first_session_once():
    registration = Registration()

    assert registration.sessions.add()
    assert registration.sessions.add()
    assert registration.counts() == [1]


def test_session_that_ignores_the_new_listener_is_detected():
    forgetful = Manager()
    forgetful.forgets = True

    assert not Registration(forgetful).sessions.add()


def test_first_query_of_another_session_adds_the_listener_there():
    registration, second = Registration(registered=True), Manager()
    for _ in range(3):
        registration.sessions.cover(Execution(second))
        registration.sessions.cover(Execution(registration.first))

    assert registration.counts(second) == [1, 1]


def test_listener_added_by_the_user_is_not_added_twice():
    registration = Registration(registered=True)
    second = Manager(registration.listener)
    registration.sessions.cover(Execution(second))

    assert registration.counts(second) == [1, 1]


# -- checking ---------------------------------------------------------------------------------


def test_listener_is_not_added_before_pyspark_adds_it():
    registration = Registration()

    assert registration.sessions.check(now=1000.0).registered
    assert registration.counts() == [0]


def test_dropped_listener_is_registered_again_once_and_counted():
    registration = Registration(registered=True)
    registration.sessions.check(0.0)
    registration.first.removeListener(registration.listener)

    assert registration.sessions.check(CHECK_EVERY_SECONDS - 1).reregistrations == 0
    assert registration.sessions.check(CHECK_EVERY_SECONDS).reregistrations == 1
    assert registration.sessions.check(2 * CHECK_EVERY_SECONDS).reregistrations == 1
    assert registration.counts() == [1]


def test_listener_is_registered_again_in_every_session():
    registration, second = Registration(registered=True), Manager()
    registration.sessions.cover(Execution(second))
    registration.check()
    for manager in (registration.first, second):
        manager.removeListener(registration.listener)
    health = registration.check()

    assert (health.registered, health.reregistrations) == (True, 2)
    assert registration.counts(second) == [1, 1]


def test_listener_removed_by_the_user_stays_removed():
    registration = Registration(registered=True)
    registration.check()
    registration.first.removeListener(registration.listener)
    registration.wirings += 1

    assert not registration.check().registered
    assert not registration.check(3).registered
    assert registration.counts() == [0]


def test_listener_added_by_the_user_elsewhere_is_still_restored_in_the_first():
    """The second ``addListener`` must not count as a removal."""
    registration = Registration(registered=True)
    registration.check()
    second = Manager(registration.listener)
    registration.wirings += 1
    registration.sessions.cover(Execution(second))
    registration.check()
    registration.first.removeListener(registration.listener)

    assert registration.check().reregistrations == 1
    assert registration.counts(second) == [1, 1]


def test_session_without_queries_is_released_and_covered_again_later():
    registration, second = Registration(registered=True), Manager()
    registration.sessions.cover(Execution(second))
    registration.check()
    second.queries = 0
    registration.check()
    second.removeListener(registration.listener)
    assert registration.check().reregistrations == 0
    second.queries = 1
    registration.sessions.cover(Execution(second))

    assert registration.counts(second) == [1, 1]


def test_first_session_is_kept_after_its_queries_ended():
    registration = Registration(registered=True)
    registration.first.queries = 0
    registration.check(2)
    registration.first.removeListener(registration.listener)

    assert registration.check().reregistrations == 1


# -- events that Spark dropped ------------------------------------------------------------------


def test_first_check_reads_the_earlier_drops():
    """A driver that dropped events earlier has a count to start from."""
    assert Registration(registered=True, dropped=lambda: 37).check().dropped_events == 37


def test_drops_are_read_at_each_check():
    counts = iter([3, 5, 8])
    registration = Registration(registered=True, dropped=lambda: next(counts))
    asked_at = (0.0, CHECK_EVERY_SECONDS - 1, CHECK_EVERY_SECONDS, 2 * CHECK_EVERY_SECONDS - 1)

    assert [registration.sessions.check(at).dropped_events for at in asked_at] == [3, 3, 5, 5]
    assert registration.sessions.check(2 * CHECK_EVERY_SECONDS).dropped_events == 8


def test_drops_are_read_after_the_user_removed_the_listener():
    registration = Registration(dropped=lambda: 7)
    registration.check()
    registration.wirings += 1

    health = registration.check()
    assert (health.registered, health.reregistrations, health.dropped_events) == (False, 0, 7)


def test_uncountable_drops_are_unknown():
    assert Registration(registered=True, dropped=lambda: None).check(2).dropped_events is None


# -- removing ---------------------------------------------------------------------------------


def test_remove_takes_out_every_registration_and_no_other_listener():
    registration, second = Registration(registered=True), Manager()
    registration.first.listeners.append(registration.listener)
    registration.sessions.cover(Execution(second))
    registration.sessions.remove()

    assert [len(each.listeners) for each in (registration.first, second)] == [1, 1]


def test_second_remove_does_nothing():
    registration = Registration(registered=True)
    registration.sessions.remove()
    registration.sessions.remove()

    assert len(registration.first.listeners) == 1


def test_lost_jvm_does_not_count_as_a_removal():
    registration = Registration(registered=True)
    registration.check()
    registration.first.listeners.clear()
    registration.first.refusal = Py4JNetworkError("no answer")
    with pytest.raises(Py4JNetworkError):
        registration.check()
    registration.first.refusal = None

    assert registration.check().reregistrations == 1
