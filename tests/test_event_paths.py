"""Events come by the best way that the driver allows, and by the next one where it refuses that."""

from __future__ import annotations

import logging

import pyspark.java_gateway
import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from support.fake_driver import (
    SHARED_QUEUE,
    Execution,
    FakeDriver,
    JavaListener,
    Manager,
    answer,
    python_jvm,
)

from querypulse.listener.event_path import NotListeningError
from querypulse.listener.event_paths import open_path
from querypulse.listener.guard import Guard
from querypulse.listener.health_listener import HealthListener
from querypulse.listener.job_counts import JobCounts
from querypulse.listener.jvm import NETWORK_ERRORS
from querypulse.listener.ownership import ALONE
from querypulse.listener.session_listeners import CHECK_EVERY_SECONDS

REFUSED = Py4JError("not whitelisted")
REFUSALS = {
    "bus_queue": {},
    "session_listeners": {"bus": REFUSED},
    "python_proxy": {"janino": REFUSED},
    "python_callbacks": {"janino": REFUSED, "proxy": REFUSED},
}
"""What a driver must refuse for each way to be the best one left."""
NEEDS_ERRORS = pytest.param("python_callbacks", marks=pytest.mark.contains_errors)
"""The guard counts the refusal of the raw proxy as an error."""
ALL_PATHS = ["bus_queue", "session_listeners", "python_proxy", NEEDS_ERRORS]
IN_SESSIONS = ALL_PATHS[1:]
OF_THE_JVM = ALL_PATHS[:2]


class Spark(FakeDriver):
    """A driver, our listener, and what PySpark has been asked for."""

    def __init__(self, monkeypatch, **java_errors):
        super().__init__(**java_errors)
        self.guard = Guard()
        self.listener = HealthListener(self.guard, capacity=10, start=object, start_later=list)
        self.callback_servers = []
        monkeypatch.setattr(SparkContext, "_jvm", python_jvm(self.wrapper))
        monkeypatch.setattr(
            pyspark.java_gateway, "ensure_callback_server_started", self.callback_servers.append
        )

    def wrapper(self, proxy):
        self.require("proxy")
        return JavaListener(proxy)

    def open(self, *, by_hand=False):
        return open_path(self, self.listener, by_hand=by_hand)


@pytest.fixture
def driver(monkeypatch):
    """Makes a driver with what it refuses, by part."""
    return lambda **java_errors: Spark(monkeypatch, **java_errors)


def opened(driver, name, *, by_hand=False):
    """A driver for which this way is the best one left, and the way."""
    spark = driver(**REFUSALS[name])
    path = spark.open(by_hand=by_hand)
    assert path.name == name
    return spark, path


# -- the best way that is left --------------------------------------------------------------------


def test_a_queue_of_our_own_on_the_bus_is_the_best_way(driver):
    spark, path = opened(driver, "bus_queue")

    assert spark.bus.queues == [spark.queue]
    assert path.source.java is spark.queue
    assert spark.queue.claims == ["session-1"]
    assert (spark.manager.added, spark.callback_servers) == ([], [])


@pytest.mark.parametrize(
    "part", ["bus", "listener_bus"], ids=["our listener refused", "the bus itself refused"]
)
@pytest.mark.parametrize("refused", [REFUSED, PySparkException("refused")], ids=["py4j", "pyspark"])
def test_a_bus_that_refuses_us_leaves_the_listener_of_each_session(driver, part, refused):
    spark = driver(**{part: refused})
    path = spark.open()

    assert path.name == "session_listeners"
    assert path.source.java is spark.queue
    assert spark.queue.in_sessions
    assert set(spark.queue.claims) == {"session-1"}
    assert spark.manager.added == [spark.queue.listener]
    assert spark.callback_servers == []


def test_a_bus_that_forgets_the_listener_just_added_leaves_the_sessions_too(driver):
    spark = driver()
    spark.bus.forgets = True

    assert spark.open().name == "session_listeners"
    assert spark.queue.closes == 0


@pytest.mark.parametrize("refused", [REFUSED, PySparkException("refused")], ids=["py4j", "pyspark"])
def test_a_driver_that_refuses_janino_leaves_a_python_proxy(driver, refused):
    spark = driver(janino=refused)
    path = spark.open()

    assert (path.name, spark.queues) == ("python_proxy", [])
    assert path.source is spark.listener.mailbox
    assert spark.manager.added == [path.java_listener]
    assert spark.callback_servers == [spark.sparkContext._gateway]


def test_a_package_without_its_java_sources_leaves_a_python_proxy(driver, monkeypatch):
    monkeypatch.setattr("querypulse.listener.driver_class.__package__", "querypulse.exporter")

    assert driver().open().name == "python_proxy"


@pytest.mark.contains_errors
def test_a_driver_that_refuses_the_raw_proxy_leaves_pysparks_own_callbacks(driver):
    spark, path = opened(driver, "python_callbacks")

    assert path.source is spark.listener.mailbox
    assert path.java_listener.proxy.pylistener is spark.listener
    assert spark.manager.added == [path.java_listener]


def test_a_queue_that_no_way_feeds_is_closed(driver):
    spark = driver(bus=REFUSED, sessions=REFUSED)

    assert spark.open().name == "python_proxy"
    assert spark.queue.closes == 1


def test_each_refusal_is_logged_with_its_reason(driver, caplog):
    caplog.set_level(logging.WARNING, "querypulse")
    driver(bus=Py4JError("password=hunter2hunter on the bus"), sessions=REFUSED).open()
    logged = [record.getMessage() for record in caplog.records]

    assert len(logged) == 2
    assert "bus_queue" in logged[0]
    assert "hunter2hunter" not in logged[0]
    assert "session_listeners" in logged[1]
    assert "not whitelisted" in logged[1]


# -- what is no refusal ---------------------------------------------------------------------------


@pytest.mark.parametrize("lost", NETWORK_ERRORS)
@pytest.mark.parametrize("part", ["janino", "listener_bus", "bus"])
def test_a_lost_jvm_is_no_refusal(driver, part, lost):
    spark = driver(**{part: lost("no answer")})
    with pytest.raises(lost, match="no answer"):
        spark.open()

    assert (spark.manager.added, spark.callback_servers) == ([], [])


def test_a_jvm_lost_while_a_session_is_asked_is_no_refusal(driver):
    spark = driver(bus=REFUSED, sessions=Py4JNetworkError("no answer"))
    with pytest.raises(Py4JNetworkError):
        spark.open()

    assert spark.callback_servers == []


@pytest.mark.parametrize("name", ["python_proxy", NEEDS_ERRORS])
def test_a_session_that_forgets_the_listener_just_added_is_an_error(driver, name):
    """L22: an attach that watches nothing must not look like one that watches."""
    spark = driver(**REFUSALS[name])
    spark.manager.forgets = True
    with pytest.raises(NotListeningError):
        spark.open()


def test_a_driver_that_forgets_every_listener_is_an_error(driver):
    spark = driver()
    spark.bus.forgets = spark.manager.forgets = True
    with pytest.raises(NotListeningError):
        spark.open()

    assert spark.queue.closes == 1


def test_a_session_that_refuses_the_last_way_is_an_error(driver):
    spark = driver(janino=REFUSED)
    spark.manager.refusal = REFUSED
    with pytest.raises(Py4JError, match="not whitelisted"):
        spark.open()


# -- a listener that is added by hand ---------------------------------------------------------------


@pytest.mark.parametrize("name", ALL_PATHS)
def test_by_hand_nothing_is_added_to_the_session(driver, name):
    """PySpark adds ``java_listener`` itself, and starts the callback server where it must."""
    spark, path = opened(driver, name, by_hand=True)

    assert (spark.manager.added, spark.callback_servers) == ([], [])
    assert path.java_listener is not None


def test_by_hand_the_bus_feeds_us_before_pyspark_adds_the_listener(driver):
    spark, path = opened(driver, "bus_queue", by_hand=True)

    assert spark.bus.queues == [spark.queue]
    assert path.java_listener is spark.queue.listener


@pytest.mark.parametrize("name", IN_SESSIONS)
def test_by_hand_the_first_check_finds_what_pyspark_has_added(driver, name):
    spark, path = opened(driver, name, by_hand=True)
    assert path.check(0.0).registered
    spark.manager.addListener(path.java_listener)
    health = path.check(CHECK_EVERY_SECONDS)

    assert (health.registered, health.reregistrations) == (True, 0)
    assert spark.manager.listeners.count(path.java_listener) == 1


# -- checking ---------------------------------------------------------------------------------


def forget(spark):
    """Spark drops our listener, as after an interrupt."""
    spark.bus.queues.clear()
    del spark.manager.listeners[1:]


def times_registered(spark, path):
    if path.name == "bus_queue":
        return spark.bus.queues.count(spark.queue)
    return spark.manager.listeners.count(path.java_listener)


@pytest.mark.parametrize("name", ALL_PATHS)
def test_a_check_puts_back_what_spark_dropped_and_counts_it(driver, name):
    spark, path = opened(driver, name)
    path.check(0.0)
    forget(spark)
    checks = [path.check(number * CHECK_EVERY_SECONDS) for number in (0.9, 1, 2, 3)]

    assert [health.reregistrations for health in checks] == [0, 1, 1, 1]
    assert all(health.registered for health in checks)
    assert times_registered(spark, path) == 1


def test_a_bus_that_takes_nothing_back_is_reported(driver):
    spark, path = opened(driver, "bus_queue")
    forget(spark)
    spark.bus.forgets = True

    assert not path.check(0.0).registered
    spark.bus.forgets = False
    assert path.check(CHECK_EVERY_SECONDS).registered


@pytest.mark.parametrize("name", ALL_PATHS)
def test_the_first_check_reads_what_spark_dropped_before_we_came(driver, name):
    """L14"""
    spark, path = opened(driver, name)
    spark.bus.dropped = spark.bus.shared_drops[SHARED_QUEUE] = 37

    assert path.check(0.0).dropped_events == 37
    spark.bus.dropped = spark.bus.shared_drops[SHARED_QUEUE] = 40
    assert path.check(1.0).dropped_events == 37
    assert path.check(CHECK_EVERY_SECONDS).dropped_events == 40


@pytest.mark.parametrize("name", IN_SESSIONS)
def test_drops_that_spark_refuses_to_count_are_unknown(driver, name):
    spark, path = opened(driver, name)
    spark.java_errors["metrics"] = REFUSED

    assert path.check(0.0).dropped_events is None


@pytest.mark.parametrize("lost", NETWORK_ERRORS)
@pytest.mark.parametrize("name", IN_SESSIONS)
def test_a_lost_jvm_is_no_unknown_count_of_drops(driver, name, lost):
    spark, path = opened(driver, name)
    spark.java_errors["metrics"] = lost("no answer")

    with pytest.raises(lost):
        path.check(0.0)


# -- other sessions -----------------------------------------------------------------------------


def test_the_bus_carries_other_sessions_without_a_listener_in_them(driver):
    _, path = opened(driver, "bus_queue")
    other = Manager()
    path.cover(Execution(other))

    assert other.added == []


@pytest.mark.parametrize("name", IN_SESSIONS)
def test_another_session_gets_the_listener_when_one_of_its_queries_is_met(driver, name):
    _, path = opened(driver, name)
    other = Manager()
    path.cover(Execution(other))
    path.cover(Execution(other))

    assert other.added == [path.java_listener]


# -- jobs and owners ------------------------------------------------------------------------------


def test_only_the_bus_counts_jobs(driver):
    assert opened(driver, "bus_queue")[1].job_counts() == {"id-a": JobCounts(3, 1, 40, 2)}
    for name in ("session_listeners", "python_proxy"):
        assert opened(driver, name)[1].job_counts() is None


@pytest.mark.parametrize("name", OF_THE_JVM)
def test_a_queue_in_the_jvm_knows_the_other_processes(driver, name):
    spark, path = opened(driver, name)
    assert path.ownership.is_alone
    spark.queue.answers = [answer(watchers="7:session-1 5:session-2")]
    path.source.take(0)

    assert path.ownership.covers("session-1")
    assert not path.ownership.covers("session-2")


def test_a_python_listener_knows_no_other_process(driver):
    assert opened(driver, "python_proxy")[1].ownership == ALONE


# -- release ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL_PATHS)
def test_release_takes_out_what_was_added_and_may_be_repeated(driver, name):
    spark, path = opened(driver, name)
    other = Manager()
    path.cover(Execution(other))
    path.release()
    path.release()

    assert (len(spark.manager.listeners), len(other.listeners)) == (1, 1)
    assert spark.bus.queues == []
    assert [queue.closes for queue in spark.queues] == [1] * len(spark.queues)
    assert path.java_listener is None


def test_the_listener_stays_known_where_somebody_may_want_to_remove_it(driver):
    """PySpark removes only the very object that it has added."""
    spark, path = opened(driver, "bus_queue", by_hand=True)
    added = path.java_listener
    spark.listener.wirings += 1
    path.release()

    assert path.java_listener is added


def test_the_queue_is_closed_even_where_a_session_cannot_be_asked(driver):
    spark, path = opened(driver, "session_listeners")
    spark.manager.refusal = Py4JNetworkError("no answer")
    with pytest.raises(Py4JNetworkError):
        path.release()

    assert spark.queue.closes == 1
