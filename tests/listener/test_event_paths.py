"""Events use the bus queue, or a listener in each session where the driver refuses it."""

from __future__ import annotations

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

from querypulse.listener.probe_report import FullQueue, JobCounts
from querypulse.listener.spark.event_paths import CHECK_EVERY_SECONDS, NotListeningError, open_path
from querypulse.listener.spark.health_listener import WRAPPER, HealthListener
from querypulse.listener.spark.jvm import FIELD, NETWORK_ERRORS, RECORD
from querypulse.listener.state.snapshot import ALONE

NOT_ALLOWED = Py4JError("not whitelisted")
ERRORS_FOR = {"bus_queue": {}, "python_proxy": {"janino": NOT_ALLOWED}}
"""The calls that a driver must refuse so that each path is the best one left."""


class Spark(FakeDriver):
    """A driver, our listener, and the calls into PySpark."""

    def __init__(self, monkeypatch, **java_errors):
        super().__init__(**java_errors)
        self.listener = HealthListener(capacity=10, start=object, start_on=list)
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
    """Create a driver that refuses the given parts."""
    return lambda **java_errors: Spark(monkeypatch, **java_errors)


def opened(driver, name, *, by_hand=False):
    """A driver for which this path is the best one left, and the path."""
    spark = driver(**ERRORS_FOR[name])
    path = spark.open(by_hand=by_hand)
    assert path.name == name
    return spark, path


def test_own_queue_on_the_bus_is_the_best_path(driver):
    spark, path = opened(driver, "bus_queue")

    assert spark.bus.queues == [spark.queue]
    assert path.source.java is spark.queue
    assert spark.queue.claims == ["session-1"]
    assert (spark.manager.added, spark.callback_servers) == ([], [])


REFUSALS = {
    "janino": NOT_ALLOWED,
    "listener_bus": PySparkException("password=hunter2hunter"),
    "bus": NOT_ALLOWED,
    "the bus loses our listener": None,
    "a package without Java": None,
}


@pytest.mark.parametrize("part", REFUSALS)
def test_refused_queue_is_logged_and_falls_back_to_a_python_proxy(
    driver, caplog, monkeypatch, part
):
    spark = driver(**{part: REFUSALS[part]} if REFUSALS[part] else {})
    spark.bus.forgets = part == "the bus loses our listener"
    if part == "a package without Java":
        monkeypatch.setattr("querypulse.listener.spark.jvm.__package__", "querypulse.exporter")
    path = spark.open()

    assert path.name == "python_proxy"
    assert [queue.closes for queue in spark.queues] == [1] * len(spark.queues)
    assert path.source is spark.listener.mailbox
    # Where our Java compiles, it shows the runs off the bus, too.
    assert (path.living_runs() is not None) == (path.executions is not None) == bool(spark.queues)
    assert spark.manager.added == [path.java_listener]
    assert spark.callback_servers == [spark.sparkContext._gateway]
    (logged,) = [record.getMessage() for record in caplog.records]
    assert "bus_queue" in logged
    assert "hunter2hunter" not in logged


@pytest.mark.parametrize("part", ["janino", "listener_bus", "bus"])
def test_lost_jvm_is_raised_and_causes_no_fallback(driver, part):
    for lost in NETWORK_ERRORS:
        spark = driver(**{part: lost("no answer")})
        with pytest.raises(lost, match="no answer"):
            spark.open()

        assert (spark.manager.added, spark.callback_servers) == ([], [])


@pytest.mark.parametrize("refused", ["session", "proxy", "the session loses it"])
def test_driver_that_refuses_the_last_path_is_an_error(driver, refused):
    """An attach that watches nothing must not seem to watch."""
    also = {"proxy": NOT_ALLOWED} if refused == "proxy" else {}
    spark = driver(janino=NOT_ALLOWED, **also)
    spark.manager.forgets = refused == "the session loses it"
    spark.manager.refusal = NOT_ALLOWED if refused == "session" else None
    with pytest.raises(NotListeningError if spark.manager.forgets else Py4JError):
        spark.open()


@pytest.mark.parametrize("name", ERRORS_FOR)
def test_manual_mode_adds_nothing_to_the_session_and_finds_what_pyspark_adds(driver, name):
    """PySpark adds ``java_listener`` itself, and starts the callback server if needed."""
    spark, path = opened(driver, name, by_hand=True)
    assert (spark.manager.added, spark.callback_servers) == ([], [])
    assert path.check(0.0).registered
    spark.manager.addListener(path.java_listener)
    health = path.check(CHECK_EVERY_SECONDS)

    assert (health.registered, health.reregistrations) == (True, 0)
    assert spark.manager.listeners.count(path.java_listener) == 1


def drop_listener(spark):
    """Spark drops our listener, as it does after an interrupt."""
    spark.bus.queues.clear()
    del spark.manager.listeners[1:]


def times_registered(spark, path):
    if path.name == "bus_queue":
        return spark.bus.queues.count(spark.queue)
    return spark.manager.listeners.count(path.java_listener)


@pytest.mark.parametrize("name", ERRORS_FOR)
def test_check_restores_a_dropped_listener_and_counts_it(driver, name):
    spark, path = opened(driver, name)
    path.check(0.0)
    drop_listener(spark)
    checks = [path.check(number * CHECK_EVERY_SECONDS) for number in (0.9, 1, 2, 3)]

    assert [health.reregistrations for health in checks] == [0, 1, 1, 1]
    assert all(health.registered for health in checks)
    assert times_registered(spark, path) == 1


def test_bus_that_rejects_the_restored_listener_is_reported(driver):
    spark, path = opened(driver, "bus_queue")
    drop_listener(spark)
    spark.bus.forgets = True

    assert not path.check(0.0).registered
    spark.bus.forgets = False
    assert path.check(CHECK_EVERY_SECONDS).registered


@pytest.mark.parametrize("name", ERRORS_FOR)
def test_first_check_counts_events_dropped_before_the_attach(driver, name):
    spark, path = opened(driver, name)
    spark.bus.dropped = spark.bus.shared_drops[SHARED_QUEUE] = 37

    assert path.check(0.0).dropped_events == 37
    spark.bus.dropped = spark.bus.shared_drops[SHARED_QUEUE] = 40
    assert path.check(1.0).dropped_events == 37
    assert path.check(CHECK_EVERY_SECONDS).dropped_events == 40


def test_unreadable_drop_count_is_unknown_and_a_lost_jvm_is_raised(driver):
    spark, path = opened(driver, "python_proxy")
    spark.java_errors["metrics"] = NOT_ALLOWED
    assert path.check(0.0).dropped_events is None

    for number, lost in enumerate(NETWORK_ERRORS, 1):
        spark.java_errors["metrics"] = lost("no answer")
        with pytest.raises(lost):
            path.check(number * CHECK_EVERY_SECONDS)


# -- queues of other listeners ----------------------------------------------------------------


def full_queue(*fields):
    return RECORD + FIELD.join(fields)


def test_full_queue_of_others_is_named_and_logged_once_for_each_listener_at_work(driver, caplog):
    spark, path = opened(driver, "bus_queue")
    assert check(path).full_queues == ()

    shared = full_queue("shared", "3", "", "com.acme.Jobs")
    for dropped, busy in (("95", "com.acme.Slow"), ("99", "com.acme.Slow"), ("120", "b.Other")):
        streams = full_queue("streams", dropped, busy, "a Python listener", "com.acme.Slow")
        spark.bus.full_queues = shared + streams
        health = check(path)

    assert health.full_queues == (
        FullQueue("shared", 3, "", ("com.acme.Jobs",)),
        FullQueue("streams", 120, "b.Other", ("a Python listener", "com.acme.Slow")),
    )
    said = "querypulse: Spark has dropped {} events of its listener queue {}; other listeners on it: {}"
    on_streams = "a Python listener, com.acme.Slow"
    assert [record.getMessage() for record in caplog.records] == [
        said.format(3, "shared", "com.acme.Jobs"),
        said.format(95, "streams while com.acme.Slow was at work", on_streams),
        said.format(120, "streams while b.Other was at work", on_streams),
    ]


def test_shared_queue_that_drops_events_names_the_other_listeners(driver, caplog):
    spark, path = opened(driver, "python_proxy")
    spark.manager.listeners += [
        JavaListener(name=WRAPPER),
        JavaListener(name="org.apache.spark.UI"),
    ]
    caplog.clear()
    spark.bus.shared_drops[SHARED_QUEUE] = 37
    assert check(path).full_queues == ()

    for dropped in (40, 45):
        spark.bus.shared_drops[SHARED_QUEUE] = dropped
        health = check(path)
    others = ("a Python listener", "com.acme.Lineage")
    assert health.full_queues == (FullQueue("streams", 8, "", others),)
    assert len(caplog.records) == 1


@pytest.mark.parametrize("dropped", [0, 40])
def test_shared_queue_without_drops_or_others_is_not_mentioned(driver, dropped):
    spark, path = opened(driver, "python_proxy")
    check(path)
    if dropped:
        spark.manager.listeners[:] = [path.java_listener, JavaListener(name="org.apache.spark.UI")]
    spark.bus.shared_drops[SHARED_QUEUE] = dropped

    assert check(path).full_queues == ()


def registered(path, *managers):
    """How often each session lists our listener."""
    return [manager.listeners.count(path.java_listener) for manager in managers]


def check(path, checks=1):
    """The health after so many more checks that are due."""
    for _ in range(checks):
        path.now = getattr(path, "now", 0.0) + CHECK_EVERY_SECONDS
        health = path.check(path.now)
    return health


def test_each_session_gets_the_listener_when_its_first_query_is_seen_and_keeps_it(driver):
    spark, path = opened(driver, "python_proxy")
    other, by_user = Manager(), Manager(path.java_listener)
    managers = spark.manager, other, by_user
    for manager in (*managers, other):
        path.cover(Execution(manager))
    assert registered(path, *managers) == [1, 1, 1]

    check(path)
    for manager in managers[:2]:
        manager.removeListener(path.java_listener)
    health = check(path)

    assert (health.registered, health.reregistrations) == (True, 2)
    assert registered(path, *managers) == [1, 1, 1]


def test_listener_removed_by_the_user_stays_removed_and_one_added_elsewhere_does_not_count(driver):
    spark, path = opened(driver, "python_proxy")
    check(path)
    other = Manager(path.java_listener)
    spark.listener.wirings += 1
    path.cover(Execution(other))
    check(path)
    spark.manager.removeListener(path.java_listener)
    assert check(path).reregistrations == 1, "Spark dropped it"

    for manager in (spark.manager, other):
        manager.removeListener(path.java_listener)
    spark.listener.wirings += 1
    check(path)
    path.cover(Execution(spark.manager))
    assert not check(path, 3).registered
    assert registered(path, spark.manager, other) == [0, 0]


def test_lost_jvm_does_not_count_as_a_removal(driver):
    spark, path = opened(driver, "python_proxy")
    check(path)
    spark.manager.listeners.clear()
    spark.manager.refusal = Py4JNetworkError("no answer")
    with pytest.raises(Py4JNetworkError):
        check(path)
    spark.manager.refusal = None

    assert check(path).reregistrations == 1


def test_only_the_queue_in_the_jvm_counts_jobs_and_knows_the_other_processes(driver):
    spark, path = opened(driver, "bus_queue")
    assert path.ownership.is_alone
    spark.queue.answers = [answer(watchers="7:session-1 5:session-2")]
    path.source.take(0)

    assert path.ownership.covers("session-1")
    assert not path.ownership.covers("session-2")
    assert path.job_counts().by_query == {"id-a": JobCounts(3, 1, 40, 2)}
    proxy = opened(driver, "python_proxy")[1]
    assert (proxy.ownership, proxy.job_counts(), proxy.living_runs()) == (ALONE, None, None)


@pytest.mark.parametrize("name", ERRORS_FOR)
def test_release_removes_what_was_added_and_is_idempotent(driver, name):
    spark, path = opened(driver, name)
    other = Manager()
    path.cover(Execution(other))
    if name == "python_proxy":
        spark.manager.listeners.append(path.java_listener)
    path.release()
    path.release()

    assert (len(spark.manager.listeners), len(other.listeners)) == (1, 1)
    assert spark.bus.queues == []
    assert [queue.closes for queue in spark.queues] == [1] * len(spark.queues)
    assert path.java_listener is None


def test_manually_added_listener_stays_known_for_its_removal(driver):
    """PySpark removes only the very object that it added."""
    spark, path = opened(driver, "bus_queue", by_hand=True)
    added = path.java_listener
    spark.listener.wirings += 1
    path.release()

    assert path.java_listener is added
