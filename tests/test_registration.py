"""The listener is put back where Spark dropped it, never added twice, and taken out whole."""

from __future__ import annotations

import pytest

from querypulse.listener.spark_listeners import CHECK_EVERY_SECONDS, SparkListeners


class Wrapper:
    """A JVM listener: equal to itself only."""

    def equals(self, other):
        return self is other


class Manager:
    """A session's StreamingQueryManager, with somebody else's listener in it."""

    def __init__(self, *listeners):
        self.listeners = [Wrapper(), *listeners]

    def hashCode(self):
        return id(self)

    def listListeners(self):
        return list(self.listeners)

    def addListener(self, listener):
        self.listeners.append(listener)

    def removeListener(self, listener):
        self.listeners.remove(listener)


class Execution:
    """A running query of one session."""

    def __init__(self, manager):
        self.manager = manager

    def sparkSession(self):
        return self

    def streams(self):
        return self.manager


class Listener:
    """The wired health listener, as far as registering needs it."""

    def __init__(self):
        self.wrapper = Wrapper()
        self.wirings = 1


@pytest.fixture
def listener():
    return Listener()


def test_while_pyspark_is_about_to_add_it_nobody_else_does(listener):
    manager = Manager()
    listeners = SparkListeners(listener, manager, lambda: 0)

    assert listeners.check(now=1000.0).registered
    assert listener.wrapper not in manager.listeners


def test_a_dropped_listener_is_put_back_once_and_counted(listener):
    manager = Manager(listener.wrapper)
    listeners = SparkListeners(listener, manager, lambda: 0)
    listeners.check(0.0)
    manager.removeListener(listener.wrapper)

    assert listeners.check(CHECK_EVERY_SECONDS - 1).reregistrations == 0
    assert listeners.check(CHECK_EVERY_SECONDS).reregistrations == 1
    assert listeners.check(2 * CHECK_EVERY_SECONDS).reregistrations == 1
    assert manager.listeners.count(listener.wrapper) == 1


def test_a_listener_taken_out_by_hand_stays_out(listener):
    manager = Manager(listener.wrapper)
    listeners = SparkListeners(listener, manager, lambda: 0)
    listeners.check(0.0)
    manager.removeListener(listener.wrapper)
    listener.wirings += 1

    assert not listeners.check(CHECK_EVERY_SECONDS).registered
    assert listener.wrapper not in manager.listeners


def test_what_sparks_queue_dropped_is_told_as_often_as_the_listener_is_checked(listener):
    counts = iter([3, 5])
    listeners = SparkListeners(listener, Manager(listener.wrapper), lambda: next(counts))
    asked_at = (0.0, CHECK_EVERY_SECONDS - 1, CHECK_EVERY_SECONDS, 2 * CHECK_EVERY_SECONDS - 1)

    assert [listeners.check(at).dropped_events for at in asked_at] == [0, 0, 3, 3]
    assert listeners.check(2 * CHECK_EVERY_SECONDS).dropped_events == 5


def test_what_was_dropped_is_told_of_a_listener_taken_out_by_hand_too(listener):
    listeners = SparkListeners(listener, Manager(), lambda: 7)
    listeners.check(0.0)
    listener.wirings += 1

    health = listeners.check(CHECK_EVERY_SECONDS)
    assert (health.registered, health.reregistrations, health.dropped_events) == (False, 0, 7)


def test_another_session_is_covered_when_one_of_its_queries_is_met(listener):
    first, second = Manager(listener.wrapper), Manager()
    listeners = SparkListeners(listener, first, lambda: 0)
    for _ in range(3):
        listeners.cover(Execution(second))
        listeners.cover(Execution(first))

    assert [each.listeners.count(listener.wrapper) for each in (first, second)] == [1, 1]


def test_removing_takes_every_registration_and_nobody_elses(listener):
    first, second = Manager(listener.wrapper, listener.wrapper), Manager()
    listeners = SparkListeners(listener, first, lambda: 0)
    listeners.cover(Execution(second))
    listeners.remove()

    assert [len(each.listeners) for each in (first, second)] == [1, 1]
