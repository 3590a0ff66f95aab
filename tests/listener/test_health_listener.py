"""On Spark's own threads the listener only stores the event, whichever way it is called."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from py4j.java_gateway import JavaObject
from pyspark import SparkContext
from pyspark.sql.streaming.listener import StreamingQueryListener

from querypulse.listener import HealthListener as PublicHealthListener
from querypulse.listener.events import EventKind
from querypulse.listener.spark.health_listener import WRAPPER, HealthListener

METHODS = {
    EventKind.STARTED: "onQueryStarted",
    EventKind.PROGRESS: "onQueryProgress",
    EventKind.IDLE: "onQueryIdle",
    EventKind.TERMINATED: "onQueryTerminated",
}


class Gateway:
    """Py4J's connection to a JVM that must not be called."""

    address, port = "127.0.0.1", 0
    gateway_property = SimpleNamespace(auto_field=False, enable_memory_management=False)

    def send_command(self, command):
        raise AssertionError(f"the JVM was called on Spark's thread: {command!r}")


def handle():
    """A JVM event as Py4J passes it; every use of it would be a call to the JVM."""
    return JavaObject("o7", Gateway())


class Wrapper:
    """The JVM listener made around a Python proxy."""

    def __init__(self, proxy):
        self.proxy = proxy


class Listening:
    """A listener, and a count of what it starts."""

    def __init__(self, start=None):
        self.java_listener = object()
        self.starts = 0
        self.listener = HealthListener(capacity=100, start=start or self.start, start_on=list)

    def start(self):
        self.starts += 1
        return self.java_listener

    def raw(self):
        """The object that Py4J calls."""
        return self.listener.proxy().proxy

    @property
    def received(self):
        return self.listener.mailbox.take(0)


@pytest.fixture
def jvm(monkeypatch):
    """A JVM that has PySpark's wrapper class, like every classic Spark."""
    jvm = SimpleNamespace(**{WRAPPER: Wrapper})
    monkeypatch.setattr(SparkContext, "_jvm", jvm)
    return jvm


@pytest.mark.parametrize("kind", list(EventKind))
def test_raw_proxy_stores_the_handle_without_using_it_and_is_timed(jvm, kind):
    listening, event = Listening(), handle()
    before = time.monotonic()
    getattr(listening.raw(), METHODS[kind])(event)
    (received,), durations = listening.received, listening.listener.callback_durations

    assert (received.kind, received.payload is event) == (kind, True)
    assert before <= received.at <= time.monotonic()
    assert [seconds >= 0 for seconds in durations] == [True]
    assert durations.maxlen is not None


TEXT = '{"id": "i", "runId": "r", "exception": "a.b.C: forged"}'
FORGERIES = [TEXT, b"{}", 7, True, None, {"id": "i"}, [], SimpleNamespace(json=lambda: TEXT)]


@pytest.mark.fault(
    "Events",
    "A local user forges an event at the callback port",
    "It is counted as forged and dropped",
)
@pytest.mark.parametrize("method", METHODS.values())
def test_object_that_is_no_jvm_handle_is_counted_as_forged_and_dropped(jvm, method):
    """Py4J's callback port requires no token."""
    listening = Listening()
    raw = listening.raw()
    for number, forged in enumerate(FORGERIES, 1):
        getattr(raw, method)(forged)
        assert listening.listener.refused == {"forged": number}

    assert (listening.received, listening.listener.mailbox.depth) == ([], 0)
    assert list(listening.listener.callback_durations) == []


def test_pyspark_gets_the_result_of_start_each_time_it_adds_or_removes_the_listener():
    listening = Listening()
    assert listening.starts == 0

    assert listening.listener._jlistener is listening.java_listener
    assert listening.listener._jlistener is listening.java_listener
    assert (listening.listener.wirings, listening.starts) == (2, 2)


def test_error_of_start_is_raised_at_the_users_line():
    def refuse():
        raise RuntimeError("no active SparkSession")

    with pytest.raises(RuntimeError, match="no active SparkSession"):
        _ = Listening(start=refuse).listener._jlistener


def test_listener_is_a_streaming_query_listener():
    assert PublicHealthListener is HealthListener
    assert issubclass(HealthListener, StreamingQueryListener)
